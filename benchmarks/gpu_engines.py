"""Inlaid and its peers on a CUDA device, timed by CUDA events with operands in device memory.

Operators are timed as CUDA graphs of repeated calls, which excludes launch overhead. Models are timed as users run them: each call
waits for its results.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

import inlaid
from gpu_cases import Array, Case
from inlaid.graph.ir import Function
from inlaid.plugins.registry import default_registry
from inlaid_bench.comparison import INLAID, Missing, Timing
from inlaid_bench.engines import PACKAGES
from inlaid_cuda.device import CudaDevice, open_devices
from inlaid_cuda.queues import Queue
from inlaid_runtime.artifact.plan import Invoke, Move
from inlaid_runtime.errors import CompileError
from inlaid_runtime.execution.device_memory import DeviceArray, DeviceMemory
from inlaid_runtime.execution.invoked import region_workspace
from page import difference

TORCH, COMPILED, TRITON, COPY = "torch", "torch.compile", "triton", "device copy"
REUSABLE_PEERS = (COMPILED, TRITON)
"""Peers that are slow to prepare: their times are reused for the same device, driver and version."""
NO_DEVICE = "PyTorch finds no CUDA device"
MAX_CALLS = 100
"""Maximum number of calls per round."""


class Engine(Protocol):
    """A model or an operator on one engine, ready to run. The page lists `version` and `settings`."""

    label: str
    version: str
    settings: str

    def milliseconds(self, calls: int) -> float:
        """Mean time of `calls` consecutive calls."""

    def results(self) -> list[Array]:
        """Results in host memory."""


class Clock:
    """A stream with a pair of timed CUDA events."""

    def __init__(self, device: CudaDevice) -> None:
        self._device, self.queue = device, device.queue()
        self._events = [device.context.event(timed=True) for _ in range(2)]

    def milliseconds(self, run: Callable[[Queue], None]) -> float:
        """Time between events before and after `run`, which enqueues work or waits for it."""
        context = self._device.context
        self._device.synchronize(self._device.event(self.queue))
        context.record(self._events[0], self.queue.stream)
        run(self.queue)
        context.record(self._events[1], self.queue.stream)
        context.synchronize_event(self._events[1])
        return context.elapsed(*self._events) * 1e3

    def close(self) -> None:
        """Release stream and events."""
        for event in self._events:
            self._device.context.destroy_event(event)
        self._device.release(self.queue)


def open_device(target: str) -> CudaDevice:
    """Device 0 of a target of kind cuda. Raises `TargetError` on a machine without one."""
    return open_devices(default_registry().target(target).options).open(0)


def host_milliseconds(call: Callable[[], Any], finish: Callable[[], Any], calls: int) -> float:
    """Mean host time of a call, without that of `finish`, which waits for the device."""
    spent = 0.0
    for _ in range(calls):
        start = time.perf_counter()
        call()
        spent += time.perf_counter() - start
        finish()
    return spent / calls * 1e3


class OperatorEngine:
    """Inlaid on an operator. Raises `CompileError` if it is not compiled to a single region."""

    label, version, settings = INLAID, inlaid.__version__, "graph of repeated calls"

    def __init__(self, function: Function, operands: Sequence[Array], target: str, clock: Clock, fusion: bool = True) -> None:
        registry = default_registry()
        parsed = registry.target(target)
        package = inlaid.compile(function, targets=[target], fusion=fusion).package
        plan = package.program.plans["main"]
        invoked = [step for step in plan.instructions if isinstance(step, Invoke)]
        if len(invoked) != 1 or package.program.regions[0].target != str(parsed):
            raise CompileError(f"expected one region on {target}, got {[info.target for info in package.program.regions]}")
        (artifact,) = package.artifacts
        runtime = registry.runtime(parsed)
        kernel = runtime.load(artifact, artifact.constants).launching
        assert kernel is not None
        device = open_device(target)
        self._memory, self._clock, self._device = DeviceMemory(device, target, parsed.kind), clock, device
        sources = {step.target: step.source for step in plan.instructions if isinstance(step, Move)}
        arrays = {number: array for (_, number), array in zip(plan.inputs, operands, strict=True)}
        inputs = [self._upload(arrays[sources.get(number, number)]) for number in invoked[0].inputs]
        self._outputs = []
        for spec in artifact.signature.outputs:
            assert spec.dtype is not None
            shape = tuple(dim for dim in spec.shape if isinstance(dim, int))
            self._outputs.append(DeviceArray.empty(self._memory, shape, spec.dtype.numpy))
        size = region_workspace(artifact, {})
        room = DeviceArray.empty(self._memory, (size,), np.dtype(np.uint8)) if size else None
        self._device_buffers = (*inputs, room)
        input_tensors, result_tensors = ([item.tensor for item in side] for side in (inputs, self._outputs))
        workspace = None if room is None else room.tensor
        none = np.zeros(0, np.int64)
        self._launch: Callable[[Queue], None] = lambda queue: kernel.launch(input_tensors, result_tensors, workspace, none, queue)
        self._recordings: dict[int, Any] = {}

    def _upload(self, array: Array) -> DeviceArray:
        device_array = DeviceArray.empty(self._memory, array.shape, array.dtype)
        device_array.assign(array)
        return device_array

    def _repeat(self, calls: int, queue: Queue) -> None:
        for _ in range(calls):
            self._launch(queue)

    def milliseconds(self, calls: int) -> float:
        """Mean device time of a call in a graph of `calls`; without a graph if the region cannot be captured."""
        if calls not in self._recordings:
            self._clock.milliseconds(self._launch)  # arguments are prepared before they are recorded
            self._device.begin_capture(self._clock.queue)
            self._repeat(calls, self._clock.queue)
            self._recordings[calls] = self._device.end_capture(self._clock.queue)
        recording = self._recordings[calls]
        if recording is None:
            return self._clock.milliseconds(lambda queue: self._repeat(calls, queue)) / calls
        return self._clock.milliseconds(lambda queue: self._device.replay(recording, queue)) / calls

    def host_milliseconds(self, calls: int, graph: bool) -> float:
        """Mean host time to enqueue a call, or the graph of one call that `milliseconds` captured, on an idle queue."""
        queue = self._clock.queue
        recording = self._recordings[1] if graph else None
        return host_milliseconds(
            (lambda: self._launch(queue)) if recording is None else lambda: self._device.replay(recording, queue),
            lambda: self._device.synchronize(self._device.event(queue)),
            calls,
        )

    def results(self) -> list[Array]:
        """Outputs of a new call."""
        self._clock.milliseconds(self._launch)
        return [item.numpy() for item in self._outputs]


class Enqueued:
    """Host time to enqueue a call of an engine, or a graph of one call, on an idle device."""

    def __init__(self, engine: OperatorEngine | TorchEngine, graph: bool) -> None:
        self.label, self.version = engine.label, engine.version
        self.settings = f"{'one graph' if graph else 'call by call'}, host time on an idle device"
        self._engine, self._graph = engine, graph
        engine.milliseconds(1)

    def milliseconds(self, calls: int) -> float:
        """Mean host time of a call."""
        return self._engine.host_milliseconds(calls, self._graph)

    def results(self) -> list[Array]:
        """The outputs in order."""
        return self._engine.results()


class CopyEngine:
    """A device-to-device copy that reads and writes as many bytes in all as an operator."""

    label, version, settings = COPY, "", "cuMemcpyDtoDAsync of half as many bytes as the operator reads and writes"

    def __init__(self, moved: int, target: str, clock: Clock) -> None:
        self._clock, self._device = clock, open_device(target)
        memory = DeviceMemory(self._device, target, "cuda")
        self._arrays = [DeviceArray.empty(memory, (max(moved // 2, 1),), np.dtype(np.uint8)) for _ in range(2)]

    def milliseconds(self, calls: int) -> float:
        """Mean device time of a copy."""
        source, copied = (item.tensor for item in self._arrays)

        def run(queue: Queue) -> None:
            for _ in range(calls):
                self._device.copy(source, copied, queue)

        return self._clock.milliseconds(run) / calls

    def results(self) -> list[Array]:
        """No results to compare."""
        return []


class ModelEngine:
    """Inlaid on a model. Inputs and results stay on the device; each call waits for its results."""

    version, settings = inlaid.__version__, "one CUDA graph, results waited for"

    def __init__(
        self, model: Path, inputs: Mapping[str, Array], target: str, clock: Clock, label: str = INLAID, fusion: bool = True
    ) -> None:
        self.label, self._clock = label, clock
        executable = inlaid.compile(model, targets=[target], fusion=fusion)
        elsewhere = sorted({info.target for info in executable.regions} - {str(default_registry().target(target))})
        if elsewhere:
            raise CompileError(f"expected all operators on {target}, got some on {', '.join(elsewhere)}")
        device_inputs = {name: executable.to_device(name, array) for name, array in inputs.items()}
        self._run = lambda keep=True: executable.run(device_inputs, keep_on_device=keep)
        self._run()  # the second run makes graphs
        self._run()

    def milliseconds(self, calls: int) -> float:
        """Mean time of a call, host overhead included."""

        def run(queue: Queue) -> None:
            for _ in range(calls):
                self._run()

        return self._clock.milliseconds(run) / calls

    def results(self) -> list[Array]:
        """The outputs in order."""
        outputs = self._run(False)
        return list(outputs.values())


class TorchEngine:
    """PyTorch. With `graph`, calls are captured as a CUDA graph; otherwise each call waits for its results."""

    def __init__(self, label: str, call: Callable[[], Any], torch: Any, graph: bool, settings: str) -> None:
        self.label, self.version, self.settings = label, torch_version(torch), settings
        self._call, self._torch, self._graph = call, torch, graph
        self._recorded: dict[int, Any] = {}
        for _ in range(3):
            call()
        torch.cuda.synchronize()

    def milliseconds(self, calls: int) -> float:
        """Mean time of a call by PyTorch's CUDA events."""
        cuda = self._torch.cuda
        start, end = (cuda.Event(enable_timing=True) for _ in range(2))
        if self._graph and calls not in self._recorded:
            recorded = self._recorded[calls] = cuda.CUDAGraph()
            with cuda.graph(recorded):
                for _ in range(calls):
                    self._call()
            recorded.replay()
        cuda.synchronize()
        start.record()
        if self._graph:
            self._recorded[calls].replay()
        else:
            for _ in range(calls):
                self._call()
                cuda.synchronize()
        end.record()
        end.synchronize()
        return float(start.elapsed_time(end)) / calls

    def host_milliseconds(self, calls: int, graph: bool) -> float:
        """Mean host time to enqueue a call, or the graph of one call that `milliseconds` captured, on an idle stream."""
        return host_milliseconds(self._recorded[1].replay if graph else self._call, self._torch.cuda.synchronize, calls)

    def results(self) -> list[Array]:
        """The outputs in order, floating-point ones as float32."""
        outputs = self._call()
        return [
            (value.float() if value.is_floating_point() else value).cpu().numpy()
            for value in (outputs if isinstance(outputs, (tuple, list)) else (outputs,))
        ]


def torch_version(torch: Any) -> str:
    """Versions of PyTorch and of the CUDA that it was built with."""
    return f"{torch.__version__} (CUDA {torch.version.cuda})"


def load_torch(precision: str) -> Any:
    """Import PyTorch; tf32 is enabled for precision `tf32` only. Raises `ImportError` if it is not installed or has no device."""
    torch: Any = importlib.import_module("torch")
    if not torch.cuda.is_available():
        raise ImportError(NO_DEVICE)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = precision == "tf32"
    return torch


def _tensors(torch: Any, arrays: Sequence[Array]) -> list[Any]:
    """Copy arrays to PyTorch's device."""
    return [
        torch.from_numpy(array.astype(np.float32)).to(torch.bfloat16).cuda()
        if array.dtype.name == "bfloat16"
        else torch.from_numpy(array).cuda()
        for array in arrays
    ]


def torch_operator(case: Case) -> TorchEngine:
    """PyTorch on an operator: cuBLAS for products."""
    torch = load_torch(case.precision)
    operands = _tensors(torch, case.operands())

    def call() -> Any:
        with torch.inference_mode():
            return case.torch(torch, *operands)

    return TorchEngine(TORCH, call, torch, True, "graph of repeated calls")


def torch_chain(operands: Sequence[Array], launches: int) -> TorchEngine:
    """PyTorch on a chain of additions, a launch each."""
    torch = load_torch("f32")
    x, y = _tensors(torch, operands)

    def call() -> Any:
        with torch.inference_mode():
            result = x
            for _ in range(launches):
                result = result + y
            return result

    return TorchEngine(TORCH, call, torch, True, "eager")


def triton_product(case: Case) -> TorchEngine:
    """Triton on a matrix product."""
    torch = load_torch(case.precision)
    triton: Any = importlib.import_module("triton")
    matmul = importlib.import_module("triton_matmul").matmul
    a, b = _tensors(torch, case.operands())
    engine = TorchEngine(
        TRITON, lambda: matmul(a, b, case.precision == "tf32"), torch, True, "benchmarks/triton_matmul.py, tiles chosen by timing"
    )
    engine.version = str(triton.__version__)
    return engine


def torch_model(label: str, model: Path, inputs: Mapping[str, Array], precision: str) -> TorchEngine:
    """PyTorch on a model that onnx2torch converts, eager or compiled."""
    torch = load_torch(precision)
    module = importlib.import_module("onnx2torch").convert(str(model)).eval().cuda()
    settings = "eager, by onnx2torch"
    if label == COMPILED:
        module, settings = torch.compile(module, mode="reduce-overhead"), "mode reduce-overhead, by onnx2torch"
    tensors = _tensors(torch, list(inputs.values()))

    def call() -> Any:
        with torch.inference_mode():
            return module(*tensors)

    return TorchEngine(label, call, torch, False, settings)


def installed(label: str) -> str:
    """Version of a peer. Raises `ImportError` if it is not installed."""
    torch = load_torch("f32")
    return str(importlib.import_module("triton").__version__) if label == TRITON else torch_version(torch)


def missing(label: str, error: Exception) -> Missing:
    """Reason why a peer was not measured, with the install command."""
    if isinstance(error, ImportError):
        what = "finds no CUDA device" if str(error) == NO_DEVICE else "not installed"
        return Missing(label, f"{what}: pip install {PACKAGES['torch']}{' triton' * (label == TRITON)}")
    return Missing(label, f"{type(error).__name__}: {(str(error).strip().splitlines() or ['no message'])[0][:200]}")


@dataclass(frozen=True)
class Settings:
    """Number of rounds, and target seconds of each engine per round."""

    rounds: int = 7
    seconds: float = 0.1


def time_in_turns(engines: Sequence[Engine], prepared: Sequence[float], settings: Settings) -> tuple[Timing, ...]:
    """Time engines in alternation, rotating the order every round, and compare their results with the first engine's. `prepared`:
    preparation time of each in seconds."""
    expected = engines[0].results()
    calls = []
    for engine in engines:
        engine.milliseconds(1)
        calls.append(max(1, min(MAX_CALLS, int(settings.seconds * 1e3 / max(engine.milliseconds(1), 1e-3)))))
        engine.milliseconds(calls[-1])
    rounds: list[list[float]] = [[] for _ in engines]
    for turn in range(settings.rounds):
        for number in range(len(engines)):
            at = (number + turn) % len(engines)
            rounds[at].append(engines[at].milliseconds(calls[at]))

    def compared(engine: Engine) -> float:
        results = engine.results()
        return difference(expected, results) if results else 0.0

    return tuple(
        Timing(engine.label, engine.version, engine.settings, seconds, 0.0, 0.0, tuple(times), compared(engine))
        for engine, seconds, times in zip(engines, prepared, rounds, strict=True)
    )
