"""The rule that takes every kernel: a thread for each element."""

from __future__ import annotations

import pytest

from inlaid import ops
from inlaid.schedules.threads.each import EachRule
from inlaid_runtime import arith

from .interpreter_checks import CLASSES, check_against_interpreter, kernel

N = arith.SizeVar("n")
KERNELS = {
    "add": kernel(lambda x, y: ops.relu(ops.add(x, y)), ((5, 13), "float32"), ((13,), "float32")),
    "rows": kernel(lambda x: ops.reduce_sum(x, axes=(1,), keepdims=False), ((3, 50), "float32")),
    "any size": kernel(lambda x: ops.relu(x), ((N, 7), "float32")),
    "transpose": kernel(lambda x: ops.transpose(x, perm=(1, 0)), ((5, 9), "int32")),
}


@pytest.mark.parametrize("able", CLASSES.values(), ids=CLASSES)
@pytest.mark.parametrize("program", KERNELS.values(), ids=KERNELS)
def test_computes_the_same(program, able):
    check_against_interpreter(program, able, [{N: n} for n in (0, 1, 9)], EachRule())
