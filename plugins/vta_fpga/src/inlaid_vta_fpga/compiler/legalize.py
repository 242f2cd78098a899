"""Legalization of a region's steps to layers: sequences of stages on a tile of accumulators.

A layer starts with its bias. GEMM adds the bias as the product of a constant vector (1, 127, 127, ...) and a weight block for each
block of output channels. The bias includes zero points and half a unit for rounding. Products follow, then ALU operations with
immediates. A sum of two tensors multiplies each tensor by scaled identity blocks. If one operand is the result of a layer with no
other use, the sum is appended to this layer and computed in its accumulators.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from inlaid.lowering.steps import Step
from inlaid.ops.composites import Layer as Numbers
from inlaid.ops.composites import Output, decode_binary, decode_layer, window
from inlaid.ops.requantization import Factor
from inlaid_runtime.errors import Unsupported
from inlaid_runtime.types import TensorType, Type
from inlaid_vta_fpga.isa.instructions import AluOp

Array = np.ndarray[Any, Any]

LARGEST_LEFT = 6
"""Largest left shift of an addend. The identity block holds 2^shift as int8, so at most 2^6."""
LARGEST_IMMEDIATE_SHIFT = 15
"""Largest immediate shift. Implementations of VTA differ for shifts by 16 or more, so larger shifts are split in two
instructions."""
BIAS_SHIFT = 14
"""Number of bits of the low part if a bias is split. A bias is split if two weight blocks cannot encode it."""
STEP = 127
"""Value of every lane of the constant vector except the first, which is 1."""
LIMIT = 1 << 31
"""Exclusive limit of the magnitude of a sum, which is an int32."""


@dataclass(frozen=True, eq=False)
class BiasStage:
    """The stage acc += constant vector @ blocks.T. blocks: int8 [output blocks, n, block, block]."""

    blocks: Array


@dataclass(frozen=True, eq=False)
class ProductStage:
    """The stage acc += data @ weights.T over a window. data: number of a buffer. weights: int8 [output blocks, input blocks, rows,
    columns, block, block]. before: zero padding at the top and left. elementwise: output block i reads only input block i, and the
    shape of weights is [1, 1, 1, 1, block, block]."""

    data: int
    weights: Array
    strides: tuple[int, int] = (1, 1)
    before: tuple[int, int] = (0, 0)
    elementwise: bool = False


@dataclass(frozen=True)
class AluStage:
    """The stage acc = op(acc, imm)."""

    op: AluOp
    imm: int


Stage = BiasStage | ProductStage | AluStage


@dataclass(frozen=True, eq=False)
class Layer:
    """Stages over accumulators of `shape` (n, channel blocks, rows, columns). A `matrix` has n = rows = 1, and `columns` is its
    number of rows. The result goes to buffer `output` as int8, or if `wide` as int32 in four byte planes."""

    name: str
    nodes: tuple[str, ...]
    output: int
    shape: tuple[int, int, int, int]
    matrix: bool
    stages: tuple[Stage, ...]
    wide: bool = False


def layers(steps: Sequence[Step], outputs: frozenset[int], block: int) -> list[Layer]:
    """Legalize the steps of a region to layers. outputs: result buffers of the region. Raises `Unsupported` for a step that is not
    a composite of this target."""
    uses: dict[int, int] = {}
    for step in steps:
        for number in step.inputs:
            uses[number] = uses.get(number, 0) + 1
    layer_by_output: dict[int, Layer] = {}
    for step in steps:
        if step.name.startswith("add"):
            layer = _sum(step, block)
            single_use = [step.buffer(name) for name in "ab" if uses[step.buffer(name)] == 1 and step.buffer(name) not in outputs]
            for number in (number for number in reversed(list(layer_by_output)) if number in single_use):
                extended = _append_sum(layer_by_output[number], step, block)
                if extended is not None:
                    del layer_by_output[number]
                    layer = extended
                    break
        elif step.name.startswith(("conv", "dense")):
            layer = _product(step, block)
        else:
            raise Unsupported("expected a composite conv*, dense* or add*, found another step", operator=step.name)
        layer_by_output[layer.output] = layer
    return list(layer_by_output.values())


def bias_blocks(bias: Array, block: int) -> tuple[Stage, ...]:
    """Return stages that set accumulators of 0 to a bias. bias: int64 [output channels], reduced modulo 2^32. A small bias is
    encoded as one or two weight blocks. A larger bias is added as its high part, a left shift, and its low part."""
    wrapped = ((bias + LIMIT) % (2 * LIMIT)) - LIMIT
    padded = np.pad(wrapped, (0, -len(wrapped) % block)).reshape(-1, block)
    largest = STEP * STEP * (block - 1)
    count = max(1, -(-int(np.abs(padded).max(initial=0)) // largest))
    if count <= 2:
        return (BiasStage(_encoded(padded, count)),)
    high = padded >> BIAS_SHIFT
    parts = high, padded - (high << BIAS_SHIFT)
    sizes = [max(1, -(-int(np.abs(part).max(initial=0)) // largest)) for part in parts]
    high_stage, low_stage = (BiasStage(_encoded(part, size)) for part, size in zip(parts, sizes, strict=True))
    return (high_stage, AluStage(AluOp.SHR, -BIAS_SHIFT), low_stage)


def _encoded(bias: Array, count: int) -> Array:
    """Encode a bias [output blocks, block] as weights [output blocks, count, block out, block in] of the constant vector."""
    block = bias.shape[1]
    steps, ones = (bias + STEP // 2) // STEP, (bias + STEP // 2) % STEP - STEP // 2
    lanes = count * (block - 1)
    quotients = steps // lanes
    remainders = steps - quotients * lanes
    values = quotients[..., None] + (np.arange(lanes) < remainders[..., None])
    weights = np.zeros((*bias.shape, count, block), np.int64)
    weights[..., 0, 0] = ones
    weights[..., 1:] = values.reshape(*bias.shape, count, block - 1)
    assert np.abs(weights).max(initial=0) <= STEP
    return np.ascontiguousarray(weights.transpose(0, 2, 1, 3).astype(np.int8))


def constant_vector(block: int) -> Array:
    """Return the int8 vector by which bias blocks are multiplied: [1, STEP, STEP, ...]."""
    return np.array([1] + [STEP] * (block - 1), np.int8)


def places(factor: Factor) -> int | None:
    """Return the right shift that is equal to a factor. Returns None if the factor is not a power of two or differs between
    channels."""
    multipliers, shifts = np.unique(factor.multipliers), np.unique(factor.shifts)
    if factor.rounding != "once" or len(multipliers) != 1 or len(shifts) != 1:
        return None
    multiplier = int(multipliers[0])
    if multiplier <= 0 or multiplier & (multiplier - 1):
        return None
    count = 32 - int(shifts[0]) - multiplier.bit_length()
    return count if 0 <= count <= 30 else None


def bound(weights: Array, bias: Array) -> int:
    """Return an upper bound of the magnitude of all sums for int8 data. weights: [outputs, ...]."""
    sums = np.abs(weights.astype(np.int64)).reshape(len(weights), -1).sum(1) * 128
    return int((sums + np.abs(bias.astype(np.int64))).max(initial=0))


def _product(step: Step, block: int) -> Layer:
    sizes = static_shape(step.parts[""].type)
    matrix = step.name.startswith("dense")
    weights = step.array("w")
    weights = weights.T[..., None, None] if matrix else weights
    wide = "_sums" in step.name
    after: tuple[AluStage, ...] = ()
    if wide:
        bias = step.array("bias") if "bias" in step else np.zeros(1, np.int32)
        bias = np.resize(bias.reshape(-1).astype(np.int64), len(weights))
    else:
        bias, after = _requantized(decode_layer(step.parts), weights)
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
    """Pack weights O I H W to [O/block, I/block, H, W, block, block], zero-padded to whole blocks."""
    outputs, inputs = (-size % block for size in weights.shape[:2])
    padded = np.pad(weights, ((0, outputs), (0, inputs), (0, 0), (0, 0)))
    cut = padded.reshape(-1, block, padded.shape[1] // block, block, *weights.shape[2:])
    return np.ascontiguousarray(cut.transpose(0, 2, 4, 5, 1, 3))


def static_shape(type_: Type) -> tuple[int, ...]:
    """Return the sizes of a tensor of static shape."""
    assert isinstance(type_, TensorType)
    return tuple(int(dim) for dim in type_.shape)  # type: ignore[arg-type]


def _requantized(numbers: Numbers, weights: Array) -> tuple[Array, tuple[AluStage, ...]]:
    """Return the bias and the ALU stages that requantize. The bias includes half a unit for rounding and, if no sum overflows, the
    zero point."""
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


def _identity(shift: int, block: int) -> Array:
    return (np.eye(block, dtype=np.int8) << shift).reshape(1, 1, 1, 1, block, block).astype(np.int8)


def _sum(step: Step, block: int) -> Layer:
    """Build a separate layer for a sum of two tensors."""
    addition = decode_binary(step.parts)
    shift = places(addition.factor)
    assert shift is not None
    sizes = static_shape(step.parts[""].type)
    blocks = -(-sizes[1] // block)
    shape = (1, blocks, 1, sizes[0]) if len(sizes) == 2 else (sizes[0], blocks, sizes[2], sizes[3])
    products = [
        ProductStage(step.buffer(name), _identity(side.left, block), elementwise=True)
        for name, side in (("a", addition.a), ("b", addition.b))
    ]
    bias = np.full(sizes[1], _added(step) + (addition.output.zero_point << shift), np.int64)
    after = (*_shifts(shift), *_clip(replace(addition.output, zero_point=0)))
    return Layer(step.name, step.nodes, step.outputs[0], shape, len(sizes) == 2, (*bias_blocks(bias, block), *products, *after))


def _added(step: Step) -> int:
    """Return the constant added to the scaled operands before the shift: bias, input zero points and half a unit for rounding."""
    addition = decode_binary(step.parts)
    shift = places(addition.factor)
    assert shift is not None
    shifted_zero_points = sum(side.zero_point << side.left for side in (addition.a, addition.b))
    return addition.bias - shifted_zero_points + ((1 << shift) >> 1)


def _append_sum(layer: Layer, step: Step, block: int) -> Layer | None:
    """Append the sum of the result of `layer` and another tensor to the stages of the layer. Returns None if the layer is `wide` or
    the added constant exceeds 16 bits."""
    addition = decode_binary(step.parts)
    shift = places(addition.factor)
    assert shift is not None
    accumulated, other, name = (addition.a, addition.b, "b") if step.buffer("a") == layer.output else (addition.b, addition.a, "a")
    added = _added(step) + (addition.output.zero_point << shift)
    if layer.wide or not -(1 << 15) <= added < 1 << 15:
        return None
    stages = (
        *((AluStage(AluOp.SHR, -accumulated.left),) if accumulated.left else ()),
        ProductStage(step.buffer(name), _identity(other.left, block), elementwise=True),
        *((AluStage(AluOp.ADD, added),) if added else ()),
        *_shifts(shift),
        *_clip(replace(addition.output, zero_point=0)),
    )
    nodes = tuple(dict.fromkeys((*layer.nodes, *step.nodes)))
    return replace(layer, name=f"{layer.name}+add", nodes=nodes, output=step.outputs[0], stages=(*layer.stages, *stages))
