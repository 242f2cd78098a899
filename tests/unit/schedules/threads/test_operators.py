"""Every operator on devices of both classes: what its kernels compute, by which rule, and which of them one thread runs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from inlaid import ops
from inlaid.graph.operator import Operator
from inlaid.lowering.kernels.kernel import KernelSource, build, thread_grid
from inlaid.plugins import Capabilities
from inlaid.schedules.threads.serial import SerialRule
from inlaid.tensor import ir
from inlaid_conformance.corpus import Choices, find_entry

from .interpreter_checks import CLASSES, GPU, check_against_interpreter, first_offer, make_launches

COMPUTED = [operator for operator in ops.OPERATORS if operator.compute is not None and find_entry(operator) is not None]
SERIAL = {
    "det": "eliminates one column after another",
    "roi_align": "keeps sums of any number of channels",
    "scatter_along_axis": "updates along the only axis",
}
"""Operators of whose kernels one thread runs some, at sizes of some kind, and why."""


def examples(operator: Operator, able: Capabilities) -> Iterator[tuple[ir.LoopProgram, list[Any]]]:
    """Small examples with sizes that are known and that are not, whose constants are inputs, for a device. One is enough of an
    operator with a loop program for threads, of which `test_threaded` runs more."""
    entry = find_entry(operator)
    assert entry is not None
    element = next(name for name in ("float32", "int32", *entry.dtypes) if name in entry.dtypes)
    for number in range(3 if operator.threaded is None else 1):
        for form in entry.example(Choices.pinned(number), element).forms():
            if form.kind != "constants":
                source = KernelSource(operator.name, form.function.params, form.function.body)
                yield build(source, thread_grid(able)), list(form.inputs)


@pytest.mark.parametrize("able", CLASSES.values(), ids=CLASSES)
@pytest.mark.parametrize("operator", COMPUTED, ids=lambda operator: operator.name)
def test_computes_the_same(operator, able):
    """On a device with shared memory few operators run on one thread, and reports name those: a rule of their own takes them."""
    for program, inputs in examples(operator, able):
        if program.defines and any(0 in array.shape for array in inputs):
            # A result that is known to be empty is never written, which the interpreter takes for a mistake.
            launches = make_launches(program, able)
        else:
            launches = check_against_interpreter(program, able, arrays=inputs, tolerance=1e-4)
        if able is GPU:
            alone = any(is_serial(item.program) for item in launches.kernels.values())
            assert (first_offer(program, able)[0] == SerialRule.name) is alone
            assert not alone or operator.name in SERIAL


def is_serial(program: ir.LoopProgram) -> bool:
    """Whether one thread runs loops of a kernel."""
    threads = any(isinstance(stmt, ir.For) and stmt.kind is ir.ForKind.THREAD for stmt in ir.walk_stmts(program.body))
    return not threads and any(isinstance(stmt, (ir.For, ir.While)) for stmt in ir.walk_stmts(program.body))
