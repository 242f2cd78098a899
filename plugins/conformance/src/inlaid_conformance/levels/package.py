"""Level 8: packages are complete, and run in a process that has not compiled them."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from inlaid.driver.build import ALONE
from inlaid.driver.export import export_library
from inlaid.graph.keys import structural_key
from inlaid_conformance import fresh, samples
from inlaid_conformance.case import Case, Failed, NotClaimed, Skipped
from inlaid_conformance.inside import plain
from inlaid_conformance.samples import Run, Sample
from inlaid_conformance.stored_form import StoredForm
from inlaid_conformance.target_under_test import TargetUnderTest
from inlaid_runtime import arith
from inlaid_runtime.arith import Expr
from inlaid_runtime.errors import CompileError, Unsupported
from inlaid_runtime.execution.executable import Executable
from inlaid_runtime.execution.package import read_package, write_package

TRIED = 3
"""Number of operators, and of models, that are packaged."""


def survives_a_file(tested: TargetUnderTest) -> None:
    """Check that a package is unchanged after writing, reading and writing it again."""
    with _folder() as folder:
        for run in _packaged_runs(tested):
            run.load().save(folder / "first.inlaid")
            write_package(read_package(folder / "first.inlaid"), folder / "second.inlaid")
            if (folder / "first.inlaid").read_bytes() != (folder / "second.inlaid").read_bytes():
                raise Failed(f"the package of {run.name} changes in a round-trip")


def runs_elsewhere(tested: TargetUnderTest) -> None:
    """Check that a package gives the same bits in a new process."""
    _run_elsewhere(tested, _packaged_runs(tested), alone=False)


def runs_without_the_compiler(tested: TargetUnderTest) -> None:
    """Check that running a package of any sample, of any variant of a composite, and in any rounding does not import the compiler,
    which may not be installed on the device. If the reference converts inputs and results, the target's kernel runs alone."""
    nets = [run for run in samples.runs(tested) if run.name in samples.RUN_NETS]
    runs = [run for run in nets if _is_alone(tested, run)]
    kernels = []
    for sample in {structural_key(item.function): item for item in (*samples.claimed(tested), *samples.varied(tested))}.values():
        run = samples.make_run(tested, sample)
        if _is_alone(tested, run):
            runs.append(run)
        else:
            kernels.append(sample)
    if not runs and not kernels:
        raise Skipped("the target runs no model completely")
    _run_elsewhere(tested, runs, alone=True)
    _run_kernels_elsewhere(tested, kernels)


def refuses_damaged_code(tested: TargetUnderTest) -> None:
    """Check that damaged code raises an error of Inlaid's family also where the compiler is not installed, as on a device."""
    runtimes = tested.registry.runtimes
    run_module, compile_module = runtimes.module(runtimes.owner(tested.target.kind)), tested.registry.module(tested.plugin)
    if run_module.startswith("inlaid."):
        raise Skipped("its run half belongs to the compiler")
    sample = next(samples.claimed(tested), None)
    if sample is None:
        raise NotClaimed(samples.NOTHING)
    with _folder() as folder:
        path = folder / "sample.inlaid"
        write_package(tested.package(sample.composed), path)
        fault = fresh.ask(
            "damaged",
            tested.registry.plugin_modules(),
            target=tested.text,
            package=str(path),
            symbol=ALONE,
            both_halves=run_module == compile_module,
        )
    if fault is not None:
        raise Failed(f"where the compiler is not installed, {fault}")


def _is_alone(tested: TargetUnderTest, run: Run) -> bool:
    """Test whether the target runs all regions."""
    return {info.target for info in run.load().regions} == {str(tested.target)}


def _run_kernels_elsewhere(tested: TargetUnderTest, kernel_samples: Sequence[Sample]) -> None:
    """Run the kernels of samples of static sizes in a process that cannot import the compiler."""
    runtime = tested.registry.runtime(tested.target)
    with _folder() as folder:
        stored: dict[str, StoredForm] = {}
        requests: list[tuple[str, int]] = []
        for number, sample in enumerate(kernel_samples):
            artifact = samples.compile_artifact(tested, sample)
            loaded = runtime.load(artifact, artifact.constants)
            if not artifact.signature.dims and (loaded.kernel is not None or loaded.launching is not None):
                stem = str(folder / f"{number}")
                stored[stem] = StoredForm(tested, sample)
                write_package(tested.package(sample.composed), Path(f"{stem}.inlaid"))
                np.savez(f"{stem}.in.npz", *map(plain, stored[stem].inputs))
                requests.append((stem, int(arith.evaluate(artifact.workspace.get("", 0), {}))))
        if not requests:
            return
        fresh.ask("kernels", tested.registry.plugin_modules(), target=tested.text, symbol=ALONE, kernels=requests)
        for stem, form in stored.items():
            with np.load(f"{stem}.out.npz") as results:
                form.check([array.view(tensor.dtype) for array, tensor in zip(results.values(), form.outputs, strict=True)])


def _run_elsewhere(tested: TargetUnderTest, runs: Sequence[Run], alone: bool) -> None:
    if not runs:
        return
    with _folder() as folder:
        stems = {str(folder / f"{number}"): run for number, run in enumerate(runs)}
        expected = {}
        for stem, run in stems.items():
            executable = run.load()
            executable.save(f"{stem}.inlaid")
            np.savez(f"{stem}.in.npz", **{name: plain(value) for name, value in run.inputs.items()})
            expected[stem] = executable.run(run.inputs)
        fresh.ask("packages", tested.registry.plugin_modules(), stems=list(stems), alone=alone)
        for stem, run in stems.items():
            _compare(run.name, expected[stem], Path(f"{stem}.out.npz"))


def exports(tested: TargetUnderTest) -> None:
    """Check that exported libraries of models give the same values without Inlaid's runtime. Skips models without native code."""
    reason = ""
    with _folder() as folder:
        exported: dict[str, tuple[Run, Executable, int]] = {}
        for number, run in enumerate(_packaged_runs(tested)):
            executable = run.load()
            try:
                workspace = export_library(executable, folder / f"{number}.so", "model").workspace
            except (Unsupported, CompileError) as error:
                reason = reason or str(error)
                continue
            exported[str(folder / f"{number}")] = run, executable, workspace
            np.savez(folder / f"{number}.in.npz", **run.inputs)  # type: ignore[arg-type]
        if not exported:
            raise Skipped(f"no model can be exported: {reason}")
        libraries = [
            (stem, [spec.name for spec in executable.inputs], _results(executable), workspace)
            for stem, (_, executable, workspace) in exported.items()
        ]
        fresh.ask("libraries", {}, libraries=libraries)
        for stem, (run, executable, _) in exported.items():
            _compare(run.name, executable.run(run.inputs), Path(f"{stem}.out.npz"))


def _results(executable: Executable) -> list[tuple[str, list[int], str]]:
    specs = []
    for spec in executable.outputs:
        assert spec.dtype is not None and not any(isinstance(dim, Expr) for dim in spec.shape)
        specs.append((spec.name, [int(dim) for dim in spec.shape if isinstance(dim, int)], spec.dtype.name))
    return specs


def _compare(name: str, expected: dict[str, Any], path: Path) -> None:
    with np.load(path) as actual:
        for key, value in expected.items():
            if actual[key].shape != value.shape or actual[key].tobytes() != value.tobytes():
                raise Failed(f"{name} gives different bits for {key} in a new process")


def _packaged_runs(tested: TargetUnderTest) -> list[Run]:
    """Return a few operators and models to package."""
    runs = samples.runs(tested)
    return [*itertools.islice(runs, TRIED), *runs[TRIED:][-TRIED:]]


@contextmanager
def _folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


CASES = (
    Case("package", "survives-a-file", survives_a_file),
    Case("package", "runs-elsewhere", runs_elsewhere),
    Case("package", "runs-without-the-compiler", runs_without_the_compiler),
    Case("package", "refuses-damaged-code", refuses_damaged_code),
    Case("package", "exports", exports),
)
