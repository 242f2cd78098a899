"""Products of narrow numbers through instructions on tiles: scheduled kernels compute the same in the interpreter, which runs the
instructions' own loop nests."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inlay import ops
from inlay.graph import ir as graph
from inlay.lowering.finish import finish
from inlay.lowering.kernel import KernelSource, build
from inlay.plugins import Capabilities, MemoryScope
from inlay.schedules.rule import Given, KernelContext
from inlay.schedules.tile_matmul import LEAST_ROWS, TileMatmulRule
from inlay.schedules.tiles import tile_copy, tile_groups, tile_product, tile_zero
from inlay.tensor import interp, ir
from inlay.tensor.primitives import TensorIntrin
from inlay.types import ROW_MAJOR, Layout, TensorType

TILES = MemoryScope("tile", count=8, rows=3, row_bytes=16)
"""Smaller than any that exist, so that small products have many: 3 rows of 4 sums, of 6 or 12 elements."""
PAIRS = (("uint8", "int8", "int32", 4), ("int8", "int8", "int32", 4), ("bfloat16", "bfloat16", "float32", 2))
MEANING = {
    f"{name}.{kind}": program
    for a, b, total, group in PAIRS
    for name, kind, program in (
        ("zero", total, tile_zero(total, "tile")),
        ("rows", a, tile_copy(a, "", "tile")),
        ("groups", b, tile_groups(b, group, "tile")),
        ("product", a + b, tile_product(a, b, total, group, "tile")),
        ("store", total, tile_copy(total, "tile", "")),
    )
}
CAPABILITIES = Capabilities(dtypes=(), scopes=(TILES,), vector_bits=128, vector_registers=16)


def context(threads=1, missing=""):
    intrinsics = tuple(TensorIntrin(name, program) for name, program in MEANING.items() if name != missing)
    return KernelContext(CAPABILITIES, threads, intrinsics)


def random(buffer, generator):
    if buffer.dtype.is_int and buffer.dtype.bits == 8:
        low, high = buffer.dtype.limits
        return generator.choice([low, low + 1, -1 % (high + 1), high], buffer.shape).astype(buffer.dtype.numpy)
    return generator.integers(-4, 5, buffer.shape).astype(buffer.dtype.numpy)


def check(program, threads=1):
    """The scheduled kernel uses the instructions and equals the unscheduled one on the extremes of its operands."""
    facts = tuple(Given(ROW_MAJOR, number == 1) for number in range(len(program.inputs)))
    offer = TileMatmulRule().offer(program, context(threads), facts)
    assert offer is not None, "the rule declines"
    scheduled = finish(offer.schedule(program))
    assert {stmt.name.split(".")[0] for stmt in ir.walk_stmts(scheduled.body) if isinstance(stmt, ir.Intrinsic)} == {
        "zero", "rows", "groups", "product", "store"
    }  # fmt: skip
    generator = np.random.default_rng(5)
    arrays = [random(buffer, generator) for buffer in program.inputs]
    packed = [layout.pack(array) for layout, array in zip(offer.layouts, arrays, strict=False)]
    wanted = interp.run(program, arrays)[0]
    got = interp.run(scheduled, packed, intrinsics=MEANING)[0]
    assert np.array_equal(got, wanted)
    return offer, scheduled


def variables(*items):
    return [graph.var(name, TensorType(shape, of)) for name, shape, of in items]


def product(a_shape, b_shape, pair, after=""):
    a, b, total, _ = pair
    params = variables(("x", a_shape, a), ("w", b_shape, b))
    y = ops.matmul(*params, out_dtype=total)
    if after:
        params += variables(("bias", (b_shape[-1],), total), ("other", y.type.shape, total))
        y = ops.mul(ops.maximum(ops.add(y, params[2]), y), params[3])
    if after == "turned":
        rank = len(y.type.shape)
        y = ops.transpose(y, perm=(*range(1, rank), 0))
    return build(KernelSource("kernel", tuple(params), y))


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(PAIRS), st.integers(LEAST_ROWS, 17), st.integers(1, 30), st.integers(1, 21),
    st.sampled_from(["", "chain", "turned"]), st.integers(1, 2),
)  # fmt: skip
def test_matrix_products_compute_the_same(pair, m, k, n, after, threads):
    check(product((m, k), (k, n), pair, after), threads)


@pytest.mark.parametrize(
    ("a_shape", "b_shape"),
    [
        ((2, 3, 5, 12), (2, 3, 12, 7)),
        ((2, 3, 5, 12), (12, 9)),
        ((2, 1, 5, 7), (2, 3, 7, 4)),
        ((1, 8, 12), (12, 20)),
        ((5, 12), (2, 12, 9)),
    ],
)
def test_stacks_of_matrices_compute_the_same(a_shape, b_shape):
    for pair in PAIRS:
        check(product(a_shape, b_shape, pair))
        check(product(a_shape, b_shape, pair, "chain"))


def test_where_the_factors_lie():
    """The left one as it is where its rows are whole steps, else padded; the right one in panels of groups."""
    bytes_, floats = PAIRS[0], PAIRS[2]
    offer, _ = check(product((7, 24), (24, 8), bytes_))
    assert offer.layouts == (ROW_MAJOR, Layout(((0, 24), (1, 4), (0, 4))), ROW_MAJOR)
    offer, _ = check(product((7, 25), (25, 8), bytes_))
    assert offer.layouts == (Layout(((0, 3), (1, 36))), Layout(((0, 36), (1, 4), (0, 4))), ROW_MAJOR)
    offer, _ = check(product((7, 8), (8, 8), floats))
    assert offer.layouts == (ROW_MAJOR, Layout(((0, 8), (1, 4), (0, 2))), ROW_MAJOR)


def test_what_tiles_do_not_fit_is_declined():
    facts = (Given(ROW_MAJOR), Given(ROW_MAJOR, True))

    def declines(program, found=None):
        return TileMatmulRule().offer(program, found or context(), facts[: len(program.inputs)]) is None

    assert declines(product((LEAST_ROWS - 1, 12), (12, 8), PAIRS[0]))
    assert declines(product((8, 12), (12, 8), ("int8", "uint8", "int32", 4)))
    assert declines(product((8, 12), (12, 8), ("float32", "float32", "float32", 1)))
    assert declines(product((8, 12), (12, 8), PAIRS[2]), context(missing="store.float32"))
    assert declines(product((8, 12), (12, 8), PAIRS[2]), KernelContext(Capabilities(dtypes=()), 1, context().intrinsics))
