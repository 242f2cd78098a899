"""The pass manager.

A pass is a frozen dataclass whose fields are its options. The manager is generic over the unit that passes transform: a graph
module or a loop program. Functions that depend on the IR (printing, verifying, running) are passed to the instruments.
"""

from __future__ import annotations

import difflib
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from inlaid.graph.ir import Function, Module
from inlaid.graph.transform import map_functions
from inlaid_runtime.errors import CompileError, InlaidError, VerifyError
from inlaid_runtime.execution.output import write_text
from inlaid_runtime.records import dataclass, field

_Unit = TypeVar("_Unit")


class Pass(Protocol[_Unit]):
    """A transformation of a unit. A pass that changes nothing returns the same object.

    `name` identifies the pass in reports; `requires` names the passes that must have run before it.
    """

    @property
    def name(self) -> str: ...

    @property
    def requires(self) -> tuple[str, ...]: ...

    def run(self, unit: _Unit) -> _Unit: ...


@dataclass(frozen=True)
class UnitPass(Generic[_Unit]):
    """A pass over whole units (graph modules or loop programs), implemented by a function."""

    name: str
    change: Callable[[_Unit], _Unit]
    requires: tuple[str, ...] = ()

    def run(self, unit: _Unit) -> _Unit:
        return self.change(unit)


ModulePass = UnitPass[Module]
"""A pass over whole graph modules."""


@dataclass(frozen=True)
class FunctionPass:
    """A pass that transforms each function of a graph module separately."""

    name: str
    change: Callable[[Function], Function]
    requires: tuple[str, ...] = ()

    def run(self, unit: Module) -> Module:
        return map_functions(unit, self.change)


@dataclass(frozen=True)
class PluginPass(Generic[_Unit]):
    """A pass that `plugin` provides."""

    plugin: str
    step: Pass[_Unit]

    @property
    def name(self) -> str:
        return self.step.name

    @property
    def requires(self) -> tuple[str, ...]:
        return self.step.requires

    def run(self, unit: _Unit) -> _Unit:
        return self.step.run(unit)


def on_function(step: Pass[Module], name: str) -> ModulePass:
    """Retarget a pass from the `main` function of a module to the function `name`."""
    return ModulePass(step.name, lambda unit: unit.with_function(name, step.run(Module({"main": unit[name]})).main), step.requires)


class Instrument(Generic[_Unit]):
    """Observes passes. The methods do nothing unless overridden."""

    def before(self, step: Pass[_Unit], unit: _Unit) -> None:
        """Called before a pass, with its input."""

    def after(self, step: Pass[_Unit], before: _Unit, after: _Unit) -> None:
        """Called after a pass, with its input and output: the same object if the pass changed nothing."""


@dataclass(frozen=True)
class PassManager(Generic[_Unit]):
    """Runs passes in order under instruments. Raises `CompileError` if a pass precedes a pass that it requires."""

    passes: Sequence[Pass[_Unit]]
    instruments: Sequence[Instrument[_Unit]] = ()

    def __post_init__(self) -> None:
        run: set[str] = set()
        for step in self.passes:
            missing = [name for name in step.requires if name not in run]
            if missing:
                raise CompileError(
                    f"pass {step.name} must run after {', '.join(missing)}", remedy=f"move {step.name} down in the list of passes"
                )
            run.add(step.name)

    def run(self, unit: _Unit) -> _Unit:
        """Run all passes on a unit. An error raised by a pass names the pass."""
        for step in self.passes:
            for instrument in self.instruments:
                instrument.before(step, unit)
            changed = apply(step, unit)
            for instrument in reversed(self.instruments):
                instrument.after(step, unit, changed)
            unit = changed
        return unit


RunPasses = Callable[[Sequence[Pass[_Unit]], _Unit], _Unit]
"""Runs passes on a unit, in order."""


def run_passes(passes: Sequence[Pass[_Unit]], unit: _Unit) -> _Unit:
    """Run passes on a unit without instruments."""
    return PassManager(passes).run(unit)


def apply(step: Pass[_Unit], unit: _Unit) -> _Unit:
    """Run one pass on a unit. An `InlaidError` that the pass raises names the pass."""
    try:
        return step.run(unit)
    except InlaidError as error:
        error.add_note(f"in pass {step.name}")
        raise


@dataclass(eq=False)
class Timing(Instrument[_Unit]):
    """Collects wall times in `seconds`, as (pass name, seconds) in order. `label(unit)` returns text to append to the pass name."""

    label: Callable[[_Unit], str] = lambda unit: ""
    seconds: list[tuple[str, float]] = field(default_factory=list)
    _started: float = 0.0

    def before(self, step: Pass[_Unit], unit: _Unit) -> None:
        self._started = time.perf_counter()

    def after(self, step: Pass[_Unit], before: _Unit, after: _Unit) -> None:
        self.seconds.append((f"{step.name} {self.label(before)}".rstrip(), time.perf_counter() - self._started))

    def __str__(self) -> str:
        width = max((len(name) for name, _ in self.seconds), default=0)
        return "\n".join(f"{name:<{width}}  {seconds * 1e3:10.2f} ms" for name, seconds in self.seconds)


@dataclass(eq=False)
class Dump(Instrument[_Unit]):
    """Writes the unit as text to `folder`: `00-input.txt`, then `NN-pass.txt` after each pass that changed something. Raises
    `OutputError`, and `InputError` for a path that is a folder or a device."""

    folder: Path
    show: Callable[[_Unit], str]
    _count: int = 0

    def before(self, step: Pass[_Unit], unit: _Unit) -> None:
        if self._count == 0:
            self.folder.mkdir(parents=True, exist_ok=True)
            write_text(self.folder / "00-input.txt", self.show(unit))
        self._count += 1

    def after(self, step: Pass[_Unit], before: _Unit, after: _Unit) -> None:
        if after is not before:
            write_text(self.folder / f"{self._count:02}-{step.name}.txt", self.show(after))


@dataclass(eq=False)
class Diff(Instrument[_Unit]):
    """Calls `write` with a unified text diff for each pass that changed something."""

    show: Callable[[_Unit], str]
    write: Callable[[str], None]

    def after(self, step: Pass[_Unit], before: _Unit, after: _Unit) -> None:
        if after is not before:
            old, new = (self.show(unit).splitlines(keepends=True) for unit in (before, after))
            self.write("".join(difflib.unified_diff(old, new, f"before {step.name}", f"after {step.name}")))


@dataclass(eq=False)
class Capture(Instrument[_Unit]):
    """Records the units that pass `step` returns, and the names of all passes that ran."""

    step: str
    units: list[_Unit] = field(default_factory=list)
    names: list[str] = field(default_factory=list)

    def after(self, step: Pass[_Unit], before: _Unit, after: _Unit) -> None:
        self.names.append(step.name)
        if step.name == self.step:
            self.units.append(after)


@dataclass(eq=False)
class Verify(Instrument[_Unit]):
    """Calls `check` on the unit after each pass that changed something. An error raised by `check` names the pass."""

    check: Callable[[_Unit], None]

    def after(self, step: Pass[_Unit], before: _Unit, after: _Unit) -> None:
        if after is before:
            return
        try:
            self.check(after)
        except VerifyError as error:
            error.add_note(f"after pass {step.name}")
            raise


def bisect(passes: Sequence[Pass[_Unit]], unit: _Unit, is_correct: Callable[[_Unit], bool]) -> str | None:
    """Find the first pass that breaks a unit by bisection; None if the final unit is correct.

    `is_correct` returns whether a unit is still correct, for instance whether its outputs on given inputs equal the original
    outputs. It is called about log2(number of passes) times. Bisection assumes that no pass repairs the error of an earlier pass.
    """
    units = [unit]
    for step in passes:
        units.append(apply(step, units[-1]))
    if is_correct(units[-1]):
        return None
    good, bad = 0, len(passes)
    while bad - good > 1:
        middle = (good + bad) // 2
        if is_correct(units[middle]):
            good = middle
        else:
            bad = middle
    return passes[bad - 1].name
