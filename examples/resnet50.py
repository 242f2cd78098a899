"""Compile ResNet-50 for this CPU, run it, and check the answer.

    python examples/resnet50.py [TARGET]

The model and its expected output come with the onnx package. It is one of onnx's "light" models: the real network with constant
weights, which it generates when it runs. So all classes are equally probable; the check is that every node of the network is
computed correctly.

Exits with status 1 if the answer is wrong.
"""

from __future__ import annotations

import resource
import statistics
import sys
import time
from collections import Counter
from pathlib import Path

import numpy as np
import onnx

import inlaid
from inlaid_cli.common import progress_bar

LIGHT = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
RUNS = 10


def expected_output() -> np.ndarray:
    """Return the expected first output of the model for the input `ramp`."""
    tensor = onnx.TensorProto()
    tensor.ParseFromString((LIGHT / "light_resnet50_output_0.pb").read_bytes())
    return onnx.numpy_helper.to_array(tensor)


def ramp(shape: tuple[int, ...]) -> np.ndarray:
    """Return the input that onnx's test runner uses for the light models: 0 to 1 in equal steps."""
    size = int(np.prod(shape))
    return (np.arange(size).reshape(shape) / size).astype(np.float32)


def where_operators_ran(executable: inlaid.Executable, model: onnx.ModelProto) -> str:
    """Count the nodes of each operator on each target. An unnamed node is identified by its first output."""
    targets = {node: region.target for region in executable.regions for node in region.nodes}
    counts = Counter((node.op_type, targets.get(node.name or node.output[0], "-")) for node in model.graph.node)
    lines = [f"  {operator:<20}{count:>5}  {target}" for (operator, target), count in sorted(counts.items())]
    return "\n".join([*lines, "  (-: worked out while compiling, or merged into another node)"])


def main() -> int:
    """Run the model and print the result. Returns the exit status."""
    path, target = LIGHT / "light_resnet50.onnx", sys.argv[1] if len(sys.argv) > 1 else "x86"
    start = time.perf_counter()
    with progress_bar() as report:
        executable = inlaid.compile(path, targets=[target], progress=report)
    print(f"compiled for {target} in {time.perf_counter() - start:.1f} s")

    (spec,) = executable.inputs
    inputs = {spec.name: ramp(spec.shape)}
    (answer,) = executable.run(inputs).values()
    times = []
    for _ in range(RUNS):
        start = time.perf_counter()
        executable.run(inputs)
        times.append(1e3 * (time.perf_counter() - start))

    expected = expected_output()
    right = answer.shape == expected.shape and np.allclose(answer, expected, rtol=1e-3, atol=1e-7)
    best = np.argsort(-answer[0], kind="stable")[:5]
    print("top-5:", ", ".join(f"class {index} ({answer[0, index]:.6f})" for index in best))
    print(f"largest difference from the expected output: {np.abs(answer - expected).max():.3g}")
    print(f"latency: {statistics.median(times):.1f} ms (median of {RUNS} runs)")
    print("where each operator ran:")
    print(where_operators_ran(executable, onnx.load(path)))
    kibibytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(f"peak memory: {kibibytes / 1024:.0f} MiB, compiler included; arena {executable.workspace_bytes(inputs) / 2**20:.1f} MiB")
    print("the answer is right" if right else "THE ANSWER IS WRONG")
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
