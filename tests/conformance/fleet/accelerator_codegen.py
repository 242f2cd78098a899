"""The code generator of the fleet's accelerator."""

import json

from fleet.accelerator import LANES
from fleet.machine import FORMAT
from inlaid.ops.composites import decode_average_pool, decode_layer, window
from inlaid.plugins import Border
from inlaid.plugins import Codegen as Base
from inlaid_runtime.types import Layout

OPERANDS = {"relu": ("x",), "pool": ("x",), "average": ("x",), "conv": ("x", "w"), "dense": ("x", "w")}


def form(type_):
    """The storage of a tensor: channels in blocks of lanes in int8."""
    laned = type_.dtype.name == "int8" and type_.rank in (2, 4)
    return Border(Layout(((1, LANES),))) if laned else Border()


class Codegen(Base):
    format = FORMAT

    def borders(self, region):
        return region.stored_as(form)

    def compile(self, unit, context):
        program = context.steps(unit, form)
        steps = [self.step(step, program.constant) for step in program.steps]
        laned = {}
        for step in program.steps:
            for number, type_ in ((step.outputs[0], step.parts[""].type), *self.data(step)):
                laned[number] = type_.shape if form(type_).layout.blocks else None
        buffers = [[buffer.storage, buffer.index, laned.get(number)] for number, buffer in enumerate(program.buffers)]
        return program.artifact(self.format, 1, json.dumps({"steps": steps, "buffers": buffers}).encode())

    def data(self, step):
        parts = ("x",) if "x" in step else ("a", "b")
        return [(step.buffer(part), step.parts[part].type) for part in parts]

    def step(self, step, keep):
        sources = [step.buffer(part) for part in OPERANDS.get(step.name, ("a", "b"))]
        attributes = {}
        pool = decode_average_pool(step.parts) if step.name == "average" else None
        if step.name in ("conv", "pool", "average"):
            geometry = window(step.parts) if pool is None else pool.window
            attributes = {"strides": geometry.strides, "dilations": geometry.dilations}
            attributes |= {"pads": (*geometry.before, *geometry.after), "fill": geometry.fill, "kernel": geometry.kernel}
        if pool is not None:
            attributes |= {"divisors": pool.divisors.tolist(), "least": pool.output.least, "greatest": pool.output.greatest}
        if step.name in ("conv", "dense"):
            layer = decode_layer(step.parts)
            sources += [keep(values) for values in (layer.bias, layer.factor.multipliers, layer.factor.shifts)]
            attributes |= {"rounding": layer.factor.rounding, "point": layer.output.zero_point}
            attributes |= {"least": layer.output.least, "greatest": layer.output.greatest}
        if step.name == "conv":
            attributes["groups"] = step.attrs("conv").groups
        return [step.name, sources, step.outputs[0], attributes]
