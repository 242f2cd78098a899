"""Measures how long importing and compiling take: whole models cold and warm, single operators, by the number of distinct kernels.

    python benchmarks/compile.py [MODEL ...] [--target x86] [--rounds 3]

Cold and warm are the wall time of `inlaid compile`, start-up of Python included, with an empty cache and with what a first run left
there; "objects" is a run that finds the kernels' objects, but not the package. Figures are the least of several rounds; processor
time counts all processes and tells how far a busy machine distorts wall time. Exits with 1 when a goal is missed.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from inlaid import Module, TensorType, constant, function, ops, var
from inlaid.driver import build_package
from inlaid.graph.ir import Call, Expr, Var
from inlaid.graph.operator import Operator
from inlaid.lowering.finish import finish
from inlaid.lowering.kernel import KernelSource, build
from inlaid.plugins.registry import default_registry
from inlaid.schedules.default import SHARED_RULES
from inlaid.schedules.rule import InputInfo, KernelContext, Offer
from inlaid.types import ROW_MAJOR
from zoo import path_of

COLD, WARM, OPERATOR = 5.0, 0.5, 0.1
"""Goals in seconds: of ResNet-50 with an empty cache, and warm; and of a model of one operator, in a process that has compiled."""
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


def models(names: Sequence[str], target: str, rounds: int) -> bool:
    """The table of whole models. Whether ResNet-50 met its goals."""
    print(f"{'wall (processor), s':<20}{'cold':>18}{'objects':>18}{'warm':>18}")
    met = True
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        cache = folder / "inlaid"

        def run(path: Path) -> Spent:
            command = [sys.executable, "-c", "from inlaid.cli import main; main()", "compile", str(path)]
            command += ["--target", target, "-o", str(folder / "out.inlaid")]
            environment = {**os.environ, "XDG_CACHE_HOME": scratch, "INLAID_CACHE": "on"}
            return spent(lambda: subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL))

        for name in names:
            path = path_of(name)
            cold, objects, warm = [], [], []
            for _ in range(rounds):
                shutil.rmtree(cache, ignore_errors=True)
                cold.append(run(path))
                warm.append(run(path))
                shutil.rmtree(cache / "v1" / "models")
                objects.append(run(path))
            print(f"{name:<20}{least(cold)}{least(objects)}{least(warm)}", flush=True)
            if name == "resnet50":
                met = least(cold).wall <= COLD and least(warm).wall <= WARM
    return met


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
    met = True
    for name, (params, result) in operators().items():
        item = built(Module({"main": function(params, result)}), target, rounds)
        print(f"{name:<20}{item}", flush=True)
        met = met and item.wall <= OPERATOR
    return met


def schedule(target: str, rounds: int) -> bool:
    """How long a schedule of a convolution takes, and what follows it up to the code generator. Whether the goal is met."""
    registry = default_registry()
    context = KernelContext(registry.capabilities(registry.target(target)), 1)
    params, result = operators()["conv"]
    image, kernel = params[0], var("kernel", TensorType((64, 64, 3, 3), "float32"))
    assert isinstance(result, Call) and isinstance(result.callee, Operator)
    body = Call(result.type, None, result.callee, (image, kernel), result.attrs)
    program = build(KernelSource("conv", (image, kernel), body))
    given = (InputInfo(ROW_MAJOR), InputInfo(ROW_MAJOR, constant=True))
    made = next(filter(None, (rule.offer(program, context, given) for rule in SHARED_RULES)))
    offer = made if isinstance(made, Offer) else made[0]
    scheduled = offer.schedule(program)
    found = least([spent(lambda: offer.schedule(program)) for _ in range(rounds)])
    after = least([spent(lambda: finish(scheduled)) for _ in range(rounds)])
    print(f"\n{'a convolution, ms':<20}{'schedule':>18}{'finish':>18}\n{'':<20}{found.wall * 1e3:>18.1f}{after.wall * 1e3:>18.1f}")
    return found.wall <= SCHEDULE


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
    parser.add_argument("models", nargs="*", default=DEFAULT, help=f"of benchmarks/zoo; default: {', '.join(DEFAULT)}")
    parser.add_argument("--target", default="x86")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--counts", type=int, nargs="+", default=COUNTS, help="numbers of distinct kernels")
    arguments = parser.parse_args()
    print(f"{len(os.sched_getaffinity(0))} cores, load {os.getloadavg()[0]:.1f}")
    met = [
        models(arguments.models, arguments.target, arguments.rounds),
        single(arguments.target, arguments.rounds),
        schedule(arguments.target, max(arguments.rounds, 5)),
        growth(arguments.counts, arguments.target, arguments.rounds),
        importing(max(arguments.rounds, 5)),
    ]
    return int(not all(met))


if __name__ == "__main__":
    sys.exit(main())
