"""Compiled models: run, save and profile them."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from inlaid_runtime.artifact import TensorSpec
from inlaid_runtime.artifact.plan import RegionInfo
from inlaid_runtime.errors import InputError, PackageError
from inlaid_runtime.execution.arrays import import_value
from inlaid_runtime.execution.device_memory import DeviceArray
from inlaid_runtime.execution.executor import Executor
from inlaid_runtime.execution.input_values import InputValues, describe
from inlaid_runtime.execution.loading import aligned, load_regions
from inlaid_runtime.execution.output_arrays import OutputArrays
from inlaid_runtime.execution.package import Package, encode_package, package_from_bytes, read_package, write_package
from inlaid_runtime.execution.verify import verify_program
from inlaid_runtime.plugins.registry import default_registry
from inlaid_runtime.plugins.runtime_module import Runtimes

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
        self.package = package = aligned(package)
        regions, memories = load_regions(package, registry or default_registry(), devices or {})
        self._executor = Executor(package.program, regions, package.weights, memories)
        main = package.program.plans["main"]
        values = main.values
        self.inputs = tuple(TensorSpec(name, values[number].shape, values[number].dtype) for name, number in main.inputs)
        self.outputs = tuple(TensorSpec(name, values[number].shape, values[number].dtype) for name, number in main.outputs)
        plan = self._executor.plans["main"]
        input_memories = [memories.get(plan.places.get(position, "")) for position in range(len(self.inputs))]
        output_memories = [memories.get(plan.makers.get(position, "")) for position in range(len(self.outputs))]
        self._inputs = InputValues(self.inputs, input_memories, sorted(plan.donated))
        self._output_arrays = OutputArrays(self.outputs, output_memories)
        self._output_names = self._output_arrays.names

    def __copy__(self) -> Executable:
        return self

    def __deepcopy__(self, memo: object) -> Executable:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the package, as in its file. It is loaded again for the same devices."""
        return _restored, (encode_package(self.package), self._devices)

    def __repr__(self) -> str:
        sides = [", ".join(map(describe, specs)) for specs in (self.inputs, self.outputs)]
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
        """Names of the inputs whose buffers are reused by outputs."""
        return tuple(self._inputs.names[position] for position in self._inputs.donated)

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
        values = self._inputs.read(inputs)
        if self._inputs.donated:
            values = self._inputs.donate(values)
        if out is not None:
            if keep_on_device:
                raise InputError("keep_on_device and out are mutually exclusive", remedy="leave out one of them")
            self._output_arrays.check(out)
            targets = self._output_arrays.targets(out, values)
            return self._output_arrays.fill(out, self._executor.run(values, targets=targets))
        results = self._executor.run(values, None, (), keep_on_device)
        if len(results) == 1:
            return {self._output_names[0]: results[0]}
        return dict(zip(self._output_names, results, strict=True))

    def __call__(self, *values: Any) -> Any:
        """Run on inputs in order. Returns the output, or a tuple of several outputs. Raises as `run` does."""
        if len(values) != len(self._inputs.names):
            listed = ", ".join(map(describe, self.inputs)) or "none"
            raise InputError(f"expected {len(self._inputs.names)} inputs, got {len(values)}", remedy=f"the inputs are {listed}")
        results = tuple(self.run(dict(zip(self._inputs.names, values, strict=True))).values())
        return results[0] if len(results) == 1 else results

    def to_device(self, name: str, value: Any) -> Any:
        """Copy the value of an input to the device that reads it, for reuse in several runs. Returns a `DeviceArray`, or the value
        unchanged if no single device reads the input. Raises `InputError` for an unknown name or an unsuitable value, and the
        device's errors."""
        position = self._inputs.find_position(name)
        memory = self._inputs.memories[position]
        if memory is None or isinstance(value, DeviceArray):
            return value
        array = import_value(name, value, self.inputs[position].dtype)
        device_array = DeviceArray.empty(memory, array.shape, array.dtype)
        device_array.assign(array)
        return device_array

    def profile(self, inputs: Mapping[str, Any]) -> Profile:
        """Run once and measure the time of each region and kernel. Raises as `run` does."""
        from inlaid_runtime.execution.profile import Recorder

        arrays = self._inputs.read(inputs)
        recorder = Recorder()
        self._executor.run(self._inputs.donate(arrays), recorder)
        return recorder.finish()

    def save(self, path: str | Path) -> None:
        """Write the model as a package, for `inlaid_runtime.load`. Equal models give equal bytes. An existing file is replaced
        atomically. Raises `OutputError`, and `InputError` for a path that is a folder or a device."""
        write_package(self.package, Path(path))

    def workspace_bytes(self, inputs: Mapping[str, Any]) -> int:
        """Return the bytes of memory that a run on these inputs needs besides weights, inputs and outputs: the arena, and the
        scratch memory of the entry plan's regions."""
        layout = self._executor.plans["main"].enter(self._inputs.read(inputs))
        return layout.arena + layout.scratch

    @property
    def weight_bytes(self) -> int:
        """Bytes of all constants, including constants of regions, each counted once."""
        return self.package.weight_bytes


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
    return Executable(package_from_bytes(view, expect_sha256), devices=devices)


def _restored(content: bytes, devices: Mapping[str, int]) -> Executable:
    """Return a pickled executable."""
    return Executable(package_from_bytes(content), devices=devices)
