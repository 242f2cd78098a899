"""Print what a call costs besides its kernels.

    python benchmarks/call_costs.py dispatch [--rounds 9] [--calls 5000]
    python benchmarks/call_costs.py load [--loads 2000] [--target x86:threads=1]
    python benchmarks/call_costs.py fork-join [--threads 1,2] [--jobs 2000]
    python benchmarks/call_costs.py opencl-launch [--device 0] [--launches 1 10 100] [--rounds 9] [--calls 200]
    python benchmarks/call_costs.py throughput [MODEL ...] [--rounds 5] [--seconds 2] [--tiny]

dispatch       microseconds of a call from Python: an addition of 16 floats, all checks included, beside ONNX Runtime's. The two
               take turns, and each round gives the mean of its calls. Exits with 1 if Inlaid's median is above ONNX Runtime's
load           microseconds to load the package of this addition, which is run once after each load
fork-join      microseconds that the threads of x86 take to start on a job and to come back. The job is a native parallel loop that
               does nothing. "busy": jobs follow at once, so that workers are still looking; "asleep": a pause before each job lets
               them go to sleep. One thread shows the cost of the call itself
opencl-launch  microseconds to launch a region on an OpenCL device: N launches of an empty kernel with three buffers, put on an idle
               queue on the same buffers; on ones that change, for which arguments are set anew; and to its end, the wait included.
               Each figure is the median of rounds, each the mean of its calls
throughput     calls per second of two Python threads that run one executable of one thread each, over those of one thread. A
               control does the same with SHA-256 of a buffer, which holds no lock and shares nothing, and so shows what the machine
               gives a second thread. Exits with 1 if the median ratio of a model, or of the control, is below 1.8
"""

from __future__ import annotations

import argparse
import ctypes
import hashlib
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper

import inlaid
from inlaid_runtime import load
from inlaid_runtime.artifact import Artifact, KernelInfo, Signature, TensorSpec
from inlaid_runtime.execution.launch_code import encode_launches
from inlaid_runtime.execution.launches import BufferAddress, KernelFunction, Launch, LaunchPlan, LaunchPlanStep, Parameter, Size
from inlaid_runtime.types import dtype
from zoo import feeds, model_path

Call = Callable[[], object]

ELEMENTS = 16
"""Elements of the operands of the addition."""
PAUSE = 0.002
"""Seconds after which the threads of x86 sleep."""
PARALLEL_LOOP = "define i32 @nothing(ptr %closure, i64 %begin, i64 %end) {\n  ret i32 0\n}\n"
KERNEL = "__kernel void k(__global uchar *a, long p, __global uchar *b, long q, __global uchar *c, long r, long n) {}"
BUFFERS = 60
"""Number of buffers of which launches use three in turn."""
MODELS = ("lstm", "mobilenet_v2", "squeezenet", "resnet50", "bert_base")
"""Of the zoo: calls of half a millisecond to a tenth of a second."""
LEAST_RATIO = 1.8
"""Least ratio of the calls of two threads to those of one."""


# --- calls from Python, and loads -------------------------------------------------------------------------------------------


def addition() -> onnx.ModelProto:
    """Return the model y = a + b."""
    a, b, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [ELEMENTS]) for name in "aby")
    graph = helper.make_graph([helper.make_node("Add", ["a", "b"], ["y"])], "add", [a, b], [y])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def operands() -> dict[str, np.ndarray[tuple[int], np.dtype[np.float32]]]:
    """Return inputs of the addition."""
    return {"a": np.arange(ELEMENTS, dtype=np.float32), "b": np.ones(ELEMENTS, np.float32)}


def mean_microseconds(call: Call, calls: int) -> float:
    """Return the mean time of many calls."""
    begin = time.perf_counter()
    for _ in range(calls):
        call()
    return (time.perf_counter() - begin) / calls * 1e6


def dispatch(options: argparse.Namespace) -> bool:
    """Print the time of a call beside ONNX Runtime's. Returns whether it is not longer."""
    import onnxruntime

    model, inputs = addition(), operands()
    executable = inlaid.compile(model, targets=["x86:threads=1"])
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), settings, providers=["CPUExecutionProvider"])
    np.testing.assert_array_equal(executable.run(inputs)["y"], session.run(None, inputs)[0])
    calls: dict[str, Call] = {"inlaid": lambda: executable.run(inputs), "onnxruntime": lambda: session.run(None, inputs)}
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(options.rounds):
        for name, call in calls.items():
            times[name].append(mean_microseconds(call, options.calls))
    medians = {name: statistics.median(rounds) for name, rounds in times.items()}
    for name, rounds in times.items():
        print(f"{name:<12} median {medians[name]:6.2f} us, {min(rounds):.2f} to {max(rounds):.2f}")
    print(f"ratio {medians['inlaid'] / medians['onnxruntime']:.2f}")
    return medians["inlaid"] <= medians["onnxruntime"]


def loads(options: argparse.Namespace) -> bool:
    """Print the time of a load."""
    inputs, times = operands(), []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "add.inlaid")
        inlaid.compile(addition(), targets=[options.target]).save(path)
        for _ in range(options.loads):
            begin = time.perf_counter()
            executable = load(path)
            times.append((time.perf_counter() - begin) * 1e6)
            executable.run(inputs)
    print_times("load", times)
    return True


def print_times(name: str, times: Sequence[float]) -> None:
    """Print the median of some microseconds, and the bound of 95 % of them."""
    print(
        f"{name}: median {statistics.median(times):8.1f} us, 95 % under {sorted(times)[int(len(times) * 0.95)]:8.1f} us", flush=True
    )


# --- threads of x86 ---------------------------------------------------------------------------------------------------------


def job_times(threads: int, jobs: int, pause: float) -> list[float]:
    """Return the microseconds of each of many jobs of one iteration per thread."""
    from inlaid_runtime.execution.mapped import map_image
    from inlaid_x86.linking import link_image
    from inlaid_x86.machine import compile_text
    from inlaid_x86_runtime.pool import MACHINE, pool

    code = map_image(link_image([compile_text(PARALLEL_LOOP)], ("nothing",)), MACHINE, "nothing")
    workers, body = pool(threads), code.addresses["nothing"]
    run = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)(workers.run)
    times = []
    for _ in range(jobs):
        if pause:
            time.sleep(pause)
        begin = time.perf_counter()
        run(workers.state, body, None, max(threads, 2))
        times.append((time.perf_counter() - begin) * 1e6)
    return times


def fork_join(options: argparse.Namespace) -> bool:
    """Print the time of a job by number of threads and state of the workers."""
    for threads in map(int, options.threads.split(",")):
        print_times(f"{threads} threads, busy  ", job_times(threads, options.jobs, 0.0))
        print_times(f"{threads} threads, asleep", job_times(threads, max(options.jobs // 10, 1), PAUSE))
    return True


# --- launches on an OpenCL device -------------------------------------------------------------------------------------------


def region(launches: int) -> Artifact:
    """Return a region that launches one kernel `launches` times."""
    from inlaid_opencl.options import FORMAT, FORMAT_VERSION

    buffers = (BufferAddress("input", 0, 0), BufferAddress("arena", 0, 0), BufferAddress("output", 0, 0))
    steps = tuple(LaunchPlanStep(launch=Launch(0, (0, 1, 2), (1,), (1, 1, 1), (1, 1, 1), 0)) for _ in range(launches))
    kernel = KernelFunction("k", (Parameter(64), Parameter(0), Parameter(64, writes=True)), ("n",), (1, 1, 1), (1, 1, 1))
    plan = LaunchPlan((kernel,), buffers, (Size(0), Size(1)), steps)
    spec = (TensorSpec("x", (ELEMENTS,), dtype("float32")),)
    code = encode_launches(plan, KERNEL.encode())
    return Artifact("region", FORMAT, FORMAT_VERSION, code, Signature(spec, spec), kernels=(KernelInfo("k", ()),))


def median_microseconds(call: Call, after: Call, rounds: int, calls: int) -> float:
    """Return the median over rounds of the mean of calls; what comes `after` each is not counted."""
    means = []
    for _ in range(rounds):
        seconds = 0.0
        for _ in range(calls):
            begin = time.perf_counter()
            call()
            seconds += time.perf_counter() - begin
            after()
        means.append(seconds / calls * 1e6)
    return statistics.median(means)


def opencl_launch(options: argparse.Namespace) -> bool:
    """Print the time of a region by number of launches."""
    from inlaid.plugins import DeviceTensor
    from inlaid_opencl.runtime import OpenCLRuntime

    runtime = OpenCLRuntime(options.device)
    device = runtime.device()
    queue, sizes = device.queue(), np.zeros(0, np.int64)
    print(device.name)
    print(f"{'launches':>8}  {'region':>10}  {'launch':>10}  {'set anew':>10}  {'to its end':>10}")
    tensors = [DeviceTensor(device.allocate(64), 0, (ELEMENTS,), np.dtype(np.float32)) for _ in range(BUFFERS)]

    def finish() -> None:
        device.synchronize(device.event(queue))

    for launches in options.launches:
        kernel = runtime.load(region(launches), {}).launching
        assert kernel is not None
        first = 0

        def launch(kernel: object = kernel) -> None:
            kernel.launch(tensors[:1], tensors[1:2], tensors[2], sizes, queue)  # type: ignore[attr-defined]

        def launch_on_next_buffers(kernel: object = kernel) -> None:
            nonlocal first
            first = (first + 3) % BUFFERS
            kernel.launch(tensors[first : first + 1], tensors[first + 1 : first + 2], tensors[first + 2], sizes, queue)  # type: ignore[attr-defined]

        def launch_and_wait(launch: Callable[[], None] = launch) -> None:
            launch()
            finish()

        for call in (launch, launch_on_next_buffers):
            median_microseconds(call, finish, 1, 40)
        repeat_time, rotation_time, end = (
            median_microseconds(call, finish, options.rounds, options.calls)
            for call in (launch, launch_on_next_buffers, launch_and_wait)
        )
        print(
            f"{launches:>8}  {repeat_time:>10.1f}  {repeat_time / launches:>10.2f}  {rotation_time:>10.1f}  {end:>10.1f}",
            flush=True,
        )
    for tensor in tensors:
        device.free(tensor.buffer)
    device.release(queue)
    return True


# --- Python threads ---------------------------------------------------------------------------------------------------------


def calls_per_second(call: Call, threads: int, seconds: float) -> float:
    """Return the calls per second of all threads together. Each counts calls from a common start until the time is up."""
    start = threading.Barrier(threads)
    rates: list[float] = []

    def work() -> None:
        call()
        start.wait()
        count, begin = 0, time.perf_counter()
        while (now := time.perf_counter()) - begin < seconds:
            call()
            count += 1
        rates.append(count / (now - begin))

    workers = [threading.Thread(target=work) for _ in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return sum(rates)


def thread_ratio(call: Call, rounds: int, seconds: float) -> tuple[float, float, float]:
    """Return medians: calls per second of one thread, of two, and the ratio of the two in one round, which take turns."""
    pairs = [(calls_per_second(call, 1, seconds), calls_per_second(call, 2, seconds)) for _ in range(rounds)]
    one, two = (statistics.median(side) for side in zip(*pairs, strict=True))
    return one, two, statistics.median(b / a for a, b in pairs)


def throughput(options: argparse.Namespace) -> bool:
    """Print the ratio of each model. Returns whether all are high enough."""
    buffer = bytes(1 << 20)
    *_, worst = thread_ratio(lambda: hashlib.sha256(buffer).digest(), options.rounds, options.seconds)
    print(f"{'control (SHA-256)':<20} ratio {worst:.2f}")
    for name in options.models:
        path = model_path(name, tiny=options.tiny)
        executable = inlaid.compile(path, targets=["x86:threads=1"])
        inputs = feeds(onnx.load(path))
        one, two, ratio = thread_ratio(partial(executable.run, inputs), options.rounds, options.seconds)
        print(f"{name:<20} ratio {ratio:.2f}   {one:10.1f} calls/s by one thread, {two:10.1f} by two", flush=True)
        worst = min(worst, ratio)
    return worst >= LEAST_RATIO


def main() -> int:
    """Print one of the costs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    cases = parser.add_subparsers(required=True, metavar="CASE", help="dispatch, load, fork-join, opencl-launch or throughput")

    def case(name: str, report: Callable[[argparse.Namespace], bool], counts: Mapping[str, int]) -> argparse.ArgumentParser:
        options = cases.add_parser(name)
        options.set_defaults(report=report)
        for option, default in counts.items():
            options.add_argument(f"--{option}", type=int, default=default)
        return options

    case("dispatch", dispatch, {"rounds": 9, "calls": 5000})
    case("load", loads, {"loads": 2000}).add_argument("--target", default="x86:threads=1")
    cores = len(os.sched_getaffinity(0))
    case("fork-join", fork_join, {"jobs": 2000}).add_argument("--threads", default=f"1,{cores}", help="separated by commas")
    launches = case("opencl-launch", opencl_launch, {"device": 0, "rounds": 9, "calls": 200})
    launches.add_argument("--launches", type=int, nargs="+", default=[1, 10, 100])
    threads = case("throughput", throughput, {"rounds": 5})
    threads.add_argument("models", nargs="*", default=MODELS, metavar="MODEL", help=f"of the zoo; default: {', '.join(MODELS)}")
    threads.add_argument("--seconds", type=float, default=2.0)
    threads.add_argument("--tiny", action="store_true", help="the small variants of the models, for calls of some 10 microseconds")
    options = parser.parse_args()
    return int(not options.report(options))


if __name__ == "__main__":
    sys.exit(main())
