"""Launch plans of regions: kernels, arguments, grids and block sizes, and their evaluation for the sizes of a run."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from inlaid_runtime import arith
from inlaid_runtime.arith import Dim
from inlaid_runtime.errors import KernelFault
from inlaid_runtime.execution.sizes import Formula

BUFFER_ALIGNMENT = 16
"""Kernels access buffers at byte offsets that are multiples of this number."""
MAX_STEPS = 1 << 18
"""Greatest number of steps in a run of a region, loop iterations included. They take about 3 s in Python."""
_CACHED = 16
"""Greatest number of sets of sizes for which evaluated launches are cached."""


@dataclass(frozen=True)
class BufferAddress:
    """Address of a buffer: `storage` is "input", "output" or "constant" with index `index`, or "arena"; `offset` is the index, in
    the plan's sizes, of the byte offset."""

    storage: str
    index: int
    offset: int


@dataclass(frozen=True)
class Launch:
    """A launch of the kernel with index `kernel`. `buffers` are indices of places. `scalars` (int64 arguments after the buffers),
    `grid` and `threads` (extents x, y, z) are indices of sizes. A launch with a zero extent is skipped. `call` is the index in
    `Artifact.kernels` of the region's call that the launch belongs to. `witnesses` are indices of further sizes, which the kernel
    does not take, but which its conditions read."""

    kernel: int
    buffers: tuple[int, ...]
    scalars: tuple[int, ...]
    grid: tuple[int, int, int]
    threads: tuple[int, int, int]
    call: int
    witnesses: tuple[int, ...] = ()


@dataclass(frozen=True)
class SizeRead:
    """A read of the int64 at place `buffer`: the value of dimension `size` for later steps. Both are indices in the plan."""

    size: int
    buffer: int


@dataclass(frozen=True)
class LaunchPlanStep:
    """A launch, a read of a size, or a host loop that repeats `body`. `variable` is the index of the loop variable, which starts at
    0; `extent` is the index of the size that is its end."""

    launch: Launch | None = None
    read: SizeRead | None = None
    variable: int = 0
    extent: int = 0
    body: tuple[LaunchPlanStep, ...] = ()


@dataclass(frozen=True)
class Size:
    """An expression over the region's dimensions and host loop variables."""

    dim: Dim


@dataclass(frozen=True)
class Descriptor:
    """A parameter passed by value that describes buffer `buffer` of a launch. The target interprets `text`."""

    buffer: int
    text: str


@dataclass(frozen=True)
class Parameter:
    """A buffer parameter of a kernel. The kernel accesses at most `bytes` bytes from the buffer's start on, a function of its
    scalars and witnesses; `reads` and `writes` say how. `size` is the name of the computed dimension whose int64 value is in the
    buffer, "" for any other buffer."""

    bytes: Dim
    reads: bool = True
    writes: bool = False
    size: str = ""


@dataclass(frozen=True)
class KernelFunction:
    """A kernel, and the arguments for which it is compiled.

    name
        Its function in the region's program.
    buffers
        Its buffer parameters.
    scalars, witnesses
        Names of its int64 parameters after the buffers, and of further sizes that the conditions read.
    conditions
        Conditions on scalars and witnesses that its code relies on.
    grid, threads
        Extents x, y, z, as functions of scalars and witnesses.
    program
        Number of the loop program that it is a part of. The launches of a call are of one program, for one set of sizes.
    reports
        Whether it has a last parameter, a pointer to an int32, to which it writes 1 if an index is out of range.
    shared
        Bytes of dynamic shared memory.
    descriptors
        Parameters after the scalars.
    """

    name: str
    buffers: tuple[Parameter, ...]
    scalars: tuple[str, ...]
    grid: tuple[Dim, Dim, Dim]
    threads: tuple[Dim, Dim, Dim]
    witnesses: tuple[str, ...] = ()
    conditions: tuple[Size, ...] = ()
    program: int = 0
    reports: bool = False
    shared: int = 0
    descriptors: tuple[Descriptor, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The names of scalars and witnesses."""
        return (*self.scalars, *self.witnesses)

    @property
    def parameters(self) -> int:
        """The number of the function's parameters: each buffer has a base pointer and a byte offset."""
        return 2 * len(self.buffers) + len(self.scalars) + len(self.descriptors) + self.reports


HOST_VARIABLE = "host."
"""Prefix that tells the names of host loop variables from names of dimensions."""


@dataclass(frozen=True)
class LaunchPlan:
    """Launch plan of a region: its kernels, and the steps that launch them. Steps refer to `places` and `sizes` by index. `dims`
    are the dimensions of the signature, `variables` the variables of host loops."""

    kernels: tuple[KernelFunction, ...]
    places: tuple[BufferAddress, ...]
    sizes: tuple[Size, ...]
    steps: tuple[LaunchPlanStep, ...]
    dims: tuple[Size, ...] = ()
    variables: tuple[Size, ...] = ()


@dataclass(frozen=True, slots=True)
class EvaluatedLaunch:
    """A launch with evaluated sizes. `places` are (storage, index, byte offset) of each buffer."""

    kernel: int
    places: tuple[tuple[str, int, int], ...]
    scalars: tuple[int, ...]
    grid: tuple[int, int, int]
    threads: tuple[int, int, int]
    call: int
    witnesses: tuple[int, ...] = ()


Stores = Mapping[str, Sequence[tuple[Any, int, int]]]
"""Maps a storage of a plan to one item per index: (buffer, or None if empty; byte offset; size in bytes)."""


class LaunchEvaluator:
    """Evaluates a plan for the sizes of a run, with a cache of recent sizes."""

    def __init__(self, plan: LaunchPlan) -> None:
        self.plan = plan
        self._formulas = [Formula(size.dim) for size in plan.sizes]
        self._dims = [arith.wrap(size.dim) for size in plan.dims]
        self._variables = [arith.wrap(size.dim) for size in plan.variables]
        self._cache: dict[tuple[int, ...], tuple[EvaluatedLaunch, ...]] = {}
        self._reads = any(_reads(step) for step in plan.steps)

    def evaluate(self, dims: Sequence[int], read: Callable[[int, tuple[str, int, int]], int]) -> Iterator[EvaluatedLaunch]:
        """Yield the launches in order. `dims` are the values of the signature's dimensions; `read(number, place)` returns the value
        of a dimension that the launches yielded so far have computed. Raises `KernelFault` for a negative size, and for more than
        `MAX_STEPS` steps."""
        key = tuple(dims)
        if self._reads:
            yield from self._steps(self.plan.steps, dict(zip(self._dims, key, strict=True)), read, itertools.count(1))
            return
        launches = self._cache.get(key)
        if launches is None:
            if len(self._cache) >= _CACHED:
                self._cache.pop(next(iter(self._cache)), None)
            launches = tuple(self._steps(self.plan.steps, dict(zip(self._dims, key, strict=True)), read, itertools.count(1)))
            self._cache[key] = launches
        yield from launches

    def _steps(
        self,
        steps: Sequence[LaunchPlanStep],
        sizes: dict[arith.Expr, int],
        read: Callable[[int, tuple[str, int, int]], int],
        counter: Iterator[int],
    ) -> Iterator[EvaluatedLaunch]:
        for step in steps:
            if next(counter) > MAX_STEPS:
                raise KernelFault(f"a region must have at most {MAX_STEPS} launches and loop iterations in a run")
            if step.launch is not None:
                launch = self._evaluate_launch(step.launch, sizes)
                if 0 not in launch.grid and 0 not in launch.threads:
                    yield launch
            elif step.read is not None:
                sizes[self._dims[step.read.size]] = read(step.read.size, self._address(step.read.buffer, sizes))
            elif step.body:
                for value in range(self._value(step.extent, sizes)):
                    sizes[self._variables[step.variable]] = value
                    yield from self._steps(step.body, sizes, read, counter)

    def _evaluate_launch(self, launch: Launch, sizes: Mapping[arith.Expr, int]) -> EvaluatedLaunch:
        def values(numbers: Sequence[int]) -> tuple[int, ...]:
            return tuple(self._value(number, sizes) for number in numbers)

        places = tuple(self._address(number, sizes) for number in launch.buffers)
        grid, threads = values(launch.grid), values(launch.threads)
        scalars, witnesses = values(launch.scalars), values(launch.witnesses)
        return EvaluatedLaunch(launch.kernel, places, scalars, grid, threads, launch.call, witnesses)  # type: ignore[arg-type]

    def _address(self, number: int, sizes: Mapping[arith.Expr, int]) -> tuple[str, int, int]:
        address = self.plan.places[number]
        return address.storage, address.index, self._value(address.offset, sizes)

    def _value(self, number: int, sizes: Mapping[arith.Expr, int]) -> int:
        size = self._formulas[number].evaluate_size(sizes)
        if size is None:
            raise KernelFault(f"size {self.plan.sizes[number].dim!r} must be known and >= 0 when its kernel is launched")
        return size


def _reads(step: LaunchPlanStep) -> bool:
    return step.read is not None or any(map(_reads, step.body))
