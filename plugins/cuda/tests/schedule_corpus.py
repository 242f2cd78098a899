"""Record the kernels of the tests of schedules for threads, with inputs and expected results."""

from __future__ import annotations

import functools
import inspect
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from tests.unit.schedules.threads import interpreter_checks, threaded

from inlaid.tensor import interp, ir
from inlaid.tensor.analysis.memory_scopes import SUBGROUP
from inlaid.tensor.transform.barriers import to_spmd
from inlaid.tensor.transform.launches import SplitProgram, ToSpmd, split_launches
from inlaid_runtime import arith
from inlaid_runtime.types import MemoryScope

FOLDER = "tests.unit.schedules.threads"
MAX_PARAMETER_SETS, MAX_SAMPLES = 12, 3
"""Sets of parameters of a test, and sets of inputs of a kernel, that are taken."""


@dataclass(frozen=True)
class Sample:
    """Inputs of a kernel, values of its sizes, and expected results."""

    arrays: list[np.ndarray]
    sizes: dict[arith.SizeVar, int]
    expected: list[np.ndarray]
    tolerance: float


@dataclass(eq=False)
class Case:
    """A scheduled and finished kernel."""

    name: str
    program: ir.LoopProgram
    samples: list[Sample] = field(default_factory=list)


def split(program: ir.LoopProgram, scopes: Sequence[MemoryScope], subgroup: int = 0, lower: ToSpmd = to_spmd) -> SplitProgram:
    """`split_launches`, once for a recorded test and for the printer: its proofs take about half of their time. The printer's
    `lower` runs `to_spmd` as a pass."""
    shares = any(isinstance(stmt, ir.Alloc) and stmt.buffer.scope == SUBGROUP for stmt in ir.walk_stmts(program.body))
    return _split(program, tuple(scopes), subgroup if shares else 0)


@functools.lru_cache(maxsize=256)
def _split(program: ir.LoopProgram, scopes: tuple[MemoryScope, ...], subgroup: int) -> SplitProgram:
    return split_launches(program, scopes, subgroup)


def recorded(module: str) -> list[Case]:
    """Record the kernels of a test module, except of property tests. Other checks of the tests are skipped."""
    cases: dict[int, Case] = {}
    name = ""

    def add(program: ir.LoopProgram, make_sample: Callable[[], Sample]) -> None:
        case = cases.setdefault(id(program), Case(f"{module}: {name}", program))
        if len(case.samples) < MAX_SAMPLES:
            case.samples.append(make_sample())

    def agree(program, finished, split, semantics, arrays, sizes, seed, tolerance):
        packed = [
            array.reshape(interpreter_checks._shape(buffer, sizes)) for array, buffer in zip(arrays, finished.inputs, strict=True)
        ]
        add(finished, lambda: Sample(packed, dict(sizes), interp.run(program, arrays, sizes), tolerance))

    def check(threaded_kernel, arrays, sizes=None, tolerance=0.0, seed=0):
        inputs = [array.copy() for array in arrays]
        expected = threaded_kernel.call.callee.reference(threaded_kernel.call.attrs, *inputs)
        bound_sizes = interp.bind_sizes(threaded_kernel.program, inputs, sizes or {})
        add(
            threaded_kernel.finished,
            lambda: Sample(inputs, dict(bound_sizes), [*expected] if isinstance(expected, tuple) else [expected], tolerance),
        )

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(interpreter_checks, "_agree", agree)
        patch.setattr(threaded.Threaded, "check", check)
        patch.setattr(interpreter_checks, "_unseen", lambda *args: [])
        for owner in (interpreter_checks, threaded):
            patch.setattr(owner, "split_launches", split)
        for owner, checked in (
            (interpreter_checks, "verify"),
            (interpreter_checks, "check_race_free"),
            (interpreter_checks, "_replays"),
            (threaded, "verify"),
            (threaded, "check_races"),
        ):
            patch.setattr(owner, checked, lambda *args: None)
        for name, test in _tests(import_module(f"{FOLDER}.{module}")):  # noqa: B007
            test()
    return [*cases.values()]


def _tests(module: ModuleType) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Bind tests of a module to some of their parameters. Omits devices without shared memory."""
    for name, function in vars(module).items():
        if not name.startswith("test_") or hasattr(function, "hypothesis"):
            continue
        if "check_against_interpreter" not in inspect.getsource(function) and ".check(" not in inspect.getsource(function):
            continue
        choices = []
        for mark in getattr(function, "pytestmark", ()):
            if mark.name == "parametrize":
                names = mark.args[0].replace(" ", "").split(",") if isinstance(mark.args[0], str) else list(mark.args[0])
                values = [value if len(names) > 1 else (value,) for value in mark.args[1]]
                choices.append([dict(zip(names, value, strict=True)) for value in values])
        combined = [{key: value for part in chosen for key, value in part.items()} for chosen in itertools.product(*choices)]
        combined = [arguments for arguments in combined if interpreter_checks.EMBEDDED not in arguments.values()]
        for arguments in combined[:: 1 + len(combined) // MAX_PARAMETER_SETS]:
            yield name, partial(function, **arguments)
