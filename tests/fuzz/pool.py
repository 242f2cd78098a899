"""Worker processes: each takes numbers of mutants, and is replaced if it crashes or hangs."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HARD_SECONDS = 60
"""Seconds of wall time after which a worker that has not ended a mutant is killed."""
_ROOT = Path(__file__).parents[2]
_LONGEST = 2000
"""Mutants after which a worker is replaced, so that memory that it keeps does not accumulate."""


@dataclass(frozen=True)
class Result:
    """Outcome of a mutant: "refused", "ran", "loop" (a legally endless loop), "crash", "hang" or "internal" (an exception outside
    Inlaid's family). `number` is the mutant's, or "@" and a file."""

    kind: str
    number: str
    outcome: str
    text: str
    where: str

    @property
    def bad(self) -> bool:
        """Whether the outcome is a fault of Inlaid."""
        return self.outcome in ("crash", "hang", "internal")


class Worker:
    """A worker process that is started on demand. `number` tells workers apart; `module` is what the process runs."""

    def __init__(self, corpus: Path, number: int = 0, module: str = "tests.fuzz.worker") -> None:
        self._corpus = corpus
        self._number = number
        self._module = module
        self._process: subprocess.Popen[bytes] | None = None
        self._use_count = 0
        self._buffer = b""

    def use(self, kind: str, number: str) -> Result:
        """Use a mutant."""
        if self._process is None:
            self._start()
        assert self._process is not None and self._process.stdin is not None
        self._process.stdin.write(f"{kind} {number}\n".encode())
        self._process.stdin.flush()
        begun = self._line(HARD_SECONDS * 5)  # a new worker imports first
        answer = begun and self._line(HARD_SECONDS)
        self._use_count += 1
        if answer is None:
            return self._ended(kind, number)
        outcome: dict[str, Any] = json.loads(answer.removeprefix("end "))
        if self._use_count >= _LONGEST or outcome["outcome"] in ("hang", "loop"):
            self.close()
        return Result(kind, number, **outcome)

    def _start(self) -> None:
        self._errors = tempfile.NamedTemporaryFile(prefix="inlaid-fuzz-")  # noqa: SIM115 - closed with the worker
        self._use_count, self._buffer = 0, b""
        command = [sys.executable, "-m", self._module, str(self._corpus), self._errors.name]
        # PoCL 3.0 has races between processes that share a cache.
        variables = {"POCL_CACHE_DIR": str(self._corpus / f"pocl-{self._number}"), "INLAID_CACHE": "off", "PYTHONHASHSEED": "0"}
        environment = {**os.environ, **variables}
        Path(variables["POCL_CACHE_DIR"]).mkdir(parents=True, exist_ok=True)
        self._process = subprocess.Popen(
            command, cwd=_ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )

    def _line(self, seconds: float) -> str | None:
        """Read a line; None if the process has ended or does not answer in time."""
        assert self._process is not None and self._process.stdout is not None
        descriptor = self._process.stdout.fileno()
        while b"\n" not in self._buffer:
            readable_fds, _, _ = select.select([descriptor], [], [], seconds)
            part = os.read(descriptor, 1 << 16) if readable_fds else b""
            if not part:
                return None
            self._buffer += part
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line.decode()

    def _ended(self, kind: str, number: str) -> Result:
        """Describe the end of the process."""
        assert self._process is not None
        alive = self._process.poll() is None and not _ends_soon(self._process)
        code = self._process.returncode
        where = Path(self._errors.name).read_text(errors="replace")[:1500]
        self.close()
        if alive:
            return Result(kind, number, "hang", f"no answer in {HARD_SECONDS} s", where)
        name = signal.Signals(-code).name if code is not None and code < 0 else f"exit status {code}"
        return Result(kind, number, "crash", name, where)

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            for stream in (self._process.stdin, self._process.stdout):
                if stream is not None:
                    stream.close()
            self._errors.close()
            self._process = None


def _ends_soon(process: subprocess.Popen[bytes]) -> bool:
    try:
        process.wait(2)
    except subprocess.TimeoutExpired:
        return False
    return True


def run_mutants(corpus: Path, work: Iterator[tuple[str, str]], workers: int, note: Callable[[Result], None]) -> None:
    """Use mutants, given as (kind, number), in several workers. `note` is called with each result, by one thread at a time."""
    lock = threading.Lock()
    failures: list[BaseException] = []

    def run(number: int) -> None:
        worker = Worker(corpus, number)
        try:
            while not failures:
                with lock:
                    item = next(work, None)
                if item is None:
                    return
                result = worker.use(*item)
                with lock:
                    note(result)
        except BaseException as error:
            failures.append(error)
        finally:
            worker.close()

    threads = [threading.Thread(target=run, args=(number,)) for number in range(workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


OUTCOMES = {"refused": "refused", "ran": "ran", "loop": "endless", "crash": "crashes", "hang": "hangs", "internal": "internal"}
"""Outcomes, with their columns in the table."""


def table(results: Sequence[tuple[str, Counter[str]]]) -> str:
    """Format the outcomes of each kind."""
    columns = tuple(OUTCOMES)
    rows = [f"{'kind':20} {'mutants':>8} " + " ".join(f"{name:>8}" for name in OUTCOMES.values())]
    total: Counter[str] = Counter()
    for kind, counts in results:
        total += counts
        rows.append(f"{kind:20} {sum(counts.values()):8} " + " ".join(f"{counts[name]:8}" for name in columns))
    rows.append(f"{'total':20} {sum(total.values()):8} " + " ".join(f"{total[name]:8}" for name in columns))
    return "\n".join(rows)
