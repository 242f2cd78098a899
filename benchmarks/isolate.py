"""Measures what `inlaid compile --isolate` costs beside a plain compilation, in one run.

    python benchmarks/isolate.py [MODEL ...] [--rounds 3]

Models are those of benchmarks/zoo, by name. Each is compiled for the x86 plugin, and for an example of a vendor's plugin first:
BLAS, which prints C, and, in int8 (signed, by ONNX Runtime's quantizer), the accelerator of examples/acme. Every compilation is a
process that starts with an empty cache, and the two kinds take turns. Times are the least of several rounds; processor time counts
all processes. Exits with 1 where isolation takes more than twice the time.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

import onnx

from compile import Spent, least, spent
from zoo import feeds, model_path
from zoo.quantized import quantized

LIMIT = 2.0
"""How often the time of a plain compilation isolation may take."""
ROOT = Path(__file__).parents[1]
EXAMPLES = (ROOT / "examples" / "acme", ROOT / "tests" / "vendor_example" / "blas")
DEFAULT = ("resnet50", "squeezenet")
COMPILE = ("-c", "from inlaid_cli import main; main()", "compile")


def install(folder: Path) -> str:
    """Describe the example plugins to Python's metadata in a folder. The search path by which a process finds them."""
    sources = []
    for project in EXAMPLES:
        facts = tomllib.loads((project / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        info = folder / f"{facts['name'].replace('-', '_')}-{facts['version']}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {facts['name']}\nVersion: {facts['version']}\n")
        points = [f"{name} = {module}" for name, module in facts["entry-points"]["inlaid.plugins"].items()]
        (info / "entry_points.txt").write_text("\n".join(["[inlaid.plugins]", *points, ""]))
        sources.append(str(project / "src"))
    return os.pathsep.join([str(folder), *sources])


def measure(path: Path, targets: str, rounds: int, search: str) -> tuple[Spent, Spent]:
    """What compiling a model takes, plain and isolated."""
    times: dict[bool, list[Spent]] = {False: [], True: []}
    with tempfile.TemporaryDirectory() as scratch:
        environment = {
            **os.environ,
            "XDG_CACHE_HOME": scratch,
            "INLAID_CACHE": "on",
            "PYTHONPATH": os.pathsep.join([search, os.environ.get("PYTHONPATH", "")]),
        }
        command = [sys.executable, *COMPILE, str(path), "--target", targets, "-o", str(Path(scratch) / "out.inlaid")]

        def run(isolated: bool) -> None:
            shutil.rmtree(Path(scratch) / "inlaid", ignore_errors=True)
            arguments = [*command, *(["--isolate"] if isolated else [])]
            process = subprocess.run(arguments, env=environment, check=True, capture_output=True, text=True)
            if "went from" in process.stderr:
                raise SystemExit(process.stderr)

        for _ in range(rounds):
            for isolated, samples in times.items():
                samples.append(spent(lambda isolated=isolated: run(isolated)))
    return least(times[False]), least(times[True])


def cases(name: str, folder: Path) -> list[tuple[Path, str]]:
    """Files of a model, and the targets that each is compiled for."""
    path = model_path(name)
    model = onnx.load(path)
    integers = folder / f"{name}_int8.onnx"
    onnx.save(quantized(model, lambda seed: feeds(model, seed), signed=True), integers)
    return [(path, "x86"), (path, "blas,x86"), (integers, "acme,x86")]


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=DEFAULT, help=f"of benchmarks/zoo; default: {', '.join(DEFAULT)}")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    print(f"{len(os.sched_getaffinity(0))} cores, load {os.getloadavg()[0]:.1f}")
    print(f"{'wall (processor), s':<32}{'plain':>18}{'isolated':>18}{'ratio':>16}")
    worst_ratio = 0.0
    with tempfile.TemporaryDirectory() as folder:
        search = install(Path(folder))
        for name in arguments.models:
            for path, targets in cases(name, Path(folder)):
                plain, isolated = measure(path, targets, arguments.rounds, search)
                ratios = isolated.wall / plain.wall, isolated.processor / plain.processor
                worst_ratio = max(worst_ratio, *ratios)
                print(f"{path.stem:<20}{targets:<12}{plain}{isolated}{ratios[0]:>8.2f} ({ratios[1]:>5.2f})", flush=True)
    return int(worst_ratio > LIMIT)


if __name__ == "__main__":
    sys.exit(main())
