"""Compare the processor time of two installations of Inlaid, such as before and after a refactoring, in interleaved rounds.

    python benchmarks/commits.py OTHER [--rounds 30] [--model resnet50]

OTHER is the Python of a virtual environment that has the other commit with x86; this one is that which runs the program. Each
round starts every task in both, and a second time in this one, in turn: ratios of the second to the first (A/A) tell what is noise.
A figure is the median of the processor time of the process and its children, in seconds; for a call, the median of each process's
fastest batch of calls, in microseconds. Exits with 1 where the ratio of the medians is above the limit, and the A/A ratio does not
explain it.
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

from zoo import model_path

LIMIT = 1.02
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


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("other", metavar="OTHER", help="the Python of the other installation")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--model", default="resnet50", help="a name of the zoo or a file")
    parser.add_argument("--json", action="store_true", help="print all times as JSON")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        model = model_path(chosen.model)
        sides = [Side(python, model, Path(folder, name)) for name, python in _places(folder, chosen.other)]
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
