"""By which algorithm to convolve: directly, or by Winograd's tiles, as an analytic model of a core predicts.

The model counts the cycles of the register tiles that schedules take, and the bytes of weights, which come from memory: transformed
weights are 16/9 or 4 times as many. What is chosen shows in the names of kernels.
"""

from __future__ import annotations

from inlay import ops
from inlay.graph.ir import Call, Constant, Expr, Function, constant
from inlay.graph.transform import transform
from inlay.lowering.merge_groups import merge_groups
from inlay.ops.convolution import ConvAttrs
from inlay.ops.winograd import TRANSFORMS, WINDOW, transform_weights, winograd_conv
from inlay.plugins.contract import Capabilities
from inlay.schedules.conv import choose_pixels
from inlay.schedules.register_tile import seconds
from inlay.schedules.rule import KernelContext
from inlay.schedules.winograd import plan_winograd
from inlay.types import TensorType

GAIN = 0.85
"""Of the seconds of a direct convolution that tiles may be predicted to take: below that the prediction, and the rounding errors of
transforms, are not worth it."""
EXPOSED = 0.25
"""Of the shorter of computing and fetching weights that the longer does not hide. 14 x 14 by 256 and 7 x 7 by 512 channels, weights
not in a cache."""


def choose_convolution(function: Function, context: KernelContext) -> Function:
    """The function with convolutions of constant weights by the algorithm that is predicted to be fastest. The same object where
    all stay direct. Groups are made fewer first where that is better, see `merge_groups`."""
    if not context.capabilities.vector_bits:
        return function
    function = merge_groups(function, context)

    def visit(old: Expr, new: Expr) -> Expr:
        if not isinstance(new, Call) or new.callee is not ops.conv or not isinstance(new.args[1], Constant):
            return new
        tile = _tile(new, new.args[1], context)
        if not tile:
            return new
        x, w = new.args[0], new.args[1].data
        assert isinstance(new.attrs, ConvAttrs)
        return winograd_conv(x, constant(transform_weights(w, tile)), pads=new.attrs.pads, tile=tile, span=new.span)

    changed = transform(function, visit)
    assert isinstance(changed, Function)
    return changed


def _tile(call: Call, weights: Constant, context: KernelContext) -> int:
    """Outputs along a side of the best tile; 0 for a direct convolution."""
    attrs, capabilities = call.attrs, context.capabilities
    assert isinstance(attrs, ConvAttrs)
    types = [call.type, *(arg.type for arg in call.args)]
    if not all(isinstance(item, TensorType) and item.is_static and item.dtype.name == "float32" for item in types):
        return 0
    outputs, inputs, *window = weights.data.shape
    if window != [WINDOW, WINDOW] or attrs.groups != 1 or any(step != 1 for step in (*attrs.strides, *attrs.dilations)):
        return 0
    assert isinstance(call.type, TensorType)
    batch, _, height, width = (dim for dim in call.type.shape if isinstance(dim, int))
    if not batch * height * width * inputs * outputs:
        return 0
    depth = inputs * WINDOW**2
    lanes = capabilities.vector_bits // 32
    _, cycles = choose_pixels(-(-outputs // lanes), height, width, depth, lanes, capabilities.vector_registers)
    predicted = {0: GAIN * _seconds(batch * cycles, weights.data.nbytes, capabilities)}
    for tile in TRANSFORMS:
        plan = plan_winograd(batch, inputs, outputs, height, width, tile, context)
        if plan is not None:
            more = (tile + WINDOW - 1) ** 2 / WINDOW**2
            predicted[tile] = _seconds(plan.cycles, weights.data.nbytes * more, capabilities)
    return min(predicted, key=lambda tile: predicted[tile])


def _seconds(cycles: float, fetched: float, capabilities: Capabilities) -> float:
    """The time of cycles of cores together, and of bytes from memory."""
    computing, fetching = seconds(cycles, capabilities), fetched / capabilities.bandwidth
    return max(computing, fetching) + EXPOSED * min(computing, fetching)
