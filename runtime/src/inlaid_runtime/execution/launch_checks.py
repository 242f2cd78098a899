"""Checks of launches: each kernel runs on arguments for which it is compiled.

A launch plan says which kernel runs when, and on what. The kernels say what they access (`KernelFunction`), since they are compiled
with the program. A plan whose launches fulfil the checks accesses no memory outside of the region's buffers, whatever it says
otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence

from inlaid_runtime import arith
from inlaid_runtime.arith import SizeVar
from inlaid_runtime.errors import KernelFault
from inlaid_runtime.execution.launches import BUFFER_ALIGNMENT, HOST_VARIABLE, KernelFunction, LaunchPlan, Ready, Stores
from inlaid_runtime.execution.sizes import Formula, known

COMPUTED_BYTES = 8
"""Bytes of a computed dimension in a buffer: an int64."""
_CACHED = 256
"""Greatest number of sets of arguments for which the bytes of a kernel's buffers are cached."""


class KernelNeeds:
    """The bytes that a kernel accesses behind each buffer, by its other arguments."""

    def __init__(self, function: KernelFunction) -> None:
        self._function = function
        self._names = tuple(map(SizeVar, function.names))
        self._bytes = [Formula(buffer.bytes) for buffer in function.buffers]
        self._extents = [Formula(dim) for dim in (*function.grid, *function.threads)]
        self._found: dict[tuple[tuple[int, ...], ...], tuple[int, ...]] = {}

    def of(self, ready: Ready) -> tuple[int, ...]:
        """Return the bytes of each buffer of a launch. Raises `KernelFault` for arguments for which the kernel is not compiled."""
        key = ready.scalars, ready.witnesses, ready.grid, ready.threads
        found = self._found.get(key)
        if found is None:
            found = self._checked(ready)
            if len(self._found) >= _CACHED:
                self._found.clear()
            self._found[key] = found
        return found

    def _checked(self, ready: Ready) -> tuple[int, ...]:
        name = self._function.name
        sizes: dict[arith.Expr, int] = dict(zip(self._names, (*ready.scalars, *ready.witnesses), strict=True))
        for condition in self._function.conditions:
            if not known(condition.dim, sizes):
                values = ", ".join(f"{size} = {value}" for size, value in sizes.items())
                raise KernelFault(f"kernel {name} is compiled for sizes with {condition.dim!r}, got {values}")
        extents = tuple(extent.known(sizes) for extent in self._extents)
        if extents != (*ready.grid, *ready.threads):
            raise KernelFault(
                f"kernel {name} must be launched with grid and threads {extents}, got {(*ready.grid, *ready.threads)}"
            )
        found = tuple(size.known(sizes) for size in self._bytes)
        assert None not in found  # the decoder has compared the variables
        return tuple(size for size in found if size is not None)


class LaunchChecks:
    """Checks the launches of one run of a region, in order."""

    def __init__(self, symbol: str, plan: LaunchPlan, needs: Sequence[KernelNeeds], stores: Stores) -> None:
        self._symbol, self._plan, self._needs, self._stores = symbol, plan, needs, stores
        self._calls: dict[int, tuple[int, dict[str, int]]] = {}
        self._computed: dict[tuple[int, str], tuple[str, int, int]] = {}

    def check(self, ready: Ready) -> None:
        """Check a launch. Raises `KernelFault` if a buffer is not in its storage, is not aligned, or overlaps a buffer that the
        launch writes; if the kernel is not compiled for the arguments; or if it reads a size that the call has not computed."""
        function = self._plan.kernels[ready.kernel]
        sizes = self._needs[ready.kernel].of(ready)
        for (storage, index, offset), size in zip(ready.places, sizes, strict=True):
            room = self._stores[storage][index][2]
            if offset % BUFFER_ALIGNMENT or not 0 <= offset <= room - size:
                raise KernelFault(
                    f"region {self._symbol}: kernel {function.name} accesses {size} bytes at byte {offset} of its {storage}, which"
                    f" must be a multiple of {BUFFER_ALIGNMENT} and within {room} bytes"
                )
        spans = [(*place, size) for place, size in zip(ready.places, sizes, strict=True)]
        for number, parameter in enumerate(function.buffers):
            if parameter.writes:
                others = (span for other, span in enumerate(spans) if other != number)
                if any(_overlap(spans[number], other) for other in others):
                    raise KernelFault(
                        f"region {self._symbol}: kernel {function.name} must write a buffer that overlaps none of its others"
                    )
        self._check_computed(function, ready, spans)

    def _check_computed(self, function: KernelFunction, ready: Ready, spans: Sequence[tuple[str, int, int, int]]) -> None:
        """Check that computed sizes are written by the kernels that compute them, and read in the same call, for the same sizes."""
        if any(parameter.size for parameter in function.buffers):
            program, values = self._calls.setdefault(ready.call, (function.program, {}))
            named = zip(function.names, (*ready.scalars, *ready.witnesses), strict=True)
            own = {name: value for name, value in named if not name.startswith(HOST_VARIABLE)}
            if program != function.program or any(values.setdefault(name, value) != value for name, value in own.items()):
                raise KernelFault(
                    f"region {self._symbol}: call {ready.call} must launch kernels of one program, for one set of sizes"
                )
        written: dict[tuple[int, str], tuple[str, int, int]] = {}
        for place, parameter in zip(ready.places, function.buffers, strict=True):
            key = ready.call, parameter.size
            if parameter.size and parameter.reads and self._computed.get(key) != place:
                raise KernelFault(
                    f"region {self._symbol}: kernel {function.name} reads size {parameter.size} before it is computed"
                )
            if parameter.size and parameter.writes:
                written[key] = place
        for span, parameter in zip(spans, function.buffers, strict=True):
            if parameter.writes:
                for key, place in self._computed.items():
                    if written.get(key) != place and _overlap(span, (*place, COMPUTED_BYTES)):
                        raise KernelFault(
                            f"region {self._symbol}: kernel {function.name} must not overwrite the computed size {key[1]}"
                        )
        self._computed |= written

    def computed(self, place: tuple[str, int, int]) -> None:
        """Check the place of a computed size that the host reads. Raises `KernelFault` if it is not in its storage."""
        storage, index, offset = place
        room = self._stores[storage][index][2]
        if offset % COMPUTED_BYTES or not 0 <= offset <= room - COMPUTED_BYTES:
            raise KernelFault(
                f"region {self._symbol}: a computed size at byte {offset} of its {storage} must be within {room} bytes"
            )


def _overlap(one: tuple[str, int, int, int], other: tuple[str, int, int, int]) -> bool:
    """Test whether two spans, as (storage, index, byte offset, size), have a byte in common."""
    return one[:2] == other[:2] and one[2] < other[2] + other[3] and other[2] < one[2] + one[3]
