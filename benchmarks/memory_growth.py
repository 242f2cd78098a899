"""Measure whether a process that compiles, loads or runs models for days grows. Prints its memory, and the growth by call.

    python benchmarks/memory_growth.py [--only CASE ...] [--scale 0.1]

Each case runs in a process of its own, with caches off. Memory is measured after the calls that warm up, after half of the calls
that follow, and at the end, each time after garbage was collected and free heap memory was returned to the system:

resident  VmRSS of the process
peak      VmHWM, its greatest resident memory so far
heap      bytes in use in the heaps of the C library and of Python. This shows lost memory exactly, since it counts neither free
          memory between blocks nor mappings

A case fails if the last half of its calls grows the heap by more than 1 KB a call, the resident memory by more than 1 KB a call
(and 2 MB: what it differs by between equal heaps), or the resident memory or its peak by more than 20 MB. The exit status is
then 1.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import onnx

import inlaid
from inlaid import ops, te
from inlaid.graph import ir
from inlaid.plugins.registry import default_registry
from inlaid_runtime import load
from inlaid_runtime.arith import Dim, SizeVar
from inlaid_runtime.errors import InlaidError, TargetError
from inlaid_runtime.execution.heap import release_free_memory
from inlaid_runtime.types import TensorType
from zoo import model_path

KB_A_CALL, MB = 1.0, 20.0
"""Greatest growth over the last half of a case: KB for each call, and MB in all."""
RESOLUTION = 2.0
"""MB by which the resident memory of equal heaps differs, since free memory between blocks in use stays with the process."""
BLOCK = 128
"""Bytes counted for a block of Python's allocator, which tells their number alone. Most are smaller, none is larger than 512."""
HOST = "x86:threads=1"

Call = Callable[[int], object]


@dataclass(frozen=True)
class Case:
    """Calls of one kind. `make` gets a folder for files and returns the function to call with the numbers 0, 1, 2, ..., of which
    the first `warm_up` calls are not measured, and `calls` are."""

    make: Callable[[Path], Call]
    warm_up: int
    calls: int
    target: str = HOST


class _MallocInfo(ctypes.Structure):
    """`struct mallinfo2` of glibc."""

    _fields_ = (
        *((name, ctypes.c_size_t) for name in ("arena", "ordblks", "smblks", "hblks", "hblkhd")),
        *((name, ctypes.c_size_t) for name in ("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost")),
    )


@dataclass(frozen=True)
class Memory:
    """Memory of this process in bytes. `heap` is None where the C library does not tell."""

    resident: int
    peak: int
    heap: int | None

    @staticmethod
    def now() -> Memory:
        """Measure this process."""
        release_free_memory()
        fields = dict(line.split(":") for line in Path("/proc/self/status").read_text().splitlines())
        resident, peak = (int(fields[name].split()[0]) << 10 for name in ("VmRSS", "VmHWM"))
        return Memory(resident, peak, _heap_bytes())


def _heap_bytes() -> int | None:
    try:
        function = ctypes.CDLL(None).mallinfo2
    except AttributeError:  # musl, and glibc before 2.33
        return None
    function.restype = _MallocInfo
    heap_info = function()
    return int(heap_info.uordblks + heap_info.hblkhd) + BLOCK * sys.getallocatedblocks()


@dataclass(frozen=True)
class Growth:
    """What a case has measured: the number of calls, and the memory after warming up, after half of the calls, and at the end."""

    calls: int
    start: Memory
    half: Memory
    end: Memory

    @property
    def resident(self) -> int:
        """Growth of the resident memory over the last half of the calls, in bytes."""
        return self.end.resident - self.half.resident

    @property
    def heap_kb(self) -> float | None:
        """Growth of the heap over the last half of the calls, in KB per call; None if unknown."""
        if self.half.heap is None or self.end.heap is None:
            return None
        return (self.end.heap - self.half.heap) / 1e3 / self._last_calls

    @property
    def resident_kb(self) -> float:
        """Growth of the resident memory over the last half of the calls, in KB per call."""
        return self.resident / 1e3 / self._last_calls

    @property
    def _last_calls(self) -> int:
        return max(self.calls - self.calls // 2, 1)

    @property
    def passed(self) -> bool:
        """Whether the growth is within the limits."""
        steady = self.heap_kb is None or self.heap_kb <= KB_A_CALL
        level = self.resident_kb <= KB_A_CALL or self.resident <= RESOLUTION * 1e6
        return steady and level and max(self.resident, self.end.peak - self.half.peak) <= MB * 1e6


# --- what is called ---------------------------------------------------------------------------------------------------------


def weight(*shape: int) -> ir.Expr:
    """Random weights."""
    return ir.constant((np.random.default_rng(shape).standard_normal(shape) * 0.1).astype(np.float32))


def small_model(number: int) -> ir.Function:
    """One of five kinds of small models. Models of different numbers differ in their sizes, so that they have different kernels."""
    kind, extra = number % 5, number // 5
    if kind == 0:  # a product
        x = ir.var("x", TensorType((3 + extra % 50, 8 + extra), "float32"))
        return ir.function([x], ops.softmax(ops.relu(ops.matmul(x, weight(8 + extra, 24))), axis=1))
    if kind == 1:  # a convolution
        x = ir.var("x", TensorType((1, 3, 8 + extra, 12), "float32"))
        y = ops.relu(ops.conv(x, weight(4 + extra % 7, 3, 3, 3), pads=(1, 1, 1, 1), strides=(1, 1)))
        return ir.function([x], ops.max_pool(y, kernel=(2, 2), strides=(2, 2), pads=(0, 0, 0, 0), dilations=(1, 1)))
    if kind == 2:  # symbolic sizes
        x = ir.var("x", TensorType((SizeVar("rows", 1, 4096), 8 + extra), "float32"))
        shifted = ops.sub(x, ops.reduce_min(x, axes=(1,), keepdims=True))
        return ir.function([x], ops.reduce_max(ops.mul(shifted, weight(8 + extra)), axes=(0,), keepdims=False))
    if kind == 3:  # a size that data decides
        x = ir.var("x", TensorType((4, 8 + extra), "float32"))
        return ir.function([x], ops.nonzero(ops.less(ir.constant(np.float32(extra)), x)))
    # control flow
    x, flag = ir.var("x", TensorType((2, 8 + extra), "float32")), ir.var("flag", TensorType((), "bool"))
    return ir.function([x, flag], ir.if_(flag, ops.exp(x), ops.tanh(ops.add(x, weight(8 + extra)))))


def compiling(folder: Path) -> Call:
    """Compile small models."""
    return lambda number: inlaid.compile(small_model(number), targets=[HOST])


def compiling_resnet50(folder: Path) -> Call:
    """Compile ResNet-50."""
    path = model_path("resnet50")
    return lambda number: inlaid.compile(path, targets=[HOST])


def failures() -> Iterator[tuple[type[BaseException], Call]]:
    """Yield compilations that fail in different stages, each with the error."""
    node = onnx.helper.make_node("MatMul", ["a", "b"], ["c"])
    sides = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, (3, size)) for name, size in (("a", 4), ("b", 5))]
    result = onnx.helper.make_tensor_value_info("c", onnx.TensorProto.FLOAT, None)
    unfit = onnx.helper.make_model(onnx.helper.make_graph([node], "unfit", sides, [result]))
    yield InlaidError, lambda number: inlaid.compile(b"no model" + str(number).encode(), targets=[HOST])
    yield InlaidError, lambda number: inlaid.compile(unfit.SerializeToString(), targets=[HOST])
    yield TargetError, lambda number: inlaid.compile(small_model(number), targets=["x86:cpu=abacus"])
    yield InlaidError, rejected
    for stage in ("partition", "lower", "compile", "load"):
        yield KeyboardInterrupt, partial(interrupted, stage)


def interrupted(stage: str, number: int) -> object:
    """Compile a model until a stage, where the user interrupts the process."""

    def report(name: str, completed: int, total: int) -> None:
        if name.startswith(stage):
            raise KeyboardInterrupt

    return inlaid.compile(small_model(number), targets=[HOST], progress=report)


def rejected(number: int) -> object:
    """Compile a kernel that LLVM rejects, since its instruction is emitted wrongly."""
    from inlaid_x86.llvm.intrinsics import Instruction

    def meaning(builder: Any, inputs: Any, outputs: Any) -> None:
        with builder.loop(4, "lane") as lane:
            builder.store(outputs[0], lane, inputs[0][lane])

    source = te.placeholder((4,), "float32", "source")
    copy = te.extern([((4,), "float32")], [source], meaning, "target")
    intrinsic = inlaid.TensorIntrin("copy", te.program([source], copy, "copy"))
    x = te.placeholder((4 + 4 * number,), "float32", "x")
    y = te.compute(x.shape, lambda i: x[i], "y")
    schedule = inlaid.Schedule(te.program([x], [y], "copies"), intrinsics=(intrinsic,))
    _, lane = schedule.split(schedule.loops("y")[0], (None, 4))
    schedule.tensorize(lane, "copy")
    instruction = Instruction(intrinsic, lambda printer, places: places[1].store(printer.op("no instruction", "float", 4)))
    return inlaid.build(schedule, HOST, instructions=[instruction])


def failing(folder: Path) -> Call:
    """Compile what cannot be compiled."""
    ways = tuple(failures())

    def call(number: int) -> None:
        error, compile_ = ways[number % len(ways)]
        try:
            compile_(number)
        except error:
            return
        raise AssertionError(f"failure {number % len(ways)} did not fail")

    return call


def loading(folder: Path) -> Call:
    """Load a package and run it."""
    path, value = folder / "small.inlaid", {"x": np.ones((4, 16), np.float32)}
    x = ir.var("x", TensorType((4, 16), "float32"))
    inlaid.compile(ir.function([x], ops.relu(ops.matmul(x, weight(16, 8)))), targets=[HOST]).save(path)
    return lambda number: load(path).run(value)


def running(target: str) -> Callable[[Path], Call]:
    """Create the maker of runs whose sizes change from call to call."""

    def rows_and_columns(rows: Dim, columns: Dim) -> ir.Function:
        x = ir.var("x", TensorType((rows, columns, 16), "float32"))
        y = ops.relu(ops.matmul(x, weight(16, 24)))
        above = ops.nonzero(ops.less(ir.constant(np.float32(0.3)), ops.reduce_max(y, axes=(2,), keepdims=False)))
        return ir.function([x], ir.tuple_([ops.softmax(y, axis=1), ops.transpose(y, perm=(1, 0, 2)), above]))

    def make_call(folder: Path) -> Call:
        model = inlaid.compile(rows_and_columns(SizeVar("rows", 1, 64), SizeVar("columns", 1, 128)), targets=[target, HOST])
        values = np.random.default_rng(0).standard_normal((64, 128, 16)).astype(np.float32)

        def call(number: int) -> None:  # 61 and 97 have no common divisor, so that each pair occurs every 5,917 calls
            model.run({"x": np.ascontiguousarray(values[: 1 + 7 * number % 61, : 1 + 13 * number % 97])})

        return call

    return make_call


CASES: Mapping[str, Case] = MappingProxyType(
    {
        "compile": Case(compiling, 200, 2000),
        "resnet50": Case(compiling_resnet50, 20, 100),
        "failures": Case(failing, 200, 500),
        "load": Case(loading, 200, 2000),
        "run-x86": Case(running(HOST), 200, 10000),
        "run-opencl": Case(running("opencl"), 200, 10000, "opencl"),
    }
)


# --- measurement ------------------------------------------------------------------------------------------------------------


def measure(case: Case, scale: float) -> Growth:
    """Run a case in this process, with the numbers of calls multiplied by `scale`."""
    warm_up, calls = (max(round(count * scale), 2) for count in (case.warm_up, case.calls))
    with tempfile.TemporaryDirectory() as folder:
        call = case.make(Path(folder))
        numbers = iter(range(warm_up + calls))

        def run(count: int) -> Memory:
            for _ in range(count):
                call(next(numbers))
            return Memory.now()

        return Growth(calls, run(warm_up), run(calls // 2), run(calls - calls // 2))


def measured(name: str, scale: float) -> Growth:
    """Run a case in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "INLAID_CACHE": "off", "POCL_CACHE_DIR": folder}
        command = [sys.executable, __file__, "--inside", "--only", name, "--scale", str(scale)]
        process = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    record = json.loads(process.stdout)
    return Growth(record["calls"], *(Memory(**record[moment]) for moment in ("start", "half", "end")))


def unavailable(case: Case) -> str:
    """Return why a case cannot run on this machine; "" if it can."""
    registry = default_registry()
    try:
        status = registry.probe(registry.target(case.target))
    except TargetError as error:
        return str(error)
    return "" if status.available else status.detail


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=CASES, default=list(CASES), metavar="CASE", help=", ".join(CASES))
    parser.add_argument("--scale", type=float, default=1.0, help="factor of the numbers of calls")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inside:
        print(json.dumps(asdict(measure(CASES[options.only[0]], options.scale))))
        return 0
    print(f"{'':<12}{'':>8}{'resident, MB':>30}{'peak, MB':>20}{'growth, KB a call':>20}")
    head = ("warm", "half", "end", "half", "end", "resident", "heap")
    print(f"{'case':<12}{'calls':>8}" + "".join(f"{word:>10}" for word in head))
    passed = True
    for name in options.only:
        if problem := unavailable(CASES[name]):
            print(f"{name:<12}not measured: {problem}", flush=True)
            continue
        growth = measured(name, options.scale)
        sizes = [growth.start.resident, growth.half.resident, growth.end.resident, growth.half.peak, growth.end.peak]
        heap = "?" if growth.heap_kb is None else f"{growth.heap_kb:.2f}"
        cells = [*(f"{size / 1e6:.1f}" for size in sizes), f"{growth.resident_kb:.2f}", heap, "pass" if growth.passed else "FAIL"]
        print(f"{name:<12}{growth.calls:>8}" + "".join(f"{cell:>10}" for cell in cells), flush=True)
        passed = passed and growth.passed
    return int(not passed)


if __name__ == "__main__":
    sys.exit(main())
