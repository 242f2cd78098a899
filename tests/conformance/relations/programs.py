"""All programs, and the choice of those that a process runs."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

from .operators import NAMES, operator_programs
from .scopes import SOURCES, scope_programs
from .sizes import Program


@dataclass(frozen=True)
class Choice:
    """A choice of programs: of `operators` (None: all), those whose number is `part` modulo `parts`; of each of them the first
    program, and of the others one in `share`. With `bounded`, sizes have upper bounds."""

    operators: tuple[str, ...] | None = None
    share: int = 1
    part: int = 0
    parts: int = 1
    bounded: bool = False


def names() -> tuple[str, ...]:
    """Return the operators and other constructs that programs are about."""
    return (*NAMES, *dict.fromkeys(source.construct for source in SOURCES))


def chosen(choice: Choice) -> Iterator[tuple[int, Program]]:
    """Yield the programs of a choice, numbered."""
    operator_names = tuple(name for number, name in enumerate(names()) if number % choice.parts == choice.part)
    if choice.operators is not None:
        operator_names = tuple(name for name in operator_names if name in choice.operators)
    last = ""
    every = (*operator_programs(operator_names, choice.bounded), *scope_programs(operator_names, choice.bounded))
    for number, program in enumerate(every):
        first, last = program.operator != last, program.operator
        # Names of an operator's programs differ in a digit, on which some bits of a CRC do not depend.
        if first or hashlib.sha256(program.name.encode()).digest()[0] % choice.share == 0:
            yield number, program
