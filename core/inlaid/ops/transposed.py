"""Transposed convolution, and its decomposition into convolutions."""

from __future__ import annotations

import math

import numpy as np

from inlaid.graph.conditions import require_at_least, require_equal
from inlaid.graph.ir import Expr, constant
from inlaid.graph.operator import FusionKind, Operator
from inlaid.ops.compose import expr_type, join, reversed_axis, scalar
from inlaid.ops.convolution import ConvAttrs, check_data, conv, grouped
from inlaid.ops.define import PRODUCT_DTYPE, Array, as_array, make_family, quiet
from inlaid.ops.index import take
from inlaid.ops.product import accumulator_dtype, product_dtype
from inlaid.ops.shape import pad, reshape, simple, strided_slice, transpose
from inlaid.ops.window import WindowAxis, window_axes
from inlaid_runtime import arith
from inlaid_runtime.arith import Dim
from inlaid_runtime.records import dataclass
from inlaid_runtime.types import TensorType, Type, from_numpy

MIN_CHANNELS = 64
"""Minimum number of output channels for a separate convolution: they fill several vectors on any target."""
MUCH = 1.1
"""Maximum ratio of computed to kept elements for which phases share convolutions."""


@dataclass(frozen=True)
class ConvTransposeAttrs(ConvAttrs):
    """The attributes of `conv`, except that `pads` crop the output and a negative pad after an axis extends it. `output_padding`:
    the number of elements added after each spatial axis of the output."""

    output_padding: tuple[Dim, ...] = ()


def _transposed(
    attrs: ConvTransposeAttrs, kernel: tuple[Dim, ...], spatial: tuple[Dim, ...]
) -> tuple[tuple[WindowAxis, ...], tuple[Dim, ...]]:
    """Return the axes of the transposed convolution and its spatial output shape."""
    axes = window_axes(ConvAttrs(attrs.strides, (), attrs.dilations), kernel)
    rank = len(kernel)
    pads = attrs.pads or (0,) * (2 * rank)
    output_padding = attrs.output_padding or (0,) * rank
    if len(pads) != 2 * rank or len(output_padding) != rank:
        raise ValueError(f"expected {2 * rank} pads and {rank} output paddings, got {attrs.pads} and {attrs.output_padding}")
    axes = tuple(
        WindowAxis(axis.kernel, axis.stride, axis.dilation, before, after)
        for axis, before, after in zip(axes, pads[:rank], pads[rank:], strict=True)
    )
    shape: list[Dim] = []
    for number, (axis, extent, padding) in enumerate(zip(axes, spatial, output_padding, strict=True), 2):
        require_at_least(axis.before, 0, "a pad before an axis")
        length = (extent - 1) * axis.stride + axis.span + padding - axis.before - axis.after
        require_at_least(length, 1, f"dimension {number} of the output")
        shape.append(arith.unwrap(arith.wrap(length)))
    return axes, tuple(shape)


def _infer_conv_transpose(attrs: ConvTransposeAttrs, x: Type, w: Type) -> Type:
    data, weights = check_data(x, w)
    require_equal(weights.shape[0], data.shape[1], "dimension 0 of w, the channels of x,")
    grouped(weights.shape[0], attrs.groups, "input")
    _, spatial = _transposed(attrs, weights.shape[2:], data.shape[2:])
    result = product_dtype(data.dtype, weights.dtype, attrs.out_dtype)
    return TensorType((data.shape[0], weights.shape[1] * attrs.groups, *spatial), result)


@quiet
def _reference_conv_transpose(attrs: ConvTransposeAttrs, x: Array, w: Array) -> Array:
    """Add the product of each input element and the weights to the output."""
    result = product_dtype(from_numpy(x.dtype), from_numpy(w.dtype), attrs.out_dtype)
    acc = accumulator_dtype(result).numpy
    axes, spatial = _transposed(attrs, w.shape[2:], x.shape[2:])
    lengths = [arith.evaluate(length, {}) for length in spatial]
    crops = [arith.evaluate(axis.before, {}) for axis in axes]
    # Distance from the first to the last element that a tap adds to; an empty axis adds nothing.
    reaches = [(extent - 1) * axis.stride + 1 if extent else 0 for axis, extent in zip(axes, x.shape[2:], strict=True)]
    groups, group_inputs, group_outputs = attrs.groups, w.shape[0] // attrs.groups, w.shape[1]
    data = x.astype(acc, copy=False).reshape(x.shape[0], groups, group_inputs, *x.shape[2:])
    weights = w.astype(acc, copy=False).reshape(groups, group_inputs, *w.shape[1:])
    full_shape = [
        max(crop + length, reach + (size - 1) * axis.dilation)
        for axis, crop, length, reach, size in zip(axes, crops, lengths, reaches, w.shape[2:], strict=True)
    ]
    total = np.zeros((x.shape[0], groups, group_outputs, *full_shape), acc)
    letters = "xyz"[: len(axes)]
    all_channels = (slice(None),) * 3
    for tap in np.ndindex(*w.shape[2:]):
        starts = [k * axis.dilation for k, axis in zip(tap, axes, strict=True)]
        target = tuple(slice(start, start + reach, axis.stride) for start, reach, axis in zip(starts, reaches, axes, strict=True))
        total[all_channels + target] += np.einsum(f"ngi{letters},gio->ngo{letters}", data, weights[all_channels + tap])
    window = tuple(slice(crop, crop + length) for crop, length in zip(crops, lengths, strict=True))
    return as_array(total[all_channels + window].reshape(x.shape[0], groups * group_outputs, *lengths), result)


# --- as convolutions --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Group:
    """Phases of an axis that share a convolution: their outputs read the same number of inputs at the same offset. Output `q` of
    phase `r` is element `q * stride + r` of the whole output; it reads input `q - shift - j * dilation` by tap `j` of the phase's
    taps, for `j < count`. `taps` lists the taps phase by phase, in descending order; None: all taps."""

    phases: tuple[int, ...]
    taps: tuple[int, ...] | None
    count: Dim
    shift: int
    dilation: int

    @property
    def reach(self) -> Dim:
        """Distance from output `q` back to the first input that it reads."""
        return self.shift + (self.count - 1) * self.dilation


@dataclass(frozen=True)
class _PhasedAxis:
    """An axis of a transposed convolution of data of some extent. The whole (uncropped) output is divided into `stride` interleaved
    phases. Of each phase, elements `first` to `first + count - 1` are computed, which end before element `extent - 1 + ceiling`.
    After interleaving, `begin` elements are cropped at the start and `end` elements at the end; a negative number adds zeros."""

    stride: int
    groups: tuple[_Group, ...]
    first: Dim
    count: Dim
    ceiling: Dim
    begin: Dim
    end: Dim

    def pads(self, group: _Group) -> tuple[Dim, Dim]:
        """Return the pads of the convolution for a group of phases."""
        return simple(arith.wrap(group.reach) - self.first), simple(arith.wrap(self.ceiling) - 1 - group.shift)


def _groups(kernel: Dim, stride: int, dilation: int, begin: int = 0) -> tuple[_Group, ...]:
    """Group the phases that have taps. Element `y` of the whole output reads input `i` by tap `k` if `y = i * stride + k *
    dilation`. Phases are counted from element `begin` of the whole output."""
    if stride == 1 or not isinstance(kernel, int):
        return (_Group((0,), None, kernel, 0, dilation),)
    divisor = int(np.gcd(stride, dilation))
    period, step = stride // divisor, dilation // divisor
    inverse = pow(step, -1, period)
    members_by_reach: dict[tuple[int, int], list[tuple[int, range]]] = {}
    for phase in range(-begin % divisor, stride, divisor):
        first = (phase + begin) // divisor * inverse % period
        taps = range(first, kernel, period)
        if taps:
            members_by_reach.setdefault((len(taps), (first * dilation - phase - begin) // stride), []).append((phase, taps))
    return tuple(
        _Group(tuple(phase for phase, _ in members), tuple(tap for _, taps in members for tap in taps[::-1]), count, shift, step)
        for (count, shift), members in members_by_reach.items()
    )


def _phased_axis(axis: WindowAxis, extent: Dim, output_padding: Dim) -> _PhasedAxis:
    groups, stride = _groups(axis.kernel, axis.stride, axis.dilation), axis.stride
    # The output has (extent - 1) * stride + room elements before its beginning is cropped.
    room = axis.span + output_padding - axis.after
    ceiling = simple(arith.maximum(arith.ceildiv(room, stride), 1 + max(group.shift for group in groups)))
    first: Dim = simple(arith.wrap(axis.before) // stride)
    for group in groups:
        first = simple(arith.minimum(first, group.reach))
    return _PhasedAxis(
        stride,
        groups,
        first,
        simple(arith.wrap(extent) - 1 + ceiling - first),
        ceiling,
        simple(arith.wrap(axis.before) - arith.wrap(first) * stride),
        simple(arith.wrap(ceiling) * stride - room),
    )


def _exact_axis(axis: WindowAxis, extent: Dim, length: Dim) -> _PhasedAxis | None:
    """Return an axis whose phases are counted from the first kept element, so that no cropped element is computed. Phases may then
    share fewer convolutions. Returns None if the stride is 1, if the kernel or the first kept element is not static, or if a
    convolution would have to skip data."""
    if axis.stride == 1 or not isinstance(axis.kernel, int) or not isinstance(axis.before, int):
        return None
    count = simple(arith.ceildiv(length, axis.stride))
    axis_phases = _PhasedAxis(
        axis.stride,
        _groups(axis.kernel, axis.stride, axis.dilation, axis.before),
        0,
        count,
        simple(arith.wrap(count) - extent + 1),
        0,
        simple(arith.wrap(count) * axis.stride - length),
    )
    pads = (pad for group in axis_phases.groups for pad in axis_phases.pads(group))
    return axis_phases if all(isinstance(pad, int) and pad >= 0 for pad in pads) else None


def _decompose(attrs: ConvTransposeAttrs, args: tuple[Expr, ...]) -> Expr:
    """Decompose into a convolution with reversed weights if all strides are 1, else into one convolution per group of phases
    (sub-pixel convolution, Shi et al., CVPR 2016), whose results are interleaved. Along an axis with a symbolic number of taps, the
    data is dilated with zeros instead."""
    x, w = args
    data, weights = expr_type(x), expr_type(w)
    axes, spatial = _transposed(attrs, weights.shape[2:], data.shape[2:])
    output_padding = attrs.output_padding or (0,) * len(axes)
    phased, exact = [], []
    for number, (axis, padding) in enumerate(zip(axes, output_padding, strict=True), 2):
        if not isinstance(axis.kernel, int) and axis.stride > 1:
            x, after = _spread(x, number, axis.stride), axis.after + axis.stride - 1
            axis = WindowAxis(axis.kernel, 1, axis.dilation, axis.before, after)
        elif isinstance(axis.kernel, int) and expr_type(x).shape[number] == 1:
            # For an extent of 1 the stride is irrelevant: use the window's extent, which gives each phase one tap.
            axis = WindowAxis(axis.kernel, axis.kernel * axis.dilation, axis.dilation, axis.before, axis.after)
        phased.append(_phased_axis(axis, expr_type(x).shape[number], padding))
        exact.append(_exact_axis(axis, expr_type(x).shape[number], spatial[number - 2]) or phased[-1])
    if _gains(phased, exact, weights.shape[1]):
        phased = exact
    full_output = _interleaved(attrs, x, w, phased)
    shape = (data.shape[0], weights.shape[1] * attrs.groups, *spatial)
    return _cropped(full_output, phased, shape)


def _gains(shared: list[_PhasedAxis], exact: list[_PhasedAxis], group_outputs: Dim) -> bool:
    """Test whether to use the `exact` axes: if they need at most as many convolutions as the `shared` axes or, with many channels,
    if they compute far fewer elements."""
    if math.prod(len(axis_phases.groups) for axis_phases in exact) <= math.prod(len(axis_phases.groups) for axis_phases in shared):
        return True
    shared_count, exact_count = (
        math.prod(arith.size_hint(axis_phases.count, arith.IMAGE_SIDE) for axis_phases in phased) for phased in (shared, exact)
    )
    return arith.size_hint(group_outputs) >= MIN_CHANNELS and shared_count >= MUCH * exact_count


def _spread(x: Expr, axis: int, stride: int) -> Expr:
    """Insert `stride - 1` zeros after each element along an axis."""
    shape = expr_type(x).shape
    separated = reshape(x, shape=(*shape[: axis + 1], 1, *shape[axis + 1 :]))
    end = (0,) * (len(shape) + 1 + axis + 1) + (stride - 1,) + (0,) * (len(shape) - axis - 1)
    padded = pad(separated, scalar(0, expr_type(x).dtype), pads=end)
    return reshape(padded, shape=(*shape[:axis], simple(arith.wrap(shape[axis]) * stride), *shape[axis + 1 :]))


def _interleaved(attrs: ConvTransposeAttrs, x: Expr, w: Expr, phased: list[_PhasedAxis]) -> Expr:
    """Interleave the elements that the phases compute."""
    rank, batch, groups, group_outputs = len(phased), expr_type(x).shape[0], attrs.groups, expr_type(w).shape[1]
    counts = tuple(axis_phases.count for axis_phases in phased)
    if all(axis_phases.stride == 1 for axis_phases in phased):
        return _phases(attrs, x, w, phased, tuple(axis_phases.groups[0] for axis_phases in phased))

    def parts(axis_groups: tuple[_Group, ...]) -> Expr:
        """Compute the phases in `axis_groups` of the first axes and all phases of the others: (N, groups, phases..., channels per
        group, spatial...)."""
        number = len(axis_groups)
        if number == rank:
            split = (batch, groups, *(len(group.phases) for group in axis_groups), group_outputs, *counts)
            return reshape(_phases(attrs, x, w, phased, axis_groups), shape=split)
        axis_phases = phased[number]
        joined = join([parts((*axis_groups, group)) for group in axis_phases.groups], 2 + number)
        order = [phase for group in axis_phases.groups for phase in group.phases]
        if missing := sorted(set(range(axis_phases.stride)) - set(order)):  # phases without taps are zero
            rank_of_parts = expr_type(joined).rank
            zero_pads = (0,) * (rank_of_parts + 2 + number) + (len(missing),) + (0,) * (rank_of_parts - 3 - number)
            joined = pad(joined, scalar(0, expr_type(joined).dtype), pads=zero_pads)
        order += missing
        return joined if order == sorted(order) else take(joined, constant(np.argsort(order)), axis=2 + number)

    phase_outputs = parts(())
    interleaved = (axis for number in range(rank) for axis in (3 + rank + number, 2 + number))
    ordered = transpose(phase_outputs, perm=(0, 1, 2 + rank, *interleaved))
    sizes = (simple(arith.wrap(axis_phases.count) * axis_phases.stride) for axis_phases in phased)
    return reshape(ordered, shape=(batch, groups * group_outputs, *sizes))


def _phases(attrs: ConvTransposeAttrs, x: Expr, w: Expr, phased: list[_PhasedAxis], axis_groups: tuple[_Group, ...]) -> Expr:
    """Build the convolution for a group of phases of each axis. Its channels are (groups, phases..., channels per group)."""
    rank, groups = len(phased), attrs.groups
    input_channels, group_outputs = expr_type(w).shape[:2]
    counts, taps = tuple(len(group.phases) for group in axis_groups), tuple(group.count for group in axis_groups)
    for axis, group in enumerate(axis_groups, 2):
        # A convolution reads inputs in ascending order, so the taps are in descending order.
        w = reversed_axis(w, axis) if group.taps is None else take(w, constant(np.array(group.taps)), axis=axis)
    split = (dim for pair in zip(counts, taps, strict=True) for dim in pair)
    group_inputs = input_channels // groups
    w = reshape(w, shape=(groups, group_inputs, group_outputs, *split))
    phases, windows = (3 + 2 * number for number in range(rank)), (4 + 2 * number for number in range(rank))
    w = transpose(w, perm=(0, *phases, 2, 1, *windows))
    w = reshape(w, shape=(groups * group_outputs * int(np.prod(counts)), group_inputs, *taps))
    before, after = zip(*(axis_phases.pads(group) for axis_phases, group in zip(phased, axis_groups, strict=True)), strict=True)
    return conv(
        x,
        w,
        strides=(1,) * rank,
        pads=(*before, *after),
        dilations=tuple(group.dilation for group in axis_groups),
        groups=groups,
        out_dtype=attrs.out_dtype,
    )


def _cropped(full_output: Expr, phased: list[_PhasedAxis], shape: tuple[Dim, ...]) -> Expr:
    """Crop to the output shape, with zeros where the phases have no elements."""
    crops = [(axis_phases.begin, axis_phases.end) for axis_phases in phased]
    if all(begin == 0 and end == 0 for begin, end in crops):
        return full_output
    if all(isinstance(dim, int) and dim >= 0 for crop in crops for dim in crop):
        begins = (0, 0, *(begin for begin, _ in crops))
        ends = tuple(simple(arith.wrap(begin) + extent) for begin, extent in zip(begins, shape, strict=True))
        return strided_slice(full_output, begin=begins, end=ends, strides=(1,) * len(shape))
    before, after = (tuple(simple(-arith.wrap(crop[side])) for crop in crops) for side in (0, 1))
    return pad(full_output, scalar(0, expr_type(full_output).dtype), pads=(0, 0, *before, 0, 0, *after))


conv_transpose = Operator(
    "conv_transpose",
    _infer_conv_transpose,
    ConvTransposeAttrs,
    reference=_reference_conv_transpose,
    decompose=_decompose,
    fusion=FusionKind.COMPLEX_OUT_FUSABLE,
    arity=(2, 2),
    inputs=("x", "w"),
    doc=f"""Transposed convolution: the transpose of `conv` with respect to its data.
Operands: x (N, C, spatial...), w (C, O / groups, kernel...), of one float dtype or any integer dtypes, with 1 to 3 spatial
dimensions.
Result: (N, O, spatial...), {PRODUCT_DTYPE}.""",
)

OPERATORS = make_family(conv_transpose)
