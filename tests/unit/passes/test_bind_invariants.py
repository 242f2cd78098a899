"""What every round of a loop would compute alike is computed once."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from tests.unit.graph.strategies import Program, assert_close, programs, run

import inlaid
from inlaid import ops
from inlaid.graph import ir
from inlaid.graph.interp import Interpreter, evaluate
from inlaid.graph.normal import to_graph_form
from inlaid.graph.operator import Operator
from inlaid.graph.verify import verify
from inlaid.passes.bind_invariants import bind_invariants
from inlaid_runtime.arith import SizeVar
from inlaid_runtime.errors import KernelFault
from inlaid_runtime.types import TensorType

MATRIX, COUNT = TensorType((2, 3), "float32"), TensorType((), "int64")
X, Y = ir.var("x", MATRIX), ir.var("y", MATRIX)
VALUES = [np.arange(6, dtype=np.float32).reshape(2, 3), np.full((2, 3), 2, np.float32)]


class Counter:
    """An operator that counts how often it is computed."""

    def __init__(self) -> None:
        self.count = 0
        self.operator = Operator("test.counted", lambda attrs, x: x, reference=self._run)

    def _run(self, attrs: object, x: np.ndarray) -> np.ndarray:
        self.count += 1
        return -x

    def __call__(self, x: ir.Expr) -> ir.Expr:
        return self.operator(x)


def repeat(body: Callable[[ir.Expr, ir.Expr], ir.Expr], state: ir.Expr = X, rounds: int = 4) -> ir.Expr:
    """The state after some rounds of `body(iteration, state)`."""
    i, total = ir.var("i", COUNT), ir.var("total", MATRIX)
    inner = ir.function([i, total], ir.tuple_([ir.constant(True), body(i, total)]))
    return ir.tuple_item(ir.loop(inner, state=[state], trip_count=ir.constant(np.int64(rounds))), 0)


def counts(body: ir.Expr, counter: Counter) -> tuple[int, int]:
    """How often the counter runs before and after the pass, which must not change the result."""
    function = ir.function([X, Y], body)
    expected = Interpreter().run(function, VALUES)
    before, counter.count = counter.count, 0
    changed = bind_invariants(function)
    verify(ir.Module({"main": changed}))
    assert_close(Interpreter().run(changed, VALUES), expected)
    assert bind_invariants(changed) is changed
    return before, counter.count


def test_what_stands_outside_is_computed_once() -> None:
    encoder = Counter()
    invariant = encoder(ops.exp(Y))
    assert counts(repeat(lambda i, total: ops.add(total, invariant)), encoder) == (4, 1)


def test_what_varies_stays() -> None:
    varying = Counter()
    assert counts(repeat(lambda i, total: varying(ops.add(total, Y))), varying) == (4, 4)


def test_nested_loops() -> None:
    """Out of all loops, or out of the inner one only."""
    outer, inner = Counter(), Counter()

    def body(i: ir.Expr, total: ir.Expr) -> ir.Expr:
        changes = inner(total)
        return repeat(lambda j, state: ops.add(ops.add(state, outer(Y)), changes), total, 3)

    loop = repeat(body)
    function = ir.function([X, Y], loop)
    expected = Interpreter().run(function, VALUES)
    assert (outer.count, inner.count) == (12, 12)
    outer.count = inner.count = 0
    assert_close(Interpreter().run(bind_invariants(function), VALUES), expected)
    assert (outer.count, inner.count) == (1, 4)


def test_a_loop_that_is_itself_the_same_in_every_round() -> None:
    counter = Counter()
    invariant_loop = repeat(lambda j, state: counter(ops.add(state, Y)), Y, 3)
    assert counts(repeat(lambda i, total: ops.add(total, invariant_loop)), counter) == (12, 3)


def test_branches_keep_what_they_may_not_want() -> None:
    counter = Counter()

    def body(i: ir.Expr, total: ir.Expr) -> ir.Expr:
        rare = ops.equal(i, ir.constant(np.int64(2)))
        return ir.if_(rare, ops.add(total, counter(Y)), total)

    assert counts(repeat(body), counter) == (1, 1)


def test_results_that_never_change() -> None:
    """A body whose results do not depend on the round at all, several results of one operator, and shared ones."""
    counter = Counter()
    both = ops.topk(counter(Y), k=3, axis=1)
    item = ir.tuple_item(both, 0)
    assert counts(repeat(lambda i, total: item), counter) == (4, 1)
    counter = Counter()
    value = counter(Y)
    assert counts(repeat(lambda i, total: ops.add(ops.relu(value), ops.neg(value))), counter) == (4, 1)


def times(body: ir.Expr, count: ir.Var) -> ir.Function:
    """Add a value to X in `count` iterations."""
    i, total = ir.var("i", COUNT), ir.var("total", MATRIX)
    inner = ir.function([i, total], ir.tuple_([ir.constant(True), ops.add(total, body)]))
    return ir.function([X, Y, count], ir.tuple_item(ir.loop(inner, state=[X], trip_count=count), 0))


@pytest.mark.parametrize("nested", [False, True])
def test_what_may_fail_is_computed_if_the_loop_runs(nested: bool) -> None:
    """An index out of range is an error only in an iteration, even if the operator is in a loop that is itself invariant."""
    count, row = ir.var("count", COUNT), ir.constant(np.array([7]))
    counter = Counter()
    out_of_range = ops.take(counter(Y), row, axis=0)
    body = repeat(lambda j, state: ops.add(state, out_of_range), Y, 3) if nested else out_of_range
    changed = bind_invariants(times(body, count))
    verify(ir.Module({"main": changed}))
    assert_close(Interpreter().run(changed, [*VALUES, np.array(0)]), VALUES[0])
    assert counter.count == 0
    with pytest.raises(KernelFault, match="index must be >= -2 and < 2, got 7"):
        Interpreter().run(changed, [*VALUES, np.array(1)])
    assert counter.count == 1


@pytest.mark.parametrize("target", ["reference", "x86"])
def test_rows_of_a_data_dependent_size(target: str) -> None:
    """Whether the loop runs depends on a size that `unique` determines, so that the condition is evaluated after it."""
    x = ir.var("x", TensorType((SizeVar("n", 0), 1), "int32"))
    unique = ops.unique(x, ordered=True)
    first, numbers = ir.tuple_item(unique, 0), ir.tuple_item(unique, 2)
    i, total, number = ir.var("i", COUNT), ir.var("total", COUNT), ir.var("number", COUNT)
    invariant = ops.reshape(ops.take(first, ir.constant(np.array([0])), axis=0), shape=())  # fails if there is no element
    body = ir.function([i, total, number], ir.tuple_([ir.constant(True), ops.add(total, ops.mul(invariant, number))]))
    loop = ir.loop(body, state=[ir.constant(np.int64(5))], scanned=[ops.concat(numbers, numbers, axis=0)])
    executable = inlaid.compile(ir.Module({"main": ir.function([x], ir.tuple_item(loop, 0))}), targets=[target])
    for values, expected in (([3, 3, 4], 5), ([], 5)):
        (result,) = executable.run({"x": np.array(values, np.int32).reshape(-1, 1)}).values()
        assert result == expected


def first_element(x: ir.Expr) -> ir.Expr:
    """The first element, of which a vector without elements has none."""
    return ops.reshape(ops.take(x, ir.constant(np.array([0])), axis=0), shape=())


def scan(rows: ir.Expr, invariant: ir.Expr, count: ir.Expr | None = None) -> ir.Expr:
    """Add an invariant, multiplied by each row, to a state; stacks the states."""
    i, total, number = ir.var("i", COUNT), ir.var("total", COUNT), ir.var("number", COUNT)
    new = ops.add(total, ops.mul(invariant, number))
    body = ir.function([i, total, number], ir.tuple_([ir.constant(True), new, new]))
    return ir.loop(body, state=[ir.constant(np.int64(5))], scanned=[rows], trip_count=count)


def test_rows_that_another_guarded_loop_stacks() -> None:
    vector = TensorType((SizeVar("n", 0),), "int64")
    x, y, count = ir.var("x", vector), ir.var("y", vector), ir.var("count", COUNT)
    stacked = ir.tuple_item(scan(y, first_element(x), count), 1)
    function = ir.function([x, y, count], ir.tuple_item(scan(stacked, first_element(x)), 0))
    changed = bind_invariants(function)
    verify(ir.Module({"main": changed}))
    for size, rounds in ((3, 2), (3, 0), (0, 1)):
        values = [np.arange(2, 2 + size), np.arange(1, 1 + size), np.array(rounds)]
        assert_close(Interpreter().run(changed, values), Interpreter().run(function, values))


def test_rows_of_a_size_that_an_outer_loop_changes() -> None:
    x = ir.var("x", TensorType((SizeVar("n", 0),), "int64"))
    i, grown = ir.var("i", COUNT), ir.var("grown", TensorType((SizeVar("?k", 0),), "int64"))
    total = ir.tuple_item(scan(grown, first_element(x)), 0)
    body = ir.function([i, grown], ir.tuple_([ir.constant(True), ops.concat(grown, ops.reshape(total, shape=(1,)), axis=0)]))
    loop = ir.loop(body, state=[x], trip_count=ir.constant(np.int64(2)))
    function = ir.function([x], ir.tuple_item(loop, 0))
    changed = bind_invariants(function)
    verify(ir.Module({"main": changed}))
    assert_close(Interpreter().run(changed, [np.array([2, 3])]), Interpreter().run(function, [np.array([2, 3])]))


def test_what_cannot_fail_needs_no_condition() -> None:
    changed = bind_invariants(times(ops.exp(Y), ir.var("count", COUNT)))
    assert not any(isinstance(expr, ir.If) for expr in ir.post_order(changed))


def test_nothing_to_do() -> None:
    for body in (ops.relu(X), repeat(lambda i, total: ops.add(total, Y)), repeat(lambda i, total: total)):
        function = ir.function([X, Y], body)
        assert bind_invariants(function) is function


def test_a_body_that_two_loops_share_stays() -> None:
    i, total = ir.var("i", COUNT), ir.var("total", MATRIX)
    inner = ir.function([i, total], ir.tuple_([ir.constant(True), ops.add(total, ops.exp(Y))]))
    loops = [ir.loop(inner, state=[X], trip_count=ir.constant(np.int64(n))) for n in (1, 2)]
    function = ir.function([X, Y], ir.tuple_([ir.tuple_item(item, 0) for item in loops]))
    assert bind_invariants(function) is function


@settings(max_examples=50, deadline=None)
@given(programs())
def test_random_modules(program: Program) -> None:
    changed = ir.Module({name: bind_invariants(to_graph_form(item)) for name, item in program.module.functions.items()})
    verify(changed)
    assert_close(run(changed, program.inputs), evaluate(program.module, program.inputs))


def test_a_call_that_reads_a_size_of_the_state_stays() -> None:
    """Outside the loop, nothing would order it after the kernel that computes the size."""
    x, key = ir.var("x", TensorType((SizeVar("n"),), "float32")), ir.var("key", TensorType((), "uint64"))
    state = ops.cast(ops.nonzero(x), dtype="float32")
    assert isinstance(state.type, TensorType)
    i, total = ir.var("i", COUNT), ir.var("total", state.type)
    noise = ir.tuple_item(ops.random_normal(key, shape=state.type.shape, dtype="float32"), 0)
    body = ir.function([i, total], ir.tuple_([ir.constant(True), ops.add(total, ops.exp(noise))]))
    trips = ir.var("trips", COUNT)
    result = ir.tuple_item(ir.loop(body, state=[state], trip_count=trips), 0)
    module = ir.Module({"main": ir.function([x, key, trips], result)})
    inputs = {"x": np.array([0, 1, 2, 0, 3], np.float32), "key": np.array(7, np.uint64), "trips": np.array(2, np.int64)}
    (expected,) = [evaluate(module, inputs)]
    for target in ("reference", "x86:threads=1"):
        (output,) = inlaid.compile(module, targets=[target]).run(inputs).values()
        assert_close(output, expected)
