"""Print the memory of models: arenas beside their lower bounds, of symbolic beside static packages, or peaks of processes.

    python benchmarks/memory.py [MODEL ...] [--target x86:threads=1]
    python benchmarks/memory.py --symbolic [MODEL ...]
    python benchmarks/memory.py --peak [MODEL ...]

By default, the arena of each light model of the onnx package. The lower bound is the largest sum of bytes, aligned to 64, that live
during one kernel, over the order in which the kernels run. Exits with 1 if an arena is more than 5 % above it.

--symbolic: bytes of a run besides weights, inputs and outputs, of packages with symbolic sizes beside static packages at the same
sizes; models of `memory_models.py`. Exits with 1 if one is above 1.1 of the static one.

--peak: peak resident memory in MiB of a process that compiles a model, of one that loads the package and runs it, and of one that
runs the model with ONNX Runtime. Models are names of benchmarks/zoo, or files; symbolic dimensions are 1. Exits with 1 if the
process that compiles takes more than three times the bytes of the model and 300 MB, or the one that runs more than ONNX Runtime's.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx

import inlaid
from inlaid import ops
from inlaid.driver import cut
from inlaid.driver.context import DriverContext
from inlaid.plugins import Level, Region
from inlaid.plugins.registry import default_registry
from inlaid.tensor.region import RegionProgram
from inlaid_runtime import arith
from inlaid_runtime.arith import Dim, SizeVar
from inlaid_runtime.memory import aligned
from memory_models import MODELS
from zoo import model_path

LIGHT = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
ARENA_LIMIT = 1.05
"""Greatest ratio of an arena to its lower bound."""
SYMBOLIC_LIMIT = 1.1
"""Greatest ratio of the memory of a symbolic package to that of a static one."""
PEAK_MODELS = ("resnet50", "vgg19", "bert_base")
RUN = """
import sys
import numpy as np
from inlaid_runtime.execution.executable import load
model = load(sys.argv[1])
sizes = lambda spec: [dim if isinstance(dim, int) else 1 for dim in spec.shape]
model.run({spec.name: np.zeros(sizes(spec), spec.dtype.numpy) for spec in model.inputs})
"""
PEER = """
import sys
import numpy as np
import onnxruntime
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = 1
session = onnxruntime.InferenceSession(sys.argv[1], options, providers=["CPUExecutionProvider"])
types = {"tensor(float)": np.float32, "tensor(int64)": np.int64, "tensor(bool)": np.bool_}
sizes = lambda item: [dim if isinstance(dim, int) else 1 for dim in item.shape]
session.run(None, {item.name: np.zeros(sizes(item), types[item.type]) for item in session.get_inputs()})
"""
# A process of its own, since the peak memory of a process is at least what its parent had when it started.
WATCH = """
import resource, subprocess, sys
subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""
COMPILE = "from inlaid_cli import main; main()"


# --- arenas beside their lower bounds ---------------------------------------------------------------------------------------


def regions(path: Path, target: str) -> list[RegionProgram]:
    """Return the regions of a model at loop level."""
    registry = default_registry()
    partitioned, candidates = cut(inlaid.load(str(path)), [target], registry)
    programs = []
    for name, index in partitioned.regions.items():
        candidate = candidates[index].target
        if registry.spec(candidate.kind).level is Level.LOOP:
            context = DriverContext(candidate, registry, ops.TABLE)
            programs.append(context.lower(Region(name, partitioned.module[name], candidate)))
    return programs


def largest_live(region: RegionProgram) -> int:
    """Return the largest number of arena bytes that live during one call. Views alias the viewed bytes, which count once."""
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for step, call in enumerate(region.calls):
        for number in (*call.inputs, *call.outputs):
            if region.buffers[number].storage == "arena":
                first.setdefault(number, step)
                last[number] = step
    # A buffer and its views have one offset: of those that live at a time the largest counts.
    lifetimes: dict[int, list[tuple[int, int, int]]] = {}
    for number, begin in sorted(first.items(), key=lambda item: item[1]):
        buffer = region.buffers[number]
        size = arith.evaluate(aligned(arith.unwrap(arith.mul(arith.product(buffer.shape), buffer.dtype.bytes))), {})
        lifetimes.setdefault(arith.evaluate(buffer.offset, {}), []).append((begin, last[number], size))
    live = [0] * (len(region.calls) + 1)
    for aliases in lifetimes.values():
        for step in range(len(region.calls)):
            live[step] += max((size for begin, end, size in aliases if begin <= step <= end), default=0)
    return max(live)


def print_arenas(models: Sequence[str], target: str) -> bool:
    """Print the arena of each region of light models. Returns whether all are within the limit."""
    names = models or sorted(path.stem.removeprefix("light_") for path in LIGHT.glob("*.onnx"))
    print(f"{'model':<16}{'arena':>12}{'lower bound':>14}{'ratio':>8}  bytes")
    worst = 0.0
    for name in names:
        for region in regions(LIGHT / f"light_{name}.onnx", target):
            arena, bound = arith.evaluate(region.workspace, {}), largest_live(region)
            ratio = arena / bound if bound else 1.0
            worst = max(worst, ratio)
            print(f"{name:<16}{arena:>12}{bound:>14}{ratio:>8.3f}", flush=True)
    return worst <= ARENA_LIMIT


# --- symbolic beside static packages ----------------------------------------------------------------------------------------


def workspace_bytes(executable: inlaid.Executable, sizes: Mapping[str, int]) -> int:
    """Return the bytes of a run at some sizes."""

    def extent(dim: Dim) -> int:
        return dim if isinstance(dim, int) else sizes[repr(dim)]

    return executable.workspace_bytes(
        {spec.name: np.zeros(tuple(map(extent, spec.shape)), np.float32) for spec in executable.inputs}
    )


def print_symbolic(models: Sequence[str], target: str) -> bool:
    """Print the memory of models with symbolic and with static sizes. Returns whether all are within the limit."""
    print(f"{'model':<10}{'sizes':<12}{'symbolic':>12}{'static':>12}{'ratio':>8}  bytes")
    worst = 0.0
    options: dict[str, Any] = {"targets": [target]}
    for name in models or MODELS:
        build, cases = MODELS[name]
        symbolic = inlaid.compile(build(SizeVar("a", 1, 4096), SizeVar("b", 1, 4096)), **options)
        for case in cases:
            static = inlaid.compile(build(*case), **options)
            sizes = dict(zip("ab", case, strict=True))
            symbolic_bytes, static_bytes = workspace_bytes(symbolic, sizes), workspace_bytes(static, sizes)
            ratio = symbolic_bytes / max(static_bytes, 1)
            worst = max(worst, ratio)
            print(f"{name:<10}{'x'.join(map(str, case)):<12}{symbolic_bytes:>12}{static_bytes:>12}{ratio:>8.3f}", flush=True)
    return worst <= SYMBOLIC_LIMIT


# --- peaks of processes -----------------------------------------------------------------------------------------------------


def peak(arguments: Sequence[str], cache: str) -> float:
    """Return the peak resident memory of `python -c arguments...` in MiB."""
    command = [sys.executable, "-c", WATCH, sys.executable, "-c", *arguments]
    environment = {**os.environ, "XDG_CACHE_HOME": cache}
    process = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    return int(process.stdout) / 1024


def print_peaks(models: Sequence[str], target: str) -> bool:
    """Print the peaks of the processes of each model. Returns whether all are within the limits."""
    print(f"{'model':<16}{'file, MB':>10}{'compile':>10}{'allowed':>10}{'run':>10}{'onnxruntime':>13}  MiB")
    passed = True
    for name in models or PEAK_MODELS:
        path = Path(name) if Path(name).exists() else model_path(name)
        with tempfile.TemporaryDirectory() as scratch:
            package = str(Path(scratch) / "model.inlaid")
            compiling = peak([COMPILE, "compile", str(path), "--target", target, "-o", package], scratch)
            running, peer = peak([RUN, package], scratch), peak([PEER, str(path)], scratch)
        size = path.stat().st_size
        allowed = (3 * size + 300e6) / 2**20
        passed = passed and compiling <= allowed and running <= peer
        print(f"{path.stem:<16}{size / 1e6:>10.0f}{compiling:>10.0f}{allowed:>10.0f}{running:>10.0f}{peer:>13.0f}", flush=True)
    return passed


def main() -> int:
    """Print one of the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", metavar="MODEL", help="such as resnet50; default: all of the table")
    parser.add_argument("--target", default="x86:threads=1")
    tables = parser.add_mutually_exclusive_group()
    tables.add_argument("--symbolic", action="store_true", help=f"symbolic beside static packages of {', '.join(MODELS)}")
    tables.add_argument("--peak", action="store_true", help="peaks of processes that compile and run models")
    options = parser.parse_args()
    if options.symbolic and (unknown := [name for name in options.models if name not in MODELS]):
        parser.error(f"expected models among {', '.join(MODELS)}, got {', '.join(unknown)}")
    report = print_symbolic if options.symbolic else print_peaks if options.peak else print_arenas
    return int(not report(options.models, options.target))


if __name__ == "__main__":
    sys.exit(main())
