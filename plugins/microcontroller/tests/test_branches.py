"""Models with branches are one region, whose arms share the arena."""

from __future__ import annotations

import numpy as np
import pytest

from inlaid import ops
from inlaid.driver.compile import compile_module
from inlaid.graph.ir import Module, constant, function, if_, tuple_, var
from inlaid_runtime.execution.c_source import find_compiler
from inlaid_runtime.types import TensorType


@pytest.mark.skipif(find_compiler() is None, reason="there is no C compiler: apt-get install gcc")
def test_a_branch_is_part_of_the_model() -> None:
    x = var("x", TensorType((1, 4, 6, 6), "int8"))
    bright = ops.less(constant(np.int32(10)), ops.reduce_sum(ops.cast(x, dtype="int32"), axes=(0, 1, 2, 3)))
    weights = constant(np.random.default_rng(0).integers(-3, 4, (4, 4, 3, 3)).astype(np.int8))
    total = ops.conv(x, weights, pads=(1,) * 4, out_dtype="int32")
    mixed = ops.cast(ops.clip(total, minimum=-128.0, maximum=127.0), dtype="int8")
    value = if_(bright, mixed, if_(ops.logical_not(bright), ops.neg(x), x))
    module = Module({"main": function([x], tuple_([ops.relu(value)]))})
    executable, reference = (compile_module(module, targets=[target]) for target in ("microcontroller", "reference"))
    assert len(executable.regions) == 1
    for seed in range(4):
        feed = {"x": np.random.default_rng(seed).integers(-20, 21, (1, 4, 6, 6)).astype(np.int8)}
        (actual,), (expected,) = executable.run(feed).values(), reference.run(feed).values()
        np.testing.assert_array_equal(actual, expected)
