"""The Python API of the compiler, exported by `inlaid`. No module of the core imports it; tools do."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Union

from inlaid import package_cache
from inlaid.frontends.dims import DimSpec, checked_dims
from inlaid.frontends.formats import import_model
from inlaid.package_cache import CachedPackage, RegionFacts, region_facts
from inlaid.plugins.registry import default_registry
from inlaid.settings import DEFAULT, Settings
from inlaid.support.collector import rare_collections
from inlaid.support.faults import reports_faults
from inlaid.support.log import StageLog
from inlaid_runtime.cache import caches
from inlaid_runtime.errors import DefaultTargetWarning, InputError, TargetError

if TYPE_CHECKING:
    import numpy as np
    import onnx

    from inlaid.driver import Progress
    from inlaid.graph.ir import Function, Module
    from inlaid.partitioning.report import Report
    from inlaid.passes.manager import Instrument
    from inlaid.plugins.contract import Capabilities
    from inlaid.tensor.primitives import TensorIntrin
    from inlaid.tensor.schedule import Schedule
    from inlaid_runtime.arith import SizeVar
    from inlaid_runtime.execution.executable import Executable
    from inlaid_runtime.execution.package import Package

# Compiler modules and numpy are imported where they are used: finding a package in the cache needs none of them.

Model = Union["Module", "Function", str, Path, bytes, "onnx.ModelProto"]
USUAL = ("x86",)
"""Targets that are used if none is given, provided that all of them can compile here."""
RELEASED = 1 << 24
"""Minimum bytes of weights for which a compilation returns freed memory to the operating system."""


@reports_faults
def load(
    model: str | Path | onnx.ModelProto | bytes, dims: Mapping[str, DimSpec] | None = None, *, inputs: Sequence[str] = ()
) -> Module:
    """Import a model from the path of a file, its bytes, or an object such as an `onnx.ModelProto`. ONNX and TensorFlow Lite are
    built in; plugins add further formats (`inlaid formats` lists all).

    `dims` fixes symbolic input dimensions by name (`{"batch": 1}`) or bounds them (`{"batch": (1, 64)}`). `inputs` are names of
    ONNX initializers that are also inputs of the graph: they become inputs, which every run needs; others are constants. Raises
    `ModelImportError`, `InputError` for arguments of a wrong type, and `PluginError` if a plugin's frontend fails.
    """
    return import_model(model, checked_dims(dims), default_registry(), inputs=_names("inputs", inputs))


@reports_faults
def compile(
    model: Model,
    targets: Sequence[str] | None = None,
    *,
    dims: Mapping[str, DimSpec] | None = None,
    progress: Progress | None = None,
    fusion: bool = True,
    cache: bool = True,
    precision: str = "model",
    placement: str = "priority",
    lock: str | Path | None = None,
    donate: Sequence[str] = (),
    devices: Mapping[str, int] | None = None,
) -> Executable:
    """Compile a model for `targets`, in order of priority, such as `["x86:threads=1", "cuda"]`. A string is a single target;
    without targets, `default_targets` apply.

    model
        A `Module`, a `Function`, or a model as for `load`, to which `dims` then applies.
    progress
        Called as `progress(stage, completed, total)`.
    fusion
        False compiles every operator to a separate kernel, to measure the benefit of fusion.
    cache
        Read and write the user's compilation cache, keyed by the content of the model file and all options.
    precision
        "model" keeps the model's dtypes; "bf16" multiplies float32 in bfloat16 and accumulates in float32
        (`inlaid.passes.lower_precision` states the loss of accuracy).
    placement
        "priority" gives an operator to the first target that accepts it; "cost" minimizes predicted time, transfers included;
        "measured" minimizes time with operators timed on their targets. Operators that no target accepts run on numpy
        (`reference`).
    lock
        A file written by `inlaid partition --lock`, whose placement is used. `LockWarning` lists operators that would be placed
        elsewhere without the lock.
    donate
        Names of inputs whose buffers outputs may reuse. A scatter that updates a donated input, as for a key-value cache, then
        works in place: the array passed in becomes the output. `DonationWarning` lists donated inputs that no output reuses.
    devices
        Device numbers by target kind or target, as for `inlaid.runtime.load`.

    While a model compiles, the garbage collector of the process has higher thresholds.

    Raises `ModelImportError`, `TargetError`, `CompileError`, `InputError` for arguments of a wrong type, and `VerifyError` for a
    malformed module. A fault of Inlaid itself raises `InternalError`, here and in the other functions that take a model.
    """
    settings = Settings(fusion, precision, placement, read_lock(lock), donate=_names("donate", donate))
    with rare_collections():
        if isinstance(model, (str, Path)):
            compiled = compile_file(Path(model), targets, dims=dims, progress=progress, cache=cache, settings=settings)
            if progress is not None:
                progress("load", 0, 0)
            return _loaded(compiled.package, devices)
        from inlaid.driver import compile_module

        module, target_names = as_module(model, dims), checked_targets(targets)
        report = StageLog("a model" if isinstance(model, bytes) else type(model).__name__, target_names, progress)
        executable = compile_module(module, target_names, progress=report, settings=settings, keep=cache, devices=devices)
        report.finish(executable.regions)
        return executable


def build(
    schedule: Schedule,
    target: str = "x86",
    *,
    instructions: Sequence[Any] = (),
    cache: bool = True,
    devices: Mapping[str, int] | None = None,
) -> Executable:
    """Compile a schedule unchanged for one target that accepts loop programs, such as "x86:threads=1". No schedule rule applies.

    The executable has the inputs and outputs of `schedule.program`, by name, in the schedule's layouts. `instructions` are tensor
    intrinsics of the schedule that the target does not declare (see `intrinsics`), as objects of the plugin's class, such as
    `inlaid_x86.llvm.intrinsics.Instruction`. `cache` and `devices` are as for `compile`.

    Raises `TargetError`; `Unsupported` if the target accepts no loop programs or lacks a feature that the schedule needs;
    `ScheduleError` for a program that cannot be lowered, such as a register buffer indexed by a loop variable; and the plugin's
    errors.
    """
    from inlaid.driver.by_hand import build_scheduled

    registry = default_registry()
    package = build_scheduled(_scheduled(schedule).program, _target(target), registry, instructions, cache)
    return _loaded(package, devices)


def _loaded(package: Package, devices: Mapping[str, int] | None) -> Executable:
    from inlaid_runtime.execution.executable import Executable

    return Executable(package, registry=default_registry(), devices=devices)


def interpret(schedule: Schedule, *arrays: np.ndarray[Any, Any], sizes: Mapping[SizeVar, int] | None = None) -> Any:
    """Run a schedule in the interpreter, which is slow and checks every access. It permutes the iterations of parallel and
    thread-bound loops. `arrays` are the inputs in order; `sizes` has the dimensions that no input shape determines. Returns the
    output, or a tuple of outputs. Raises `InputError` for arrays that do not fit, `KernelFault` for a data-dependent index out of
    range, and `ScheduleError` for a malformed program."""
    import numpy as np

    from inlaid.tensor import interp
    from inlaid_runtime.errors import ScheduleError, VerifyError

    program, inputs = _scheduled(schedule).program, tuple(map(np.asarray, arrays))
    try:
        results = interp.run(program, inputs, sizes, schedule.semantics)[: len(program.outputs) - len(program.defines)]
    except (VerifyError, AssertionError) as error:
        raise ScheduleError(f"{program.name} cannot be run: {error}", remedy="print the schedule's program and trace") from error
    return results[0] if len(results) == 1 else tuple(results)


def capabilities(target: str = "x86") -> Capabilities:
    """Return the capabilities of a target: vector width and registers, cores, memory scopes, dtypes. Raises `TargetError`."""
    registry = default_registry()
    return registry.capabilities(registry.target(_target(target)))


def intrinsics(target: str = "x86") -> tuple[TensorIntrin, ...]:
    """Return the tensor intrinsics of a target, for use in schedules. Raises `TargetError`."""
    registry = default_registry()
    return registry.intrinsics(registry.target(_target(target)))


def _scheduled(schedule: Any) -> Schedule:
    """Check that an argument is a `Schedule`. Raises `InputError`."""
    from inlaid.tensor.schedule import Schedule

    if isinstance(schedule, Schedule):
        return schedule
    raise InputError(
        f"expected an inlaid.Schedule, got {type(schedule).__name__}",
        remedy="create one with inlaid.Schedule(te.program(inputs, outputs))",
    )


def default_targets() -> tuple[str, ...]:
    """Return the targets used if none is given: x86 if it can compile here, else the slow `reference`, with a
    `DefaultTargetWarning`."""
    registry = default_registry()
    try:
        for name in USUAL:
            registry.spec(name).check_compiles()  # no probe: it would load the plugin's libraries
    except TargetError as error:
        from inlaid.driver import FALLBACK

        message = f"no target given: using {FALLBACK}, which runs on numpy and is slow, because {error}"
        warnings.warn(message, DefaultTargetWarning, stacklevel=3)
        return (FALLBACK,)
    return USUAL


class Compiled:
    """A compiled package: in memory, or `cached` in the user's cache and read on first use. `was_cached` states that it was in the
    cache already."""

    def __init__(self, package: Package | None, cached: CachedPackage | None, was_cached: bool = False) -> None:
        self._package = package
        self._cached = cached
        self._was_cached = was_cached

    @property
    def file(self) -> Path | None:
        """File in the cache; None if the package is not cached."""
        return None if self._cached is None else self._cached.file

    @cached_property
    def package(self) -> Package:
        """The package."""
        if self._cached is None:
            assert self._package is not None
            return self._package
        from inlaid_runtime.execution.heap import release_free_memory
        from inlaid_runtime.execution.package import decode_package

        # The weights are mapped from the file from now on, so the copy that the compiler made can go.
        if not self._was_cached and self._cached.weight_bytes >= RELEASED:
            release_free_memory()
        return decode_package(self._cached.file, self._cached.content, verified=True)

    @property
    def weight_bytes(self) -> int:
        """Bytes of all constants."""
        return self.package.weight_bytes if self._cached is None else self._cached.weight_bytes

    @property
    def regions(self) -> tuple[RegionFacts, ...]:
        """Facts about the regions."""
        return region_facts(self.package) if self._cached is None else self._cached.regions

    def save(self, path: Path) -> None:
        """Write the package to `path`. Raises as `Executable.save` does."""
        if self._cached is not None:
            self._cached.save(path)
            return
        from inlaid_runtime.execution.package import write_package

        write_package(self.package, path)


@reports_faults
def compile_file(
    model: Path,
    targets: Sequence[str] | None = None,
    *,
    dims: Mapping[str, DimSpec] | None = None,
    progress: Progress | None = None,
    instruments: Sequence[Instrument[Module]] = (),
    settings: Settings = DEFAULT,
    cache: bool = True,
    change: Callable[[Module], Module] | None = None,
) -> Compiled:
    """Compile a model file without loading the result, or find it in the cache. `instruments` observe the graph passes. `change`
    maps the imported module to the module to compile, which is not cached. Other arguments and errors are as for `compile`."""
    # Whether an isolated plugin fails may depend on the load of the machine, so its results are not cached.
    registry, user_caches = default_registry(), caches(cache and settings.isolation is None)
    targets, dims = checked_targets(targets), checked_dims(dims)
    report = StageLog(model.name, targets, progress)
    recipe = None
    if user_caches.folder is not None and change is None:
        report("look up", 0, 0)
        recipe = package_cache.recipe(model, targets, {"dims": dims, **asdict(settings)}, registry, user_caches)
        cached = None if recipe is None else package_cache.find(recipe, user_caches)
        if cached is not None:
            report.finish(cached.regions, cached=True)
            return Compiled(None, cached, was_cached=True)
    from inlaid.driver import build_package

    report("import", 0, 0)
    files: list[str] = []
    module = import_model(model, dims, registry, files.append)
    if change is not None:
        module = change(module)
    package = build_package(module, targets, registry, report, instruments, settings, cache)
    del module  # the package's file can then reuse the memory of its weights
    report.finish(package.program.regions)
    if recipe is None:
        return Compiled(package, None)
    report("keep", 0, 0)
    cached = package_cache.keep(recipe, user_caches, package, files, registry)
    return Compiled(package if cached is None else None, cached)


@reports_faults
def partition(
    model: Model,
    targets: Sequence[str] | None = None,
    *,
    dims: Mapping[str, DimSpec] | None = None,
    placement: str = "priority",
    lock: str | Path | None = None,
) -> Module:
    """Partition a model into regions of one target each. Returns a module whose entry function calls one function per region.
    Arguments are as for `compile`."""
    from inlaid.driver import cut

    settings = Settings(placement=placement, lock=read_lock(lock))
    return cut(as_module(model, dims), checked_targets(targets), settings=settings)[0].module


@reports_faults
def estimate(
    model: Model,
    targets: Sequence[str] | None = None,
    *,
    dims: Mapping[str, DimSpec] | None = None,
    precision: str = "model",
    placement: str = "priority",
    lock: str | Path | None = None,
) -> Report:
    """Predict the cost of a model on targets without compiling it. The report has the total `seconds`, the seconds of each region
    and operator, and the placement of each operator with the reason. Arguments are as for `compile`."""
    from inlaid.driver import cut
    from inlaid.driver.report import build_report

    settings, registry = Settings(precision=precision, placement=placement, lock=read_lock(lock)), default_registry()
    partitioned, candidates = cut(as_module(model, dims), checked_targets(targets), registry, settings=settings)
    return build_report(partitioned, candidates, registry, settings)


def read_lock(path: str | Path | None) -> str:
    """Read a lock file. Returns "" if `path` is None. Raises `InputError`."""
    if path is None:
        return ""
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read the lock {path}: {error}", remedy="write it with inlaid partition --lock FILE") from error


def _names(argument: str, value: Any) -> tuple[str, ...]:
    """Check that the value of an argument is a sequence of names. Raises `InputError`."""
    if isinstance(value, Iterable) and not isinstance(value, (str, bytes)):
        names = tuple(value)
        if all(isinstance(name, str) for name in names):
            return names
    remedy = f"give [{value!r}]" if isinstance(value, str) else 'give strings, such as ["w"], or leave it out'
    raise InputError(f"{argument} must be a sequence of names, got {value!r}", remedy=remedy)


def checked_targets(targets: Sequence[str] | None) -> tuple[str, ...]:
    """Normalize the `targets` argument: a string is one target, None means the default targets. Raises `TargetError`."""
    if targets is None:
        return default_targets()
    names = (targets,) if isinstance(targets, str) else targets
    if isinstance(names, (list, tuple)) and all(isinstance(item, str) for item in names):
        return tuple(names)
    raise TargetError(
        f"expected a list of target strings, got {targets!r}", remedy='give them in order of priority, such as ["x86:threads=1"]'
    )


def _target(target: Any) -> str:
    """Check that an argument is one target string. Raises `TargetError`."""
    if isinstance(target, str):
        return target
    raise TargetError(f"expected a target string, got {target!r}", remedy='give one, such as "x86:threads=1"')


def as_module(model: Model, dims: Mapping[str, DimSpec] | None) -> Module:
    """Return the module of the argument `model` of the functions above: a module is verified, anything else imported. Raises as
    `load` does; also `InputError` for `dims` beside a module, and `VerifyError`."""
    from inlaid.graph.ir import Function, Module
    from inlaid.graph.verify import verify_model

    if not isinstance(model, (Module, Function)):
        return load(model, dims)
    if dims:
        raise InputError(
            "dims applies only to the import of a model, got a module", remedy="give dims to inlaid.load, or sizes to inlaid.var"
        )
    module = model if isinstance(model, Module) else Module({"main": model})
    verify_model(module)
    return module
