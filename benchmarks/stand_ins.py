"""Print what the runtime's stand-ins for modules of the standard library save, in processor time.

    python benchmarks/stand_ins.py [--rounds 20]

A stand-in is a module that does what a module of the standard library does, because that one takes longer to import or to use. For
each, a copy of the packages of this checkout has the standard library's instead. A round starts every task, in a process of its
own, with the packages as they are, with those once more (A/A), and with each copy, in turn. Prints the medians of milliseconds, and
what a stand-in saves in percent of the time without it. Exits with 1 where a stand-in saves less than 5 % of every task.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import onnx

from call_costs import addition
from commits import PACKAGE, TASKS, processor_time

ROOT = Path(__file__).parents[1]
LEAST_SAVING = 0.05
"""Least fraction of the time of one task that a stand-in must save."""
DATACLASSES = "from dataclasses import dataclass, field, fields, replace"
METADATA = """
import importlib.metadata
from importlib.metadata import EntryPoint

InstalledEntryPoint = EntryPoint

def installed(*groups):
    return tuple(point for group in groups for point in importlib.metadata.entry_points(group=group))

def installed_version(name):
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None
"""
STAND_INS = {"records": ("records.py", DATACLASSES), "entry_points": ("plugins/entry_points.py", METADATA)}
"""Stand-ins by name: the file in `inlaid_runtime`, and the text that replaces it by the standard library."""


class Side:
    """A copy of the packages in which some text replaces a stand-in, with a cache and a package of its own."""

    def __init__(self, folder: Path, stand_in: str | None = None) -> None:
        packages = folder / "packages"
        for source in (ROOT / "core", ROOT / "runtime" / "src", *ROOT.glob("plugins/*/src")):
            shutil.copytree(source, packages, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
        if stand_in is not None:
            file, text = STAND_INS[stand_in]
            (packages / "inlaid_runtime" / file).write_text(text, encoding="utf-8")
        self._environment = os.environ | {"PYTHONPATH": str(packages), "XDG_CACHE_HOME": str(folder)}
        self._environment.pop("PYTHONDONTWRITEBYTECODE", None)
        self._environment.pop("INLAID_CACHE", None)
        model, package = folder / "add.onnx", folder / "relu.inlaid"
        onnx.save(addition(), model)
        subprocess.run([sys.executable, "-c", PACKAGE, package], check=True, env=self._environment)
        self._arguments = [str(model), str(package)]
        for task in TASKS:  # writes bytecode, and fills the cache
            self.measure(task)

    def measure(self, task: str) -> float:
        """Run a task once; return its milliseconds of processor time."""
        return 1000 * processor_time([sys.executable, "-c", TASKS[task], *self._arguments], self._environment)


def main() -> bool:
    """Print the table. Returns whether each stand-in saves enough of a task."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=20)
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory() as name:
        sides = {stand_in: Side(Path(name, stand_in or "none"), stand_in) for stand_in in (None, *STAND_INS)}
        runs = {"as it is": sides[None], "A/A": sides[None], **{stand_in: sides[stand_in] for stand_in in STAND_INS}}
        times: dict[tuple[str, str], list[float]] = {(task, run): [] for task in TASKS for run in runs}
        for _ in range(rounds):
            for (task, run), milliseconds in times.items():
                milliseconds.append(runs[run].measure(task))
    medians = {key: statistics.median(milliseconds) for key, milliseconds in times.items()}
    count = len({item.name for item in importlib.metadata.distributions()})
    print(f"ms of processor time, medians of {rounds} rounds; Python {sys.version.split()[0]}, {count} distributions installed")
    print(f"{'task':<24}{'as it is':>9}{'A/A':>9}" + "".join(f"{f'without {stand_in}':>30}" for stand_in in STAND_INS))
    greatest = dict.fromkeys(STAND_INS, 0.0)
    for task in TASKS:
        base = medians[task, "as it is"]
        line = f"{task:<24}{base:>9.1f}{medians[task, 'A/A']:>9.1f}"
        for stand_in in STAND_INS:
            without = medians[task, stand_in]
            saving = 1 - base / without
            greatest[stand_in] = max(greatest[stand_in], saving)
            line += f"{f'{without:.1f}, saves {saving:+.1%}':>30}"
        print(line)
    return all(saving >= LEAST_SAVING for saving in greatest.values())


if __name__ == "__main__":
    sys.exit(not main())
