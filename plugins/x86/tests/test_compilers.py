"""Compiling many kernels: by a thread or by processes, from text or from the cache, always the same bytes."""

from __future__ import annotations

import ctypes
import gc
import os
import signal
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm
import numpy as np
import pytest

from inlaid.lowering.kernels.finish import finish
from inlaid.tensor import ir, te
from inlaid.tensor.lower import lower
from inlaid.tensor.region import RegionProgram
from inlaid_runtime.cache import DiskCache
from inlaid_runtime.errors import CompileError
from inlaid_runtime.execution.mapped import map_image
from inlaid_x86 import compilers, emit, processes
from inlaid_x86.codegen import X86Codegen
from inlaid_x86.compilers import Compilers
from inlaid_x86.linking import link_image
from inlaid_x86.llvm.region import print_kernel
from inlaid_x86.machine import TRIPLE, data_layout
from inlaid_x86.processes import CompilerProcess
from inlaid_x86_runtime.pool import MACHINE

from .native import PLAIN, Context, Native, compile_region, make_region

NOWHERE = DiskCache(None, 0)
HEAD = f'target triple = "{TRIPLE}"\ntarget datalayout = "{data_layout()}"\n'


def kernel(number: int) -> str:
    """A module whose kernel returns a number."""
    return f"{HEAD}define hidden i32 @{emit.KERNEL}(ptr %data) {{\n  store i32 {number}, ptr %data\n  ret i32 {number}\n}}\n"


def entry(symbols: list[str]) -> str:
    """A module that calls kernels and returns the sum of what they return."""
    lines = [HEAD, *(f"declare hidden i32 @{symbol}(ptr)" for symbol in dict.fromkeys(symbols))]
    lines += ["define i32 @total(ptr %data) {", "  %s0 = add i32 0, 0"]
    for number, symbol in enumerate(symbols):
        lines += [f"  %r{number} = call i32 @{symbol}(ptr %data)", f"  %s{number + 1} = add i32 %s{number}, %r{number}"]
    return "\n".join([*lines, f"  ret i32 %s{len(symbols)}", "}", ""])


def compiled(numbers: list[int], store: DiskCache = NOWHERE) -> tuple[dict[str, bytes], int]:
    """Objects of several kernels and an entry that calls them; and how many processes compiled them."""
    with Compilers((), store) as pool:
        symbols = [pool.kernel(kernel(number)) for number in numbers]
        pool.entry(entry(symbols), "total")
        return pool.finish(), len(started(pool))


def started(pool: Compilers) -> list[subprocess.Popen[bytes]]:
    return [worker._process.process for worker in pool._workers if isinstance(worker, compilers._Process)]


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes for the least work."""
    monkeypatch.setattr(compilers, "SHARE", 0)
    monkeypatch.setattr(compilers, "_cores", lambda: 3)


@pytest.fixture
def lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread compiles nothing before a process is lost."""
    event, tail, compile_text = threading.Event(), CompilerProcess._stderr_tail, compilers.compile_text

    def signal_loss(process: CompilerProcess) -> str:
        event.set()
        return tail(process)

    def later(*arguments: Any) -> bytes:
        event.wait(60)
        return compile_text(*arguments)

    monkeypatch.setattr(CompilerProcess, "_stderr_tail", signal_loss)
    monkeypatch.setattr(compilers, "compile_text", later)


def test_processes_give_the_same_objects(eager: None, monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = [*range(12), *range(6)]
    with_processes, count = compiled(numbers)
    monkeypatch.setattr(compilers, "SHARE", 1 << 40)
    without, none = compiled(numbers)
    assert count == 2 and none == 0
    assert with_processes == without and len(without) == 13
    code = map_image(link_image(list(without.values()), ("total",)), MACHINE, "sum")
    total = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)(code.addresses["total"])
    cell = ctypes.c_int32()
    assert total(ctypes.addressof(cell)) == sum(numbers) and cell.value == 5


def test_little_work_starts_no_process() -> None:
    assert compiled([1, 2, 3])[1] == 0


def test_known_objects_are_not_compiled_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = DiskCache(tmp_path, 1 << 20, spread=2)
    first, _ = compiled([1, 2], store)
    assert store.usage().entries == 3

    def refuse(*_: object) -> bytes:
        raise AssertionError("compiled again")

    monkeypatch.setattr(compilers, "compile_text", refuse)
    assert compiled([1, 2], store)[0] == first
    with pytest.raises(AssertionError, match="compiled again"):
        compiled([1, 3], store)


def test_keys_depend_on_text_and_features(tmp_path: Path) -> None:
    store = DiskCache(tmp_path, 1 << 20)
    symbols = set()
    for features in ((), ("avx",), ("avx", "fma")):
        with Compilers(features, store) as pool:
            symbols |= {pool.kernel(kernel(1)), pool.kernel(kernel(2)), pool.kernel(kernel(1))}
            pool.finish()
    assert len(symbols) == 6 and store.usage().entries == 6


@pytest.mark.parametrize("share", [0, 1 << 40])
def test_text_that_llvm_rejects(monkeypatch: pytest.MonkeyPatch, share: int) -> None:
    monkeypatch.setattr(compilers, "SHARE", share)
    with Compilers((), NOWHERE) as pool:
        for text in (kernel(1), "this is no module", kernel(2)):
            pool.kernel(text)
        with pytest.raises(CompileError, match="LLVM rejects"):
            pool.finish()


def test_a_process_that_dies(eager: None, lost: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    compilers.fingerprint()
    script = tmp_path / "broken.py"
    script.write_text(
        "import sys\nprint('ready', flush=True)\nprint('LLVM ERROR: out of registers', file=sys.stderr)\nsys.exit(3)\n"
    )
    monkeypatch.setattr(emit, "__file__", str(script))
    with pytest.raises(CompileError, match="out of registers"):
        compiled([1, 2, 3])


def test_a_process_that_is_killed(eager: None, lost: None) -> None:
    with Compilers((), NOWHERE) as pool:
        pool.kernel(kernel(1))
        pool.kernel(kernel(2))
        (worker,) = (worker for worker in pool._workers if isinstance(worker, compilers._Process))
        while not worker._process._greeting_read:
            time.sleep(0.01)
        os.kill(worker._process.process.pid, signal.SIGKILL)
        for number in range(3, 9):
            pool.kernel(kernel(number))
        with pytest.raises(CompileError, match="LLVM failed"):
            pool.finish()


def test_nothing_is_left_of_what_is_not_finished(eager: None) -> None:
    before = threading.active_count()
    with Compilers((), NOWHERE) as pool:
        pool.kernel(kernel(1))
        pool.kernel(kernel(2))
        begun = started(pool)
    assert begun and all(process.poll() is not None for process in begun)
    assert threading.active_count() == before


def test_a_machine_that_cannot_start_processes(eager: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError("no more processes")

    monkeypatch.setattr(processes.subprocess, "Popen", fail)
    objects, count = compiled([1, 2])
    assert count == 0 and len(objects) == 3


# --- regions ----------------------------------------------------------------------------------------------------------


def adding(number: float, name: str = "adding") -> ir.LoopProgram:
    x = te.placeholder((8,), "float32", "x")
    return finish(lower((te.compute((8,), lambda i: x[i] + number, "y"),), (x,), name))


def count_objects(regions: list[RegionProgram], folder: Path) -> int:
    """How many objects are compiled for some regions, the helper that copies messages included."""
    context = Context(PLAIN)
    context.objects = DiskCache(folder, 1 << 20)
    for region in regions:
        X86Codegen(PLAIN).compile(region, context)
    return len(list(folder.iterdir()))


def test_equal_kernels_are_compiled_once(tmp_path: Path) -> None:
    assert count_objects([make_region([adding(1), adding(2), adding(1), adding(1, "another")])], tmp_path) == 4
    native = Native([adding(1), adding(2), adding(1, "another")])
    inputs = [np.arange(8, dtype=np.float32)] * 3
    for actual, number in zip(native.run(inputs), (1, 2, 1), strict=True):
        np.testing.assert_array_equal(actual, inputs[0] + number)


def test_regions_share_kernels(tmp_path: Path) -> None:
    """Three kernels, two entries and the helper: not four kernels."""
    assert count_objects([make_region([adding(1), adding(2)], "one"), make_region([adding(2), adding(3)], "two")], tmp_path) == 6


def test_kernels_begun_early_give_the_same_image() -> None:
    region = make_region([adding(1), adding(2)])
    codegen, context = X86Codegen(PLAIN), Context(PLAIN)
    with codegen.compiling(context) as begin:
        for kernel in (*region.kernels, adding(3)):  # the last is not part of the region
            begin(kernel)
        assert codegen.compile(region, context).code == compile_region(region, PLAIN).code


def test_processes_end_if_lowering_fails(eager: None) -> None:
    codegen, begun = X86Codegen(PLAIN), []

    def fail() -> None:
        with codegen.compiling(Context(PLAIN)) as begin:
            begin(adding(1))
            begin(adding(2))
            assert codegen._kernels is not None
            begun.extend(started(codegen._kernels.compilers))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert begun and all(process.poll() is not None for process in begun)


def test_kernels_that_regions_share_are_printed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    shared, printed = adding(2), []

    def record_kernel(kernel: ir.LoopProgram, *arguments: Any) -> str:
        printed.append(kernel)
        return print_kernel(kernel, *arguments)

    monkeypatch.setattr("inlaid_x86.kernels.print_kernel", record_kernel)
    context = Context(PLAIN)
    both = [make_region([shared, adding(1)], "one"), make_region([adding(3), shared], "two")]
    codes = [X86Codegen(PLAIN).compile(region, context).code for region in both]
    assert len(printed) == 3
    assert codes == [compile_region(region, PLAIN).code for region in both]


def test_equal_regions_give_equal_bytes(eager: None, monkeypatch: pytest.MonkeyPatch) -> None:
    programs = [adding(number) for number in range(6)]
    first = compile_region(make_region(programs), PLAIN)
    monkeypatch.setattr(compilers, "SHARE", 1 << 40)
    assert compile_region(make_region(programs), PLAIN).code == first.code


def test_objects_are_kept_across_regions(tmp_path: Path) -> None:
    context = Context(PLAIN)
    context.objects = DiskCache(tmp_path, 1 << 20)
    first = X86Codegen(PLAIN).compile(make_region([adding(1)]), context)
    before = {path.name for path in tmp_path.iterdir()}
    second = X86Codegen(PLAIN).compile(make_region([adding(1)]), context)
    assert first.code == second.code and before == {path.name for path in tmp_path.iterdir()}
    for path in tmp_path.iterdir():
        path.write_bytes(b"damaged")
    assert X86Codegen(PLAIN).compile(make_region([adding(1)]), context).code == first.code


LOOP = """
define float @kernel(ptr %x, i64 %n) {
entry:
  %part = alloca [3 x float]
  %p1 = getelementptr float, ptr %part, i64 1
  %p2 = getelementptr float, ptr %part, i64 2
  store float 0.0, ptr %part
  store float 0.0, ptr %p1
  store float 0.0, ptr %p2
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %latch ]
  %more = icmp ult i64 %i, %n
  br i1 %more, label %body, label %done
body:
  %at = getelementptr [3 x float], ptr %x, i64 %i
  %x0 = load float, ptr %at
  %old0 = load float, ptr %part
  %sum0 = fadd float %old0, %x0
  store float %sum0, ptr %part
  %at1 = getelementptr float, ptr %at, i64 1
  %x1 = load float, ptr %at1
  %old1 = load float, ptr %p1
  %sum1 = fadd float %old1, %x1
  store float %sum1, ptr %p1
  %at2 = getelementptr float, ptr %at, i64 2
  %x2 = load float, ptr %at2
  %old2 = load float, ptr %p2
  %sum2 = fadd float %old2, %x2
  store float %sum2, ptr %p2
  br label %latch
latch:
  %next = add i64 %i, 1
  br label %loop
done:
  %a = load float, ptr %part
  %b = load float, ptr %p1
  %c = load float, ptr %p2
  %ab = fadd float %a, %b
  %abc = fadd float %ab, %c
  ret float %abc
}
"""


def test_partial_sums_are_added_in_the_order_in_which_their_elements_lie() -> None:
    """Loads that walk down within each step of a loop defeat prefetching: sums of rows took 1.2 to 3 times as long."""
    emit.initialize()
    module = llvm.parse_assembly(LOOP)
    emit._explicit_passes().run(
        module, llvm.create_pass_builder(emit.target_machine("+sse2"), llvm.create_pipeline_tuning_options())
    )
    text = str(module)
    assert text.index("%sum0 = fadd") < text.index("%sum1 = fadd") < text.index("%sum2 = fadd")


def test_compiling_gives_memory_back() -> None:
    """Pass managers are freed, and LLVM's contexts. What llvmlite keeps of a pass builder is 1.5 KB."""
    try:
        function = ctypes.CDLL(None).mallinfo2
    except AttributeError:
        pytest.skip("the C library does not tell what is allocated: glibc 2.33 does")
    function.restype = type(
        "Info", (ctypes.Structure,), {"_fields_": [(f"field{number}", ctypes.c_size_t) for number in range(10)]}
    )

    def allocated() -> int:
        gc.collect()
        info = function()
        return int(info.field7 + info.field4)  # uordblks and hblkhd

    for effort, limit in ((emit.FULL, 4000), (emit.EXPLICIT, 4000), (emit.CALLS, 500)):
        grown = []
        for _ in range(3):  # at first, LLVM and this test fill caches
            before = allocated()
            for number in range(20):
                emit.emit(LOOP.replace("0.0", f"{number}.0"), "+sse2", "total", effort)
            grown.append((allocated() - before) / 20)
        assert min(grown) < limit, f"effort {effort} keeps {min(grown):.0f} bytes of each module"
