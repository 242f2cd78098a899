"""Evaluation of graph values at import: constant folding, and symbolic evaluation of small integer tensors, such as shapes and
values computed from shapes.

Both evaluations are iterative and memoized by node, so the total time is linear in the size of the model.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from inlaid import ops
from inlaid.graph.ir import Call, Constant, Expr, Loop, Tuple, TupleItem, Var, introduced_sizes, post_order, tuple_item
from inlaid.graph.operator import Choice, Operator
from inlaid.ops.shape import concrete
from inlaid_runtime import arith
from inlaid_runtime.arith import Dim, SizeVar
from inlaid_runtime.errors import InlaidError, KernelFault
from inlaid_runtime.records import dataclass
from inlaid_runtime.types import TensorType, TupleType, Type

Array = np.ndarray[Any, Any]

_FOLD_LIMIT = 1 << 22
"""Maximum number of elements of a tensor that is folded at import."""

_SYMBOLIC_LIMIT = 256
"""Maximum number of elements of a tensor that is evaluated symbolically."""


@dataclass(frozen=True)
class Sources:
    """The graph inputs and symbolic dimensions, by name, that must be fixed for a value to be known at import."""

    inputs: tuple[str, ...]
    dims: tuple[str, ...]


class Values:
    """Evaluates the values of one graph under construction. The `add_` methods record its inputs, the parameters of bodies, and the
    expressions that define existential sizes."""

    def __init__(self) -> None:
        self._inputs: dict[Expr, str] = {}
        self._static: dict[Expr, Any] = {}
        self._symbolic: dict[Expr, Array | None] = {}
        self._origin: dict[arith.Expr, Expr] = {}
        self._unknown: dict[arith.Expr, tuple[Expr, int]] = {}

    def add_input(self, variable: Var) -> None:
        """Record a graph input, which may be bound in a later import."""
        self._inputs[variable] = variable.name

    def add_origin(self, expr: Expr) -> None:
        """Record the existential sizes that an expression defines."""
        for size in introduced_sizes(expr):
            fields = enumerate(expr.type.fields) if isinstance(expr.type, TupleType) else ()
            tensor = expr if isinstance(expr.type, TensorType) else None
            for index, field in fields:
                if isinstance(field, TensorType) and size in field.shape:
                    tensor = tuple_item(expr, index, expr.span)
                    break
            if tensor is not None:
                self._origin.setdefault(size, tensor)

    def add_parameter(self, variable: Var) -> None:
        """Record a parameter of a body, whose type may introduce existential sizes."""
        shape = variable.type.shape if isinstance(variable.type, TensorType) else ()
        for size in shape:
            if isinstance(size, SizeVar) and size.existential:
                self._origin.setdefault(size, variable)

    def origin(self, size: arith.Expr) -> Expr | None:
        """Return the tensor that defines an existential size, if an operator or a loop does; else None."""
        return self._origin.get(size)

    def static(self, expr: Expr) -> Array | None:
        """Return the value of a tensor known at import, else None. An element of a shape is known if its dimension is known."""
        value = self._fold(expr)
        if isinstance(value, np.ndarray):
            return value
        if not _has_symbolic_value(expr.type) or not isinstance(expr.type, TensorType):
            return None
        items = [_simplified(item) for item in self._evaluate_symbolically(expr).reshape(-1)]
        if not all(isinstance(item, int) for item in items):
            return None
        return np.array(items, expr.type.dtype.numpy).reshape(expr.type.shape)

    def dims(self, expr: Expr) -> tuple[Dim, ...] | None:
        """Return the elements of a 0-d or 1-d integer tensor as dimensions; None if one is data-dependent."""
        elements = self.elements(expr)
        return None if elements is None or any(map(self.unknowns, elements)) else elements

    def elements(self, expr: Expr) -> tuple[Dim, ...] | None:
        """Return the elements of a 0-d or 1-d integer or bool tensor of static length as expressions over dimensions and, for
        data-dependent ones, `unknowns`; None for any other value."""
        if not _has_symbolic_value(expr.type) or not isinstance(expr.type, TensorType) or expr.type.rank > 1:
            return None
        return tuple(arith.unwrap(item) for item in self._evaluate_symbolically(expr).reshape(-1))

    def unknowns(self, element: Dim) -> frozenset[arith.Expr]:
        """Return the data-dependent variables in an expression from `elements`."""
        return frozenset(size for size in arith.free_vars(element) if size in self._unknown)

    def element_of_unknown(self, unknown: arith.Expr) -> tuple[Expr, int]:
        """Return the tensor and the element index of an unknown."""
        return self._unknown[unknown]

    def sources(self, expr: Expr) -> Sources | None:
        """Return the graph inputs and symbolic dimensions that determine a value; None if the value depends on other data."""
        inputs: dict[str, None] = {}
        dims: dict[str, None] = {}
        pending, visited = [expr], {expr}
        while pending:
            for node in post_order(pending.pop()):
                if isinstance(node, Loop):
                    return None
                if isinstance(node, Var):
                    if node not in self._inputs:
                        return None
                    inputs[self._inputs[node]] = None
                elif isinstance(node, Call):
                    for dim in _size_vars(node.attrs):
                        origin = self._origin.get(dim)
                        if not dim.existential:
                            dims[dim.name] = None
                        elif origin is not None and origin not in visited:
                            visited.add(origin)
                            pending.append(origin)
        return Sources(tuple(inputs), tuple(dims)) if inputs or dims else None

    # --- constants ----------------------------------------------------------------------------------------------------

    def _fold(self, expr: Expr) -> Any:
        return _evaluate(expr, self._static, _constant_operands, _constant_value)

    # --- symbolic integers --------------------------------------------------------------------------------------------

    def _evaluate_symbolically(self, expr: Expr) -> Array:
        """Evaluate a value symbolically. Its type must satisfy `_has_symbolic_value`."""
        elements: Array = _evaluate(expr, self._symbolic, self._symbolic_operands, self._symbolic_value)
        return elements

    def _symbolic_operands(self, expr: Expr) -> tuple[Expr, ...]:
        if self._fold(expr) is None and isinstance(expr, Call) and isinstance(expr.callee, Operator):
            has_rule = _rule(expr.callee) is not None and expr.callee is not ops.sizes  # whose operands are witnesses
            if has_rule and all(_has_symbolic_value(arg.type) for arg in expr.args):
                return expr.args
        return ()

    def _symbolic_value(self, expr: Expr, args: Sequence[Array]) -> Array:
        assert isinstance(expr.type, TensorType)
        folded = self._fold(expr)
        if isinstance(folded, np.ndarray):
            exact = np.empty(folded.size, object)
            exact[:] = [int(item) for item in folded.reshape(-1)]
            return exact.reshape(folded.shape)
        rule = _rule(expr.callee) if isinstance(expr, Call) and isinstance(expr.callee, Operator) else None
        if isinstance(expr, Call) and rule is not None and (args or expr.callee is ops.sizes):
            try:
                result = rule(expr.attrs, *args)
            except (_Unknown, IndexError, KernelFault, ValueError):
                pass
            else:
                if result.shape == expr.type.shape:
                    return result
        return self._new_unknowns(expr, expr.type)

    def _new_unknowns(self, expr: Expr, type_: TensorType) -> Array:
        """Return new unknowns for data-dependent elements."""
        unknowns = np.empty(_count(type_), object)
        for index in range(unknowns.size):
            limits = (0, 1) if type_.dtype.kind == "bool" else (-(2**63), None)
            unknowns[index] = unknown = SizeVar(f"${len(self._unknown)}", *limits)
            self._unknown[unknown] = expr, index
        return unknowns.reshape(type_.shape)


def _has_symbolic_value(type_: Type) -> bool:
    """Test whether a tensor is evaluated symbolically: integer or bool, with few elements."""
    if not isinstance(type_, TensorType) or not type_.is_static or _count(type_) > _SYMBOLIC_LIMIT:
        return False
    return type_.dtype.is_int or type_.dtype.kind == "bool"


def _simplified(element: Dim) -> Dim:
    """Simplify an element to a number if it is a comparison that is always true or always false."""
    return element if isinstance(element, int) else arith.unwrap(arith.simplify(element))


def _evaluate(
    root: Expr,
    memo: dict[Expr, Any],
    operands: Callable[[Expr], tuple[Expr, ...] | None],
    value: Callable[[Expr, Sequence[Any]], Any],
) -> Any:
    """Evaluate an expression iteratively, with memoization. `operands(expr)` returns the operands that determine its value, None if
    the value is unknown; `value(expr, args)` computes it from their values. If one operand is unknown, so is the expression."""
    stack = [root]
    while stack:
        expr = stack[-1]
        if expr in memo:
            stack.pop()
            continue
        dependencies = operands(expr)
        if dependencies is None or any(item in memo and memo[item] is None for item in dependencies):
            memo[expr] = None
            continue
        missing = next((item for item in dependencies if item not in memo), None)
        if missing is not None:
            stack.append(missing)
            continue
        memo[expr] = value(expr, [memo[item] for item in dependencies])
    return memo[root]


def _count(type_: TensorType) -> int:
    """Return the number of elements, counting each dimension that is not a constant as 1."""
    return math.prod(dim for dim in type_.shape if isinstance(dim, int))


def _is_foldable_size(type_: Type) -> bool:
    if isinstance(type_, TupleType):
        return all(map(_is_foldable_size, type_.fields))
    return not isinstance(type_, TensorType) or _count(type_) <= _FOLD_LIMIT


def _constant_operands(expr: Expr) -> tuple[Expr, ...] | None:
    match expr:
        case Constant():
            return ()
        case Call(callee=Operator() as operator, args=args) if operator.reference is not None and _is_foldable_size(expr.type):
            return None if any(True for _ in _size_vars(expr.attrs)) else args
        case TupleItem(tuple=value):
            return (value,)
        case Tuple(fields=fields):
            return fields
    return None


def _constant_value(expr: Expr, args: Sequence[Any]) -> Any:
    match expr:
        case Constant(data=data):
            return data
        case Call(callee=Operator() as operator, attrs=attrs):
            assert operator.reference is not None
            try:
                with np.errstate(all="ignore"):
                    result = operator.reference(attrs, *args)
            except (ArithmeticError, LookupError, ValueError, InlaidError):
                return None  # the run will raise the error
            return np.asarray(result) if isinstance(result, np.generic) else result
        case TupleItem(index=index):
            return args[0][index]
        case Tuple():
            return tuple(args)
    return None


def _size_vars(attrs: Any) -> Iterable[SizeVar]:
    """Yield the symbolic dimensions among the attributes of an operator."""
    for name in getattr(attrs, "__dataclass_fields__", ()):
        field = getattr(attrs, name)
        for item in field if isinstance(field, tuple) else (field,):
            if isinstance(item, arith.Expr):
                for leaf in arith.free_vars(item):
                    if isinstance(leaf, SizeVar):
                        yield leaf


# --- rules: operator -> function of arrays of integers and expressions -------------------------------------------


Rule = Callable[..., Array]


class _Unknown(Exception):
    """Raised if an element cannot be written as an expression."""


def is_natural(value: Dim) -> bool:
    """Test whether an expression of dimensions is provably non-negative by its form."""
    pending: list[Dim] = [value]
    while pending:
        item = pending.pop()
        match item:
            case int() if item >= 0:
                pass
            case arith.Const(value=number) if number >= 0:
                pass
            case SizeVar(lower=lower) if lower >= 0:
                pass
            case arith.Compare() | arith.And() | arith.Or() | arith.Not():
                pass
            case arith.Add() | arith.Mul() | arith.FloorDiv() | arith.Min():
                pending.extend(item.operands)
            case arith.FloorMod(operands=(_, divisor)) | arith.Max(operands=(_, divisor)):
                pending.append(divisor)
            case arith.Select(operands=(_, then, otherwise)):
                pending.extend((then, otherwise))
            case _:
                return False
    return True


def _divide(a: Dim, b: Dim) -> Dim:
    # ONNX rounds towards zero, expressions towards minus infinity: equal for non-negative operands.
    if not (is_natural(a) and is_natural(b)) or b == 0:
        raise _Unknown
    return arith.floordiv(a, b)


def _remainder(a: Dim, b: Dim) -> Dim:
    if not (is_natural(a) and is_natural(b)) or b == 0:
        raise _Unknown
    return arith.floormod(a, b)


def _compare(op: str) -> Callable[[Dim, Dim], Dim]:
    def compare(a: Dim, b: Dim) -> Dim:
        for x, y, flipped in ((a, b, False), (b, a, True)):
            bound = arith.unwrap(y)
            if isinstance(bound, int) and bound < 0 and is_natural(x):
                return {"==": 0, "<": int(flipped), "<=": int(flipped)}[op]
        return arith.compare(op, a, b)

    return compare


def _elementwise(function: Callable[..., Dim]) -> Callable[..., Array]:
    def rule(attrs: Any, *args: Array) -> Array:
        arrays = np.broadcast_arrays(*args)
        result = np.empty(arrays[0].size, object)
        result[:] = [arith.unwrap(function(*items)) for items in zip(*(array.reshape(-1) for array in arrays), strict=True)]
        return result.reshape(arrays[0].shape)

    return rule


def _reduce(function: Callable[[Dim, Dim], Dim], start: Dim | None) -> Callable[..., Array]:
    def rule(attrs: Any, x: Array) -> Array:
        reduced_first = np.moveaxis(x, attrs.axes, range(len(attrs.axes))).reshape(-1, *_without(x.shape, attrs.axes))
        if not len(reduced_first) and start is None:
            raise _Unknown
        fold = _elementwise(function)
        result = np.full(reduced_first.shape[1:], start, object) if start is not None else reduced_first[0]
        for part in reduced_first if start is not None else reduced_first[1:]:
            result = fold(None, np.asarray(result, object), np.asarray(part, object))
        result = np.asarray(result, object)
        return np.expand_dims(result, attrs.axes) if attrs.keepdims else result

    return rule


def _without(shape: tuple[int, ...], axes: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(dim for axis, dim in enumerate(shape) if axis not in axes)


def _sizes(attrs: Any) -> Array:
    result = np.empty(len(attrs.dims), object)
    result[:] = list(attrs.dims)
    return result


def _integers(values: Array) -> Array:
    """Convert to an array of indices. Raises `_Unknown` if one is symbolic."""
    if not all(isinstance(item, int) for item in values.reshape(-1)):
        raise _Unknown
    return values.astype(np.int64)


def _cast(attrs: Any, x: Array) -> Array:
    if str(attrs.dtype) == "bool":
        return _elementwise(lambda item: arith.compare("!=", item, 0))(attrs, x)
    if str(attrs.dtype) not in ("int32", "int64"):
        raise _Unknown  # a narrower type might wrap
    return x


_RULES: dict[Operator, Rule] = {
    ops.sizes: _sizes,
    ops.full: lambda attrs, x: np.full(concrete(attrs.shape), x[()], object),
    ops.cast: _cast,
    ops.neg: _elementwise(lambda a: arith.mul(a, -1)),
    ops.add: _elementwise(arith.add),
    ops.sub: _elementwise(lambda a, b: arith.add(a, arith.mul(b, -1))),
    ops.mul: _elementwise(arith.mul),
    ops.div: _elementwise(_divide),
    ops.mod: _elementwise(_remainder),
    ops.fmod: _elementwise(_remainder),
    ops.minimum: _elementwise(arith.minimum),
    ops.maximum: _elementwise(arith.maximum),
    ops.equal: _elementwise(_compare("==")),
    ops.less: _elementwise(_compare("<")),
    ops.less_equal: _elementwise(_compare("<=")),
    ops.logical_not: _elementwise(arith.logical_not),
    ops.logical_and: _elementwise(arith.logical_and),
    ops.logical_or: _elementwise(arith.logical_or),
    ops.where: _elementwise(arith.select),
    ops.reduce_sum: _reduce(arith.add, 0),
    ops.reduce_prod: _reduce(arith.mul, 1),
    ops.reduce_max: _reduce(arith.maximum, None),
    ops.reduce_min: _reduce(arith.minimum, None),
}


def _rule(operator: Operator) -> Rule | None:
    """Return the rule of an operator. An operator that moves data by position or by known indices also moves expressions."""
    moves, reference = operator.traits.moves, operator.reference
    if operator in _RULES or moves is None or moves.by is Choice.ORDER or reference is None:
        return _RULES.get(operator)

    def rule(attrs: Any, *args: Array) -> Array:
        # Run the reference on the indices of the elements.
        moved_operands = (*moves.places(len(args)), moves.filling(len(args)))
        elements: list[Array] = []
        index_arrays: list[Array] = []
        for position, x in enumerate(args):
            start = sum(part.size for part in elements)
            index_arrays.append(np.arange(start, start + x.size).reshape(x.shape) if position in moved_operands else _integers(x))
            elements += [x.reshape(-1)] if position in moved_operands else []
        return np.asarray(np.concatenate(elements)[reference(attrs, *index_arrays)], object)

    return rule
