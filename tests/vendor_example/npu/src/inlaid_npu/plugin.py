"""Hook implementations of the plugin. Heavy modules are imported on use."""

from inlaid.plugins import Capabilities, Quantisation, TargetSpec, hookimpl

PLUGIN_API_VERSION = 2


def _capabilities(options):
    quantisation = Quantisation(roundings=("half_even",))
    return Capabilities(("int8",), dynamic_dims=False, quantisation=quantisation, peak=1e12, bandwidth=1e10)


@hookimpl
def inlaid_targets():
    return [TargetSpec("npu", "an int8 NPU, simulated", _capabilities)]


@hookimpl
def inlaid_op_rules(target):
    if target.kind != "npu":
        return ()
    from inlaid_npu.rules import rules

    return rules()


@hookimpl
def inlaid_codegen(target):
    from inlaid_npu.codegen import NpuCodegen

    return NpuCodegen()


@hookimpl
def inlaid_runtime(target):
    from inlaid_npu.runtime import NpuRuntime

    return NpuRuntime()
