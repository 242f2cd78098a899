"""Compare the bench set on an OpenCL device with the x86 target: times, results and operator placement.

    python benchmarks/opencl.py [MODEL ...] [--target opencl] [--tiny] [--seconds 2] [--write docs/benchmarks-opencl.md]

MODEL is a model of benchmarks/zoo; the default is all in float32. The two targets alternate in one process, with one thread per
core. Times are medians and include copies of inputs and outputs. A model passes if every operator is in a region of the target, and
every result differs from x86 by at most 1e-3 of its greatest magnitude.
"""

from __future__ import annotations

import argparse
import datetime
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx

import inlaid
from inlaid.plugins.registry import default_registry
from machine import processor
from quantized import medians
from zoo import FLOAT, feeds, model_path

HOST = "x86"
RELATIVE = 1e-3
HEAD = """# Benchmarks on OpenCL

The `opencl` target compared with `x86` on the same cores, measured by `{command}`: {date}, {device}, {processor}.
Times are medians in milliseconds, copies of inputs and outputs included. `error` is the maximum difference from x86, relative to
the maximum magnitude. `elsewhere` lists the operators that other targets ran.

| model | opencl ms | x86 ms | ratio | error | elsewhere |
|---|---|---|---|---|---|
"""


@dataclass(frozen=True)
class Row:
    """Result of one model. `elsewhere`: operators that other targets ran; `error`: maximum over all results, relative to the
    result's greatest magnitude; times in milliseconds, NaN if not measured."""

    name: str
    device: float
    host: float
    error: float
    elsewhere: tuple[str, ...]

    @property
    def passed(self) -> bool:
        return self.error <= RELATIVE and not self.elsewhere

    def __str__(self) -> str:
        elsewhere = ", ".join(self.elsewhere) or "nothing"
        ratio = self.device / self.host
        return f"| {self.name} | {self.device:.2f} | {self.host:.2f} | {ratio:.2f} | {self.error:.0e} | {elsewhere} |"


def measured(name: str, target: str, tiny: bool, seconds: float) -> Row:
    """Compile a model for both targets and compare the results; time both unless `seconds` is 0."""
    model = onnx.load(model_path(name, tiny=tiny))
    device, host = (inlaid.compile(model, targets=[each]) for each in (target, HOST))
    inputs = feeds(model)
    error = max(map(_error, device.run(inputs).values(), host.run(inputs).values()))
    times = {"device": float("nan"), "host": float("nan")}
    if seconds:
        times = medians({"device": lambda: device.run(inputs), "host": lambda: host.run(inputs)}, seconds)
    return Row(name, times["device"], times["host"], error, _elsewhere(model, target))


def _error(actual: Any, expected: Any) -> float:
    """Maximum difference, relative to the maximum magnitude."""
    scale = float(np.abs(expected.astype(np.float64)).max(initial=0)) or 1.0
    return float(np.abs(actual.astype(np.float64) - expected.astype(np.float64)).max(initial=0)) / scale


def _elsewhere(model: onnx.ModelProto, target: str) -> tuple[str, ...]:
    """Names of the operators that other targets run."""
    kind = target.split(":")[0]
    report = inlaid.estimate(model, [target])
    return tuple(sorted({item.operator for item in report.operators if item.target.split(":")[0] != kind}))


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", metavar="MODEL")
    parser.add_argument("--target", default="opencl")
    parser.add_argument("--tiny", action="store_true", help="the small variants, of the models that have one")
    parser.add_argument("--seconds", type=float, default=2.0, help="for each target; 0 compares values alone")
    parser.add_argument("--write", type=Path, metavar="FILE")
    arguments = parser.parse_args()
    names = arguments.models or [name for name, entry in FLOAT.items() if not arguments.tiny or entry.tiny]
    rows = []
    for name in names:
        rows.append(measured(name, arguments.target, arguments.tiny, arguments.seconds))
        print(rows[-1], "" if rows[-1].passed else "FAILED", flush=True)
    if arguments.write:
        registry = default_registry()
        head = HEAD.format(
            command=f"python benchmarks/opencl.py --write {arguments.write}",
            date=datetime.date.today(),
            device=registry.probe(registry.target(arguments.target)).detail,
            processor=processor(),
        )
        arguments.write.write_text(head + "".join(f"{row}\n" for row in rows), encoding="utf-8")
    return 0 if all(row.passed for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
