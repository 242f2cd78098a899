"""The host-memory runtime shared by plugins: native code with one C ABI.

Every native region is a function

    int32_t region(const void *const *inputs, void *const *outputs, const void *const *constants,
                   int64_t *dims, void *workspace, inlaid_context *context);

    typedef struct {
        char message[256];   // the region's error message, UTF-8, null-terminated
        void *user;          // data of the runtime module, such as a thread pool
        uint64_t *clock;     // null, or an array for time stamps
        int32_t (*signalled)(void);  // null, or a function to poll for signals
        uint64_t own[3];     // for use by the region
    } inlaid_context;

Buffers are row-major and aligned to 64 bytes; sub-byte elements take one byte each. `dims` holds the dimensions of the artifact's
signature in order: the caller sets dimensions of inputs and of the plan, and the region writes computed dimensions. An output with
a computed dimension is allocated at the dimension's upper bound and filled row-major at the actual size. The result is 0, or an
error code with a message in the context. The function must be thread-safe; each thread has its own workspace and context.

A region that computes dimensions checks the constraints on them itself, before a kernel accesses memory by these dimensions (see
`inlaid.tensor.region.KernelCall.checks`). If constraint number k of the artifact does not hold, the result is `VIOLATION - k`.

If `clock` is not null, a region whose artifact lists its kernels writes a time stamp, such as a cycle counter, to `clock[0]` when
it starts, and another time stamp after each kernel.

If `signalled` is not null, a long-running region calls it every few milliseconds from the calling thread. If the result is nonzero,
a signal ends the run: the region must return an error code as soon as possible.
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

from inlaid_runtime.artifact import ALIGNMENT, Artifact
from inlaid_runtime.errors import KernelFault
from inlaid_runtime.execution.arrays import Array, address, put_addresses
from inlaid_runtime.execution.invoked import violation
from inlaid_runtime.plugins.runtime_module import KernelTime, Loaded, RuntimeModule

MESSAGE_BYTES = 256
VIOLATION = -2
"""Error code of a region for a violation of its artifact's first constraint; the codes of the others follow downwards."""


class Context(ctypes.Structure):
    """The struct `inlaid_context` of the C ABI."""

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
"""The C ABI as a ctypes function type. Calls through it release the GIL."""


SIGNALLED = ctypes.CFUNCTYPE(ctypes.c_int32)
"""The type of the context's `signalled`. Calls through it acquire the GIL."""


class Interruption(KeyboardInterrupt):
    """Raised if a Python signal handler raised `error` while a region ran."""

    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self.error = error


def _signals(raised: list[BaseException]) -> Iterator[int]:
    """Let Python run pending signal handlers. Yields 1 if one raised, with the exception appended to `raised`, else 0.

    Python runs signal handlers when a generator resumes, here inside the `try`. In a function, handlers would run before the first
    line, outside of its `try`, and ctypes discards exceptions of callbacks.
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


class _CallArguments:
    """Call arguments of one thread: pointer arrays, one element per operand, and a context. The addresses of `workspace` and `dims`
    are cached, since calls repeat them. `busy` is set during a call. In the main thread, which runs signal handlers, `raised`
    collects their exceptions."""

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
    """The argument block of the current thread."""

    def __init__(self, inputs: int, outputs: int, user: int | None) -> None:
        self.fresh = functools.partial(_CallArguments, inputs, outputs, user)
        self.block = self.fresh()


class CFunctionKernel:
    """A kernel that is a native function with the C ABI.

    `entry` is the function's address; `constants` are the artifact's constants, in order; `owner`, such as the loaded library, is
    kept alive by the kernel; `user` is passed to the region in its context.
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
        self._artifact = artifact
        self._kernels = len(artifact.kernels)
        self._owner = (owner, tuple(constants))
        self._constants = (ctypes.c_void_p * max(len(constants), 1))(*map(address, constants))
        self._constants_address = ctypes.addressof(self._constants)
        self._arguments = _Arguments(len(artifact.signature.inputs), len(artifact.signature.outputs), user)

    def invoke(self, inputs: Sequence[Array], outputs: Sequence[Array], workspace: Array, dims: np.ndarray[Any, Any]) -> None:
        """Run the region (see `inlaid_runtime.plugins.Kernel`). Raises `Interruption` if a signal handler raises."""
        block = self._arguments.block
        if block.busy:  # a signal handler runs the region that it interrupted
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
            raise violation(self._artifact, VIOLATION - code, dims.tolist()) or KernelFault(
                f"region {self._artifact.symbol}: {text}"
            )

    def profile(
        self, inputs: Sequence[Array], outputs: Sequence[Array], workspace: Array, dims: np.ndarray[Any, Any]
    ) -> Sequence[KernelTime]:
        """Run the region and return the times of its kernels; empty if the artifact lists none."""
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
        # The counter's unit is unknown: scale so that all ticks together equal the duration of the call.
        ticks = clock - clock[0]
        stops = (ticks * (elapsed / max(int(ticks[-1]), 1))).tolist()
        return [KernelTime(number, start, stop - start) for number, (start, stop) in enumerate(itertools.pairwise(stops))]

    def loaded(self, alignment: int = ALIGNMENT) -> Loaded:
        """Return the `Loaded` for `RuntimeModule.load`. `alignment` is the alignment of the region's inputs, in bytes."""
        return Loaded(self, profile=self.profile, alignment=alignment)


class HostRuntime(RuntimeModule):
    """Base class of runtime modules that use host memory. A plugin implements `load`.

    `features` are the features of this machine that artifacts may require.
    """

    def __init__(self, format: str, format_version: int, features: Collection[str] = ()) -> None:
        self.format = format
        self.format_version = format_version
        self.features = frozenset(features)

    def check(self, artifact: Artifact) -> str | None:
        """Return None if the artifact's format, version and requirements fit, else the reason why not."""
        if artifact.format != self.format:
            return f"expected code in format {self.format}, got {artifact.format}"
        if artifact.format_version != self.format_version:
            expected = f"expected {artifact.format} version {self.format_version}"
            return f"{expected}, got version {artifact.format_version}; compile the model again"
        missing = [feature for feature in artifact.requires if feature not in self.features]
        return f"this machine lacks {', '.join(missing)}" if missing else None
