"""Steps of a region as layers: what VTA does to a tile of accumulators, stage after stage.

A layer begins with its bias, which passes through GEMM: a constant vector (1, 127, 127, ...) times a block of weights for each
block of output channels. Zero points and the half that rounds are part of it. Products follow, then ALU operations with immediates.
A sum of two tensors is the products of their elements and scaled identity blocks; where an operand is the result of a layer that
nothing else reads, the sum continues that layer's accumulators.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from inlaid.errors import Unsupported
from inlaid.lowering.steps import Step
from inlaid.ops.composites import Layer as Numbers
from inlaid.ops.composites import Output, decode_binary, decode_layer, window
from inlaid.ops.requantisation import Factor
from inlaid.types import TensorType, Type
from inlaid_vta_fpga.isa.instructions import AluOp

Array = np.ndarray[Any, Any]

LARGEST_LEFT = 6
"""Identity blocks hold 2^6 at most."""
LARGEST_IMMEDIATE_SHIFT = 15
"""Shifts by 16 and more differ between implementations of VTA: they take two instructions."""
BIAS_SHIFT = 14
"""Places between the high and the low part of a bias that two blocks cannot hold."""
STEP = 127
"""All lanes of the constant vector but the first, which is 1."""
LIMIT = 1 << 31


@dataclass(frozen=True, eq=False)
class BiasStage:
    """acc += the constant vector @ blocks.T. blocks: int8 [output blocks, n, block, block]."""

    blocks: Array


@dataclass(frozen=True, eq=False)
class ProductStage:
    """acc += data @ weights.T under a window. `data` is a buffer's number. weights: int8 [output blocks, input blocks, rows,
    columns, block, block]. `before` is the padding with 0 above and to the left. `elementwise`: each output block reads the input
    block of its number, of weights [1, 1, 1, 1, block, block]."""

    data: int
    weights: Array
    strides: tuple[int, int] = (1, 1)
    before: tuple[int, int] = (0, 0)
    elementwise: bool = False


@dataclass(frozen=True)
class AluStage:
    """acc = op(acc, imm)."""

    op: AluOp
    imm: int


Stage = BiasStage | ProductStage | AluStage


@dataclass(frozen=True, eq=False)
class Layer:
    """Stages over accumulators of blocks (n, channels, rows, columns) in `shape`; a matrix has n = rows = 1 and its rows as
    columns. The result is the buffer `output`: int8, or with `wide` int32 as four byte planes."""

    name: str
    nodes: tuple[str, ...]
    output: int
    shape: tuple[int, int, int, int]
    matrix: bool
    stages: tuple[Stage, ...]
    wide: bool = False


def layers(steps: Sequence[Step], outputs: frozenset[int], block: int) -> list[Layer]:
    """The layers of a region. `outputs` are the buffers that leave it. Raises `Unsupported` for a step without a layer."""
    uses: dict[int, int] = {}
    for step in steps:
        for number in step.inputs:
            uses[number] = uses.get(number, 0) + 1
    found: dict[int, Layer] = {}
    for step in steps:
        if step.name.startswith("add"):
            made = _sum(step, block)
            alone = [step.buffer(name) for name in "ab" if uses[step.buffer(name)] == 1 and step.buffer(name) not in outputs]
            for number in (number for number in reversed(list(found)) if number in alone):
                joined = _continued(found[number], step, block)
                if joined is not None:
                    del found[number]
                    made = joined
                    break
        elif step.name.startswith(("conv", "dense")):
            made = _product(step, block)
        else:
            raise Unsupported("no layer computes it", operator=step.name)
        found[made.output] = made
    return list(found.values())


def bias_blocks(bias: Array, block: int) -> tuple[Stage, ...]:
    """Stages that add a bias to accumulators of 0: int64, one for each output channel, taken modulo 2^32. One block, two, or where
    these cannot hold it, its high part, a shift to the left, and the rest."""
    wrapped = ((bias + LIMIT) % (2 * LIMIT)) - LIMIT
    padded = np.pad(wrapped, (0, -len(wrapped) % block)).reshape(-1, block)
    largest = STEP * STEP * (block - 1)
    count = max(1, -(-int(np.abs(padded).max(initial=0)) // largest))
    if count <= 2:
        return (BiasStage(_encoded(padded, count)),)
    high = padded >> BIAS_SHIFT
    parts = high, padded - (high << BIAS_SHIFT)
    sizes = [max(1, -(-int(np.abs(part).max(initial=0)) // largest)) for part in parts]
    first, last = (BiasStage(_encoded(part, size)) for part, size in zip(parts, sizes, strict=True))
    return (first, AluStage(AluOp.SHR, -BIAS_SHIFT), last)


def _encoded(bias: Array, count: int) -> Array:
    """bias [output blocks, block] as weights [output blocks, count, block out, block in] for the constant vector."""
    block = bias.shape[1]
    many, ones = (bias + STEP // 2) // STEP, (bias + STEP // 2) % STEP - STEP // 2
    lanes = count * (block - 1)
    spread = many // lanes
    rest = many - spread * lanes
    values = spread[..., None] + (np.arange(lanes) < rest[..., None])
    made = np.zeros((*bias.shape, count, block), np.int64)
    made[..., 0, 0] = ones
    made[..., 1:] = values.reshape(*bias.shape, count, block - 1)
    assert np.abs(made).max(initial=0) <= STEP
    return np.ascontiguousarray(made.transpose(0, 2, 1, 3).astype(np.int8))


def constant_vector(block: int) -> Array:
    """The data that biases are multiplied by."""
    return np.array([1] + [STEP] * (block - 1), np.int8)


def places(factor: Factor) -> int | None:
    """By how many places a factor shifts to the right; None where it does more."""
    multipliers, shifts = np.unique(factor.multipliers), np.unique(factor.shifts)
    if factor.rounding != "once" or len(multipliers) != 1 or len(shifts) != 1:
        return None
    multiplier = int(multipliers[0])
    if multiplier <= 0 or multiplier & (multiplier - 1):
        return None
    count = 32 - int(shifts[0]) - multiplier.bit_length()
    return count if 0 <= count <= 30 else None


def bound(weights: Array, bias: Array) -> int:
    """What no sum exceeds in magnitude. weights: [outputs, ...]."""
    sums = np.abs(weights.astype(np.int64)).reshape(len(weights), -1).sum(1) * 128
    return int((sums + np.abs(bias.astype(np.int64))).max(initial=0))


def _product(step: Step, block: int) -> Layer:
    sizes = sizes_of(step.parts[""].type)
    matrix = step.name.startswith("dense")
    weights = step.array("w")
    weights = weights.T[..., None, None] if matrix else weights
    wide = "_sums" in step.name
    after: tuple[AluStage, ...] = ()
    if wide:
        bias = step.array("bias") if "bias" in step else np.zeros(1, np.int32)
        bias = np.resize(bias.reshape(-1).astype(np.int64), len(weights))
    else:
        bias, after = _requantised(decode_layer(step.parts), weights)
    packed = pack_weights(weights, block)
    if matrix:
        shape, product = (1, len(packed), 1, sizes[0]), ProductStage(step.buffer("x"), packed)
    else:
        shape = (sizes[0], len(packed), sizes[2], sizes[3])
        geometry = window(step.parts)
        strides, before = ((each[0], each[1]) for each in (geometry.strides, geometry.before))
        product = ProductStage(step.buffer("x"), packed, strides, before)
    return Layer(step.name, step.nodes, step.outputs[0], shape, matrix, (*bias_blocks(bias, block), product, *after), wide)


def pack_weights(weights: Array, block: int) -> Array:
    """Weights O I H W as [O/block, I/block, H, W, block, block], filled up with zeros."""
    outputs, inputs = (-size % block for size in weights.shape[:2])
    padded = np.pad(weights, ((0, outputs), (0, inputs), (0, 0), (0, 0)))
    cut = padded.reshape(-1, block, padded.shape[1] // block, block, *weights.shape[2:])
    return np.ascontiguousarray(cut.transpose(0, 2, 4, 5, 1, 3))


def sizes_of(type_: Type) -> tuple[int, ...]:
    """The static sizes of a tensor."""
    assert isinstance(type_, TensorType)
    return tuple(int(dim) for dim in type_.shape)  # type: ignore[arg-type]


def _requantised(numbers: Numbers, weights: Array) -> tuple[Array, tuple[AluStage, ...]]:
    """The bias with everything that can be part of it, and the ALU operations that bring sums to stored integers."""
    shift = places(numbers.factor)
    assert shift is not None
    bias = np.resize(numbers.bias.astype(np.int64), len(weights)) + ((1 << shift) >> 1)
    point = numbers.output.zero_point << shift
    if bound(weights, bias) + abs(point) < LIMIT:
        return bias + point, (*_shifts(shift), *_clip(replace(numbers.output, zero_point=0)))
    return bias, (*_shifts(shift), *_clip(numbers.output))


def _shifts(count: int) -> tuple[AluStage, ...]:
    if count <= LARGEST_IMMEDIATE_SHIFT:
        return (AluStage(AluOp.SHR, count),) if count else ()
    return (AluStage(AluOp.SHR, LARGEST_IMMEDIATE_SHIFT), *_shifts(count - LARGEST_IMMEDIATE_SHIFT))


def _clip(output: Output) -> tuple[AluStage, ...]:
    point = (AluStage(AluOp.ADD, output.zero_point),) if output.zero_point else ()
    return (*point, AluStage(AluOp.MIN, output.greatest), AluStage(AluOp.MAX, output.least))


def _identity(places: int, block: int) -> Array:
    return (np.eye(block, dtype=np.int8) << places).reshape(1, 1, 1, 1, block, block).astype(np.int8)


def _sum(step: Step, block: int) -> Layer:
    """A sum of two tensors as a layer of its own."""
    both = decode_binary(step.parts)
    shift = places(both.factor)
    assert shift is not None
    sizes = sizes_of(step.parts[""].type)
    blocks = -(-sizes[1] // block)
    shape = (1, blocks, 1, sizes[0]) if len(sizes) == 2 else (sizes[0], blocks, sizes[2], sizes[3])
    products = [
        ProductStage(step.buffer(name), _identity(side.left, block), elementwise=True)
        for name, side in (("a", both.a), ("b", both.b))
    ]
    bias = np.full(sizes[1], _added(step) + (both.output.zero_point << shift), np.int64)
    after = (*_shifts(shift), *_clip(replace(both.output, zero_point=0)))
    return Layer(step.name, step.nodes, step.outputs[0], shape, len(sizes) == 2, (*bias_blocks(bias, block), *products, *after))


def _added(step: Step) -> int:
    """What is added to the scaled elements of both operands before the shift: bias, zero points and the half that rounds."""
    both = decode_binary(step.parts)
    shift = places(both.factor)
    assert shift is not None
    points = sum(side.zero_point << side.left for side in (both.a, both.b))
    return both.bias - points + ((1 << shift) >> 1)


def _continued(layer: Layer, step: Step, block: int) -> Layer | None:
    """A layer of int8 results with the sum of it and another tensor computed in its accumulators; None where that is not
    possible."""
    both = decode_binary(step.parts)
    shift = places(both.factor)
    assert shift is not None
    own, other, name = (both.a, both.b, "b") if step.buffer("a") == layer.output else (both.b, both.a, "a")
    added = _added(step) + (both.output.zero_point << shift)
    if layer.wide or not -(1 << 15) <= added < 1 << 15:
        return None
    stages = (
        *((AluStage(AluOp.SHR, -own.left),) if own.left else ()),
        ProductStage(step.buffer(name), _identity(other.left, block), elementwise=True),
        *((AluStage(AluOp.ADD, added),) if added else ()),
        *_shifts(shift),
        *_clip(replace(both.output, zero_point=0)),
    )
    nodes = tuple(dict.fromkeys((*layer.nodes, *step.nodes)))
    return replace(layer, name=f"{layer.name}+add", nodes=nodes, output=step.outputs[0], stages=(*layer.stages, *stages))
