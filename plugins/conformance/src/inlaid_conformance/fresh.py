"""Runs commands in new processes, `python -m inlaid_conformance.inside`, with a request on standard input.

A request is a JSON object: `command`, one of `inside.COMMANDS`; `plugins`, module names by group and plugin name; and the command's
arguments. Each answer is JSON on one line of standard output.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

from inlaid_conformance.case import Failed
from inlaid_conformance.time_limit import GRACE, describe_end

LIMIT = 300
"""Time limit of a process in seconds."""
MARK = "inlaid_conformance: "

Json = Any


def ask(
    command: str,
    plugins: Mapping[str, Mapping[str, str]],
    environment: Mapping[str, str] | None = None,
    limit: float = LIMIT,
    **arguments: Json,
) -> Json:
    """Run a command in a new process and return its answer. Raises `Failed` if the process crashes, raises, or exceeds `limit`
    seconds."""
    answers, problem = ask_each(command, plugins, environment, limit, **arguments)
    if problem is not None:
        raise Failed(problem)
    return answers[-1]


def ask_each(
    command: str,
    plugins: Mapping[str, Mapping[str, str]],
    environment: Mapping[str, str] | None = None,
    limit: float = LIMIT,
    **arguments: Json,
) -> tuple[list[Json], str | None]:
    """Run a command in a new process. Returns all answers, and a description of the failure if the process crashes, raises, exceeds
    `limit` seconds or gives no answer."""
    request = {"command": command, "plugins": plugins, "limit": limit, **arguments}
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **(environment or {})}
    command_line = [sys.executable, "-m", "inlaid_conformance.inside"]
    try:
        process = subprocess.run(
            command_line, input=json.dumps(request).encode(), env=variables, capture_output=True, timeout=limit + GRACE
        )
    except subprocess.TimeoutExpired as error:
        return _answers(error.stdout), f"a new process took more than {limit:g} s"
    answers = _answers(process.stdout)
    if process.returncode == 0 and answers:
        return answers, None
    timeout = describe_end(process.stderr.decode(errors="replace"))
    if timeout is not None:
        return answers, f"a new process had to be ended: {timeout}"
    last_line = (process.stderr.decode(errors="replace").strip().splitlines() or ["no output"])[-1]
    ended = f"signal {-process.returncode}" if process.returncode < 0 else f"status {process.returncode}"
    return answers, f"a new process exited with {ended}: {last_line}"


def _answers(output: bytes | None) -> list[Json]:
    """Parse the answers in a process's output; an incomplete line is ignored."""
    lines = (output or b"").decode(errors="replace").splitlines(keepends=True)
    return [json.loads(text.removeprefix(MARK)) for text in lines if text.startswith(MARK) and text.endswith("\n")]


def answer(payload: Json) -> None:
    """Print an answer immediately, on a separate line even if a plugin has printed something."""
    print(f"\n{MARK}{json.dumps(payload)}", flush=True)
