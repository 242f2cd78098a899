"""Regions as programs: a layer is an instruction."""

import numpy as np

from inlaid.ops.composites import output_stage, window
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
        sides = [step.quantised(part) for part in ("real_a", "real_b", "y")]
        scales, zeros = (np.stack([getattr(side, name) for side in sides]) for name in ("scale", "zero_point"))
        fields |= {"x": step.buffer("a"), "w": step.buffer("b"), "scale": keep(scales), "bias": keep(zeros.astype(np.int32))}
        return fields | {"least": int(zeros[2]) if "relu" in step else -128, "greatest": 127}
    fields["x"] = step.buffer("x")
    if step.name in ("conv", "max_pool"):
        found = window(step.parts)
        values = (*found.kernel, *found.strides, *found.before, found.fill)
        fields |= zip(("rows", "columns", "down", "right", "top", "left", "fill"), values, strict=True)
    if step.name in ("conv", "matmul", "mean"):
        stage = output_stage(step.parts)
        fields |= {"bias": keep(stage.bias), "scale": keep(stage.scale)}
        fields |= {"zero": stage.zero_point, "least": stage.least, "greatest": stage.greatest}
    return fields | ({"w": step.buffer("w")} if "w" in step else {})
