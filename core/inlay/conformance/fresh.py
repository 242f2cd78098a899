"""What checks run in processes of their own: `python -m inlay.conformance.fresh`, with a request on standard input.

A request is a JSON object: `command`, one of `COMMANDS`; `plugins`, names of plugins with the modules that they are; and what the
command takes. The answer is JSON too, on the last line of standard output.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from importlib.metadata import EntryPoint
from typing import TYPE_CHECKING, Any

from inlay.conformance.case import Failed

if TYPE_CHECKING:
    from inlay.conformance.subject import Subject

LIMIT = 300
"""Seconds that a process may take."""
MARK = "inlay.conformance: "

Json = Any
Request = Mapping[str, Any]


def ask(command: str, plugins: Mapping[str, str], environment: Mapping[str, str] | None = None, **arguments: Json) -> Json:
    """What a command answers in a new process. Raises `Failed` where the process crashes, raises or hangs."""
    request = {"command": command, "plugins": dict(plugins), **arguments}
    surroundings = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **(environment or {})}
    line = [sys.executable, "-m", "inlay.conformance.fresh"]
    try:
        done = subprocess.run(line, input=json.dumps(request), env=surroundings, text=True, capture_output=True, timeout=LIMIT)
    except subprocess.TimeoutExpired:
        raise Failed(f"a process of its own took more than {LIMIT} seconds") from None
    answers = [text.removeprefix(MARK) for text in done.stdout.splitlines() if text.startswith(MARK)]
    if done.returncode or not answers:
        last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        ended = f"signal {-done.returncode}" if done.returncode < 0 else f"status {done.returncode}"
        raise Failed(f"a process of its own ended with {ended}: {last}")
    return json.loads(answers[-1])


def imports(request: Request) -> Json:
    """The modules that a plugin's module, and its declaration of targets, bring in."""
    importlib.import_module("inlay.plugins.registry")  # what whoever looks for plugins has loaded already
    before = set(sys.modules)
    module = importlib.import_module(request["module"])
    module.inlay_targets()
    return sorted(set(sys.modules) - before)


def compile_samples(request: Request) -> Json:
    """Hashes of the artifacts of samples. `cut_off`: whatever asks for the run side of the plugin raises."""
    from inlay.conformance.samples import fingerprints

    subject = _subject(request)
    if request["cut_off"]:
        module = importlib.import_module(subject.registry.module(subject.plugin))
        for hook in ("inlay_runtime", "inlay_probe"):
            setattr(module, hook, _refuse)
    return fingerprints(subject)


def _refuse(*arguments: object, **named: object) -> None:
    raise RuntimeError("compiling asked for a device")


def _subject(request: Request) -> Subject:
    from inlay.conformance.subject import Subject
    from inlay.plugins.hookspecs import GROUP
    from inlay.plugins.registry import PluginRegistry

    entry_points = [EntryPoint(name, module, GROUP) for name, module in request["plugins"].items()]
    return Subject(request["target"], PluginRegistry.discover(entry_points))


COMMANDS: Mapping[str, Callable[[Request], Json]] = {"imports": imports, "compile": compile_samples}


def main() -> None:
    """Do what the request on standard input asks."""
    request = json.loads(sys.stdin.read())
    answer = COMMANDS[request["command"]](request)
    print(f"\n{MARK}{json.dumps(answer)}")


if __name__ == "__main__":
    main()
