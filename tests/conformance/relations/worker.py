"""Runs the programs of one target and prints what they did. A process of its own, since code at fault may end it.

`python -m relations.worker` takes a JSON object: `way`, a way to run programs; `choice`, the fields of a `Choice` of them; `first`,
the number of the first program; `skip`, pairs of case and layout of that program that are not run; `folder`, for files; and
`progress`, a file to which the current program, case and layout are written. It prints a line of JSON for each program.
"""

from __future__ import annotations

import json
import mmap
import re
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from inlaid.plugins.registry import default_registry
from inlaid_conformance.case import Failed
from inlaid_conformance.target_under_test import TargetUnderTest
from inlaid_conformance.tolerance import compare, operator_tolerance
from inlaid_runtime.arith import Constraint
from inlaid_runtime.errors import InlaidError, InputError, KernelFault, Unsupported

from .guards import Guards
from .oracle import Expected, Stated, Unsound, expected, stated
from .programs import Choice, chosen
from .sizes import Case, Program, cases
from .targets import WAYS, Refused, Run, Way

_COMPUTED = re.compile(r"(\?[a-z_]*[a-z])_+\d+")
"""The name of a size that is computed: it has another number in each compilation."""
LAYOUTS = ("after", "before")
"""Where the inaccessible page lies that an array touches."""


@dataclass
class Counts:
    """Numbers of runs of a program, by what they did."""

    compared: int = 0
    refused: int = 0
    faults: int = 0


@dataclass
class Outcome:
    """What a program did: `problems` lists cases with wrong behavior, `unsupported` says why it was not compiled, and `seconds` is
    the processor time of this process."""

    program: str
    operator: str
    counts: Counts = field(default_factory=Counts)
    problems: list[str] = field(default_factory=list)
    unsupported: str = ""
    seconds: float = 0.0

    def line(self) -> str:
        """Format the outcome as a line of JSON."""
        return json.dumps({**self.__dict__, "counts": self.counts.__dict__})


class Progress:
    """The current program, case and layout, in a file that outlives the process."""

    def __init__(self, path: Path) -> None:
        with path.open("r+b") as file:
            self.memory = mmap.mmap(file.fileno(), 24)
        self.numbers = np.frombuffer(self.memory, np.int64)
        self.numbers.flags.writeable = True


def run_program(program: Program, way: Way, tested: TargetUnderTest, begin: Callable[[int, int], bool]) -> Outcome:
    """Compile a program and run all of its cases in both layouts. `begin` is told of each run and may refuse it."""
    outcome = Outcome(program.name, program.operator)
    conditions = stated(program)
    try:
        run = way.compile(program.module)
    except Unsupported as error:
        outcome.unsupported = str(error)
        return outcome
    except InlaidError as error:
        outcome.problems.append(f"{program.name}: is not compiled: {type(error).__name__}: {error}")
        return outcome
    for number, case in enumerate(cases(program, conditions.conditions)):
        for zeros in (False, True):
            try:
                expectation = expected(program, case, zeros)
            except Unsound as error:
                outcome.problems.append(f"{program.name} {case.name}: static sizes are accepted, but {error}")
                break
            for layout in range(len(LAYOUTS)):
                if not begin(number, layout):
                    continue
                way.guards.after = layout == 0
                problem = run_case(program, case, zeros, expectation, conditions, run, way, tested, outcome.counts)
                if problem is not None:
                    outcome.problems.append(f"{program.name} {case.name}: {problem}")
                if problem is not None or expectation.refused is not None:
                    break
            if expectation.fault is None:
                break
    return outcome


def run_case(
    program: Program,
    case: Case,
    zeros: bool,
    expectation: Expected,
    conditions: Stated,
    run: Run,
    way: Way,
    tested: TargetUnderTest,
    counts: Counts,
) -> str | None:
    """Run a case. Returns how its behavior differs from what is expected, None if it does not."""
    way.guards.allocated.clear()
    error: Exception | None = None
    results: Sequence[Any] = ()
    try:
        results = run(program.values(case.sizes, zeros))
    except Exception as raised:
        error = raised
    beside = way.guards.check()
    if beside is not None:
        return beside
    if error is not None and not isinstance(error, InlaidError):
        return f"raises {type(error).__name__}: {error}"
    if expectation.refused is not None:
        counts.refused += 1
        if error is None:
            return f"runs, but static sizes are refused: {expectation.refused.message}"
        return _misnamed(error, program, case, expectation, conditions)
    if expectation.fault is not None:
        counts.faults += 1
        # Compiled code reads no values, and hence checks none, if results have no elements.
        wrong = error is None and any(np.size(item) for item in results)
        return f"runs, but the reference fails: {expectation.fault}" if wrong else None
    if error is not None:
        return f"static sizes are accepted, but the run fails: {type(error).__name__}: {error}"
    counts.compared += 1
    assert expectation.results is not None and expectation.type is not None
    try:
        values = expectation.results if len(expectation.results) != 1 else expectation.results[0]
        compare(
            expectation.type, values, results, lambda element: operator_tolerance(tested, program.operator, program.exact, element)
        )
    except Failed as failed:
        return str(failed)
    return None


def _misnamed(error: Exception, program: Program, case: Case, expectation: Expected, conditions: Stated) -> str | None:
    """Describe how an error fails to report the statement by which static sizes are refused."""
    assert expectation.refused is not None
    if program.legal is not None:
        possible = [item for item in conditions.conditions if item.holds(case.sizes) is not True]
        understood = isinstance(error, (InputError, KernelFault, Refused)) and any(_names(error, item) for item in possible)
        return None if understood else f"is refused by no condition: {type(error).__name__}: {error}"
    broken = conditions.broken(case)
    if not broken:
        return f"is refused by no condition: {error}; static sizes: {expectation.refused.message}"
    if not any(_names(error, item) for item in broken):
        return f"is refused by another error than {broken[0].message(case.sizes)}: {error}"
    lines = {line for item in broken for line in conditions.lines[item]}
    if expectation.refused.line is not None and expectation.refused.line not in lines:
        return f"static sizes are refused by another statement: {expectation.refused.message}, not {broken[0].message(case.sizes)}"
    return None


def _names(error: Exception | None, condition: Constraint) -> bool:
    """Test whether an error has the words of a condition, and names its operator."""
    words, shown = (_COMPUTED.sub(r"\1", text) for text in (f"{condition.what} must be {condition.expected}", str(error)))
    return words in shown and (not condition.operator or f"operator {condition.operator}" in shown)


def main() -> None:
    request = json.loads(sys.argv[1])
    warnings.simplefilter("error")
    warnings.filterwarnings("ignore", "region .* is expected to be slow")
    progress = Progress(Path(request["progress"]))
    try:
        way = WAYS[request["way"]](Guards(), Path(request["folder"]))
    except InlaidError as error:
        print(json.dumps({"unavailable": str(error)}))
        return
    tested = TargetUnderTest(way.target, default_registry())
    skip = {tuple(pair) for pair in request["skip"]}
    for number, program in chosen(Choice(**request["choice"])):
        if number < request["first"]:
            continue
        at_first = number == request["first"]

        def begin(case: int, layout: int, number: int = number, at_first: bool = at_first) -> bool:
            progress.numbers[:] = number, case, layout
            return not (at_first and (case, layout) in skip)

        progress.numbers[:] = number, -1, 0
        start = time.process_time()
        outcome = run_program(program, way, tested, begin)
        outcome.seconds = time.process_time() - start
        print(outcome.line(), flush=True)
    print(json.dumps({"done": True}), flush=True)


if __name__ == "__main__":
    main()
