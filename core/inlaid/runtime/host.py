"""The host-memory runtime that plugins share: native code behind one C ABI.

Every native region is a function

    int32_t region(const void *const *inputs, void *const *outputs, const void *const *constants,
                   int64_t *dims, void *workspace, inlaid_context *context);

    typedef struct {
        char message[256];   // the region's error message, UTF-8, ends with a zero byte
        void *user;          // the runtime module's own, such as a pool of threads
        uint64_t *clock;     // null, or where to note the time
        int32_t (*signalled)(void);  // null, or what to call from time to time
        uint64_t own[3];     // the region's own
    } inlaid_context;

Buffers are row-major and start at multiples of 64 bytes; sub-byte elements take a byte each. `dims` holds the dimensions of the
artifact's signature in its order: those of inputs and of the plan are given, those that the region works out are written by it.
An output with such a dimension is as large as the dimension's upper bound asks and is filled row-major at the actual size. The
result is 0, or an error code with a message in the context. The function may run in several threads at once, each with its own
workspace and context.

A region whose artifact lists its kernels has room at `clock`, unless that is null, for one number more than kernels: it stores a
counter that grows with time, such as the processor's cycle counter, when it begins and after each kernel.

A region that takes long calls `signalled`, unless that is null, every few milliseconds from the thread that called it. Where that
does not return 0, a signal is to end the run: the region returns an error code as soon as it can.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
import threading
import time
from collections.abc import Collection, Iterator, Sequence
from typing import Any

import numpy as np

from inlaid.artifact import ALIGNMENT, Artifact
from inlaid.errors import KernelFault
from inlaid.plugins.runtime_module import KernelTime, Loaded, RuntimeModule
from inlaid.runtime.arrays import Array, address, put_addresses

MESSAGE_BYTES = 256


class Context(ctypes.Structure):
    """The C ABI's `inlaid_context`."""

    _fields_ = (
        ("message", ctypes.c_char * MESSAGE_BYTES),
        ("user", ctypes.c_void_p),
        ("clock", ctypes.c_void_p),
        ("signalled", ctypes.c_void_p),
        ("own", ctypes.c_uint64 * 3),
    )


REGION = ctypes.CFUNCTYPE(
    ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p
)
"""The C ABI as a ctypes function type. Calls through it release the interpreter lock."""


SIGNALLED = ctypes.CFUNCTYPE(ctypes.c_int32)
"""The type of the context's `signalled`. Calls through it take the interpreter lock."""


class Interruption(KeyboardInterrupt):
    """A handler of Python's raised `error` on a signal that came while a region ran."""

    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self.error = error


def _signals(raised: list[BaseException]) -> Iterator[int]:
    """Let Python run the handlers of signals that have come: 1 where one raised, with what it raised in the list, else 0.

    Python runs them when a generator goes on, here inside of the `try`. At the call of a function it would be before its first
    line, and ctypes drops what a callback raises.
    """
    answer = 0
    while True:
        try:
            while True:
                yield answer
                answer = 0
        except GeneratorExit:
            return
        except BaseException as error:
            raised.append(error)
            answer = 1


class _Block:
    """The arguments of calls from one thread: arrays of pointers of the right length, and a context. The addresses of the arrays
    that come with every call, `workspace` and `dims`, are remembered. `busy` while a call runs. In the main thread, where Python
    runs the handlers of signals, `raised` takes what one raises meanwhile."""

    __slots__ = (
        "busy", "context", "context_address", "dims", "dims_address", "input_address", "inputs", "output_address", "outputs",
        "raised", "signalled", "workspace", "workspace_address",
    )  # fmt: skip

    def __init__(self, inputs: int, outputs: int, user: int | None) -> None:
        self.inputs = (ctypes.c_void_p * max(inputs, 1))()
        self.outputs = (ctypes.c_void_p * max(outputs, 1))()
        self.context = Context(b"", user, None, None)
        self.busy = False
        self.raised: list[BaseException] = []
        self.signalled: object = None
        if threading.current_thread() is threading.main_thread():
            signals = _signals(self.raised)
            next(signals)
            self.signalled = SIGNALLED(signals.__next__)
            self.context.signalled = ctypes.cast(self.signalled, ctypes.c_void_p)
        self.input_address = ctypes.addressof(self.inputs)
        self.output_address = ctypes.addressof(self.outputs)
        self.context_address = ctypes.addressof(self.context)
        self.dims: Array | None = None
        self.workspace: Array | None = None
        self.dims_address = self.workspace_address = 0


class _Arguments(threading.local):
    """The block of the thread that asks."""

    def __init__(self, inputs: int, outputs: int, user: int | None) -> None:
        self.fresh = functools.partial(_Block, inputs, outputs, user)
        self.block = self.fresh()


class CFunctionKernel:
    """A kernel that is a native function of the C ABI.

    `entry` is its address; `constants` are the artifact's, in order; `owner` is kept alive as long as the kernel (the loaded
    library or the memory that holds the code); `user` is passed to the region in its context.
    """

    def __init__(
        self,
        artifact: Artifact,
        entry: int,
        constants: Sequence[Array],
        owner: object,
        user: int | None = None,
    ) -> None:
        self._function = REGION(entry)
        self._symbol = artifact.symbol
        self._kernels = len(artifact.kernels)
        self._owner = (owner, tuple(constants))
        self._constants = (ctypes.c_void_p * max(len(constants), 1))(*map(address, constants))
        self._constants_address = ctypes.addressof(self._constants)
        self._arguments = _Arguments(len(artifact.signature.inputs), len(artifact.signature.outputs), user)

    def invoke(self, inputs: Sequence[Array], outputs: Sequence[Array], workspace: Array, dims: np.ndarray[Any, Any]) -> None:
        """Run the region (see `inlaid.plugins.Kernel`). Raises `Interruption` where the handler of a signal raises."""
        block = self._arguments.block
        if block.busy:  # the handler of a signal runs the region that the signal has interrupted
            block = self._arguments.fresh()
        put_addresses(block.inputs, inputs)
        put_addresses(block.outputs, outputs)
        if dims is not block.dims:
            block.dims, block.dims_address = dims, address(dims)
        if workspace is not block.workspace:
            block.workspace, block.workspace_address = workspace, address(workspace)
        block.busy = True
        try:
            code = self._function(
                block.input_address,
                block.output_address,
                self._constants_address,
                block.dims_address,
                block.workspace_address,
                block.context_address,
            )
        finally:
            block.busy = False
        if code:
            if block.raised:
                block.context.message = b""
                raise Interruption(block.raised.pop())
            text = block.context.message.decode("utf-8", "replace") or f"error code {code}"
            block.context.message = b""
            raise KernelFault(f"region {self._symbol}: {text}")

    def profile(
        self, inputs: Sequence[Array], outputs: Sequence[Array], workspace: Array, dims: np.ndarray[Any, Any]
    ) -> Sequence[KernelTime]:
        """Run the region and say how long each of its kernels took: nothing where the artifact lists none."""
        if self._arguments.block.busy:
            self.invoke(inputs, outputs, workspace, dims)
            return []
        clock = np.zeros(self._kernels + 1, np.uint64)
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
        return [KernelTime(number, start, stop - start) for number, (start, stop) in enumerate(itertools.pairwise(stops))]

    def loaded(self, alignment: int = ALIGNMENT) -> Loaded:
        """What `RuntimeModule.load` returns. `alignment`, in bytes, is what the region asks of its inputs."""
        return Loaded(self, profile=self.profile, alignment=alignment)


class HostRuntime(RuntimeModule):
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
