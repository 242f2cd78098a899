"""Spectra. A complex64 tensor is a float32 tensor with a trailing axis of 2: the real and the imaginary part."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from inlaid import ops
from inlaid.frontends.fourier import resize_axis, select_part, stack_parts, swap_axes, transform
from inlaid.graph.ir import Expr, constant
from inlaid.ops.compose import scalar
from inlaid_runtime.records import replace
from inlaid_tflite.model import COMPLEX, Tensor
from inlaid_tflite.node import Converter, Node, Updated, typed

MOVING = (
    "BROADCAST_TO", "CONCATENATION", "EXPAND_DIMS", "GATHER", "GATHER_ND", "PACK", "PAD", "PADV2", "RESHAPE", "REVERSE_V2",
    "SELECT", "SELECT_V2", "SLICE", "SPLIT", "SPLIT_V", "SQUEEZE", "STRIDED_SLICE", "TILE", "TRANSPOSE", "UNPACK", "ZEROS_LIKE",
)  # fmt: skip
"""Operators that move elements, and so apply to the real and the imaginary parts alike."""


def by_parts(convert: Converter, node: Node) -> tuple[Expr, ...]:
    """Apply an operator that moves elements to the real and the imaginary parts of its complex inputs. Raises `ModelImportError`
    for another operator."""
    if node.name not in MOVING:
        raise node.error(f"{node.name} of {COMPLEX} is not supported: compute with the results of REAL, IMAG or COMPLEX_ABS")
    parts = []
    for number in range(2):
        values = tuple(
            select_part(value, number) if value is not None and tensor is not None and tensor.is_complex else value
            for value, tensor in zip(node.values, node.tensors, strict=True)
        )
        tensors = tuple(None if tensor is None else replace(tensor, is_complex=False) for tensor in node.tensors)
        results: tuple[Tensor, ...] = tuple(replace(tensor, is_complex=False) for tensor in node.results)
        result = convert(replace(node, values=values, tensors=tensors, results=results))
        assert not isinstance(result, Updated)
        parts.append(result if isinstance(result, tuple) else (result,))
    return tuple(stack_parts(*pair) for pair in zip(*parts, strict=True))


def _rfft_2d(node: Node) -> Expr:
    """Convert RFFT2D: the transform of the last two axes of real data, cropped or padded to the lengths of input 1. The last axis
    has only the first half of its values; the others are their conjugates."""
    if len(node.shape(0)) < 2:
        raise node.error(f"the data must have at least 2 axes, got {len(node.shape(0))}")
    lengths = tuple(map(int, node.array(1).reshape(-1)))
    if len(lengths) != 2 or any(length < 1 or length & (length - 1) for length in lengths):
        raise node.error(f"the lengths must be two powers of two, got {lengths}: LiteRT supports no others")
    rows, columns = lengths
    last = len(node.shape(0)) - 1
    data = resize_axis(resize_axis(node.input(0), last - 1, rows), last, columns)
    parts = transform(data, None, columns, False, columns // 2 + 1)
    if rows > 1:
        real, imaginary = transform(swap_axes(parts[0], last - 1), swap_axes(parts[1], last - 1), rows, False, rows)
        parts = swap_axes(real, last - 1), swap_axes(imaginary, last - 1)
    return stack_parts(*parts)


def _magnitude(node: Node) -> Expr:
    """Convert COMPLEX_ABS. The parts are divided by the greater of the two, so that their squares neither overflow nor vanish."""
    parts = [ops.abs(select_part(node.input(0), number)) for number in range(2)]
    greater = ops.maximum(*parts)
    is_finite_nonzero = ops.logical_and(ops.less(scalar(0, "float32"), greater), ops.less(greater, scalar(np.inf, "float32")))
    divisor = ops.where(is_finite_nonzero, greater, constant(np.float32(1)))
    squares = [ops.mul(each, each) for each in (ops.div(part, divisor) for part in parts)]
    # An infinite part is the magnitude, even if the other one is NaN.
    infinite = ops.logical_or(*(ops.equal(part, scalar(np.inf, "float32")) for part in parts))
    return ops.where(infinite, scalar(np.inf, "float32"), ops.mul(divisor, ops.sqrt(ops.add(*squares))))


CONVERTERS: Mapping[str, Converter] = {
    "COMPLEX_ABS": typed(_magnitude, COMPLEX),
    "IMAG": typed(lambda node: select_part(node.input(0), 1), COMPLEX),
    "REAL": typed(lambda node: select_part(node.input(0), 0), COMPLEX),
    "RFFT2D": typed(_rfft_2d, "float32"),
}
