"""The machine of the fleet: a code generator that writes JSON, and a runtime that follows it."""

import json
import weakref

import numpy as np

from inlaid.plugins import Codegen as Base
from inlaid_runtime.errors import KernelFault, Unsupported
from inlaid_runtime.execution.host import HostRuntime
from inlaid_runtime.plugins import Loaded

FORMAT = "fleet-json"
OPERATORS = ("affine", "negated", "add", "mul", "relu", "take", "scaled", "conv", "max_pool")
WINDOWS = ("conv", "max_pool")
OPERANDS = {
    **dict.fromkeys(("relu", "negated", "max_pool"), ("x",)),
    **dict.fromkeys(("affine", "scaled"), ("x", "w", "b")),
    "take": ("x", "indices"),
    "conv": ("x", "w"),
}
"""Names of operands, where they are not a and b."""


class Codegen(Base):
    format = FORMAT

    def compile(self, unit, context):
        program = context.steps(unit)
        unknown = {step.name for step in program.steps} - {*OPERATORS}
        if unknown:
            raise Unsupported(f"the machine has no {', '.join(sorted(unknown))}")
        steps = [self.step(step) for step in program.steps]
        buffers = [[buffer.storage, buffer.index] for buffer in program.buffers]
        return program.artifact(self.format, 1, json.dumps({"steps": steps, "buffers": buffers}).encode())

    def step(self, step):
        return [step.name, self.sources(step), step.outputs[0], self.attributes(step)]

    def attributes(self, step):
        """Arguments of the kernel's function, by name."""
        if step.name == "take":
            return {"axis": step.attrs().axis}
        if step.name not in WINDOWS:
            return {}
        attrs = step.attrs()
        window_attributes = {
            "strides": attrs.strides or (1, 1),
            "dilations": attrs.dilations or (1, 1),
            "pads": attrs.pads or (0,) * 4,
        }
        return (
            {**window_attributes, "kernel": attrs.kernel}
            if step.name == "max_pool"
            else {**window_attributes, "groups": attrs.groups}
        )

    def sources(self, step):
        return [step.buffer(part) for part in OPERANDS.get(step.name, ("a", "b"))]


class Runtime(HostRuntime):
    """Counts the bytes of code of the kernels that are alive."""

    kernel = None

    def __init__(self):
        super().__init__(FORMAT, 1)
        self.live = 0
        self.closed = False

    def load(self, artifact, constants):
        if self.closed:
            raise Unsupported("the machine is closed")
        kernel = (self.kernel or Kernel)(artifact, constants)
        self.live += len(artifact.code)
        weakref.finalize(kernel, self.release, len(artifact.code))
        return Loaded(allocating=kernel) if hasattr(kernel, "call") else Loaded(kernel)

    def release(self, count):
        self.live -= count

    def live_bytes(self):
        return self.live

    def close(self):
        self.closed = True


class Kernel:
    def __init__(self, artifact, constants):
        self.program = self.parsed(artifact.code)
        self.constants = list(constants.values())

    def parsed(self, code):
        try:
            return json.loads(code)
        except ValueError as error:
            raise Unsupported(f"expected JSON, found {error}") from error

    def invoke(self, inputs, outputs, workspace, dims):
        values = {}
        for number, (storage, index) in enumerate(self.program["buffers"]):
            if storage in ("input", "constant"):
                values[number] = (inputs if storage == "input" else self.constants)[index]
        for name, sources, target, attributes in self.program["steps"]:
            values[target] = self.apply(name, [values[number] for number in sources], attributes)
        for number, (storage, index) in enumerate(self.program["buffers"]):
            if storage == "output":
                np.copyto(outputs[index], values[number])

    def apply(self, name, operands, attributes):
        with np.errstate(all="ignore"):
            return getattr(self, name)(*operands, **attributes)

    def add(self, a, b):
        return a + b

    def mul(self, a, b):
        return a * b

    def relu(self, x):
        return np.maximum(x, np.float32(0))

    def negated(self, x):
        return -x

    def affine(self, x, w, b):
        return x @ w + b

    def scaled(self, x, w, b):
        return x * w + b

    def windows(self, x, kernel, strides, dilations, pads, outside):
        """The elements of an image by place in the kernel: N C height width kernel."""
        (top, left, bottom, right), (rows, columns) = pads, kernel
        wide = np.pad(x, ((0, 0), (0, 0), (top, bottom), (left, right)), constant_values=outside)
        spans = [(extent - 1) * by + 1 for extent, by in zip(kernel, dilations, strict=True)]
        ends = [extent - span + 1 for extent, span in zip(wide.shape[2:], spans, strict=True)]
        taps = [
            wide[:, :, row * dilations[0] :, column * dilations[1] :][:, :, : ends[0] : strides[0], : ends[1] : strides[1]]
            for row in range(rows)
            for column in range(columns)
        ]
        return np.stack(taps, -1)

    def max_pool(self, x, kernel, strides, dilations, pads):
        return self.windows(x, kernel, strides, dilations, pads, -np.inf).max(-1)

    def conv(self, x, w, strides, dilations, pads, groups):
        taps = self.windows(x, w.shape[2:], strides, dilations, pads, 0)
        parts = zip(np.split(taps, groups, 1), np.split(w.reshape(*w.shape[:2], -1), groups), strict=True)
        return np.concatenate([np.einsum("nchwk,ock->nohw", *part) for part in parts], 1)

    def take(self, x, where, axis):
        extent = x.shape[axis]
        if where.size and (where.min() < -extent or where.max() >= extent):
            raise KernelFault("the machine found an index out of range")
        return np.take(x, where, axis)
