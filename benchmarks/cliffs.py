"""List the cliffs of the matrix of variants: what a schedule rule or a rewrite misses, for each instruction set of x86.

    python benchmarks/cliffs.py [--only REGEX]       print them
    python benchmarks/cliffs.py --check              compare with tests/golden/known_cliffs.txt
    python benchmarks/cliffs.py --update-golden      write the file

A missed rewrite leaves every value right and only costs time. Nothing is compiled by LLVM, and the instruction set is named, so any
machine prints the same. A cliff is: a kernel of `generic_kernels`; an operator that runs on the fallback; a product of dequantized
integers in float; a product of integers of different widths; more conversions than an eighth of the multiply-adds in a product's
inner loop, both counted in vector instructions, or more than one per weight where a product has one row. Each row is lowered for
one thread or two, chosen by its name. Exits with 1 where the cliffs differ from the file.
"""

from __future__ import annotations

import argparse
import re
import sys
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import inlaid
import variants
from inlaid.driver.generic import generic_kernels
from inlaid.errors import InlaidError
from inlaid.graph.ir import Call, post_order
from inlaid.passes.manager import Instrument, Pass
from inlaid.tensor import ir
from inlaid.tensor.region import RegionLoop
from inlaid_runtime.types import TensorType
from recorded import regions
from selection import CPUS
from variants import Row
from variants.axes import share_of

KNOWN_CLIFFS = Path(__file__).parents[1] / "tests" / "golden" / "known_cliffs.txt"
"""What does not hold yet: lines of a row, what it misses, and the instruction sets. The file is only to shrink."""
SETS: Mapping[str, str] = {name: CPUS[name] for name in ("AVX2", "AVX-512", "VNNI", "AMX")}
FLOAT_ROWS = ("one Q read by q, k and v", "layer of BERT base by quantize_dynamic", "sum of 40,000 products")
"""Parts of the names of rows of part 1 whose models have products of floats, or sums that int32 does not hold."""
WHOLE_MODELS = re.compile("listed: full model ")
"""Rows that take too long to lower in a test; `selection.py` is about whole models."""
CONVERTED = 8
"""Multiply-adds to a conversion."""


@dataclass(frozen=True)
class Cliff:
    """What a row misses on an instruction set."""

    row: str
    text: str
    instructions: str


@dataclass(eq=False)
class _Last(Instrument[inlaid.Module]):
    """Keeps the last state of a region."""

    module: inlaid.Module | None = None

    def after(self, step: Pass[inlaid.Module], before: inlaid.Module, after: inlaid.Module) -> None:
        self.module = after


def cliffs(row: Row, cpu: str) -> list[str]:
    """List a row's cliffs on a CPU."""
    threads = 1 + (share_of(f"threads of {row.name}") < 0.5)
    is_float = row.part != 1 or any(text in row.name for text in FLOAT_ROWS)
    texts: list[str] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            for _, region, context in regions(inlaid.load(row.build()), f"x86:threads={threads},cpu={cpu}"):
                last = _Last()
                program = replace(context, instruments=(last,)).unit(region)
                program = program.body if isinstance(program, RegionLoop) else program
                texts += [
                    f"{item.rule or 'no rule'} for {' '.join(item.operators)}" for item, _ in generic_kernels(program.schedules)
                ]
                if last.module is not None:
                    texts += product_cliffs(last.module, is_float)
                if "depthwise" not in row.name:  # each of its elements is used by few multiply-adds
                    has_one_row = "one row" in row.name and "batch 8" not in row.name
                    texts += (text for kernel in program.kernels for text in conversion_cliffs(kernel, has_one_row))
        except InlaidError as error:
            texts.append(f"refused: {' '.join(str(error).split())[:80]}")
    return list(dict.fromkeys(texts))


def product_cliffs(module: inlaid.Module, is_float: bool) -> Iterator[str]:
    """Yield the products of a module whose operands are floats where they may not be, or integers of different widths."""
    for name in module.functions:
        for expr in post_order(module[name]):
            if not isinstance(expr, Call) or not re.search("conv|matmul", operator := getattr(expr.callee, "name", "")):
                continue
            dtypes = [arg.type.dtype for arg in expr.args[:2] if isinstance(arg.type, TensorType)]
            if any(dtype.is_float for dtype in dtypes):
                if not is_float:
                    yield f"{operator} of {' and '.join(map(str, dtypes))}"
            elif operator != "winograd_conv" and len({dtype.bits for dtype in dtypes}) > 1:  # its weights are transformed
                yield f"{operator} of {' and '.join(map(str, dtypes))}"


def conversion_cliffs(kernel: ir.LoopProgram, has_one_row: bool) -> Iterator[str]:
    """Yield a kernel whose inner loops of products convert too often."""
    for stmt in ir.walk_stmts(kernel.body):
        if not isinstance(stmt, ir.For) or stmt.kind is not ir.ForKind.SERIAL or _has_serial_loops(stmt.body):
            continue
        counts: Counter[str] = Counter()
        _count(stmt.body, {}, counts)
        limit = counts["multiply-adds"] + 1 if has_one_row else counts["multiply-adds"] / CONVERTED
        if counts["multiply-adds"] and counts["conversions"] > limit:
            yield f"conversions in {kernel.name}"


def _has_serial_loops(stmt: ir.Stmt) -> bool:
    return any(isinstance(node, ir.For) and node.kind is ir.ForKind.SERIAL for node in ir.walk_stmts(stmt))


def _count(stmt: ir.Stmt, unrolled: Mapping[object, int], counts: Counter[str]) -> None:
    """Count the multiply-adds and the conversions that an iteration executes, with the extents of unrolled loops by variable."""
    if isinstance(stmt, ir.For):
        extent = stmt.extent if isinstance(stmt.extent, int) else getattr(stmt.extent, "value", 1)
        is_unrolled = stmt.kind is ir.ForKind.UNROLLED
        _count(stmt.body, {**unrolled, stmt.var: int(extent)} if is_unrolled else unrolled, counts)
        return
    if isinstance(stmt, ir.Intrinsic) and re.match("dot|madd|tile", stmt.name):
        counts["multiply-adds"] += _times(unrolled)
    elif isinstance(stmt, ir.Store):
        if _accumulates(stmt):
            counts["multiply-adds"] += _times(unrolled)
        for expr in ir.walk_exprs(stmt.value):
            if isinstance(expr, ir.Cast) and not isinstance(expr.a, ir.Const):
                variables = expr.free_vars()
                counts["conversions"] += _times({var: extent for var, extent in unrolled.items() if var in variables})
    for inner in ir.substatements(stmt):
        _count(inner, unrolled, counts)


def _times(extents: Mapping[object, int]) -> int:
    times = 1
    for extent in extents.values():
        times *= extent
    return times


def _accumulates(stmt: ir.Store) -> bool:
    """Test whether a store adds a product to what its buffer holds."""
    match stmt.value:
        case ir.Fma(c=ir.Load(buffer=buffer)):
            return buffer is stmt.buffer
        case ir.Binary(op="add", a=ir.Load(buffer=buffer), b=ir.Binary(op="mul")):
            return buffer is stmt.buffer
        case ir.Binary(op="add", a=ir.Load(buffer=buffer), b=ir.Cast(a=ir.Binary(op="mul"))):
            return buffer is stmt.buffer
    return False


def cliffs_on(name: str, only: str = "") -> Iterator[Cliff]:
    """Yield the cliffs of the matrix on one instruction set."""
    for row in variants.rows().values():
        if re.search(only, row.name) and not WHOLE_MODELS.match(row.name):
            for text in cliffs(row, SETS[name]):
                yield Cliff(row.name, text, name)


def recorded_cliffs() -> set[Cliff]:
    """Return the cliffs of the file."""
    lines = KNOWN_CLIFFS.read_text(encoding="utf-8").splitlines() if KNOWN_CLIFFS.exists() else []
    cells = (line.split(" | ") for line in lines)
    return {Cliff(row, text, name) for row, text, names in cells for name in names.split(", ")}


def table(every: Iterable[Cliff]) -> str:
    """Render cliffs as lines of a row, what it misses, and the instruction sets."""
    names: dict[tuple[str, str], list[str]] = {}
    for cliff in every:
        names.setdefault((cliff.row, cliff.text), []).append(cliff.instructions)
    order = {name: number for number, name in enumerate(variants.rows())}
    pairs = sorted(names, key=lambda pair: (order.get(pair[0], 0), pair[1]))
    return "".join(f"{row} | {text} | {', '.join(name for name in SETS if name in names[row, text])}\n" for row, text in pairs)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", metavar="REGEX", help="only the rows whose name this matches")
    action = parser.add_mutually_exclusive_group()
    action.add_argument("--check", action="store_true", help="compare with the file")
    action.add_argument("--update-golden", action="store_true", help="write the file")
    options = parser.parse_args(arguments)
    every = {cliff for name in SETS for cliff in cliffs_on(name, options.only)}
    unchecked = {cliff for cliff in recorded_cliffs() if not re.search(options.only, cliff.row)}
    if options.update_golden:
        KNOWN_CLIFFS.write_text(table(every | unchecked), encoding="utf-8")
    elif options.check:
        print(f"new:\n{table(every - recorded_cliffs())}\ngone:\n{table(recorded_cliffs() - unchecked - every)}", end="")
        return int(every | unchecked != recorded_cliffs())
    else:
        print(table(every), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
