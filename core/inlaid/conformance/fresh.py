"""What checks run in processes of their own: `python -m inlaid.conformance.fresh`, with a request on standard input.

A request is a JSON object: `command`, one of `COMMANDS`; `plugins`, names of plugins with the modules that they are; and what the
command takes. Answers are JSON too, each on a line of standard output.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict
from importlib.abc import MetaPathFinder
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import TYPE_CHECKING, Any

from inlaid.conformance.case import Failed

if TYPE_CHECKING:
    from inlaid.conformance.subject import Subject
    from inlaid.plugins.registry import PluginRegistry

COMPILER = tuple(
    f"inlaid.{name}"
    for name in ("graph", "tensor", "ops", "passes", "schedules", "lowering", "partitioning", "frontends", "driver")
)
"""Packages that a process which only runs models does without."""
LIMIT = 300
"""Seconds that a process may take."""
MARK = "inlaid.conformance: "

Json = Any
Request = Mapping[str, Any]


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
    line = [sys.executable, "-m", "inlaid.conformance.fresh"]
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


def imports(request: Request) -> Json:
    """The modules that a plugin's module, and its declaration of targets, bring in."""
    importlib.import_module("inlaid.plugins.registry")  # what whoever looks for plugins has loaded already
    before = set(sys.modules)
    module = importlib.import_module(request["module"])
    module.inlaid_targets()
    return sorted(set(sys.modules) - before)


def compile_samples(request: Request) -> Json:
    """Hashes of the artifacts of samples. `cut_off`: whatever asks for the run side of the plugin raises."""
    from inlaid.conformance.samples import compiled, fingerprints

    subject = _subject(request)
    if request["cut_off"]:
        module = importlib.import_module(subject.registry.module(subject.plugin))
        for hook in ("inlaid_runtime", "inlaid_probe"):
            setattr(module, hook, _refuse)
    return fingerprints(compiled(subject))


def run_cases(request: Request) -> Json:
    """How many cases were run, by their ids, in order; before that an answer for each, so that a crash costs one alone."""
    from inlaid.conformance.suite import cases, run_case

    subject = _subject(request)
    known = {case.id: case for case in cases(subject)}
    for name in request["cases"]:
        answer(asdict(run_case(subject, known[name])))
    return len(request["cases"])


def resident(request: Request) -> Json:
    """By how many bytes the process grows while it does the same over and over."""
    from inlaid.conformance.levels.runtime import resident_growth

    return resident_growth(_subject(request))


def run_packages(request: Request) -> Json:
    """Run packages, each on inputs in an .npz file, and write their outputs to others. `alone`: the compiler cannot be imported."""
    import numpy as np

    from inlaid.runtime.executable import Executable
    from inlaid.runtime.package import read_package

    registry = _registry(request)
    if request["alone"]:
        sys.meta_path.insert(0, _NoCompiler())
    for stem in map(Path, request["stems"]):
        executable = Executable(read_package(stem.with_suffix(".inlaid")), registry=registry)
        with np.load(stem.with_suffix(".in.npz")) as inputs:
            results = executable.run(dict(inputs))
        np.savez(stem.with_suffix(".out.npz"), **results)
    return len(request["stems"])


class _NoCompiler(MetaPathFinder):
    """Refuses the packages of the compiler."""

    def find_spec(self, fullname: str, path: object, target: object = None) -> None:
        """Raises `ImportError` for what only compiling needs."""
        if any(fullname == name or fullname.startswith(f"{name}.") for name in COMPILER):
            raise ImportError(f"{fullname} is of the compiler, and running a package must not need it")


def run_libraries(request: Request) -> Json:
    """Call functions of shared libraries, each on inputs in an .npz file, and write their outputs to others. `libraries`: stem,
    names of the inputs, names, shapes and element types of the outputs, and bytes of workspace."""
    import ctypes

    import numpy as np

    from inlaid.runtime.arrays import aligned_empty, usable
    from inlaid.types import dtype

    for stem, names, outputs, workspace in request["libraries"]:
        function = ctypes.CDLL(str(Path(stem).with_suffix(".so"))).model_run
        with np.load(Path(stem).with_suffix(".in.npz")) as inputs:
            given = [usable(inputs[name]) for name in names]
        results = {name: aligned_empty(tuple(shape), dtype(element).numpy) for name, shape, element in outputs}
        message = ctypes.create_string_buffer(256)
        scratch = aligned_empty((workspace,), np.uint8)
        if function(*(array.ctypes for array in (*given, *results.values(), scratch)), message):
            raise RuntimeError(message.value.decode(errors="replace"))
        np.savez(Path(stem).with_suffix(".out.npz"), **results)  # type: ignore[arg-type]
    return len(request["libraries"])


def _refuse(*arguments: object, **named: object) -> None:
    raise RuntimeError("compiling asked for a device")


def _registry(request: Request) -> PluginRegistry:
    from inlaid.plugins.hookspecs import GROUP
    from inlaid.plugins.registry import PluginRegistry

    return PluginRegistry.discover([EntryPoint(name, module, GROUP) for name, module in request["plugins"].items()])


def _subject(request: Request) -> Subject:
    from inlaid.conformance.subject import EXAMPLES, Subject

    return Subject(request["target"], _registry(request), request.get("examples", EXAMPLES))


COMMANDS: Mapping[str, Callable[[Request], Json]] = {
    "imports": imports,
    "compile": compile_samples,
    "run": run_cases,
    "resident": resident,
    "packages": run_packages,
    "libraries": run_libraries,
}


def main() -> None:
    """Do what the request on standard input asks."""
    request = json.loads(sys.stdin.read())
    answer(COMMANDS[request["command"]](request))


if __name__ == "__main__":
    main()
