"""Code generator: a region becomes a program with one instruction per layer."""

import numpy as np

from inlaid.ops.composites import decode_binary, decode_layer, window
from inlaid.plugins import Codegen
from inlaid_npu.isa import FIELDS, FORMAT, HEADER, INSTRUCTION, MAGIC, OPCODES, STORAGES, TENSOR, TYPES, VERSION


class NpuCodegen(Codegen):
    def compile(self, unit, context):
        program = context.steps(unit)
        layers = [_fields(step, program.constant) for step in program.steps]
        words = [INSTRUCTION.pack(*(fields.get(name, -1) for name in FIELDS)) for fields in layers]
        tensors = [_tensor(buffer) for buffer in program.buffers]
        code = HEADER.pack(MAGIC, len(tensors), len(words)) + b"".join(tensors + words)
        return program.artifact(FORMAT, VERSION, code)


def _tensor(buffer):
    place = buffer.offset if buffer.storage == "arena" else buffer.index
    sizes = (*buffer.shape, 1, 1, 1, 1)[:4]
    return TENSOR.pack(STORAGES.index(buffer.storage), TYPES.index(buffer.dtype.name), len(buffer.shape), place, *sizes)


def _fields(step, keep):
    fields = {"opcode": OPCODES.index(step.name), "y": step.outputs[0]}
    if step.name == "add":
        both = decode_binary(step.parts)
        scales = np.array([both.a.factor.scale[0], both.b.factor.scale[0], both.step], np.float32)
        zeros = np.array([both.a.zero_point, both.b.zero_point, both.output.zero_point], np.int32)
        fields |= {"x": step.buffer("a"), "w": step.buffer("b"), "scale": keep(scales), "bias": keep(zeros)}
        return fields | {"least": both.output.least, "greatest": both.output.greatest}
    fields["x"] = step.buffer("x")
    if step.name in ("conv", "max_pool"):
        found = window(step.parts)
        values = (*found.kernel, *found.strides, *found.before, found.fill)
        fields |= zip(("rows", "columns", "down", "right", "top", "left", "fill"), values, strict=True)
    if step.name in ("conv", "matmul", "mean"):
        layer = decode_layer(step.parts)
        fields |= {"bias": keep(layer.bias), "scale": keep(layer.factor.scale.astype(np.float32))}
        fields |= {"zero": layer.output.zero_point, "least": layer.output.least, "greatest": layer.output.greatest}
    return fields | ({"w": step.buffer("w")} if "w" in step else {})
