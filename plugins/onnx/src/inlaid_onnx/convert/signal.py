"""Signal processing: window functions, discrete Fourier transforms, mel weights."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from inlaid.frontends.fourier import resize_axis, select_part, stack_parts, swap_axes, transform, waves
from inlaid.graph.conditions import require_shape
from inlaid.graph.ir import Expr, constant
from inlaid.ops.compose import cast_to, count, expand_dims, expr_type, scalar, slice_axis, widened
from inlaid.ops.elementwise import add, cos, div, mod, mul, sub
from inlaid.ops.index import take
from inlaid.ops.linear import matmul
from inlaid.ops.shape import iota
from inlaid_onnx.node import Converter, Node
from inlaid_onnx.proto import decode_dtype
from inlaid_runtime import arith
from inlaid_runtime.arith import Dim
from inlaid_runtime.types import dtype

# --- windows ----------------------------------------------------------------------------------------------------------


def _window(*coefficients: float) -> Converter:
    """Make a converter of a cosine window: sum_j coefficients[j] * cos(2 pi j k / N); N is size, or size - 1 if not periodic."""

    def convert(node: Node) -> Expr:
        output_dtype = decode_dtype(node.attrs.get("output_datatype", 1))
        working_dtype = output_dtype if output_dtype.name == "float64" else dtype("float32")
        (size,) = node.sizes(0, "size")
        period = size if node.attrs.get("periodic", 1) else arith.unwrap(arith.maximum(size - 1, 1))
        phases = div(iota(shape=(size,), axis=0, dtype=working_dtype.name), count((period,), working_dtype))
        total: Expr = scalar(coefficients[0], working_dtype)
        for index, coefficient in enumerate(coefficients[1:], 1):
            wave = cos(mul(phases, scalar(2 * math.pi * index, working_dtype)))
            total = add(total, mul(wave, scalar(coefficient, working_dtype)))
        return cast_to(total, output_dtype)

    return convert


# --- Fourier transforms -----------------------------------------------------------------------------------------------


def _real_inverse(real: Expr, imaginary: Expr, length: Dim, bins: Dim) -> Expr:
    """Build the real signal of `length` elements from the first `bins` values of its transform along the last axis.

    The omitted values are conjugates of given values. So each given value counts twice, except the first one and, for an even
    length, the last one.
    """
    signal_dtype = expr_type(real).dtype
    cosine, sine = waves(bins, length, length, signal_dtype)
    total = sub(matmul(real, cosine), matmul(imaginary, sine))
    first_bin = slice_axis(real, expr_type(real).rank - 1, 0, 1)
    doubled = sub(add(total, total), first_bin)
    if not isinstance(length, int):
        raise ValueError("the length of a real inverse transform must be static")
    if length % 2 == 0 and length > 0:
        last = slice_axis(real, expr_type(real).rank - 1, arith.unwrap(arith.wrap(bins) - 1), bins)
        sign = sub(
            scalar(1, signal_dtype),
            mul(scalar(2, signal_dtype), cast_to(mod(iota(shape=(length,), dtype="int64"), scalar(2, "int64")), signal_dtype)),
        )
        doubled = sub(doubled, mul(last, sign))
    return div(doubled, count((length,), signal_dtype))


def _parts(node: Node, x: Expr) -> tuple[Expr, Expr | None]:
    """Split the last axis into the real part and the imaginary part. The latter is None for a real tensor."""
    last = expr_type(x).rank - 1
    parts = expr_type(x).shape[last] if last >= 0 else 0
    if parts not in (1, 2):
        raise node.error(f"the last dimension must be 1 (real) or 2 (real, imaginary), got {parts}")
    return select_part(x, 0), select_part(x, 1) if parts == 2 else None


def _dft(node: Node) -> Expr:
    x, rank = widened(node.input(0)), node.rank(0)
    if node.opset >= 20:
        axis_argument = -2 if node.optional(2) is None else int(node.require_static(2).reshape(()))
    else:
        axis_argument = node.attrs.get("axis", 1)
    axis = node.axis(axis_argument, rank)
    inverse, onesided = bool(node.attrs.get("inverse", 0)), bool(node.attrs.get("onesided", 0))
    if axis == rank - 1:
        raise node.error("axis must not be the last one, which has the real and imaginary parts")
    extent = node.tensor(0).shape[axis]
    default = arith.unwrap(2 * (arith.wrap(extent) - 1)) if inverse and onesided else extent
    length = default
    if node.optional(1) is not None:
        length = int(node.require_static(1).item()) if inverse and onesided else node.sizes(1, "dft_length")[0]
    half = arith.unwrap(arith.floordiv(length, 2) + 1)
    real, imaginary = _parts(node, resize_axis(x, axis, half if inverse and onesided else length))
    real, imaginary = swap_axes(real, axis), None if imaginary is None else swap_axes(imaginary, axis)
    if inverse and onesided:
        if imaginary is None:
            raise node.error("the inverse of a one-sided transform requires complex values, got real ones")
        return cast_to(stack_parts(swap_axes(_real_inverse(real, imaginary, length, half), axis)), node.dtype(0))
    parts = transform(real, imaginary, length, inverse, half if onesided else length)
    return cast_to(stack_parts(*(swap_axes(part, axis) for part in parts)), node.dtype(0))


def _stft(node: Node) -> Expr:
    """Convert STFT. Inputs: signal (batch, length, 1 or 2), step, window, frame length; result (batch, frames, bins, 2).

    PyTorch's exporter omits the last axis of a real signal, which ONNX Runtime accepts.
    """
    signal = widened(node.input(0))
    if node.rank(0) == 2:
        signal = expand_dims(signal, 2)
    signal_dtype, extent = expr_type(signal).dtype, node.tensor(0).shape[1]
    step = int(node.require_static(1).item())
    if step < 1:
        raise node.error(f"the step must be >= 1, got {step}")
    window = node.optional(2)
    if node.optional(3) is not None:
        (length,) = node.sizes(3, "frame_length")
    else:
        length = extent if window is None else node.tensor(2).shape[0]
    if window is not None:
        with node.relations():
            require_shape(node.tensor(2).shape, (length,), "the window")
    frames = arith.unwrap(arith.floordiv(arith.wrap(extent) - length, step) + 1)
    starts, offsets = (iota(shape=(frames, length), axis=axis, dtype="int64") for axis in (0, 1))
    positions = add(mul(starts, scalar(step, "int64")), offsets)

    def framed(part: Expr) -> Expr:
        cut = take(part, positions, axis=1)
        return cut if window is None else mul(cut, cast_to(window, signal_dtype))

    real, imaginary = _parts(node, signal)
    onesided = bool(node.attrs.get("onesided", 1)) and imaginary is None
    bins = arith.unwrap(arith.floordiv(length, 2) + 1) if onesided else length
    parts = transform(framed(real), None if imaginary is None else framed(imaginary), length, False, bins)
    return cast_to(stack_parts(*parts), node.dtype(0))


# --- mel weights ------------------------------------------------------------------------------------------------------


def _mel_weights(node: Node) -> Expr:
    """Convert MelWeightMatrix: (one-sided DFT bins, mel bands), triangular filters equidistant on the mel scale
    (2595 log10(1 + f / 700))."""
    bands, length, rate = (int(node.require_static(index).reshape(())) for index in range(3))
    low, high = (float(node.require_static(index).reshape(())) for index in (3, 4))
    if bands < 0 or length < 0 or rate <= 0:
        raise node.error(f"num_mel_bins and dft_length must be >= 0 and sample_rate > 0, got {bands}, {length} and {rate}")
    mels = [2595 * math.log10(1 + edge / 700) for edge in (low, high)]
    edges = mels[0] + np.arange(bands + 2) * (mels[1] - mels[0]) / (bands + 2)
    bins = np.floor((length + 1) * 700 * (10 ** (edges / 2595) - 1) / rate)
    lower, center, upper = (bins[start : start + bands] for start in range(3))
    position = np.arange(length // 2 + 1)[:, None]
    with np.errstate(all="ignore"):
        rising = np.where(center == lower, 1.0, (position - lower) / (center - lower))
        falling = (upper - position) / (upper - center)
    inside_rising, inside_falling = (lower <= position) & (position <= center), (center < position) & (position < upper)
    weights = np.where(inside_rising, rising, np.where(inside_falling, falling, 0.0))
    return constant(weights.astype(decode_dtype(node.attrs.get("output_datatype", 1)).numpy))


CONVERTERS: Mapping[str, Converter] = {
    "HannWindow": _window(0.5, -0.5),
    "HammingWindow": _window(25 / 46, -21 / 46),
    "BlackmanWindow": _window(0.42, -0.5, 0.08),
    "DFT": _dft,
    "STFT": _stft,
    "MelWeightMatrix": _mel_weights,
}
