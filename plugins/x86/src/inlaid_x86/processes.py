"""Processes that compile LLVM modules, and the choice between them and this process.

llvmlite never frees what LLVM records about the passes of a pass builder: `LLVMPY_CreatePassBuilder` allocates an object that
`LLVMPY_DisposePassBuilder` does not delete. That is 1.5 KB for each optimized module. A process that compiles for days therefore
optimizes only its first modules itself, and later ones in a process that is replaced from time to time.
"""

from __future__ import annotations

import contextlib
import functools
import os
import subprocess
import sys
import tempfile
import threading
import weakref
from pathlib import Path
from typing import IO

import llvmlite

from inlaid_runtime.errors import CompileError
from inlaid_x86 import emit

IN_PROCESS_MODULES = 256
"""Modules that this process optimizes itself: those of a dozen models such as ResNet-50, for which a process does not pay."""
PROCESS_MODULES = 4096
"""Modules that a process optimizes before another replaces it. It has then lost 6 MB."""
IDLE_SECONDS = 60.0
"""Seconds after which a process without requests ends."""


class NotStarted(OSError):
    """Raised for a process that ended before it was ready, as it does if `sys.executable` is a program that embeds Python."""


class _Ended(Exception):
    """Raised for a process that ended before it answered a request."""


class CompilerProcess:
    """A process that runs `emit.py`, for use by one thread at a time. It ends after `IDLE_SECONDS` without a request; the next
    request starts it again. `modules` is the number of requests. `usable` is False while a request is not answered.

    Raises `OSError` if the process cannot be started."""

    def __init__(self) -> None:
        if getattr(sys, "frozen", False) or not sys.executable:
            raise NotStarted("this program cannot start Python")
        self.modules = 0
        self.usable = True
        self._start()

    def _start(self) -> None:
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 (open as long as the process)
        folder = Path(llvmlite.__file__).parent.parent
        command = [sys.executable, "-I", "-S", str(emit.__file__), str(folder), str(IDLE_SECONDS)]
        try:
            # Ctrl-C reaches all processes of a session, and this one may continue after it.
            self.process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, start_new_session=True
            )
        except BaseException:
            self._log.close()
            raise
        self._end = weakref.finalize(self, _end, self.process, self._log, os.getpid())
        self._greeting_read = False

    def compile(self, text: str, features: str, symbol: str, effort: int) -> bytes:
        """Compile a module by `emit.emit`. Raises `RuntimeError` if LLVM rejects the text, `CompileError` if LLVM crashes, and
        `OSError` if the process cannot be started again."""
        self.modules += 1
        self.usable = False
        parts = (features.encode(), symbol.encode(), text.encode())
        request = emit.REQUEST.pack(effort, *map(len, parts)) + b"".join(parts)
        while True:
            try:
                status, content = self._ask(request)
                break
            except _Ended as error:
                if self.process.wait() != 0:
                    raise CompileError(f"LLVM failed: {self._stderr_tail() or error}", plugin="x86") from error
            self.close()  # it was idle for too long
            self._start()
        self.usable = True
        if status:
            raise RuntimeError(content.decode())
        return content

    def kill(self) -> None:
        """End the process. A request in another thread fails."""
        self.process.kill()

    def close(self) -> None:
        """End the process and release it."""
        self._end()

    def _ask(self, request: bytes) -> tuple[int, bytes]:
        source, sink = self.process.stdout, self.process.stdin
        assert source is not None and sink is not None
        if not self._greeting_read:
            if source.read(len(emit.GREETING)) != emit.GREETING:
                raise NotStarted(self._stderr_tail() or "the compiler process ended early")
            self._greeting_read = True
        try:
            sink.write(request)
            sink.flush()
            status, size = emit.ANSWER.unpack(_read(source, emit.ANSWER.size))
            return status, _read(source, size)
        except BrokenPipeError as error:
            raise _Ended(str(error)) from error

    def _stderr_tail(self) -> str:
        """Return the tail of the process's stderr."""
        self._log.seek(max(self._log.seek(0, os.SEEK_END) - 500, 0))
        return self._log.read().decode(errors="replace").strip()


def _end(process: subprocess.Popen[bytes], log: IO[bytes], owner: int) -> None:
    """End a process and close its log. `owner`: id of the process that started it; in a fork of the owner, nothing is done."""
    if os.getpid() == owner:
        process.kill()
        with log, contextlib.suppress(OSError), process:
            pass


def _read(source: IO[bytes], size: int) -> bytes:
    data = source.read(size)
    if len(data) != size:
        raise _Ended("the compiler process ended early")
    return data


class Optimizer:
    """Compiles at most `IN_PROCESS_MODULES` modules in this process, and later ones in other processes, which are kept for the next
    module."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._modules = 0
        self._waiting: list[CompilerProcess] = []
        self._in_process_only = False

    def compile(self, text: str, features: str, symbol: str, effort: int) -> bytes:
        """Compile a module by `emit.emit`. Raises as `CompilerProcess.compile` does, except `OSError`: this process then compiles
        the module."""
        process = self._process()
        if process is not None:
            try:
                return process.compile(text, features, symbol, effort)
            except NotStarted:
                self._in_process_only = True
            except OSError:
                pass  # this process compiles the module
            finally:
                self._put_back(process)
        return emit.emit(text, features, symbol, effort)

    def _process(self) -> CompilerProcess | None:
        """Return a process for one module; None for this process."""
        with self._lock:
            self._modules += 1
            if self._modules <= IN_PROCESS_MODULES or self._in_process_only:
                return None
            if self._waiting:
                return self._waiting.pop()
        try:
            return CompilerProcess()
        except NotStarted:
            self._in_process_only = True
        except OSError:
            pass  # there may be room for another process next time
        return None

    def _put_back(self, process: CompilerProcess) -> None:
        if process.usable and process.modules < PROCESS_MODULES:
            with self._lock:
                self._waiting.append(process)
        else:
            process.close()


def optimizer() -> Optimizer:
    """Return the optimizer of this process."""
    return _optimizer(os.getpid())


@functools.cache
def _optimizer(process: int) -> Optimizer:
    """Create the optimizer of a process. A forked process must not use the pipes of its parent."""
    return Optimizer()
