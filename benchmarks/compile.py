"""Measure the time to import and to compile: whole models cold and warm, firmware, single operators, by number of distinct kernels.

    python benchmarks/compile.py [MODEL ...] [--target x86] [--firmware FOLDER] [--rounds 3]

MODEL is a name of benchmarks/zoo or a file. FOLDER has the int8 models of MLPerf Tiny under their names in mlcommons/tiny; they are
compiled into folders of C for Cortex-M4, together with a generated MobileNetV2 with 2.3 MB of int8 weights.

Cold and warm are the wall time of `inlaid compile`, start-up of Python included, with an empty cache and with what a first run left
there; "objects" is a run that finds the kernels' objects, but not the package. Figures are the minimum of several rounds; processor
time counts all processes and tells how far a busy machine distorts wall time. Goals are for wall time on two quiet cores. Exits
with 1 if a goal is missed.
"""

from __future__ import annotations

import argparse
import math
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from inlaid import Module, TensorType, constant, function, ops, var
from inlaid.driver import build_package
from inlaid.graph.ir import Call, Expr, Var
from inlaid.graph.operator import Operator
from inlaid.lowering.kernels.finish import finish
from inlaid.lowering.kernels.kernel import KernelSource, build
from inlaid.plugins.registry import default_registry
from inlaid.schedules.default import SHARED_RULES
from inlaid.tensor.scheduling.rule import InputInfo, KernelContext, Offer
from inlaid_runtime.types import ROW_MAJOR
from zoo import MODELS, cache_folder, model_path, written
from zoo.quantized import quantized
from zoo.sizes import feeds
from zoo.vision import MobileNet, mobilenet

COLD, WARM, OPERATOR = 2.0, 0.4, 0.15
"""Goals in seconds: of ResNet-50 with an empty cache, and warm; and of a model of one operator, in a process that has compiled."""
ANY = 5.0
"""Goal in seconds of every other model with an empty cache."""
TINY, LARGE = 2.0, 10.0
"""Goals in seconds of firmware with an empty cache: of the models of MLPerf Tiny, and of a model of 2.3 MB."""
CONTROLLER = "microcontroller:cpu=cortex-m4"
TINY_MODELS = ("ad01_int8", "kws_ref_model", "pretrainedResnet_quant", "vww_96_int8")
"""The int8 models of MLPerf Tiny, by file names without suffix."""
LARGE_MODEL = MobileNet(image=96, classes=40)
"""A model with 2.3 MB of int8 weights."""
IMPORT = 0.2
"""Goal in seconds of `import inlaid`."""
SCHEDULE = 0.02
"""Goal in seconds of a whole schedule."""
GROWTH = 1.3
"""How much more a kernel may take in a model of many than in one of a quarter as many."""
COUNTS = (8, 16, 32, 64)
DEFAULT = ("resnet50", "densenet121", "squeezenet")


@dataclass(frozen=True)
class Spent:
    """Wall and processor seconds."""

    wall: float
    processor: float

    def __str__(self) -> str:
        return f"{self.wall:>9.2f} ({self.processor:>6.2f})"


def least(times: Sequence[Spent]) -> Spent:
    """The least of each."""
    return Spent(min(item.wall for item in times), min(item.processor for item in times))


def spent(work: Callable[[], object]) -> Spent:
    """What some work takes, in this process and in those that it starts and waits for."""
    before, begin = processor(), time.perf_counter()
    work()
    return Spent(time.perf_counter() - begin, processor() - before)


def processor() -> float:
    """Processor seconds of this process and of those that have ended."""
    usage = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(item.ru_utime + item.ru_stime for item in usage)


@dataclass(frozen=True)
class Row:
    """A model to compile: its file, the target, what is written (a package or a folder), and goals in seconds."""

    name: str
    path: Path
    target: str
    output: str = "out.inlaid"
    cold: float = ANY
    warm: float = math.inf


def packages(models: Sequence[str], target: str) -> list[Row]:
    """Return the rows of whole models, by names or files."""
    rows = []
    for name in models:
        path = model_path(name) if name in MODELS else Path(name)
        goals = (COLD, WARM) if name == "resnet50" and target == "x86" else (ANY, math.inf)
        rows.append(Row(path.stem, path, target, "out.inlaid", *goals))
    return rows


def firmware(folder: Path) -> list[Row]:
    """Return the rows of firmware."""
    rows = [Row(name, folder / f"{name}.tflite", CONTROLLER, "out", TINY) for name in TINY_MODELS]
    build = partial(mobilenet, LARGE_MODEL)
    large = written(cache_folder(), "mobilenet_v2_96_int8", lambda: quantized(build(), partial(feeds, build()), signed=True))
    return [*rows, Row(large.stem, large, CONTROLLER, "out", LARGE)]


def measured(rows: Sequence[Row], rounds: int) -> bool:
    """Print the table of whole models. Returns whether all met their goals."""
    print(f"{'wall (processor), s':<24}{'cold':>18}{'objects':>18}{'warm':>18}")
    within_limits = True
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        cache = folder / "inlaid"

        def run(row: Row) -> Spent:
            command = [sys.executable, "-c", "from inlaid_cli import main; main()", "compile", str(row.path)]
            command += ["--target", row.target, "-o", str(folder / row.output)]
            environment = {**os.environ, "XDG_CACHE_HOME": scratch, "INLAID_CACHE": "on"}
            return spent(lambda: subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL))

        for row in rows:
            cold, objects, warm = [], [], []
            for _ in range(rounds):
                shutil.rmtree(cache, ignore_errors=True)
                shutil.rmtree(folder / "out", ignore_errors=True)
                cold.append(run(row))
                warm.append(run(row))
                shutil.rmtree(cache / "v1" / "models")
                objects.append(run(row))
            reached = least(cold).wall <= row.cold and least(warm).wall <= row.warm
            goals = f"goal {row.cold:g}" + (f", warm {row.warm:g}" if row.warm < math.inf else "")
            verdict = f"  {goals}{'' if reached else ', missed'}"
            print(f"{row.name:<24}{least(cold)}{least(objects)}{least(warm)}{verdict}", flush=True)
            within_limits = within_limits and reached
    return within_limits


def importing(rounds: int) -> bool:
    """The time of `import inlaid` in a process of its own. Whether it met its goal."""
    code = "import time; start = time.perf_counter(); import inlaid; print(time.perf_counter() - start)"
    runs = [float(subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout) for _ in range(rounds)]
    print(f"\n{'import inlaid, ms':<20}{min(runs) * 1e3:>18.1f}")
    return min(runs) <= IMPORT


def operators() -> dict[str, tuple[list[Var], Expr]]:
    """Models of one operator."""
    rng = np.random.default_rng(0)
    small, row = var("x", TensorType((16,), "float32")), var("x", TensorType((128, 768), "float32"))
    image = var("x", TensorType((1, 64, 56, 56), "float32"))
    kernel, weights = (constant(rng.random(shape, np.float32)) for shape in ((64, 64, 3, 3), (768, 768)))
    window = {"strides": (1, 1), "dilations": (1, 1)}
    return {
        "add": ([small], ops.add(small, small)),
        "conv": ([image], ops.conv(image, kernel, pads=(1, 1, 1, 1), groups=1, **window)),
        "max_pool": ([image], ops.max_pool(image, kernel=(3, 3), pads=(1, 1, 1, 1), **window)),
        "matmul": ([row], ops.matmul(row, weights)),
        "softmax": ([row], ops.softmax(row, axis=1)),
        "relu": ([image], ops.relu(image)),
        "transpose": ([image], ops.transpose(image, perm=(0, 2, 3, 1))),
        "reduce_sum": ([image], ops.reduce_sum(image, axes=(2, 3), keepdims=True)),
    }


def built(module: Module, target: str, rounds: int) -> Spent:
    """Compiling a module with no cache, in this process. The first time, which imports what is needed, does not count."""
    build_package(module, [target], keep=False)
    return least([spent(lambda: build_package(module, [target], keep=False)) for _ in range(rounds)])


def single(target: str, rounds: int) -> bool:
    """The table of single operators. Whether all met the goal."""
    print(f"\n{'one operator':<20}{'wall (processor), s':>18}")
    within_limits = True
    for name, (params, result) in operators().items():
        item = built(Module({"main": function(params, result)}), target, rounds)
        print(f"{name:<20}{item}", flush=True)
        within_limits = within_limits and item.wall <= OPERATOR
    return within_limits


def schedule(target: str, rounds: int) -> bool:
    """How long a schedule of a convolution takes, and what follows it up to the code generator. Whether the goal is met."""
    registry = default_registry()
    context = KernelContext(registry.capabilities(registry.target(target)), 1)
    params, result = operators()["conv"]
    image, kernel = params[0], var("kernel", TensorType((64, 64, 3, 3), "float32"))
    assert isinstance(result, Call) and isinstance(result.callee, Operator)
    body = Call(result.type, None, result.callee, (image, kernel), result.attrs)
    program = build(KernelSource("conv", (image, kernel), body))
    input_infos = (InputInfo(ROW_MAJOR), InputInfo(ROW_MAJOR, constant=True))
    offers = next(filter(None, (rule.offer(program, context, input_infos) for rule in SHARED_RULES)))
    offer = offers if isinstance(offers, Offer) else offers[0]
    scheduled = offer.schedule(program)
    schedule_cost = least([spent(lambda: offer.schedule(program)) for _ in range(rounds)])
    after = least([spent(lambda: finish(scheduled)) for _ in range(rounds)])
    print(f"\n{'a convolution, ms':<20}{'schedule':>18}{'finish':>18}")
    print(f"{'':<20}{schedule_cost.wall * 1e3:>18.1f}{after.wall * 1e3:>18.1f}")
    return schedule_cost.wall <= SCHEDULE


def chain(count: int) -> Module:
    """A chain of convolutions of which no two have equal shapes."""
    kernel = constant(np.random.default_rng(0).random((32, 32, 1, 1), np.float32))
    x = result = var("x", TensorType((1, 32, 8, 14), "float32"))
    for _ in range(count):
        result = ops.relu(ops.conv(result, kernel, strides=(1, 1), pads=(0, 0, 1, 0), dilations=(1, 1), groups=1))
    return Module({"main": function([x], result)})


def growth(counts: Sequence[int], target: str, rounds: int) -> bool:
    """The table of time by the number of distinct kernels. Whether it grows in proportion."""
    print(f"\n{'distinct kernels':<20}{'processor, s':>18}{'per kernel, ms':>18}")
    each = {}
    for count in counts:
        item = built(chain(count), target, rounds)
        each[count] = item.processor / count
        print(f"{count:<20}{item.processor:>18.2f}{each[count] * 1e3:>18.1f}", flush=True)
    return all(each[4 * count] <= GROWTH * each[count] for count in counts if 4 * count in each)


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=DEFAULT, help=f"names or files; default: {', '.join(DEFAULT)}")
    parser.add_argument("--target", default="x86")
    parser.add_argument("--firmware", type=Path, metavar="FOLDER", help="also compile the models of MLPerf Tiny in this folder")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--counts", type=int, nargs="+", default=COUNTS, help="numbers of distinct kernels")
    arguments = parser.parse_args()
    print(f"{len(os.sched_getaffinity(0))} cores, load {os.getloadavg()[0]:.1f}")
    verdicts = [
        measured(packages(arguments.models, arguments.target), arguments.rounds),
        arguments.firmware is None or measured(firmware(arguments.firmware), arguments.rounds),
        single(arguments.target, arguments.rounds),
        schedule(arguments.target, max(arguments.rounds, 5)),
        growth(arguments.counts, arguments.target, arguments.rounds),
        importing(max(arguments.rounds, 5)),
    ]
    return int(not all(verdicts))


if __name__ == "__main__":
    sys.exit(main())
