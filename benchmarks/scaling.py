"""Measures import, optimization and partitioning of generated models of 1,000 and 10,000 operators, in seconds of processor time.

    python benchmarks/scaling.py [COUNT ...] [--passes]
    python benchmarks/scaling.py --sizes [FAMILY ...] [--targets x86,reference,opencl]

With `--sizes`, the models of `size_models.py`, which have many symbolic sizes or deep expressions of them: processor seconds to
compile each, and the exponent of the last doubling. Each is saved, loaded in a fresh process and run. Exits with 1 when one fails
or computes other values, or when an exponent is above 1.2 and the compilation takes more than two seconds. Times of `opencl`
include the build of the kernels by the device's compiler.

Exits with 1 when a model of 10,000 operators or fewer takes longer than ten seconds, or when ten times the operators take more than
twenty times as long.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from dataclasses import dataclass

import numpy as np
import onnx

import inlaid
from inlaid.driver import FALLBACK, candidates_for
from inlaid.driver.prepare import prepare
from inlaid.graph.ir import Call, Module, post_order
from inlaid.partitioning import partition, verify_partition
from inlaid.passes.manager import Timing
from inlaid.plugins.registry import default_registry
from inlaid_runtime.errors import InlaidError
from size_models import FAMILIES
from size_scaling import report
from zoo.net import Net

LIMIT = 10.0
"""Seconds, for up to `LARGE` operators."""
LARGE = 10_000
WORST = 2.0
"""How much more than in proportion time may grow."""
WIDTH = 16


@dataclass(frozen=True)
class Measured:
    """Processor seconds by stage, wall seconds by pass, and what is left at the end."""

    operators: int
    stages: dict[str, float]
    passes: tuple[tuple[str, float], ...]
    left: int
    regions: int

    @property
    def seconds(self) -> float:
        """All stages."""
        return sum(self.stages.values())


def generate(count: int) -> onnx.ModelProto:
    """A chain of `count` operators: products, biases, activations, normalizations, reshapes, skip connections near and far, and
    constants to fold."""
    net = Net("scaling")
    x = net.input("x", (4, WIDTH))
    rng = np.random.default_rng(0)
    skip_sources = [x]
    weights = [net.weight(f"weight{number}", (WIDTH, WIDTH), 0.4) for number in range(16)]
    scale, bias = net.weight("scale", (WIDTH,), 0.1, around=1.0), net.weight("bias", (WIDTH,), 0.1)
    added = 0
    for step in itertools.count():
        before = x
        x = net.node("Add", net.node("MatMul", x, weights[step % 16]), bias)
        x = net.node("Add", net.node("Tanh", x), before)
        x = net.node("LayerNormalization", x, scale, bias, axis=-1)
        x = net.node("Add", x, skip_sources[rng.integers(len(skip_sources))])
        x = net.node("Mul", x, net.node("Sqrt", net.constant(0.25 + step % 7)))
        x = net.node("Reshape", net.node("Transpose", net.node("Relu", x), perm=[1, 0]), net.shape(4, WIDTH))
        added += 11
        if step % 10 == 0:
            skip_sources.append(x)
        if added >= count:
            break
    net.output(x, "y", (4, WIDTH))
    return net.build()


def measure(count: int, target: str) -> Measured:
    """Take one model through the stages before lowering."""
    model = generate(count)
    registry = default_registry()
    candidates = candidates_for([target], registry)
    timing: Timing[Module] = Timing()
    times = [time.process_time()]
    module = inlaid.load(model)
    times.append(time.process_time())
    prepared = prepare(module, candidates, FALLBACK, registry, [timing])
    times.append(time.process_time())
    partitioned = partition(prepared, candidates)
    times.append(time.process_time())
    verify_partition(prepared, partitioned)
    times.append(time.process_time())
    names = ("import", "optimize", "partition", "verify")
    stages = {name: end - begin for name, (begin, end) in zip(names, itertools.pairwise(times), strict=True)}
    left = sum(isinstance(expr, Call) for expr in post_order(prepared.main))
    return Measured(len(model.graph.node), stages, tuple(timing.seconds), left, len(partitioned.regions))


def installed() -> list[str]:
    """The targets among x86, reference and opencl that run on this machine."""
    registry = default_registry()
    targets = []
    for name in ("x86", "reference", "opencl"):
        try:
            registry.runtime(registry.target(name))
        except InlaidError:
            continue
        targets.append(name)
    return targets


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("counts", nargs="*", type=int, default=[1000, LARGE], help="operators of each model")
    parser.add_argument("--target", default="x86")
    parser.add_argument("--sizes", nargs="*", choices=[*FAMILIES], metavar="FAMILY", help="models of many sizes instead")
    parser.add_argument("--targets", default=",".join(installed()), help="targets for --sizes; default: those installed")
    parser.add_argument("--passes", action="store_true", help="print seconds by pass too")
    arguments = parser.parse_args()
    if arguments.sizes is not None:
        return int(not report(arguments.sizes or list(FAMILIES), arguments.targets.split(",")))
    measure(100, arguments.target)  # what is imported when it is first needed does not count
    print(f"{'operators':>10}{'import':>10}{'optimize':>10}{'partition':>10}{'verify':>10}{'all, s':>10}  left at the end")
    measurements = []
    for count in arguments.counts:
        item = measure(count, arguments.target)
        measurements.append(item)
        shown = "".join(f"{seconds:>10.2f}" for seconds in item.stages.values())
        print(f"{item.operators:>10}{shown}{item.seconds:>10.2f}  {item.left} calls in {item.regions} regions", flush=True)
        if arguments.passes:
            print("\n".join(f"{seconds:>14.3f} s  {name}" for name, seconds in item.passes))
    slow = any(item.operators <= 1.01 * LARGE and item.seconds > LIMIT for item in measurements)
    steep = any(
        b.seconds / a.seconds > WORST * b.operators / a.operators
        for a, b in itertools.pairwise(measurements)
        if b.operators > a.operators
    )
    return int(slow or steep)


if __name__ == "__main__":
    sys.exit(main())
