"""What a call with sizes never seen costs beside one with known sizes, in a decode loop whose sequence grows at every call.

    python benchmarks/decode_loop.py [--layers 4] [--lengths 256] [--rounds 3] [--target x86:threads=1]

The model is a step of a transformer: one token, caches of keys and values of a free length, which it returns one row longer. At
each length the step runs twice, each time after a run at one and the same other length: the first time its sizes are new, the
second time they are known. Several executables do so, and the fastest counts. Prints microseconds: percentiles of both, and of the
differences. Exits with 1 where the median or the 95th percentile of the differences is above 100.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import inlaid

LIMIT = 100.0
HEADS, DEPTH = 4, 32
WIDTH = HEADS * DEPTH
PERCENTILES = (50, 90, 95, 99)


def model(layers: int) -> onnx.ModelProto:
    """A step of a transformer of so many layers."""
    rng = np.random.default_rng(0)
    nodes: list[onnx.NodeProto] = []
    weights: list[onnx.TensorProto] = []
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 1, WIDTH])]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 1, WIDTH])]

    def weight(name: str, array: np.ndarray[Any, Any]) -> str:
        weights.append(numpy_helper.from_array(array, name))
        return name

    def node(kind: str, result: str, *inputs: str, **attributes: Any) -> str:
        nodes.append(helper.make_node(kind, inputs, [result], **attributes))
        return result

    def product(result: str, value: str, columns: int, rows: int = WIDTH) -> str:
        matrix = weight(f"{result}_weight", (rng.standard_normal((rows, columns)) / np.sqrt(rows)).astype(np.float32))
        return node("MatMul", result, value, matrix)

    split = weight("split", np.array([1, 1, HEADS, DEPTH], np.int64))
    join = weight("join", np.array([1, 1, WIDTH], np.int64))
    scale = weight("scale", np.float32(DEPTH**-0.5))
    value = "x"
    for layer in range(layers):
        name = f"layer{layer}"
        heads = {}
        for part in ("query", "key", "value"):
            flat = product(f"{name}_{part}", value, WIDTH)
            heads[part] = node(
                "Transpose", f"{name}_{part}_heads", node("Reshape", f"{name}_{part}_split", flat, split), perm=[0, 2, 1, 3]
            )
        for part in ("key", "value"):
            old, new = f"{name}_old_{part}", f"{name}_new_{part}"
            inputs.append(helper.make_tensor_value_info(old, TensorProto.FLOAT, [1, HEADS, "length", DEPTH]))
            outputs.append(helper.make_tensor_value_info(new, TensorProto.FLOAT, [1, HEADS, "grown", DEPTH]))
            node("Concat", new, old, heads[part], axis=2)
        turned = node("Transpose", f"{name}_turned", f"{name}_new_key", perm=[0, 1, 3, 2])
        scores = node("Mul", f"{name}_scaled", node("MatMul", f"{name}_scores", heads["query"], turned), scale)
        context = node("MatMul", f"{name}_seen", node("Softmax", f"{name}_share", scores, axis=-1), f"{name}_new_value")
        context = node("Reshape", f"{name}_joined", node("Transpose", f"{name}_rows", context, perm=[0, 2, 1, 3]), join)
        value = node("Add", f"{name}_attended", value, product(f"{name}_output", context, WIDTH))
        up = node("Relu", f"{name}_active", product(f"{name}_up", value, 4 * WIDTH))
        value = node("Add", f"{name}_result", value, product(f"{name}_down", up, WIDTH, 4 * WIDTH))
    node("Identity", "y", value)
    graph = helper.make_graph(nodes, "decode", inputs, outputs, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def step_inputs(executable: inlaid.Executable, length: int) -> dict[str, np.ndarray[Any, Any]]:
    """Inputs at a length of the caches."""
    rng = np.random.default_rng(length)
    return {
        spec.name: rng.standard_normal([dim if isinstance(dim, int) else length for dim in spec.shape]).astype(np.float32)
        for spec in executable.inputs
    }


def timed(executable: inlaid.Executable, inputs: Mapping[str, Any]) -> float:
    """Microseconds of a run."""
    begin = time.perf_counter()
    executable.run(inputs)
    return (time.perf_counter() - begin) * 1e6


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--lengths", type=int, default=256, help="how many lengths are measured, the first being 16")
    parser.add_argument("--rounds", type=int, default=3, help="executables, to each of which all lengths are new")
    parser.add_argument("--target", default="x86:threads=1")
    options = parser.parse_args()
    step = model(options.layers)
    executables = [inlaid.compile(step, targets=[options.target]) for _ in range(options.rounds)]
    other = step_inputs(executables[0], 8)
    for executable in executables * 20:
        executable.run(other)
    times: dict[str, list[float]] = {"new": [], "known": []}
    for length in range(16, 16 + options.lengths):
        inputs = step_inputs(executables[0], length)
        for samples in times.values():
            rounds = []
            for executable in executables:
                executable.run(other)
                rounds.append(timed(executable, inputs))
            samples.append(min(rounds))
    times["difference"] = [new - baseline for new, baseline in zip(times["new"], times["known"], strict=True)]
    print(f"{'us':<12}" + "".join(f"{f'{percentile}%':>9}" for percentile in PERCENTILES))
    for name, samples in times.items():
        print(f"{name:<12}" + "".join(f"{np.percentile(samples, percentile):>9.1f}" for percentile in PERCENTILES))
    return int(any(np.percentile(times["difference"], percentile) > LIMIT for percentile in (50, 95)))


if __name__ == "__main__":
    sys.exit(main())
