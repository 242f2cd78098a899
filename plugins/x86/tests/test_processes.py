"""Where LLVM optimizes modules: in this process at first, then in processes that are kept, replaced, and ended when idle."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from inlaid_runtime.errors import CompileError
from inlaid_x86 import emit, machine, processes
from inlaid_x86.machine import TRIPLE, compile_text, data_layout
from inlaid_x86.processes import Optimizer

HEAD = f'target triple = "{TRIPLE}"\ntarget datalayout = "{data_layout()}"\n'
SUM = """
define float @kernel(ptr %x, i64 %n) {
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %sum = phi float [ SCALE, %entry ], [ %more, %loop ]
  %at = getelementptr float, ptr %x, i64 %i
  %value = load float, ptr %at
  %more = fadd float %sum, %value
  %next = add i64 %i, 1
  %goes = icmp ult i64 %next, %n
  br i1 %goes, label %loop, label %done
done:
  ret float %more
}
"""
FAILING = 'define void @kernel() {\n  call void asm sideeffect "no instruction", ""()\n  ret void\n}\n'
"""A module that LLVM's verifier accepts. Its assembler then ends the process."""


def text(number: int) -> str:
    return HEAD + SUM.replace("SCALE", f"{number}.0")


@pytest.fixture
def optimizer(monkeypatch: pytest.MonkeyPatch) -> Iterator[Optimizer]:
    """An optimizer that uses processes from the first module on."""
    instance = Optimizer()
    monkeypatch.setattr(processes, "IN_PROCESS_MODULES", 0)
    monkeypatch.setattr(machine, "optimizer", lambda: instance)
    yield instance
    for process in instance._waiting:
        process.close()


def waiting(optimizer: Optimizer) -> int:
    (process,) = optimizer._waiting
    return process.process.pid


def compile_(number: int, effort: int = emit.FULL) -> bytes:
    return compile_text(text(number), "+sse2", "total", effort)


@pytest.mark.parametrize("effort", [emit.FULL, emit.EXPLICIT])
def test_a_process_gives_the_same_object(optimizer: Optimizer, effort: int) -> None:
    assert compile_(1, effort) == emit.emit(text(1), "+sse2", "total", effort)
    first = waiting(optimizer)
    compile_(2, effort)
    assert waiting(optimizer) == first, "one process serves all modules"


def test_a_few_modules_need_no_process(optimizer: Optimizer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "IN_PROCESS_MODULES", 2)
    objects = [compile_(number) for number in range(2)]
    assert not optimizer._waiting
    objects.append(compile_(2))
    assert waiting(optimizer) and len(set(objects)) == 3


def test_modules_without_passes_need_no_process(optimizer: Optimizer) -> None:
    compile_(1, emit.CALLS)
    assert not optimizer._waiting


def test_processes_are_replaced(optimizer: Optimizer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "PROCESS_MODULES", 2)
    compile_(1)
    first = optimizer._waiting[0].process
    compile_(2)
    assert not optimizer._waiting and first.poll() is not None
    compile_(3)
    assert waiting(optimizer) != first.pid


def test_idle_processes_end_and_start_again(optimizer: Optimizer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "IDLE_SECONDS", 0.05)
    first = compile_(1)
    process = optimizer._waiting[0].process
    assert process.wait(60) == 0
    assert compile_(1) == first and waiting(optimizer) != process.pid


def test_text_that_llvm_rejects_keeps_the_process(optimizer: Optimizer) -> None:
    compile_(1)
    first = waiting(optimizer)
    with pytest.raises(CompileError, match="LLVM rejects"):
        compile_text("this is no module")
    assert waiting(optimizer) == first


def test_a_crash_of_llvm_ends_the_process_alone(optimizer: Optimizer) -> None:
    compile_(1)
    first = optimizer._waiting[0].process
    with pytest.raises(CompileError, match="LLVM failed"):
        compile_text(HEAD + FAILING)
    assert first.poll() is not None and not optimizer._waiting
    assert compile_(1) == emit.emit(text(1), "+sse2", "total")


def test_a_killed_process_fails_its_request(optimizer: Optimizer) -> None:
    compile_(1)
    os.kill(waiting(optimizer), signal.SIGKILL)
    with pytest.raises(CompileError, match="LLVM failed"):
        compile_(2)
    assert compile_(2)


def test_an_interrupted_request_ends_its_process(optimizer: Optimizer, monkeypatch: pytest.MonkeyPatch) -> None:
    compile_(1)
    first, read = optimizer._waiting[0].process, processes._read

    def interrupt(*_: object) -> bytes:
        raise KeyboardInterrupt

    monkeypatch.setattr(processes, "_read", interrupt)
    with pytest.raises(KeyboardInterrupt):
        compile_(2)
    assert first.poll() is not None and not optimizer._waiting
    monkeypatch.setattr(processes, "_read", read)
    assert compile_(2) == emit.emit(text(2), "+sse2", "total"), "not the answer to the interrupted request"


def test_threads_use_processes_of_their_own(optimizer: Optimizer) -> None:
    objects: dict[int, bytes] = {}
    threads = [threading.Thread(target=lambda number=number: objects.update({number: compile_(number)})) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert objects == {number: emit.emit(text(number), "+sse2", "total") for number in range(4)}
    assert 1 <= len(optimizer._waiting) <= 4


def test_without_python_this_process_compiles(optimizer: Optimizer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As if an interpreter is embedded: what `sys.executable` names is no Python, or nothing."""
    for name in ("", str(tmp_path / "missing"), "/bin/false"):
        monkeypatch.setattr(sys, "executable", name)
        assert compile_(1) == emit.emit(text(1), "+sse2", "total")
        assert not optimizer._waiting


PROGRAM = """
import os, signal, warnings
from inlaid_x86 import processes
from inlaid_x86.machine import compile_text
processes.IN_PROCESS_MODULES = 0
def compiled():
    return compile_text("define void @kernel() {\\n  ret void\\n}\\n")
def number():
    (process,) = processes.optimizer()._waiting
    return process.process.pid
expected, first = compiled(), number()
"""


def program(code: str) -> subprocess.CompletedProcess[str]:
    """Run a program that has a compiler process, and that prints every warning."""
    command = [sys.executable, "-X", "dev", "-W", "error", "-c", PROGRAM + code]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


def test_a_fork_starts_processes_of_its_own() -> None:
    """The child neither uses nor ends the process of its parent."""
    process = program("""
warnings.simplefilter("ignore")  # a fork in a program with threads
child = os.fork()
if not child:
    os._exit(not (compiled() == expected and number() != first))
assert os.waitpid(child, 0)[1] == 0
assert compiled() == expected and number() == first
print("fine")
""")
    assert process.stdout == "fine\n", process.stderr


@pytest.mark.parametrize(("end", "status"), [("", 0), ("os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL)])
def test_processes_end_with_this_process(end: str, status: int) -> None:
    process = program(f"print(first, flush=True)\n{end}")
    assert process.returncode == status and not process.stderr
    status_file, deadline = Path("/proc", process.stdout.strip(), "status"), time.monotonic() + 60
    with contextlib.suppress(OSError):
        while "zombie" not in status_file.read_text():  # one that no process has waited for yet
            assert time.monotonic() < deadline
            time.sleep(0.02)
