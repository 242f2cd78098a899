"""Compare the processor time of two installations of Inlaid, such as before and after a refactoring, in interleaved rounds.

    python benchmarks/commits.py OTHER [--rounds 30] [--model resnet50]
    python benchmarks/commits.py OTHER --models [NAME ...] [--target x86:threads=1]

OTHER is the Python of a virtual environment that has the other commit with x86; this one is that which runs the program. Each
round starts every task in both, and a second time in this one, in turn: ratios of the second to the first (A/A) tell what is noise.
A figure is the median of the processor time of the process and its children, in seconds; for a call, the median of each process's
fastest batch of calls, in microseconds. Exits with 1 where the ratio of the medians is above the limit, and the A/A ratio does not
explain it.

`--models` compares the speed of compiled models: a process of each side compiles the model and runs it in turns, and the figure is
the median over rounds of the ratio of its fastest run in a turn, in processor time. The limit of the geometric mean is 1.005.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx

from zoo import FLOAT, feeds, model_path

LIMIT = 1.02
MEAN_LIMIT = 1.005
TURN = 0.05
"""Seconds for which a model runs in a turn, at least twice."""
CALLS = 2_000
BATCHES = 10
LOAD = """
import sys, time, numpy as np
try:
    from inlaid_runtime import load
except ImportError:  # commits before there was such a package
    from inlaid.runtime import load
executable, inputs = load(sys.argv[2]), {"x": np.ones(16, np.float32)}
executable.run(inputs)
"""
TASKS = {
    "import inlaid": "import inlaid",
    "import inlaid.compile": "import inlaid; inlaid.compile",
    "compile, cold": "import sys, inlaid; inlaid.compile(sys.argv[1], targets=['x86:threads=1'], cache=False)",
    "compile, warm": "import sys, inlaid; inlaid.compile(sys.argv[1], targets=['x86:threads=1'])",
    "cold start": LOAD,
}
CALL = f"""{LOAD}
for _ in range(1000): executable.run(inputs)
times = []
for _ in range({BATCHES}):
    start = time.process_time()
    for _ in range({CALLS}): executable.run(inputs)
    times.append(time.process_time() - start)
print(min(times) / {CALLS} * 1e6)
"""
RUNS = """
import sys, time, numpy as np, inlaid
executable = inlaid.compile(sys.argv[1], targets=[sys.argv[3]])
inputs = dict(np.load(sys.argv[2]))
for _ in range(2): executable.run(inputs)
print(flush=True)
for line in sys.stdin:
    times, spent = [], 0.0
    while len(times) < 2 or spent < float(line):
        start = time.process_time()
        executable.run(inputs)
        times.append(time.process_time() - start)
        spent += times[-1]
    print(min(times), flush=True)
"""
PACKAGE = """
import sys, inlaid
x = inlaid.var("x", inlaid.TensorType((16,), "float32"))
inlaid.compile(inlaid.function([x], inlaid.ops.relu(x)), targets=["x86:threads=1"]).save(sys.argv[1])
"""


def processor_time(command: Sequence[str], environment: Mapping[str, str]) -> float:
    """Run a command, and return the processor time of all its processes in seconds."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


class Side:
    """An installation, with a cache and a package of its own."""

    def __init__(self, python: str, model: Path, folder: Path) -> None:
        self.python = python
        self.arguments = [str(model), str(folder / "relu.inlaid")]
        hidden = ("PYTHONPATH", "INLAID_CACHE")
        self.environment = {name: value for name, value in os.environ.items() if name not in hidden} | {
            "XDG_CACHE_HOME": str(folder)
        }
        subprocess.run([python, "-c", PACKAGE, self.arguments[1]], check=True, env=self.environment)

    def measure(self, task: str) -> float:
        """Run a task once."""
        if task == "a call":
            command = [self.python, "-c", CALL, *self.arguments]
            return float(subprocess.run(command, check=True, env=self.environment, capture_output=True, text=True).stdout)
        return processor_time([self.python, "-c", TASKS[task], *self.arguments], self.environment)


class Runner:
    """A process of an installation that has compiled a model, and runs it when asked."""

    def __init__(self, side: Side, arguments: Sequence[str]) -> None:
        command = [side.python, "-c", RUNS, *arguments]
        self.process = subprocess.Popen(
            command, env=side.environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )

    def ready(self) -> bool:
        """Wait for the compiled model; False if the installation cannot compile it."""
        assert self.process.stdout is not None
        return bool(self.process.stdout.readline())

    def fastest(self, seconds: float) -> float:
        """Run the model for some seconds, and return the processor time of the fastest run."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(f"{seconds}\n")
        self.process.stdin.flush()
        return float(self.process.stdout.readline())

    def close(self) -> None:
        """End the process."""
        self.process.communicate()


def compare_models(sides: Sequence[Side], names: Sequence[str], target: str, rounds: int, folder: Path) -> int:
    """Print the ratio of each model's times on two sides, and that of one side to itself. Returns the exit code."""
    ratios: dict[str, float] = {}
    print(f"{'model':<32}{'other, ms':>10}{'ratio':>8}{'A/A':>8}")
    for name in names:
        path, data = model_path(name), folder / f"{name}.npz"
        np.savez(data, **feeds(onnx.load(path), 0))
        runners = [Runner(side, [str(path), str(data), target]) for side in sides]
        ready = [runner.ready() for runner in runners]
        if all(ready):
            turns = []
            for number in range(rounds):
                order = [(turn + number) % 3 for turn in range(3)]
                times = {index: runners[index].fastest(TURN) for index in order}
                turns.append([times[index] for index in range(3)])
            other = statistics.median(turn[0] for turn in turns)
            ratio, same = (statistics.median(turn[index] / turn[base] for turn in turns) for index, base in ((1, 0), (2, 1)))
            ratios[name] = min(ratio, statistics.median(turn[2] / turn[0] for turn in turns))
            print(f"{name:<32}{other * 1e3:>10.3f}{ratio:>8.3f}{same:>8.3f}", flush=True)
        else:
            print(f"{name:<32}{'not compiled on each side':>28}", flush=True)
        for runner in runners:
            runner.close()
    mean = statistics.geometric_mean(ratios.values())
    slower = [name for name, ratio in ratios.items() if ratio > LIMIT]
    print(f"geometric mean {mean:.4f}; above {LIMIT}: {', '.join(slower) or 'none'}")
    return 1 if slower or mean > MEAN_LIMIT or len(ratios) < len(names) else 0


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("other", metavar="OTHER", help="the Python of the other installation")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--model", default="resnet50", help="a name of the zoo or a file")
    parser.add_argument("--json", action="store_true", help="print all times as JSON")
    parser.add_argument(
        "--models", nargs="*", metavar="NAME", help="compare the speed of models of the zoo; default: those in float"
    )
    parser.add_argument("--target", default="x86:threads=1", help="of --models")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        model = model_path(chosen.model)
        sides = [Side(python, model, Path(folder, name)) for name, python in _places(folder, chosen.other)]
        if chosen.models is not None:
            return compare_models(sides, chosen.models or [*FLOAT], chosen.target, chosen.rounds, Path(folder))
        times: dict[str, list[list[float]]] = {task: [[], [], []] for task in (*TASKS, "a call")}
        for number in range(chosen.rounds):
            for task, rows in times.items():
                for turn in range(3):
                    side_index = (turn + number) % 3
                    rows[side_index].append(sides[side_index].measure(task))
    if chosen.json:
        print(json.dumps(times))
    print(f"{'task':<24}{'other':>10}{'this':>10}{'ratio':>8}{'A/A':>8}")
    slower = []
    for task, rows in times.items():
        other, this, again = map(statistics.median, rows)
        print(f"{task:<24}{other:>10.4g}{this:>10.4g}{this / other:>8.3f}{again / this:>8.3f}")
        if min(this, again) / other > LIMIT:
            slower.append(task)
    print(f"above {LIMIT}: {', '.join(slower)}" if slower else f"none is above {LIMIT}")
    return 1 if slower else 0


def _places(folder: str, other: str) -> list[tuple[str, str]]:
    places = [("other", other), ("this", sys.executable), ("again", sys.executable)]
    for name, _ in places:
        Path(folder, name).mkdir()
    return places


if __name__ == "__main__":
    sys.exit(main())
