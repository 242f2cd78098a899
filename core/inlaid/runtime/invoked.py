"""Regions as a plan runs them: what is the same at all sizes, and what shapes of inputs decide."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from inlaid import arith
from inlaid.arith import SizeVar
from inlaid.artifact import Artifact, Signature, TensorSpec
from inlaid.artifact.plan import Invoke, Plan, RegionInfo
from inlaid.errors import InputError, KernelFault, PackageError, Remedy, Unsupported, dims_setting
from inlaid.plugins.runtime_module import Loaded
from inlaid.runtime.arrays import LARGE, Array
from inlaid.runtime.shapes import picker, shape_picker
from inlaid.runtime.sizes import Formula, Shape, Sizes, bounded, byte_count, known_shape

_KEPT_LAYOUTS = 32
"""How many sets of input sizes a region in a plan remembers."""


@dataclass(frozen=True, slots=True, eq=False)
class LoadedRegion:
    """An artifact, and what runs it. `info` says which target and which source nodes, `plugin` whose
    runtime has loaded it."""

    artifact: Artifact
    info: RegionInfo
    plugin: str
    loaded: Loaded

    @property
    def call(self) -> Callable[..., None]:
        """What invokes or launches it, unless it allocates its results."""
        loaded = self.loaded
        if loaded.launching is not None:
            return loaded.launching.launch
        assert loaded.kernel is not None
        return loaded.kernel.invoke


@dataclass(frozen=True, slots=True, eq=False)
class RegionLayout:
    """A region at known shapes of its inputs: what invokes or launches it, its `dims` array, the bytes of scratch memory it wants,
    and which arrays to make for it: (number, shape, type of elements, alignment) of outputs, with an alignment of 0 for the arena.
    `large` are the numbers of those whose memory is worth keeping. `late` has the dimensions that the region works out itself
    (place in `dims`, name, upper bound), and `constraints` those that they decide. A region without any only reads `dims`."""

    invoke: Callable[..., None]
    dims: np.ndarray[Any, np.dtype[np.int64]]
    workspace: int
    fresh: tuple[tuple[int, Shape, np.dtype[Any], int], ...]
    large: frozenset[int]
    late: tuple[tuple[int, SizeVar, int], ...] = ()
    constraints: tuple[arith.Constraint, ...] = ()


class Invoked:
    """What is the same at all sizes of a region that a plan runs: its dimensions, the bytes of scratch memory that it wants over
    these, and what takes its inputs and outputs from the values of a run. `actual` gives the shapes of its outputs from its
    dimensions. `matched`: its shapes and dimensions are those of the plan's values; `alike`: these tell all of them, so that there
    is nothing to compare."""

    def __init__(self, plan: Plan, instruction: Invoke, region: LoadedRegion, alignment: int) -> None:
        self.region = region
        self._plan, self._numbers, self._alignment = plan, instruction.outputs, alignment
        self.inputs, self.outputs = picker(instruction.inputs), picker(instruction.outputs)
        signature = region.artifact.signature
        self.dims = tuple(SizeVar(source.name) for source in signature.dims)
        self.workspace = Formula(region.artifact.workspace.get("", 0))
        self.actual = tuple(shape_picker(spec.shape, self.dims) for spec in signature.outputs)
        self._given = [name for source, name in zip(signature.dims, self.dims, strict=True) if source.input is source.upper is None]
        self._layouts: dict[tuple[object, ...], RegionLayout] = {}
        inputs, outputs = ([plan.values[number].shape for number in side] for side in (instruction.inputs, instruction.outputs))
        self.matched = (
            inputs == [spec.shape for spec in signature.inputs]
            and outputs == [spec.shape for spec in signature.outputs]
            and all(
                source.input is None or inputs[source.input][source.axis] == name
                for source, name in zip(signature.dims, self.dims, strict=True)
            )
        )
        self.alike = self.matched and all(source.input is not None for source in signature.dims)

    def layout(self, inputs: Sequence[Array], outer: Mapping[arith.Expr, int]) -> RegionLayout:
        """The layout for inputs, in a plan of `outer` sizes, worked out once for their shapes. Raises as `check_constraints` and
        `check_shapes` do, and `Unsupported` where a size has no upper bound."""
        key: tuple[object, ...] = tuple([array.shape for array in inputs])
        if self._given:
            key += tuple(map(outer.get, self._given))
        found = self._layouts.get(key)
        if found is None:
            found = self._new_layout([array.shape for array in inputs], outer)
            if len(self._layouts) >= _KEPT_LAYOUTS:
                self._layouts.clear()
            self._layouts[key] = found
        return found

    def _new_layout(self, shapes: Sequence[Shape], outer: Mapping[arith.Expr, int]) -> RegionLayout:
        artifact = self.region.artifact
        sizes = region_sizes(artifact, shapes, outer)
        check_constraints(artifact, sizes)
        if not self.matched:
            check_shapes(artifact, artifact.signature.inputs, shapes, sizes)
        bounds = upper_bounds(artifact.signature, sizes)
        rooms = [room(spec, sizes, bounds) for spec in artifact.signature.outputs]
        return RegionLayout(
            self.region.call,
            np.array([sizes.get(name, 0) for name in self.dims], np.int64),
            region_workspace(artifact, {**sizes, **bounds}),
            *fresh_arrays(self._plan, self._numbers, rooms, self._alignment),
            tuple((place, name, bounds[name]) for place, name in enumerate(self.dims) if name in bounds),
            tuple(constraint for constraint in artifact.constraints if constraint.holds(sizes) is None),
        )


def fresh_arrays(
    plan: Plan, numbers: Sequence[int], shapes: Sequence[Shape | None], alignment: int
) -> tuple[tuple[tuple[int, Shape, np.dtype[Any], int], ...], frozenset[int]]:
    """`fresh` and `large` of a `RegionLayout`, for values of a plan."""
    fresh, large = [], []
    for number, shape in zip(numbers, shapes, strict=True):
        value = plan.values[number]
        assert value.dtype is not None and shape is not None
        dtype = value.dtype.numpy
        size = byte_count(shape, dtype.itemsize)
        fresh.append((number, shape, dtype, 0 if value.storage == "arena" and size else alignment))
        if size >= LARGE and not dtype.hasobject:
            large.append(number)
    return tuple(fresh), frozenset(large)


def region_sizes(artifact: Artifact, inputs: Sequence[Shape | None], outer: Mapping[arith.Expr, int]) -> Sizes:
    """The dimensions that a region's inputs have, and those of the plan that it is given, as far as they are known."""
    sizes: Sizes = {}
    for source in artifact.signature.dims:
        name = SizeVar(source.name)
        if source.input is not None:
            shape = inputs[source.input]
            if shape is not None:
                sizes[name] = shape[source.axis]
        elif source.upper is None and name in outer:
            sizes[name] = outer[name]
    return sizes


def check_constraints(artifact: Artifact, sizes: Sizes, constraints: Sequence[arith.Constraint] | None = None) -> None:
    """Check what a region asks of sizes, or some `constraints` of that, as far as these are known. Raises `InputError`, which names
    operator, node, dimension."""
    for constraint in artifact.constraints if constraints is None else constraints:
        if constraint.holds(sizes) is False:
            remedy = None
            if found := arith.suggested_size(artifact.constraints, sizes):
                name, size = found[0].name, found[1]
                remedy = Remedy.of("give inputs with ", Remedy(f"{name} = {size}", dims_setting({name: size}).command))
            raise InputError(constraint.message(sizes), operator=constraint.operator, node=constraint.node, remedy=remedy)


def check_shapes(artifact: Artifact, specs: Sequence[TensorSpec], shapes: Sequence[Shape | None], sizes: Sizes) -> None:
    """Compare the shapes of arrays with those that a region's code was made for, so that it stays within them."""
    for spec, shape in zip(specs, shapes, strict=True):
        if known_shape(spec.shape, sizes) != shape:
            raise KernelFault(f"region {artifact.symbol} takes {spec.name} of shape {spec.shape}, but the plan has {shape}")


def region_workspace(artifact: Artifact, sizes: Sizes) -> int:
    """Bytes of main memory that a region wants."""
    wanted = artifact.workspace.get("", 0)
    size = bounded(wanted, sizes)
    if size is None:
        raise PackageError(f"the workspace of region {artifact.symbol}, {wanted!r} bytes, is not known before the run")
    return size


def upper_bounds(signature: Signature, sizes: Sizes) -> Sizes:
    """The upper bounds of the dimensions that a region works out. Raises `Unsupported` for a dimension without a bound."""
    bounds: Sizes = {}
    for source in signature.dims:
        if SizeVar(source.name) not in sizes:
            bound = None if source.upper is None else bounded(source.upper, {**sizes, **bounds})
            if bound is None:
                raise Unsupported(f"dimension {source.name} has no upper bound")
            bounds[SizeVar(source.name)] = bound
    return bounds


def room(spec: TensorSpec, sizes: Sizes, bounds: Sizes) -> Shape:
    """The shape of the buffer that an output wants: the greatest that sizes from 0 up to `bounds` give, beside known ones."""
    if not bounds and (fixed := known_shape(spec.shape, sizes)) is not None:
        return fixed
    ranges = {name: (arith.Const(size), arith.Const(size)) for name, size in sizes.items()}
    ranges |= {name: (arith.ZERO, arith.Const(size)) for name, size in bounds.items()}
    found = [arith.limits(dim, ranges) for dim in spec.shape]
    shape = known_shape(tuple(arith.unwrap(limits[1]) for limits in found if limits is not None), {})
    if shape is None or len(shape) < len(spec.shape):
        raise Unsupported(f"output {spec.name} of shape {spec.shape} has no upper bound")
    return shape
