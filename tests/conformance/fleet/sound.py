"""A plugin that keeps the contract: a few operators, one of them by a pattern, and a composite, on a machine that numpy plays."""

from inlaid.plugins import Accept, Capabilities, OpRule, Reject, TargetSpec, hookimpl

PLUGIN_API_VERSION = 3
KIND = "fleet"


def capabilities(options):
    return Capabilities(("float32", "int64"), dynamic_dims=False)


@hookimpl
def inlaid_targets():
    return [TargetSpec(KIND, "a machine that numpy plays", capabilities)]


def rules():
    from inlaid.graph.pattern import is_op, wildcard

    product = is_op("matmul")(wildcard().named("x"), wildcard().named("w"))
    affine = is_op("add")(product, wildcard().named("b"))
    return [
        OpRule(affine, "affine", judge_matrix),
        OpRule(is_op("neg")(wildcard().named("x")), "negated", judge_floats),
        *(OpRule(name, "", judge_floats) for name in ("add", "mul", "relu")),
        OpRule("take"),
        *(OpRule(name, "", judge_image) for name in ("conv", "max_pool")),
    ]


def judge_floats(operation):
    """Judges a call of an operator, or what a pattern matched."""
    type_ = getattr(operation, "root", operation).type
    return Accept() if type_.dtype.name == "float32" else Reject("it computes in float32 alone")


def judge_matrix(pattern_match):
    return Accept() if pattern_match.root.type.rank == 2 else Reject("it multiplies matrices alone")


def judge_image(call):
    """Judges a window. Few of the suite's examples pass: channels come by fours, a window is square, weights are constant."""
    from inlaid.graph import ir

    x, attrs = call.args[0].type, call.attrs
    if len(x.shape) != 4 or x.shape[0] != 1:
        return Reject("it takes one image at a time")
    if not isinstance(x.shape[1], int) or x.shape[1] % 4:
        return Reject("it takes channels by fours")
    if call.callee.name == "conv" and not isinstance(call.args[1], ir.Constant):
        return Reject("it takes constant weights alone")
    if any(len(set(steps)) > 1 for steps in (attrs.strides, attrs.dilations)):
        return Reject("it takes the same steps along both axes")
    return judge_floats(call)


@hookimpl
def inlaid_op_rules(target):
    return rules() if target.kind == KIND else []


@hookimpl
def inlaid_codegen(target):
    from fleet.machine import Codegen

    return Codegen()


@hookimpl
def inlaid_runtime(target):
    from fleet.machine import Runtime

    return Runtime()


__all__ = [
    "KIND",
    "Accept",
    "Capabilities",
    "OpRule",
    "Reject",
    "TargetSpec",
    "capabilities",
    "hookimpl",
    "inlaid_codegen",
    "inlaid_op_rules",
    "inlaid_runtime",
    "inlaid_targets",
    "judge_floats",
    "rules",
]
