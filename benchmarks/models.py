"""Times Inlay beside ONNX Runtime on the models that the onnx package carries, one thread each.

    python benchmarks/models.py [MODEL ...] [--rounds 5] [--threads 1] [--write docs/benchmarks.md]

Each round runs every engine in a process of its own, one after the other, so that neither steals the other's cores; figures are
medians over rounds of the best of several runs, and the ratio is taken round by round. Cold compile time includes Python's start.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

import onnx

LIGHT = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
MODELS = (
    "resnet50",
    "squeezenet",
    "shufflenet",
    "densenet121",
    "inception_v1",
    "inception_v2",
    "bvlc_alexnet",
    "zfnet512",
    "vgg19",
)


def inputs_of(path: Path) -> dict[str, object]:
    """Inputs by name: rising numbers in [0, 1), as ONNX's own runner makes them for these models."""
    import numpy as np

    model = onnx.load(path)
    known = {item.name for item in model.graph.initializer}
    arrays = {}
    for item in model.graph.input:
        if item.name not in known:
            shape = tuple(dim.dim_value for dim in item.type.tensor_type.shape.dim)
            count = int(np.prod(shape))
            arrays[item.name] = (np.arange(count).reshape(shape) / count).astype(np.float32)
    return arrays


def measure(engine: str, path: Path, threads: int) -> dict[str, float]:
    """Compile and run in this process: seconds to prepare, and the best of several runs in milliseconds."""
    import resource

    inputs = inputs_of(path)
    start = time.perf_counter()
    if engine == "inlay":
        import inlay

        executable = inlay.compile(path, [f"x86:threads={threads}"])
        run = executable.run
    else:
        import onnxruntime as ort

        options = ort.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        session = ort.InferenceSession(path.read_bytes(), options, providers=["CPUExecutionProvider"])

        def run(arrays: dict[str, object]) -> object:
            return session.run(None, arrays)

    prepared = time.perf_counter() - start
    run(inputs)
    times = []
    until = time.perf_counter() + 1.5
    while len(times) < 5 or (time.perf_counter() < until and len(times) < 200):
        begin = time.perf_counter()
        run(inputs)
        times.append((time.perf_counter() - begin) * 1e3)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"prepare_s": prepared, "run_ms": min(times), "peak_mib": peak}


def in_process(engine: str, path: Path, threads: int) -> dict[str, float]:
    """`measure` in a fresh process."""
    command = [sys.executable, __file__, "--measure", engine, str(path), "--threads", str(threads)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{engine} failed on {path.name}:\n{done.stderr[-2000:]}")
    facts: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return facts


def compare(name: str, rounds: int, threads: int) -> str:
    """One row of the table."""
    path = LIGHT / f"light_{name}.onnx"
    ours, theirs = [], []
    for _ in range(rounds):
        ours.append(in_process("inlay", path, threads))
        theirs.append(in_process("onnxruntime", path, threads))
    ratios = [a["run_ms"] / b["run_ms"] for a, b in zip(ours, theirs, strict=True)]

    def median(rows: list[dict[str, float]], key: str) -> float:
        return statistics.median(row[key] for row in rows)

    return (
        f"| {name} | {median(ours, 'run_ms'):.2f} | {median(theirs, 'run_ms'):.2f} | {statistics.median(ratios):.2f} "
        f"({min(ratios):.2f} to {max(ratios):.2f}) | {median(ours, 'prepare_s'):.2f} | {median(ours, 'peak_mib'):.0f} "
        f"| {median(theirs, 'peak_mib'):.0f} |"
    )


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*", help=f"of {', '.join(MODELS)}; default: all")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--write", type=Path, help="write the table to this file too")
    parser.add_argument("--measure", nargs=2, metavar=("ENGINE", "PATH"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.measure:
        print(json.dumps(measure(args.measure[0], Path(args.measure[1]), args.threads)))
        return
    lines = [
        "| model | Inlay, ms | ONNX Runtime, ms | ratio (least to greatest) | compile, s | peak MiB | peak MiB, ONNX Runtime |",
        "|---|---|---|---|---|---|---|",
    ]
    print("\n".join(lines))
    for name in args.models or MODELS:
        lines.append(compare(name, args.rounds, args.threads))
        print(lines[-1], flush=True)
    if args.write:
        head = machine(args.threads, args.rounds)
        args.write.write_text(f"# Benchmarks\n\n{head}\n\n" + "\n".join(lines) + "\n")


def machine(threads: int, rounds: int) -> str:
    """What the figures were taken on."""
    import onnxruntime as ort

    import inlay

    cpu = next((line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line), "?")
    return (
        f"`python benchmarks/models.py --threads {threads} --rounds {rounds}` on {time.strftime('%Y-%m-%d')}: {cpu}, "
        f"{threads} thread(s), Python {sys.version.split()[0]}, Inlay {inlay.__version__}, ONNX Runtime {ort.__version__}. "
        "Times are those of a run on one image; compile is what `inlay.compile` takes with nothing cached."
    )


if __name__ == "__main__":
    main()
