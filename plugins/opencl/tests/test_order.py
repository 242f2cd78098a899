"""Loop programs in which the threads of a block work together, on OpenCL."""

from __future__ import annotations

import numpy as np
import pytest

import inlaid
from inlaid import ops
from inlaid_runtime.types import TensorType

N = inlaid.SizeVar("n", 0, 1000)
LONG_ROWS = np.random.default_rng(0).integers(-4, 5, (2, 600)).astype(np.int32)
CALLS = {
    "scan": (lambda x: ops.cumsum(x, axis=1), [LONG_ROWS], {}),
    "order": (lambda x: ops.topk(x, k=9, axis=1, largest=True), [LONG_ROWS], {1: N}),
    "positions": (ops.nonzero, [LONG_ROWS[:, :70]], {}),
    "attention": (
        lambda q, k, v: ops.attention(q, k, v, scale=0.25, right=0, offset=30),
        [np.random.default_rng(1).standard_normal((1, 2, extent, 16)).astype(np.float32) for extent in (9, 40, 40)],
        {2: N},
    ),
}


@pytest.mark.usefixtures("device")
@pytest.mark.parametrize("kind", ["gpu", "embedded"])
@pytest.mark.parametrize("name", CALLS)
def test_as_the_reference(name, kind):
    body, arrays, sizes = CALLS[name]
    params = []
    for number, array in enumerate(arrays):
        symbolic = {axis: size for axis, size in sizes.items() if number == 0}
        shape = tuple(symbolic.get(axis, extent) for axis, extent in enumerate(array.shape))
        params.append(inlaid.var(f"x{number}", TensorType(shape, f"{array.dtype}")))
    function = inlaid.function(params, body(*params))
    feeds = {f"x{number}": array for number, array in enumerate(arrays)}
    actual, expected = (
        inlaid.compile(function, [target], cache=False).run(feeds) for target in (f"opencl:kind={kind}", "reference")
    )
    for left, right in zip(actual.values(), expected.values(), strict=True):
        np.testing.assert_allclose(left, right, rtol=1e-5, atol=1e-6)
