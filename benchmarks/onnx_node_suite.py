"""Run the node cases and light models that the onnx package carries, and say what passes, and where it ran.

    python benchmarks/onnx_node_suite.py --device x86 [--match REGEX] [--jobs 2] [--write docs/onnx-coverage.md]

A case passes when every output is as ONNX's own test runner wants it: same shape and dtype, values within the case's tolerance.
"""

from __future__ import annotations

import argparse
import collections
import functools
import importlib
import multiprocessing
import re
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

LIGHT = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
TIME_LIMIT = 120.0
"""Seconds that a case may take."""


@dataclass(frozen=True)
class Outcome:
    """What became of one case. `state`: "native" when everything ran on the device, "constant" when nothing was left to run,
    "fallback" when part of it ran on the reference target (`reason`: which operators), "failed" (`reason`: why)."""

    name: str
    state: str
    reason: str = ""
    seconds: float = 0.0

    @property
    def passed(self) -> bool:
        return self.state != "failed"


@functools.cache
def node_cases() -> dict[str, Any]:
    """ONNX's node test cases by name."""
    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {case.name: case for case in collect_testcases(None)}


def run_node_case(case: Any, device: str) -> Outcome:
    """One node case on a device."""
    from inlaid.onnx_backend import prepare

    start = time.perf_counter()
    try:
        prepared = prepare(case.model, device)
        for inputs, expected in case.data_sets:
            outputs = prepared.run([_array(item) for item in inputs])
            check(outputs, [_array(item) for item in expected], case.rtol, case.atol)
    except Exception as error:  # one case must not end the run
        return Outcome(case.name, "failed", _reason(error), time.perf_counter() - start)
    return Outcome(case.name, *where(prepared, case.model, device), time.perf_counter() - start)


def where(prepared: Any, model: onnx.ModelProto, device: str) -> tuple[str, str]:
    """Where a prepared model ran: a state of `Outcome` and its reason."""
    regions = [region for program in prepared.programs for region in program.regions]
    if not regions:
        return "constant", ""
    elsewhere = {node for region in regions if region.target.split(":")[0] != device.split(":")[0] for node in region.nodes}
    if not elsewhere:
        return "native", ""
    operators = dict(_operators(model.graph))
    return "fallback", ", ".join(sorted({operators.get(node.split("/")[0], node) for node in elsewhere}))


def _operators(graph: onnx.GraphProto) -> Iterator[tuple[str, str]]:
    """The names by which spans know the nodes of a graph and its subgraphs, with their operators."""
    for node in graph.node:
        yield node.name or next(filter(None, node.output), node.op_type), node.op_type
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                yield from _operators(attribute.g)


def _array(item: Any) -> Any:
    return numpy_helper.to_array(item) if isinstance(item, onnx.TensorProto) else item


def check(actual: Sequence[Any], expected: Sequence[Any], rtol: float, atol: float) -> None:
    """Compare as ONNX's runner does. Raises AssertionError."""
    assert len(actual) == len(expected), f"{len(actual)} values instead of {len(expected)}"
    for got, expected_value in zip(actual, expected, strict=True):
        if isinstance(expected_value, (list, tuple)):
            assert isinstance(got, (list, tuple)), f"a {type(got).__name__} instead of a sequence"
            check(got, expected_value, rtol, atol)
            continue
        if expected_value is None or got is None:
            assert got is expected_value, "an optional that is empty, or should be"
            continue
        assert got.shape == np.shape(expected_value), f"shape {got.shape} instead of {np.shape(expected_value)}"
        if expected_value.dtype == object:
            np.testing.assert_array_equal(got, expected_value)
            continue
        assert got.dtype == expected_value.dtype, f"element type {got.dtype} instead of {expected_value.dtype}"
        tolerance = rtol
        if got.dtype.name == "bfloat16":
            tolerance, got, expected_value = max(rtol, 2**-6), got.astype(np.float32), expected_value.astype(np.float32)
        np.testing.assert_allclose(got, expected_value, rtol=tolerance, atol=atol)


def _reason(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [""]
    if isinstance(error, AssertionError) and len(lines) > 1:
        return f"the values differ: {lines[1]}"
    return f"{type(error).__name__}: {lines[0]}"[:300]


def light_input(model: onnx.ModelProto) -> list[np.ndarray[Any, Any]]:
    """The inputs that ONNX's runner gives light models: a ramp from 0 towards 1 of the declared shape, unknown sizes being 1."""
    initialized = {item.name for item in model.graph.initializer}
    arrays = []
    for item in model.graph.input:
        if item.name not in initialized:
            shape = [dim.dim_value if dim.HasField("dim_value") else 1 for dim in item.type.tensor_type.shape.dim]
            count = int(np.prod(shape))
            arrays.append((np.arange(count).reshape(shape) / count).astype(np.float32))
    return arrays


def run_light_model(name: str, device: str) -> Outcome:
    """One light model, such as "light_resnet50", on a device; tolerances are those of ONNX's runner."""
    from inlaid.onnx_backend import prepare

    start = time.perf_counter()
    try:
        model = onnx.load(LIGHT / f"{name}.onnx")
        prepared = prepare(model, device)
        outputs = prepared.run(light_input(model))
        expected = [
            numpy_helper.to_array(onnx.load_tensor(LIGHT / f"{name}_output_{index}.pb")) for index in range(len(model.graph.output))
        ]
        check(outputs, expected, 1e-3, 1e-7)
    except Exception as error:  # likewise
        return Outcome(name, "failed", _reason(error), time.perf_counter() - start)
    return Outcome(name, *where(prepared, model, device), time.perf_counter() - start)


def _serve(connection: Connection, names: Sequence[str], device: str) -> None:
    """Run cases in a process of their own and send each outcome."""
    warnings.simplefilter("ignore")
    cases = node_cases()
    for name in names:
        connection.send(run_light_model(name, device) if name.startswith("light_") else run_node_case(cases[name], device))


def _run_share(names: Sequence[str], device: str, report: Callable[[Outcome], None]) -> None:
    """Run cases one after another. A case that kills its process or takes too long fails, and the rest go on in a new process."""
    context = multiprocessing.get_context("fork")
    rest = list(names)
    while rest:
        receiver, sender = context.Pipe(duplex=False)
        process = context.Process(target=_serve, args=(sender, rest, device), daemon=True)
        process.start()
        sender.close()
        try:
            while rest:
                if not receiver.poll(TIME_LIMIT):
                    report(Outcome(rest.pop(0), "failed", f"takes more than {TIME_LIMIT} s", TIME_LIMIT))
                    break
                report(receiver.recv())
                del rest[0]
        except EOFError:
            process.join()
            report(Outcome(rest.pop(0), "failed", f"the process ended with code {process.exitcode}"))
        finally:
            process.kill()
            process.join()


def run_cases(names: Sequence[str], device: str, jobs: int) -> list[Outcome]:
    """All named cases, in that order, in `jobs` processes."""
    outcomes: dict[str, Outcome] = {}

    def report(outcome: Outcome) -> None:
        outcomes[outcome.name] = outcome
        if sys.stderr.isatty():
            print(f"\r{len(outcomes)}/{len(names)} {outcome.name[:60]:60}", end="", file=sys.stderr)

    # Before the fork, so that the processes share it, and a broken installation shows at once.
    importlib.import_module("inlaid.onnx_backend")
    node_cases()
    with ThreadPoolExecutor(jobs) as threads:
        for share in [threads.submit(_run_share, names[start::jobs], device, report) for start in range(jobs)]:
            share.result()
    if sys.stderr.isatty():
        print(file=sys.stderr)
    return [outcomes[name] for name in names]


def summary(outcomes: Sequence[Outcome]) -> str:
    """Counts in one line."""
    states = collections.Counter(item.state for item in outcomes)
    passed = sum(item.passed for item in outcomes)
    return (
        f"{passed} of {len(outcomes)} passed: {states['native']} wholly native, {states['constant']} evaluated at compile time, "
        f"{states['fallback']} partly on the reference target; {states['failed']} failed"
    )


def coverage_page(outcomes: Sequence[Outcome], device: str) -> str:
    """The coverage page: counts, and what falls back or fails, by reason."""
    nodes = [item for item in outcomes if not item.name.startswith("light_")]
    lights = [item for item in outcomes if item.name.startswith("light_")]
    lines = [
        "# ONNX coverage",
        "",
        f"Generated by `python benchmarks/onnx_node_suite.py --device {device} --write docs/onnx-coverage.md` with onnx "
        f"{onnx.__version__}.",
        "",
        f"Node cases: {summary(nodes)}.",
        "",
        f"Light models: {summary(lights)}.",
        "",
        "A case is evaluated at compile time if it has no inputs, or reads only their shape. Cases whose inputs decide the shape "
        "of the output, and are bound at the first run, count as well.",
    ]
    for state, title, column in (
        ("fallback", "Runs partly on the reference target", "operators on reference"),
        ("failed", "Fails", "reason"),
        ("constant", "Evaluated at compile time", ""),
    ):
        groups: dict[str, list[str]] = collections.defaultdict(list)
        for item in outcomes:
            if item.state == state:
                groups[_group(item)].append(item.name)
        if groups:
            lines += ["", f"## {title}", "", f"| {column} | cases | which |", "| --- | ---: | --- |"]
            for reason, names in sorted(groups.items(), key=lambda group: (-len(group[1]), group[0])):
                shown = ", ".join(f"`{name.removeprefix('test_')}`" for name in names)
                lines.append(f"| {reason.replace('|', '/')} | {len(names)} | {shown} |")
    return "\n".join(lines) + "\n"


def _group(item: Outcome) -> str:
    """The reason without what differs from case to case: the place and the numbers."""
    if item.reason.startswith("the values differ"):
        if re.search("bernoulli|training_dropout", item.name):
            return "random operators draw from Inlaid's own generator"
        if "dft_inverse" in item.name:
            return "the expected values contain rounding errors above the tolerance; the exact result is zero"
        return "the values differ by more than the tolerance"
    reason = re.sub(r" \(operator [^)]*\)|; inputs are .*", "", item.reason)
    reason = re.sub(r" \(opset \d+\)", "", reason)
    return re.sub(r"specialize=.*", "...", reason)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Run the node cases and light models of the onnx package.")
    parser.add_argument("--device", default="x86", help="target to run on: x86, reference (default: %(default)s)")
    parser.add_argument("--match", default="", help="only the cases whose name this regular expression matches")
    parser.add_argument("--jobs", type=int, default=2, help="processes (default: %(default)s)")
    parser.add_argument("--write", type=Path, help="write the coverage page to this file")
    parser.add_argument("--verbose", action="store_true", help="print each case that falls back or fails")
    options = parser.parse_args(arguments)
    names = [*node_cases(), *sorted(path.stem for path in LIGHT.glob("*.onnx"))]
    outcomes = run_cases([name for name in names if re.search(options.match, name)], options.device, options.jobs)
    if options.verbose:
        for item in outcomes:
            if item.state in ("failed", "fallback"):
                print(f"{item.state} {item.name} ({item.seconds:.1f} s): {item.reason}")
    print(summary(outcomes))
    if options.write:
        options.write.write_text(coverage_page(outcomes, options.device))
    return 0


if __name__ == "__main__":
    sys.exit(main())
