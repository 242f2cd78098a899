"""What static inference says about every case: which statement refuses it.

`python -m relations.census` prints, as JSON, the refusals of the programs of operators whose names are given, or of all: an object
of messages by program and case.
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from .operators import operator_programs, static_variants
from .oracle import stated
from .scopes import scope_programs
from .sizes import cases
from .statements import Line, Refusal, refusal


@dataclass
class Census:
    """Counts of programs and of accepted cases by operator; messages of refused cases by program and case; the operator of each
    program; and the operators whose cases a line has refused."""

    programs: Counter[str] = field(default_factory=Counter)
    accepted: Counter[str] = field(default_factory=Counter)
    refused: dict[str, dict[str, str]] = field(default_factory=dict)
    operators: dict[str, str] = field(default_factory=dict)
    lines: dict[Line, set[str]] = field(default_factory=dict)

    def add(self, program: str, case: str, refused: Refusal | None) -> None:
        """Add a case of a program: refused, or accepted."""
        operator = self.operators[program]
        if refused is None:
            self.accepted[operator] += 1
            return
        self.refused.setdefault(program, {})[case] = refused.message
        if refused.line is not None:
            self.lines.setdefault(refused.line, set()).add(operator)

    def table(self) -> str:
        """Format the numbers of accepted and refused cases by operator and message, without the sizes in messages."""
        rows = []
        for operator, count in self.programs.items():
            rows.append(f"{operator}: {count} programs, {self.accepted[operator]} cases accepted")
            refusals = (text for name, texts in self.refused.items() if self.operators[name] == operator for text in texts.values())
            messages = Counter(map(without_sizes, refusals))
            rows += [f"  {number} refused: {message}" for message, number in sorted(messages.items())]
        return "\n".join(rows)


def take_census(names: Sequence[str] | None = None) -> Census:
    """Infer the types of every case of the programs of operators, of all or of those named."""
    census = Census()
    for program in (*operator_programs(names), *scope_programs(names)):
        census.programs[program.operator] += 1
        census.operators[program.name] = program.operator
        conditions = stated(program)
        for case in cases(program, conditions.conditions):
            census.add(program.name, case.name, refusal(lambda program=program, case=case: program.at(case.sizes)))  # type: ignore[misc]
            if program.legal is not None and not program.legal(case.sizes):
                for line in (line for item in conditions.broken(case) for line in conditions.lines[item]):
                    census.lines.setdefault(line, set()).add(program.operator)
    for name, size, build in static_variants(names):
        census.add(name, size, refusal(build))
    return census


def without_sizes(message: str) -> str:
    """Replace the numbers in a message, but those of axes."""
    return re.sub(r"(?<!dimension )(?<!axis )(?<![\w-])-?\d+", "#", message.split("; inputs are")[0])


def main(names: Iterable[str]) -> None:
    print(json.dumps(take_census(tuple(names) or None).refused))


if __name__ == "__main__":
    main(sys.argv[1:])
