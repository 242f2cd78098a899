"""Constants, identity and conditionals. Loops are in `convert.loop`."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from inlaid.graph.ir import Expr, Tuple, call, constant, if_, tuple_, tuple_item
from inlaid.ops.plan import fail, fail_attrs
from inlaid_onnx.convert.coerce import coerce, common_type, scalar
from inlaid_onnx.node import Converter, InvalidNode, NeedsStatic, Node
from inlaid_runtime import arith
from inlaid_runtime.arith import Constraint, Dim, SizeVar
from inlaid_runtime.errors import ModelImportError, TypeInferenceError
from inlaid_runtime.records import dataclass
from inlaid_runtime.types import TensorType, Type

# The attributes, other than tensors, that can hold the value of a Constant, with their dtypes.
_VALUE_DTYPES: Mapping[str, type] = {
    "value_float": np.float32,
    "value_floats": np.float32,
    "value_int": np.int64,
    "value_ints": np.int64,
    "value_string": np.object_,
    "value_strings": np.object_,
}


def _constant(node: Node) -> Expr:
    names = [name for name in ("value", "sparse_value", *_VALUE_DTYPES) if name in node.attrs]
    if len(names) != 1:
        raise node.error(f"expected exactly one attribute with a value, got {names or 'none'}")
    value: Any = node.attrs[names[0]]
    if names[0] in _VALUE_DTYPES:
        value = np.array(value, _VALUE_DTYPES[names[0]])
    return constant(value, span=node.span)


def _identity(node: Node) -> Expr:
    return node.input(0)


@dataclass(frozen=True)
class _Side:
    """A branch of an `If`: the values of its outputs, and its constraints."""

    values: tuple[Expr, ...]
    constraints: tuple[Constraint, ...] = ()

    def types(self, other: _Side) -> list[Type]:
        """Return the common types of the outputs of two branches. Raises `TypeInferenceError`."""
        return [common_type(a.type, b.type) for a, b in zip(self.values, other.values, strict=True)]


def _if(node: Node) -> tuple[Expr | None, ...]:
    condition = node.static(0)
    if condition is not None:
        if condition.size != 1:
            raise node.error(f"the condition must have one element, got {condition.size}")
        return node.inlined(_attribute(node, "then_branch" if condition.reshape(()) else "else_branch"), ())
    sides = _sides(node)
    try:
        types = sides[0].types(sides[1])
    except TypeInferenceError as error:
        sides = _expected_side(node, sides, error)
        types = sides[0].types(sides[1])
    then, otherwise = [
        tuple_([coerce(item, type_, node.span) for item, type_ in zip(side.values, types, strict=True)], node.span)
        for side in sides
    ]
    constraints = (sides[0].constraints, sides[1].constraints)
    result = if_(scalar(node.input(0)), then, otherwise, span=node.span, constraints=constraints)
    return tuple(tuple_item(result, index, node.span) for index in range(len(types)))


def _sides(node: Node) -> tuple[_Side, _Side]:
    """Convert both branches. A branch that is invalid for the model's sizes is replaced by one that fails at run time."""
    sides: list[_Side | None] = [None, None]
    problems: list[ModelImportError] = []
    for number, name in enumerate(("then_branch", "else_branch")):
        try:
            sides[number] = node.scope.guesses.attempt(partial(_branch, node, name))
        except (NeedsStatic, InvalidNode):
            raise
        except ModelImportError as error:
            problems.append(error)
    if len(problems) == 2:
        raise problems[0]
    then, otherwise = sides
    message = f"the branch is invalid for these sizes: {problems[0]}" if problems else ""
    if otherwise is None:
        assert then is not None
        return then, _failing(node, message, then)
    if then is None:
        return _failing(node, message, otherwise), otherwise
    if len(then.values) != len(otherwise.values):
        counts = f"{len(then.values)} and {len(otherwise.values)}"
        raise node.error(f"the branches must have the same number of outputs, got {counts}")
    return then, otherwise


def _expected_side(node: Node, sides: tuple[_Side, _Side], error: TypeInferenceError) -> tuple[_Side, _Side]:
    """Resolve branches without a common type: keep the one that the rest of the model expects, and make the other one fail. The
    expected one has the ranks that the model declares, or is the one taken at usual sizes. Raises `error` if neither rule selects
    one."""
    condition, *_ = node.dims(0) or (None,)
    likely_then = _matches_declared_ranks(node, sides)
    if likely_then is None and condition is not None:
        likely_then = _at_usual_sizes(condition)
    if likely_then is None:
        node.require_static(0)
        raise error
    keeps_then = node.scope.guesses.choose((node.span.node, *node.outputs), likely_then)
    expected, other = sides if keeps_then else sides[::-1]
    other_types, expected_types = (", ".join(repr(item.type) for item in side.values) for side in (other, expected))
    what = "the condition" if condition is None else repr(condition)
    verb = "does not hold" if keeps_then else "holds"
    message = f"{what} {verb}, which gives {other_types}, but the rest of the model expects {expected_types}"
    if condition is not None:
        message += f"; compile the model with {', '.join(sorted(map(repr, arith.free_vars(condition))))} fixed"
    failing_side = _failing(node, message, expected)
    return (expected, failing_side) if keeps_then else (failing_side, expected)


def _matches_declared_ranks(node: Node, sides: tuple[_Side, _Side]) -> bool | None:
    """Return True if only the first of two branches has the ranks that the model declares for the outputs, False if only the second
    has, None if both or neither have."""
    fits = [
        all(
            node.scope.rank(name) in (None, item.type.rank if isinstance(item.type, TensorType) else None)
            for name, item in zip(node.outputs, side.values, strict=False)
        )
        for side in sides
    ]
    return fits[0] if fits[0] != fits[1] else None


def _at_usual_sizes(condition: Dim) -> bool | None:
    """Evaluate a condition on dimensions for distinct sizes that are not 0 or 1. Returns None if the result depends on them."""
    results = set()
    for start in (61, 1009):
        sizes: dict[arith.Expr, int] = {}
        for number, size in enumerate(sorted(arith.free_vars(condition), key=repr)):
            assert isinstance(size, SizeVar)
            upper = size.upper if isinstance(size.upper, int) else None
            sample = max(start + 12 * number, size.lower)
            sizes[size] = sample if upper is None else min(sample, upper)
        results.add(bool(arith.evaluate(condition, sizes)))
    return results.pop() if len(results) == 1 else None


def _failing(node: Node, message: str, side: _Side) -> _Side:
    """Build a branch that fails when it is evaluated."""
    values = (call(fail, (), fail_attrs(f"{node.name}: {message}", item.type), node.span) for item in side.values)
    return _Side(tuple(values))


def _branch(node: Node, name: str) -> _Side:
    subgraph = node.scope.subgraph(_attribute(node, name), ())
    assert isinstance(subgraph.body, Tuple)
    return _Side(subgraph.body.fields, subgraph.constraints)


def _attribute(node: Node, name: str) -> Any:
    if name not in node.attrs:
        raise node.error(f"attribute {name!r} is missing")
    return node.attrs[name]


CONVERTERS: Mapping[str, Converter] = {"Constant": _constant, "Identity": _identity, "If": _if}
