"""Sizes read off shapes, and shapes made of sizes."""

from __future__ import annotations

import pytest

from inlaid_runtime.arith import SizeVar
from inlaid_runtime.errors import KernelFault
from inlaid_runtime.execution.shapes import ShapeReader, shape_picker

N, K = SizeVar("n"), SizeVar("?k")


@pytest.mark.parametrize(
    ("shape", "actual", "new_sizes"),
    [
        ((), (), {}),
        ((K, 0), (7, 0), {K: 7}),
        ((N, K, K), (3, 5, 5), {K: 5}),
        ((K, K * N), (2, 6), {K: 2}),
        ((K, SizeVar("m")), (2, 9), {K: 2}),  # nothing says yet what m is
    ],
)
def test_sizes_of_shapes_that_fit(shape, actual, new_sizes):
    sizes = {N: 3}
    ShapeReader(shape).read(actual, sizes)
    assert sizes == {N: 3, **new_sizes}


@pytest.mark.parametrize(("shape", "actual"), [((K,), ()), ((K, 0), (7, 1)), ((K, K), (5, 6)), ((N,), (4,)), ((K, K * N), (2, 7))])
def test_shapes_that_do_not_fit(shape, actual):
    with pytest.raises(KernelFault, match="got shape"):
        ShapeReader(shape).read(actual, {N: 3})


@pytest.mark.parametrize("shape", [(), (4,), (K,), (N, 4, K), (K + 1, N), (4, 4)])
def test_shapes_of_sizes(shape):
    expected = tuple({N: 2, K: 5, K + 1: 6}.get(dim, dim) for dim in shape)
    assert shape_picker(shape, (N, K))((2, 5)) == expected


def test_a_shape_of_unknown_sizes_is_unknown():
    assert shape_picker((K, N), (K,))((5,)) is None
