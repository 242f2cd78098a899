"""Print the arena of every light model beside its lower bound.

    python benchmarks/memory.py [MODEL ...] [--target x86]

The lower bound is the largest sum of bytes, aligned to 64, that live during one kernel, over the order in which the kernels run.
Exits with 1 when an arena is more than 5 % above it.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import onnx

import inlaid
from inlaid import ops
from inlaid.driver import cut
from inlaid.driver.context import DriverContext
from inlaid.plugins import Level, Region
from inlaid.plugins.registry import default_registry
from inlaid.tensor.region import RegionProgram
from inlaid_runtime import arith
from inlaid_runtime.memory import aligned

LIGHT = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
LIMIT = 1.05


def regions(path: Path, target: str) -> list[RegionProgram]:
    """The regions of a model at loop level."""
    registry = default_registry()
    partitioned, candidates = cut(inlaid.load(str(path)), [target], registry)
    found = []
    for name, index in partitioned.regions.items():
        candidate = candidates[index].target
        if registry.spec(candidate.kind).level is Level.LOOP:
            context = DriverContext(candidate, registry, ops.TABLE)
            found.append(context.lower(Region(name, partitioned.module[name], candidate)))
    return found


def largest_live(region: RegionProgram) -> int:
    """The largest number of arena bytes that live during one call. Views share bytes with what they show: bytes count once."""
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for step, call in enumerate(region.calls):
        for number in (*call.inputs, *call.outputs):
            if region.buffers[number].storage == "arena":
                first.setdefault(number, step)
                last[number] = step
    # A buffer and its views have one offset: of those that live at a time the largest counts.
    spans: dict[int, list[tuple[int, int, int]]] = {}
    for number, begin in sorted(first.items(), key=lambda item: item[1]):
        buffer = region.buffers[number]
        size = arith.evaluate(aligned(arith.unwrap(arith.mul(arith.product(buffer.shape), buffer.dtype.bytes))), {})
        spans.setdefault(arith.evaluate(buffer.offset, {}), []).append((begin, last[number], size))
    change = [0] * (len(region.calls) + 1)
    for spans_here in spans.values():
        for step in range(len(region.calls)):
            change[step] += max((size for begin, end, size in spans_here if begin <= step <= end), default=0)
    return max(change)


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", help="names of light models, such as resnet50; all of them when none is given")
    parser.add_argument("--target", default="x86:threads=1")
    arguments = parser.parse_args()
    names = arguments.models or sorted(path.stem.removeprefix("light_") for path in LIGHT.glob("*.onnx"))
    print(f"{'model':<16}{'arena':>12}{'lower bound':>14}{'ratio':>8}  bytes")
    worst = 0.0
    for name in names:
        for region in regions(LIGHT / f"light_{name}.onnx", arguments.target):
            arena, bound = arith.evaluate(region.workspace, {}), largest_live(region)
            ratio = arena / bound if bound else 1.0
            worst = max(worst, ratio)
            print(f"{name:<16}{arena:>12}{bound:>14}{ratio:>8.3f}", flush=True)
    return int(worst > LIMIT)


if __name__ == "__main__":
    sys.exit(main())
