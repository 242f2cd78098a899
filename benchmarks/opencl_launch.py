"""What launching regions on an OpenCL device costs. Prints microseconds.

    python benchmarks/opencl_launch.py [--device 0] [--launches 1 10 100] [--rounds 9] [--calls 200]

A region of N launches of an empty kernel with three buffers is put on an idle queue many times: on the same buffers; on ones
that change, for which arguments are set anew; and to its end, the wait included. Each figure is the median of rounds, each the mean
of its calls.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import numpy as np

from inlaid.plugins import DeviceTensor
from inlaid_opencl.options import FORMAT, FORMAT_VERSION
from inlaid_opencl.runtime import OpenCLRuntime
from inlaid_runtime.artifact import Artifact, KernelInfo, Signature, TensorSpec
from inlaid_runtime.execution.launch_code import encode_launches
from inlaid_runtime.execution.launches import BufferAddress, KernelFunction, Launch, LaunchPlan, LaunchPlanStep, Parameter, Size
from inlaid_runtime.types import dtype

SOURCE = "__kernel void k(__global uchar *a, long p, __global uchar *b, long q, __global uchar *c, long r, long n) {}"


def region(launches: int) -> Artifact:
    """A region that launches one kernel `launches` times."""
    places = (BufferAddress("input", 0, 0), BufferAddress("arena", 0, 0), BufferAddress("output", 0, 0))
    steps = tuple(LaunchPlanStep(launch=Launch(0, (0, 1, 2), (1,), (1, 1, 1), (1, 1, 1), 0)) for _ in range(launches))
    kernel = KernelFunction("k", (Parameter(64), Parameter(0), Parameter(64, writes=True)), ("n",), (1, 1, 1), (1, 1, 1))
    plan = LaunchPlan((kernel,), places, (Size(0), Size(1)), steps)
    spec = (TensorSpec("x", (16,), dtype("float32")),)
    infos = (KernelInfo("k", ()),)
    return Artifact("region", FORMAT, FORMAT_VERSION, encode_launches(plan, SOURCE.encode()), Signature(spec, spec), kernels=infos)


def microseconds(call: Callable[[], object], after: Callable[[], object], rounds: int, calls: int) -> float:
    """The median over rounds of the mean of calls; what comes `after` each is not counted."""
    found = []
    for _ in range(rounds):
        seconds = 0.0
        for _ in range(calls):
            begin = time.perf_counter()
            call()
            seconds += time.perf_counter() - begin
            after()
        found.append(seconds / calls * 1e6)
    return statistics.median(found)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", type=int, default=0)
    parser.add_argument("--launches", type=int, nargs="+", default=[1, 10, 100])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--calls", type=int, default=200)
    options = parser.parse_args()
    runtime = OpenCLRuntime(options.device)
    device = runtime.device()
    queue, none = device.queue(), np.zeros(0, np.int64)
    print(device.name)
    print(f"{'launches':>8}  {'region':>10}  {'launch':>10}  {'set anew':>10}  {'to its end':>10}")
    tensors = [DeviceTensor(device.allocate(64), 0, (16,), np.dtype(np.float32)) for _ in range(60)]

    def finish() -> None:
        device.synchronize(device.event(queue))

    for launches in options.launches:
        kernel = runtime.load(region(launches), {}).launching
        assert kernel is not None
        turn = 0

        def again(kernel: object = kernel) -> None:
            kernel.launch(tensors[:1], tensors[1:2], tensors[2], none, queue)  # type: ignore[attr-defined]

        def anew(kernel: object = kernel) -> None:
            nonlocal turn
            turn = (turn + 3) % 60
            kernel.launch(tensors[turn : turn + 1], tensors[turn + 1 : turn + 2], tensors[turn + 2], none, queue)  # type: ignore[attr-defined]

        def waited(again: Callable[[], None] = again) -> None:
            again()
            finish()

        for warm in (again, anew):
            microseconds(warm, finish, 1, 40)
        whole, fresh, end = (microseconds(call, finish, options.rounds, options.calls) for call in (again, anew, waited))
        print(f"{launches:>8}  {whole:>10.1f}  {whole / launches:>10.2f}  {fresh:>10.1f}  {end:>10.1f}")
    for tensor in tensors:
        device.free(tensor.buffer)
    device.release(queue)


if __name__ == "__main__":
    main()
