"""Operators that the plan runs itself."""

from __future__ import annotations

import numpy as np
import pytest

from inlaid import ops
from inlaid.driver import compile_module
from inlaid.graph.interp import evaluate
from inlaid.graph.ir import Expr, Module, call, constant, function, if_, var
from inlaid.graph.verify import verify
from inlaid.ops.plan import LARGEST_SIZE, fail, fail_attrs
from inlaid.passes.fold_constants import fold_constants
from inlaid_runtime.errors import KernelFault, TypeInferenceError
from inlaid_runtime.types import SequenceType, TensorType

X = TensorType(("n",), "float32")


def copies(count: Expr, *params: Expr) -> Module:
    """x as often as `count` says."""
    x = var("x", X)
    witness = ops.bind_size(count, message="the number of copies")
    body = ops.neg(ops.tile(ops.after(x, witness), repeats=(witness.type.shape[0],)))
    module = Module({"main": function([x, *params], body)})
    verify(module)
    return module


@pytest.mark.parametrize("target", ["x86", "reference"])
def test_a_bound_size_is_an_ordinary_dimension(target):
    pytest.importorskip("inlaid_x86")
    count = var("count", TensorType((), "int64"))
    executable = compile_module(copies(count, count), [target])
    x = np.arange(3, dtype=np.float32)
    for number in (0, 1, 4):
        (result,) = executable.run({"x": x, "count": np.array(number)}).values()
        assert np.array_equal(result, -np.tile(x, number))
    assert {region.target.split(":")[0] for region in executable.regions} == {target}
    for number in (-1, LARGEST_SIZE + 1):
        with pytest.raises(KernelFault, match=f"the number of copies must be 0 to {LARGEST_SIZE}, got {number}"):
            executable.run({"x": x, "count": np.array(number)})


def test_a_size_of_a_constant_folds():
    main = fold_constants(copies(constant(np.int64(2))).main)
    assert main.body.type == TensorType((main.params[0].type.shape[0] * 2,), "float32")
    bad = fold_constants(copies(constant(np.int64(-2))).main)  # it stays, to fail when it runs
    with pytest.raises(KernelFault, match="got -2"):
        evaluate(bad, [np.zeros(3, np.float32)])


@pytest.mark.parametrize("target", ["x86", "reference"])
def test_what_requires_a_condition_fails_without_it(target):
    pytest.importorskip("inlaid_x86")
    x, sure = var("x", X), var("sure", TensorType((), "bool"))
    body = ops.neg(ops.after(x, ops.assert_true(sure, message="nobody is sure")))
    executable = compile_module(Module({"main": function([x, sure], body)}), [target])
    (result,) = executable.run({"x": np.ones(2, np.float32), "sure": np.array(True)}).values()
    assert result.tolist() == [-1, -1]
    with pytest.raises(KernelFault, match="nobody is sure"):
        executable.run({"x": np.ones(2, np.float32), "sure": np.array(False)})


@pytest.mark.parametrize("type_", [X, TensorType((2, "?k"), "int64"), SequenceType(X)])
def test_a_failure_stands_for_a_value_of_any_type(type_):
    x, chosen = var("x", type_), var("chosen", TensorType((), "bool"))
    broken = call(fail, (), fail_attrs("there is no value here", type_))
    module = Module({"main": function([x, chosen], if_(chosen, x, broken))})
    verify(module)
    array = np.zeros((2, 3), np.int64) if type_ == TensorType((2, "?k"), "int64") else np.zeros(3, np.float32)
    value = [array] if isinstance(type_, SequenceType) else array
    for run in (compile_module(module, ["reference"]).run, lambda feeds: {"": evaluate(module, feeds)}):
        (actual,) = run({"x": value, "chosen": np.array(True)}).values()
        assert np.array_equal(actual, value)
        with pytest.raises(KernelFault, match="there is no value here"):
            run({"x": value, "chosen": np.array(False)})


def test_sizes_and_conditions_are_single_values():
    with pytest.raises(TypeInferenceError, match="the number of elements must be static, got n"):
        ops.bind_size(var("x", X), message="a size")
    with pytest.raises(TypeInferenceError, match="expected an int64 tensor of static shape with an element 3, got Tensor"):
        ops.bind_size(var("x", TensorType((3,), "int64")), message="a size", element=3)
    with pytest.raises(TypeInferenceError, match="the operands after the first must be results of assert_true"):
        ops.bind_size(*(var(name, TensorType((), "int64")) for name in "xy"), message="a size")
    with pytest.raises(TypeInferenceError, match="0-d bool"):
        ops.assert_true(var("x", X), message="so it is")
