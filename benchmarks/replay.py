"""Replays the schedule of every kernel of models from the text of its trace, and prints the slowest.

    python benchmarks/replay.py
    python benchmarks/replay.py --limit 10 resnet50 mobilenet_v2_int8_tiny model.tflite

Without models, those of `DEFAULT` in `recorded.py`, for `TARGETS`. Exits with 1 where a replay makes another program or trace than
the rule did, or takes more than `--limit` milliseconds of a processor: the least of `--repeat` runs, parsing included.
"""

from __future__ import annotations

import argparse
import gc
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from inlaid.driver.context import DriverContext
from inlaid.driver.region import watch_region
from inlaid.tensor.scheduling.trace import Scheduled
from inlaid.tensor.text import show
from inlaid_runtime.errors import InlaidError
from recorded import DEFAULT, TARGETS, load, regions


@dataclass(frozen=True)
class Kernel:
    """A kernel, and where it comes from."""

    model: str
    context: DriverContext
    schedule: Scheduled

    def __str__(self) -> str:
        trace = self.schedule.trace
        how = "made by its rule" if trace.steps is None else f"{len(trace.steps.steps)} steps"
        return f"{trace.rule}: {trace.name} of {self.model} for {self.context.target}, {how}"

    def differs(self) -> bool:
        """Whether a replay makes anything else."""
        again = self.context.replay(self.schedule.source, str(self.schedule.trace))
        return show(again.program) != show(self.schedule.program) or str(again.trace) != str(self.schedule.trace)

    def seconds(self, repeat: int) -> float:
        """The least time of some replays."""
        text, samples = str(self.schedule.trace), []
        for _ in range(repeat):
            start = time.process_time()
            self.context.replay(self.schedule.source, text)
            samples.append(time.process_time() - start)
        return min(samples)


def kernels(model: str, targets: Sequence[str]) -> list[Kernel]:
    """The kernels that rules schedule for a model."""
    result: list[Kernel] = []
    module = load(model)
    for target in targets:
        try:
            for _, region, context in regions(module, target):
                watcher = partial(lambda context, schedule: result.append(Kernel(model, context, schedule)), context)
                watch_region(region, replace(context, watch=watcher), kernels=True)
        except InlaidError as error:
            print(f"{model} for {target}: {error}")
    return result


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=DEFAULT)
    parser.add_argument("--target", action="append", dest="targets", help="default: " + " ".join(TARGETS))
    parser.add_argument("--limit", type=float, default=10.0, help="milliseconds that a replay may take")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--slowest", type=int, default=10, help="how many to print")
    options = parser.parse_args(arguments)
    every: list[Kernel] = []
    for model in options.models:
        every += kernels(model, options.targets or TARGETS)
    gc.collect()
    gc.freeze()  # what replays allocate is collected in time, without a look at all kernels that are kept here
    other = [kernel for kernel in every if kernel.differs()]
    times = sorted(((kernel.seconds(options.repeat), kernel) for kernel in every), key=lambda item: -item[0])
    late = sum(1000 * seconds > options.limit for seconds, _ in times)
    for kernel in other:
        print(f"another program: {kernel}")
    for seconds, kernel in times[: options.slowest]:
        print(f"{1000 * seconds:6.1f} ms  {kernel}")
    by_rule = Counter(kernel.schedule.trace.rule for kernel in every if kernel.schedule.trace.steps is None)
    print(f"{len(every)} kernels: {len(every) - len(other)} replay to the same, {late} take over {options.limit} ms")
    print(f"{by_rule.total()} are made by their rules: {', '.join(f'{rule} {count}' for rule, count in by_rule.most_common())}")
    return 1 if other or late else 0


if __name__ == "__main__":
    sys.exit(main())
