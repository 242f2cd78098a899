"""Runs the corpus of exported models beside ONNX Runtime: values at every size, then times, as a table.

    python benchmarks/bench_real.py [--only REGEX] [--values] [--install] [--write docs/benchmarks-real.md]

A model is right where every output at every size is that of ONNX Runtime. Times are taken as `inlaid bench` takes them: engines in
processes of their own, in turns, ratios within a round. Ends with 1 where a model is not right, unless
`real/expected_failures.py` has it.
"""

from __future__ import annotations

import argparse
import collections
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import onnx

from inlaid_bench.comparison import Comparison, compare_engines
from inlaid_runtime.errors import InlaidError
from machine import processor, versions
from real import corpus
from real.check import SEED, Outcome, check, isolated
from real.expected_failures import EXPECTED_FAILURES
from real.install import install
from real.model import Draw, Model

Times = Mapping[tuple[int, ...], tuple[float, float, float] | str]
"""By size: Inlaid's milliseconds, ONNX Runtime's, and the median of the rounds' ratios; or the reason why a size was not timed."""


def measure(model: Model, target: str, threads: int, rounds: int, seconds: float) -> Times:
    """Time a model at each of its sizes. The package is compiled once for each, with the sizes left open."""
    outcomes: dict[tuple[int, ...], tuple[float, float, float] | str] = {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{model.name}.onnx"
        onnx.save(model.load(), path)
        for size in model.sizes:
            # Object arrays of strings do not cross to another process without pickles; those of fixed width do.
            feeds = {
                name: each.astype(np.str_) if each.dtype == object else each
                for name, each in model.feeds(Draw(SEED), *size).items()
            }
            comparison = Comparison(
                path, feeds, (target,), threads, ("onnxruntime",), rounds=rounds, seconds=seconds, unfused=False
            )
            try:
                result = compare_engines(comparison)
            except InlaidError as error:
                outcomes[size] = " ".join(str(error).split())[:200]
                continue
            if result.best is None:
                outcomes[size] = result.missing[0].reason
            else:
                outcomes[size] = (result.inlaid.median, result.best.median, statistics.median(result.ratios(result.best)))
    return outcomes


def page(models: Sequence[Model], outcomes: Mapping[str, Outcome], times: Mapping[str, Times], command: str, target: str) -> str:
    """The table of all models, in Markdown."""
    states = collections.Counter(item.state for item in outcomes.values())
    installed = [model for model in models if outcomes[model.name].state != "missing"]
    ratios = [value[2] for each in times.values() for value in each.values() if not isinstance(value, str)]
    lines = [
        "# Models as people export them",
        "",
        f"Written by `{command}`. {len(installed)} models from {len({model.source for model in installed})} sources, each compiled "
        f"once for `{target}` with its sizes left open, then run at several: {states['right']} have ONNX Runtime's values at every "
        f"size, {states['wrong']} are wrong, {states['refused']} are refused, {states['missing']} are not installed.",
        "",
        f"- Machine: {processor()}.",
        f"- Versions: {versions('inlaid', 'numpy', 'onnx', 'onnxruntime')}.",
        "- Values: float32 within 1e-3 of an output's largest number, models in float16 within 2e-2, integers and strings the "
        "same. Models in QDQ form are held to ONNX Runtime without graph optimizations: its fused 8-bit kernels round differently.",
    ]
    if ratios:
        lines.append(
            "- Times: medians of rounds in milliseconds, Inlaid / ONNX Runtime; a ratio below 1 means that Inlaid is faster. "
            f"Geometric mean of the ratios at {len(ratios)} sizes: **{statistics.geometric_mean(ratios):.2f}**."
        )
    header = ["model", "domain", "source", "opset", "nodes", "sizes", "values", "runs also on", "compile, s"]
    header += ["Inlaid / ONNX Runtime, ms", "ratio"] if times else []
    lines += ["", _row(header), _row(["---"] * len(header))]
    for model in models:
        outcome = outcomes[model.name]
        cells = [
            model.name,
            model.domain,
            model.source,
            str(outcome.opset or "-"),
            str(outcome.nodes or "-"),
            str(len(model.sizes)),
        ]
        cells += [outcome.state, ", ".join(outcome.elsewhere) or "-", f"{outcome.seconds:.1f}"]
        if times:
            cells += _times(times.get(model.name, {}))
        lines.append(_row(cells))
    bad = [item for item in outcomes.values() if item.state != "right"]
    if bad:
        lines += ["", "## What is not right", "", _row(["model", "state", "reason"]), _row(["---"] * 3)]
        lines += [_row([item.name, item.state, item.reason.replace("|", "/")]) for item in bad]
    return "\n".join(lines) + "\n"


def _times(outcomes: Times) -> list[str]:
    timed = [value for value in outcomes.values() if not isinstance(value, str)]
    failed = [value for value in outcomes.values() if isinstance(value, str)]
    shown = "; ".join(f"{inlaid_median:.3g} / {peer:.3g}" for inlaid_median, peer, _ in timed)
    return ["; ".join(filter(None, [shown, *failed])) or "-", "; ".join(f"{ratio:.2f}" for _, _, ratio in timed) or "-"]


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def unexpected(outcomes: Mapping[str, Outcome]) -> list[str]:
    """What the table of known failures does not say: models that fail, and listed ones that are right."""
    failures = [f"{item.name} is {item.state}: {item.reason}" for item in outcomes.values() if item.state in ("wrong", "refused")]
    failures = [text for text in failures if text.split()[0] not in EXPECTED_FAILURES]
    return failures + [
        f"{name} is right: take it out of real/expected_failures.py"
        for name in EXPECTED_FAILURES
        if name in outcomes and outcomes[name].state == "right"
    ]


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", metavar="REGEX", help="only the models whose name or source this matches")
    parser.add_argument("--install", action="store_true", help="first install exporters and packages, about 4 GB, into build/real")
    parser.add_argument("--values", action="store_true", help="only values, no times")
    parser.add_argument("--threads", type=int, default=1, help="default: 1")
    parser.add_argument("--rounds", type=int, default=3, help="default: 3")
    parser.add_argument("--seconds", type=float, default=0.1, help="how long each engine runs in a round; default: 0.1")
    parser.add_argument("--limit", type=float, default=120, help="seconds to compile and check a model; default: 120")
    parser.add_argument("--write", type=Path, help="write the page to this file")
    arguments = parser.parse_args()
    if arguments.install and not install():
        print("something could not be installed; its models are left out", file=sys.stderr)
    chosen = [model for model in corpus().values() if re.search(arguments.only, f"{model.name} {model.source}")]
    target = f"x86:threads={arguments.threads}"
    outcomes: dict[str, Outcome] = {}
    times: dict[str, Times] = {}
    started = time.perf_counter()
    for model in chosen:
        outcome = outcomes[model.name] = isolated(partial(check, model, target), model.name, arguments.limit)
        print(f"{model.name}: {outcome.state} ({outcome.seconds:.1f} s) {outcome.reason}".rstrip(), flush=True)
        if outcome.state == "right" and not arguments.values:
            times[model.name] = measure(model, target, arguments.threads, arguments.rounds, arguments.seconds)
            print(f"    {' / '.join(_times(times[model.name]))}", flush=True)
    command = "python benchmarks/bench_real.py" + (" --values" if arguments.values else "")
    text = page(chosen, outcomes, times, command, target)
    print(f"\n{text}\n{time.perf_counter() - started:.0f} s")
    if arguments.write:
        arguments.write.write_text(text, encoding="utf-8")
    wrong = unexpected(outcomes)
    for line in wrong:
        print(line, file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
