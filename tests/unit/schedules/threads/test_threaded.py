"""Every operator whose loop program is another one for grids of threads, on the examples of the conformance suite."""

from __future__ import annotations

import pytest

from inlaid import ops
from inlaid.lowering.loop_rule import loop_rule
from inlaid.plugins import Accept
from inlaid_conformance.corpus import Choices, find_entry
from inlaid_runtime.types import TensorType

from .interpreter_checks import CLASSES
from .threaded import Threaded

OPERATORS = [operator for operator in ops.OPERATORS if operator.threaded is not None]


@pytest.mark.parametrize("able", CLASSES.values(), ids=CLASSES)
@pytest.mark.parametrize("operator", OPERATORS, ids=lambda operator: operator.name)
def test_as_the_reference(operator, able):
    entry = find_entry(operator)
    assert entry is not None and operator.threaded is not None
    accepts = loop_rule("any", capabilities=able).predicate
    assert accepts is not None
    element = next(name for name in ("float32", "int32", *entry.dtypes) if name in entry.dtypes)
    kernel_count = 0
    for number in range(3):
        for form in entry.example(Choices.pinned(number), element).forms():
            call = form.function.body
            if form.kind == "constants" or not isinstance(accepts(call), Accept):
                continue
            types = [param.type for param in form.function.params]
            assert all(isinstance(type_, TensorType) for type_ in types)
            kernel = Threaded(operator, able, *((type_.shape, str(type_.dtype)) for type_ in types), **form.example.attrs)
            if kernel.program.defines and not any(item.grid for item in kernel.split.kernels.values()):
                continue  # known to be empty
            kernel.check(form.inputs, tolerance=1e-4)
            kernel_count += 1
    assert kernel_count
