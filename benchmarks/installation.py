"""Print what an installation of the runtime takes, and how soon and in how much memory a new process has its first result.

    python benchmarks/installation.py [MODEL] [--rounds 21]

Makes two virtual environments in a temporary folder: one with `./runtime` of this checkout, one with onnxruntime. Prints the bytes
of each distribution in them, then, for processes that load a model (a name of benchmarks/zoo, or an ONNX file) and run it once, the
medians over interleaved rounds: seconds from start to end, processor seconds, and peak resident memory. Both use all cores, as they
do by default. Exits with 1 where the runtime takes more than 5 MB besides numpy, or more time or memory than ONNX Runtime.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import venv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from zoo import model_path

RUNTIME = Path(__file__).parents[1] / "runtime"
LIMIT = 5_000_000
"""Bytes that the runtime may take besides numpy, compiled Python files included."""
OURS = """
import sys
import numpy as np
from inlaid_runtime import load
model = load(sys.argv[1])
model.run({spec.name: np.zeros(spec.shape, spec.dtype.numpy) for spec in model.inputs})
"""
PEER = """
import sys
import numpy as np
import onnxruntime
session = onnxruntime.InferenceSession(sys.argv[1], providers=["CPUExecutionProvider"])
types = {"tensor(float)": np.float32, "tensor(int64)": np.int64, "tensor(bool)": np.bool_}
session.run(None, {item.name: np.zeros(item.shape, types[item.type]) for item in session.get_inputs()})
"""
SIZES = """
import importlib.metadata, json
def size(distribution):
    places = (file.locate() for file in distribution.files or ())
    return sum(place.stat().st_size for place in places if place.exists())
print(json.dumps({item.name: size(item) for item in importlib.metadata.distributions()}))
"""
# A process of its own, since the peak memory of a process is at least what its parent had when it started.
WATCH = """
import json, os, sys, time
began = time.perf_counter()
process = os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ)
_, status, usage = os.wait4(process, 0)
wall = time.perf_counter() - began
print(json.dumps([status, wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss]))
"""
TOOLS = ("pip", "setuptools")
"""What a virtual environment has from the start."""


@dataclass(frozen=True)
class Start:
    """One process: seconds from start to end, processor seconds, and MiB of peak resident memory."""

    wall: float
    processor: float
    memory: float


def installed(folder: Path, *requirements: str) -> Path:
    """The Python of a new virtual environment with packages."""
    venv.create(folder, with_pip=True, symlinks=True)
    python = folder / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *requirements], check=True)
    return python


def sizes(python: Path) -> dict[str, int]:
    """Bytes of each distribution."""
    process = subprocess.run([python, "-I", "-c", SIZES], check=True, capture_output=True, text=True)
    byte_counts: dict[str, int] = json.loads(process.stdout)
    return {name: size for name, size in byte_counts.items() if name not in TOOLS}


def start(command: Sequence[str | Path]) -> Start:
    """Run a process. Raises `RuntimeError` where it fails."""
    words = [str(word) for word in command]
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    process = subprocess.run(
        [sys.executable, "-I", "-S", "-c", WATCH, *words], env=variables, check=True, capture_output=True, text=True
    )
    status, wall, processor, kibibytes = json.loads(process.stdout.splitlines()[-1])
    if status:
        raise RuntimeError(f"{' '.join(words[:2])} ended with status {status}: {process.stderr.strip()[-500:]}")
    return Start(wall, processor, kibibytes / 1024)


def interleaved(commands: Mapping[str, Sequence[str | Path]], rounds: int) -> dict[str, Start]:
    """The median start of each command, one of each in every round after a round that fills the page cache."""
    starts: dict[str, list[Start]] = {name: [] for name in commands}
    for number in range(rounds + 1):
        for name, command in commands.items():
            measurement = start(command)
            if number:
                starts[name].append(measurement)
    return {
        name: Start(*(statistics.median(getattr(one, field) for one in all_) for field in ("wall", "processor", "memory")))
        for name, all_ in starts.items()
    }


def print_sizes(title: str, byte_counts: Mapping[str, int]) -> None:
    """Print the distributions of an environment, the largest first."""
    print(f"{title}: {sum(byte_counts.values()) / 1e6:.1f} MB")
    for name, size in sorted(byte_counts.items(), key=lambda item: -item[1]):
        print(f"    {name:<20}{size / 1e6:>8.2f} MB")


def main() -> int:
    """Print the tables; 1 where a limit is exceeded."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", default="squeezenet")
    parser.add_argument("--rounds", type=int, default=21)
    options = parser.parse_args()
    model = Path(options.model) if Path(options.model).exists() else model_path(options.model)
    with tempfile.TemporaryDirectory() as scratch:
        package = Path(scratch, "model.inlaid")
        compiling = "import sys, inlaid; inlaid.compile(sys.argv[1], targets=['x86']).save(sys.argv[2])"
        subprocess.run([sys.executable, "-c", compiling, model, package], check=True)
        ours = installed(Path(scratch, "inlaid"), str(RUNTIME))
        peer = installed(Path(scratch, "onnxruntime"), "onnxruntime")
        small = sizes(ours)
        print_sizes("inlaid-runtime", small)
        print_sizes("onnxruntime", sizes(peer))
        besides = sum(size for name, size in small.items() if name != "numpy")
        print(f"besides numpy: {besides / 1e6:.2f} MB of {LIMIT / 1e6:.0f} MB allowed")
        print(f"model {model.stat().st_size / 1e6:.1f} MB, package {package.stat().st_size / 1e6:.1f} MB")
        commands = {"inlaid-runtime": (ours, "-c", OURS, package), "onnxruntime": (peer, "-c", PEER, model)}
        median_starts = interleaved(commands, options.rounds)
    print(f"{'first result':<16}{'wall, s':>10}{'processor, s':>14}{'peak, MiB':>11}")
    for name, one in median_starts.items():
        print(f"{name:<16}{one.wall:>10.3f}{one.processor:>14.3f}{one.memory:>11.0f}")
    mine, other = median_starts.values()
    print(
        f"{'ratio':<16}{mine.wall / other.wall:>10.2f}{mine.processor / other.processor:>14.2f}{mine.memory / other.memory:>11.2f}"
    )
    return int(besides > LIMIT or mine.wall > other.wall or mine.memory > other.memory)


if __name__ == "__main__":
    sys.exit(main())
