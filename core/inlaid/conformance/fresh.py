"""Asks processes of their own, `python -m inlaid.conformance.inside`, with a request on standard input.

A request is a JSON object: `command`, one of `inside.COMMANDS`; `plugins`, names of plugins with the modules that they are; and
what the command takes. Answers are JSON too, each on a line of standard output.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

from inlaid.conformance.case import Failed

LIMIT = 300
"""Seconds that a process may take."""
MARK = "inlaid.conformance: "

Json = Any


def ask(
    command: str,
    plugins: Mapping[str, str],
    environment: Mapping[str, str] | None = None,
    limit: int = LIMIT,
    **arguments: Json,
) -> Json:
    """What a command answers in a new process. Raises `Failed` where the process crashes, raises, or takes more than `limit`
    seconds."""
    answers, problem = ask_each(command, plugins, environment, limit, **arguments)
    if problem is not None:
        raise Failed(problem)
    return answers[-1]


def ask_each(
    command: str,
    plugins: Mapping[str, str],
    environment: Mapping[str, str] | None = None,
    limit: int = LIMIT,
    **arguments: Json,
) -> tuple[list[Json], str | None]:
    """All that a command answers in a new process, and how that failed where it crashes, raises, takes more than `limit` seconds or
    answers nothing."""
    request = {"command": command, "plugins": dict(plugins), **arguments}
    surroundings = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **(environment or {})}
    line = [sys.executable, "-m", "inlaid.conformance.inside"]
    try:
        done = subprocess.run(line, input=json.dumps(request).encode(), env=surroundings, capture_output=True, timeout=limit)
    except subprocess.TimeoutExpired as error:
        return _answers(error.stdout), f"a process of its own took more than {limit} seconds"
    answers = _answers(done.stdout)
    if done.returncode == 0 and answers:
        return answers, None
    last = (done.stderr.decode(errors="replace").strip().splitlines() or ["it said nothing"])[-1]
    ended = f"signal {-done.returncode}" if done.returncode < 0 else f"status {done.returncode}"
    return answers, f"a process of its own ended with {ended}: {last}"


def _answers(output: bytes | None) -> list[Json]:
    """The answers among what a process prints; a line that it did not complete is none."""
    lines = (output or b"").decode(errors="replace").splitlines(keepends=True)
    return [json.loads(text.removeprefix(MARK)) for text in lines if text.startswith(MARK) and text.endswith("\n")]


def answer(found: Json) -> None:
    """Print an answer at once, on a line of its own whatever a plugin has printed."""
    print(f"\n{MARK}{json.dumps(found)}", flush=True)
