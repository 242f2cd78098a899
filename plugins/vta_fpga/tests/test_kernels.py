"""Layers as scheduled loop programs, run by the loop interpreter, beside numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inlaid.tensor import interp
from inlaid_vta_fpga.compiler.intrinsics import intrinsics
from inlaid_vta_fpga.compiler.kernels import kernel
from inlaid_vta_fpga.compiler.legalize import (
    AluStage,
    BiasStage,
    Layer,
    ProductStage,
    Stage,
    bias_blocks,
    constant_vector,
    pack_weights,
)
from inlaid_vta_fpga.compiler.schedule import TileSizes, schedule_kernel
from inlaid_vta_fpga.isa.instructions import AluOp

BLOCK = 16
SEMANTICS = {item.name: item.semantics for item in intrinsics(BLOCK)}
CLIP = (AluStage(AluOp.SHR, 8), AluStage(AluOp.MIN, 127), AluStage(AluOp.MAX, -128))
DOUBLE = (np.eye(BLOCK, dtype=np.int8) * 2).reshape(1, 1, 1, 1, BLOCK, BLOCK)
Array = np.ndarray[Any, Any]


def drawn(shape: tuple[int, ...], seed: int) -> Array:
    return np.random.default_rng(seed).integers(-128, 128, shape).astype(np.int8)


def biases(channels: int, largest: int) -> tuple[Stage, ...]:
    return bias_blocks(np.random.default_rng(5).integers(-largest, largest + 1, channels), BLOCK)


def reference(layer: Layer, data: list[Array]) -> list[Array]:
    """The stages over int64 accumulators that wrap as int32, then the stored planes."""
    count, channels, rows, columns = layer.shape
    acc = np.zeros((count, channels, rows, columns, BLOCK), np.int64)
    data = [each.astype(np.int64) for each in data]
    for stage in layer.stages:
        match stage:
            case BiasStage(blocks=blocks):
                acc += np.einsum("k,cpok->co", constant_vector(BLOCK).astype(np.int64), blocks)[:, None, None]
            case ProductStage(elementwise=True):
                acc += data.pop(0) @ stage.weights[0, 0, 0, 0].astype(np.int64).T
            case ProductStage():
                x = data.pop(0)
                x = x.transpose(1, 0, 2)[None, :, None] if layer.matrix else x
                tall, wide = stage.weights.shape[2:4]
                (down, right), (top, left) = stage.strides, stage.before
                space = rows * down + tall + x.shape[2], columns * right + wide + x.shape[3]
                field = np.zeros((*x.shape[:2], *space, BLOCK), np.int64)
                field[:, :, top : top + x.shape[2], left : left + x.shape[3]] = x
                for i in range(tall):
                    for j in range(wide):
                        window = field[:, :, i : i + rows * down : down, j : j + columns * right : right]
                        acc += np.einsum("ncijk,zcok->nzijo", window, stage.weights[:, :, i, j].astype(np.int64))
            case AluStage(op=AluOp.SHR, imm=imm):
                acc = acc >> imm if imm >= 0 else acc << -imm
            case AluStage(op=op, imm=imm):
                acc = {AluOp.MIN: np.minimum, AluOp.MAX: np.maximum, AluOp.ADD: np.add}[op](acc, imm)
        acc = acc.astype(np.int32).astype(np.int64)
    planes = [(acc >> 8 * plane).astype(np.int8) for plane in range(4 if layer.wide else 1)]
    return [plane[0, :, 0].transpose(1, 0, 2) for plane in planes] if layer.matrix else planes


def check(layer: Layer, shapes: list[tuple[int, ...]], tile: TileSizes) -> None:
    data = [drawn(shape, seed) for seed, shape in enumerate(shapes)]
    operands = list(data)
    arguments = [constant_vector(BLOCK)]
    for stage in layer.stages:
        if isinstance(stage, BiasStage):
            arguments.append(stage.blocks)
        elif isinstance(stage, ProductStage):
            arguments += [operands.pop(0), stage.weights]
    program = schedule_kernel(kernel(layer, shapes, BLOCK, "layer"), tile, BLOCK)
    for actual, expected in zip(interp.run(program, arguments, intrinsics=SEMANTICS), reference(layer, data), strict=True):
        np.testing.assert_array_equal(actual, expected)


def layer(shape: tuple[int, int, int, int], *stages: Stage, matrix: bool = False, wide: bool = False) -> Layer:
    return Layer("layer", (), 0, shape, matrix, stages, wide)


@pytest.mark.parametrize(
    "tile",
    [
        TileSizes(1, 3, 6, 2, 1, 1, 2),
        TileSizes(2, 3, 6, 1, 2, 2, 2),
        TileSizes(2, 2, 3, 2, 1, 3, 2),
        TileSizes(2, 6, 6, 2, 2),
        TileSizes(2, 6, 6),
    ],
    ids=str,
)
def test_padded_convolution(tile: TileSizes) -> None:
    product = ProductStage(0, pack_weights(drawn((32, 32, 3, 3), 1), BLOCK), before=(1, 1))
    check(layer((1, 2, 6, 6), *biases(32, 200_000), product, *CLIP), [(1, 2, 6, 6, BLOCK)], tile)


@pytest.mark.parametrize(("kernel_size", "strides"), [(1, (2, 2)), (3, (2, 2)), (3, (1, 2)), (2, (2, 1))])
def test_strides_and_byte_planes(kernel_size: int, strides: tuple[int, int]) -> None:
    product = ProductStage(0, pack_weights(drawn((20, 24, kernel_size, kernel_size), 2), BLOCK), strides, (kernel_size // 2,) * 2)
    rows, columns = (6 // stride for stride in strides)
    layer_graph = layer((1, 2, rows, columns), *biases(32, 1 << 29), product, wide=True)
    for tile in (TileSizes(2, rows, columns, 2), TileSizes(1, 1, columns, 1, 1, 1, 2)):
        check(layer_graph, [(1, 2, 6, 6, BLOCK)], tile)


def test_residual_continues_in_the_accumulators() -> None:
    product = ProductStage(0, pack_weights(drawn((32, 32, 3, 3), 3), BLOCK), before=(1, 1))
    after = (AluStage(AluOp.SHR, -1), ProductStage(0, DOUBLE, elementwise=True), AluStage(AluOp.ADD, 3), *CLIP)
    layer_graph = layer((2, 2, 6, 6), *biases(32, 500_000), product, *CLIP, *after)
    for tile in (TileSizes(2, 3, 6, 1, 2, 2, 2), TileSizes(1, 3, 6, 2, 1, 1, 2)):
        check(layer_graph, [(2, 2, 6, 6, BLOCK)] * 2, tile)


def test_sums_of_two_tensors() -> None:
    both = [ProductStage(0, DOUBLE, elementwise=True)] * 2
    for tile in (TileSizes(1, 3, 6, 1, 1, 1, 2), TileSizes(2, 6, 6, 1, 2)):
        check(layer((1, 2, 6, 6), *biases(32, 100), *both, *CLIP), [(1, 2, 6, 6, BLOCK)] * 2, tile)


@pytest.mark.parametrize(("rows", "wide"), [(1, True), (5, False)])
def test_matrix_products(rows: int, wide: bool) -> None:
    product = ProductStage(0, pack_weights(drawn((32, 64, 1, 1), 4), BLOCK))
    layer_graph = layer((1, 2, 1, rows), *biases(32, 100), product, *(() if wide else CLIP), matrix=True, wide=wide)
    check(layer_graph, [(rows, 4, BLOCK)], TileSizes(1, 1, rows, 4, 1, 1, 2))


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(-(1 << 40), 1 << 40), min_size=1, max_size=40))
def test_any_bias_passes_through_gemm(values: list[int]) -> None:
    """Whatever a bias is modulo 2^32, its blocks, and a shift between them, give it."""
    acc = np.zeros(-(-len(values) // BLOCK) * BLOCK, np.int64)
    for stage in bias_blocks(np.array(values, np.int64), BLOCK):
        if isinstance(stage, BiasStage):
            acc += np.einsum("k,cpok->co", constant_vector(BLOCK).astype(np.int64), stage.blocks.astype(np.int64)).reshape(-1)
        else:
            assert isinstance(stage, AluStage)
            acc = acc << -stage.imm
    np.testing.assert_array_equal(acc[: len(values)].astype(np.int32), np.array(values, np.int64).astype(np.int32))
