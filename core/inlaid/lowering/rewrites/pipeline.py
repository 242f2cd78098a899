"""The graph passes that run on a region before its kernels become loop programs, in order."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from inlaid.graph.ir import Function
from inlaid.lowering.rewrites.padding_taps import padding_taps
from inlaid.lowering.rewrites.unsigned_data import unsigned_data
from inlaid.lowering.rewrites.vector_products import vector_products
from inlaid.lowering.rewrites.volume_windows import volume_windows
from inlaid.lowering.rewrites.wide_floats import wide_floats
from inlaid.lowering.rewrites.wide_products import wide_products
from inlaid.lowering.rewrites.zero_points import zero_points
from inlaid.passes.fixed_products import fixed_products
from inlaid.passes.fuse import VectorUnit, fuse
from inlaid.passes.group_concats import group_concats
from inlaid.passes.manager import FunctionPass
from inlaid.passes.pointwise_products import pointwise_products
from inlaid.passes.rounded_floats import rounded_floats
from inlaid.passes.subsample import subsample
from inlaid.passes.supported import Supports, supports_everything
from inlaid.passes.tables import tabulate
from inlaid.tensor.scheduling.rule import KernelContext

Rewrite = Callable[[Function], Function]
ConvolutionChoice = Callable[[Function, KernelContext, Supports], Function]
"""Rewrites convolutions to the algorithm that is fastest with the target's schedules."""


def region_passes(
    context: KernelContext,
    dissolve: Rewrite,
    store: Rewrite | None,
    choose_convolution: ConvolutionChoice,
    fusion: bool = True,
    supports: Supports = supports_everything,
) -> tuple[FunctionPass, ...]:
    """List the passes for a target. Its own passes of `Phase.AFTER_PARTITION` run before them. `dissolve` inlines the bodies of
    composites; `store`, for a region with its own border layouts, converts values at the border. Without `fusion` every operator is
    a kernel. All passes except `dissolve` and `store` create only operators for which `supports` is true."""
    able = context.capabilities
    vectorizes = able.vector_bits > 0 and able.threads is None
    vectors = VectorUnit(able.vector_bits // 32, able.core.l2_bytes) if vectorizes else None
    return (
        FunctionPass("dissolve", dissolve),
        FunctionPass("group_concats", partial(group_concats, supports=supports)),
        *([FunctionPass("store_borders", store)] if store is not None else ()),
        FunctionPass("padding_taps", partial(padding_taps, context=context, supports=supports)),
        *([FunctionPass("volume_windows", partial(volume_windows, supports=supports))] if vectorizes else ()),
        # Before unsigned_data, which flips the sign of bytes that products read.
        FunctionPass("zero_points", partial(zero_points, context=context, supports=supports)),
        # Before fixed_products, while zero points and limits, which absorb the offset of 128, are still separate operands.
        FunctionPass("unsigned_data", partial(unsigned_data, context=context, supports=supports)),
        *([FunctionPass("fixed_products", partial(fixed_products, supports=supports))] if able.vector_bits else ()),
        *([FunctionPass("subsample", partial(subsample, costs=able.core.costs, supports=supports))] if vectorizes else ()),
        FunctionPass("wide_products", partial(wide_products, context=context, supports=supports)),
        *([FunctionPass("wide_floats", partial(wide_floats, context=context, supports=supports))] if vectorizes else ()),
        *([FunctionPass("vector_products", partial(vector_products, context=context, supports=supports))] if vectorizes else ()),
        FunctionPass("choose_convolution", lambda function: choose_convolution(function, context, supports)),
        # After choose_convolution: the remaining 1x1 convolutions may become matrix products.
        FunctionPass("pointwise_products", partial(pointwise_products, capabilities=able, supports=supports)),
        FunctionPass("tabulate", partial(tabulate, repeated=vectorizes, supports=supports)),
        # After tabulate, which looks for functions of bytes.
        *([FunctionPass("rounded_floats", partial(rounded_floats, supports=supports))] if vectorizes else ()),
        *([FunctionPass("fuse", partial(fuse, frugal=able.memory is not None, vectors=vectors))] if fusion else ()),
    )
