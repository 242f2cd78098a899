"""Reshaping, moving, repeating and making elements."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inlaid import ops
from inlaid_runtime.arith import Dim, SizeVar, simplify
from inlaid_runtime.types import TensorType, dtype

from .harness import Array, call, check, raises_for

SETTINGS = settings(deadline=None, max_examples=30)
N, M = SizeVar("n"), SizeVar("m")
DTYPES = ("float32", "float16", "bfloat16", "float8e4m3fn", "int8", "uint4", "int64", "bool")


def array(shape: tuple[int, ...], dtype_name: str = "float32") -> Array:
    """Distinct small numbers, as far as the element type has them."""
    return (np.arange(math.prod(shape)).reshape(shape) % 7).astype(dtype(dtype_name).numpy)


shapes = st.lists(st.integers(0, 4), max_size=4).map(tuple)


@st.composite
def regroupings(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Two shapes of equal size: the same factors, grouped twice."""
    factors = draw(st.lists(st.integers(0, 3), max_size=5))

    def grouped() -> tuple[int, ...]:
        cuts = sorted(draw(st.lists(st.integers(0, len(factors)), max_size=4)))
        ends = [*cuts, len(factors)]
        return tuple(math.prod(factors[a:b]) for a, b in zip([0, *cuts], ends, strict=True))

    return grouped(), grouped()


@SETTINGS
@given(regroupings(), st.sampled_from(DTYPES))
def test_reshape(pair: tuple[tuple[int, ...], tuple[int, ...]], dtype_name: str) -> None:
    x = array(pair[0], dtype_name)
    (result,) = check(ops.reshape, x, shape=pair[1])
    assert result.shape == pair[1]
    assert result.tobytes() == x.tobytes()


@pytest.mark.parametrize(
    ("actual", "declared", "target"),
    [
        ((3, 12), (N, 12), (N, 3, 4)),
        ((3, 12, 5), (N, 12, M), (N * 3, 4, M)),
        ((3, 5, 4), (N, M, 4), (N * M * 4,)),
        ((3, 5, 4), (N, M, 4), (M, 4, N)),
        ((0, 5, 4), (N, M, 4), (M, 4, N)),
    ],
)
def test_reshape_of_symbolic_shapes(actual: tuple[int, ...], declared: tuple[Dim, ...], target: tuple[Dim, ...]) -> None:
    check(ops.reshape, array(actual), shapes=(declared,), shape=target)


def test_reshape_divides_only_within_runs_of_equal_size() -> None:
    from inlaid.ops.shape import reindex

    i, j, k = (SizeVar(name) for name in "ijk")
    assert reindex((i, j, k), (N, 3, 4), (N, 12)) == (i, j * 4 + k)
    assert reindex((i, j), (N, 12), (N, 3, 4)) == (i, j // 4, j % 4)


@SETTINGS
@given(shapes, st.randoms(use_true_random=False), st.sampled_from(DTYPES))
def test_transpose(shape: tuple[int, ...], random: Any, dtype_name: str) -> None:
    perm = list(range(len(shape)))
    random.shuffle(perm)
    check(ops.transpose, array(shape, dtype_name), perm=tuple(perm))


@SETTINGS
@given(shapes, st.data())
def test_broadcast_to(shape: tuple[int, ...], data: st.DataObject) -> None:
    source = tuple(dim if data.draw(st.booleans()) else 1 for dim in shape)[data.draw(st.integers(0, len(shape))) :]
    check(ops.broadcast_to, array(source), shape=shape)


def test_broadcast_to_symbolic() -> None:
    check(ops.broadcast_to, array((3, 1, 5)), shapes=((N, 1, M),), shape=(4, N, 7, M))


@SETTINGS
@given(shapes)
def test_full(shape: tuple[int, ...]) -> None:
    check(ops.full, array(()), shape=shape)


@SETTINGS
@given(shapes.filter(bool), st.data())
def test_concat(shape: tuple[int, ...], data: st.DataObject) -> None:
    axis = data.draw(st.integers(0, len(shape) - 1))
    extents = data.draw(st.lists(st.integers(0, 3), min_size=1, max_size=5))
    check(ops.concat, *(array((*shape[:axis], extent, *shape[axis + 1 :])) for extent in extents), axis=axis)


def test_concat_symbolic() -> None:
    concat_call = call(ops.concat, array((3, 2)), array((5, 2)), shapes=((N, 2), (M, 2)), axis=0)
    assert concat_call.type == TensorType((simplify(N + M), 2), "float32")
    check(ops.concat, array((3, 2)), array((0, 2)), array((1, 2)), shapes=((N, 2), (M, 2), (1, 2)), axis=0)


@SETTINGS
@given(shapes, st.data())
def test_strided_slice(shape: tuple[int, ...], data: st.DataObject) -> None:
    every = []
    for extent in shape:
        stride = data.draw(st.sampled_from((1, 2, 3, -1, -2)))
        limit = st.integers(-2, extent + 2)
        begin, end, _ = slice(data.draw(limit), data.draw(limit), stride).indices(extent)
        every.append((begin, max(begin, end) if stride > 0 else min(begin, end), stride))
    begin, end, strides = (tuple(item) for item in zip(*every, strict=True)) if every else ((), (), ())
    check(ops.strided_slice, array(shape), begin=begin, end=end, strides=strides)


def test_strided_slice_symbolic() -> None:
    slice_call = call(ops.strided_slice, array((7, 2)), shapes=((N, 2),), begin=(N - 1, 0), end=(-1, 2), strides=(-1, 1))
    assert slice_call.type == TensorType((N, 2), "float32")
    check(ops.strided_slice, array((7, 2)), shapes=((N, 2),), begin=(N - 1, 0), end=(-1, 2), strides=(-2, 1))
    check(ops.strided_slice, array((7, 2)), shapes=((N, 2),), begin=(N // 2, 0), end=(N, 2), strides=(1, 1))


@SETTINGS
@given(shapes, st.sampled_from(("constant", "edge", "reflect", "wrap")), st.data())
def test_pad(shape: tuple[int, ...], mode: str, data: st.DataObject) -> None:
    if mode != "constant":
        shape = tuple(max(extent, 1) for extent in shape)
    before = tuple(data.draw(st.integers(-extent, 6)) for extent in shape)
    after = tuple(
        data.draw(st.integers(-extent - low if low < 0 else -extent, 6)) for extent, low in zip(shape, before, strict=True)
    )
    value = (np.float32(9),) if mode == "constant" else ()
    check(ops.pad, array(shape), *value, pads=before + after, mode=mode)


@pytest.mark.parametrize("mode", ["edge", "reflect", "wrap"])
@pytest.mark.parametrize("shape", [(3, 4), (1, 2)])
def test_pad_symbolic(mode: str, shape: tuple[int, ...]) -> None:
    check(ops.pad, array(shape), shapes=((N, M),), pads=(3, 2, M, 0), mode=mode)


@SETTINGS
@given(shapes, st.data())
def test_tile(shape: tuple[int, ...], data: st.DataObject) -> None:
    check(ops.tile, array(shape), repeats=tuple(data.draw(st.integers(0, 3)) for _ in shape))


def test_tile_symbolic() -> None:
    check(ops.tile, array((2, 3)), shapes=((N, M),), repeats=(M, 2))


@pytest.mark.parametrize("dtype_name", ["int64", "int32", "uint8", "float32", "float16", "bfloat16"])
@pytest.mark.parametrize(("shape", "axis"), [((3, 4), 1), ((3, 4), 0), ((300,), 0), ((0,), 0)])
def test_iota(dtype_name: str, shape: tuple[int, ...], axis: int) -> None:
    check(ops.iota, shape=shape, axis=axis, dtype=dtype_name)


@pytest.mark.parametrize("dims", [(), (5,), (3, 4, 5)])
def test_sizes(dims: tuple[int, ...]) -> None:
    (result,) = check(ops.sizes, dims=dims)
    assert result.tolist() == list(dims)


@pytest.mark.parametrize(
    ("operator", "shapes", "attrs", "message"),
    [
        ("reshape", ((2, 3),), {"shape": (4,)}, "the number of elements of the new shape must be 6, got 4"),
        ("reshape", ((2, 3),), {"shape": (-1, -6)}, "an extent must be an integer >= 0, .*, got -1"),
        ("transpose", ((2, 3),), {"perm": (0, 0)}, "perm must be a permutation of 2 axes, got"),
        ("broadcast_to", ((2, 3),), {"shape": (2, 4)}, "dimension 1 of x must be 1 or 4 to broadcast, got 3"),
        ("broadcast_to", ((2, 3),), {"shape": (3,)}, "x must broadcast to \\(3,\\), got shape \\(2, 3\\)"),
        ("full", ((2,),), {"shape": (3,)}, "0-d"),
        ("concat", ((2, 3), (3, 3)), {"axis": 1}, "dimension 0 of an operand must be 3, got 2"),
        ("concat", ((2, 3), (2,)), {"axis": 1}, "the operands must have one rank, got 2 and 1"),
        ("concat", ((2, 3),), {"axis": 2}, "out of range"),
        ("strided_slice", ((5,),), {"begin": (2,), "end": (6,), "strides": (1,)}, "must be within an axis of"),
        ("strided_slice", ((5,),), {"begin": (2,), "end": (1,), "strides": (1,)}, "must be within an axis of"),
        ("strided_slice", ((5,),), {"begin": (0,), "end": (1,), "strides": (0,)}, "strides must not be 0, got"),
        ("pad", ((3,),), {"pads": (-4, 0), "mode": "edge"}, "dimension 0 of the output must be >= 0, got -1"),
        ("pad", ((3,),), {"pads": (1, 0)}, "expected a value with mode constant and none with other modes, got"),
        ("pad", ((0,),), {"pads": (1, 0), "mode": "wrap"}, "must be >= 1, got 0"),
        ("tile", ((3,),), {"repeats": (-1,)}, "a repeat must be >= 0, got -1"),
        ("iota", (), {"shape": ()}, "out of range"),
        ("iota", (), {"shape": (3,), "dtype": "bool"}, "dtype must be numeric, got bool"),
    ],
)
def test_ill_typed_calls_are_refused(
    operator: str, shapes: tuple[tuple[int, ...], ...], attrs: dict[str, Any], message: str
) -> None:
    raises_for(ops.TABLE[operator], message, *map(array, shapes), **attrs)
