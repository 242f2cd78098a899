"""Compares random models: ONNX models with ONNX Runtime, modules of canonical operators with the interpreter.

    python benchmarks/random_models.py [--count 1000] [--seed S] [--only K] [--save FOLDER] [--jobs N] [--limit SECONDS]

Half of the models are modules, half ONNX models. Each has symbolic sizes, is compiled once, and runs at three sets of sizes, in a
process of its own. Ends with 1 unless all are right. A failing model is printed with its seed, and is made smaller; `--only K` runs
model K alone, and `--save` writes it.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path

from random_graphs import processes, random_numbers
from random_graphs.check import Outcome, check
from random_graphs.models import further_targets, model, variants
from random_graphs.modules import OPERATORS
from random_graphs.onnx_host import MAKERS
from random_graphs.save import save
from random_graphs.shrink import shrunk

COUNT = 1000
LIMIT = 120.0
DRAWS = 20
"""Number of draws of each canonical operator that a run of `COUNT` models reaches."""


def checked(seed: int, number: int, targets: Sequence[str]) -> Outcome:
    """Make a model and check it."""
    case = model(seed, number)
    return check(case, variants(case, number, targets))


def run(seed: int, numbers: Iterable[int], targets: Sequence[str], jobs: int, limit: float) -> dict[int, Outcome]:
    """Check models in processes of their own, and print those that fail."""
    outcomes: dict[int, Outcome] = {}
    for number, ended in processes.each(numbers, partial(_work, seed, targets), jobs, limit):
        outcome = ended.result or Outcome(ended.problem, ended.reason)
        outcomes[number] = outcome
        if outcome.failed:
            print(f"model {number}: {outcome}", flush=True)
    return outcomes


def _work(seed: int, targets: Sequence[str], number: int) -> Outcome:
    return checked(seed, number, targets)


def table(counts: Mapping[str, int], columns: int = 4) -> str:
    """Format the draws of operators, in columns."""
    cells = [f"{counts[name]:5} {name}" for name in sorted(counts)]
    rows = -(-len(cells) // columns)
    width = max(map(len, cells), default=0) + 2
    return "\n".join("".join(cell.ljust(width) for cell in cells[row::rows]).rstrip() for row in range(rows))


def report(outcomes: Mapping[int, Outcome], seconds: float) -> str:
    """Summarize a run."""
    lines = []
    for kind, parity, names in (("canonical", 0, OPERATORS), ("ONNX", 1, _onnx_names())):
        counts = Counter(dict.fromkeys(names, 0))
        for number, outcome in outcomes.items():
            if number % 2 == parity:
                counts.update(outcome.operators)
        counts = Counter({name: counts[name] for name in counts if counts[name] or parity == 0})
        lines += [f"draws of {len(counts)} {kind} operators:", table(counts), ""]
    skipped = Counter[str]()
    for outcome in outcomes.values():
        skipped.update(outcome.skipped)
    lines += [
        "nodes drawn anew, since ONNX Runtime is known to be wrong:",
        *(f"{skipped[reason]:5} {reason}" for reason in sorted(skipped)),
        "",
    ]
    states = Counter(outcome.state for outcome in outcomes.values())
    runs, elements = sum(item.runs for item in outcomes.values()), sum(item.elements for item in outcomes.values())
    undetermined = sum(item.undetermined for item in outcomes.values())
    lines.append(
        f"{len(outcomes)} models, {runs} runs, {elements} elements compared, {undetermined} left to rounding, {seconds:.0f} s"
    )
    lines.append(", ".join(f"{states[state]} {state}" for state in ("right", "wrong", "refused", "internal", "crash", "slow")))
    return "\n".join(lines)


def _onnx_names() -> list[str]:
    return sorted({name.split(",")[0] for name in MAKERS})


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--count", type=int, default=COUNT, help="number of models")
    parser.add_argument("--seed", type=int, default=None, help="seed of all models; default: by the time")
    parser.add_argument("--only", type=int, default=None, metavar="K", help="run model K alone")
    parser.add_argument(
        "--save", type=Path, default=None, metavar="FOLDER", help="write failing models, or that of --only, to a folder"
    )
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="number of processes")
    parser.add_argument("--limit", type=float, default=LIMIT, help="seconds that a model may take")
    chosen = parser.parse_args(arguments)
    seed = int(time.time()) if chosen.seed is None else chosen.seed
    # A library of devices that this process had loaded would not work in the processes forked from it.
    targets = processes.alone(further_targets, chosen.limit).result or []
    print(f"seed {seed}; targets x86, {', '.join(targets)}", flush=True)
    start = time.monotonic()
    numbers = range(chosen.count) if chosen.only is None else [chosen.only]
    outcomes = run(seed, numbers, targets, chosen.jobs, chosen.limit)
    problems = [] if chosen.only is not None else _numbers(chosen.limit)
    if chosen.only is None:
        print(report(outcomes, time.monotonic() - start))
        print("\n".join(problems) if problems else "random numbers: repeatable, and of the expected distribution")
    failed = [number for number, outcome in sorted(outcomes.items()) if outcome.failed]
    for number in failed if chosen.only is None else [chosen.only]:
        outcome = outcomes[number]
        case = model(seed, number)
        if outcome.failed:
            case = shrunk(case, outcome, variants(case, number, targets), chosen.limit)
        print(f"model {number} (--seed {seed} --only {number}): {outcome}\n{outcome.trace}\n{case}")
        if chosen.save is not None:
            save(case, chosen.save / f"{seed}_{number}")
    rare_operators = [
        name
        for name in OPERATORS
        if sum(outcome.operators.get(name, 0) for number, outcome in outcomes.items() if number % 2 == 0) < DRAWS
    ]
    if chosen.only is None and chosen.count >= COUNT and rare_operators:
        print(f"fewer than {DRAWS} draws of {', '.join(rare_operators)}")
        return 1
    return 1 if failed or problems else 0


def _numbers(limit: float) -> list[str]:
    """Check random numbers in a process of its own."""
    ended = processes.alone(random_numbers.problems, limit)
    return [f"random numbers: {ended.reason}"] if ended.result is None else ended.result


if __name__ == "__main__":
    os.environ["INLAID_CACHE"] = "off"
    sys.exit(main())
