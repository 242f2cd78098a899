"""Compiled models: run, save and profile them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from inlaid_runtime.artifact import Artifact, TensorSpec
from inlaid_runtime.artifact.plan import Invoke, RegionInfo
from inlaid_runtime.errors import InputError, PackageError, PluginError, TargetError, Unsupported, suggestion
from inlaid_runtime.execution.arrays import fresh_copy, import_value, in_place, usable
from inlaid_runtime.execution.device_memory import DeviceArray, DeviceMemory
from inlaid_runtime.execution.executor import Executor
from inlaid_runtime.execution.invoked import LoadedRegion
from inlaid_runtime.execution.package import Package, encode_package, package_of, read_package, write_package
from inlaid_runtime.execution.shapes import picker
from inlaid_runtime.execution.verify import verify_program
from inlaid_runtime.plugins.blame import blame
from inlaid_runtime.plugins.registry import default_registry
from inlaid_runtime.plugins.runtime_module import Loaded, RuntimeModule, Runtimes

if TYPE_CHECKING:
    from inlaid_runtime.execution.profile import Profile


class Executable:
    """A loaded model, immutable and thread-safe: each run uses its own workspace.

    Created by `inlaid.compile` and `inlaid_runtime.load`. `devices` gives device numbers by target, such as "x86:threads=1", or by
    target kind; default 0. Raises `PackageError` for an invalid package, `TargetError` if a target is not installed, and
    `Unsupported` if this machine cannot run a region.
    """

    def __init__(self, package: Package, *, registry: Runtimes | None = None, devices: Mapping[str, int] | None = None) -> None:
        verify_program(package.program, package.artifacts, package.weights)
        self._devices = dict(devices or {})
        self.package = package = _aligned(package)
        regions, memories = _load_regions(package, registry or default_registry(), devices or {})
        self._memories = memories
        self._executor = Executor(package.program, regions, package.weights, memories)
        main = package.program.plans["main"]
        values = main.values
        self.inputs = tuple(TensorSpec(name, values[number].shape, values[number].dtype) for name, number in main.inputs)
        self.outputs = tuple(TensorSpec(name, values[number].shape, values[number].dtype) for name, number in main.outputs)
        # Precomputed for every run, since even the checks take noticeable time in a small model.
        self._input_names = tuple(spec.name for spec in self.inputs)
        self._take = picker(self._input_names)
        self._output_names = tuple(spec.name for spec in self.outputs)
        self._element_types = tuple(map(_plain_element_type, self.inputs))
        self._donated = sorted(self._executor.plans["main"].donated)

    def __copy__(self) -> Executable:
        return self

    def __deepcopy__(self, memo: object) -> Executable:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the package, as in its file. It is loaded again for the same devices."""
        return _restored, (encode_package(self.package), self._devices)

    def __repr__(self) -> str:
        sides = [", ".join(map(_describe, specs)) for specs in (self.inputs, self.outputs)]
        return f"<Executable ({sides[0]}) -> ({sides[1]}) on {', '.join(dict.fromkeys(info.target for info in self.regions))}>"

    def _repr_html_(self) -> str:
        from inlaid_runtime import markup

        sides = (("input", self.inputs), ("output", self.outputs))
        rows = [
            (side, spec.name, "host object" if spec.dtype is None else spec.dtype.name, list(spec.shape))
            for side, specs in sides
            for spec in specs
        ]
        regions = [(info.symbol, info.target, len(info.nodes)) for info in self.regions]
        return markup.table("Executable", ("", "name", "type", "shape"), rows) + markup.table(
            "Regions", ("region", "target", "source nodes"), regions
        )

    @property
    def regions(self) -> tuple[RegionInfo, ...]:
        """The regions, with their targets and source nodes."""
        return self.package.program.regions

    @property
    def donated(self) -> tuple[str, ...]:
        """Names of the inputs whose buffers outputs reuse."""
        return tuple(self._input_names[place] for place in self._donated)

    def run(
        self,
        inputs: Mapping[str, Any],
        out: Mapping[str, np.ndarray[Any, Any] | DeviceArray] | None = None,
        keep_on_device: bool = False,
    ) -> dict[str, Any]:
        """Run the model on inputs by name and return the outputs by name.

        Inputs are numpy arrays or objects in host memory that export DLPack. Row-major arrays aligned to 64 bytes are read in
        place, other arrays are copied. Outputs are new numpy arrays, or the arrays of `out`, which are written without a copy if
        they are row-major, aligned to 64 bytes and share no memory with an input. An output that reuses the buffer of a donated
        input (see `inlaid.compile`) is the input's array with new elements, unless the array would be copied, is read-only or
        shares memory with another input. A sequence is a list; an optional is None or its value.

        An input may be a `DeviceArray`, from `to_device` or an earlier run, or another library's tensor on a device. It is read in
        place if only its device reads the input. With `keep_on_device`, results of regions on a device stay there as
        `DeviceArray`s, unless something else reads them. A result that reuses the buffer of a donated `DeviceArray` is the same
        object. A donated host array is copied to the device and left unchanged. A `DeviceArray` in `out` is written on the device,
        without a copy through the host if the output is computed there.

        Raises `InputError` if names, shapes or dtypes do not fit, and `KernelFault` if a region reports an error, such as an index
        out of range; donated inputs and `out` are then undefined.
        """
        values = self._import(inputs)
        if self._donated:
            values = self._given_away(values)
        if out is not None:
            if keep_on_device:
                raise InputError("keep_on_device and out are mutually exclusive", remedy="leave out one of them")
            return self._run_into(values, out)
        results = self._executor.run(values, None, (), keep_on_device)
        if len(results) == 1:
            return {self._output_names[0]: results[0]}
        return dict(zip(self._output_names, results, strict=True))

    def __call__(self, *values: Any) -> Any:
        """Run on inputs in order. Returns the output, or a tuple of several outputs. Raises as `run`."""
        if len(values) != len(self._input_names):
            listed = ", ".join(map(_describe, self.inputs)) or "none"
            raise InputError(f"expected {len(self._input_names)} inputs, got {len(values)}", remedy=f"the inputs are {listed}")
        results = tuple(self.run(dict(zip(self._input_names, values, strict=True))).values())
        return results[0] if len(results) == 1 else results

    def to_device(self, name: str, value: Any) -> Any:
        """Copy the value of an input to the device that reads it, for reuse in several runs. Returns a `DeviceArray`, or the value
        unchanged if no single device reads the input. Raises `InputError` for an unknown name or an unsuitable value, and the
        device's errors."""
        if name not in self._input_names:
            raise InputError(f"the model has no input {name!r}{suggestion(name, self._input_names)}")
        place = self._input_names.index(name)
        memory = self._bound_memory(place)
        if memory is None or isinstance(value, DeviceArray):
            return value
        array = import_value(name, value, self.inputs[place].dtype)
        found = DeviceArray.empty(memory, array.shape, array.dtype)
        found.assign(array)
        return found

    def _bound_memory(self, place: int) -> DeviceMemory | None:
        """Return the device memory that an input may be in; None if it must be in host memory."""
        target = self._executor.plans["main"].places.get(place)
        return None if target is None else self._memories[target]

    def profile(self, inputs: Mapping[str, Any]) -> Profile:
        """Run once and measure the time of each region and kernel. Raises as `run`."""
        from inlaid_runtime.execution.profile import Recorder

        arrays = self._import(inputs)
        recorder = Recorder()
        self._executor.run(self._given_away(arrays), recorder)
        return recorder.finish()

    def save(self, path: str | Path) -> None:
        """Write the model as a package, for `inlaid_runtime.load`. Equal models give equal bytes. An existing file is replaced
        atomically. Raises `OutputError`, and `InputError` for a path that is a folder or a device."""
        write_package(self.package, Path(path))

    def workspace_bytes(self, inputs: Mapping[str, Any]) -> int:
        """Return the bytes of memory that a run on these inputs needs besides weights, inputs and outputs: the arena, and the
        scratch memory of the entry plan's regions."""
        layout = self._executor.plans["main"].enter(self._import(inputs))
        return layout.arena + layout.scratch

    @property
    def weight_bytes(self) -> int:
        """Bytes of all constants, including constants of regions, each counted once."""
        return self.package.weight_bytes

    def _import(self, inputs: Mapping[str, Any]) -> Sequence[Any]:
        """Convert the inputs to values in the model's order and with the model's dtypes."""
        try:
            values = self._take(inputs)
            complete = len(values) == len(inputs) and (type(inputs) is dict or isinstance(inputs, Mapping))
        except (KeyError, IndexError, TypeError, ValueError):
            complete = False
        if not complete:
            raise self._misnamed(inputs)
        for value, wanted in zip(values, self._element_types):  # noqa: B905 (one for each name)
            # Equal numpy dtypes are mostly the same object; `import_value` compares the others.
            if type(value) is not np.ndarray or value.dtype is not wanted:
                return [self._import_value(place, value) for place, value in enumerate(values)]
        return values

    def _import_value(self, place: int, value: Any) -> Any:
        spec, memory = self.inputs[place], self._bound_memory(place)
        if memory is not None and not isinstance(value, (DeviceArray, np.ndarray)) and memory.device.adopts(value):
            value = DeviceArray.adopted(memory, value)
        if not isinstance(value, DeviceArray):
            return import_value(spec.name, value, spec.dtype)
        if spec.dtype is None or value.dtype != spec.dtype.numpy:
            raise InputError(f"expected input {_describe(spec)}, got dtype {value.dtype}")
        return value if memory is not None and memory.device is value.memory.device else value.numpy()

    def _given_away(self, values: Sequence[Any]) -> list[Any]:
        """Return the values, with copies of donated inputs that must not be overwritten."""
        values = list(values)
        for place in self._donated:
            given = values[place]
            if isinstance(given, DeviceArray):
                shared = (item for other, item in enumerate(values) if other != place and isinstance(item, DeviceArray))
                if any(item.tensor.buffer == given.tensor.buffer for item in shared):
                    values[place] = given.copy()
                continue
            if self._bound_memory(place) is not None:
                continue  # copied to the device anyway
            others = (item for other, item in enumerate(values) if other != place and isinstance(item, np.ndarray))
            if not given.flags.writeable or any(np.may_share_memory(given, item) for item in others):
                values[place] = fresh_copy(given)
        return values

    def _run_into(self, values: Sequence[Any], out: Mapping[str, np.ndarray[Any, Any] | DeviceArray]) -> dict[str, Any]:
        """Run with outputs in arrays of the caller."""
        self._check_out(out)
        wanted = [out.get(name) for name in self._output_names]
        direct = [
            array if array is not None and self._fills(place, array) and not any(_share(array, item) for item in values) else None
            for place, array in enumerate(wanted)
        ]
        results = list(self._executor.run(values, targets=direct))
        for place, (name, array) in enumerate(zip(self._output_names, wanted, strict=True)):
            if array is None or array is results[place]:
                continue
            if array.shape != results[place].shape:
                raise InputError(f"out[{name!r}] must have shape {results[place].shape}, got {array.shape}")
            if isinstance(array, DeviceArray):
                array.assign(results[place])
            else:
                np.copyto(array, results[place])
            results[place] = array
        return dict(zip(self._output_names, results, strict=True))

    def _fills(self, place: int, array: np.ndarray[Any, Any] | DeviceArray) -> bool:
        """Test whether a run can write an output directly to an array."""
        if not isinstance(array, DeviceArray):
            return in_place(array)
        memory = self._memories.get(self._executor.plans["main"].makers.get(place, ""))
        return memory is not None and memory.device is array.memory.device

    def _check_out(self, out: Mapping[str, Any]) -> None:
        """Raise `InputError` for arrays that cannot hold outputs."""
        remedy = f"pass {{name: array}}; the outputs are {', '.join(self._output_names)}"
        if not isinstance(out, Mapping):
            raise InputError(f"out must be a dictionary of arrays by name, got {type(out).__name__}", remedy=remedy)
        specs = {spec.name: spec for spec in self.outputs}
        for name, array in out.items():
            if name not in specs:
                raise InputError(f"the model has no output {name!r}{suggestion(str(name), self._output_names)}", remedy=remedy)
            dtype = specs[name].dtype
            if isinstance(array, DeviceArray) and dtype is not None and array.dtype == dtype.numpy:
                continue
            if dtype is None or not isinstance(array, np.ndarray) or array.dtype != dtype.numpy or not array.flags.writeable:
                found = type(array).__name__
                if isinstance(array, np.ndarray):
                    found = f"a {'writable' if array.flags.writeable else 'read-only'} array of {array.dtype}"
                due = "None, as its output is a host object" if dtype is None else f"a writable numpy array of {dtype.name}"
                raise InputError(f"out[{name!r}] must be {due}, got {found}")
        items = list(out.items())
        for place, (name, array) in enumerate(items):
            for other, earlier in items[:place]:
                if _share(array, earlier):
                    raise InputError(f"out[{other!r}] and out[{name!r}] must not share memory")

    def _misnamed(self, inputs: Any) -> InputError:
        """Return the error for input names that do not match the model's."""
        listed = ", ".join(map(_describe, self.inputs)) or "none"
        if not isinstance(inputs, Mapping):
            return InputError(
                f"expected a dictionary of inputs by name, got {type(inputs).__name__}",
                remedy=f"pass {{name: array}}; the inputs are {listed}",
            )
        missing = [name for name in self._input_names if name not in inputs]
        unknown = [name for name in inputs if name not in self._input_names]
        problems = [f"the model has no input {name!r}{suggestion(str(name), missing)}" for name in unknown]
        problems += [f"input {name!r} is missing" for name in missing]
        return InputError("; ".join(problems), remedy=f"the inputs are {listed}")


def load(
    package: str | PathLike[str] | bytes | bytearray | memoryview | IO[bytes],
    expect_sha256: str | None = None,
    devices: Mapping[str, int] | None = None,
) -> Executable:
    """Load a package (`.inlaid` file), given by its path, as bytes, or as a file object in binary mode, which is read to its end.
    Weights are mapped from the file of a path, and otherwise copied.

    `expect_sha256` is the required SHA-256 of the file, in hexadecimal. `devices` gives device numbers by target kind, such as
    `{"cuda": 1}`, or by target if a package has several targets of one kind; default 0. A package contains native code: load only
    packages that you trust.

    Raises `PackageError` for an invalid file, `InputError` for another object, `TargetError` if a plugin is missing, and
    `Unsupported` if this machine cannot run it.
    """
    if isinstance(package, (str, PathLike)):
        return Executable(read_package(Path(package), expect_sha256), devices=devices)
    content: object = package
    if hasattr(package, "read"):
        try:
            content = package.read()
        except OSError as error:
            raise PackageError(f"cannot read {package!r}: {error.strerror or error}") from error
        except UnicodeDecodeError:
            content = ""  # a file object in text mode
    if not isinstance(content, (bytes, bytearray, memoryview)):
        what = f"a file object whose read() returns {type(content).__name__}" if content is not package else f"{package!r}"
        raise InputError(f"expected a package, got {what}", remedy='give its path, its bytes or open(path, "rb")')
    view = memoryview(content)
    try:
        view = view.cast("B")
    except TypeError:  # elements that are not contiguous, or of a type that cannot be cast
        view = memoryview(view.tobytes())
    return Executable(package_of(view, expect_sha256), devices=devices)


def _restored(content: bytes, devices: Mapping[str, int]) -> Executable:
    """Return a pickled executable."""
    return Executable(package_of(content), devices=devices)


def _aligned(package: Package) -> Package:
    """Align the constants so that kernels can read them in place."""
    # Arrays shared by several versions of a region are copied once.
    found: dict[int, np.ndarray[Any, Any]] = {}

    def aligned(arrays: Mapping[str, np.ndarray[Any, Any]]) -> dict[str, np.ndarray[Any, Any]]:
        for array in arrays.values():
            if id(array) not in found:
                found[id(array)] = usable(array)
        return {name: found[id(array)] for name, array in arrays.items()}

    def placed(artifact: Artifact) -> Artifact:
        return dataclasses.replace(artifact, constants=aligned(artifact.constants), variants=tuple(map(placed, artifact.variants)))

    return dataclasses.replace(package, artifacts=tuple(map(placed, package.artifacts)), weights=aligned(package.weights))


def _plain_element_type(spec: TensorSpec) -> np.dtype[Any] | None:
    """Return the dtype of an input whose elements need no conversion; None for strings and host objects."""
    return None if spec.dtype is None or spec.dtype.kind == "string" else spec.dtype.numpy


def _share(one: Any, other: Any) -> bool:
    """Test whether two arrays may share memory."""
    if isinstance(one, DeviceArray) and isinstance(other, DeviceArray):
        return one.tensor.buffer is other.tensor.buffer
    return isinstance(one, np.ndarray) and isinstance(other, np.ndarray) and np.may_share_memory(one, other)


def _describe(spec: TensorSpec) -> str:
    kind = "a host object" if spec.dtype is None else f"{spec.dtype.name}[{', '.join(map(repr, spec.shape))}]"
    return f"{spec.name}: {kind}"


def fitting(artifact: Artifact, module: RuntimeModule) -> tuple[Artifact, str | None]:
    """Return the version of a region to load: the first variant that the runtime accepts, otherwise `artifact`. Also returns the
    reason if the runtime rejects `artifact` too."""
    best = next((variant for variant in artifact.variants if module.check(variant) is None), None)
    return (artifact, module.check(artifact)) if best is None else (best, None)


def _load_regions(
    package: Package, registry: Runtimes, devices: Mapping[str, int]
) -> tuple[dict[str, LoadedRegion], dict[str, DeviceMemory]]:
    """Load the regions, and open the devices of their targets. Returns both by name."""
    infos = {info.symbol: info for info in package.program.regions}
    runtimes: dict[str, RuntimeModule] = {}
    memories: dict[str, DeviceMemory] = {}
    used: set[str] = set()
    loaded: dict[str, LoadedRegion] = {}
    on_device = _on_device(package)
    for artifact in package.artifacts:
        info = infos[artifact.symbol]
        module = runtimes.get(info.target)
        target = registry.target(info.target)
        owner = registry.owner(target.kind)
        if module is None:
            used |= {target.kind, info.target}
            number = devices.get(info.target, devices.get(target.kind, 0))
            module = runtimes[info.target] = registry.runtime(target, number)
        with blame(owner, "the check of the runtime", artifact.symbol, info.nodes):
            artifact, reason = fitting(artifact, module)
        if reason is not None:
            raise Unsupported(f"region {artifact.symbol} cannot run on {info.target} here: {reason}")
        scopes = [scope for scope in artifact.workspace if scope]
        if scopes:
            raise Unsupported(
                f"region {artifact.symbol} needs a workspace in scope {scopes[0]!r}, but only main memory is supported"
            )
        with blame(owner, "loading", artifact.symbol, info.nodes):
            ready = module.load(artifact, artifact.constants)
            if not isinstance(ready, Loaded):
                raise PluginError(
                    f"the runtime of {info.target} must return a Loaded from load(), got {type(ready).__name__}",
                    remedy="return inlaid_runtime.plugins.Loaded(kernel)",
                )
            if (artifact.symbol in on_device) != (ready.launching is not None):
                raise PluginError(
                    f"{info.target} loads regions that use {'host' if ready.launching is None else 'device'} memory",
                    remedy="set Capabilities.device_memory accordingly",
                )
            if ready.launching is not None and info.target not in memories:
                memories[info.target] = _memory(module, info.target, owner)
            loaded[artifact.symbol] = LoadedRegion(artifact, info, owner, ready)
    unused = sorted(set(devices) - used)
    if unused:
        raise TargetError(f"devices names {unused[0]}, but no region runs on it", remedy=f"targets: {sorted(used)}")
    for plan in package.program.plans.values():
        for device, memory in memories.items():
            names = {value.name for value in plan.values if value.storage == "constant" and value.device == device}
            memory.hold({name: package.weights[name] for name in sorted(names - memory.weights.keys())})
    return loaded, memories


def _on_device(package: Package) -> frozenset[str]:
    """Return the regions whose values are in device memory."""
    return frozenset(
        item.symbol
        for plan in package.program.plans.values()
        for item in plan.instructions
        if isinstance(item, Invoke) and any(plan.values[number].device for number in (*item.inputs, *item.outputs))
    )


def _memory(module: RuntimeModule, target: str, owner: str) -> DeviceMemory:
    device = module.device()
    if device is None:
        raise PluginError(f"the runtime of {target} launches kernels, but has no device", remedy="return it from device()")
    return DeviceMemory(device, target, owner)
