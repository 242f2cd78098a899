"""The passes that rewrite a region's graph before its kernels become loop programs, in order."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from inlaid.graph.ir import Function
from inlaid.lowering.choose_convolution import choose_convolution
from inlaid.lowering.unsigned_data import unsigned_data
from inlaid.lowering.wide_products import wide_products
from inlaid.passes.claimed import Takes, everything
from inlaid.passes.fixed_products import fixed_products
from inlaid.passes.fuse import fuse
from inlaid.passes.manager import FunctionPass
from inlaid.passes.pointwise_products import pointwise_products
from inlaid.passes.tables import tabulate
from inlaid.schedules.rule import KernelContext

Rewrite = Callable[[Function], Function]


def rewrites(
    context: KernelContext, dissolve: Rewrite, store: Rewrite | None, fusion: bool = True, takes: Takes = everything
) -> tuple[FunctionPass, ...]:
    """The passes for a target of these capabilities and intrinsics. `dissolve` puts the bodies of composites in place of calls;
    `store`, for a region with borders of its own, converts what crosses them. Without `fusion` every operator is a kernel. `takes`
    says what the target claims: no pass but those two makes anything else."""
    able = context.capabilities
    return (
        FunctionPass("dissolve", dissolve),
        *([FunctionPass("store_borders", store)] if store is not None else ()),
        # Offsets of 128 go into zero points and limits while these are still operands of products in fixed point.
        FunctionPass("unsigned_data", partial(unsigned_data, context=context, takes=takes)),
        *([FunctionPass("fixed_products", partial(fixed_products, takes=takes))] if able.vector_bits else ()),
        FunctionPass("wide_products", partial(wide_products, context=context, takes=takes)),
        # A convolution of single pixels that is still one may be a product of matrices.
        FunctionPass("choose_convolution", partial(choose_convolution, context=context, takes=takes)),
        FunctionPass("pointwise_products", partial(pointwise_products, capabilities=able, takes=takes)),
        FunctionPass("tabulate", partial(tabulate, takes=takes)),
        *([FunctionPass("fuse", partial(fuse, frugal=able.memory is not None))] if fusion else ()),
    )
