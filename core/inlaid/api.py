"""The Python API of the compiler. `inlaid` exports it; nothing inside imports it."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Union

import numpy as np

from inlaid.cache import caches
from inlaid.errors import DefaultTargetWarning, InputError, PackageError, TargetError
from inlaid.frontends.dims import DimSpec, checked_dims
from inlaid.frontends.formats import import_model
from inlaid.log import StageLog
from inlaid.plugins.registry import default_registry
from inlaid.runtime import compiled
from inlaid.runtime.executable import Executable
from inlaid.runtime.heap import give_back
from inlaid.runtime.package import Package, copy_package, read_package, write_package
from inlaid.settings import DEFAULT, Settings

if TYPE_CHECKING:
    import onnx

    from inlaid.arith import SizeVar
    from inlaid.driver import Progress
    from inlaid.graph.ir import Function, Module
    from inlaid.partitioning.report import Report
    from inlaid.passes.manager import Instrument
    from inlaid.plugins.contract import Capabilities
    from inlaid.quantization.quantize import QuantizedModule
    from inlaid.quantization.settings import Quantization
    from inlaid.tensor.primitives import TensorIntrin
    from inlaid.tensor.schedule import Schedule

# The compiler is imported where it is used: a model that was compiled before needs none of it.

Model = Union["Module", "Function", str, Path, bytes, "onnx.ModelProto"]
USUAL = ("x86",)
"""Default targets, where they are installed and can run."""


def load(model: str | Path | onnx.ModelProto | bytes, dims: Mapping[str, DimSpec] | None = None) -> Module:
    """Import a model: the path of a file, its bytes, or an object such as an `onnx.ModelProto`. ONNX and TensorFlow Lite are built
    in; plugins add other formats (`inlaid formats` lists them).

    `dims` fixes symbolic dimensions of the inputs by name, or bounds them. Raises `ModelImportError`, `InputError` for arguments of
    a wrong kind, and `PluginError` for a frontend that fails.
    """
    return import_model(model, checked_dims(dims), default_registry())


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
    """Compile a model for targets in order of priority, such as `["x86:threads=1"]`; a string is one target, and `default_targets`
    apply where none is given.

    The model is a module, a single function, or what `load` takes, to which `dims` then applies. What no target takes runs on the
    numpy target `reference`. `progress(stage, done, total)` is called as the work goes on. Without `fusion` every operator is a
    kernel of its own, which shows what fusing brings. `precision` is "model", what the model says, or "bf16": float32 products
    then multiply in bfloat16 and accumulate in float32 (see `inlaid.passes.lower_precision` for what that costs in accuracy).
    `placement` is by "priority"; by "cost": where operators go is then what takes the least predicted time, transfers included; or
    "measured": as by cost, with operators timed on their targets. `lock` is a file that `inlaid partition --lock` wrote: operators
    go where it says, and `LockWarning` tells where they would not without it. `donate` names inputs whose buffers outputs may take
    over: where a scatter updates such an input, as it does a key-value cache, nothing is copied, and the array that was given for
    it becomes the output; `DonationWarning` names those of which no output makes use. `devices` gives the device number for kinds
    of target, or for targets, as of `inlaid.runtime.load`. What was compiled before from an equal file in an equal way is taken
    from the user's cache, unless `cache` is off. Raises `ModelImportError`,
    `TargetError` or `CompileError`, `InputError` for arguments of a wrong kind, and `VerifyError` for a module that is malformed.
    """
    if isinstance(donate, str):
        raise InputError(f"donate takes a sequence of names, got {donate!r}", remedy=f"give [{donate!r}]")
    settings = Settings(fusion, precision, placement, read_lock(lock), donate=tuple(donate))
    if isinstance(model, (str, Path)):
        found = compile_file(Path(model), targets, dims=dims, progress=progress, cache=cache, settings=settings)
        if progress is not None:
            progress("load", 0, 0)
        return Executable(found.package, devices=devices)
    from inlaid.driver import compile_module

    module, chosen = _module(model, dims), _targets(targets)
    report = StageLog("a model" if isinstance(model, bytes) else type(model).__name__, chosen, progress)
    executable = compile_module(module, chosen, progress=report, settings=settings, keep=cache, devices=devices)
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
    """Compile a schedule for one target that takes loop programs, such as "x86:threads=1", as it stands: no schedule rule is asked.

    The inputs and outputs of the executable are those of `schedule.program`, by name, in the layouts that the schedule gives them.
    `instructions` are the tensor intrinsics of the schedule that the target does not have already (see `intrinsics`), in the form
    that its plugin declares, such as `inlaid_x86.llvm.intrinsics.Instruction`. `cache` and `devices` as of `compile`. Raises
    `TargetError`, `Unsupported` where the target takes no loop programs or lacks what the schedule asks for, `ScheduleError` for a
    program that cannot be lowered, such as one with a register buffer that is indexed by a loop, and what the plugin raises.
    """
    from inlaid.driver.by_hand import build_scheduled

    registry = default_registry()
    package = build_scheduled(_scheduled(schedule).program, _target(target), registry, instructions, cache)
    return Executable(package, devices=devices)


def interpret(schedule: Schedule, *arrays: np.ndarray[Any, Any], sizes: Mapping[SizeVar, int] | None = None) -> Any:
    """Run a schedule by the interpreter: slowly, every index and every read of memory checked, loops that are marked parallel or
    bound to threads in other orders than the loops say. `arrays` are the inputs in order, `sizes` the dimensions that none of them
    shows. Returns the output, or a tuple of several. Raises `InputError` for arrays that do not fit, `KernelFault` for an index
    read from data that is out of range, and `ScheduleError` for a program that is malformed or does what none may."""
    from inlaid.errors import ScheduleError, VerifyError
    from inlaid.tensor import interp

    program, given = _scheduled(schedule).program, tuple(map(np.asarray, arrays))
    try:
        results = interp.run(program, given, sizes, schedule.semantics)[: len(program.outputs) - len(program.defines)]
    except (VerifyError, AssertionError) as error:
        raise ScheduleError(f"{program.name} cannot be run: {error}", remedy="print the schedule's program and trace") from error
    return results[0] if len(results) == 1 else tuple(results)


def capabilities(target: str = "x86") -> Capabilities:
    """What a target can do: width and number of its vector registers, cores, memory scopes, types. Raises `TargetError`."""
    registry = default_registry()
    return registry.capabilities(registry.target(_target(target)))


def intrinsics(target: str = "x86") -> tuple[TensorIntrin, ...]:
    """The tensor intrinsics that a target has, for schedules that are built for it. Raises `TargetError`."""
    registry = default_registry()
    return registry.intrinsics(registry.target(_target(target)))


def _scheduled(schedule: Any) -> Schedule:
    """The schedule that a user gives. Raises `InputError` for an object of another type."""
    from inlaid.tensor.schedule import Schedule

    if isinstance(schedule, Schedule):
        return schedule
    raise InputError(
        f"expected an inlaid.Schedule, got {type(schedule).__name__}",
        remedy="make one by inlaid.Schedule(te.program(inputs, outputs))",
    )


def quantize(
    model: Model,
    calibration_data: str | Path | Iterable[Mapping[str, Any]],
    settings: Quantization | None = None,
    *,
    dims: Mapping[str, DimSpec] | None = None,
    targets: Sequence[str] | None = None,
    for_targets: Sequence[str] | None = None,
    evaluation_data: str | Path | Iterable[Mapping[str, Any]] | None = None,
) -> QuantizedModule:
    """An int8 model from a float one: a module for `compile`, with the `report` on what each layer lost.

    `calibration_data` are samples of the inputs: dictionaries by input name, or the path of an .npz file that has an array of
    samples for each input. `settings` say how (see `inlaid.Quantization`). The accuracy is measured on
    `evaluation_data`, else on the same samples. Both run on `targets`. The
    first of `for_targets`, or else of `targets`, that declares a requantisation gets a model that needs no other. Other
    arguments as of `compile`. Raises `ModelImportError` and `CompileError`, and `InputError` for samples that do not fit.
    """
    from inlaid.driver.quantize import quantize as quantize_on
    from inlaid.quantization.samples import read_samples
    from inlaid.quantization.settings import Quantization

    if settings is not None and not isinstance(settings, Quantization):
        raise InputError(
            f"settings are {settings!r}", remedy='give inlaid.Quantization(...), such as Quantization(calibration="mse")'
        )
    module = _module(model, dims)
    samples = read_samples(calibration_data, module.main.params)
    measured = samples if evaluation_data is None else read_samples(evaluation_data, module.main.params)
    chosen = _targets(targets)
    made_for = chosen if for_targets is None else _targets(for_targets)
    return quantize_on(module, samples, measured, settings or Quantization(), chosen, made_for)


def default_targets() -> tuple[str, ...]:
    """The targets where none is given: x86 if it can compile here, else `reference`, with a `DefaultTargetWarning`, as that one
    is slow."""
    registry = default_registry()
    try:
        for name in USUAL:
            registry.spec(name).check_compiles()  # without a probe, which would load the plugin's libraries
    except TargetError as error:
        from inlaid.driver import FALLBACK

        words = f"no target is given: {FALLBACK} is taken, which runs on numpy and is slow, since {error}"
        warnings.warn(words, DefaultTargetWarning, stacklevel=3)
        return (FALLBACK,)
    return USUAL


@dataclass(frozen=True)
class Compiled:
    """A package, and the file in the user's cache that holds it, None where none does."""

    package: Package
    file: Path | None

    def save(self, path: Path) -> None:
        """Write the package. Raises as `Executable.save` does."""
        if self.file is not None and self.file.exists():
            copy_package(self.file, path)
        else:
            write_package(self.package, path)


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
    """Compile a model file, or find it compiled, without loading it. `instruments` watch the graph passes. What `change` makes of
    the model is compiled in its place, and is never found compiled. Other arguments and errors as of `compile`."""
    # Whether a plugin fails in isolation may depend on the machine's load: nothing that comes of it is kept.
    registry, kept = default_registry(), caches(cache and settings.isolation is None)
    targets, dims = _targets(targets), checked_dims(dims)
    report = StageLog(model.name, targets, progress)
    made = None
    if kept.folder is not None and change is None:
        report("look up", 0, 0)
        made = compiled.recipe(model, targets, {"dims": dims, **asdict(settings)}, registry)
        known = None if made is None else _read(compiled.find(made, kept))
        if known is not None:
            report.finish(known.package.program.regions, cached=True)
            return known
    from inlaid.driver import build_package

    report("import", 0, 0)
    files: list[str] = []
    module = import_model(model, dims, registry, files.append)
    if change is not None:
        module = change(module)
    package = build_package(module, targets, registry, report, instruments, settings, cache)
    report.finish(package.program.regions)
    if made is None:
        return Compiled(package, None)
    report("keep", 0, 0)
    file = compiled.keep(made, kept, package, files, registry)
    if file is None:
        return Compiled(package, None)
    # Its weights are mapped from the file from now on, and need not be in memory as well.
    del package
    give_back()
    found = _read(file)
    if found is not None:
        return found
    # Another process has taken it out of the cache since.
    return compile_file(model, targets, dims=dims, progress=progress, instruments=instruments, settings=settings, cache=False)


def _read(file: Path | None) -> Compiled | None:
    """A package in the cache; None where there is none, or none that can be read."""
    try:
        return None if file is None else Compiled(read_package(file), file)
    except PackageError:
        return None


def partition(
    model: Model,
    targets: Sequence[str] | None = None,
    *,
    dims: Mapping[str, DimSpec] | None = None,
    placement: str = "priority",
    lock: str | Path | None = None,
) -> Module:
    """Cut a model into regions, one target each: a module whose entry calls one function per region. Arguments as of `compile`."""
    from inlaid.driver import cut

    settings = Settings(placement=placement, lock=read_lock(lock))
    return cut(_module(model, dims), _targets(targets), settings=settings)[0].module


def estimate(
    model: Model,
    targets: Sequence[str] | None = None,
    *,
    dims: Mapping[str, DimSpec] | None = None,
    precision: str = "model",
    placement: str = "priority",
    lock: str | Path | None = None,
) -> Report:
    """What a model is predicted to cost on targets, without compiling it: `seconds` of all together, and by region and operator;
    with where every operator goes and why. Arguments as of `compile`."""
    from inlaid.driver import cut
    from inlaid.driver.report import report_of

    settings, registry = Settings(precision=precision, placement=placement, lock=read_lock(lock)), default_registry()
    partitioned, takers = cut(_module(model, dims), _targets(targets), registry, settings=settings)
    return report_of(partitioned, takers, registry, settings)


def read_lock(path: str | Path | None) -> str:
    """The text of a lock; "" without a path. Raises `InputError`."""
    if path is None:
        return ""
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(
            f"cannot read the lock {path}: {error}", remedy="write it with the command inlaid partition --lock FILE"
        ) from error


def _targets(targets: Sequence[str] | None) -> tuple[str, ...]:
    """Targets one by one: a string is one of its own, None stands for the default ones."""
    if targets is None:
        return default_targets()
    found = (targets,) if isinstance(targets, str) else targets
    if isinstance(found, (list, tuple)) and all(isinstance(item, str) for item in found):
        return tuple(found)
    raise TargetError(f"targets are strings, not {targets!r}", remedy='give them in order of priority, such as ["x86:threads=1"]')


def _target(target: Any) -> str:
    """One target. Raises `TargetError`."""
    if isinstance(target, str):
        return target
    raise TargetError(f"expected one target, got {target!r}", remedy='give it as a string, such as "x86:threads=1"')


def _module(model: Model, dims: Mapping[str, DimSpec] | None) -> Module:
    from inlaid.graph.ir import Function, Module
    from inlaid.graph.verify import verify_model

    if not isinstance(model, (Module, Function)):
        return load(model, dims)
    if dims:
        raise InputError("dims applies to a model that is loaded, not to a module", remedy="give dims to inlaid.load")
    module = model if isinstance(model, Module) else Module({"main": model})
    verify_model(module)
    return module
