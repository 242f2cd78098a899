"""Level 7: packages are reproducible, and run in a process that compiled nothing."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from inlay.arith import Expr
from inlay.conformance import fresh, samples
from inlay.conformance.case import Case, Failed, Skipped
from inlay.conformance.samples import Run
from inlay.conformance.subject import Subject
from inlay.driver.export import export_library
from inlay.errors import CompileError, Unsupported
from inlay.runtime.executable import Executable

TRIED = 3
"""Operators, and models, that are packaged."""


def writes_the_same_bytes(subject: Subject) -> None:
    """A model that is compiled and saved twice gives equal files."""
    with _folder() as folder:
        for run in _tried(subject):
            for name in ("first", "second"):
                run.load().save(folder / name)
            if (folder / "first").read_bytes() != (folder / "second").read_bytes():
                raise Failed(f"{run.name}, compiled and saved twice, gives different files")


def runs_elsewhere(subject: Subject) -> None:
    """A package gives the same bits in a process of its own."""
    for run in _tried(subject):
        _run_elsewhere(subject, run, alone=False)


def runs_without_the_compiler(subject: Subject) -> None:
    """Running a package needs no part of the compiler: it may not be there on the device."""
    alone = [run for run in _tried(subject) if {info.target for info in run.load().regions} == {str(subject.target)}]
    if not alone:
        raise Skipped("it takes no model whole")
    for run in alone:
        _run_elsewhere(subject, run, alone=True)


def _run_elsewhere(subject: Subject, run: Run, alone: bool) -> None:
    with _folder() as folder:
        executable = run.load()
        executable.save(folder / "model.inlay")
        np.savez(folder / "inputs.npz", **run.inputs)  # type: ignore[arg-type]
        paths = {name: str(folder / name) for name in ("model.inlay", "inputs.npz", "outputs.npz")}
        fresh.ask(
            "package", subject.registry.modules(), package=paths["model.inlay"], inputs=paths["inputs.npz"],
            outputs=paths["outputs.npz"], alone=alone,
        )  # fmt: skip
        _compare(run.name, executable.run(run.inputs), folder / "outputs.npz")


def exports(subject: Subject) -> None:
    """A model exported as a shared library, where its regions are native code, gives the same values without Inlay's runtime."""
    exported = 0
    reason = ""
    for run in _tried(subject):
        executable = run.load()
        with _folder() as folder:
            try:
                library = export_library(executable, folder / "libmodel.so").library
            except (Unsupported, CompileError) as error:
                reason = reason or str(error)
                continue
            exported += 1
            np.savez(folder / "inputs.npz", **run.inputs)  # type: ignore[arg-type]
            fresh.ask(
                "library", {}, library=str(library), function="model_run", names=[spec.name for spec in executable.inputs],
                inputs=str(folder / "inputs.npz"), outputs=str(folder / "outputs.npz"), results=_results(executable),
            )  # fmt: skip
            _compare(run.name, executable.run(run.inputs), folder / "outputs.npz")
    if not exported:
        raise Skipped(f"nothing can be exported: {reason}")


def _results(executable: Executable) -> list[tuple[str, list[int], str]]:
    found = []
    for spec in executable.outputs:
        assert spec.dtype is not None and not any(isinstance(dim, Expr) for dim in spec.shape)
        found.append((spec.name, [int(dim) for dim in spec.shape if isinstance(dim, int)], spec.dtype.name))
    return found


def _compare(name: str, wanted: dict[str, Any], path: Path) -> None:
    with np.load(path) as found:
        for key, value in wanted.items():
            if found[key].shape != value.shape or found[key].tobytes() != value.tobytes():
                raise Failed(f"{name} gives other bits for {key} in a process of its own")


def _tried(subject: Subject) -> list[Run]:
    """A few operators and models."""
    runs = samples.runs(subject)
    return [*itertools.islice(runs, TRIED), *runs[TRIED:][-TRIED:]]


@contextmanager
def _folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


CASES = (
    Case("package", "writes-the-same-bytes", writes_the_same_bytes),
    Case("package", "runs-elsewhere", runs_elsewhere),
    Case("package", "runs-without-the-compiler", runs_without_the_compiler),
    Case("package", "exports", exports),
)
