from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from inlaid import ops
from inlaid.graph.ir import (
    Call,
    Expr,
    Function,
    Module,
    Tuple,
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
from inlaid.graph.unify import fresh_size
from inlaid.graph.verify import verify
from inlaid_runtime.arith import SizeVar
from inlaid_runtime.errors import VerifyError
from inlaid_runtime.types import FunctionType, TensorType, TupleType

SCALAR = TensorType((), "float32")
COUNT = TensorType((), "int64")


def test_good_programs_pass() -> None:
    flag, x, y, v, i, s = var("flag", TensorType((), "bool")), *(var(n, SCALAR) for n in "xyv"), var("i", COUNT), var("s", SCALAR)
    shared = ops.neg(x)
    f = function([y], ops.add(y, shared))
    body = function([i, s], tuple_([constant(True), ops.add(s, x)]))
    total = tuple_item(loop(body, state=[x], trip_count=constant(np.int64(3))), 0)
    expr = let(v, call(f, [total]), if_(flag, ops.mul(v, shared), v))
    module = Module({"main": function([flag, x], expr)})
    verify(module)
    verify(module.main)


def test_deep_lets_take_linear_time() -> None:
    x = var("x", SCALAR)
    variables = [x, *(var(f"v{k}", SCALAR) for k in range(5000))]
    body: Expr = variables[-1]
    for k in range(len(variables) - 1, 0, -1):
        body = let(variables[k], ops.add(variables[k - 1], x), body)
    verify(function([x], body))


def fails(target: Function | Module, problem: str) -> None:
    with pytest.raises(VerifyError, match=problem):
        verify(target)


def test_variables_out_of_scope() -> None:
    x, y, v = (var(name, SCALAR) for name in "xyv")
    fails(function([x], ops.add(x, y)), "%y is used outside of its scope")
    fails(function([x], ops.add(let(v, x, v), v)), "%v is used outside of its scope")
    fails(function([x], let(v, ops.neg(v), v)), "%v is used outside of its scope")
    inner = ops.neg(y)
    fails(function([x], tuple_([function([y], inner), inner])), "%y is used outside")
    fails(Module({"main": function([x], call(function([y], y), [y]))}), "in @main: %y is used")


def test_variables_bound_twice() -> None:
    x, v = var("x", SCALAR), var("v", SCALAR)
    fails(function([x], ops.add(let(v, x, v), let(v, x, v))), "%v is bound twice")
    fails(function([x, x], x), "%x is bound twice")
    fails(function([x], function([x], x)), "%x is bound twice")


def test_wrong_types() -> None:
    x = var("x", SCALAR)
    fails(function([x], replace(ops.neg(x), type=COUNT)), r"Tensor\[\(\), int64\], but inferred as .*operator neg")
    fails(function([x], replace(ops.add(x, x), args=(x, constant(1)))), r"ill-typed.*operator add")
    fails(function([x], Tuple(TupleType((SCALAR,)), None, (x, x))), "the type is declared as")
    fails(replace(function([x], x), body=constant(1)), "the type is declared as")
    fails(function([x], replace(tuple_item(var("t", TupleType((SCALAR,))), 0), index=3)), "with a field 3")


def test_global_names() -> None:
    x = var("x", SCALAR)
    kind = FunctionType((SCALAR,), SCALAR)
    fails(Module({"main": function([x], call(global_var("f", kind), [x]))}), "no function @f")
    other = function([y := var("y", COUNT)], y)
    fails(Module({"main": function([x], call(global_var("f", kind), [x])), "f": other}), "the type of @f is declared as")


def test_dimensions_without_value() -> None:
    n, k = SizeVar("n"), fresh_size("k")
    x = var("x", TensorType((n,), "float32"))
    good = ops.reshape(x, shape=(n, 1))
    verify(function([x], good))
    bad = ops.reshape(x, shape=(k, 1))
    assert isinstance(bad, Call)
    fails(function([x], bad), r"the dimension \?k__\d+ is not bound in this scope.*\(operator reshape\)")


def test_sizes_are_defined_before_they_are_read() -> None:
    x = var("x", TensorType((3,), "float32"))
    positions = ops.nonzero(x)
    count = positions.type.shape[1]  # type: ignore[attr-defined]
    one = constant(np.float32(1))
    verify(function([x], tuple_([ops.broadcast_to(ops.after(one, positions), shape=(count,)), positions])))
    fails(function([x], tuple_([ops.broadcast_to(one, shape=(count,)), positions])), "is not bound in this scope")
