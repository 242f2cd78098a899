"""The machine of the fleet: a code generator that writes JSON, and a runtime that follows it."""

import json
import weakref

import numpy as np

from inlaid.errors import KernelFault, Unsupported
from inlaid.plugins import Codegen as Base
from inlaid.plugins import Loaded
from inlaid.runtime.host import HostRuntime

FORMAT = "fleet-json"
OPERATORS = ("affine", "negated", "add", "mul", "relu", "take")


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
        axis = step.attrs().axis if step.name == "take" else 0
        sources = [step.buffer(name) for name in "xwb"] if step.name == "affine" else self.sources(step)
        return [step.name, sources, step.outputs[0], axis]

    def sources(self, step):
        parts = {"relu": ("x",), "negated": ("x",), "take": ("x", "indices")}.get(step.name, ("a", "b"))
        return [step.buffer(part) for part in parts]


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
        self.program = json.loads(artifact.code)
        self.constants = list(constants.values())

    def invoke(self, inputs, outputs, workspace, dims):
        values = {}
        for number, (storage, index) in enumerate(self.program["buffers"]):
            if storage in ("input", "constant"):
                values[number] = (inputs if storage == "input" else self.constants)[index]
        for name, sources, target, axis in self.program["steps"]:
            values[target] = self.apply(name, [values[number] for number in sources], axis)
        for number, (storage, index) in enumerate(self.program["buffers"]):
            if storage == "output":
                np.copyto(outputs[index], values[number])

    def apply(self, name, given, axis):
        with np.errstate(all="ignore"):
            return getattr(self, name)(*given, axis) if name == "take" else getattr(self, name)(*given)

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

    def take(self, x, where, axis):
        extent = x.shape[axis]
        if where.size and (where.min() < -extent or where.max() >= extent):
            raise KernelFault("the machine found an index out of range")
        return np.take(x, where, axis)
