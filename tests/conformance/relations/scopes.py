"""Programs about relations that are not between operands of one operator: in attributes that are expressions of sizes, of users'
operators, in calls of functions, branches and loops, of operators that passes remove, and on sizes that a region or the plan
computes."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from inlaid import ops
from inlaid.graph import ir
from inlaid.graph.attrs import Attrs
from inlaid.graph.operator import FusionKind, Operator
from inlaid.tensor import te
from inlaid_runtime import arith
from inlaid_runtime.arith import Dim, SizeVar
from inlaid_runtime.types import TensorType

from .sizes import Program, Sizes, largest

Dims = Mapping[str, Dim]
Build = Callable[[Dims], ir.Module]
N = SizeVar("n")
M = SizeVar("m")


@dataclass(frozen=True)
class Source:
    """A program: `build` makes it for sizes by name, `base` has usual ones, and `legal` tests sizes in the order of `base`.
    `inputs` are the values of the parameters at the sizes `base`. `more` are further sizes that each variable gets."""

    construct: str
    name: str
    build: Build
    base: Mapping[str, int]
    legal: Callable[..., bool]
    inputs: tuple[Any, ...]
    more: tuple[int, ...] = ()

    def program(self, bounded: bool) -> Program:
        """Make the program; with `bounded`, sizes have upper bounds. Each size is 0, 1, the usual one, one less and one more, with
        all such values of the others."""
        variables = {
            name: SizeVar(name, 0, largest(max(usual, *self.more, 0)) if bounded else None) for name, usual in self.base.items()
        }
        base = {variables[name]: usual for name, usual in self.base.items()}
        values = [sorted({0, 1, usual - 1, usual, usual + 1, *self.more}) for usual in base.values()]
        cases = tuple(dict(zip(base, sizes, strict=True)) for sizes in itertools.product(*values))

        def legal(sizes: Sizes) -> bool:
            return self.legal(*(sizes[variable] for variable in base))

        def at(sizes: Sizes) -> ir.Module:
            return self.build({size.name: value for size, value in sizes.items()})

        name = f"{self.construct}-{self.name}"
        return Program(name, self.construct, self.build(variables), at, self.inputs, base, True, legal, cases)


def scope_programs(names: Sequence[str] | None = None, bounded: bool = False) -> Iterator[Program]:
    """Yield the programs, or those about the constructs named: "attribute", "custom", "call", "branch", "loop", "dropped",
    "computed"."""
    for source in SOURCES:
        if names is None or source.construct in names:
            yield source.program(bounded)


# --- parts of programs ----------------------------------------------------------------------------------------------------


def tensor(name: str, *shape: Dim, dtype_name: str = "float32") -> ir.Var:
    """Make a parameter."""
    return ir.var(name, TensorType(shape, dtype_name))


def numbers(*shape: int) -> Any:
    """Return different numbers, so that mistaken elements show."""
    return np.arange(1, 1 + int(np.prod(shape)), dtype=np.float32).reshape(shape)


def main(params: Sequence[ir.Var], body: ir.Expr, **functions: ir.Function) -> ir.Module:
    """Make a module."""
    return ir.Module({"main": ir.function(tuple(params), body), **functions})


def equal(x: ir.Expr, y: ir.Expr) -> ir.Expr:
    """Sum the products of two vectors, which have one length: an operator with a condition."""
    return ops.matmul(x, y)


def pair(build: Callable[[ir.Var, ir.Var], ir.Expr]) -> Build:
    """Make a program of two vectors with sizes p and q."""

    def built(dims: Dims) -> ir.Module:
        a, b = tensor("a", dims["p"]), tensor("b", dims["q"])
        return main([a, b], build(a, b))

    return built


def pair_source(construct: str, name: str, build: Callable[[ir.Var, ir.Var], ir.Expr], legal: Callable[[int, int], bool]) -> Source:
    """Make a source of two vectors with sizes p and q, 5 each."""
    return Source(construct, name, pair(build), {"p": 5, "q": 5}, legal, (numbers(5), numbers(5)))


def is_equal(p: int, q: int) -> bool:
    return p == q


def always(p: int, q: int) -> bool:
    return True


# --- attributes that are expressions of sizes -------------------------------------------------------------------------------


def with_size(build: Callable[[ir.Var, Dim], ir.Expr], *shape: int) -> Build:
    """Make a program of a tensor and a number: p - 3, where p is the size of an operand that is not read."""

    def built(dims: Dims) -> ir.Module:
        a, b = tensor("a", *shape), tensor("b", dims["p"])
        return main([a, b], build(a, arith.unwrap(arith.simplify(arith.wrap(dims["p"]) - 3))))

    return built


def number_source(name: str, build: Callable[[ir.Var, Dim], ir.Expr], least: int, *shape: int) -> Source:
    """Make a source of a program of a tensor and a number, p - 3, that must be at least `least`."""
    return Source(
        "attribute", name, with_size(build, *shape), {"p": 5}, lambda p: p - 3 >= least, (numbers(*shape), numbers(5)), (2, 3)
    )


def quotient(dims: Dims) -> ir.Module:
    """An extent is a quotient of sizes."""
    a, b = tensor("a", dims["p"]), tensor("b", dims["q"])
    extent = arith.unwrap(arith.floordiv(arith.wrap(dims["p"]), dims["q"]))
    return main([a, b], ops.full(ops.reduce_sum(a, axes=(0,)), shape=(extent, 2)))


def quotient_slice(dims: Dims) -> ir.Module:
    """A slice ends at a quotient of sizes."""
    a, b = tensor("a", dims["p"]), tensor("b", dims["q"])
    extent = arith.unwrap(arith.floordiv(arith.wrap(dims["p"]), dims["q"]))
    return main([a, b], ops.neg(ops.strided_slice(a, begin=(0,), end=(extent,), strides=(1,))))


def suppressed(a: ir.Var, number: Dim) -> ir.Expr:
    scores = ops.reshape(ops.strided_slice(a, begin=(0, 0, 0), end=(1, 3, 1), strides=(1, 1, 1)), shape=(1, 1, 3))
    limits = [ir.constant(np.float32(value)) for value in (0.5, 0.0)]
    return ops.non_max_suppression(a, scores, *limits, max_output=number)


def position(dims: Dims) -> ir.Module:
    """The greatest size that is a legal one of an operator is beyond what an integer holds that counts positions."""
    a = tensor("a", dims["p"], dtype_name="int8")
    return main([a], ops.argmax(a, axis=0))


# --- operators of users -----------------------------------------------------------------------------------------------------


def _shortened_type(attrs: Attrs, x: TensorType) -> TensorType:
    return TensorType((arith.unwrap(arith.wrap(x.shape[0]) - 3),), x.dtype)


shortened = Operator(
    "test.shortened",
    _shortened_type,
    reference=lambda attrs, x: x[3:],
    compute=lambda attrs, x: te.compute((arith.unwrap(arith.wrap(x.shape[0]) - 3),), lambda i: x[i + 3]),
    fusion=FusionKind.INJECTIVE,
)
"""Leaves out three elements. Nothing but the extent of the result says that there must be as many."""


def shorter(dims: Dims) -> ir.Module:
    a = tensor("a", dims["p"])
    return main([a], shortened(a))


# --- calls ----------------------------------------------------------------------------------------------------------------


def two_values(dims: Dims) -> ir.Module:
    """One size of the callee gets the sizes p and q."""
    x, y = tensor("x", N), tensor("y", N)
    callee = ir.function([x, y], ops.sub(x, y))
    a, b = tensor("a", dims["p"]), tensor("b", dims["q"])
    return main([a, b], ir.call(callee, [a, b]))


def fixed_size(dims: Dims) -> ir.Module:
    """The callee declares a static size."""
    x = tensor("x", N, 3)
    callee = ir.function([x], ops.reduce_sum(x, axes=(1,)))
    a = tensor("a", dims["p"], dims["q"])
    return main([a], ir.call(callee, [a]))


def computed_size(dims: Dims) -> ir.Module:
    """The callee declares a size that is an expression of another."""
    x, y = tensor("x", N), tensor("y", arith.unwrap(N * 2))
    callee = ir.function([x, y], ops.sub(ops.concat(x, x, axis=0), y))
    a, b = tensor("a", dims["p"]), tensor("b", dims["q"])
    return main([a, b], ir.call(callee, [a, b]))


def bounded_size(dims: Dims) -> ir.Module:
    """The callee declares bounds of a size, the greatest of which is another size."""
    count = SizeVar("count")
    x, y = tensor("x", SizeVar("few", 2, count)), tensor("y", count)
    callee = ir.function([x, y], ops.mul(ops.reduce_sum(x, axes=(0,)), y))
    a, b = tensor("a", dims["p"]), tensor("b", dims["q"])
    return main([a, b], ir.call(callee, [a, b]))


def inner_condition(dims: Dims) -> ir.Module:
    """An operator inside a callee inside a callee has the condition."""
    x, y = tensor("x", N), tensor("y", M)
    inner = ir.function([x, y], equal(x, y))
    u, v = tensor("u", N), tensor("v", M)
    outer = ir.function([u, v], ops.neg(ir.call(inner, [v, u])))
    a, b = tensor("a", dims["p"]), tensor("b", dims["q"])
    return main([a, b], ir.call(outer, [a, b]))


def three_calls(dims: Dims) -> ir.Module:
    """Two calls of one function."""
    x, y = tensor("x", N), tensor("y", N)
    callee = ir.function([x, y], ops.sub(x, y))
    a, b, c = tensor("a", dims["p"]), tensor("b", dims["q"]), tensor("c", dims["r"])
    return main([a, b, c], ir.tuple_([ir.call(callee, [a, b]), ir.call(callee, [c, b])]))


def declared_result(dims: Dims) -> ir.Module:
    """A function declares another size of its result than that of its body."""
    a, b = tensor("a", dims["p"]), tensor("b", dims["q"])
    body = ir.function((a, b), ops.neg(a), result=TensorType((dims["q"],), "float32"))
    return ir.Module({"main": body})


def declared_let(dims: Dims) -> ir.Module:
    """A variable of a binding is declared with another size than its value has."""
    a, b = tensor("a", dims["p"]), tensor("b", dims["q"])
    declared = tensor("declared", dims["q"])
    return main([a, b], ir.let(declared, ops.neg(a), ops.sub(declared, b)))


# --- branches -------------------------------------------------------------------------------------------------------------


def branch(is_entered: bool) -> Build:
    """A branch has a condition on sizes. It is entered, or it is not."""

    def build(dims: Dims) -> ir.Module:
        a, b, which = tensor("a", dims["p"]), tensor("b", dims["q"]), tensor("which", dtype_name="bool")
        arms = equal(a, b), ops.reduce_sum(a, axes=(0,))
        return main([a, b, which], ir.if_(which, *(arms if is_entered else arms[::-1])))

    return build


def called_in_branch(dims: Dims) -> ir.Module:
    """A call in a branch gives one size two values."""
    x, y = tensor("x", N), tensor("y", N)
    callee = ir.function([x, y], ops.reduce_sum(ops.sub(x, y), axes=(0,)))
    a, b, which = tensor("a", dims["p"]), tensor("b", dims["q"]), tensor("which", dtype_name="bool")
    return main([a, b, which], ir.if_(which, ir.call(callee, [a, b]), ops.reduce_sum(a, axes=(0,))))


def joined(dims: Dims) -> ir.Module:
    """The size of an `If` is that of the branch, and an operator behind it has a condition."""
    a, b, which = tensor("a", dims["p"]), tensor("b", dims["q"]), tensor("which", dtype_name="bool")
    return main([a, b, which], equal(ir.if_(which, ops.neg(a), ops.abs(b)), b))


# --- loops ----------------------------------------------------------------------------------------------------------------


def counter() -> ir.Var:
    return tensor("i", dtype_name="int64")


def going() -> ir.Expr:
    return ir.constant(True)


def times(count: int) -> ir.Expr:
    return ir.constant(np.int64(count))


def loop_state(trips: int) -> Build:
    """The body declares another size of its state than the initial value has."""

    def build(dims: Dims) -> ir.Module:
        a, b = tensor("a", dims["p"]), tensor("b", dims["q"])
        state = tensor("state", dims["q"])
        body = ir.function([counter(), state], ir.tuple_([going(), ops.mul(state, b)]))
        return main([a, b], ir.tuple_item(ir.loop(body, state=[a], trip_count=times(trips)), 0))

    return build


def loop_result(dims: Dims) -> ir.Module:
    """The body returns another size of its state than it takes."""
    a, b = tensor("a", dims["p"]), tensor("b", dims["q"])
    state = tensor("state", dims["p"])
    body = ir.function([counter(), state], ir.tuple_([going(), ops.abs(b)]))
    return main([a, b], ir.tuple_item(ir.loop(body, state=[a], trip_count=times(2)), 0))


def loop_inner(trips: int) -> Build:
    """An operator inside of the body has a condition."""

    def build(dims: Dims) -> ir.Module:
        a, b = tensor("a", dims["p"]), tensor("b", dims["q"])
        state = tensor("state", dims["p"])
        body = ir.function([counter(), state], ir.tuple_([going(), ops.add(state, equal(state, b))]))
        return main([a, b], ir.tuple_item(ir.loop(body, state=[a], trip_count=times(trips)), 0))

    return build


def loop_scanned(dims: Dims) -> ir.Module:
    """Two inputs are scanned."""
    a, b = tensor("a", dims["p"], 3), tensor("b", dims["q"], 3)
    total, x, y = tensor("total", 3), tensor("x", 3), tensor("y", 3)
    body = ir.function([counter(), total, x, y], ir.tuple_([going(), ops.add(total, ops.sub(x, y)), ops.mul(x, y)]))
    return main([a, b], ir.loop(body, state=[ir.constant(np.zeros(3, np.float32))], scanned=[a, b]))


def loop_slices(dims: Dims) -> ir.Module:
    """The body declares a size of the slices of a scanned input."""
    a, b = tensor("a", 3, dims["p"]), tensor("b", dims["q"])
    total, x = tensor("total", dims["q"]), tensor("x", dims["q"])
    body = ir.function([counter(), total, x], ir.tuple_([going(), ops.add(total, x), ops.neg(x)]))
    return main([a, b], ir.loop(body, state=[b], scanned=[a]))


def loop_stacked(dims: Dims) -> ir.Module:
    """The stacked outputs declare another extent than the number of iterations."""
    a, b = tensor("a", dims["p"], 3), tensor("b", dims["q"])
    total, x = tensor("total", 3), tensor("x", 3)
    body = ir.function([counter(), total, x], ir.tuple_([going(), ops.add(total, x), ops.neg(x)]))
    zeros = ir.constant(np.zeros(3, np.float32))
    return main([a, b], ir.loop(body, state=[zeros], scanned=[a], stacked_extent=dims["q"]))


def loop_invariant(dims: Dims) -> ir.Module:
    """An operator in the body reads the fifth element of a vector in every iteration, whose number data determines."""
    a, b, count = tensor("a", dims["p"]), tensor("b", dims["q"]), tensor("count", dtype_name="int64")
    state = tensor("state", dims["q"])
    element = ops.take(a, ir.constant(np.int64(4)), axis=0)
    body = ir.function([counter(), state], ir.tuple_([going(), ops.add(state, ops.exp(element))]))
    return main([a, b, count], ir.tuple_item(ir.loop(body, state=[b], trip_count=count), 0))


# --- operators that passes remove -------------------------------------------------------------------------------------------


def unused(a: ir.Var, b: ir.Var) -> ir.Expr:
    return ir.let(ir.var("unused", TensorType((), "float32")), equal(a, b), ops.neg(a))


def unused_item(a: ir.Var, b: ir.Var) -> ir.Expr:
    fields = ir.tuple_([a, equal(a, b)])
    both = ir.var("both", fields.type)
    return ir.let(both, fields, ops.add(ir.tuple_item(both, 0), ir.constant(np.float32(1))))


def equal_branches(a: ir.Var, b: ir.Var) -> ir.Expr:
    product = equal(a, b)
    return ops.where(ops.less(product, ir.constant(np.float32(0))), product, product)


def only_its_shape(a: ir.Var, b: ir.Var) -> ir.Expr:
    """Only the shape of an operand of `where` with a constant condition remains."""
    return ops.where(ir.constant(True), a, ops.mul(ops.reverse_sequence(*columns(a, b), batch_axis=1, time_axis=0), a))


def columns(a: ir.Expr, b: ir.Expr) -> tuple[ir.Expr, ir.Expr]:
    lengths = ops.cast(ops.mul(b, ir.constant(np.float32(0))), dtype="int64")
    return ops.reshape(a, shape=(1, a.type.shape[0])), lengths  # type: ignore[attr-defined]


def two_reshapes(dims: Dims) -> ir.Module:
    """Two reshapes become none, the first of which has a condition."""
    a, b = tensor("a", dims["p"], dims["q"]), tensor("b", dims["r"])
    return main([a, b], ops.neg(ops.reshape(ops.reshape(a, shape=(dims["r"],)), shape=(dims["p"], dims["q"]))))


def removed_slice(dims: Dims) -> ir.Module:
    """A slice of a concatenation is one of its parts: the other part is not needed, and has a condition."""
    a, b, c = tensor("a", 1, dims["p"]), tensor("b", 1, dims["q"]), tensor("c", dims["r"])
    lengths = ops.cast(ops.mul(c, ir.constant(np.float32(0))), dtype="int64")
    reversed_ = ops.reverse_sequence(b, lengths, batch_axis=1, time_axis=0)
    both = ops.concat(a, reversed_, axis=1)
    return main([a, b, c], ops.neg(ops.strided_slice(both, begin=(0, 0), end=(1, dims["p"]), strides=(1, 1))))


def merged_branches(dims: Dims) -> ir.Module:
    """A constant condition removes a branch, and with it a condition that is never required."""
    a, b = tensor("a", dims["p"]), tensor("b", dims["q"])
    return main([a, b], ir.if_(ir.constant(False), equal(a, b), ops.reduce_sum(a, axes=(0,))))


# --- sizes that are computed ----------------------------------------------------------------------------------------------


def nonzero_floats(x: ir.Expr) -> ir.Expr:
    """Return the indices of the elements of a vector that are not 0, as floats, in a vector of a size that a kernel computes."""
    indices = ops.cast(ops.nonzero(x), dtype="float32")
    (_, count) = indices.type.shape  # type: ignore[attr-defined]
    return ops.reshape(indices, shape=(count,))


def counted(x: ir.Expr) -> tuple[Dim, ir.Expr]:
    """Return the number of elements of a vector of ones as a size that the plan reads, and the witness of it."""
    number = ops.cast(
        ops.reduce_sum(ops.add(ops.mul(x, ir.constant(np.float32(0))), ir.constant(np.float32(1))), axes=(0,)), dtype="int64"
    )
    witness = ops.bind_size(number, message="the number of elements")
    (size, _) = witness.type.shape  # type: ignore[attr-defined]
    return size, witness


def computed_product(a: ir.Var, b: ir.Var) -> ir.Expr:
    return equal(nonzero_floats(a), ops.neg(b))


def computed_both(a: ir.Var, b: ir.Var) -> ir.Expr:
    return equal(nonzero_floats(a), nonzero_floats(b))


def computed_broadcast(a: ir.Var, b: ir.Var) -> ir.Expr:
    return ops.add(nonzero_floats(a), b)


def computed_scatter(a: ir.Var, b: ir.Var) -> ir.Expr:
    """Rows of updates as many as the first vector has elements, to a row of each element of the other one."""
    rows = nonzero_floats(a)
    (count,) = rows.type.shape  # type: ignore[attr-defined]
    zeros = ops.cast(ops.mul(rows, ir.constant(np.float32(0))), dtype="int64")
    flat = ops.reshape(zeros, shape=(1, count))
    data = ops.reshape(b, shape=(1, b.type.shape[0]))  # type: ignore[attr-defined]
    return ops.scatter_along_axis(data, flat, ops.reshape(rows, shape=(1, count)), axis=0)


def computed_gather(a: ir.Var, b: ir.Var) -> ir.Expr:
    rows = nonzero_floats(a)
    (count,) = rows.type.shape  # type: ignore[attr-defined]
    zeros = ops.reshape(ops.cast(ops.mul(rows, ir.constant(np.float32(0))), dtype="int64"), shape=(1, count))
    return ops.take_along_axis(ops.reshape(b, shape=(1, b.type.shape[0])), zeros, axis=0)  # type: ignore[attr-defined]


def computed_quotient(a: ir.Var, b: ir.Var) -> ir.Expr:
    """A slice ends at a quotient of sizes, the second of which a kernel computes."""
    rows = nonzero_floats(a)
    (count,) = rows.type.shape  # type: ignore[attr-defined]
    end = arith.unwrap(arith.floordiv(b.type.shape[0], count))  # type: ignore[attr-defined]
    return ops.neg(ops.strided_slice(ops.after(b, rows), begin=(0,), end=(end,), strides=(1,)))


def bound_quotient(a: ir.Var, b: ir.Var) -> ir.Expr:
    size, witness = counted(a)
    end = arith.unwrap(arith.floordiv(b.type.shape[0], size))  # type: ignore[attr-defined]
    return ops.neg(ops.strided_slice(ops.after(b, witness), begin=(0,), end=(end,), strides=(1,)))


def bound_reshape(a: ir.Var, b: ir.Var) -> ir.Expr:
    size, witness = counted(a)
    return ops.reshape(ops.after(ops.neg(b), witness), shape=(size, 1))


def bound_product(a: ir.Var, b: ir.Var) -> ir.Expr:
    size, witness = counted(a)
    ones = ops.full(ops.after(ir.constant(np.float32(2)), witness), shape=(size,))
    return equal(ones, b)


def bound_slice(a: ir.Var, b: ir.Var) -> ir.Expr:
    size, witness = counted(a)
    return ops.neg(ops.strided_slice(ops.after(b, witness), begin=(0,), end=(size,), strides=(1,)))


def within(p: int, q: int) -> bool:
    return p <= q


def broadcasts(p: int, q: int) -> bool:
    return p == q or 1 in (p, q)


_TWO = (numbers(5), numbers(5))
_TRUE, _FALSE = np.array(True), np.array(False)

SOURCES = (
    number_source("pad", lambda a, number: ops.pad(a, ir.constant(np.float32(0)), pads=(number, 0)), -2, 2),
    number_source("pad-edge", lambda a, number: ops.pad(a, pads=(0, number), mode="edge"), -2, 2),
    number_source("tile", lambda a, number: ops.tile(a, repeats=(number, 2)), 0, 2, 3),
    number_source("full", lambda a, number: ops.full(ops.reduce_sum(a, axes=(0,)), shape=(number, 2)), 0, 4),
    number_source("slice", lambda a, number: ops.strided_slice(a, begin=(0,), end=(number,), strides=(1,)), 0, 6),
    number_source("max-output", suppressed, 0, 1, 3, 4),
    number_source("window-pad", lambda a, number: ops.max_pool(a, kernel=(2,), pads=(number, 0)), 0, 1, 2, 5),
    number_source(
        "transposed-pad",
        lambda a, number: ops.conv_transpose(a, ir.constant(np.ones((2, 1, 3), np.float32)), pads=(number, 0)), 0, 1, 2, 5,
    ),
    Source(
        "attribute", "positions", position, {"p": 3}, lambda p: 1 <= p < 1 << 31, (np.arange(3, dtype=np.int8),), (1 << 31,)
    ),
    Source("attribute", "quotient", quotient, {"p": 5, "q": 2}, lambda p, q: q > 0, (numbers(5), numbers(2))),
    Source("attribute", "quotient-slice", quotient_slice, {"p": 5, "q": 2}, lambda p, q: q > 0, (numbers(5), numbers(2))),
    Source("custom", "shortened", shorter, {"p": 5}, lambda p: p >= 3, (numbers(5),), (2, 3)),
    Source("call", "two-values", two_values, {"p": 5, "q": 5}, is_equal, _TWO),
    Source("call", "fixed-size", fixed_size, {"p": 5, "q": 3}, lambda p, q: q == 3, (numbers(5, 3),)),
    Source("call", "computed-size", computed_size, {"p": 3, "q": 6}, lambda p, q: q == 2 * p, (numbers(3), numbers(6))),
    Source("call", "bounded-size", bounded_size, {"p": 3, "q": 5}, lambda p, q: 2 <= p <= q, (numbers(3), numbers(5))),
    Source("call", "inner", inner_condition, {"p": 5, "q": 5}, is_equal, _TWO),
    Source("call", "three", three_calls, {"p": 4, "q": 4, "r": 4}, lambda p, q, r: p == q == r, (numbers(4),) * 3),
    Source("call", "declared-result", declared_result, {"p": 5, "q": 5}, is_equal, _TWO),
    Source("call", "declared-let", declared_let, {"p": 5, "q": 5}, is_equal, _TWO),
    Source("branch", "entered", branch(True), {"p": 5, "q": 5}, is_equal, (*_TWO, _TRUE)),
    Source("branch", "other-entered", branch(False), {"p": 5, "q": 5}, is_equal, (*_TWO, _FALSE)),
    Source("branch", "not-entered", branch(True), {"p": 5, "q": 5}, always, (*_TWO, _FALSE)),
    Source("branch", "call", called_in_branch, {"p": 5, "q": 5}, is_equal, (*_TWO, _TRUE)),
    Source("branch", "call-not-entered", called_in_branch, {"p": 5, "q": 5}, always, (*_TWO, _FALSE)),
    Source("branch", "joined", joined, {"p": 5, "q": 5}, is_equal, (*_TWO, _TRUE)),
    Source("branch", "joined-other", joined, {"p": 5, "q": 5}, always, (*_TWO, _FALSE)),
    Source("loop", "state", loop_state(2), {"p": 5, "q": 5}, is_equal, _TWO),
    Source("loop", "state-unused", loop_state(0), {"p": 5, "q": 5}, is_equal, _TWO),
    Source("loop", "result", loop_result, {"p": 5, "q": 5}, is_equal, _TWO),
    Source("loop", "inner", loop_inner(2), {"p": 5, "q": 5}, is_equal, _TWO),
    Source("loop", "inner-not-entered", loop_inner(0), {"p": 5, "q": 5}, always, _TWO),
    Source("loop", "scanned", loop_scanned, {"p": 4, "q": 4}, is_equal, (numbers(4, 3), numbers(4, 3))),
    Source("loop", "slices", loop_slices, {"p": 5, "q": 5}, is_equal, (numbers(3, 5), numbers(5))),
    Source("loop", "stacked", loop_stacked, {"p": 4, "q": 4}, is_equal, (numbers(4, 3), numbers(4))),
    Source("loop", "invariant", loop_invariant, {"p": 5, "q": 5}, always, (*_TWO, np.array(2))),
    Source("loop", "invariant-not-entered", loop_invariant, {"p": 5, "q": 5}, always, (*_TWO, np.array(0))),
    pair_source("dropped", "unused", unused, is_equal),
    pair_source("dropped", "unused-item", unused_item, is_equal),
    pair_source("dropped", "equal-branches", equal_branches, is_equal),
    pair_source("dropped", "shape", only_its_shape, is_equal),
    Source(
        "dropped", "reshapes", two_reshapes, {"p": 2, "q": 3, "r": 6}, lambda p, q, r: p * q == r, (numbers(2, 3), numbers(6))
    ),
    Source(
        "dropped", "slice", removed_slice, {"p": 3, "q": 4, "r": 4}, lambda p, q, r: q == r,
        (numbers(1, 3), numbers(1, 4), numbers(4)),
    ),
    Source("dropped", "branch", merged_branches, {"p": 5, "q": 5}, always, _TWO),
    pair_source("computed", "product", computed_product, is_equal),
    pair_source("computed", "both", computed_both, is_equal),
    pair_source("computed", "broadcast", computed_broadcast, broadcasts),
    pair_source("computed", "scatter", computed_scatter, within),
    pair_source("computed", "gather", computed_gather, within),
    pair_source("computed", "quotient", computed_quotient, lambda p, q: p > 0),
    pair_source("computed", "bound-quotient", bound_quotient, lambda p, q: p > 0),
    pair_source("computed", "bound-reshape", bound_reshape, is_equal),
    pair_source("computed", "bound-product", bound_product, is_equal),
    pair_source("computed", "bound-slice", bound_slice, within),
)  # fmt: skip
