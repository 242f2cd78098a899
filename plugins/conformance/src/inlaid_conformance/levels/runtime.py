"""Level 5: loaded code writes only to its buffers, releases its memory, and is thread-safe."""

from __future__ import annotations

import dataclasses
import gc
import itertools
import mmap
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from types import FrameType
from typing import Any

import numpy as np

from inlaid.graph.interp import evaluate
from inlaid.plugins import Device, DeviceTensor, RuntimeModule
from inlaid_conformance import fresh, guarded_memory, samples
from inlaid_conformance.case import Case, Failed, NotClaimed, Skipped
from inlaid_conformance.nets import NETS
from inlaid_conformance.origin import fault_text
from inlaid_conformance.samples import Array, Run
from inlaid_conformance.stored_form import StoredForm
from inlaid_conformance.target_under_test import TargetUnderTest
from inlaid_conformance.tolerance import compare, model_tolerance
from inlaid_runtime.artifact import ALIGNMENT, Artifact
from inlaid_runtime.errors import InlaidError, InputError, KernelFault, PluginError
from inlaid_runtime.execution.executable import Executable

TURNS = 40
"""Number of runs of a model in each of two threads."""
TURNS_OF_TILES = 10
"""Number of runs of an example of several tiles in each of two threads."""
TILED = 12
"""Greatest number of such examples."""
INTERVAL = 1e-5
"""Seconds after which another thread of Python takes its turn."""
LOADS = 100
"""Number of times that a process loads a model."""
WARM_UP = 10
"""Divisor of the number of measured runs and loads; the quotient is the number of warm-up runs, which fill caches and free
lists."""
DROPS = 3
"""Number of times that each sample is loaded, run and dropped."""
PATIENCE = 2.0
"""Seconds in which a thread has to end."""
AGAIN = 3
"""Number of runs of an executable that have to give equal bits."""
MISSING_DEVICES = (10_000, -1)
"""Device numbers that no machine has."""
COLLECTED = 3
"""Number of samples that run while the garbage collector frees kernels and buffers."""
KERNELS, PIECES, BYTES = 40, 1600, 256
"""Number of kernels and of buffers that it frees, and the size of a buffer."""
UNTRIED = frozenset((*sys.stdlib_module_names, "inlaid", "numpy"))
"""Packages inside whose calls nothing is freed."""
NO_TEXT = b"\xff" * 8
"""Code that is not UTF-8: decoding it raises another error than parsing text does."""
SECONDS_OF_COLLECTIONS = 60
"""Time limit of such a process, which does not end if a lock is taken twice."""
GROWTH = 8 << 20
"""Allowed growth in bytes of a process that repeats the same loads and runs."""


def checks_artifacts(tested: TargetUnderTest) -> None:
    """Check that `check` accepts compiled artifacts, and gives a reason for another format, version or requirement."""
    artifact, runtime = _artifact(tested), tested.registry.runtime(tested.target)
    reason = runtime.check(artifact)
    if reason is not None:
        raise Failed(f"check rejects an artifact compiled here: {reason}")
    for changed in ({"format": "conformance-nonsense"}, {"format_version": 10**6}, {"requires": ("conformance-nonsense",)}):
        answer = runtime.check(dataclasses.replace(artifact, **changed))
        if not isinstance(answer, str) or not answer:
            raise Failed(f"check must give a reason for an artifact with {changed}, got {answer!r}")


def refuses_damaged_code(tested: TargetUnderTest) -> None:
    """Check that `load` raises an error of Inlaid's family, or none, for empty, truncated and foreign code."""
    refuse_damaged(tested.registry.runtime(tested.target), _artifact(tested))


def refuse_damaged(runtime: RuntimeModule, artifact: Artifact) -> None:
    """Load an artifact with damaged code. Raises `Failed` if this raises an error that is not of Inlaid's family."""
    for code in (b"", artifact.code[: len(artifact.code) // 2], b"null", b"[]", b"{}", NO_TEXT):
        try:
            runtime.load(dataclasses.replace(artifact, code=code), artifact.constants)
        except InlaidError:
            continue
        except Exception as error:
            raise Failed(f"load must raise Unsupported for damaged code, such as {code[:20]!r}, got {error!r}") from error


def refuses_other_devices(tested: TargetUnderTest) -> None:
    """Check that a device number that no machine has raises an error of Inlaid's family. A target without device memory may ignore
    numbers."""
    for number in MISSING_DEVICES:
        try:
            tested.registry.runtime(tested.target, number)
        except PluginError as error:
            cause = error.__cause__
            if cause is not None and not isinstance(cause, InlaidError):
                raise Failed(f"device {number} must raise an error of inlaid_runtime.errors, got {cause!r}") from error
        except InlaidError:
            pass
        else:
            if tested.capabilities.device_memory:
                raise Failed(f"device {number} must raise TargetError, since this machine has none, but inlaid_runtime ignores it")


def _artifact(tested: TargetUnderTest) -> Artifact:
    return next(iter(tested.once(samples.compiled).values()))


def gives_the_same_again(tested: TargetUnderTest) -> None:
    """Check that the same executable, inputs and number of threads give the same bits."""
    for run in samples.runs(tested):
        executable = run.load()
        if len({tuple(_bits(executable.run(run.inputs))) for _ in range(AGAIN)}) > 1:
            raise Failed(f"{run.name} gives different bits when run again")


def _bits(results: Mapping[str, Any]) -> list[bytes]:
    return [np.asarray(value).tobytes() for value in results.values()]


def gives_new_results(tested: TargetUnderTest) -> None:
    """Check that results belong to the caller: later runs do not change them, and they share no memory with other arrays."""
    for run in samples.runs(tested):
        executable = run.load()
        inputs = {name: value.copy() for name, value in run.inputs.items()}
        first = executable.run(inputs)
        snapshot = _bits(first)
        second = executable.run(run.other_inputs)
        if _bits(first) != snapshot:
            raise Failed(f"a later run changes the results of {run.name}")
        for name, value in first.items():
            if any(np.may_share_memory(value, other) for other in (*inputs.values(), *second.values())):
                raise Failed(f"result {name} of {run.name} shares memory with an input or another result")


def runs_interleaved(tested: TargetUnderTest) -> None:
    """Check that two executables that run in turn, of equal shapes and with different constants, do not affect each other."""
    for run in samples.runs(tested):
        pair = ((run.function, run.load(), run.inputs), (run.other, run.load_other(), run.other_inputs))
        for function, executable, inputs in pair * 2:
            try:
                run.compare(function, inputs, executable.run(inputs))
            except Failed as error:
                raise Failed(f"{run.name}, in turn with the same with other constants: {error}") from None


def takes_any_array(tested: TargetUnderTest) -> None:
    """Check that strided, unaligned, column-major and read-only inputs give the same results as plain inputs."""
    for run in samples.runs(tested):
        executable = run.load()
        expected = _bits(executable.run(run.inputs))
        for name, change in LAYOUTS.items():
            changed = {key: change(value) for key, value in run.inputs.items()}
            before = [value.tobytes() for value in changed.values()]
            if _bits(executable.run(changed)) != expected:
                raise Failed(f"{run.name} gives different results for inputs that are {name}")
            if [value.tobytes() for value in changed.values()] != before:
                raise Failed(f"{run.name} writes to its inputs")


def _strided(value: Array) -> Array:
    wide = np.zeros((*value.shape, 2), value.dtype)
    wide[..., 0] = value
    return wide[..., 0]


def _unaligned(value: Array) -> Array:
    raw = np.zeros(value.nbytes + 2 * ALIGNMENT, np.uint8)
    view: Array = raw[1 : 1 + value.nbytes].view(value.dtype).reshape(value.shape)
    view[...] = value
    return view


def _read_only(value: Array) -> Array:
    copy = value.copy()
    copy.flags.writeable = False
    return copy


LAYOUTS: Mapping[str, Callable[[Array], Array]] = {
    "strided": _strided,
    "unaligned": _unaligned,
    "column-major": np.asfortranarray,
    "read-only": _read_only,
}


def keeps_to_its_buffers(tested: TargetUnderTest) -> None:
    """Check that a kernel writes all of its outputs, and nothing outside of outputs and workspace, for any initial contents."""
    tried = False
    for sample in (*samples.claimed(tested), *tested.once(samples.tiled)):
        artifact = samples.compile_artifact(tested, sample)
        if artifact.signature.dims:
            continue
        kernel = tested.registry.runtime(tested.target).load(artifact, artifact.constants).kernel
        if kernel is None:
            continue
        tried = True
        guarded_memory.invoke(sample.name, StoredForm(tested, sample), artifact, kernel)
    if not tried:
        raise Skipped("no kernel of static sizes takes its caller's buffers")


def keeps_to_its_workspace(tested: TargetUnderTest) -> None:
    """Check that kernels of symbolic sizes write nothing outside of the workspace that their artifact asks for, at sizes at which
    it has more than 64 KiB, and some MiB."""
    runtime, sizes = tested.registry.runtime(tested.target), [-1]
    for sample in samples.of_symbolic_sizes(tested):
        artifact = samples.compile_artifact(tested, sample)
        stored = StoredForm(tested, sample)
        if guarded_memory.region_sizes(artifact, stored):
            guarded_memory.run(sample.name, runtime, artifact, runtime.load(artifact, artifact.constants), stored)
            sizes.append(guarded_memory.workspace_bytes(artifact, stored))
    if max(sizes) <= 0:
        raise NotClaimed("the target supports no region of symbolic sizes" if len(sizes) == 1 else "no region needs a workspace")


def refuses_wrong_inputs(tested: TargetUnderTest) -> None:
    """Check that inputs of a wrong rank, shape, element type or number raise an Inlaid error, and the next run is correct."""
    for run in samples.runs(tested):
        executable = run.load()
        expected = _bits(executable.run(run.inputs))
        for what, inputs in _wrong_inputs(run):
            try:
                executable.run(inputs)
            except (InputError, KernelFault):
                continue
            except Exception as error:
                raise Failed(f"{run.name} must raise an Inlaid error for {what}, got {type(error).__name__}: {error}") from error
            raise Failed(f"{run.name} accepts {what}")
        if _bits(executable.run(run.inputs)) != expected:
            raise Failed(f"{run.name} gives wrong results after a run with wrong inputs")


def _wrong_inputs(run: Run) -> list[tuple[str, dict[str, Any]]]:
    name, value = next(iter(run.inputs.items()))
    inputs = dict(run.inputs)
    cases = [
        ("an input of a wrong rank", {**inputs, name: value[None]}),
        ("an input of a wrong element type", {**inputs, name: value.astype(np.complex64)}),
        ("too many inputs", {**inputs, "conformance": value}),
        ("too few inputs", {key: item for key, item in inputs.items() if key != name}),
    ]
    if value.ndim:
        cases.append(("an input of a wrong shape", {**inputs, name: np.concatenate([value, value[:1]])}))
    return cases


def runs_at_other_sizes(tested: TargetUnderTest) -> None:
    """Check that a model with symbolic sizes gives correct results at several sizes, in any order."""
    net = next(net for net in NETS if net.name == "perceptron-symbolic")
    refused = tested.refused(net.module())
    if refused is not None:
        raise NotClaimed(refused)
    executable, function = tested.load_model(net.module()), net.build()
    for batch in (5, 1, 70, 5, 0):
        inputs = {"x": np.random.default_rng(batch).uniform(-1, 1, (batch, 19)).astype(np.float32)}
        try:
            expected = evaluate(function, [inputs["x"]])
            compare(function.body.type, expected, list(executable.run(inputs).values()), partial(model_tolerance, tested))
        except Failed as error:
            raise Failed(f"{net.name} at a batch of {batch}: {error}") from None


def reports_faults(tested: TargetUnderTest) -> None:
    """Check that an index out of range raises `KernelFault`, and the next run is correct."""
    indexing = samples.claimed(tested, ("take", "gather_nd", "take_along_axis"))
    indexed = [sample for sample in indexing if len(sample.inputs) == 2]
    if not indexed:
        raise NotClaimed("the target supports no operator with indices from data")
    for sample in indexed:
        executable = tested.load(sample.composed)
        data, indices = sample.inputs
        valid_inputs = {"x0": data, "x1": indices}
        expected = _bits(executable.run(valid_inputs))
        for index in (10**6, -(10**6)):
            try:
                executable.run({"x0": data, "x1": np.full_like(indices, index)})
            except KernelFault:
                continue
            raise Failed(f"{sample.name} accepts the out-of-range index {index}")
        if _bits(executable.run(valid_inputs)) != expected:
            raise Failed(f"{sample.name} gives wrong results after an index out of range")


def counts_its_memory(tested: TargetUnderTest) -> None:
    """Check that `live_bytes()` returns to its former value after loaded kernels are dropped."""
    runtime = tested.registry.runtime(tested.target)
    if runtime.live_bytes() is None:
        raise Skipped("its runtime does not count its memory")
    artifacts = tuple(tested.once(samples.compiled).values())
    gc.collect()  # drop what earlier cases have left
    before = runtime.live_bytes()
    kernels: list[object] = [runtime.load(artifact, artifact.constants) for artifact in artifacts]
    kernels.clear()
    gc.collect()
    after = runtime.live_bytes()
    if after != before:
        raise Failed(f"live_bytes() must return to {before} after {len(artifacts)} kernels were loaded and dropped, got {after}")


def closes(tested: TargetUnderTest) -> None:
    """Check that `close()` may be called twice, and that a closed runtime holds no memory and loads no kernel of any sample."""
    runtime = tested.registry.runtime(tested.target)
    if type(runtime).close is RuntimeModule.close:
        raise Skipped("its runtime holds nothing to close")
    artifacts = tuple(tested.once(samples.compiled).values())
    for artifact in artifacts:
        runtime.load(artifact, artifact.constants)
    gc.collect()
    runtime.close()
    runtime.close()
    if runtime.live_bytes():
        raise Failed(f"expected 0 live bytes after close(), got {runtime.live_bytes()}")
    for artifact in artifacts:
        try:
            runtime.load(artifact, artifact.constants)
        except InlaidError:
            continue
        raise Failed("a closed runtime must not load a kernel")


def closes_alone(tested: TargetUnderTest) -> None:
    """Check that `close()` of one runtime module of a device leaves the kernels and later loads of another one as they are."""
    runtime, other = (tested.registry.runtime(tested.target) for _ in range(2))
    if type(runtime).close is RuntimeModule.close:
        raise Skipped("its runtime holds nothing to close")
    if runtime is other:
        raise Skipped("the target has one runtime module for all executables")
    kernels, other_kernels = [], []
    for sample in samples.claimed(tested):
        artifact = samples.compile_artifact(tested, sample)
        if not artifact.signature.dims:
            loaded, stored = runtime.load(artifact, artifact.constants), StoredForm(tested, sample)
            with suppress(Failed):  # other cases report it
                guarded_memory.run(sample.name, runtime, artifact, loaded, stored)
                kernels.append((sample.name, artifact, loaded, stored))
            other_kernels.append(other.load(artifact, artifact.constants))
    other.close()
    for name, artifact, loaded, stored in kernels:
        try:
            for kernel in (loaded, runtime.load(artifact, artifact.constants)):
                guarded_memory.run(name, runtime, artifact, kernel, stored)
        except Exception as error:  # whatever a plugin raises
            reason = str(error) if isinstance(error, Failed) else f"{name} raises {fault_text(error)}"
            raise Failed(f"after close() of another runtime module, {reason}") from error


def ends_its_threads(tested: TargetUnderTest) -> None:
    """Check that the threads of executables end once these are dropped. Threads that a process has once may stay."""
    packages = [(run.load().package, run.inputs) for run in samples.runs(tested)]

    def load_and_drop() -> None:
        for package, inputs in packages:
            Executable(package, registry=tested.registry).run(inputs)
        gc.collect()

    load_and_drop()
    before = _threads()
    for _ in range(DROPS):
        load_and_drop()
    deadline = time.monotonic() + PATIENCE
    # A pool of the process may still grow by a thread or two, a leak grows by one for each executable.
    while _threads() >= before + DROPS and time.monotonic() < deadline:
        time.sleep(0.01)
    left = _threads() - before
    if left >= DROPS:
        raise Failed(f"{DROPS * len(packages)} executables that were dropped have left {left} threads")


def _threads() -> int:
    """Return the number of threads of this process, those outside Python too where the system lists them."""
    try:
        return len(os.listdir("/proc/self/task"))
    except OSError:
        return threading.active_count()


def keeps_no_memory(tested: TargetUnderTest) -> None:
    """Check that the memory of a process that repeatedly loads, runs and drops the same models does not grow."""
    samples.runs(tested)
    growth_by_action = fresh.ask("resident", tested.registry.plugin_modules(), target=tested.text)
    if growth_by_action is None:
        raise Skipped("this system does not report the memory of a process")
    for action, growth in growth_by_action.items():
        if growth > GROWTH:
            raise Failed(f"a process grows by {growth >> 20} MiB while it {action}")


def resident_growth(tested: TargetUnderTest) -> dict[str, int] | None:
    """Measure the growth of this process in bytes, while it repeatedly runs a model, and while it repeatedly loads a model."""
    if _resident() is None:
        return None
    run = max(samples.runs(tested), key=lambda run: sum(value.nbytes for value in run.inputs.values()))
    executable = run.load()
    results = sum(value.nbytes for value in executable.run(run.inputs).values())
    times = min(max((4 * GROWTH) // max(results, 1), 100), 3000)
    package = executable.package
    steps: dict[str, tuple[int, Callable[[], object]]] = {
        f"runs {run.name} {times} times": (times, partial(executable.run, run.inputs)),
        f"loads {run.name} {LOADS} times": (LOADS, partial(Executable, package, registry=tested.registry)),
    }
    growth = {}
    for what, (count, step) in steps.items():
        _repeat(count // WARM_UP, step)
        gc.collect()
        before = _resident() or 0
        _repeat(count, step)
        gc.collect()
        growth[what] = (_resident() or 0) - before
    return growth


def _repeat(times: int, step: Callable[[], object]) -> None:
    for _ in range(times):
        step()


def _resident() -> int | None:
    """Return the resident memory of this process in bytes, None if unknown."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * mmap.PAGESIZE
    except OSError:
        return None


def runs_in_two_threads(tested: TargetUnderTest) -> None:
    """Check that two threads that run one executable on different inputs get the same results as one thread. Runs of several tiles
    overlap, since threads take turns often."""
    with _frequent_turns():
        for run, turns in _runs_of_threads(tested):
            executable = run.load()
            _check_in_threads(run, turns, [(executable, run.inputs), (executable, run.other_inputs)])


def runs_in_parallel(tested: TargetUnderTest) -> None:
    """Check that two executables of equal shapes, which two threads run at the same time, get the same results as in one thread."""
    with _frequent_turns():
        for run, turns in _runs_of_threads(tested):
            _check_in_threads(run, turns, [(run.load(), run.inputs), (run.load_other(), run.other_inputs)])


def _runs_of_threads(tested: TargetUnderTest) -> list[tuple[Run, int]]:
    """Return the runs of two threads, each with the number of times that a thread repeats it."""
    small = [(run, TURNS) for run in samples.runs(tested)]
    large = [(samples.make_run(tested, sample), TURNS_OF_TILES) for sample in tested.once(samples.tiled)[:TILED]]
    return [*small, *large]


@contextmanager
def _frequent_turns() -> Iterator[None]:
    interval = sys.getswitchinterval()
    sys.setswitchinterval(INTERVAL)
    try:
        yield
    finally:
        sys.setswitchinterval(interval)


def _check_in_threads(run: Run, turns: int, executions: Sequence[tuple[Executable, Mapping[str, Array]]]) -> None:
    """Run executables on inputs, each in a thread of its own. Raises `Failed` if results differ from those of one thread."""
    expected = [_bits(executable.run(inputs)) for executable, inputs in executions]
    start = threading.Barrier(len(executions))
    problems: list[str] = []
    threads = [
        threading.Thread(target=_run_often, args=(executable, turns, inputs, bits, start, problems), daemon=True)
        for (executable, inputs), bits in zip(executions, expected, strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if problems:
        raise Failed(f"{run.name} in two threads {problems[0]}")


def _run_often(
    executable: Executable,
    turns: int,
    inputs: Mapping[str, Array],
    expected: list[bytes],
    start: threading.Barrier,
    problems: list[str],
) -> None:
    """Run repeatedly until a result is wrong in any thread, and record the problem in `problems`."""
    start.wait()
    for _ in range(turns):
        try:
            if _bits(executable.run(inputs)) != expected:
                problems.append("gives other results than in one thread")
        except Exception as error:
            problems.append(f"raises {type(error).__name__}: {error}")
        if problems:
            return


def survives_collections(tested: TargetUnderTest) -> None:
    """Check, in a process of its own, that the garbage collector may free kernels, and buffers of a device, inside any call of the
    run module: it runs finalizers at any allocation."""
    samples.runs(tested)
    try:
        fault = fresh.ask("collections", tested.registry.plugin_modules(), limit=SECONDS_OF_COLLECTIONS, target=tested.text)
    except Failed as error:
        raise Failed(f"a kernel or buffer may be freed while its thread holds locks of the run module: {error}") from None
    if fault is not None:
        raise Failed(fault)


def collected_inside(tested: TargetUnderTest) -> str | None:
    """Load and run samples while the garbage collector frees kernels and buffers inside the calls. Returns a description of a
    fault."""
    runtime = tested.registry.runtime(tested.target)
    runs = samples.runs(tested)[:COLLECTED]
    artifacts = tested.once(samples.compiled).values()
    executables = [run.load() for run in runs]
    expected = [_bits(executable.run(run.inputs)) for run, executable in zip(runs, executables, strict=True)]
    gc.collect()
    before = runtime.live_bytes()
    device = runtime.device()
    gc.freeze()  # to keep collections short
    loads = itertools.islice(itertools.cycle(artifacts), KERNELS)
    garbage = _Garbage([runtime.load(artifact, artifact.constants) for artifact in loads], device)
    sys.setprofile(garbage)
    try:
        results = [_bits(executable.run(run.inputs)) for run, executable in zip(runs, executables, strict=True)]
        for run, executable in zip(runs, executables, strict=True):
            results.append(_bits(Executable(executable.package, registry=tested.registry).run(run.inputs)))
        if device is not None:
            _use(device)
    finally:
        sys.setprofile(None)
    gc.unfreeze()
    garbage.drop()
    gc.collect()
    if results != expected * 2:
        return "results differ if the garbage collector frees kernels and buffers inside calls"
    if runtime.live_bytes() != before:
        return f"live_bytes() must return to {before} after collections inside calls, got {runtime.live_bytes()}"
    return None


def _use(device: Device) -> None:
    """Call the methods of a device that a run may not call itself."""
    queue, other = device.queue(), device.queue()
    first, second = (DeviceTensor(device.allocate(BYTES), 0, (BYTES,), np.dtype(np.uint8)) for _ in range(2))
    device.upload(np.zeros(BYTES, np.uint8), first, queue)
    device.wait(other, device.event(queue))
    device.copy(first, second, other)
    device.synchronize(device.event(other))
    for tensor in (first, second):
        device.free(tensor.buffer)
    for item in (queue, other):
        device.release(item)
    device.memory()


class _Garbage:
    """A profiling function that lets the garbage collector free a kernel or a buffer, held by a cycle of references, at each new
    call site in modules other than those of the standard library, numpy and the compiler."""

    def __init__(self, kernels: Sequence[object], device: Device | None) -> None:
        self._waiting: list[object] = []
        self._call_sites: set[object] = set()
        for number in range(PIECES):
            kernel_number, remainder = divmod(number, PIECES // len(kernels))
            cycle = _Cycle(None if remainder else kernels[kernel_number])
            if device is not None:
                weakref.finalize(cycle, device.free, device.allocate(BYTES))
            self._waiting.append(cycle)

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        """Collect a piece."""
        call_site = frame.f_code, frame.f_lineno, event
        if (
            call_site not in self._call_sites
            and self._waiting
            and frame.f_globals.get("__name__", "").partition(".")[0] not in UNTRIED
        ):
            self._waiting.pop()
            if gc.collect():  # not inside of another collection
                self._call_sites.add(call_site)

    def drop(self) -> None:
        """Drop the pieces that are left."""
        self._waiting.clear()


class _Cycle:
    """An object that only the garbage collector frees, with what it holds."""

    def __init__(self, content: object) -> None:
        self.content, self.cycle = content, self


CASES = (
    Case("runtime", "checks-artifacts", checks_artifacts),
    Case("runtime", "refuses-damaged-code", refuses_damaged_code),
    Case("runtime", "refuses-other-devices", refuses_other_devices),
    Case("runtime", "gives-the-same-again", gives_the_same_again),
    Case("runtime", "gives-new-results", gives_new_results),
    Case("runtime", "runs-interleaved", runs_interleaved),
    Case("runtime", "takes-any-array", takes_any_array),
    Case("runtime", "keeps-to-its-buffers", keeps_to_its_buffers),
    Case("runtime", "keeps-to-its-workspace", keeps_to_its_workspace),
    Case("runtime", "refuses-wrong-inputs", refuses_wrong_inputs),
    Case("runtime", "runs-at-other-sizes", runs_at_other_sizes),
    Case("runtime", "reports-faults", reports_faults),
    Case("runtime", "counts-its-memory", counts_its_memory),
    Case("runtime", "survives-collections", survives_collections),
    Case("runtime", "closes", closes),
    Case("runtime", "closes-alone", closes_alone),
    Case("runtime", "ends-its-threads", ends_its_threads),
    Case("runtime", "keeps-no-memory", keeps_no_memory),
    Case("runtime", "runs-in-two-threads", runs_in_two_threads),
    Case("runtime", "runs-in-parallel", runs_in_parallel),
)
