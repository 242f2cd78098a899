"""Whether loading packages leaks memory, and how long a load takes: prints the resident set size while one is loaded repeatedly.

    python benchmarks/loads.py --loads 100000

The package has one region for x86. Each turn loads it, runs it once, and lets it go. Growth in the second half of the loads is a
leak: before, allocators and caches fill up.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np

from inlaid import ops
from inlaid.driver.compile import compile_module
from inlaid.graph import ir
from inlaid_runtime import load
from inlaid_runtime.types import TensorType

STEPS = 10
KIB_A_LOAD = 0.05
"""Growth from which on memory counts as leaking: 5 MB in 100,000 loads."""


def make(path: Path, target: str) -> None:
    """Write the package: a matrix product."""
    x = ir.var("x", TensorType((4, 16), "float32"))
    w = ir.constant(np.random.default_rng(0).normal(size=(16, 8)).astype(np.float32))
    body = ops.relu(ops.matmul(x, w))
    compile_module(ir.Module({"main": ir.function([x], body)}), [target]).save(path)


def resident() -> int:
    """KiB of memory that the process has."""
    status = Path("/proc/self/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1])


def main() -> None:
    """Print a line per tenth of the loads, then the growth of a load."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--loads", type=int, default=100_000)
    parser.add_argument("--target", default="x86:threads=1")
    options = parser.parse_args()
    each = max(options.loads // STEPS, 1)
    value = {"x": np.ones((4, 16), np.float32)}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "small.inlaid")
        make(path, options.target)
        sizes = []
        for step in range(1, STEPS + 1):
            times = []
            for _ in range(each):
                start = time.perf_counter()
                model = load(path)
                times.append(time.perf_counter() - start)
                model.run(value)
            del model
            gc.collect()
            sizes.append(resident())
            print(f"{step * each:8} loads: {sizes[-1]:8} KiB resident, {statistics.median(times) * 1e6:6.0f} us a load", flush=True)
    growth = (sizes[-1] - sizes[STEPS // 2 - 1]) / (each * STEPS // 2)
    verdict = "flat" if growth < KIB_A_LOAD else "leaking"
    print(f"{verdict}: {growth * 1024:.1f} bytes a load")


if __name__ == "__main__":
    main()
