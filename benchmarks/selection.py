"""List which region passes fire and which schedule rule each kernel gets, for each instruction set of x86.

    python benchmarks/selection.py [MODEL ...]            print the table
    python benchmarks/selection.py --check [MODEL ...]    compare with tests/golden/selection
    python benchmarks/selection.py --update-golden [MODEL ...]

A pass that stops firing leaves every value right and only costs time, so nothing else notices it. Models are those of `make bench`,
by default all of them; `NAME_tiny` is a tiny variant. Nothing is compiled by LLVM, and the instruction set is named, so any machine
prints the same table. For each model and instruction set: the passes that changed a region, the products by element types of data
and weights, after the passes, and the kernels by schedule rule. Exits with 1 where a table differs.
"""

from __future__ import annotations

import argparse
import difflib
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType

import inlaid
from inlaid import ops
from inlaid.driver.region import schedules_of_region
from inlaid.graph.ir import Call, post_order
from inlaid.passes.manager import Instrument, Pass
from inlaid_runtime.types import TensorType
from recorded import TINY_SUFFIX, load, regions
from zoo import MODELS

GOLDEN = Path(__file__).parents[1] / "tests" / "golden" / "selection"
CPUS = MappingProxyType(
    {
        "AVX2": "x86-64-v3",
        "AVX-VNNI": "alderlake",
        "AVX-512": "x86-64-v4",
        "VNNI": "cascadelake",
        "AMX": "sapphirerapids",
    }
)
"""Values of option `cpu` by instruction set."""
SAMPLE = ("resnet50", "resnet50_int8", "resnet50_int8_signed")
TINY = (
    "mobilenet_v2",
    "bert_base",
    "gpt2_step",
    "unet",
    "mobilenet_v2_int8",
    "mobilenet_v2_int8_signed",
    "bert_base_int8",
    "bert_base_int8_signed",
    "unet_int8_signed",
)
TESTED = (*SAMPLE, *(f"{name}{TINY_SUFFIX}" for name in TINY))
"""Models whose tables the tests check; the command checks all."""


@dataclass(eq=False)
class _Firings(Instrument[inlaid.Module]):
    """Counts the regions that each pass changed, and keeps the last state of the region in `module`."""

    counts: Counter[str] = field(default_factory=Counter)
    module: inlaid.Module | None = None

    def after(self, step: Pass[inlaid.Module], before: inlaid.Module, after: inlaid.Module) -> None:
        self.counts[step.name] += after is not before
        self.module = after


def _products(module: inlaid.Module) -> Iterator[str]:
    """Yield the operator and the element types of the operands of each product in a module's functions."""
    for name in module.functions:
        for expr in post_order(module[name]):
            if isinstance(expr, Call) and expr.callee in (ops.conv, ops.matmul):
                types = [arg.type for arg in expr.args[:2]]
                yield " ".join((expr.callee.name, *(str(item.dtype) for item in types if isinstance(item, TensorType))))


def _line(label: str, counts: Counter[str]) -> str:
    return f"  {label:<9}{', '.join(f'{name} {count}' for name, count in sorted(counts.items()) if count)}".rstrip()


def table(name: str) -> str:
    """Return the table of one model: a paragraph per instruction set."""
    module, paragraphs = load(name), []
    for label, cpu in CPUS.items():
        fired, products, rules = _Firings(), Counter[str](), Counter[str]()
        for _, region, context in regions(module, f"x86:threads=1,cpu={cpu}"):
            rules.update(item.rule or "none" for item in schedules_of_region(region, replace(context, instruments=(fired,))))
            if fired.module is not None:
                products.update(_products(fired.module))
        paragraphs.append("\n".join((label, _line("passes", fired.counts), _line("products", products), _line("rules", rules))))
    return "\n\n".join(paragraphs) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=tuple(MODELS))
    action = parser.add_mutually_exclusive_group()
    action.add_argument("--check", action="store_true", help="compare with the golden files")
    action.add_argument("--update-golden", action="store_true", help="write the golden files")
    options = parser.parse_args(arguments)
    failed = False
    for name in options.models:
        text, path = table(name), GOLDEN / f"{name}.txt"
        if options.update_golden:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        elif options.check:
            golden = path.read_text(encoding="utf-8") if path.exists() else ""
            failed |= text != golden
            print(
                "\n".join((name, *difflib.unified_diff(golden.splitlines(), text.splitlines(), "golden", "now", lineterm="", n=1)))
            )
        else:
            print(f"{name}\n\n{text}", flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
