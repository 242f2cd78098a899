"""The passes that run on the graph of a model before it is partitioned, in order."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType

from inlaid.graph.ir import Call, Function, Module
from inlaid.graph.normal import to_graph_form
from inlaid.graph.scope_conditions import with_constraints
from inlaid.ops.quantized import dequantize
from inlaid.ops.transposed import conv_transpose
from inlaid.passes.bind_invariants import bind_invariants
from inlaid.passes.canonicalize_quantized import narrow_integers, quantize_integers
from inlaid.passes.cse import share_common
from inlaid.passes.dead_channels import remove_dead_channels
from inlaid.passes.early_elementwise import early_elementwise
from inlaid.passes.early_take import early_take
from inlaid.passes.fold_constants import fold_constants
from inlaid.passes.integer_products import PRODUCTS, Acceptance, integer_products
from inlaid.passes.lower_precision import lower_precision
from inlaid.passes.manager import FunctionPass, ModulePass, Pass
from inlaid.passes.name_sizes import name_sizes
from inlaid.passes.simplify import simplify
from inlaid.passes.simplify_inference import simplify_inference
from inlaid.passes.tensor_witnesses import tensor_witnesses
from inlaid.passes.witness_sizes import witness_sizes
from inlaid.settings import AS_MODEL
from inlaid_runtime.errors import InputError
from inlaid_runtime.types import TensorType

GraphPass = FunctionPass | ModulePass
Rewrite = Callable[[Function], Function]

NAME_SIZES = FunctionPass("name_sizes", name_sizes)
WITNESS_SIZES = FunctionPass("witness_sizes", witness_sizes)
CONSTRAINTS = (NAME_SIZES, WITNESS_SIZES, ModulePass("constraints", with_constraints))
"""Passes that keep what a model says of sizes: the order in which they are computed and read, and the conditions on them. They run
before any pass that may move or remove an expression that says one."""


def canonical(stored_weights: bool = False, integers: Acceptance | None = None) -> tuple[GraphPass, ...]:
    """List the passes that canonicalize a model. With `stored_weights`, quantized weights are not dequantized yet, since operators
    that decompose later may multiply them as integers. With `integers`, products of dequantized integers that do not end in a
    quantization become integer ones where it is true; see `integer_products`. With both, only transposed convolutions become
    integer products, since they decompose; other products may still come to end in a quantization. No pass here decomposes large
    operators."""
    keep = _dequantizes_weights if stored_weights else None
    operators = (conv_transpose,) if stored_weights else PRODUCTS
    products = () if integers is None else (partial(integer_products, accepts=integers, operators=operators),)
    return (
        FunctionPass("graph_form", to_graph_form),
        # Scales fold first, so that they can be compared. Weights stay quantized until integer products have absorbed them.
        FunctionPass("fold_scales", partial(fold_constants, keep=_dequantizes), ("graph_form",)),
        FunctionPass("quantize_integers", quantize_integers, ("fold_scales",)),
        *(FunctionPass("integer_products", change, ("quantize_integers",)) for change in products),
        FunctionPass("fold_constants", partial(fold_constants, keep=keep), ("quantize_integers",)),
        FunctionPass("simplify_inference", simplify_inference, ("fold_constants",)),
        FunctionPass("narrow_integers", narrow_integers, ("quantize_integers", "fold_constants")),
        FunctionPass("simplify", simplify),
        FunctionPass("early_take", early_take),
        FunctionPass("cse", share_common, ("graph_form",)),
        NAME_SIZES,
    )


def _dequantizes(call: Call) -> bool:
    return call.callee is dequantize


def _dequantizes_weights(call: Call) -> bool:
    """Test whether a call dequantizes a tensor that may be the weights of an integer product."""
    return call.callee is dequantize and isinstance(call.type, TensorType) and call.type.rank > 1


CANONICAL = canonical()
"""The target-independent passes that canonicalize a model, which fold all weights."""

PRECISIONS: Mapping[str, tuple[GraphPass, ...]] = MappingProxyType(
    {AS_MODEL: (), "bf16": (FunctionPass("lower_precision", lower_precision, ("graph_form",)),)}
)
"""Passes for each precision: the model's precision, or float32 products in bfloat16."""


def quantization_passes(decompose: Rewrite) -> tuple[Pass[Module], ...]:
    """List the passes over a float model before its products are quantized. `decompose` decomposes the operators that are quantized
    in parts."""
    return (*CONSTRAINTS, *CANONICAL, FunctionPass("decompose", decompose), *CANONICAL)


def graph_passes(
    decompose: Rewrite,
    integers: Acceptance,
    sink_transposes: Rewrite,
    shorten: Rewrite,
    target_passes: Sequence[Pass[Module]] = (),
    lanes: int = 1,
    precision: str = AS_MODEL,
) -> tuple[Pass[Module], ...]:
    """List the passes over a model for its targets. `decompose` decomposes the operators that no listed target accepts whole,
    `integers` is the predicate of `integer_products`, `sink_transposes` moves transposes where targets reject them, `shorten` is
    `shorten_sequences` for the targets. `target_passes` are the targets' own passes of `Phase.BEFORE_PARTITION`; `lanes` is the
    number of float32 lanes of the widest vectors. Raises `InputError` for an unknown precision."""
    if precision not in PRECISIONS:
        raise InputError(f"unknown precision {precision!r}", remedy=f"choose from {', '.join(PRECISIONS)}")
    return (
        # Later passes may remove an expression that states a condition on sizes.
        *CONSTRAINTS,
        *canonical(stored_weights=True, integers=integers),
        FunctionPass("shorten_sequences", shorten),
        FunctionPass("decompose", decompose),
        FunctionPass("early_elementwise", early_elementwise, ("graph_form",)),
        *PRECISIONS[precision],
        # Only as far as vectors stay full.
        FunctionPass("dead_channels", partial(remove_dead_channels, lanes=lanes), ("narrow_integers",)),
        # Again, to fold the expressions that these passes introduce.
        *canonical(integers=integers),
        FunctionPass("tensor_witnesses", tensor_witnesses, ("graph_form",)),
        FunctionPass("bind_invariants", bind_invariants, ("graph_form",)),
        *target_passes,
        FunctionPass("sink_transposes", sink_transposes, ("graph_form",)),
        # Again, for the expressions that passes have built; the partitioner orders operators by their operands alone.
        WITNESS_SIZES,
    )
