"""Compiling without fusion."""

from __future__ import annotations

import numpy as np
import pytest

import inlaid
from inlaid.plugins.registry import default_registry


@pytest.mark.skipif("x86" not in default_registry().kinds(), reason='the x86 plugin is not installed: pip install "inlaid[x86]"')
def test_without_fusion_every_operator_is_a_kernel_and_the_answer_stays():
    x = inlaid.var("x", inlaid.TensorType((4, 8), "float32"))
    module = inlaid.Module({"main": inlaid.function([x], inlaid.ops.tanh(inlaid.ops.neg(inlaid.ops.add(x, x))))})
    arrays = {"x": np.linspace(-1, 1, 32, dtype=np.float32).reshape(4, 8)}
    answers, kernels = [], []
    for fusion in (True, False):
        executable = inlaid.compile(module, ["x86:threads=1"], fusion=fusion)
        answers += executable.run(arrays).values()
        kernels.append(len(executable.profile(arrays).rows()))
    assert kernels == [1, 3]
    np.testing.assert_array_equal(*answers)
