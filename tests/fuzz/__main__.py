"""`python -m tests.fuzz`: use mutants of models, packages and launch plans, and count what happens."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.fuzz.kinds import Kind, kinds
from tests.fuzz.pool import Result, Worker, run_mutants, table


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command, on the arguments of the process by default.

    Returns 1 if a mutant crashes, hangs, or raises an exception outside Inlaid's family."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--count", type=int, default=100_000, help="number of mutants of all kinds together (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="number of the first mutant of each kind (default: %(default)s)")
    parser.add_argument("--kind", action="append", help="use only this kind of mutants; may be repeated")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="worker processes (default: %(default)s)")
    parser.add_argument(
        "--faults", type=Path, default=Path("build/fuzz"), help="folder for mutants that fail (default: %(default)s)"
    )
    parser.add_argument("--replay", type=Path, help="use the mutant in this file alone, which a former call has written")
    arguments = parser.parse_args(argv)
    with tempfile.TemporaryDirectory(prefix="inlaid-fuzz-") as folder:
        corpus = Path(folder)
        os.environ.setdefault("POCL_CACHE_DIR", folder)
        if arguments.replay is not None:
            return _replay(corpus, arguments.replay)
        chosen = {name: kind for name, kind in kinds(corpus).items() if not arguments.kind or name in arguments.kind}
        for kind in chosen.values():
            kind.write_seeds()
        chosen = {name: kind for name, kind in chosen.items() if kind.seeds}
        return _run(corpus, chosen, arguments)


def _replay(corpus: Path, file: Path) -> int:
    name = file.name.rpartition("-")[0].replace("_", " ").replace("vta fpga", "vta_fpga")
    worker = Worker(corpus)
    result = worker.use(name, f"@{file.resolve()}")
    worker.close()
    print(f"{result.outcome}: {result.text}\n{result.where}")
    return int(result.bad)


def _run(corpus: Path, chosen: dict[str, Kind], arguments: argparse.Namespace) -> int:
    counts: dict[str, Counter[str]] = {name: Counter() for name in chosen}
    begun = shown = time.monotonic()

    def note(result: Result) -> None:
        nonlocal shown
        counts[result.kind][result.outcome] += 1
        if result.bad:
            print(f"{result.outcome}: {_save(chosen[result.kind], result, arguments.faults)}: {result.text}\n{result.where}")
        if time.monotonic() - shown > 60:
            shown = time.monotonic()
            count = sum(sum(outcome_counts.values()) for outcome_counts in counts.values())
            print(f"{count} mutants in {shown - begun:.0f} s", file=sys.stderr)

    run_mutants(corpus, shares(chosen, arguments.count, arguments.seed), arguments.workers, note)
    print(f"\n{table([*counts.items()])}\n\nseed {arguments.seed}, {time.monotonic() - begun:.0f} s")
    return int(any(outcome_counts[name] for outcome_counts in counts.values() for name in ("crash", "hang", "internal")))


def shares(chosen: dict[str, Kind], count: int, seed: int) -> Iterator[tuple[str, str]]:
    """Yield (kind, number) of `count` mutants, the kinds by their weights, in turn."""
    total = sum(kind.weight for kind in chosen.values())
    counts = dict.fromkeys(chosen, 0)
    for turn in range(1, count + 1):
        name = max(chosen, key=lambda each: chosen[each].weight * turn / total - counts[each])
        yield name, str(seed + counts[name])
        counts[name] += 1


def _save(kind: Kind, result: Result, folder: Path) -> Path:
    """Write a mutant to a file, for `--replay`."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{result.kind.replace(' ', '_')}-{result.number}{kind.suffix}"
    path.write_bytes(kind.mutant(int(result.number)))
    return path


if __name__ == "__main__":
    sys.exit(main())
