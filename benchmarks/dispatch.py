"""What a call from Python costs: an addition of 16 floats, all checks included, beside ONNX Runtime's. Prints microseconds.

    python benchmarks/dispatch.py [--rounds 9] [--calls 5000]

The two take turns, and each round gives the mean of its calls. Exits with 1 when the median of Inlaid's rounds is above that of
ONNX Runtime's.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper

import inlaid

SIZE = 16


def model() -> onnx.ModelProto:
    """y = a + b."""
    a, b, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [SIZE]) for name in "aby")
    graph = helper.make_graph([helper.make_node("Add", ["a", "b"], ["y"])], "add", [a, b], [y])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def microseconds(call: Callable[[], object], calls: int) -> float:
    """The mean of many calls."""
    begin = time.perf_counter()
    for _ in range(calls):
        call()
    return (time.perf_counter() - begin) / calls * 1e6


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--calls", type=int, default=5000)
    options = parser.parse_args()
    add = model()
    executable = inlaid.compile(add, targets=["x86:threads=1"])
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(add.SerializeToString(), settings, providers=["CPUExecutionProvider"])
    inputs = {"a": np.arange(SIZE, dtype=np.float32), "b": np.ones(SIZE, np.float32)}
    np.testing.assert_array_equal(executable.run(inputs)["y"], session.run(None, inputs)[0])
    calls: dict[str, Callable[[], object]] = {
        "inlaid": lambda: executable.run(inputs),
        "onnxruntime": lambda: session.run(None, inputs),
    }
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(options.rounds):
        for name, call in calls.items():
            times[name].append(microseconds(call, options.calls))
    medians = {name: statistics.median(found) for name, found in times.items()}
    for name, found in times.items():
        print(f"{name:<12} median {medians[name]:6.2f} us, {min(found):.2f} to {max(found):.2f}")
    print(f"ratio {medians['inlaid'] / medians['onnxruntime']:.2f}")
    return int(medians["inlaid"] > medians["onnxruntime"])


if __name__ == "__main__":
    sys.exit(main())
