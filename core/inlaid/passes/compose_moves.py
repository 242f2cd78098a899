"""Composes chains of reshapes, transposes and pads into chains with fewer transposes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from inlaid.graph.ir import Call, Expr, Function, Span, call, children, in_order, rebuild
from inlaid.graph.operator import Attrs, Operator
from inlaid.graph.transform import transform_function
from inlaid.ops.shape import PadAttrs, ShapeAttrs, TransposeAttrs, pad, reshape, transpose
from inlaid_runtime import arith
from inlaid_runtime.arith import Dim
from inlaid_runtime.records import dataclass, replace
from inlaid_runtime.types import TensorType


def compose_moves(function: Function) -> Function:
    """Compose the chains of moves of a function, except those in functions that it calls, such as composites. A result of the
    function stays a call."""
    ends = {id(expr) for expr in in_order(function.body) if not _is_move(expr)}
    chains: dict[int, tuple[Expr, Expr]] = {}

    def shorter(child: Expr) -> Expr:
        if id(child) not in chains:
            chains[id(child)] = child, compose_chain(child)
        return chains[id(child)][1]

    def visit(old: Expr, new: Expr) -> Expr:
        if id(old) not in ends:
            return new
        parts = tuple(map(shorter, children(new)))
        if old is function.body:
            parts = tuple(part if isinstance(part, Call) else child for part, child in zip(parts, children(new), strict=True))
        return rebuild(new, parts)

    return transform_function(function, visit)


def compose_chain(root: Expr) -> Expr:
    """Return an expression that is equal to the chain of moves which ends at `root`, and has fewer transposes; else `root`.

    A chain that keeps the order of elements becomes a reshape; any other one becomes a transpose between reshapes. Pads come first
    if the padded axis is contiguous in the source, else last."""
    moves: list[_Move] = []
    source = root
    while _is_move(source):
        assert isinstance(source, Call) and isinstance(source.callee, Operator)
        moves.insert(0, _Move(source.callee, source.attrs, source.args[1:]))
        source = source.args[0]
    if not _transposes(root, source):
        return root
    for number in range(len(moves) - 1):
        before, after = moves[number : number + 2]
        if isinstance(before.attrs, PadAttrs) and isinstance(after.attrs, TransposeAttrs):
            rank = len(after.attrs.perm)
            pads = tuple(before.attrs.pads[side + axis] for side in (0, rank) for axis in after.attrs.perm)
            moves[number], moves[number + 1] = after, replace(before, attrs=PadAttrs(pads))
    value = _initial_value(source)
    for move in moves:
        value = _apply(value, move) or _initial_value(
            call(move.operator, (_build(value, root.span), *move.extra_operands), move.attrs, root.span)
        )
    chain = _build(value, root.span)
    has_fewer = _transposes(chain, source) < _transposes(root, source)
    return chain if has_fewer and chain.type == root.type else root


@dataclass(frozen=True)
class _Move:
    """A reshape, a transpose or a constant pad: its operator, and its operands after the first."""

    operator: Operator
    attrs: Attrs
    extra_operands: tuple[Expr, ...]


def _is_move(expr: Expr) -> bool:
    if not isinstance(expr, Call) or 0 in (*_shape(expr), *(_shape(expr.args[0]) if expr.args else ())):
        return False
    constant_pad = isinstance(expr.attrs, PadAttrs) and expr.attrs.mode == "constant"
    return expr.callee in (reshape, transpose) or (expr.callee is pad and constant_pad)


def _reorders(expr: Expr) -> bool:
    """Test whether an expression is a transpose that changes the order of elements in memory."""
    if not isinstance(expr, Call) or not isinstance(expr.attrs, TransposeAttrs):
        return False
    shape = _shape(expr.args[0])
    axes = [axis for axis in expr.attrs.perm if shape[axis] != 1]
    return axes != sorted(axes)


def _transposes(expr: Expr, source: Expr) -> int:
    """Count the transposes in the chain from `source` to `expr`."""
    count = 0
    while expr is not source:
        assert isinstance(expr, Call)
        count += _reorders(expr)
        expr = expr.args[0]
    return count


@dataclass(frozen=True)
class _MovedValue:
    """A value with the elements of `source` in another order. The source is divided into numbered dimensions, without those of
    extent 1: `extents` maps their numbers to extents, and `order` lists the numbers in the order of the source. `axes` lists for
    each axis of the value the dimensions that it combines; `shape` is the shape of the value."""

    source: Expr
    extents: dict[int, Dim]
    order: list[int]
    axes: list[list[int]]
    shape: tuple[Dim, ...]


def _initial_value(source: Expr) -> _MovedValue:
    shape = _shape(source)
    extents = {axis: extent for axis, extent in enumerate(shape) if extent != 1}
    return _MovedValue(source, extents, list(extents), [[axis] if axis in extents else [] for axis in range(len(shape))], shape)


def _apply(value: _MovedValue, move: _Move) -> _MovedValue | None:
    """Return a value after a move; None if it cannot be expressed as dimensions of the source in another order."""
    match move.attrs:
        case TransposeAttrs(perm=perm):
            return replace(value, axes=[value.axes[axis] for axis in perm], shape=tuple(value.shape[axis] for axis in perm))
        case ShapeAttrs(shape=shape):
            return _reshape(value, shape)
        case PadAttrs(pads=pads):
            return _pad(value, pads, move.extra_operands[0])
    raise AssertionError(f"{move.operator.name} is no move")


def _reshape(value: _MovedValue, shape: tuple[Dim, ...]) -> _MovedValue | None:
    extents, order = dict(value.extents), list(value.order)
    queue = [number for axis in value.axes for number in axis][::-1]
    axes: list[list[int]] = []
    for extent in shape:
        axis: list[int] = []
        while extent != 1:
            if not queue:
                return None
            number = queue.pop()
            outer = extents[number]
            axis.append(number)
            if outer == extent:
                extent = 1
            elif not isinstance(outer, int) or not isinstance(extent, int):
                return None
            elif extent % outer == 0:
                extent //= outer
            elif outer % extent == 0:
                inner = max(extents) + 1
                extents[number], extents[inner] = extent, outer // extent
                order.insert(order.index(number) + 1, inner)
                queue.append(inner)
                extent = 1
            else:
                return None
        axes.append(axis)
    return None if queue else _MovedValue(value.source, extents, order, axes, tuple(shape))


def _pad(value: _MovedValue, pads: tuple[Dim, ...], fill: Expr) -> _MovedValue | None:
    """Pad the source instead of the value."""
    extents, order, axes = dict(value.extents), list(value.order), [list(axis) for axis in value.axes]
    shape = list(value.shape)
    dim_pads: dict[int, tuple[int, Dim, Dim]] = {}
    for position, (axis, low, high) in enumerate(zip(axes, pads[: len(axes)], pads[len(axes) :], strict=True)):
        if (low, high) == (0, 0):
            continue
        if not axis:  # an axis of extent 1 may be anywhere in the source; blocked layouts have it last
            axis.append(max(extents, default=-1) + 1)
            extents[axis[0]] = 1
            order.append(axis[0])
        if order[order.index(axis[0]) :][: len(axis)] != axis:
            return None
        extents[axis[0]] = shape[position]
        for number in axis[1:]:
            order.remove(number)
        axis[1:] = []
        dim_pads[axis[0]] = position, low, high
    pads_by_dimension = [dim_pads.get(number, (0, 0, 0))[1:] for number in order]
    source = _with_shape(value.source, tuple(extents[number] for number in order), value.source.span)
    source = pad(
        source, fill, pads=tuple(side for sides in zip(*pads_by_dimension, strict=True) for side in sides), span=value.source.span
    )
    padded_extents = dict(zip(order, _shape(source), strict=True))
    for number, (position, _, _) in dim_pads.items():
        shape[position] = padded_extents[number]
    new_extents = {number: extent for number, extent in padded_extents.items() if extent != 1}
    axes = [[number for number in axis if number in new_extents] for axis in axes]
    return _MovedValue(source, new_extents, list(new_extents), axes, tuple(shape))


def _build(value: _MovedValue, span: Span | None) -> Expr:
    """Build a value by at most one transpose of its source."""
    sequence = [number for axis in value.axes for number in axis]
    if sequence == value.order:
        return _with_shape(value.source, value.shape, span)
    groups = [[number] for number in sequence[:1]]
    for before, number in pairwise(sequence):
        is_adjacent = value.order.index(number) == value.order.index(before) + 1
        if is_adjacent and isinstance(value.extents[before], int) and isinstance(value.extents[number], int):
            groups[-1].append(number)
        else:
            groups.append([number])
    source_groups = sorted(groups, key=lambda group: value.order.index(group[0]))
    source = _with_shape(
        value.source, tuple(arith.product(tuple(value.extents[n] for n in group)) for group in source_groups), span
    )
    result = transpose(source, perm=tuple(source_groups.index(group) for group in groups), span=span)
    return _with_shape(result, value.shape, span)


def _with_shape(expr: Expr, shape: Sequence[Dim], span: Span | None) -> Expr:
    return expr if _shape(expr) == tuple(shape) else reshape(expr, shape=tuple(shape), span=span)


def _shape(expr: Expr) -> tuple[Dim, ...]:
    return expr.type.shape if isinstance(expr.type, TensorType) else ()
