"""Processor time to compile models of many symbolic sizes, by their number; see `scaling.py --sizes`.

Each model is compiled in a process of its own with caches off, and saved. Another process loads the package and runs it at several
sizes. The outputs are compared with those that the model must compute.
"""

from __future__ import annotations

import json
import math
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from size_models import FAMILIES, Family

STEEPEST = 1.2
"""Greatest exponent of the number of sizes in the time of the last doubling."""
BRIEF = 2.0
"""Seconds below which a time is mostly that of a model of one size, so that its exponent does not matter."""
SEEDS = 2
"""Number of draws of inputs per model."""


@dataclass(frozen=True)
class Compilation:
    """What a process has measured: processor seconds to compile, of all its processes, and bytes of the package."""

    seconds: float
    size: int


class WrongModel(Exception):
    """Raised for a model that does not compile, load or run, or computes other values."""


def measure(family: str, count: int, target: str) -> Compilation:
    """Compile, load and run one model. Raises `WrongModel`."""
    model = FAMILIES[family]
    with tempfile.TemporaryDirectory() as folder:
        inputs = []
        for seed in range(SEEDS):
            inputs.append(model.inputs(count, np.random.default_rng(seed)))
            np.savez(Path(folder, f"inputs{seed}.npz"), **inputs[-1])
        figures = json.loads(_process("compile", family, str(count), target, folder))
        _process("run", folder)
        for seed, values in enumerate(inputs):
            _compare(model, count, values, Path(folder, f"outputs{seed}.npz"))
    return Compilation(**figures)


def _process(*arguments: str) -> str:
    """Run a command of this file in a fresh process. Returns what it printed."""
    environment = {**os.environ, "INLAID_CACHE": "off"}
    process = subprocess.run([sys.executable, __file__, *arguments], capture_output=True, text=True, env=environment, check=False)
    if process.returncode:
        raise WrongModel(f"{arguments[0]}: {(process.stderr.strip().splitlines() or [f'exit status {process.returncode}'])[-1]}")
    return process.stdout


def _compare(family: Family, count: int, inputs: dict[str, np.ndarray[Any, Any]], path: Path) -> None:
    expected = _reference(family, count, inputs)
    with np.load(path) as outputs:
        if set(outputs.files) != set(expected):
            raise WrongModel(f"expected outputs {sorted(expected)}, got {sorted(outputs.files)}")
        for name, value in expected.items():
            equals = np.array_equal if family.outputs else _is_close
            if outputs[name].shape != value.shape or not equals(outputs[name], value):
                raise WrongModel(f"output {name} is wrong for inputs of shapes {[value.shape for value in inputs.values()]}")


def _is_close(result: np.ndarray[Any, Any], expected: np.ndarray[Any, Any]) -> bool:
    return np.allclose(result, expected, rtol=1e-4, atol=1e-4)


def _reference(family: Family, count: int, inputs: dict[str, np.ndarray[Any, Any]]) -> dict[str, np.ndarray[Any, Any]]:
    if family.outputs is not None:
        return family.outputs(count, inputs)
    import onnxruntime

    session = onnxruntime.InferenceSession(family.model(count).SerializeToString(), providers=["CPUExecutionProvider"])
    names = [item.name for item in session.get_outputs()]
    return dict(zip(names, session.run(names, inputs), strict=True))


def _seconds() -> float:
    """Processor seconds of this process and of those that it has waited for."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def _compile(family: str, count: str, target: str, folder: str) -> None:
    """Compile and save one model, and print what it took. The first compilation imports what is imported lazily."""
    import inlaid

    inlaid.compile(FAMILIES[family].model(1), target)
    model = FAMILIES[family].model(int(count))
    start = _seconds()
    compiled = inlaid.compile(model, target)
    seconds = _seconds() - start
    path = Path(folder, "model.inlaid")
    compiled.save(path)
    print(json.dumps({"seconds": seconds, "size": path.stat().st_size}))


def _run(folder: str) -> None:
    """Load the package and run it with all inputs."""
    from inlaid_runtime import load

    model = load(Path(folder, "model.inlaid"))
    for path in sorted(Path(folder).glob("inputs*.npz")):
        with np.load(path) as inputs:
            np.savez(Path(folder, path.name.replace("inputs", "outputs")), **model.run(dict(inputs)))


def exponent(counts: Sequence[int], seconds: Sequence[float]) -> float:
    """Return e such that the time of the last two models grows as count^e."""
    return math.log(seconds[-1] / seconds[-2]) / math.log(counts[-1] / counts[-2])


def report(families: Sequence[str], targets: Sequence[str], counts: Sequence[int] = ()) -> bool:
    """Print the seconds of each model, by family and target, and the exponent of the last doubling. Returns whether all values are
    right, and no exponent of a long compilation is above `STEEPEST`."""
    passed = True
    for family in families:
        for target in targets:
            seconds: list[float] = []
            cells: list[str] = []
            chosen = counts or FAMILIES[family].counts
            for count in chosen:
                try:
                    item = measure(family, count, target)
                except WrongModel as error:
                    passed = False
                    cells.append(f"{count}: {error}")
                    break
                seconds.append(item.seconds)
                cells.append(f"{count}: {item.seconds:.2f} s, {item.size / 1e3:.0f} KB")
            text = ""
            if len(seconds) == len(chosen) > 1:
                steepness = exponent(chosen, seconds)
                passed = passed and (steepness <= STEEPEST or seconds[-1] < BRIEF)
                text = f"n^{steepness:.2f}"
            print(f"{family:<10}{target:<12}{text:<8}{'; '.join(cells)}", flush=True)
    return passed


if __name__ == "__main__":
    {"compile": _compile, "run": _run}[sys.argv[1]](*sys.argv[2:])
