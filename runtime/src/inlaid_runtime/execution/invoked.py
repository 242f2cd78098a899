"""Regions as instructions of a plan: data independent of sizes (`Invoked`) and data for given input shapes (`RegionLayout`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from inlaid_runtime import arith
from inlaid_runtime.arith import Dim, SizeVar
from inlaid_runtime.artifact import Artifact, Signature, TensorSpec
from inlaid_runtime.artifact.plan import Invoke, Plan, RegionInfo
from inlaid_runtime.errors import InputError, KernelFault, PackageError, Remedy, Unsupported, dims_setting
from inlaid_runtime.execution.arrays import LARGE, Array
from inlaid_runtime.execution.shapes import picker, shape_picker
from inlaid_runtime.execution.sizes import Formula, Shape, Sizes, bounded, byte_count, evaluate_shape
from inlaid_runtime.plugins.runtime_module import Loaded
from inlaid_runtime.records import dataclass

_MAX_LAYOUTS = 32
"""Greatest number of sets of input sizes for which the layout of a region in a plan is cached."""


@dataclass(frozen=True, slots=True, eq=False)
class LoadedRegion:
    """A region's artifact with its loaded kernel. `info` has the region's target and source nodes; `plugin` is the plugin whose
    runtime loaded the region."""

    artifact: Artifact
    info: RegionInfo
    plugin: str
    loaded: Loaded

    @property
    def call(self) -> Callable[..., None]:
        """The function that invokes or launches the region; undefined for a region that allocates its results."""
        loaded = self.loaded
        if loaded.launching is not None:
            return loaded.launching.launch
        assert loaded.kernel is not None
        return loaded.kernel.invoke


@dataclass(frozen=True, slots=True, eq=False)
class RegionLayout:
    """A region at known input shapes: the function that runs it, its `dims` array, its scratch memory in bytes, and the outputs to
    allocate as (number, shape, dtype, alignment), with alignment 0 for the arena. `large` has the numbers of outputs whose memory
    is pooled. `late` has the dimensions that the region computes (index in `dims`, name, upper bound); `constraints` has the
    constraints on these dimensions. If `late` is empty, the region only reads `dims`."""

    invoke: Callable[..., None]
    dims: np.ndarray[Any, np.dtype[np.int64]]
    workspace: int
    fresh: tuple[tuple[int, Shape, np.dtype[Any], int], ...]
    large: frozenset[int]
    late: tuple[tuple[int, SizeVar, int], ...] = ()
    constraints: tuple[arith.Constraint, ...] = ()


class Invoked:
    """The size-independent part of a region in a plan: its dimensions, a formula for its scratch memory, and accessors of its
    inputs and outputs in the values of a run. `actual` computes output shapes from dimensions. `matched`: the region and the plan's
    values have the same shapes and dimensions. `alike`: in addition, input shapes determine all dimensions, so that no check is
    needed."""

    def __init__(self, plan: Plan, instruction: Invoke, region: LoadedRegion, alignment: int) -> None:
        self.region = region
        self._plan, self._numbers, self._alignment = plan, instruction.outputs, alignment
        self.inputs, self.outputs = picker(instruction.inputs), picker(instruction.outputs)
        signature = region.artifact.signature
        self.dims = tuple(SizeVar(source.name) for source in signature.dims)
        self.workspace = Formula(region.artifact.workspace.get("", 0))
        self.actual = tuple(shape_picker(spec.shape, self.dims) for spec in signature.outputs)
        self._ranges = size_ranges(region.artifact)
        self._outer_sizes = [
            name for source, name in zip(signature.dims, self.dims, strict=True) if source.input is source.upper is None
        ]
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
        """Return the layout for the shapes of inputs, in a plan with sizes `outer`. Layouts are cached. Raises as
        `check_constraints`, `check_shapes` and `check_ranges` do, and `Unsupported` for a size without an upper bound."""
        key: tuple[object, ...] = tuple([array.shape for array in inputs])
        if self._outer_sizes:
            key += tuple(map(outer.get, self._outer_sizes))
        layout = self._layouts.get(key)
        if layout is None:
            layout = self._new_layout([array.shape for array in inputs], outer)
            if len(self._layouts) >= _MAX_LAYOUTS:
                self._layouts.clear()
            self._layouts[key] = layout
        return layout

    def check_ranges(self, sizes: Mapping[arith.Expr, int]) -> None:
        """Raise `KernelFault` for a size outside of the bounds for which the region is compiled."""
        for name, lower, uppers in self._ranges:
            size = sizes.get(name)
            if size is None:
                continue
            upper = min((bound for bound in (bounded(dim, sizes) for dim in uppers) if bound is not None), default=size)
            if not lower <= size <= upper:
                symbol = self.region.artifact.symbol
                raise KernelFault(f"region {symbol} is compiled for {name} from {lower} to {upper}, but the plan has {size}")

    def _new_layout(self, shapes: Sequence[Shape], outer: Mapping[arith.Expr, int]) -> RegionLayout:
        artifact = self.region.artifact
        sizes = region_sizes(artifact, shapes, outer)
        check_constraints(artifact.constraints, sizes)
        check_shapes(artifact, artifact.signature.inputs, shapes, sizes)
        self.check_ranges(sizes)
        bounds = upper_bounds(artifact.signature, sizes)
        buffer_shapes = [room(spec, sizes, bounds) for spec in artifact.signature.outputs]
        return RegionLayout(
            self.region.call,
            np.array([sizes.get(name, 0) for name in self.dims], np.int64),
            region_workspace(artifact, {**sizes, **bounds}),
            *fresh_arrays(self._plan, self._numbers, buffer_shapes, self._alignment),
            tuple((position, name, bounds[name]) for position, name in enumerate(self.dims) if name in bounds),
            tuple(constraint for constraint in artifact.constraints if constraint.holds(sizes) is None),
        )


def fresh_arrays(
    plan: Plan, numbers: Sequence[int], shapes: Sequence[Shape | None], alignment: int
) -> tuple[tuple[tuple[int, Shape, np.dtype[Any], int], ...], frozenset[int]]:
    """Compute the fields `fresh` and `large` of a `RegionLayout`, for values of a plan."""
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


def size_ranges(artifact: Artifact) -> tuple[tuple[SizeVar, int, tuple[Dim, ...]], ...]:
    """Return the dimensions of a region for which its code assumes bounds: each with its lower bound and its upper bounds. The code
    may rely on all bounds that its signature, workspace, constraints and kernels declare."""
    signature = artifact.signature
    dims = [dim for spec in (*signature.inputs, *signature.outputs) for dim in spec.shape]
    dims += [*artifact.workspace.values(), *(dim for info in artifact.kernels for dim in (info.operations, info.bytes))]
    dims += [dim for constraint in artifact.constraints for dim in (constraint.condition, constraint.value)]
    ranges: dict[SizeVar, tuple[int, dict[Dim, None]]] = {}
    for size in (size for dim in dims for size in arith.free_vars(dim)):
        if isinstance(size, SizeVar) and (size.lower > 0 or size.upper is not None):
            lower, uppers = ranges.get(size, (0, {}))
            ranges[size] = max(lower, size.lower), uppers if size.upper is None else {**uppers, size.upper: None}
    return tuple((size, lower, tuple(uppers)) for size, (lower, uppers) in ranges.items())


def region_sizes(artifact: Artifact, inputs: Sequence[Shape | None], outer: Mapping[arith.Expr, int]) -> Sizes:
    """Return the dimensions of a region that its inputs and the plan determine."""
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


def check_constraints(constraints: Sequence[arith.Constraint], sizes: Mapping[arith.Expr, int]) -> None:
    """Check constraints, skipping those with unknown sizes. Raises `InputError`, naming the operator, the source node and the
    dimension."""
    for constraint in constraints:
        if constraint.holds(sizes) is False:
            raise _violation_error(constraints, constraint, sizes)


def violation(artifact: Artifact, number: int, dims: Sequence[int]) -> InputError | None:
    """Return the error for a region whose code reports that constraint `number` does not hold. `dims` are the values of the
    signature's dimensions, where those that the code has not computed yet are arbitrary. None if there is no such constraint, or it
    holds."""
    if not 0 <= number < len(artifact.constraints):
        return None
    constraint = artifact.constraints[number]
    pairs = zip(artifact.signature.dims, dims, strict=True)
    sizes: Sizes = {
        name: size for source, size in pairs if (name := SizeVar(source.name)) in constraint.sizes or source.upper is None
    }
    return _violation_error(artifact.constraints, constraint, sizes) if constraint.holds(sizes) is False else None


def _violation_error(
    constraints: Sequence[arith.Constraint], constraint: arith.Constraint, sizes: Mapping[arith.Expr, int]
) -> InputError:
    remedy = None
    if suggestion := arith.suggested_size(tuple(constraints), sizes):
        name, size = suggestion[0].name, suggestion[1]
        remedy = Remedy.join("give inputs with ", Remedy(f"{name} = {size}", dims_setting({name: size}).command))
    return InputError(constraint.message(sizes), operator=constraint.operator, node=constraint.node, remedy=remedy)


def check_shapes(artifact: Artifact, specs: Sequence[TensorSpec], shapes: Sequence[Shape | None], sizes: Sizes) -> None:
    """Compare the shapes of arrays with the shapes that the region's code expects, to prevent out-of-bounds accesses."""
    for spec, shape in zip(specs, shapes, strict=True):
        if evaluate_shape(spec.shape, sizes) != shape:
            raise KernelFault(f"region {artifact.symbol} expects {spec.name} of shape {spec.shape}, but the plan has {shape}")


def region_workspace(artifact: Artifact, sizes: Sizes) -> int:
    """Return the main memory in bytes that a region needs as workspace."""
    workspace = artifact.workspace.get("", 0)
    size = bounded(workspace, sizes)
    if size is None:
        raise PackageError(f"the workspace size of region {artifact.symbol}, {workspace!r} bytes, is unknown before the run")
    return size


def upper_bounds(signature: Signature, sizes: Sizes) -> Sizes:
    """Return the upper bounds of the dimensions that a region computes. Raises `Unsupported` for a dimension without a bound."""
    bounds: Sizes = {}
    for source in signature.dims:
        if SizeVar(source.name) not in sizes:
            bound = None if source.upper is None else bounded(source.upper, {**sizes, **bounds})
            if bound is None:
                raise Unsupported(f"dimension {source.name} has no upper bound")
            bounds[SizeVar(source.name)] = bound
    return bounds


def room(spec: TensorSpec, sizes: Sizes, bounds: Sizes) -> Shape:
    """Return the shape of the buffer for an output: each extent is the greatest for unknown sizes from 0 to `bounds`."""
    if not bounds and (fixed := evaluate_shape(spec.shape, sizes)) is not None:
        return fixed
    ranges = {name: (arith.Const(size), arith.Const(size)) for name, size in sizes.items()}
    ranges |= {name: (arith.ZERO, arith.Const(size)) for name, size in bounds.items()}
    extent_limits = [arith.limits(dim, ranges) for dim in spec.shape]
    shape = evaluate_shape(tuple(arith.unwrap(limits[1]) for limits in extent_limits if limits is not None), {})
    if shape is None or len(shape) < len(spec.shape):
        raise Unsupported(f"output {spec.name} of shape {spec.shape} has no upper bound")
    return shape
