"""The target-independent passes that canonicalize a model, in order."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from inlaid.graph.ir import Call, Function
from inlaid.graph.normal import to_graph_form
from inlaid.graph.scope_conditions import with_constraints
from inlaid.ops.quantized import dequantize
from inlaid.passes.canonicalize_quantized import narrow_integers, quantize_integers
from inlaid.passes.cse import share_common
from inlaid.passes.dead_code import remove_dead_code
from inlaid.passes.early_take import early_take
from inlaid.passes.fold_constants import fold_constants
from inlaid.passes.manager import FunctionPass, ModulePass
from inlaid.passes.name_sizes import name_sizes
from inlaid.passes.simplify import simplify
from inlaid.passes.simplify_inference import simplify_inference
from inlaid_runtime.types import TensorType

GraphPass = FunctionPass | ModulePass

NAME_SIZES = FunctionPass("name_sizes", name_sizes)
CONSTRAINTS = (NAME_SIZES, ModulePass("constraints", with_constraints))
"""Keep the conditions on sizes that a model states. They run before any pass that may remove an expression that states one."""


def canonical(
    stored_weights: bool = False, integer_products: Callable[[Function], Function] | None = None
) -> tuple[GraphPass, ...]:
    """List the passes that canonicalize a model. With `stored_weights`, quantized weights are not dequantized yet, since operators
    that decompose later may multiply them as integers. `integer_products`, a pass for the last canonicalization, rewrites products
    that do not end in a quantization. No pass here decomposes large operators."""
    return (
        FunctionPass("graph_form", to_graph_form),
        # Scales fold first, so that they can be compared. Weights stay quantized until integer products have absorbed them.
        FunctionPass("fold_scales", partial(fold_constants, keep=_dequantizes), ("graph_form",)),
        FunctionPass("quantize_integers", quantize_integers, ("fold_scales",)),
        *([FunctionPass("integer_products", integer_products, ("quantize_integers",))] if integer_products is not None else ()),
        FunctionPass(
            "fold_constants",
            partial(fold_constants, keep=_dequantizes_weights if stored_weights else None),
            ("quantize_integers",),
        ),
        FunctionPass("simplify_inference", simplify_inference, ("fold_constants",)),
        FunctionPass("narrow_integers", narrow_integers, ("quantize_integers", "fold_constants")),
        FunctionPass("simplify", simplify),
        FunctionPass("fold_again", partial(fold_constants, keep=_dequantizes_weights if stored_weights else None), ("simplify",)),
        FunctionPass("early_take", early_take),
        FunctionPass("cse", share_common, ("graph_form",)),
        ModulePass("dead_code", remove_dead_code, ("graph_form",)),
        NAME_SIZES,
    )


def _dequantizes(call: Call) -> bool:
    return call.callee is dequantize


def _dequantizes_weights(call: Call) -> bool:
    """Test whether a call dequantizes what may be weights of a product of integers."""
    return call.callee is dequantize and isinstance(call.type, TensorType) and call.type.rank > 1


CANONICAL = canonical()
