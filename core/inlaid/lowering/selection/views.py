"""Results that are views of an operand: contiguous slices, and transposes expressed as layouts."""

from __future__ import annotations

from inlaid.graph import ir as graph
from inlaid.lowering.kernels.kernel import tensor_type
from inlaid.ops.shape import SliceAttrs, TransposeAttrs
from inlaid_runtime.types import ROW_MAJOR, Layout


def transposed(call: graph.Call, layout: Layout) -> Layout | None:
    """Find the layout of a transpose's result in which it has the bytes of its operand in `layout`; None if no layout does."""
    attrs, source = call.attrs, tensor_type(call.args[0].type)
    assert isinstance(attrs, TransposeAttrs)
    order = layout.order(source.shape)
    if order is None:
        return None
    shape = tensor_type(call.type).shape
    if 0 in shape:
        return ROW_MAJOR
    view_order = [attrs.perm.index(axis) for axis in order]
    # The fewest blocks: only the trailing axes whose order differs from the shape's.
    for start in range(len(view_order), -1, -1):
        blocks = [(axis, shape[axis]) for axis in view_order[start:]]
        candidate = Layout(tuple((axis, size) for axis, size in blocks if isinstance(size, int)))
        if candidate.order(shape) == view_order:
            return candidate
    return None


def slice_start(call: graph.Call, layout: Layout, alignment: int) -> int | None:
    """Return the byte offset of a slice in its operand; None if the slice is not contiguous in the operand or not aligned."""
    attrs = call.attrs
    assert isinstance(attrs, SliceAttrs)
    source = tensor_type(call.args[0].type)
    cut_axes = [
        axis for axis, (dim, size) in enumerate(zip(source.shape, tensor_type(call.type).shape, strict=True)) if dim != size
    ]
    if any(stride != 1 for stride in attrs.strides) or len(cut_axes) != 1:
        return None
    axis = cut_axes[0]
    begin, extent = attrs.begin[axis], tensor_type(call.type).shape[axis]
    if not isinstance(begin, int) or not isinstance(extent, int):
        return None
    start = layout.part(source.shape, axis, begin, extent)
    return None if start is None or start * source.dtype.bytes % alignment else start * source.dtype.bytes
