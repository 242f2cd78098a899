"""Hook implementations of the plugin. Heavy modules are imported on use."""

from inlaid.plugins import Capabilities, MemoryScope, Quantisation, TargetSpec, hookimpl

PLUGIN_API_VERSION = 2


def _capabilities(options):
    from inlaid_lanes.form import CHIP, ON_CHIP

    quantisation = Quantisation(roundings=("half_even",))
    scopes = (MemoryScope(CHIP, "device", ON_CHIP),)
    return Capabilities(("int8",), scopes, dynamic_dims=False, quantisation=quantisation, peak=1e12, bandwidth=1e10)


@hookimpl
def inlaid_targets():
    return [TargetSpec("lanes", "an int8 accelerator of 16 lanes, simulated", _capabilities)]


@hookimpl
def inlaid_op_rules(target):
    if target.kind != "lanes":
        return ()
    from inlaid_lanes.rules import rules

    return rules()


@hookimpl
def inlaid_codegen(target):
    from inlaid_lanes.codegen import LanesCodegen

    return LanesCodegen()


@hookimpl
def inlaid_runtime(target):
    from inlaid_lanes.runtime import LanesRuntime

    return LanesRuntime()
