"""Copies between orders of elements, against numpy."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from inlaid.tensor import interp, ir
from inlaid.tensor.analysis.verify import verify
from inlaid.tensor.transform.copies import copy_dimensions, copy_program
from inlaid.tensor.transform.layouts import relayout
from inlaid_runtime import arith
from inlaid_runtime.types import ROW_MAJOR, Layout, dtype

LAYOUTS = (ROW_MAJOR, Layout(((1, 4),)), Layout(((1, 8),)), Layout(((1, 16),)))
SIZES = st.sampled_from([0, 1, 2, 3, 4, 5, 7, 8, 13, 16, 17, 20, 33])


@settings(max_examples=60, deadline=None)
@given(st.data(), st.sampled_from(["int8", "float16", "float32", "int64", "bool"]), st.sampled_from([1, 2]))
def test_transposes(data, name, threads):
    shape = data.draw(st.lists(SIZES, min_size=1, max_size=4).filter(lambda dims: np.prod(dims) <= 8000))
    perm = data.draw(st.permutations(range(len(shape))))
    element_type = dtype(name)
    dims = copy_dimensions(shape, ROW_MAJOR, ROW_MAJOR, perm)
    assert dims is not None
    program = copy_program("copy", element_type, dims, threads)
    verify(program)
    x = np.random.default_rng(0).integers(0, 120, shape).astype(element_type.numpy)
    (actual,) = interp.run(program, [x.reshape(-1)])
    assert np.array_equal(actual.reshape([shape[axis] for axis in perm]), x.transpose(perm))


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 3), st.integers(1, 40), st.integers(1, 7), st.sampled_from(LAYOUTS), st.sampled_from(LAYOUTS), st.booleans())
def test_changes_of_layout(batch, channels, width, source, target, is_multiple):
    """Padding, too: what a tensor does not have is zero in the target, whatever lies there in the source."""
    shape = (batch, channels * (16 if is_multiple and batch * channels < 30 else 1), 3, width)
    x = np.random.default_rng(0).integers(1, 120, shape).astype(np.float32)
    packed = np.where(source.pack(np.ones_like(x)) > 0, source.pack(x), np.nan).astype(np.float32)
    program = relayout(shape, dtype("float32"), source, target)
    verify(program)
    (actual,) = interp.run(program, [packed.reshape(program.inputs[0].shape)])
    assert np.array_equal(actual.reshape(target.shape(shape)), target.pack(x))


def symbolic(shape, chosen):
    """A shape with the chosen axes unknown, and the values of their sizes."""
    sizes = {arith.SizeVar(f"n{axis}"): shape[axis] for axis in chosen}
    names = {axis: arith.SizeVar(f"n{axis}") for axis in chosen}
    return tuple(names.get(axis, dim) for axis, dim in enumerate(shape)), sizes


@settings(max_examples=60, deadline=None)
@given(st.data(), st.sampled_from(["int8", "float32", "int64"]), st.sampled_from([1, 2]))
def test_transposes_of_symbolic_shape(data, name, threads):
    shape = data.draw(st.lists(st.one_of(SIZES, st.just(150)), min_size=1, max_size=4).filter(lambda dims: np.prod(dims) <= 8000))
    perm = data.draw(st.permutations(range(len(shape))))
    unknown, sizes = symbolic(shape, data.draw(st.sets(st.sampled_from(range(len(shape))))))
    element_type = dtype(name)
    program = copy_program("copy", element_type, copy_dimensions(unknown, ROW_MAJOR, ROW_MAJOR, perm), threads)
    verify(program)
    x = np.random.default_rng(0).integers(0, 120, shape).astype(element_type.numpy)
    (actual,) = interp.run(program, [x.reshape(-1)], sizes)
    assert np.array_equal(actual.reshape([shape[axis] for axis in perm]), x.transpose(perm))


@settings(max_examples=40, deadline=None)
@given(
    st.integers(0, 2), st.integers(1, 40), st.integers(0, 20), st.integers(0, 7), st.sampled_from(LAYOUTS), st.sampled_from(LAYOUTS)
)
def test_changes_of_layout_of_symbolic_shape(batch, channels, height, width, source, target):
    shape = (batch, channels, height, width)
    unknown, sizes = symbolic(shape, (0, 2, 3))
    x = np.random.default_rng(0).integers(1, 120, shape).astype(np.float32)
    packed = np.where(source.pack(np.ones_like(x)) > 0, source.pack(x), np.nan).astype(np.float32)
    program = relayout(unknown, dtype("float32"), source, target)
    verify(program)
    input_shape = [arith.evaluate(dim, sizes) for dim in program.inputs[0].shape]
    (actual,) = interp.run(program, [packed.reshape(input_shape)], sizes)
    assert np.array_equal(actual.reshape(target.shape(shape)), target.pack(x))


def test_blocks_that_do_not_divide_one_another():
    assert copy_dimensions((1, 48, 2), Layout(((1, 6),)), Layout(((1, 4),))) is None
    assert copy_dimensions((1, 48, 2), Layout(((1, 12),)), Layout(((1, 4),))) is not None


def test_threads_share_the_longest_loop():
    """Rows of an image, not blocks of channels: what a thread copies is what it wrote in the kernel before."""
    x = np.arange(24 * 196, dtype=np.float32).reshape(1, 24, 14, 14)
    blocked = Layout(((1, 8),))
    dims = copy_dimensions(x.shape, blocked, ROW_MAJOR)
    assert dims is not None
    program = copy_program("copy", dtype("float32"), dims, 2)
    verify(program)
    outermost = next(stmt for stmt in ir.walk_stmts(program.body) if isinstance(stmt, ir.For))
    assert outermost.kind is ir.ForKind.PARALLEL
    assert outermost.extent == arith.Const(4)  # 192 of the 196 pixels, as 6 squares of 8 each; there are 3 blocks of channels
    (actual,) = interp.run(program, [blocked.pack(x).reshape(-1)])
    assert np.array_equal(actual.reshape(x.shape), x)


@settings(max_examples=20, deadline=None)
@given(
    st.sampled_from([3, 4, 17, 40, 70]),
    st.sampled_from([2, 3]),
    st.sampled_from(["int8", "float32", "int64", "bool"]),
    st.booleans(),
)
def test_rows_are_interleaved(width, rows, name, unknown):
    """Pixel shuffles by two, images of three channels: vectors along a source row, alternating elements in the target."""
    x = np.arange(3 * rows * width).reshape(3, rows, width).astype(dtype(name).numpy)
    shape, sizes = symbolic(x.shape, (2,) if unknown else ())
    program = copy_program("copy", dtype(name), copy_dimensions(shape, ROW_MAJOR, ROW_MAJOR, (0, 2, 1)))
    verify(program)
    vectors = [stmt for stmt in ir.walk_stmts(program.body) if isinstance(stmt, ir.For) and stmt.kind is ir.ForKind.VECTORIZED]
    assert bool(vectors) == (unknown or width >= 4)
    assert all(isinstance(loop.body, ir.Seq) and len(loop.body.stmts) == rows for loop in vectors)
    (actual,) = interp.run(program, [x.reshape(-1)], sizes)
    assert np.array_equal(actual.reshape(3, width, rows), x.transpose(0, 2, 1))
