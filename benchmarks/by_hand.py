"""Times the steps of the tutorial on matrix products beside the shipped schedule, numpy and ONNX Runtime, on one thread.

    taskset -c 1 python benchmarks/by_hand.py [--rounds N] [--write]
    taskset -c 1 python benchmarks/by_hand.py --target x86:threads=1,cpu=x86-64-v3

The steps are the page's own code (docs/tutorial-matmul.md), which is run first. All contestants take turns, round after round; what
is stated is the median over rounds of the time of the shipped schedule divided by that of the contestant in the same round, so that
1.0 is the shipped schedule's speed. Another `--target` shows an older processor's tiles; numpy and ONNX Runtime use all that there
is. `--write` puts the table into the page and draws docs/tutorial-matmul.svg. Exits with 1 where the last step has less than 0.9.
"""

from __future__ import annotations

import os

os.environ.update(dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"))

import argparse
import re
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from onnx import TensorProto, helper

from machine import processor, versions

PAGE = Path(__file__).parents[1] / "docs" / "tutorial-matmul.md"
PICTURE = PAGE.with_suffix(".svg")
SHIPPED, GOAL = "inlaid.compile", 0.9
SECONDS = 0.05
"""Of a contestant's turn in a round."""
BEGIN, END = "<!-- measured -->\n", "<!-- end of what is measured -->\n"


def run_page(target: str) -> dict[str, Any]:
    """The names that the code of the page leaves, run for a target."""
    names: dict[str, Any] = {}
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    code, count = re.subn(r'^TARGET = ".*"$', f'TARGET = "{target}"', "\n".join(blocks), flags=re.MULTILINE)
    assert count == 1, "the page gives TARGET once"
    exec(compile(code, str(PAGE), "exec"), names)
    return names


def onnxruntime_product(size: int) -> Callable[[np.ndarray[Any, Any], np.ndarray[Any, Any]], Any]:
    """The product by ONNX Runtime."""
    a, b, c = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [size, size]) for name in "abc")
    graph = helper.make_graph([helper.make_node("MatMul", ["a", "b"], ["c"])], "product", [a, b], [c])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return lambda left, right: session.run(None, {"a": left, "b": right})[0]


def contestants(names: Mapping[str, Any]) -> dict[str, Callable[[], object]]:
    """What is timed, by name: the steps, then the others."""
    left, right = names["left"], names["right"]
    peers = {SHIPPED: names["shipped"], "numpy": np.matmul, "ONNX Runtime": onnxruntime_product(len(left))}
    for run in peers.values():
        np.testing.assert_array_equal(run(left, right), names["expected"])

    def call(run: Callable[..., Any]) -> Callable[[], object]:
        return lambda: run(left, right)

    return {name: call(run) for name, run in {**names["steps"], **peers}.items()}


def turn(run: Callable[[], object]) -> float:
    """The least seconds of a call within a turn."""
    times: list[float] = []
    while sum(times) < SECONDS:
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return min(times)


def measure(every: Mapping[str, Callable[[], object]], rounds: int) -> list[dict[str, float]]:
    """The seconds of each contestant, by round."""
    for run in every.values():
        run()
    return [{name: turn(run) for name, run in every.items()} for _ in range(rounds)]


def ratios(times: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The speed of each contestant, the shipped schedule's being 1."""
    return {name: statistics.median(item[SHIPPED] / item[name] for item in times) for name in times[0]}


def table(times: Sequence[Mapping[str, float]], steps: Sequence[str], operations: float) -> list[str]:
    """The table, as lines of Markdown."""
    lines = ["| step | ms | GFLOP/s | beside `inlaid.compile` | gain of the step |", "|---|---|---|---|---|"]
    speeds, before = ratios(times), 0.0
    for name, speed in speeds.items():
        seconds = statistics.median(item[name] for item in times)
        gain = f"{speed / before:.2f}" if name in steps and before else ""
        before = speed
        lines.append(f"| {name} | {seconds * 1e3:.2f} | {operations / seconds / 1e9:.1f} | {speed:.2f} | {gain} |")
    return lines


def picture(speeds: Mapping[str, float]) -> str:
    """Bars of the speeds, as SVG."""
    bar, left, wide = 24, 150, 420
    scale, height = wide / max(1.0, *speeds.values()), bar * len(speeds) + 30
    goal = left + GOAL * scale
    size = f'width="{left + wide + 70}" height="{height}"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="13">',
        '<rect width="100%" height="100%" fill="white"/>',
    ]
    for row, (name, speed) in enumerate(speeds.items()):
        top = bar * row + 8
        color = "#888888" if row >= len(speeds) - 3 else "#2f6f8f"
        lines += [
            f'<text x="{left - 8}" y="{top + 14}" text-anchor="end">{name}</text>',
            f'<rect x="{left}" y="{top}" width="{max(speed * scale, 1):.1f}" height="{bar - 6}" fill="{color}"/>',
            f'<text x="{left + speed * scale + 6:.1f}" y="{top + 14}">{speed:.2f}</text>',
        ]
    lines += [
        f'<line x1="{goal:.1f}" y1="4" x2="{goal:.1f}" y2="{height - 20}" stroke="#c04020" stroke-dasharray="4 3"/>',
        f'<text x="{goal:.1f}" y="{height - 6}" text-anchor="middle" fill="#c04020">{GOAL} of the shipped schedule</text>',
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def written(page: str, lines: Sequence[str], note: str) -> str:
    """The page with what was measured."""
    head, _, rest = page.partition(BEGIN)
    _, _, tail = rest.partition(END)
    text = "\n".join(["![Speed of each step beside the shipped schedule](tutorial-matmul.svg)", "", *lines, "", note])
    return f"{head}{BEGIN}{text}\n{END}{tail}"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--target", default="x86:threads=1")
    parser.add_argument("--write", action="store_true", help=f"put the table into {PAGE.name}, and draw {PICTURE.name}")
    chosen = parser.parse_args(arguments)
    names = run_page(chosen.target)
    times = measure(contestants(names), chosen.rounds)
    speeds, able = ratios(times), names["able"]
    lines = table(times, list(names["steps"]), 2.0 * names["SIZE"] ** 3)
    tile = (
        f"tiles of {names['ROWS']} rows × {names['WIDTH']} columns for {able.vector_registers} registers of {able.vector_bits} bits"
    )
    environment = f"{processor()}; {versions('inlaid', 'numpy', 'onnxruntime')}; {date.today()}"
    note = f"Products of {names['SIZE']} rows, columns and terms on {chosen.target}, {tile}, {chosen.rounds} rounds. {environment}."
    print("\n".join([*lines, "", note]))
    if chosen.write:
        PAGE.write_text(written(PAGE.read_text(encoding="utf-8"), lines, note), encoding="utf-8")
        PICTURE.write_text(picture(speeds), encoding="utf-8")
    last = speeds[list(names["steps"])[-1]]
    print(f"the last step has {last:.2f} of the shipped schedule's speed, {GOAL} are asked for")
    return int(last < GOAL)


if __name__ == "__main__":
    raise SystemExit(main())
