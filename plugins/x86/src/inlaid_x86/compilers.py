"""Compilation of LLVM modules to objects by a thread and by worker processes. Each distinct module is compiled once and cached."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import queue
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import llvmlite
import llvmlite.binding as llvm

from inlaid_runtime.cache import DiskCache, digest
from inlaid_x86 import emit
from inlaid_x86.machine import compile_text, feature_text, rejected
from inlaid_x86.processes import CompilerProcess

SHARE = 1 << 17
"""Characters of LLVM text that must wait per worker before another process is started. Compiling them takes longer than starting
the process."""


class Compilers:
    """Compiles the modules of one region while later ones are generated. The first worker is a thread of this process, since LLVM
    runs without the interpreter lock; processes are started if modules wait. As a context manager, it ends the workers on exit."""

    def __init__(self, features: Sequence[str], store: DiskCache) -> None:
        self._features = tuple(features)
        self._store = store
        self._keys: dict[str, str] = {}
        self._objects: dict[str, bytes] = {}
        self._waiting: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._completions: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._pending: list[_Job] = []
        self._workers: list[_Worker] = []

    def __enter__(self) -> Compilers:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for worker in self._workers:
            worker.end()
            self._waiting.put(None)
        for worker in self._workers:
            worker.close()

    def kernel(self, text: str, effort: int = emit.FULL, extensions: Sequence[str] = ()) -> str:
        """Queue a module that defines a kernel as `emit.KERNEL`. Returns the final symbol of the kernel, which is equal for equal
        text. effort: see `emit.emit`. extensions: additional features for this kernel only."""
        features = feature_text((*self._features, *extensions))
        key = self._key(text, features, effort)
        symbol = f"inlaid_{key[:32]}"
        self._add(_Job(text, features, symbol, effort, symbol), key)
        return symbol

    def entry(self, text: str, symbol: str) -> None:
        """Queue a module that defines `symbol` under its final name."""
        features = feature_text(self._features)
        self._add(_Job(text, features, symbol, emit.CALLS), self._key(text, features, emit.CALLS))

    def finish(self, report: Callable[[int, int], None] = lambda count, total: None) -> dict[str, bytes]:
        """Wait for all objects and return them by symbol. `report(compiled, total)` is called with the number of compiled modules
        and the number of modules. Raises `CompileError` if LLVM rejects a module or crashes."""
        report(0, len(self._pending))
        for _ in self._workers:
            self._waiting.put(None)
        count = 0
        for _ in self._workers:
            while self._completions.get():  # False if a worker has ended
                count += 1
                report(count, len(self._pending))
        for job in self._pending:
            if isinstance(job.result, Exception):
                raise job.result
            assert job.result is not None
            self._objects[job.symbol] = job.result
            self._store.put(self._keys[job.symbol], job.result)
        return self._objects

    def _key(self, text: str, features: str, effort: int) -> str:
        return digest(fingerprint(), features, str(effort), text)

    def _add(self, job: _Job, key: str) -> None:
        if job.symbol in self._keys:
            return
        self._keys[job.symbol] = key
        cached = self._store.get(key)
        if cached is not None:
            self._objects[job.symbol] = cached
            return
        waiting = sum(len(item.text) for item in self._pending[len(self._pending) - self._waiting.qsize() :])
        self._pending.append(job)
        self._waiting.put(job)
        if (count := len(self._workers)) == 0:
            self._workers.append(_Worker(self._waiting, self._completions))
        elif count < _cores() and SHARE * count <= waiting:
            with contextlib.suppress(OSError):
                self._workers.append(_Process(self._waiting, self._completions))


@dataclass
class _Job:
    """A module to compile. `symbol`: key of the object. `renamed`: new name of the kernel, or "". `result`: the object or error."""

    text: str
    features: str
    symbol: str
    effort: int
    renamed: str = ""
    result: bytes | Exception | None = None


class _Worker:
    """A thread that compiles `jobs` until it gets None. It puts True into `completions` after each job, and False when it ends."""

    def __init__(self, jobs: queue.SimpleQueue[_Job | None], completions: queue.SimpleQueue[bool]) -> None:
        self._jobs = jobs
        self._completions = completions
        self._ended = False
        self._thread = threading.Thread(target=self._serve, daemon=True, name="inlaid-x86-compile")
        self._thread.start()

    def end(self) -> None:
        """Start no further job, and interrupt the current job if possible."""
        self._ended = True

    def close(self) -> None:
        """Wait for the thread to end."""
        self._thread.join()

    def _serve(self) -> None:
        while not self._ended and (job := self._jobs.get()) is not None:
            try:
                job.result = self._compile(job)
            except Exception as error:
                job.result = error
            self._completions.put(True)
        self._completions.put(False)

    def _compile(self, job: _Job) -> bytes:
        return compile_text(job.text, job.features, job.renamed, job.effort)


class _Process(_Worker):
    """A compiler process and the thread that feeds it."""

    def __init__(self, jobs: queue.SimpleQueue[_Job | None], completions: queue.SimpleQueue[bool]) -> None:
        self._process = CompilerProcess()
        super().__init__(jobs, completions)

    def end(self) -> None:
        super().end()
        if self._thread.is_alive():
            self._process.kill()

    def close(self) -> None:
        super().close()
        self._process.close()

    def _compile(self, job: _Job) -> bytes:
        try:
            return self._process.compile(job.text, job.features, job.renamed, job.effort)
        except RuntimeError as error:
            raise rejected(str(error)) from error
        except OSError:
            if self._ended:
                raise
            return super()._compile(job)
        finally:
            if not self._process.usable:
                self._ended = True  # the other workers continue, but `Compilers.finish` raises the error of a crash


def _cores() -> int:
    return len(os.sched_getaffinity(0))


@functools.cache
def fingerprint() -> str:
    """Return the part of an object's cache key that identifies the compiler: a hash of `emit.py`'s source and LLVM's version."""
    source = hashlib.sha256(Path(emit.__file__).read_bytes()).hexdigest()
    return f"{source} {llvmlite.__version__} {llvm.llvm_version_info}"
