"""Every operator on devices of both classes: what its kernels compute, by which rule, and which of them one thread runs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from inlaid import ops
from inlaid.conformance.corpus import Choices, entry_of
from inlaid.graph.operator import Operator
from inlaid.lowering.kernel import KernelSource, build
from inlaid.tensor import ir

from .held import CLASSES, GPU, held_to_the_interpreter, launches_of

COMPUTED = [operator for operator in ops.OPERATORS if operator.compute is not None and entry_of(operator) is not None]
SERIAL = {
    "cumprod": "a scan along the only axis",
    "cumsum": "a scan along the only axis",
    "det": "eliminates one column after another",
    "dynamic_slice": "works out its size",
    "non_max_suppression": "works out its size",
    "nonzero": "works out its size",
    "roi_align": "keeps sums of any number of channels",
    "scatter_along_axis": "updates along the only axis",
    "topk": "selects along an axis",
    "unique": "works out its size",
}
"""Operators of whose kernels one thread runs some, at sizes of some kind, and why."""


def examples(operator: Operator) -> Iterator[tuple[ir.LoopProgram, list[Any]]]:
    """Small examples with sizes that are known and that are not, whose constants are inputs."""
    entry = entry_of(operator)
    assert entry is not None
    element = next(name for name in ("float32", "int32", *entry.dtypes) if name in entry.dtypes)
    for number in range(3):
        for form in entry.example(Choices.pinned(number), element).forms():
            if form.kind != "constants":
                yield build(KernelSource(operator.name, form.function.params, form.function.body)), list(form.inputs)


@pytest.mark.parametrize("able", CLASSES.values(), ids=CLASSES)
@pytest.mark.parametrize("operator", COMPUTED, ids=lambda operator: operator.name)
def test_computes_the_same(operator, able):
    for program, inputs in examples(operator):
        if program.defines and any(0 in array.shape for array in inputs):
            continue  # a result that is known to be empty is never written, which the interpreter takes for a mistake
        held_to_the_interpreter(program, able, arrays=inputs, tolerance=1e-4)


def is_serial(program: ir.LoopProgram) -> bool:
    """Whether one thread runs loops of a kernel."""
    threads = any(isinstance(stmt, ir.For) and stmt.kind is ir.ForKind.THREAD for stmt in ir.walk_stmts(program.body))
    return not threads and any(isinstance(stmt, (ir.For, ir.While)) for stmt in ir.walk_stmts(program.body))


def test_few_operators_run_on_one_thread():
    found = {
        operator.name
        for operator in COMPUTED
        for program, _ in examples(operator)
        if any(is_serial(item.program) for item in launches_of(program, GPU).kernels.values())
    }
    assert found <= SERIAL.keys()
