"""Sink transposes through element-wise operators if that transposes fewer bytes.

A model in NHWC has a transpose before and after each NCHW kernel, or the reverse. The activations and additions between two kernels
can compute in either order. In the kernels' order they need no transposes, and the kernels of a target stay in one region.

Element-wise operators that read one another form a group, which computes in one order of axes: the model's order, or the order of a
transpose before or after the group. A group changes its order only if that is strictly cheaper, so a graph that gains nothing is
returned unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from math import prod
from typing import Any

import numpy as np

from inlaid import ops
from inlaid.graph.ir import Call, Constant, Expr, Function, Span, call, children, constant, post_order
from inlaid.graph.operator import Attrs, Operator
from inlaid.graph.scopes import Scope, analyse
from inlaid.graph.transform import transform
from inlaid.ops.shape import TransposeAttrs
from inlaid.passes.simplify import simplify
from inlaid_runtime.arith.hints import size_hint
from inlaid_runtime.types import TensorType

Perm = tuple[int, ...]


def sink_transposes(function: Function, cuts: Callable[[Call], bool] = lambda call: True) -> Function:
    """Move transposes to where they move the fewest bits, and simplify. Returns the same object if no move helps.

    `cuts` returns whether a transpose may be moved: false if a target matches it as part of a composite."""
    orders: dict[int, Perm] = {}
    for group in _groups(function) if any(_perm(expr) for expr in post_order(function)) else ():
        # Groups choose one after another, so that a group knows the orders that neighboring groups have chosen.
        if all(map(cuts, group.transposes)) and (perm := group.best(orders)) is not None:
            orders.update((id(member), perm) for member in group.members)
    if not orders:
        return function
    transposed = _Transposed()

    def visit(old: Expr, new: Expr) -> Expr:
        perm = orders.get(id(old))
        if isinstance(new, Call) and isinstance(new.callee, Operator) and perm is not None:
            args = _reordered(new, perm, transposed)
            return transposed.transpose(call(new.callee, args, _attrs(new, perm), new.span), perm)
        inner = _perm(new)
        return transposed.transpose(new.args[0], inner, new.span) if isinstance(new, Call) and inner else new

    changed = transform(function, visit)
    assert isinstance(changed, Function)
    return simplify(changed)  # a transpose that moves axes of extent 1 is a reshape


@dataclass
class _Group:
    """Element-wise operators that read one another.

    `reads` holds the operands from outside the group that have the members' rank, by id, each with whether the group is its only
    reader. `leaves` maps the id of each member to its uses outside the group: pairs of the transpose that is read (None for the
    untransposed result) and the ids of the transpose's readers."""

    members: list[Call] = field(default_factory=list)
    transposes: list[Call] = field(default_factory=list)
    reads: dict[int, tuple[Expr, bool]] = field(default_factory=dict)
    leaves: dict[int, list[tuple[Perm | None, tuple[int, ...]]]] = field(default_factory=dict)

    def best(self, orders: Mapping[int, Perm]) -> Perm | None:
        """Find the cheapest order for the members, as the permutation back to the model's order; None for the model's order.
        `orders` holds the orders that groups have chosen, by id of the members."""
        entering = (_source(expr, orders)[1] for expr, _ in self.reads.values() if not isinstance(expr, Constant))
        leaving = (perm for leaves in self.leaves.values() for perm, _ in leaves)
        candidates = dict.fromkeys((*filter(None, entering), *map(_inverse, filter(None, leaving))))
        costs = {perm: self._cost(perm, orders) for perm in candidates}
        perm = min(costs, key=lambda each: costs[each], default=None)
        return perm if perm is not None and costs[perm] < self._cost(None, orders) else None

    def _cost(self, order: Perm | None, orders: Mapping[int, Perm]) -> int:
        """Return the cost of computing the group in an order: bits transposed around it, and bits of constants stored twice."""
        total = 0
        inverse = None if order is None else _inverse(order)
        all_orders = {**orders, **dict.fromkeys((id(member) for member in self.members), order)}
        for expr, is_sole_reader in self.reads.values():
            if isinstance(expr, Constant):
                total += 0 if is_sole_reader or inverse is None else _bits(_tensor(expr))
                continue
            source, perm = _source(expr, all_orders)
            total += _moved_bits(source, _compose(perm, inverse))
            if inverse is not None and not is_sole_reader:
                total += _moved_bits(source, perm)  # for the other readers of the operand
        for member in self.members:
            member_type = _reordered_type(_tensor(member), inverse)
            perms = {
                _compose(order, _compose(perm, None if (other := all_orders.get(reader)) is None else _inverse(other)))
                for perm, readers in self.leaves[id(member)]
                for reader in readers
            }
            total += sum(_moved_bits(member_type, perm) for perm in perms)
        return total


def _groups(function: Function) -> Iterator[_Group]:
    """Find the groups of a function, each within one scope."""
    scopes = analyse(function)
    order = list(post_order(function))
    readers: dict[int, list[Expr]] = {}
    for expr in order:
        for child in children(expr):
            readers.setdefault(id(child), []).append(expr)
    group_by_member: dict[int, _Group] = {}
    for expr in order:
        if not isinstance(expr, Call) or not _is_member(expr, scopes.expr_scopes):
            continue
        operand_groups = {id(group): group for arg in _data(expr) if (group := group_by_member.get(id(arg))) is not None}
        group, *other_groups = operand_groups.values() or (_Group(),)
        for other in other_groups:
            group.members += other.members
            group_by_member.update((id(member), group) for member in other.members)
        group.members.append(expr)
        group_by_member[id(expr)] = group
    for group in {id(group): group for group in group_by_member.values()}.values():
        member_ids = {id(member) for member in group.members}
        for member in group.members:
            for arg in _data(member):
                if id(arg) not in member_ids:
                    group.reads[id(arg)] = arg, all(id(reader) in member_ids for reader in readers[id(arg)])
            outer_readers = [reader for reader in readers[id(member)] if id(reader) not in member_ids]
            group.transposes += [each for each in (*_data(member), *outer_readers) if isinstance(each, Call) and _perm(each)]
            group.leaves[id(member)] = [
                (perm, tuple(id(each) for each in readers[id(reader)] if id(each) not in member_ids))
                if perm
                else (None, (id(reader),))
                for reader in outer_readers
                for perm in (_perm(reader),)
            ]
        yield group


def _is_member(expr: Call, expr_scopes: Mapping[int, Scope]) -> bool:
    """Test whether an element-wise operator has equal results in any order of axes, and its operands are in the same scope."""
    if not isinstance(expr.callee, Operator) or not expr.callee.elementwise or not isinstance(expr.type, TensorType):
        return False
    if getattr(expr.attrs, "block_size", 0) or expr.type.rank < 2:
        return False
    home = expr_scopes.get(id(expr))
    for number, arg in enumerate(expr.args):
        if not isinstance(arg.type, TensorType):
            return False
        if _by_axis(expr) and number:
            if arg.type.rank > 1:
                return False
        elif not isinstance(arg, Constant) and arg.type.rank not in (0, expr.type.rank):
            return False
        if expr_scopes.get(id(arg), home) is not home:
            return False
    return True


def _by_axis(expr: Call) -> bool:
    """Test whether the operands after the first have one element per index of an axis."""
    return any(item.name == "axis" for item in fields(expr.attrs))


def _data(expr: Call) -> Sequence[Expr]:
    """Return the operands whose axes are the axes of the result."""
    assert isinstance(expr.type, TensorType)
    args = expr.args[:1] if _by_axis(expr) else expr.args
    return [arg for arg in args if isinstance(arg.type, TensorType) and arg.type.rank == expr.type.rank]


def _attrs(expr: Call, perm: Perm) -> Attrs:
    attrs: Any = expr.attrs
    return replace(attrs, axis=perm[attrs.axis]) if _by_axis(expr) else attrs  # type: ignore[no-any-return]


def _reordered(expr: Call, perm: Perm, transposed: _Transposed) -> tuple[Expr, ...]:
    """Transpose the operands of a member to the order in which it computes."""
    inverse = _inverse(perm)

    def reorder(number: int, arg: Expr) -> Expr:
        assert isinstance(arg.type, TensorType)
        if (_by_axis(expr) and number) or arg.type.rank == 0:
            return arg
        if isinstance(arg, Constant):
            full_rank_data = arg.data.reshape((1,) * (len(perm) - arg.data.ndim) + arg.data.shape)
            return constant(np.ascontiguousarray(full_rank_data.transpose(inverse)), span=arg.span)
        return transposed.transpose(arg, inverse)

    return tuple(reorder(number, arg) for number, arg in enumerate(expr.args))


@dataclass
class _Transposed:
    """Creates each transpose only once, and merges consecutive transposes."""

    cache: dict[tuple[int, Perm], tuple[Expr, Expr]] = field(default_factory=dict)

    def transpose(self, expr: Expr, perm: Perm, span: Span | None = None) -> Expr:
        """Transpose an expression."""
        while isinstance(expr, Call) and (inner := _perm(expr)):
            expr, perm = expr.args[0], tuple(inner[axis] for axis in perm)
        if perm == tuple(range(len(perm))):
            return expr
        if (id(expr), perm) not in self.cache:
            self.cache[id(expr), perm] = ops.transpose(expr, perm=perm, span=span or expr.span), expr
        return self.cache[id(expr), perm][0]


def _perm(expr: Expr) -> Perm | None:
    """Return the permutation of a transpose; None for any other expression."""
    return expr.attrs.perm if isinstance(expr, Call) and isinstance(expr.attrs, TransposeAttrs) else None


def _inverse(perm: Perm) -> Perm:
    return tuple(int(axis) for axis in np.argsort(perm))


def _source(expr: Expr, orders: Mapping[int, Perm | None]) -> tuple[TensorType, Perm | None]:
    """Return the type that an operand's producer has under `orders`, and the permutation from that type to the operand's."""
    perm = _perm(expr)
    if perm and isinstance(expr, Call):
        expr = expr.args[0]
    order = orders.get(id(expr))
    return _reordered_type(_tensor(expr), None if order is None else _inverse(order)), _compose(order, perm)


def _reordered_type(type_: TensorType, perm: Perm | None) -> TensorType:
    return type_ if perm is None else TensorType(tuple(type_.shape[axis] for axis in perm), type_.dtype)


def _compose(first: Perm | None, second: Perm | None) -> Perm | None:
    """Compose two permutations; None means the identity."""
    if first is None or second is None:
        return first or second
    result = tuple(first[axis] for axis in second)
    return None if result == tuple(range(len(result))) else result


def _moved_bits(source: TensorType, perm: Perm | None) -> int:
    """Return the bits that a transpose of a tensor moves: 0 if only axes of extent 1 change places."""
    nontrivial_axes = [axis for axis in perm or () if source.shape[axis] != 1]
    return 0 if nontrivial_axes == sorted(nontrivial_axes) else _bits(source)


def _bits(type_: TensorType) -> int:
    return prod(map(size_hint, type_.shape)) * type_.dtype.bits


def _tensor(expr: Expr) -> TensorType:
    assert isinstance(expr.type, TensorType)
    return expr.type
