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
from tests.unit.schedules.threads import held, whole

from inlaid.tensor import interp, ir
from inlaid.tensor.analysis.memory_scopes import SUBGROUP
from inlaid.tensor.transform.launches import Launches, split_launches
from inlaid_runtime import arith
from inlaid_runtime.types import MemoryScope

FOLDER = "tests.unit.schedules.threads"
MOST_PARAMETERS, MOST_GIVEN = 12, 3
"""Sets of parameters of a test, and sets of inputs of a kernel, that are taken."""


@dataclass(frozen=True)
class Given:
    """Inputs of a kernel, values of its sizes, and expected results."""

    arrays: list[np.ndarray]
    sizes: dict[arith.SizeVar, int]
    wanted: list[np.ndarray]
    tolerance: float


@dataclass(eq=False)
class Case:
    """A scheduled and finished kernel."""

    name: str
    program: ir.LoopProgram
    given: list[Given] = field(default_factory=list)


def split(program: ir.LoopProgram, scopes: Sequence[MemoryScope], subgroup: int = 0) -> Launches:
    """`split_launches`, once for a recorded test and for the printer: its proofs take about half of their time."""
    shares = any(isinstance(stmt, ir.Alloc) and stmt.buffer.scope == SUBGROUP for stmt in ir.walk_stmts(program.body))
    return _split(program, tuple(scopes), subgroup if shares else 0)


@functools.lru_cache(maxsize=256)
def _split(program: ir.LoopProgram, scopes: tuple[MemoryScope, ...], subgroup: int) -> Launches:
    return split_launches(program, scopes, subgroup)


def recorded(module: str) -> list[Case]:
    """Record the kernels of a test module, except of property tests. Other checks of the tests are skipped."""
    found: dict[int, Case] = {}
    name = ""

    def add(program: ir.LoopProgram, given: Callable[[], Given]) -> None:
        case = found.setdefault(id(program), Case(f"{module}: {name}", program))
        if len(case.given) < MOST_GIVEN:
            case.given.append(given())

    def agree(program, finished, split, semantics, given, sizes, seed, tolerance):
        packed = [array.reshape(held._shape(buffer, sizes)) for array, buffer in zip(given, finished.inputs, strict=True)]
        add(finished, lambda: Given(packed, dict(sizes), interp.run(program, given, sizes), tolerance))

    def check(made, arrays, sizes=None, tolerance=0.0, seed=0):
        given = [array.copy() for array in arrays]
        wanted = made.call.callee.reference(made.call.attrs, *given)
        known = interp.bind_sizes(made.program, given, sizes or {})
        add(made.finished, lambda: Given(given, dict(known), [*wanted] if isinstance(wanted, tuple) else [wanted], tolerance))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(held, "_agree", agree)
        patch.setattr(whole.Threaded, "check", check)
        patch.setattr(held, "_unseen", lambda *args: [])
        for place in (held, whole):
            patch.setattr(place, "split_launches", split)
        for place, checked in (
            (held, "verify"),
            (held, "check_race_free"),
            (held, "_replays"),
            (whole, "verify"),
            (whole, "check_races"),
        ):
            patch.setattr(place, checked, lambda *args: None)
        for name, test in _tests(import_module(f"{FOLDER}.{module}")):  # noqa: B007
            test()
    return [*found.values()]


def _tests(module: ModuleType) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Bind tests of a module to some of their parameters. Omits devices without shared memory."""
    for name, function in vars(module).items():
        if not name.startswith("test_") or hasattr(function, "hypothesis"):
            continue
        if "held_to" not in inspect.getsource(function) and ".check(" not in inspect.getsource(function):
            continue
        choices = []
        for mark in getattr(function, "pytestmark", ()):
            if mark.name == "parametrize":
                names = mark.args[0].replace(" ", "").split(",") if isinstance(mark.args[0], str) else list(mark.args[0])
                values = [value if len(names) > 1 else (value,) for value in mark.args[1]]
                choices.append([dict(zip(names, value, strict=True)) for value in values])
        combined = [{key: value for part in chosen for key, value in part.items()} for chosen in itertools.product(*choices)]
        combined = [arguments for arguments in combined if held.EMBEDDED not in arguments.values()]
        for arguments in combined[:: 1 + len(combined) // MOST_PARAMETERS]:
            yield name, partial(function, **arguments)
