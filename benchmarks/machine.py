"""What this machine is, and what it can do at most: multiply-adds and bytes read per second."""

from __future__ import annotations

import ctypes
import importlib.metadata
import platform
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm
import numpy as np

ACCUMULATORS = 12
"""Independent sums: more than two units of four to five cycles have in flight, and few enough to stay in sixteen registers."""
STEPS = 20_000_000
REPEATS = 5
READ = 1 << 29
"""Bytes to read: more than any cache holds."""


@dataclass(frozen=True)
class Limits:
    """What `threads` threads reach together: float32 operations per second (a multiply-add is two), and bytes read per second."""

    threads: int
    flops: float
    bandwidth: float


def limits(threads: int) -> Limits:
    """Measure both: the best of several tries."""
    code = _Code()
    data = np.ones(READ // 8, np.int64)
    part = len(data) // threads
    addresses = [data.ctypes.data + 8 * part * number for number in range(threads)]
    sums = STEPS * ACCUMULATORS * code.lanes * 2 * threads
    multiply = min(_together([(code.multiply, (STEPS,))] * threads) for _ in range(REPEATS))
    read = min(_together([(code.read, (address, part)) for address in addresses]) for _ in range(REPEATS))
    return Limits(threads, sums / multiply, part * threads * 8 / read)


def _together(calls: list[tuple[Any, tuple[int, ...]]]) -> float:
    """Seconds until all of the calls, each in a thread, have returned."""
    workers = [threading.Thread(target=function, args=arguments) for function, arguments in calls]
    start = time.perf_counter()
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return time.perf_counter() - start


class _Code:
    """Two loops for this processor: `multiply(steps)` and `read(address, words)`."""

    def __init__(self) -> None:
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        features = llvm.get_host_cpu_features()
        self.lanes = 16 if features.get("avx512f") else 8
        target = llvm.Target.from_default_triple().create_target_machine(cpu="x86-64", features=features.flatten(), opt=3)
        module = llvm.parse_assembly(self._text())
        builder = llvm.create_pass_builder(target, llvm.create_pipeline_tuning_options(speed_level=2))
        builder.getModulePassManager().run(module, builder)
        self._engine = llvm.create_mcjit_compiler(module, target)
        self._engine.finalize_object()
        self.multiply = ctypes.CFUNCTYPE(ctypes.c_float, ctypes.c_int64)(self._engine.get_function_address("multiply"))
        self.read = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64)(self._engine.get_function_address("read"))

    def _text(self) -> str:
        floats, words = f"<{self.lanes} x float>", f"<{self.lanes // 2} x i64>"
        numbers = range(ACCUMULATORS)

        def loop(kind: str, body: list[str], step: int, first: str = "") -> list[str]:
            return [
                "entry:",
                first,
                "  br label %loop",
                "loop:",
                "  %i = phi i64 [0, %entry], [%next, %loop]",
                *(f"  %a{k} = phi {kind} [zeroinitializer, %entry], [%b{k}, %loop]" for k in numbers),
                *body,
                f"  %next = add i64 %i, {step}",
                "  %more = icmp slt i64 %next, %count",
                "  br i1 %more, label %loop, label %done",
                "done:",
            ]

        def total(kind: str, operation: str) -> list[str]:
            sums = [f"  %s{k} = {operation} {kind} {'%b0' if k == 1 else f'%s{k - 1}'}, %b{k}" for k in numbers[1:]]
            return [*sums, f"  %result = extractelement {kind} %s{ACCUMULATORS - 1}, i32 0"]

        half = "splat (float 0.5)"
        products = [f"  %b{k} = call {floats} @llvm.fma({floats} %a{k}, {floats} {half}, {floats} {half})" for k in numbers]
        loads = []
        for k in numbers:
            loads += [
                f"  %j{k} = add i64 %i, {k * self.lanes // 2}",
                f"  %p{k} = getelementptr i64, ptr %from, i64 %j{k}",
                f"  %v{k} = load {words}, ptr %p{k}, align 8",
                f"  %b{k} = or {words} %a{k}, %v{k}",
            ]
        step = ACCUMULATORS * self.lanes // 2
        lines = [
            f"declare {floats} @llvm.fma({floats}, {floats}, {floats})",
            "define float @multiply(i64 %count) #0 {",
            *loop(floats, products, 1),
            *total(floats, "fadd"),
            "  ret float %result",
            "}",
            "define i64 @read(ptr %from, i64 %words) #0 {",
            # Steps that fit whole: none reads past the end.
            *loop(words, loads, step, f"  %count = sub i64 %words, {step - 1}"),
            *total(words, "or"),
            "  ret i64 %result",
            "}",
            'attributes #0 = { "prefer-vector-width"="512" "min-legal-vector-width"="512" }',
        ]
        return "\n".join(lines).replace("@llvm.fma(", f"@llvm.fma.v{self.lanes}f32(")


def processor() -> str:
    """Name of the processor, and the vector extensions that matter here."""
    text = Path("/proc/cpuinfo").read_text()
    fields = dict(part.partition(":")[::2] for part in text.split("\n\n")[0].splitlines())
    facts = {key.strip(): value.strip() for key, value in fields.items()}
    flags = facts.get("flags", "").split()
    shown = [name for name in ("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_bf16", "amx_int8") if name in flags]
    family = f"family {facts.get('cpu family')}, model {facts.get('model')}"
    return f"{facts.get('model name', platform.machine())} ({family}; {', '.join(shown)})"


def versions(*packages: str) -> str:
    """Versions of what is installed of these distributions, Python's first."""
    texts = [f"Python {platform.python_version()}"]
    for package in packages:
        try:
            texts.append(f"{package} {importlib.metadata.version(package)}")
        except importlib.metadata.PackageNotFoundError:
            texts.append(f"{package} not installed")
    return ", ".join(texts)
