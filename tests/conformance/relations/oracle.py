"""What a run of a program must do: its results by the reference, or the statement that refuses its sizes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from inlaid.driver.shadow import flat
from inlaid.graph import ir
from inlaid.graph.interp import Interpreter
from inlaid.graph.scope_conditions import call_conditions, with_constraints
from inlaid_runtime.arith import Constraint
from inlaid_runtime.errors import InlaidError, KernelFault
from inlaid_runtime.types import Type

from .operators import operator_call
from .sizes import Case, Program
from .statements import Line, Refusal, logged, refusal


@dataclass(frozen=True)
class Stated:
    """The conditions of a program, each with the lines that state it."""

    conditions: tuple[Constraint, ...]
    lines: Mapping[Constraint, frozenset[Line]]

    def broken(self, case: Case) -> tuple[Constraint, ...]:
        """Return the conditions that do not hold at the sizes of a case."""
        return tuple(item for item in self.conditions if item.holds(case.sizes) is False)


def stated(program: Program) -> Stated:
    """Collect the conditions of a program: those of its operator, or of all scopes of its functions."""
    with logged() as log:
        conditions = (
            call_conditions([operator_call(program.module)]) if program.legal is None else tuple(_scope_conditions(program.module))
        )
    return Stated(conditions, {item: log.lines_stating(item) for item in conditions})


def _scope_conditions(module: ir.Module) -> Iterator[Constraint]:
    """Yield the conditions of the functions and branches of a module."""
    for function in with_constraints(module).functions.values():
        for expr in ir.post_order(function):
            match expr:
                case ir.Function(constraints=constraints):
                    yield from constraints
                case ir.If(constraints=(then, otherwise)):
                    yield from (*then, *otherwise)


@dataclass(frozen=True)
class Expected:
    """What a run must do. Exactly one is set: `refused`, the reason why static sizes are refused; `fault`, the reference's error
    for values of operands; or `results`, which are of `type`."""

    refused: Refusal | None = None
    fault: KernelFault | None = None
    results: tuple[Any, ...] | None = None
    type: Type | None = None


class Unsound(Exception):
    """Static sizes that the type relation accepts make the reference fail."""


def expected(program: Program, case: Case, zeros: bool = False) -> Expected:
    """Determine what a run of a case must do. Raises `Unsound`."""
    refused = refusal(lambda: program.at(case.sizes))
    if program.legal is not None and not program.legal(case.sizes):
        return Expected(refused=refused or Refusal(None, "the sizes are not legal"))
    if refused is not None and program.legal is None:
        return Expected(refused=refused)
    module = program.module if refused is not None else program.at(case.sizes)
    try:
        outputs = Interpreter(module).run(module.main, program.values(case.sizes, zeros))
    except KernelFault as error:
        if error.__cause__ is None:
            return Expected(fault=error)
        raise Unsound(f"the reference fails: {error}") from error
    except InlaidError as error:
        raise Unsound(f"the reference fails: {error}") from error
    return Expected(results=tuple(value for _, value in flat(module.main.body.type, outputs)), type=module.main.body.type)
