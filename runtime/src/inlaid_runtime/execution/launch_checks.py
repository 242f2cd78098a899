"""Checks of launches: each kernel runs on arguments for which it is compiled.

A launch plan says which kernel runs when, and on what. The kernels say what they access (`KernelFunction`), since they are compiled
with the program. A plan whose launches pass the checks accesses no memory outside of the region's buffers, whatever else it says.
"""

from __future__ import annotations

from collections.abc import Sequence

from inlaid_runtime import arith
from inlaid_runtime.arith import SizeVar
from inlaid_runtime.errors import KernelFault
from inlaid_runtime.execution.launches import BUFFER_ALIGNMENT, HOST_VARIABLE, EvaluatedLaunch, KernelFunction, LaunchPlan, Stores
from inlaid_runtime.execution.sizes import Formula, evaluate_size

COMPUTED_BYTES = 8
"""Bytes of a computed dimension in a buffer: an int64."""
_CACHED = 256
"""Greatest number of sets of arguments for which the bytes of a kernel's buffers are cached."""


class KernelFootprint:
    """The number of bytes that a kernel accesses from the start of each buffer, as a function of its other arguments."""

    def __init__(self, function: KernelFunction) -> None:
        self._function = function
        self._names = tuple(map(SizeVar, function.names))
        self._bytes = [Formula(buffer.bytes) for buffer in function.buffers]
        self._extents = [Formula(dim) for dim in (*function.grid, *function.threads)]
        self._cache: dict[tuple[tuple[int, ...], ...], tuple[int, ...]] = {}

    def buffer_bytes(self, launch: EvaluatedLaunch) -> tuple[int, ...]:
        """Return the bytes of each buffer of a launch. Raises `KernelFault` for arguments for which the kernel is not compiled."""
        key = launch.scalars, launch.witnesses, launch.grid, launch.threads
        byte_counts = self._cache.get(key)
        if byte_counts is None:
            byte_counts = self._checked(launch)
            if len(self._cache) >= _CACHED:
                self._cache.clear()
            self._cache[key] = byte_counts
        return byte_counts

    def _checked(self, launch: EvaluatedLaunch) -> tuple[int, ...]:
        name = self._function.name
        sizes: dict[arith.Expr, int] = dict(zip(self._names, (*launch.scalars, *launch.witnesses), strict=True))
        for condition in self._function.conditions:
            if not evaluate_size(condition.dim, sizes):
                values = ", ".join(f"{size} = {value}" for size, value in sizes.items())
                raise KernelFault(f"kernel {name} is compiled for sizes with {condition.dim!r}, got {values}")
        extents = tuple(extent.evaluate_size(sizes) for extent in self._extents)
        if extents != (*launch.grid, *launch.threads):
            raise KernelFault(
                f"kernel {name} must be launched with grid and threads {extents}, got {(*launch.grid, *launch.threads)}"
            )
        byte_counts = tuple(size.evaluate_size(sizes) for size in self._bytes)
        assert None not in byte_counts  # the decoder has compared the variables
        return tuple(size for size in byte_counts if size is not None)


class LaunchChecks:
    """Checks the launches of one run of a region, in order."""

    def __init__(self, symbol: str, plan: LaunchPlan, footprints: Sequence[KernelFootprint], stores: Stores) -> None:
        self._symbol, self._plan, self._footprints, self._stores = symbol, plan, footprints, stores
        self._calls: dict[int, tuple[int, dict[str, int]]] = {}
        self._computed: dict[tuple[int, str], tuple[str, int, int]] = {}

    def check(self, launch: EvaluatedLaunch) -> None:
        """Check a launch. Raises `KernelFault` if a buffer is not in its storage, is not aligned, or overlaps a buffer that the
        launch writes; if the kernel is not compiled for the arguments; or if it reads a size that the call has not computed."""
        function = self._plan.kernels[launch.kernel]
        sizes = self._footprints[launch.kernel].buffer_bytes(launch)
        for (storage, index, offset), size in zip(launch.places, sizes, strict=True):
            room = self._stores[storage][index][2]
            if offset % BUFFER_ALIGNMENT or not 0 <= offset <= room - size:
                raise KernelFault(
                    f"region {self._symbol}: kernel {function.name} accesses {size} bytes at byte {offset} of its {storage}, which"
                    f" must be a multiple of {BUFFER_ALIGNMENT} and within {room} bytes"
                )
        spans = [(*address, size) for address, size in zip(launch.places, sizes, strict=True)]
        for number, parameter in enumerate(function.buffers):
            if parameter.writes:
                other_spans = (span for other, span in enumerate(spans) if other != number)
                if any(_overlap(spans[number], other) for other in other_spans):
                    raise KernelFault(
                        f"region {self._symbol}: kernel {function.name} must write a buffer that overlaps none of its others"
                    )
        self._check_computed(function, launch, spans)

    def _check_computed(
        self, function: KernelFunction, launch: EvaluatedLaunch, spans: Sequence[tuple[str, int, int, int]]
    ) -> None:
        """Check that computed sizes are written by the kernels that compute them, and read in the same call, for the same sizes."""
        if any(parameter.size for parameter in function.buffers):
            program, values = self._calls.setdefault(launch.call, (function.program, {}))
            arguments = zip(function.names, (*launch.scalars, *launch.witnesses), strict=True)
            call_sizes = {name: value for name, value in arguments if not name.startswith(HOST_VARIABLE)}
            if program != function.program or any(values.setdefault(name, value) != value for name, value in call_sizes.items()):
                raise KernelFault(
                    f"region {self._symbol}: call {launch.call} must launch kernels of one program, for one set of sizes"
                )
        written: dict[tuple[int, str], tuple[str, int, int]] = {}
        for address, parameter in zip(launch.places, function.buffers, strict=True):
            key = launch.call, parameter.size
            if parameter.size and parameter.reads and self._computed.get(key) != address:
                raise KernelFault(
                    f"region {self._symbol}: kernel {function.name} reads size {parameter.size} before it is computed"
                )
            if parameter.size and parameter.writes:
                written[key] = address
        for span, parameter in zip(spans, function.buffers, strict=True):
            if parameter.writes:
                for key, address in self._computed.items():
                    if written.get(key) != address and _overlap(span, (*address, COMPUTED_BYTES)):
                        raise KernelFault(
                            f"region {self._symbol}: kernel {function.name} must not overwrite the computed size {key[1]}"
                        )
        self._computed |= written

    def computed(self, address: tuple[str, int, int]) -> None:
        """Check the place of a computed size that the host reads. Raises `KernelFault` if it is not in its storage."""
        storage, index, offset = address
        room = self._stores[storage][index][2]
        if offset % COMPUTED_BYTES or not 0 <= offset <= room - COMPUTED_BYTES:
            raise KernelFault(
                f"region {self._symbol}: a computed size at byte {offset} of its {storage} must be within {room} bytes"
            )


def _overlap(one: tuple[str, int, int, int], other: tuple[str, int, int, int]) -> bool:
    """Test whether two spans, as (storage, index, byte offset, size), have a byte in common."""
    return one[:2] == other[:2] and one[2] < other[2] + other[3] and other[2] < one[2] + one[3]
