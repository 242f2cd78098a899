"""Times packages with symbolic sizes beside packages compiled for one size, and beside peers that run the same symbolic model.

    python benchmarks/symbolic.py [--only REGEX] [--sizes 3] [--seed N] [--minutes 40] [--write docs/benchmarks-symbolic.md]
    python benchmarks/symbolic.py --kernels [--only REGEX] [--cpu x86-64-v3]
    python benchmarks/symbolic.py --draw --write docs/benchmarks-symbolic.md

Sizes are drawn anew by every call, unless `--seed` repeats those of an earlier one. At each size all engines take turns in
processes of their own (`inlaid bench --help`): the symbolic package, which is compiled once, a package for that size, and peers.
Each row is appended to a file as a line of JSON when it is measured, with its date; what was measured longest ago comes first, and
nothing is begun after `--minutes`: so a call goes on where the last one ended. The page is drawn from the latest row of each.
"""

from __future__ import annotations

import argparse
import re
import secrets
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import onnx

import symbolic_page as page
from inlaid_bench import engines
from inlaid_bench.comparison import PEERS, time_in_turns
from inlaid_bench.engines import Job
from inlaid_runtime.errors import InlaidError
from machine import processor, versions
from symbolic_page import STATIC, SYMBOLIC, At, Row
from zoo import FLOAT, INT8, MODELS, cache_folder, written
from zoo.kernels import IN_BF16, KERNELS
from zoo.sizes import Symbolic, feeds

DISTRIBUTIONS = ("inlaid", "numpy", "onnx", "onnxruntime", "openvino")


@dataclass(frozen=True)
class Subject:
    """What is measured. `precision` is f32, int8 for models in eight bits, or bf16 for float32 ones that are computed in it."""

    kind: str
    name: str
    precision: str
    model: Symbolic


def subjects(kernels: bool) -> list[Subject]:
    """All kernels, or all models."""
    if kernels:
        kernel_subjects = [
            Subject("kernel", name, "int8" if name.endswith("_int8") else "f32", model) for name, model in KERNELS.items()
        ]
        return kernel_subjects + [Subject("kernel", name, "bf16", KERNELS[name]) for name in IN_BF16]
    chosen = [(name, precision) for names, precision in ((FLOAT, "f32"), (INT8, "int8"), (FLOAT, "bf16")) for name in names]
    return [Subject("model", name, precision, model) for name, precision in chosen if (model := MODELS[name].symbolic) is not None]


def compiled(job: Job, package: Path) -> float:
    """Compile a model to a package in a fresh process, with nothing taken from the cache. Returns the seconds that it took."""
    start = time.perf_counter()
    command = [sys.executable, "-P", engines.__file__, "compile", job.text(), str(package)]
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    if process.returncode:
        raise ChildProcessError((process.stderr.strip().splitlines() or ["no message"])[-1])
    return time.perf_counter() - start


@dataclass(frozen=True)
class Settings:
    """How to measure. `cpu` is what Inlaid compiles for: the option of target x86."""

    cpu: str
    threads: int
    against: tuple[str, ...]
    sizes: int
    seed: int
    rounds: int
    seconds: float

    @property
    def targets(self) -> tuple[str, ...]:
        """Those of Inlaid."""
        return (f"x86:threads={self.threads},cpu={self.cpu}",)


def measure(subject: Subject, settings: Settings) -> Row:
    """Compile once with symbolic sizes, then at each size drawn compile for it and time all engines."""
    # Other subjects that are measured besides do not change what is drawn.
    generator = np.random.default_rng([settings.seed, *subject.name.encode()])
    row = Row(subject.kind, subject.name, subject.precision, settings.cpu, settings.threads, settings.seed)
    with tempfile.TemporaryDirectory(prefix="inlaid-bench-") as scratch:
        folder = Path(scratch)
        path = written(cache_folder(), f"{subject.kind}_{subject.name}_symbolic", subject.model.build)
        precision = "bf16" if subject.precision == "bf16" else "model"
        job = Job(SYMBOLIC, "inlaid", str(path), (), "", "", settings.threads, settings.targets, precision=precision)
        try:
            seconds = compiled(job, folder / "symbolic.inlaid")
        except ChildProcessError as error:
            return replace(row, failed=str(error))
        model = onnx.load(path)
        drawn = [subject.model.draw(generator) for _ in range(settings.sizes)]
        at = tuple(_measure_at(sizes, job, model, folder, settings) for sizes in drawn)
    return replace(row, compile_s=seconds, at=at)


def _measure_at(sizes: Mapping[str, int], symbolic: Job, model: onnx.ModelProto, folder: Path, settings: Settings) -> At:
    """All engines at one size. Files go to a folder."""
    arrays = feeds(model, sizes=sizes)
    inputs = folder / "inputs.npz"
    np.savez(inputs, *arrays.values())
    job = replace(symbolic, names=tuple(arrays), inputs=str(inputs))
    package = folder / "static.inlaid"
    try:
        seconds = compiled(replace(symbolic, dims=sizes), package)
        jobs = [
            replace(job, model=str(folder / "symbolic.inlaid"), outputs=str(folder / "symbolic.npz")),
            replace(job, label=STATIC, model=str(package), outputs=str(folder / "static.npz")),
            *(replace(job, label=name, engine=name, targets=(), outputs=str(folder / f"{name}.npz")) for name in settings.against),
        ]
        return At(sizes, seconds, time_in_turns(jobs, settings.rounds, settings.seconds))
    except (InlaidError, ChildProcessError) as error:
        return At(sizes, 0.0, " ".join(str(error).split()))


def parse() -> argparse.Namespace:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", metavar="REGEX", help="only the models or kernels whose name this matches")
    parser.add_argument("--kernels", action="store_true", help="single kernels, no whole models; about 3 minutes")
    parser.add_argument("--precisions", nargs="+", default=page.PRECISIONS, choices=page.PRECISIONS, metavar="PRECISION")
    parser.add_argument("--cpu", default="native", help="what Inlaid compiles for, such as x86-64-v3; peers use what there is")
    parser.add_argument("--threads", type=int, default=1, help="default: 1")
    parser.add_argument("--against", nargs="*", choices=PEERS, metavar="PEER", help="default: onnxruntime; for models openvino too")
    parser.add_argument("--sizes", type=int, help="sizes to draw for each; default: 3, for kernels 1")
    parser.add_argument("--seed", type=int, default=secrets.randbelow(1 << 31), help="of the sizes; default: another each time")
    parser.add_argument("--rounds", type=int, help="default: 5, for kernels 3")
    parser.add_argument("--seconds", type=float, help="how long each engine runs in a round; default: 0.5, for kernels 0.03")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin nothing after that; default: no limit")
    parser.add_argument("--draw", action="store_true", help="measure nothing: only draw the page")
    parser.add_argument("--results", type=Path, help="where rows are kept; default: the user's cache folder")
    parser.add_argument("--write", type=Path, help="write the page to this file")
    parser.add_argument("--title", default=page.TITLE, help="of the page")
    arguments = parser.parse_args()
    kernels = arguments.kernels
    if arguments.against is None:
        arguments.against = ["onnxruntime"] if kernels else ["onnxruntime", "openvino"]
    arguments.sizes = arguments.sizes or (1 if kernels else 3)
    arguments.rounds = arguments.rounds or (3 if kernels else 5)
    arguments.seconds = arguments.seconds if arguments.seconds is not None else 0.03 if kernels else 0.5
    arguments.results = arguments.results or cache_folder().parents[1] / "benchmarks" / "symbolic.jsonl"
    return arguments


def run(arguments: argparse.Namespace) -> Iterator[Row]:
    """Measure what is asked for, that which was measured longest ago first."""
    until = time.monotonic() + 60 * arguments.minutes
    chosen = re.compile(arguments.only).search
    before = {row.key: row.date for row in page.latest(arguments.results)}
    settings = Settings(
        arguments.cpu,
        arguments.threads,
        tuple(arguments.against),
        arguments.sizes,
        arguments.seed,
        arguments.rounds,
        arguments.seconds,
    )
    selection = [item for item in subjects(arguments.kernels) if chosen(item.name) and item.precision in arguments.precisions]

    def measured(subject: Subject) -> str:
        return before.get((subject.kind, subject.name, subject.precision, settings.cpu, settings.threads), "")

    for subject in sorted(selection, key=measured):
        if time.monotonic() > until:
            return
        yield measure(subject, settings)


def main() -> None:
    """Measure, keep and draw."""
    arguments = parse()
    if not arguments.draw:
        started, machine, package_versions = time.perf_counter(), processor(), versions(*DISTRIBUTIONS)
        print(f"sizes of --seed {arguments.seed}; {page.HEADER}", flush=True)
        rows = []
        for row in run(arguments):
            rows.append(replace(row, machine=machine, versions=package_versions))
            page.keep(arguments.results, rows[-1])
            print(page.line(rows[-1]), flush=True)
        print(page.summary(rows))
        print(f"{time.perf_counter() - started:.0f} s; kept in {arguments.results}")
    if arguments.write:
        arguments.write.parent.mkdir(parents=True, exist_ok=True)
        arguments.write.write_text(page.draw(page.latest(arguments.results), arguments.title), encoding="utf-8")
    elif arguments.draw:
        print(page.draw(page.latest(arguments.results)))


if __name__ == "__main__":
    main()
