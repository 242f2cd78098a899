"""Ways to compile and run a program, with guarded memory."""

from __future__ import annotations

import ctypes
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from inlaid import ops
from inlaid.driver.compile import compile_module
from inlaid.driver.export import export_library
from inlaid.graph import ir
from inlaid.graph.operator import Operator
from inlaid.plugins.registry import default_registry
from inlaid_runtime import arith
from inlaid_runtime.arith import Dim, SizeVar
from inlaid_runtime.errors import InlaidError, Unsupported
from inlaid_runtime.execution.executable import Executable

from .guards import Array, Guards, guard_host_memory

Run = Callable[[Sequence[Any]], Sequence[Any]]
"""Runs a program on inputs in order and returns its results. Raises `InlaidError`."""


_LARGEST_WORKSPACE = 1 << 30
"""Greatest workspace in bytes of an exported library that is run: workspaces are planned for the greatest sizes."""


class Refused(InlaidError):
    """An exported library has returned an error code."""


class Way(ABC):
    """A way to run programs. Its constructor raises `InlaidError` if it is unavailable."""

    target: str

    def __init__(self, guards: Guards) -> None:
        self.guards = guards

    @abstractmethod
    def compile(self, module: ir.Module) -> Run:
        """Compile a module. Raises `InlaidError`."""


class Runtime(Way):
    """Inlaid's runtime, with host memory that is guarded."""

    def __init__(self, guards: Guards, target: str) -> None:
        super().__init__(guards)
        self.target = target
        self.registry = default_registry()
        self.registry.target(target)
        guard_host_memory(guards)

    def compile(self, module: ir.Module) -> Run:
        executable = compile_module(module, [self.target], self.registry)

        def run(inputs: Sequence[Any]) -> Sequence[Any]:
            for plan in executable._executor.plans.values():
                plan._pool.clear()  # a workspace of an earlier run may be larger than this one needs
            arrays = [self.guards.copy(item) if isinstance(item, np.ndarray) else item for item in inputs]
            return list(executable.run(dict(zip(self.names(executable), self.placed(executable, arrays), strict=True))).values())

        return run

    @staticmethod
    def names(executable: Executable) -> list[str]:
        return [spec.name for spec in executable.inputs]

    def placed(self, executable: Executable, inputs: Sequence[Any]) -> Sequence[Any]:
        """Return the inputs in the memory where the program is to read them."""
        return inputs


class Reference(Runtime):
    """The reference target. A package refers to operators by name, hence not to those that only passes build."""

    def compile(self, module: ir.Module) -> Run:
        for expr in ir.post_order(module.main):
            if isinstance(expr, ir.Call) and isinstance(expr.callee, Operator) and expr.callee not in ops.OPERATORS:
                raise Unsupported(f"only passes build {expr.callee.name}")
        return super().compile(module)


class OnDevice(Runtime):
    """A target with device memory: inputs are separate buffers of the device if something on the device reads them."""

    def placed(self, executable: Executable, inputs: Sequence[Any]) -> Sequence[Any]:
        if not self.guards.after:
            return inputs  # the run copies them to the arena
        return [executable.to_device(name, item) for name, item in zip(self.names(executable), inputs, strict=True)]


class OpenCL(OnDevice):
    """OpenCL on a processor: buffers are guarded host memory."""

    def __init__(self, guards: Guards) -> None:
        super().__init__(guards, "opencl")
        import pyopencl as cl

        from inlaid_opencl.device import OpenCLDevice, open_device

        if not open_device(0).device.host_unified_memory:
            raise Refused("buffers of this OpenCL device cannot be guarded: it has memory of its own")

        def create(device: OpenCLDevice, size: int, flags: int = 0) -> cl.Buffer:
            kind = cl.mem_flags.READ_WRITE | cl.mem_flags.USE_HOST_PTR | flags
            return cl.Buffer(device.context, kind, hostbuf=guards.empty((size,), np.uint8, 64))

        OpenCLDevice._create = create  # type: ignore[method-assign]


class Cuda(OnDevice):
    """CUDA kernels on the emulated device, whose allocations are guarded."""

    def __init__(self, guards: Guards) -> None:
        super().__init__(guards, "cuda:arch=host")
        from inlaid_cuda.emulation import build, driver

        if build.find_compiler() is None:
            raise Refused(f"there is no C++ compiler: {build.INSTALL}")
        allocate = driver.HostContext.allocate

        def guarded(context: Any, size: int) -> int:
            plain = allocate(context, size)
            memory = guards.empty((size,), np.uint8, 16)
            address: int = memory.ctypes.data
            entry = context.memories.pop(plain)
            context.memories[address] = driver._Memory((memory, entry.bytes), address, size)
            return address

        driver.HostContext.allocate = guarded  # type: ignore[method-assign]
        driver._Memory.intact = lambda memory: True  # type: ignore[method-assign]


class Library(Way):
    """An exported library, whose arguments and workspace are guarded."""

    target = "x86:threads=1"

    def __init__(self, guards: Guards, folder: Path) -> None:
        super().__init__(guards)
        self.registry = default_registry()
        self.registry.target(self.target)
        self.folder = folder
        self.count = 0

    def compile(self, module: ir.Module) -> Run:
        executable = compile_module(module, [self.target], self.registry)
        self.count += 1
        path = self.folder / f"libmodel{self.count}.so"
        exported = export_library(executable, path, registry=self.registry)
        if exported.workspace > _LARGEST_WORKSPACE:
            raise Unsupported(f"the workspace must have at most {_LARGEST_WORKSPACE} bytes")
        run_model = ctypes.CDLL(str(path))[f"model{self.count}_run"]
        run_model.restype = ctypes.c_int32

        def run(inputs: Sequence[Any]) -> Sequence[Any]:
            sizes: dict[arith.Expr, int] = {}
            for spec, item in zip(executable.inputs, inputs, strict=True):
                sizes |= {dim: extent for dim, extent in zip(spec.shape, item.shape, strict=True) if isinstance(dim, SizeVar)}
            shapes = [tuple(_extent(dim, sizes) for dim in spec.shape) for spec in executable.outputs]
            outputs = [
                self.guards.empty(shape, spec.dtype.numpy, 64)  # type: ignore[union-attr]
                for shape, spec in zip(shapes, executable.outputs, strict=True)
            ]
            arrays = [self.aligned(item) for item in inputs]
            workspace = self.guards.empty((exported.workspace,), np.uint8, 64)
            message = ctypes.create_string_buffer(256)
            code = run_model(
                *(ctypes.c_int64(sizes[SizeVar(name)]) for name in exported.sizes),
                *(ctypes.c_void_p(item.ctypes.data) for item in (*arrays, *outputs, workspace)),
                message,
            )
            if code:
                raise Refused(message.value.decode() or f"error code {code}")
            return outputs

        return run

    def aligned(self, array: Array) -> Array:
        """Allocate an aligned copy of an array (see `Guards.copy`)."""
        if not array.flags.c_contiguous:
            return array
        aligned_copy = self.guards.empty(array.shape, array.dtype, 64)
        aligned_copy[...] = array
        return aligned_copy


def _extent(dim: Dim, sizes: Mapping[arith.Expr, int]) -> int:
    """Return an extent of a result at any sizes, legal or not."""
    try:
        return max(arith.evaluate(dim, sizes), 0)
    except ZeroDivisionError:
        return 0


def _runtime(target: str) -> Callable[[Guards, Path], Way]:
    return lambda guards, folder: Runtime(guards, target)


WAYS: Mapping[str, Callable[[Guards, Path], Way]] = {
    "reference": lambda guards, folder: Reference(guards, "reference"),
    "x86": _runtime("x86:threads=1"),
    "x86-check": _runtime("x86:threads=1,check=true"),
    "opencl": lambda guards, folder: OpenCL(guards),
    "cuda": lambda guards, folder: Cuda(guards),
    "library": Library,
}
"""The ways to run programs, by name."""
BOUNDED = ("library",)
"""Ways for which sizes need upper bounds."""
