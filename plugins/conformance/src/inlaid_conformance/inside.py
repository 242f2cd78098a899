"""Commands that the processes of `fresh` run for checks. Commands import modules on use, since some of them check imports."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from importlib.abc import MetaPathFinder
from pathlib import Path
from typing import TYPE_CHECKING, Any

from inlaid.support.collector import collect_rarely
from inlaid_conformance.fresh import Json, answer
from inlaid_conformance.time_limit import EXIT, end_after

if TYPE_CHECKING:
    from inlaid.plugins import DeviceKernel
    from inlaid.plugins.registry import PluginRegistry
    from inlaid_conformance.target_under_test import TargetUnderTest
    from inlaid_runtime.artifact import TensorSpec
    from inlaid_runtime.plugins import Device

COMPILER, CONTRACT = "inlaid", "inlaid.plugins"
"""Package that a process which only runs models must not import, and its subpackage that is exempt: the plugin contract, which a
module of both halves imports."""

Request = Mapping[str, Any]


def imports(request: Request) -> Json:
    """Return the modules imported by a plugin's module and by its declaration of targets."""
    importlib.import_module("inlaid.plugins.registry")  # imported before plugins are discovered
    before = set(sys.modules)
    module = importlib.import_module(request["module"])
    for hook in ("inlaid_targets", "inlaid_runtimes"):
        if hasattr(module, hook):
            getattr(module, hook)()
    return sorted(set(sys.modules) - before)


def compile_samples(request: Request) -> Json:
    """Return the hashes of the samples' artifacts. With `cut_off`, every use of the plugin's run side raises."""
    from inlaid_conformance.samples import compiled, fingerprints

    tested = _target_under_test(request)
    if request["cut_off"]:
        runtimes = tested.registry.runtimes
        module = importlib.import_module(runtimes.module(runtimes.owner(tested.target.kind)))
        for hook in ("inlaid_runtime", "inlaid_probe"):
            setattr(module, hook, _refuse)
    return fingerprints(compiled(tested))


def run_cases(request: Request) -> Json:
    """Run the cases with the given ids in order. Answers with each result immediately, so that a crash loses only one, and finally
    with the number of results."""
    from inlaid_conformance.suite import cases, run_case

    tested = _target_under_test(request)
    cases_by_id = {case.id: case for case in cases(tested)}
    for name in request["cases"]:
        answer(asdict(run_case(tested, cases_by_id[name], request["case_limit"], sys.stderr.fileno())))
    end_after(EXIT)  # a remaining thread may block the end of the process
    return len(request["cases"])


def resident(request: Request) -> Json:
    """Return the growth of this process in bytes while it repeats an operation."""
    from inlaid_conformance.levels.runtime import resident_growth

    return resident_growth(_target_under_test(request))


def collections(request: Request) -> Json:
    """Run samples while the garbage collector frees kernels and buffers inside calls. Returns a description of a fault, if any."""
    from inlaid_conformance.levels.runtime import collected_inside

    return collected_inside(_target_under_test(request))


def alternate(request: Request) -> Json:
    """Make two queues of the target's device wait for each other in turn. Returns a description of a fault, if any."""
    from inlaid_conformance.levels.devices import alternate

    return _on_device(request, alternate)


def release(request: Request) -> Json:
    """Release queues of the target's device that have work. Returns a description of a fault, if any."""
    from inlaid_conformance.levels.devices import release

    return _on_device(request, release)


def room(request: Request) -> Json:
    """Allocate and free memory of the target's device. Returns a description of a fault, if any."""
    from inlaid_conformance.levels.devices import find_room_fault

    tested = _target_under_test(request)
    runtime = tested.registry.runtime(tested.target)
    device = runtime.device()
    return None if device is None else find_room_fault(runtime, device)


def _on_device(request: Request, use: Callable[[Device], str | None]) -> Json:
    tested = _target_under_test(request)
    device = tested.registry.runtime(tested.target).device()
    return None if device is None else use(device)


def run_packages(request: Request) -> Json:
    """Run packages, each on inputs from an .npz file, and write the outputs to files. Only run modules are loaded. With `alone`,
    the compiler cannot be imported."""
    import numpy as np

    from inlaid_runtime.execution.executable import Executable
    from inlaid_runtime.execution.package import read_package
    from inlaid_runtime.plugins.hookspecs import GROUP
    from inlaid_runtime.plugins.registry import RuntimeRegistry

    if request["alone"]:
        sys.meta_path.insert(0, _NoCompiler())
    registry = RuntimeRegistry.from_modules(request["plugins"][GROUP])
    for stem in map(Path, request["stems"]):
        executable = Executable(read_package(stem.with_suffix(".inlaid")), registry=registry)
        with np.load(stem.with_suffix(".in.npz")) as inputs:
            names = [spec.name for spec in executable.inputs]
            arrays = _typed([inputs[name] for name in names], executable.inputs)
            results = executable.run(dict(zip(names, arrays, strict=True)))
        np.savez(stem.with_suffix(".out.npz"), **{name: plain(value) for name, value in results.items()})
    return len(request["stems"])


def run_kernels(request: Request) -> Json:
    """Run the kernels of packages on stored inputs from .npz files, in a process that cannot import the compiler, and write the
    stored outputs to files. `kernels`: stem, and workspace size in bytes; `symbol`: that of the regions."""
    import numpy as np

    from inlaid_runtime.execution.arrays import aligned_empty
    from inlaid_runtime.execution.package import read_package

    registry = _registry(request)
    runtime = registry.runtime(registry.target(request["target"]))
    sys.meta_path.insert(0, _NoCompiler())
    for stem, size in request["kernels"]:
        artifact = next(item for item in read_package(Path(f"{stem}.inlaid")).artifacts if item.symbol == request["symbol"])
        loaded = runtime.load(artifact, artifact.constants)
        with np.load(f"{stem}.in.npz") as stored:
            inputs = _typed(list(stored.values()), artifact.signature.inputs)
        outputs = [aligned_empty(spec.shape, spec.dtype.numpy) for spec in artifact.signature.outputs]  # type: ignore[union-attr, arg-type]
        if loaded.launching is not None:
            _launch(runtime.device(), loaded.launching, inputs, outputs, size)
        elif loaded.kernel is not None:
            loaded.kernel.invoke(inputs, outputs, aligned_empty((size,), np.uint8), np.zeros(0, np.int64))
        np.savez(f"{stem}.out.npz", *map(plain, outputs))
    return len(request["kernels"])


def load_damaged(request: Request) -> Json:
    """Load the artifacts of a package with damaged code in a process without the compiler. Returns a description of a fault, if
    any. `both_halves`: the plugin has one module for both halves, so the contract may be imported."""
    from inlaid_conformance.case import Failed
    from inlaid_conformance.levels.runtime import refuse_damaged
    from inlaid_runtime.execution.package import read_package
    from inlaid_runtime.plugins.hookspecs import GROUP
    from inlaid_runtime.plugins.registry import RuntimeRegistry

    if not request["both_halves"]:
        for name in [name for name in sys.modules if f"{name}.".startswith(f"{COMPILER}.")]:
            del sys.modules[name]
    sys.meta_path.insert(0, _NoCompiler(CONTRACT if request["both_halves"] else None))
    registry = RuntimeRegistry.from_modules(request["plugins"][GROUP])
    runtime = registry.runtime(registry.target(request["target"]))
    try:
        for artifact in read_package(Path(request["package"])).artifacts:
            if artifact.symbol == request["symbol"]:
                refuse_damaged(runtime, artifact)
    except Failed as error:
        return str(error)
    return None


def plain(array: Any) -> Any:
    """Return an array in the form that files have: element types that numpy does not define become unsigned integers."""
    return array if array.dtype.isbuiltin == 1 else array.view(f"u{array.dtype.itemsize}")


def _typed(arrays: Sequence[Any], specs: Sequence[TensorSpec]) -> list[Any]:
    """Return arrays from a file with their element types."""
    pairs = zip(arrays, specs, strict=True)
    return [array if spec.dtype is None else array.view(spec.dtype.numpy) for array, spec in pairs]


def _launch(device: Any, kernel: DeviceKernel, inputs: Sequence[Any], outputs: Sequence[Any], size: int) -> None:
    """Launch a kernel on a device, and download its outputs."""
    import numpy as np

    from inlaid.plugins import DeviceTensor

    def allocated(size: int, shape: tuple[int, ...], dtype: Any) -> DeviceTensor:
        return DeviceTensor(device.allocate(max(size, 1)), 0, shape, dtype)

    queue = device.queue()
    sources, targets = ([allocated(array.nbytes, array.shape, array.dtype) for array in arrays] for arrays in (inputs, outputs))
    workspace = allocated(size, (size,), np.dtype(np.uint8)) if size else None
    for array, tensor in zip(inputs, sources, strict=True):
        device.upload(array, tensor, queue)
    kernel.launch(sources, targets, workspace, np.zeros(0, np.int64), queue)
    for array, tensor in zip(outputs, targets, strict=True):
        device.download(tensor, array, queue)
    device.synchronize(device.event(queue))


class _NoCompiler(MetaPathFinder):
    """Import hook that blocks the compiler's packages, except the package `allowed`, if given, and its parent."""

    def __init__(self, allowed: str | None = CONTRACT) -> None:
        self._allowed = allowed

    def find_spec(self, fullname: str, path: object, target: object = None) -> None:
        """Raise `ModuleNotFoundError` for modules of the compiler."""
        allowed_names = () if self._allowed is None else (COMPILER, self._allowed)
        if (
            f"{fullname}.".startswith(f"{COMPILER}.")
            and fullname not in allowed_names
            and not fullname.startswith(f"{self._allowed}.")
        ):
            message = f"{fullname} belongs to the compiler, which running a package must not need"
            raise ModuleNotFoundError(message, name=fullname)


def run_libraries(request: Request) -> Json:
    """Call functions of shared libraries, each on inputs from an .npz file, and write the outputs to other files. `libraries`:
    stem, names of the inputs, names, shapes and element types of the outputs, and workspace size in bytes."""
    import ctypes

    import numpy as np

    from inlaid_runtime.execution.arrays import aligned_empty, usable
    from inlaid_runtime.types import dtype

    for stem, names, outputs, workspace in request["libraries"]:
        function = ctypes.CDLL(str(Path(stem).with_suffix(".so"))).model_run
        with np.load(Path(stem).with_suffix(".in.npz")) as inputs:
            arrays = [usable(inputs[name]) for name in names]
        results = {name: aligned_empty(tuple(shape), dtype(element).numpy) for name, shape, element in outputs}
        message = ctypes.create_string_buffer(256)
        scratch = aligned_empty((workspace,), np.uint8)
        if function(*(array.ctypes for array in (*arrays, *results.values(), scratch)), message):
            raise RuntimeError(message.value.decode(errors="replace"))
        np.savez(Path(stem).with_suffix(".out.npz"), **results)  # type: ignore[arg-type]
    return len(request["libraries"])


def _refuse(*arguments: object, **keywords: object) -> None:
    raise RuntimeError("compiling must not use a device")


def _registry(request: Request) -> PluginRegistry:
    from inlaid.plugins.registry import PluginRegistry

    return PluginRegistry.from_modules(request["plugins"])


def _target_under_test(request: Request) -> TargetUnderTest:
    from inlaid_conformance.target_under_test import EXAMPLES, TargetUnderTest

    return TargetUnderTest(request["target"], _registry(request), request.get("examples", EXAMPLES))


COMMANDS: Mapping[str, Callable[[Request], Json]] = {
    "imports": imports,
    "compile": compile_samples,
    "run": run_cases,
    "resident": resident,
    "collections": collections,
    "alternate": alternate,
    "release": release,
    "room": room,
    "packages": run_packages,
    "kernels": run_kernels,
    "damaged": load_damaged,
    "libraries": run_libraries,
}


def main() -> None:
    """Run the command of the request on standard input, within its time limit."""
    collect_rarely()
    request = json.loads(sys.stdin.read())
    end_after(request["limit"])
    answer(COMMANDS[request["command"]](request))


if __name__ == "__main__":
    main()
