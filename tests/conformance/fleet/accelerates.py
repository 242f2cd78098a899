"""A plugin that keeps the contract: an int8 and float16 accelerator with tiles of 16 rows by 32 channels."""

from inlaid.plugins import Accept, Capabilities, OpRule, Reject, Requantization, TargetSpec, Tiles, hookimpl

PLUGIN_API_VERSION = 3
KIND = "fleet"


def capabilities(options):
    return Capabilities(
        ("int8", "float16"),
        dynamic_dims=False,
        requantization=Requantization(("up", "away", "once", "once_away")),
        tiles=Tiles(rows=16, inputs=32, outputs=32),
    )


@hookimpl
def inlaid_targets():
    return [TargetSpec(KIND, "an accelerator that numpy plays", capabilities)]


def rules():
    from inlaid.graph.pattern import is_op, wildcard
    from inlaid.ops.composites import conv, matmul, quantized_average_pool

    return [
        OpRule(layer(conv()), "conv", lambda pattern_match: judge_layer(pattern_match, 4)),
        OpRule(layer(matmul()), "dense", lambda pattern_match: judge_layer(pattern_match, 2)),
        OpRule(
            is_op("max_pool")(wildcard().named("x")).named("pool"), "pool", lambda pattern_match: judge_integers(pattern_match, 4)
        ),
        OpRule(quantized_average_pool(), "average", lambda pattern_match: judge_integers(pattern_match, 4)),
        OpRule(is_op("matmul")(wildcard().named("a"), wildcard().named("b")), "product", judge_floats),
        *(OpRule(name, "", judge_floats) for name in ("add", "relu")),
    ]


def layer(product):
    """Matches a product of int8 with a bias, requantized by fixed-point factors."""
    from inlaid.graph.pattern import is_const, is_op
    from inlaid.ops.composites import biased

    scaled = is_op("multiply_fixed")(biased(product, 1), is_const(), is_const()).named("scaled")
    placed = scaled.optional(lambda it: is_op("add")(it, is_const().has_rank(0).named("point")))
    return is_op("cast")(is_op("clip")(placed).named("clamp")).has_dtype("int8").named("y")


def judge_layer(pattern_match, rank):
    factors = pattern_match.call("scaled").args[1:]
    if any(factor.type.rank for factor in factors) and pattern_match.attrs("scaled").axis != 1:
        return Reject("it takes one factor, or one per channel")
    if not -128 <= pattern_match.attrs("clamp").minimum <= pattern_match.attrs("clamp").maximum <= 127:
        return Reject("it clamps to eight bits")
    return judge_integers(pattern_match, rank)


def judge_integers(pattern_match, rank):
    for part in (pattern_match.root, pattern_match["x"]):
        if part.type.dtype.name != "int8" or part.type.rank != rank:
            return Reject(f"it takes int8 of rank {rank} alone")
    return Accept()


def judge_floats(operation):
    """Judges a call of an operator, or what a pattern matched."""
    type_ = getattr(operation, "root", operation).type
    return Accept() if type_.dtype.name == "float16" else Reject("it computes in float16 alone")


@hookimpl
def inlaid_op_rules(target):
    return rules() if target.kind == KIND else []


@hookimpl
def inlaid_codegen(target):
    from fleet.accelerator_codegen import Codegen

    return Codegen()


@hookimpl
def inlaid_runtime(target):
    from fleet.accelerator import Accelerator

    return Accelerator()


__all__ = [
    "KIND",
    "Accept",
    "Capabilities",
    "OpRule",
    "Reject",
    "Requantization",
    "TargetSpec",
    "Tiles",
    "capabilities",
    "hookimpl",
    "inlaid_codegen",
    "inlaid_op_rules",
    "inlaid_runtime",
    "inlaid_targets",
    "judge_floats",
    "judge_integers",
    "judge_layer",
    "layer",
    "rules",
]
