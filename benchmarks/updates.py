"""Times updates of a few elements of a large buffer: one token in a key-value cache, and a table that a loop carries.

    python benchmarks/updates.py [--rows 1024 8192] [--calls 200]

With a donated input nothing is copied, so that the time does not depend on the size of the cache.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import numpy as np

import inlaid
from inlaid import ops
from inlaid.graph import ir
from inlaid_runtime.arith import SizeVar
from inlaid_runtime.types import TensorType

WIDTH = 1024
ROUNDS = 1000


def cache(rows: int) -> ir.Function:
    """float32 [rows, 1024] with the row at int64 [1, 1] replaced by float32 [1, 1024]."""
    buffer, at, row = (
        inlaid.var(name, TensorType(shape, element))
        for name, shape, element in (("cache", (rows, WIDTH), "float32"), ("at", (1, 1), "int64"), ("row", (1, WIDTH), "float32"))
    )
    return inlaid.function([buffer, at, row], ops.scatter_nd(buffer, at, row))


def table(rows: int) -> ir.Function:
    """Counts float32 [rows] of the numbers int64 [n, 1], one round of a loop for each."""
    counts, numbers = (
        inlaid.var("table", TensorType((rows,), "float32")),
        inlaid.var("numbers", TensorType((SizeVar("n"), 1), "int64")),
    )
    step, state, number = (
        inlaid.var("step", TensorType((), "int64")),
        inlaid.var("state", TensorType((rows,), "float32")),
        inlaid.var("number", TensorType((1,), "int64")),
    )
    one = ir.constant(np.ones(1, np.float32))
    counted = ops.scatter_nd(state, ops.reshape(number, shape=(1, 1)), one, reduction="add")
    body = ir.function([step, state, number], ir.tuple_([ir.constant(np.array(True)), counted]))
    return inlaid.function([counts, numbers], ir.tuple_item(ir.loop(body, state=[counts], scanned=[numbers]), 0))


def median(run: Callable[[], object], calls: int) -> float:
    """Seconds of a call."""
    samples = []
    for _ in range(calls):
        start = time.perf_counter()
        run()
        samples.append(time.perf_counter() - start)
    return statistics.median(samples)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[1024, 8192])
    parser.add_argument("--calls", type=int, default=200)
    arguments = parser.parse_args()
    for donate in ((), ("cache",)):
        for rows in arguments.rows:
            executable = inlaid.compile(cache(rows), targets=["x86:threads=1"], donate=donate)
            row_inputs = {"at": np.array([[rows // 2]]), "row": np.ones((1, WIDTH), np.float32)}
            (buffer,) = executable.run({"cache": np.zeros((rows, WIDTH), np.float32), **row_inputs}).values()
            seconds = median(lambda run=executable.run, feed={"cache": buffer, **row_inputs}: run(feed), arguments.calls)
            print(f"cache of {rows} rows, {'donated' if donate else 'kept'}: {seconds * 1e6:.1f} us a token")
    for rows in arguments.rows:
        executable = inlaid.compile(table(rows * 8), targets=["x86:threads=1"], donate=["table"])
        feed = {"table": np.zeros(rows * 8, np.float32), "numbers": np.random.default_rng(0).integers(0, rows * 8, (ROUNDS, 1))}
        (feed["table"],) = executable.run(feed).values()
        seconds = median(lambda run=executable.run, feed=feed: run(feed), max(arguments.calls // 10, 3))
        print(f"loop over a table of {rows * 8} elements: {seconds / ROUNDS * 1e9:.1f} ns a round")


if __name__ == "__main__":
    main()
