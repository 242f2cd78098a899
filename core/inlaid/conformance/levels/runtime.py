"""Level 5: loaded code keeps to its buffers, gives back what it takes, and may run in several threads."""

from __future__ import annotations

import dataclasses
import gc
import mmap
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from inlaid import arith
from inlaid.artifact import ALIGNMENT, Artifact
from inlaid.conformance import fresh, samples
from inlaid.conformance.case import Case, Failed, NotClaimed, Skipped
from inlaid.conformance.nets import NETS
from inlaid.conformance.samples import Array, Run, Sample
from inlaid.conformance.target_under_test import TargetUnderTest
from inlaid.conformance.tolerance import compare, of_model
from inlaid.driver.build import ALONE
from inlaid.errors import InlaidError, InputError, KernelFault
from inlaid.graph import ir
from inlaid.graph.interp import evaluate
from inlaid.partitioning.borders import decode, encode, stored_function
from inlaid.plugins import Border, Kernel, RuntimeModule
from inlaid.runtime.arrays import address, aligned_empty
from inlaid.runtime.executable import Executable
from inlaid.types import TensorType, TupleType, Type, from_numpy

GUARD = 4096
"""Bytes on either side of a buffer that nobody may write."""
POISON = 0xA5
TURNS = 40
"""How often each of two threads runs a model."""
LOADS = 100
"""How often a process loads a model."""
WARM_UP = 10
"""One in so many of the runs and loads that are measured comes before them: what is made once, caches and free lists too, is made
then."""
GROWTH = 8 << 20
"""Bytes that a process may grow by while it loads and runs the same things over and over."""


def checks_artifacts(tested: TargetUnderTest) -> None:
    """`check` takes what the code generator made, and says why not of another format, version or requirement."""
    artifact, runtime = _artifact(tested), tested.registry.runtime(tested.target)
    reason = runtime.check(artifact)
    if reason is not None:
        raise Failed(f"check refuses what was compiled here: {reason}")
    for changed in ({"format": "conformance-nonsense"}, {"format_version": 10**6}, {"requires": ("conformance-nonsense",)}):
        answer = runtime.check(dataclasses.replace(artifact, **changed))
        if not isinstance(answer, str) or not answer:
            raise Failed(f"check answers {answer!r} for an artifact with {changed}")


def _artifact(tested: TargetUnderTest) -> Artifact:
    return next(iter(tested.once(samples.compiled).values()))


def gives_the_same_again(tested: TargetUnderTest) -> None:
    """The same executable, inputs and threads give the same bits."""
    for run in samples.runs(tested):
        executable = run.load()
        if _bits(executable.run(run.inputs)) != _bits(executable.run(run.inputs)):
            raise Failed(f"{run.name} gives other bits when it is run again")


def _bits(results: Mapping[str, Any]) -> list[bytes]:
    return [np.asarray(value).tobytes() for value in results.values()]


def gives_new_results(tested: TargetUnderTest) -> None:
    """The results of a run are the caller's own: no later run changes them, and they share no memory with inputs or others."""
    for run in samples.runs(tested):
        executable = run.load()
        inputs = {name: value.copy() for name, value in run.inputs.items()}
        first = executable.run(inputs)
        kept = _bits(first)
        second = executable.run(run.other_inputs())
        if _bits(first) != kept:
            raise Failed(f"a later run changes the results of {run.name}")
        for name, value in first.items():
            if any(np.may_share_memory(value, other) for other in (*inputs.values(), *second.values())):
                raise Failed(f"result {name} of {run.name} shares memory with an input or another result")


def takes_any_array(tested: TargetUnderTest) -> None:
    """Inputs that are strided, unaligned, in another order or read-only give the results of those that are plain."""
    for run in samples.runs(tested):
        executable = run.load()
        wanted = _bits(executable.run(run.inputs))
        for name, change in LAYOUTS.items():
            changed = {key: change(value) for key, value in run.inputs.items()}
            before = [value.tobytes() for value in changed.values()]
            if _bits(executable.run(changed)) != wanted:
                raise Failed(f"{run.name} gives other results for inputs that are {name}")
            if [value.tobytes() for value in changed.values()] != before:
                raise Failed(f"{run.name} writes to its inputs")


def _strided(value: Array) -> Array:
    wide = np.zeros((*value.shape, 2), value.dtype)
    wide[..., 0] = value
    return wide[..., 0]


def _unaligned(value: Array) -> Array:
    raw = np.zeros(value.nbytes + 2 * ALIGNMENT, np.uint8)
    found: Array = raw[1 : 1 + value.nbytes].view(value.dtype).reshape(value.shape)
    found[...] = value
    return found


def _read_only(value: Array) -> Array:
    found = value.copy()
    found.flags.writeable = False
    return found


LAYOUTS: Mapping[str, Callable[[Array], Array]] = {
    "strided": _strided,
    "unaligned": _unaligned,
    "in column order": np.asfortranarray,
    "read-only": _read_only,
}


def keeps_to_its_buffers(tested: TargetUnderTest) -> None:
    """A kernel writes its outputs and its workspace, all of the outputs, and nothing beside them; what it finds there does not
    matter to it."""
    tried = False
    for sample in samples.claimed(tested):
        artifact = next(item for item in tested.package(sample.composed).artifacts if item.symbol == ALONE)
        if artifact.signature.dims:
            continue
        kernel = tested.registry.runtime(tested.target).load(artifact, artifact.constants).kernel
        if kernel is None:
            continue
        tried = True
        _invoke_guarded(tested, sample, artifact, kernel)
    if not tried:
        raise Skipped("no kernel of static sizes writes to buffers that it is given")


def _invoke_guarded(tested: TargetUnderTest, sample: Sample, artifact: Artifact, kernel: Kernel) -> None:
    region = tested.region(ALONE, sample.composed)
    given = sample.inputs if region.borders is None else _stored(sample.inputs, region.borders.inputs)
    inputs = [_Guarded(value.nbytes) for value in given]
    arrays = [guarded.view(value.shape, value.dtype) for guarded, value in zip(inputs, given, strict=True)]
    for array, value in zip(arrays, given, strict=True):
        array[...] = value
    inside = region.function if region.borders is None else stored_function(region.function, region.borders)
    assert isinstance(inside.body.type, TupleType)
    parts = [part for part in inside.body.type.fields if isinstance(part, TensorType)]
    shapes = [tuple(int(dim) for dim in part.shape if isinstance(dim, int)) for part in parts]
    sizes = [int(np.prod(shape)) * part.dtype.numpy.itemsize for part, shape in zip(parts, shapes, strict=True)]
    outputs = [_Guarded(size) for size in sizes]
    workspace = _Guarded(int(arith.evaluate(artifact.workspace.get("", 0), {})))
    results = [guarded.view(shape, part.dtype.numpy) for guarded, part, shape in zip(outputs, parts, shapes, strict=True)]
    kernel.invoke(arrays, results, workspace.view((workspace.size,), np.dtype(np.uint8)), np.zeros(0, np.int64))
    for what, every in (("an input", inputs), ("an output", outputs), ("its workspace", [workspace])):
        if not all(guarded.intact for guarded in every):
            raise Failed(f"the kernel of {sample.name} writes beside {what}")
    if any(array.tobytes() != value.tobytes() for array, value in zip(arrays, given, strict=True)):
        raise Failed(f"the kernel of {sample.name} writes to an input")
    type_ = sample.function.body.type
    if region.borders is not None:
        results = _read(results, type_, region.borders.outputs)
    wanted = evaluate(sample.function, sample.inputs)
    try:
        compare(type_, wanted, results, sample.allowed)
    except Failed as error:
        raise Failed(f"the kernel of {sample.name}, given buffers that are not zero: {error}") from None


def _stored(values: Sequence[Array], borders: Sequence[Border]) -> list[Array]:
    """Arrays as borders have them stored."""
    params = [ir.var(f"x{number}", TensorType(value.shape, from_numpy(value.dtype))) for number, value in enumerate(values)]
    encoded = [encode(param, border) for param, border in zip(params, borders, strict=True)]
    return list(evaluate(ir.function(params, ir.tuple_(encoded)), values))


def _read(stored: Sequence[Array], type_: Type, borders: Sequence[Border]) -> list[Array]:
    """The parts of a value of a type, from arrays that are stored as borders say."""
    params = [ir.var(f"x{number}", TensorType(value.shape, from_numpy(value.dtype))) for number, value in enumerate(stored)]
    parts = type_.fields if isinstance(type_, TupleType) else (type_,)
    decoded = [decode(param, part, border) for param, part, border in zip(params, parts, borders, strict=True)]
    return list(evaluate(ir.function(params, ir.tuple_(decoded)), stored))


class _Guarded:
    """Poisoned memory with a guard on either side."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._whole = aligned_empty((size + 2 * GUARD,), np.uint8)
        self._whole[:] = POISON

    def view(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        """The memory between the guards as an array."""
        found: Array = self._whole[GUARD : GUARD + self.size].view(dtype).reshape(shape)
        assert not found.size or address(found) % ALIGNMENT == 0
        return found

    @property
    def intact(self) -> bool:
        """Whether nobody wrote to the guards."""
        return bool((self._whole[:GUARD] == POISON).all() and (self._whole[GUARD + self.size :] == POISON).all())


def refuses_wrong_inputs(tested: TargetUnderTest) -> None:
    """Inputs of another rank, shape or element type, too few and too many raise an error of Inlaid's; the next run is right."""
    for run in samples.runs(tested):
        executable = run.load()
        wanted = _bits(executable.run(run.inputs))
        for what, wrong in _wrong_inputs(run):
            try:
                executable.run(wrong)
            except (InputError, KernelFault):
                continue
            except Exception as error:
                raise Failed(f"{run.name}, given {what}, raises {type(error).__name__}: {error}") from error
            raise Failed(f"{run.name} takes {what}")
        if _bits(executable.run(run.inputs)) != wanted:
            raise Failed(f"{run.name} is wrong once it was given wrong inputs")


def _wrong_inputs(run: Run) -> list[tuple[str, dict[str, Any]]]:
    name, value = next(iter(run.inputs.items()))
    rest = dict(run.inputs)
    found = [
        ("an input of another rank", {**rest, name: value[None]}),
        ("an input of another element type", {**rest, name: value.astype(np.complex64)}),
        ("an input too many", {**rest, "conformance": value}),
        ("an input too few", {key: item for key, item in rest.items() if key != name}),
    ]
    if value.ndim:
        found.append(("an input of another shape", {**rest, name: np.concatenate([value, value[:1]])}))
    return found


def runs_at_other_sizes(tested: TargetUnderTest) -> None:
    """A model of symbolic sizes is right at each of several, in any order."""
    net = next(net for net in NETS if net.name == "perceptron-symbolic")
    refused = tested.refused(net.module())
    if refused is not None:
        raise NotClaimed(refused)
    executable, function = tested.load_model(net.module()), net.build()
    for batch in (5, 1, 70, 5, 0):
        inputs = {"x": np.random.default_rng(batch).uniform(-1, 1, (batch, 19)).astype(np.float32)}
        try:
            wanted = evaluate(function, [inputs["x"]])
            compare(function.body.type, wanted, list(executable.run(inputs).values()), partial(of_model, tested))
        except Failed as error:
            raise Failed(f"{net.name} at a batch of {batch}: {error}") from None


def reports_faults(tested: TargetUnderTest) -> None:
    """An index out of range raises `KernelFault`, and the next run is right."""
    indexing = samples.claimed(tested, ("take", "gather_nd", "take_along_axis"))
    indexed = [sample for sample in indexing if len(sample.inputs) == 2]
    if not indexed:
        raise NotClaimed("it takes no operator with indices that are found in data")
    for sample in indexed:
        executable = tested.load(sample.composed)
        data, where = sample.inputs
        right = {"x0": data, "x1": where}
        wanted = _bits(executable.run(right))
        for index in (10**6, -(10**6)):
            try:
                executable.run({"x0": data, "x1": np.full_like(where, index)})
            except KernelFault:
                continue
            raise Failed(f"{sample.name} takes the index {index}")
        if _bits(executable.run(right)) != wanted:
            raise Failed(f"{sample.name} is wrong once an index was out of range")


def counts_its_memory(tested: TargetUnderTest) -> None:
    """`live_bytes()` is what it was, once what was loaded is gone."""
    runtime = tested.registry.runtime(tested.target)
    if runtime.live_bytes() is None:
        raise Skipped("its runtime does not count its memory")
    artifact = _artifact(tested)
    gc.collect()  # what other cases have left
    before = runtime.live_bytes()
    for _ in range(3):
        kernel: object = runtime.load(artifact, artifact.constants)
        del kernel
    gc.collect()
    after = runtime.live_bytes()
    if after != before:
        raise Failed(f"live_bytes() is {before}, and {after} once three kernels were loaded and dropped")


def closes(tested: TargetUnderTest) -> None:
    """`close()` may be called twice; after it nothing is held, and nothing is loaded."""
    runtime = tested.registry.runtime(tested.target)
    if type(runtime).close is RuntimeModule.close:
        raise Skipped("its runtime holds nothing to close")
    artifact = _artifact(tested)
    runtime.close()
    runtime.close()
    if runtime.live_bytes():
        raise Failed(f"{runtime.live_bytes()} bytes are live once the runtime is closed")
    try:
        runtime.load(artifact, artifact.constants)
    except InlaidError:
        return
    raise Failed("a closed runtime loads a kernel")


def keeps_no_memory(tested: TargetUnderTest) -> None:
    """A process that loads, runs and drops the same things over and over does not grow."""
    samples.runs(tested)
    grown = fresh.ask("resident", tested.registry.modules(), target=tested.text)
    if grown is None:
        raise Skipped("this system does not say how much memory a process has")
    for what, grew in grown.items():
        if grew > GROWTH:
            raise Failed(f"a process grows by {grew >> 20} MiB while it {what}")


def resident_growth(tested: TargetUnderTest) -> dict[str, int] | None:
    """By how many bytes this process grows while it runs a model, and while it loads one, often."""
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
    found = {}
    for what, (often, step) in steps.items():
        _often(often // WARM_UP, step)
        gc.collect()
        before = _resident() or 0
        _often(often, step)
        gc.collect()
        found[what] = (_resident() or 0) - before
    return found


def _often(times: int, step: Callable[[], object]) -> None:
    for _ in range(times):
        step()


def _resident() -> int | None:
    """Bytes of memory that this process has, where the system says so."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * mmap.PAGESIZE
    except OSError:
        return None


def runs_in_two_threads(tested: TargetUnderTest) -> None:
    """Two threads run one executable on inputs of their own, and get what they get one after the other."""
    for run in samples.runs(tested):
        executable = run.load()
        given = [dict(run.inputs), run.other_inputs()]
        wanted = [_bits(executable.run(inputs)) for inputs in given]
        start = threading.Barrier(len(given))
        wrong: list[str] = []
        works = [partial(_run_often, executable, *pair, start, wrong) for pair in zip(given, wanted, strict=True)]
        threads = [threading.Thread(target=work) for work in works]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if wrong:
            raise Failed(f"{run.name} in two threads {wrong[0]}")


def _run_often(
    executable: Executable, inputs: Mapping[str, Array], wanted: list[bytes], start: threading.Barrier, wrong: list[str]
) -> None:
    """Run until something is wrong, and note what."""
    start.wait()
    for _ in range(TURNS):
        try:
            if _bits(executable.run(inputs)) != wanted:
                wrong.append("gives other results than in one")
        except Exception as error:
            wrong.append(f"raises {type(error).__name__}: {error}")
        if wrong:
            return


CASES = (
    Case("runtime", "checks-artifacts", checks_artifacts),
    Case("runtime", "gives-the-same-again", gives_the_same_again),
    Case("runtime", "gives-new-results", gives_new_results),
    Case("runtime", "takes-any-array", takes_any_array),
    Case("runtime", "keeps-to-its-buffers", keeps_to_its_buffers),
    Case("runtime", "refuses-wrong-inputs", refuses_wrong_inputs),
    Case("runtime", "runs-at-other-sizes", runs_at_other_sizes),
    Case("runtime", "reports-faults", reports_faults),
    Case("runtime", "counts-its-memory", counts_its_memory),
    Case("runtime", "closes", closes),
    Case("runtime", "keeps-no-memory", keeps_no_memory),
    Case("runtime", "runs-in-two-threads", runs_in_two_threads),
)
