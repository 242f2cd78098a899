from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from inlaid import ops
from inlaid.graph.interp import Interpreter, evaluate
from inlaid.graph.ir import (
    Module,
    call,
    constant,
    function,
    global_var,
    if_,
    let,
    loop,
    tuple_,
    tuple_item,
    var,
)
from inlaid.graph.operator import Attrs, Operator
from inlaid.graph.unify import fresh_size
from inlaid_runtime.arith import SizeVar
from inlaid_runtime.errors import InputError, KernelFault, TypeInferenceError, VerifyError
from inlaid_runtime.types import FunctionType, SequenceType, TensorType, TupleType

F32 = "float32"
SCALAR = TensorType((), F32)
COUNT = TensorType((), "int64")


def counting(log: list[float]) -> Operator:
    """An identity that records its runs."""

    def reference(attrs: Attrs, x: np.ndarray) -> np.ndarray:
        log.append(float(x))
        return x

    return Operator("spy", lambda attrs, x: x, reference=reference)


def scalar(value: float) -> np.ndarray:
    return np.asarray(value, np.float32)


def test_operators_by_name_and_position() -> None:
    x, y = var("x", TensorType((2, 3), F32)), var("y", TensorType((3,), F32))
    target = function([x, y], ops.add(ops.mul(x, y), x))
    a, b = np.ones((2, 3), np.float32), np.arange(3, dtype=np.float32)
    np.testing.assert_array_equal(evaluate(target, [a, b]), a * b + a)
    np.testing.assert_array_equal(evaluate(Module({"main": target}), {"y": b, "x": a}), a * b + a)


def test_wrong_inputs_are_named() -> None:
    n = SizeVar("n")
    target = function([x := var("x", TensorType((n,), F32)), y := var("y", TensorType((n,), F32))], ops.add(x, y))
    with pytest.raises(InputError, match="expected the inputs x, y, got x"):
        evaluate(target, {"x": np.zeros(2, np.float32)})
    with pytest.raises(InputError, match="'y' has shape"):
        evaluate(target, [np.zeros(2, np.float32), np.zeros(3, np.float32)])
    with pytest.raises(InputError, match="'x' has element type float64"):
        evaluate(target, [np.zeros(2), np.zeros(2)])


def test_a_shared_node_runs_once_and_a_branch_only_when_chosen() -> None:
    log: list[float] = []
    spy = counting(log)
    flag, x = var("flag", TensorType((), "bool")), var("x", SCALAR)
    shared = spy(x)
    only_then = spy(ops.add(x, x))
    target = function([flag, x], if_(flag, ops.add(shared, only_then), ops.neg(shared)))
    assert evaluate(target, [np.asarray(True), scalar(1)]) == 3
    assert log == [1, 2]
    log.clear()
    assert evaluate(target, [np.asarray(False), scalar(1)]) == -1
    assert log == [1]


def test_let_evaluates_once() -> None:
    log: list[float] = []
    x, v = var("x", SCALAR), var("v", SCALAR)
    target = function([x], let(v, counting(log)(x), ops.mul(v, ops.add(v, v))))
    assert evaluate(target, [scalar(3)]) == 18
    assert log == [3]


def test_closures_capture_and_may_be_returned_through_tuples() -> None:
    x, y = var("x", SCALAR), var("y", SCALAR)
    adder = function([y], ops.add(x, y))
    pair = tuple_([adder, x])
    f = var("f", adder.type)
    body = let(f, tuple_item(pair, 0), call(f, [call(f, [x])]))
    assert evaluate(function([x], body), [scalar(2)]) == 6


def test_recursion_is_not_limited_by_python() -> None:
    n = var("n", COUNT)
    kind = FunctionType((COUNT,), COUNT)
    again = call(global_var("count", kind), [ops.sub(n, constant(np.int64(1)))])
    is_zero = ops.less_equal(n, constant(np.int64(0)))
    count = function([n], if_(is_zero, constant(np.int64(0)), ops.add(again, constant(np.int64(2)))), result=COUNT)
    m = var("m", COUNT)
    module = Module({"count": count, "main": function([m], call(global_var("count", kind), [m]))})
    assert evaluate(module, [np.asarray(5000)]) == 10000


def test_a_deep_graph() -> None:
    x = var("x", SCALAR)
    expr = x
    for _ in range(20_000):
        expr = ops.add(expr, x)
    assert evaluate(function([x], expr), [scalar(1)]) == 20001


def sum_loop(trips: int | None, stop_at: float | None) -> object:
    """state: a running sum; scanned: the rows; stacked: the sums so far."""
    i, total, row = var("i", COUNT), var("total", SCALAR), var("row", SCALAR)
    new = ops.add(total, row)
    keep = constant(True) if stop_at is None else ops.less(new, constant(np.float32(stop_at)))
    body = function([i, total, row], tuple_([keep, new, ops.mul(new, ops.cast(i, dtype=F32))]))
    xs = var("xs", TensorType((SizeVar("n"),), F32))
    trip_count = None if trips is None else constant(np.int64(trips))
    return function([xs], loop(body, state=[constant(np.float32(0))], scanned=[xs], trip_count=trip_count))


@pytest.mark.parametrize(
    ("trips", "stop_at", "sums"),
    [(None, None, [1, 3, 6, 10]), (2, None, [1, 3]), (None, 3, [1, 3]), (0, None, [])],
)
def test_loop(trips: int | None, stop_at: float | None, sums: list[float]) -> None:
    final, stacked = evaluate(sum_loop(trips, stop_at), [np.arange(1, 5, dtype=np.float32)])
    assert final == (sums[-1] if sums else 0)
    np.testing.assert_array_equal(stacked, np.asarray([value * i for i, value in enumerate(sums)], np.float32))


def test_a_loop_whose_state_grows_gets_a_size_of_its_own() -> None:
    size = fresh_size("n", 8)
    i, state = var("i", COUNT), var("state", TensorType((size,), F32))
    body = function([i, state], tuple_([constant(True), ops.concat(state, state, axis=0)]))
    x = var("x", TensorType((1,), F32))
    expr = loop(body, state=[x], trip_count=constant(np.int64(3)))
    assert isinstance(expr.type, TupleType)
    grown = expr.type.fields[0]
    assert isinstance(grown, TensorType) and isinstance(grown.shape[0], SizeVar)
    assert grown.shape[0].existential and grown.shape[0] != size
    (result,) = evaluate(function([x], expr), [np.ones(1, np.float32)])
    assert result.shape == (8,)


def test_symbolic_sizes_reach_the_attributes() -> None:
    n = SizeVar("n")
    x = var("x", TensorType((n, 2), F32))
    target = function([x], ops.reshape(x, shape=(n * 2,)))
    assert evaluate(target, [np.zeros((3, 2), np.float32)]).shape == (6,)


def test_sizes_found_at_run_time() -> None:
    positive = Operator(
        "positive",
        lambda attrs, x: TensorType((fresh_size("k", x.shape[0]),), x.dtype),
        reference=lambda attrs, x: x[x > 0],
    )
    x = var("x", TensorType((4,), F32))
    positives = positive(x)
    assert isinstance(positives.type, TensorType)
    k = positives.type.shape[0]
    target = function([x], ops.reshape(ops.concat(positives, positives, axis=0), shape=(2, k)))
    result = evaluate(target, [np.asarray([1, -1, 2, -2], np.float32)])
    np.testing.assert_array_equal(result, [[1, 2], [1, 2]])
    # Two calls of one function find two sizes.
    y, z = var("y", x.type), var("z", x.type)
    f = function([y], positive(y))
    first, second = call(f, [x]), call(f, [z])
    assert first.type != second.type


def test_an_operator_without_reference_is_decomposed() -> None:
    @dataclass(frozen=True)
    class Times(Attrs):
        times: int

    def decompose(attrs: Times, args: tuple) -> object:
        result = args[0]
        for _ in range(attrs.times - 1):
            result = ops.add(result, args[0])
        return result

    times = Operator("times", lambda attrs, x: x, Times, decompose=decompose)
    x = var("x", TensorType((SizeVar("n"),), F32))
    np.testing.assert_array_equal(evaluate(function([x], times(x, times=3)), [np.ones(2, np.float32)]), [3, 3])
    nothing = Operator("nothing", lambda attrs, x: x)
    with pytest.raises(VerifyError, match="neither a reference nor a decomposition"):
        evaluate(function([x], nothing(x)), [np.ones(2, np.float32)])


def test_a_reference_that_disagrees_with_its_type_is_found_out() -> None:
    wrong = Operator("wrong", lambda attrs, x: x, reference=lambda attrs, x: x.astype(np.float64))
    x = var("x", SCALAR)
    with pytest.raises(VerifyError, match=r"float64.*operator wrong"):
        evaluate(function([x], wrong(x)), [scalar(1)])


def test_a_failing_reference_names_the_operator() -> None:
    def fail(attrs: Attrs, x: np.ndarray) -> np.ndarray:
        raise IndexError("index 7 is out of range")

    x = var("x", SCALAR)
    with pytest.raises(KernelFault, match=r"index 7 is out of range.*operator bad"):
        evaluate(function([x], Operator("bad", lambda attrs, x: x, reference=fail)(x)), [scalar(1)])
    with pytest.raises(KernelFault, match=r"reference raised AttributeError.*operator wrong") as caught:
        evaluate(function([x], Operator("wrong", lambda attrs, x: x, reference=lambda attrs, x: x.nothing)(x)), [scalar(1)])
    assert isinstance(caught.value.__cause__, AttributeError)


def test_a_failing_type_relation_names_the_operator() -> None:
    with pytest.raises(TypeInferenceError, match=r"no attribute 'nothing'; inputs are .*operator wrong") as caught:
        Operator("wrong", lambda attrs, x: x.nothing)(var("x", SCALAR))
    assert isinstance(caught.value.__cause__, AttributeError)


def test_sequences_and_optionals_are_python_values() -> None:
    rows = TensorType((2,), F32)
    make = Operator("make", lambda attrs, *xs: SequenceType(rows), reference=lambda attrs, *xs: list(xs), arity=(0, None))
    at = Operator("at", lambda attrs, s, i: rows, reference=lambda attrs, s, i: s[int(i)], arity=(2, 2))
    x = var("x", rows)
    target = function([x], at(make(x, ops.add(x, x)), constant(np.int64(1))))
    np.testing.assert_array_equal(evaluate(target, [np.ones(2, np.float32)]), [2, 2])


def test_values_are_dropped_after_their_last_use() -> None:
    alive: list[int] = []
    import weakref

    references: list[weakref.ref] = []

    def reference(attrs: Attrs, x: np.ndarray) -> np.ndarray:
        alive.append(sum(ref() is not None for ref in references))
        result = x + 1
        references.append(weakref.ref(result))
        return result

    step = Operator("step", lambda attrs, x: x, reference=reference)
    x = var("x", TensorType((4,), F32))
    expr = x
    for _ in range(10):
        expr = step(expr)
    interpreter = Interpreter()
    target = function([x], expr)
    for _ in range(2):
        np.testing.assert_array_equal(interpreter.run(target, [np.zeros(4, np.float32)]), np.full(4, 10, np.float32))
    assert max(alive) <= 3
