"""Compiles a random model for targets, runs it at all of its sizes, and compares."""

from __future__ import annotations

import contextlib
import random
import traceback
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from inlaid_runtime.errors import InlaidError, InputError, InternalError, KernelFault, OutOfMemory, ScheduleError, VerifyError
from inlaid_runtime.execution.executable import Executable

from .numerics import CAREFUL_RUNS, NOISY_RUNS, Expected, compare


class Case(Protocol):
    """A model with inputs for several runs."""

    @property
    def inputs(self) -> Sequence[Mapping[str, Any]]:
        """The inputs of each run by name."""

    @property
    def skipped(self) -> Mapping[str, int]:
        """Numbers of operators that were drawn anew since the oracle is known to be wrong, by reason."""

    def compiled(self, target: str, run: int | None = None) -> Executable:
        """Compile for a target, with symbolic sizes, or with the sizes of a run."""

    def fixable(self) -> bool:
        """Test whether the sizes of every run can be fixed."""

    def expected(self, run: int, noisy_runs: int = NOISY_RUNS) -> Expected:
        """Return the outputs that a run should have."""

    def other_inputs(self, rng: random.Random) -> Mapping[str, Any]:
        """Return inputs of drawn sizes, which need not fit together. Values are those of the first run, repeated or cut."""

    def spread(self, inputs: Mapping[str, Any], outputs: Sequence[Any], noisy_runs: int = NOISY_RUNS) -> Expected:
        """Return outputs as expected ones, with what rounding may change."""

    def operators(self) -> Mapping[str, int]:
        """Count the operators by name."""


@dataclass(frozen=True)
class Variant:
    """How a model is compiled: for a target, with the sizes of run `run` fixed unless that is None. `saved` models are written to
    bytes and read back."""

    target: str
    run: int | None = None
    saved: bool = False

    def __str__(self) -> str:
        return (
            self.target + ("" if self.run is None else f" with the sizes of run {self.run}") + (" from bytes" if self.saved else "")
        )


@dataclass(frozen=True)
class Outcome:
    """What became of a model. `state`: "right"; "wrong" for other values; "refused" for an error of Inlaid's family where there are
    expected values; "internal" for any other exception; "crash" and "slow" of the process. `undetermined` of `elements` elements
    were not compared."""

    state: str
    reason: str = ""
    variant: str = ""
    operators: Mapping[str, int] = field(default_factory=dict)
    runs: int = 0
    undetermined: int = 0
    elements: int = 0
    trace: str = ""
    skipped: Mapping[str, int] = field(default_factory=dict)

    def __str__(self) -> str:
        return ": ".join(filter(None, (self.state, self.variant, self.reason)))

    @property
    def failed(self) -> bool:
        """Whether this is a failure."""
        return self.state != "right"

    @property
    def kind(self) -> tuple[str, str]:
        """What failures of one cause have in common: the state, and the type of an exception."""
        return self.state, self.reason.split(":")[0] if self.state in ("internal", "refused") else ""


INTERNAL = (InternalError, ScheduleError, VerifyError)
"""Errors of Inlaid's family that mean a fault of the compiler, if a model that verifies raises them."""


EXTRA_RUNS = 2
"""Number of runs at sizes for which the model was not drawn."""


def check(case: Case, variants: Sequence[Variant]) -> Outcome:
    """Compile a model in all variants and compare its runs, up to the first failure. The first variant also runs at other sizes."""
    try:
        expectations = [case.expected(run) for run in range(len(case.inputs))]
    except Exception as error:  # an exception of any type is a finding
        return _failure(error, Variant(""), "importing")
    runs = undetermined = elements = 0
    for variant in variants:
        outcome = _checked(case, variant, expectations, variant is variants[0])
        runs, undetermined, elements = runs + outcome.runs, undetermined + outcome.undetermined, elements + outcome.elements
        if outcome.failed:
            break
    else:
        outcome = Outcome("right")
    counts = dict(case.operators()), runs, undetermined, elements
    return Outcome(outcome.state, outcome.reason, outcome.variant, *counts, outcome.trace, case.skipped)


def _checked(case: Case, variant: Variant, expectations: Sequence[Expected], first: bool) -> Outcome:
    runs = undetermined = elements = 0
    with strict():
        try:
            executable = case.compiled(variant.target, variant.run)
            if variant.saved:
                executable = from_bytes(executable)
        except Exception as error:  # an exception of any type is a finding
            return _failure(error, variant, "compiling")
        for run, expected in enumerate(expectations):
            if variant.run not in (None, run):
                continue
            outputs: list[list[Any]] = []
            for _ in range(2 if run == 0 else 1):
                try:
                    outputs.append([_copied(value) for value in executable.run(case.inputs[run]).values()])
                except Exception as error:  # an exception of any type is a finding
                    if expected.error and isinstance(error, InlaidError) and not isinstance(error, INTERNAL):
                        continue
                    return _failure(error, variant, f"run {run}")
            if expected.error:
                continue
            runs += 1
            if len(outputs) == 2 and not _identical(*outputs):
                return Outcome("wrong", f"two runs {run} have different bits", str(variant))
            compared = compare(expected, outputs[0])
            if compared.error:
                compared = compare(case.expected(run, CAREFUL_RUNS), outputs[0])
            undetermined, elements = undetermined + compared.undetermined, elements + compared.elements
            if compared.error:
                return Outcome("wrong", f"run {run}: {compared.error}", str(variant), {}, runs, undetermined, elements)
        if first:
            outcome = _elsewhere(case, executable, variant)
            if outcome.failed:
                return outcome
            runs, undetermined, elements = runs + outcome.runs, undetermined + outcome.undetermined, elements + outcome.elements
    return Outcome("right", "", str(variant), {}, runs, undetermined, elements)


def _elsewhere(case: Case, executable: Executable, variant: Variant) -> Outcome:
    """Run at sizes that need not fit together: the result is that of the reference target, or both refuse the sizes."""
    reference = case.compiled("reference")
    rng = random.Random(len(case.operators()))
    runs = undetermined = elements = 0
    for number in range(EXTRA_RUNS):
        inputs = case.other_inputs(rng)
        where = f"other run {number}"
        outputs: list[list[Any] | InlaidError] = []
        for each in (reference, executable):
            try:
                outputs.append([_copied(value) for value in each.run(inputs).values()])
            except (InputError, KernelFault, OutOfMemory) as error:
                outputs.append(error)
            except Exception as error:  # an exception of any type is a finding
                return _failure(error, variant, where)
        expected, actual = outputs
        if isinstance(expected, InlaidError):
            # An index that no element of an empty result reads may be out of range.
            empty = isinstance(expected, KernelFault) and any(
                0 in value.shape for value in inputs.values() if isinstance(value, np.ndarray)
            )
            if isinstance(actual, InlaidError) or empty:
                continue
            return Outcome("wrong", f"{where}: expected an error, got values: {expected}", str(variant))
        if isinstance(actual, InlaidError):
            return _failure(actual, variant, where)
        compared = compare(case.spread(inputs, expected), actual)
        if compared.error:
            compared = compare(case.spread(inputs, expected, CAREFUL_RUNS), actual)
        runs, undetermined, elements = runs + 1, undetermined + compared.undetermined, elements + compared.elements
        if compared.error:
            return Outcome("wrong", f"{where}: {compared.error}", str(variant))
    return Outcome("right", "", str(variant), {}, runs, undetermined, elements)


def _failure(error: Exception, variant: Variant, where: str) -> Outcome:
    foreign = not isinstance(error, InlaidError) or isinstance(error, INTERNAL)
    reason = f"{type(error).__name__}: {where}: {' '.join(str(error).split())}"[:600]
    trace = "".join(traceback.format_exception(error)[-12:])
    return Outcome("internal" if foreign else "refused", reason, str(variant), trace=trace)


@contextlib.contextmanager
def strict() -> Iterator[None]:
    """Turn warnings into errors, apart from those of kernels without a schedule of their own."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", "region .* is expected to be slow")
        yield


def from_bytes(executable: Executable) -> Executable:
    """Write a package and read it back."""
    import tempfile
    from pathlib import Path

    from inlaid_runtime import load

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.inlaid"
        executable.save(path)
        return load(path)


def _copied(value: Any) -> Any:
    return value.copy() if isinstance(value, np.ndarray) else value


def _identical(a: Sequence[Any], b: Sequence[Any]) -> bool:
    """Test whether two runs have the same bits."""
    return all(
        x.tobytes() == y.tobytes() if isinstance(x, np.ndarray) and x.dtype != object else repr(x) == repr(y)
        for x, y in zip(a, b, strict=True)
    )
