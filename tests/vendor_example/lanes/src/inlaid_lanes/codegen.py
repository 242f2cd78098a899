"""Code generator: a region becomes a program in JSON, with stored tensors and one layer per step."""

import json

import numpy as np

from inlaid.graph.ir import Constant
from inlaid.ops.composites import decode_binary, decode_layer, window
from inlaid.plugins import Codegen, Scratch
from inlaid_lanes.form import CHIP, FORMAT, VERSION, form, stored_bytes, whole
from inlaid_lanes.rules import grouped, weights_of


class LanesCodegen(Codegen):
    def borders(self, region):
        return region.stored_as(form)

    def compile(self, unit, context):
        program = context.steps(unit, form, lambda step: [Scratch(size, CHIP) for size in _operand_bytes(step).values()])
        layers = [_layer(step, program.constant) for step in program.steps]
        for step, layer in zip(program.steps, layers, strict=True):
            offsets = [program.buffers[number].offset for number in step.scratch]
            layer["chip"] = dict(zip(_operand_bytes(step), offsets, strict=True))
        tensors = [(b.storage, b.offset if b.storage == "arena" else b.index, b.shape, b.dtype.name) for b in program.buffers]
        return program.artifact(FORMAT, VERSION, json.dumps({"tensors": tensors, "layers": layers}).encode())


def _operand_bytes(step):
    """Return the bytes of a layer's operands and of its result, which the accelerator copies to its on-chip memory."""
    found = {"y": stored_bytes(step.parts[""].type)}
    for name, part in (("x", "a"), ("w", "b")) if step.name == "add" else (("x", "x"),):
        found[name] = stored_bytes(step.parts[part].type)
    if step.name in ("conv", "matmul"):
        found["w"] = weights_of(step.array("w"), grouped(step.parts)).nbytes
    return found


def _layer(step, keep):
    channels = step.parts[""].type.shape[1]
    layer = {"unit": step.name, "y": step.outputs[0], "channels": channels, "least": -128, "greatest": 127}
    if step.name == "add":
        both = decode_binary(step.parts)
        layer |= {"x": _operand(step, "a", keep), "w": _operand(step, "b", keep)}
        layer |= {"scales": [float(both.a.factor.scale[0]), float(both.b.factor.scale[0]), float(both.step)]}
        layer |= {"zeros": [both.a.zero_point, both.b.zero_point, both.output.zero_point]}
        return layer | {"least": both.output.least, "greatest": both.output.greatest}
    layer["x"] = _operand(step, "x", keep)
    if step.name in ("conv", "max_pool"):
        found = window(step.parts)
        layer |= {"kernel": found.kernel, "strides": found.strides, "before": found.before, "fill": found.fill}
    if step.name in ("conv", "matmul"):
        found, lanes = decode_layer(step.parts), whole(channels)
        layer |= {"w": keep(weights_of(step.array("w"), grouped(step.parts)))}
        for name, values in (("bias", found.bias), ("scale", found.factor.scale.astype(np.float32))):
            every = np.broadcast_to(values, channels)
            layer[name] = keep(np.pad(every, (0, lanes - channels)))
        layer |= {"zero": found.output.zero_point, "least": found.output.least, "greatest": found.output.greatest}
    return layer


def _operand(step, part, keep):
    """Return the buffer of a data operand. A constant operand is stored in the accelerator's layout too."""
    data = step.parts[part]
    return keep(form(data.type).layout.pack(step.array(part))) if isinstance(data, Constant) else step.buffer(part)
