"""Code generator: a region becomes a program in JSON, with one instruction per layer over numbered buffers."""

import json

import numpy as np

from inlaid.graph.ir import Constant
from inlaid.ops.composites import decode_average_pool, decode_binary, decode_layer
from inlaid.plugins import Codegen, Scratch
from inlaid_acme.hardware import FORMAT, FORMAT_VERSION, LANES, blocks
from inlaid_acme.layer import form, make_layer


class AcmeCodegen(Codegen):
    def borders(self, region):
        return region.stored_as(form)

    def compile(self, unit, context):
        program = context.steps(unit, form, on_chip)
        instructions = [instruction(step, program) for step in program.steps]
        buffers = {
            number: {
                "storage": buffer.storage,
                "place": buffer.offset if buffer.storage == "arena" else buffer.index,
                "shape": buffer.shape,
                "dtype": buffer.dtype.name,
            }
            for number, buffer in enumerate(program.buffers)
            if buffer.scope == ""
        }
        code = json.dumps({"buffers": buffers, "instructions": instructions})
        return program.artifact(FORMAT, FORMAT_VERSION, code.encode())


def on_chip(step):
    """Return the on-chip buffers of a step: two per data operand, one for weights if there are any, and one for the result."""
    *data, weights, result = make_layer(step.name, step.parts).tile().sizes
    sizes = [*(size for size in data for _ in range(2)), *([weights] if weights else []), result]
    return [Scratch(size, "scratch") for size in sizes]


def instruction(step, program):
    """Return the instruction of a step: its geometry, its tile, and the parameters of its unit."""
    layer = make_layer(step.name, step.parts)
    tile, geometry = layer.tile(), layer.window
    fields = {
        "unit": step.name,
        "inputs": [operand(step, part, program) for part in "abx" if part in step],
        "output": step.outputs[0],
        "data": layer.data,
        "result": layer.result,
        "channels": step.parts["y"].type.shape[1],
        "tile": (tile.rows, tile.blocks),
        "scratch": [program.buffers[number].offset for number in step.scratch],
        "kernel": geometry.kernel,
        "strides": geometry.strides,
        "dilations": geometry.dilations,
        "before": geometry.before,
        "fill": geometry.fill,
        "least": -128,
        "greatest": 127,
    }
    if step.name in ("conv", "matmul", "mean"):
        fields |= output_stage(decode_layer(step.parts), fields["channels"], program)
    if step.name in ("conv", "matmul"):
        fields["dense"] = layer.dense
        fields["weights"] = program.constant(pack_weights(step.array("w"), layer.dense))
    if step.name == "add":
        fields |= addition(decode_binary(step.parts))
    if step.name == "average_pool":
        pool = decode_average_pool(step.parts)
        fields["divisors"] = program.constant(np.broadcast_to(pool.divisors, layer.result[1:3]).astype(np.int32))
        fields |= bounds(pool.output)
    return fields


def operand(step, part, program):
    """Return the buffer of a data operand. A constant is row-major, and is packed as the hardware stores tensors."""
    expression = step.parts[part]
    if not isinstance(expression, Constant):
        return step.buffer(part)
    return program.constant(form(expression.type).layout.pack(expression.data))


def pack_weights(weights, dense):
    """Pack weights O I H W, or I O of a matrix product, as O/16 H W I 16; weights of one channel each as O/16 H W 16."""
    if weights.ndim == 2:
        weights = weights.T[:, :, None, None]
    outputs, inputs, *kernel = weights.shape
    rows = blocks(inputs) * LANES if dense else 1
    padded = np.zeros((blocks(outputs) * LANES, rows, *kernel), np.int8)
    padded[:outputs, :inputs] = weights
    packed = padded.reshape(-1, LANES, rows, *kernel).transpose(0, 3, 4, 2, 1)
    return np.ascontiguousarray(packed if dense else packed[:, :, :, 0])


def output_stage(layer, channels, program):
    """Return the parameters of the output stage: a table of biases, multipliers and shifts per lane, and the bounds."""
    table = np.zeros((3, blocks(channels) * LANES), np.int32)
    for row, values in zip(table, (layer.bias, layer.factor.multipliers, layer.factor.shifts), strict=True):
        row[:channels] = values
    return {"table": program.constant(table), "rounding": layer.factor.rounding, **bounds(layer.output)}


def addition(binary):
    """Return the parameters of an addition: in integers, or of the float32 form, which has a scale per operand and a step."""
    sides = (binary.a, binary.b)
    fields = {"zero_points": [side.zero_point for side in sides], **bounds(binary.output)}
    if binary.step is not None:
        return fields | {"scales": [float(side.factor.scale[0]) for side in sides], "step": float(binary.step)}
    operands = [(side.left, *scalars(side.factor)) for side in sides]
    return fields | {"operands": operands, "bias": binary.bias, "factor": scalars(binary.factor)}


def scalars(factor):
    """Return a factor as multiplier, shift and rounding."""
    return int(factor.multipliers[0]), int(factor.shifts[0]), factor.rounding


def bounds(output):
    return {"zero_point": output.zero_point, "least": output.least, "greatest": output.greatest}
