"""The plugin: `discrete`, and `discrete:unit=1` for regions on a second device of the same kind. `without` names operators, with
plus signs between them, that the target leaves to others. With `lanes`, float32 is stored with the last axis in blocks of them."""

from dataclasses import dataclass

from inlaid.plugins import Capabilities, Conformance, ExpectedFailure, Link, OpRule, TargetSpec, hookimpl

PLUGIN_API_VERSION = 3


@dataclass(frozen=True)
class Options:
    unit: int = 0
    without: str = ""
    lanes: int = 0


def capabilities(options):
    dtypes = ("float32", "float64", "float16", "int8", "uint8", "int32", "int64", "bool")
    return Capabilities(dtypes, link=Link(1e-5, 1e10), device_memory=True, peak=1e12, bandwidth=1e11)


@hookimpl
def inlaid_targets():
    return [TargetSpec("discrete", "an accelerator that a test simulates", capabilities, options=Options)]


@hookimpl
def inlaid_op_rules(target):
    if target.kind != "discrete":
        return ()
    from inlaid.graph.pattern import is_op, wildcard

    from .target import judge

    return [
        OpRule(is_op("relu")(is_op("conv")(wildcard(), wildcard())), "discrete.conv_relu"),
        OpRule(is_op("add")(is_op("matmul")(wildcard(), wildcard()), wildcard()), "discrete.dense"),
        OpRule("*", "", lambda call: judge(call, target.options.without.split("+"))),
    ]


@hookimpl
def inlaid_codegen(target):
    from .target import DiscreteCodegen

    return DiscreteCodegen(target.options.lanes)


@hookimpl
def inlaid_runtime(target, device):
    from .target import DiscreteRuntime

    return DiscreteRuntime(device)


@hookimpl
def inlaid_conformance(target):
    reason = "its code is the graph, so running it needs the operators' definitions"
    cases = ("package/runs-without-the-compiler", "package/refuses-damaged-code")
    return Conformance(expected_failures=tuple(ExpectedFailure(case, reason) for case in cases))
