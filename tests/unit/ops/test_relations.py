"""Type relations of the built-in operators compare sizes only by `inlaid.graph.conditions`, and refuse the same sizes at run time
as at compile time."""

from __future__ import annotations

import dataclasses
import importlib
import pkgutil
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from inlaid import ops
from inlaid.graph import ir
from inlaid.graph.attrs import Attrs, attr_items, substitute_attrs
from inlaid.graph.conditions import not_negative, recording
from inlaid.graph.operator import Operator
from inlaid.graph.traced import agree, trace
from inlaid.ops.unfold import unfold
from inlaid.ops.upper_half import multiply_high
from inlaid.ops.winograd import winograd_conv
from inlaid_conformance.corpus import CORPUS, Choices
from inlaid_runtime import arith
from inlaid_runtime.arith import SizeVar
from inlaid_runtime.errors import InlaidError
from inlaid_runtime.types import OptionalType, SequenceType, TensorType, Type, substitute_type

EXAMPLES = 24
"""Examples of each operator, with all element types in turn."""
PERTURBED = 4
"""Examples of each operator whose sizes are changed."""


def tensors(*shapes: tuple[int, ...], dtype: str = "float32") -> tuple[ir.Var, ...]:
    return tuple(ir.var(f"x{number}", TensorType(shape, dtype)) for number, shape in enumerate(shapes))


MORE: dict[str, ir.Call] = {
    "unfold": unfold(*tensors((2, 3, 7, 5)), kernel=(3, 2), strides=(2, 1), pads=(1, 0, 1, 0)),
    "winograd_conv": winograd_conv(*tensors((2, 3, 7, 5), (6, 6, 3, 8), (8, 3, 3, 3)), pads=(1, 1, 1, 1)),
    "multiply_high": multiply_high(*tensors((4, 3), (3,), (), (3,), dtype="int32"), low=1, axis=1),
    "bind_size": ops.bind_size(*tensors((3,), dtype="int64"), element=2, message="n"),
    "assert_true": ops.assert_true(*tensors((), dtype="bool"), message="n"),
    "fail": ops.fail(kinds=(), dtype="float32", shape=(3, 4), message="n"),
}
"""Calls of operators that no target is offered, and of those that passes build."""
NAMES = [*(entry.operator.name for entry in CORPUS), *MORE]


def examples(name: str, count: int) -> Iterator[ir.Call]:
    """Calls of an operator."""
    if name in MORE:
        yield MORE[name]
        return
    (entry,) = (entry for entry in CORPUS if entry.operator.name == name)
    for number in range(count):
        call = entry.example(Choices.pinned(number), entry.dtypes[number % len(entry.dtypes)]).forms()[0].call
        yield call


class Symbolic:
    """A call with a symbolic size of its own for each size in its operands' types and its attributes: `types`, `attrs`, and
    `sizes`, their values in the call."""

    def __init__(self, call: ir.Call) -> None:
        assert isinstance(call.callee, Operator)
        self.call = call
        self.sizes: dict[arith.Expr, int] = {}
        self.types = tuple(self._type(arg.type) for arg in call.args)
        declared = {item.name for item in dataclasses.fields(call.attrs) if item.type in ("Dim", "tuple[Dim, ...]")}
        changed = {name: self._dims(value) for name, value in attr_items(call.attrs) if name in declared}
        self.attrs: Attrs = dataclasses.replace(call.attrs, **changed)

    def _dims(self, value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(map(self._dims, value))
        if value < 0:
            return value  # not a size: "before the first element", "known from the value"
        size = SizeVar(f"s{len(self.sizes)}")
        self.sizes[size] = value
        return size

    def _type(self, type_: Type) -> Type:
        match type_:
            case TensorType(shape=shape, dtype=dtype):
                return TensorType(self._dims(shape), dtype)
            case SequenceType(element=element):
                return SequenceType(self._type(element))
            case OptionalType(element=element):
                return OptionalType(self._type(element))
        raise AssertionError(type_)

    def infer(self, fixed: dict[arith.Expr, int]) -> Type:
        """The type of the result, with some sizes fixed. Raises ValueError or `InlaidError`."""
        constants = {size: arith.wrap(value) for size, value in fixed.items()}
        infer = self.call.callee.infer  # type: ignore[union-attr]
        return infer(substitute_attrs(self.attrs, constants), *(substitute_type(type_, constants) for type_ in self.types))

    def takes(self, fixed: dict[arith.Expr, int]) -> bool:
        """Whether the type relation takes these sizes."""
        try:
            self.infer(fixed)
        except (ValueError, InlaidError):
            return False
        return True


def test_all_operators_are_traced() -> None:
    modules = [importlib.import_module(f"inlaid.ops.{module.name}") for module in pkgutil.walk_packages(ops.__path__)]
    built_in = {value for module in modules for value in vars(module).values() if isinstance(value, Operator)}
    assert {operator.name for operator in (*built_in, *ops.OPERATORS)} == set(NAMES)
    for operator in (*built_in, *ops.OPERATORS):
        assert operator.has_traced_rule, f"the type relation of {operator.name} must be in inlaid.ops, which is traced here"


@pytest.mark.parametrize("name", NAMES)
def test_no_operator_compares_sizes_by_itself(name: str) -> None:
    """A comparison outside of `inlaid.graph.conditions` checks only sizes that are integers. The message names file and line."""
    for call in examples(name, EXAMPLES):
        symbolic = Symbolic(call)
        traced = trace(call.callee.infer, symbolic.attrs, symbolic.types, symbolic.sizes)  # type: ignore[union-attr]
        assert not traced.comparisons, f"{name} compares {', '.join(map(str, traced.comparisons))}"
        assert not traced.violations
        assert traced.result is not None and agree(call.type, traced.result)


@pytest.mark.parametrize("name", NAMES)
def test_the_same_sizes_are_refused_at_compile_time_and_at_run_time(name: str) -> None:
    """Each size in turn becomes 0, 1, one less and one more: as integers, and as symbols whose preconditions are evaluated."""
    for call in examples(name, PERTURBED):
        symbolic = Symbolic(call)
        sizes = symbolic.sizes
        # Some sizes must be static, such as the depth of an index.
        fixed = {
            size: value for size, value in sizes.items() if not symbolic.takes({key: sizes[key] for key in sizes if key != size})
        }
        with recording() as recorded:
            result = symbolic.infer(fixed)
        conditions = (*recorded.symbolic, *not_negative(result))
        for size, value in sizes.items():
            for other in {0, 1, value - 1, value, value + 1} - {-1} if size not in fixed else {value}:
                changed = {**sizes, size: other}
                violated = [condition.message(changed) for condition in conditions if condition.holds(changed) is False]
                assert symbolic.takes(changed) == (not violated), f"{call} with {size} = {other}: {violated}"
                if not violated:
                    constants = {key: arith.wrap(number) for key, number in changed.items()}
                    assert agree(substitute_type(result, constants), symbolic.infer(changed))


def test_the_words_are_the_same() -> None:
    """A static violation and a symbolic one have the same message, except for the names of sizes."""
    x, mask = np.zeros((1, 6)), np.zeros((1, 7), np.int64)
    with pytest.raises(InlaidError, match="dimension 1 of the indices must be <= 6, got 7"):
        ops.take_along_axis(x, mask, axis=0)
    n, m = SizeVar("n"), SizeVar("m")
    with recording() as recorded:
        ops.take_along_axis(*tensors((1, n)), ir.var("i", (1, m), "int64"), axis=0)
    (condition,) = recorded.symbolic
    assert condition.message({n: 6, m: 7}) == "dimension 1 of the indices must be <= n, got 7 where m is 7, n is 6"
