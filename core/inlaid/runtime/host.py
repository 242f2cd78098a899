"""The host-memory runtime that plugins share: native code behind one C ABI.

Every native region is a function

    int32_t region(const void *const *inputs, void *const *outputs, const void *const *constants,
                   int64_t *dims, void *workspace, inlaid_context *context);

    typedef struct {
        char message[256];   // the region's error message, UTF-8, ends with a zero byte
        void *user;          // the runtime module's own, such as a pool of threads
        uint64_t *clock;     // null, or where to note the time
    } inlaid_context;

Buffers are row-major and start at multiples of 64 bytes; sub-byte elements take a byte each. `dims` holds the dimensions of the
artifact's signature in its order: those of inputs and of the plan are given, those that the region works out are written by it.
An output with such a dimension is as large as the dimension's upper bound asks and is filled row-major at the actual size. The
result is 0, or an error code with a message in the context. The function may run in several threads at once, each with its own
workspace and context.

A region whose artifact lists its kernels has room at `clock`, unless that is null, for one number more than kernels: it stores a
counter that grows with time, such as the processor's cycle counter, when it begins and after each kernel.
"""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from inlaid.artifact import ALIGNMENT, Artifact
from inlaid.errors import KernelFault
from inlaid.plugins.contract import KernelTime
from inlaid.runtime.arrays import Array, address, put_addresses

MESSAGE_BYTES = 256


class Context(ctypes.Structure):
    """The C ABI's `inlaid_context`."""

    _fields_ = (("message", ctypes.c_char * MESSAGE_BYTES), ("user", ctypes.c_void_p), ("clock", ctypes.c_void_p))


REGION = ctypes.CFUNCTYPE(
    ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p
)
"""The C ABI as a ctypes function type. Calls through it release the interpreter lock."""


class _Block:
    """The arguments of calls from one thread: arrays of pointers of the right length, and a context. The addresses of the arrays
    that come with every call, `workspace` and `dims`, are remembered."""

    __slots__ = (
        "context", "context_address", "dims", "dims_address", "input_address", "inputs", "output_address", "outputs", "workspace",
        "workspace_address",
    )  # fmt: skip

    def __init__(self, inputs: int, outputs: int, user: int | None) -> None:
        self.inputs = (ctypes.c_void_p * max(inputs, 1))()
        self.outputs = (ctypes.c_void_p * max(outputs, 1))()
        self.context = Context(b"", user, None)
        self.input_address = ctypes.addressof(self.inputs)
        self.output_address = ctypes.addressof(self.outputs)
        self.context_address = ctypes.addressof(self.context)
        self.dims: Array | None = None
        self.workspace: Array | None = None
        self.dims_address = self.workspace_address = 0


class _Arguments(threading.local):
    """The block of the thread that asks."""

    def __init__(self, inputs: int, outputs: int, user: int | None) -> None:
        self.block = _Block(inputs, outputs, user)


class CFunctionKernel:
    """A kernel that is a native function of the C ABI.

    `entry` is its address; `constants` are the artifact's, in order; `owner` is kept alive as long as the kernel (the loaded
    library or the memory that holds the code); `user` is passed to the region in its context; `alignment`, in bytes, is what the
    region asks of its inputs.
    """

    def __init__(
        self,
        artifact: Artifact,
        entry: int,
        constants: Sequence[Array],
        owner: object,
        user: int | None = None,
        alignment: int = ALIGNMENT,
    ) -> None:
        self.alignment = alignment
        self._function = REGION(entry)
        self._symbol = artifact.symbol
        self._kernels = artifact.kernels
        self._owner = (owner, tuple(constants))
        self._constants = (ctypes.c_void_p * max(len(constants), 1))(*map(address, constants))
        self._constants_address = ctypes.addressof(self._constants)
        self._arguments = _Arguments(len(artifact.signature.inputs), len(artifact.signature.outputs), user)

    def invoke(self, inputs: Sequence[Array], outputs: Sequence[Array], workspace: Array, dims: np.ndarray[Any, Any]) -> None:
        """Run the region (see `inlaid.plugins.contract.Kernel`)."""
        block = self._arguments.block
        put_addresses(block.inputs, inputs)
        put_addresses(block.outputs, outputs)
        if dims is not block.dims:
            block.dims, block.dims_address = dims, address(dims)
        if workspace is not block.workspace:
            block.workspace, block.workspace_address = workspace, address(workspace)
        code = self._function(
            block.input_address,
            block.output_address,
            self._constants_address,
            block.dims_address,
            block.workspace_address,
            block.context_address,
        )
        if code:
            text = block.context.message.decode("utf-8", "replace") or f"error code {code}"
            block.context.message = b""
            raise KernelFault(f"region {self._symbol}: {text}")

    def profile(
        self, inputs: Sequence[Array], outputs: Sequence[Array], workspace: Array, dims: np.ndarray[Any, Any]
    ) -> Sequence[KernelTime]:
        """Run the region and say how long each of its kernels took: nothing where the artifact lists none."""
        clock = np.zeros(len(self._kernels) + 1, np.uint64)
        context = self._arguments.block.context
        context.clock = address(clock) if self._kernels else None
        begin = time.perf_counter()
        try:
            self.invoke(inputs, outputs, workspace, dims)
        finally:
            context.clock = None
        elapsed = time.perf_counter() - begin
        # The counter's unit is its own: what it counted in all took the time that the call took.
        ticks = clock - clock[0]
        stops = (ticks * (elapsed / max(int(ticks[-1]), 1))).tolist()
        return [
            KernelTime(kernel.name, kernel.nodes, start, stop - start)
            for kernel, start, stop in zip(self._kernels, stops, stops[1:], strict=False)
        ]


class HostRuntime:
    """What runtime modules over host memory have in common; a plugin adds `load`.

    `features` are what this machine has of the things that artifacts may require.
    """

    def __init__(self, format: str, format_version: int, features: Collection[str] = ()) -> None:
        self.format = format
        self.format_version = format_version
        self.features = frozenset(features)

    def check(self, artifact: Artifact) -> str | None:
        """None when the artifact's format, version and requirements fit, else the reason why not."""
        if artifact.format != self.format:
            return f"the code is {artifact.format}, this runtime loads {self.format}"
        if artifact.format_version != self.format_version:
            return (
                f"the code is {artifact.format} version {artifact.format_version}, this runtime loads version {self.format_version}"
            )
        missing = [feature for feature in artifact.requires if feature not in self.features]
        return f"this machine has no {', '.join(missing)}" if missing else None
