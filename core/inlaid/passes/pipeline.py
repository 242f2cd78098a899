"""The target-independent passes that canonicalize a model, in order."""

from __future__ import annotations

from functools import partial

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

NAME_SIZES = FunctionPass("name_sizes", name_sizes)
CONSTRAINTS = (NAME_SIZES, ModulePass("constraints", with_constraints))
"""Keep the conditions on sizes that a model states. They run before any pass that may remove an expression that states one."""

CANONICAL: tuple[FunctionPass | ModulePass, ...] = (
    FunctionPass("graph_form", to_graph_form),
    # Scales fold first, so that they can be compared. Weights stay quantized until integer products have absorbed them.
    FunctionPass("fold_scales", partial(fold_constants, keep=(dequantize,)), ("graph_form",)),
    FunctionPass("quantize_integers", quantize_integers, ("fold_scales",)),
    FunctionPass("fold_constants", fold_constants, ("quantize_integers",)),
    FunctionPass("simplify_inference", simplify_inference, ("fold_constants",)),
    FunctionPass("narrow_integers", narrow_integers, ("quantize_integers", "fold_constants")),
    FunctionPass("simplify", simplify),
    FunctionPass("fold_again", fold_constants, ("simplify_inference", "simplify")),
    FunctionPass("early_take", early_take),
    FunctionPass("cse", share_common, ("graph_form",)),
    ModulePass("dead_code", remove_dead_code, ("graph_form",)),
    NAME_SIZES,
)
"""No pass here decomposes large operators. For target-dependent passes see `inlaid.passes.decompose` and `inlaid.partitioning`."""
