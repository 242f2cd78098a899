"""A vendor's plugin whose artifacts are C99: an accelerator that has relu, of which this is the driver."""

from __future__ import annotations

from inlaid.plugins import Accept, Capabilities, Codegen, OpRule, Reject, TargetSpec, hookimpl

PLUGIN_API_VERSION = 3
FORMAT, VERSION = "acme-c99", 1
RELU = """
    for (int32_t i = 0; i < {size}; i++) {y}[i] = {x}[i] < 0 ? 0 : {x}[i];"""


@hookimpl
def inlaid_targets():
    return [TargetSpec("acme_npu", "the Acme NPU", lambda options: Capabilities(("float32",), dynamic_dims=False))]


@hookimpl
def inlaid_op_rules(target):
    if target.kind != "acme_npu":
        return ()
    return [
        OpRule("relu", predicate=lambda call: Accept() if call.type.shape[-1] % 2 == 0 else Reject("rows have pairs of elements"))
    ]


class AcmeCodegen(Codegen):
    def compile(self, unit, context):
        from math import prod

        from inlaid.codegen.c import pointer, region_source

        program = context.steps(unit)
        sides = ((step, program.buffers[step.buffer("x")], program.buffers[step.outputs[0]]) for step in program.steps)
        body = "".join(RELU.format(size=prod(y.shape), x=pointer(x), y=pointer(y)) for _, x, y in sides)
        void_casts = "    (void)inputs, (void)outputs, (void)constants, (void)dims, (void)workspace, (void)context;"
        return program.artifact(FORMAT, VERSION, region_source(program.name, void_casts + body))


@hookimpl
def inlaid_codegen(target):
    return AcmeCodegen()


@hookimpl
def inlaid_runtime(target):
    from inlaid_runtime.execution.c_source import CSourceRuntime

    return CSourceRuntime(FORMAT, VERSION)
