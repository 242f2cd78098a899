"""Fork-join programs for tests of threads: named ones, random ones, and a detector of races that runs every thread."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping

import numpy as np
from hypothesis import strategies as st

from inlaid.tensor import ir
from inlaid.tensor.analysis.footprint import statement_values
from inlaid.tensor.analysis.memory_scopes import LANES, SUBGROUP
from inlaid.tensor.parse import parse
from inlaid.tensor.transform.rewrite import Rewriter
from inlaid_runtime import arith
from inlaid_runtime.types import MemoryScope

SHARED = MemoryScope("shared", "block", capacity=49152, alignment=16)
LOCAL = MemoryScope("local", "thread", capacity=1024)
SCOPES = (SHARED, LOCAL)
Reference = Callable[..., np.ndarray]

MATMUL = """
program matmul(a: float32[n, 8], b: float32[8, 8]) -> (c: float32[n, 8]):
  size n: 1..64
  for by in ((n + 7) // 8), thread, "blockIdx.y":
    alloc acc: float32[8, 8] in "local"
    alloc sa: float32[8, 4] in "shared"
    alloc sb: float32[4, 8] in "shared"
    for ty in 2, thread, "threadIdx.y":
      for tx in 4, thread, "threadIdx.x":
        for i in 4:
          for j in 2:
            acc[((ty * 4) + i), ((tx * 2) + j)] = float32(0.0)
    for k in 2:
      for fy in 2, thread, "threadIdx.y":
        for fx in 4, thread, "threadIdx.x":
          for fi in 4:
            if index(bool, ((((by * 8) + (fy * 4)) + fi) < n)):
              sa[((fy * 4) + fi), fx] = a[(((by * 8) + (fy * 4)) + fi), ((k * 4) + fx)]
      for gy in 2, thread, "threadIdx.y":
        for gx in 4, thread, "threadIdx.x":
          for gi in 4:
            sb[((gy * 2) + (gi // 2)), ((gx * 2) + (gi % 2))] = b[(((k * 4) + (gy * 2)) + (gi // 2)), ((gx * 2) + (gi % 2))]
      for u in 2, thread, "threadIdx.y":
        for v in 4, thread, "threadIdx.x":
          for e in 4:
            for f in 2:
              for g in 4:
                %0 = acc[((u * 4) + e), ((v * 2) + f)]
                acc[((u * 4) + e), ((v * 2) + f)] = (%0 + (sa[((u * 4) + e), g] * sb[g, ((v * 2) + f)]))
    for sy in 2, thread, "threadIdx.y":
      for sx in 4, thread, "threadIdx.x":
        for si in 4:
          for sj in 2:
            if index(bool, ((((by * 8) + (sy * 4)) + si) < n)):
              c[(((by * 8) + (sy * 4)) + si), ((sx * 2) + sj)] = acc[((sy * 4) + si), ((sx * 2) + sj)]
"""
"""Cooperative fetch of tiles into shared memory, sums in registers of threads. Two barriers, both in the loop."""

TREE = """
program tree(x: int32[3, 16]) -> (y: int32[3]):
  for b in 3, thread, "blockIdx.x":
    alloc s: int32[16] in "shared"
    for t in 16, thread, "threadIdx.x":
      s[t] = x[b, t]
    for t8 in 8, thread, "threadIdx.x":
      s[t8] = (s[t8] + s[(t8 + 8)])
    for t4 in 4, thread, "threadIdx.x":
      s[t4] = (s[t4] + s[(t4 + 4)])
    for t2 in 2, thread, "threadIdx.x":
      s[t2] = (s[t2] + s[(t2 + 2)])
    y[b] = (s[0] + s[1])
"""
"""Four barriers; what comes last is done by one thread."""

STAGES = """
program stages(x: int32[6, 8]) -> (y: int32[6, 8]):
  alloc s: int32[2, 8] in "shared"
  for t in 8, thread, "threadIdx.x":
    s[0, t] = x[0, t]
  for k in 5:
    for u in 8, thread, "threadIdx.x":
      s[((k + 1) % 2), u] = x[(k + 1), u]
    for v in 8, thread, "threadIdx.x":
      y[k, v] = s[(k % 2), (7 + (v * -1))]
  for w in 8, thread, "threadIdx.x":
    y[5, w] = s[1, (7 + (w * -1))]
"""
"""Two stages, of which one is filled while the other is read: a barrier before the loop, and
one for each step."""

CONV = """
program conv(x: int32[18], w: int32[3]) -> (y: int32[16]):
  for b in 2, thread, "blockIdx.x":
    alloc s: int32[10] in "shared"
    for t in 8, thread, "threadIdx.x":
      for i in 2:
        if index(bool, (((i * 8) + t) < 10)):
          s[((i * 8) + t)] = x[((b * 8) + ((i * 8) + t))]
    for u in 8, thread, "threadIdx.x":
      alloc sum: int32[1] in "local"
      sum[0] = int32(0)
      for j in 3:
        sum[0] = (sum[0] + (s[(u + j)] * w[j]))
      y[((b * 8) + u)] = sum[0]
"""
"""A tile with its halo: one barrier."""

TRANSPOSE = """
program transpose(x: float32[8, 8]) -> (y: float32[8, 8]):
  for by in 2, thread, "blockIdx.y":
    for bx in 2, thread, "blockIdx.x":
      alloc s: float32[4, 5] in "shared"
      for ty in 4, thread, "threadIdx.y":
        for tx in 4, thread, "threadIdx.x":
          s[ty, tx] = x[((by * 4) + ty), ((bx * 4) + tx)]
      for uy in 4, thread, "threadIdx.y":
        for ux in 4, thread, "threadIdx.x":
          y[((bx * 4) + uy), ((by * 4) + ux)] = s[ux, uy]
"""

NAMED: dict[str, tuple[str, tuple[tuple[int, ...], ...], Reference, int]] = {
    "matmul": (MATMUL, ((11, 8), (8, 8)), lambda a, b: a @ b, 2),
    "tree": (TREE, ((3, 16),), lambda x: x.sum(axis=1), 4),
    "stages": (STAGES, ((6, 8),), lambda x: x[:, ::-1], 2),
    "conv": (CONV, ((18,), (3,)), lambda x, w: np.correlate(x, w, "valid"), 1),
    "transpose": (TRANSPOSE, ((8, 8),), lambda x: x.T, 1),
}
"""Programs, the shapes of their inputs, what they compute, and how many barriers they need."""


def named_case(name: str) -> tuple[ir.LoopProgram, list[np.ndarray], np.ndarray, int]:
    """A named program, inputs for it, the right output, and the number of its barriers."""
    text, shapes, reference, count = NAMED[name]
    program = parse(text)
    random = np.random.default_rng(0)
    arrays = [
        random.integers(-4, 5, shape).astype(buffer.dtype.numpy) for shape, buffer in zip(shapes, program.inputs, strict=True)
    ]
    return program, arrays, reference(*arrays), count


def find_barriers(program: ir.LoopProgram) -> list[ir.Stmt]:
    return [stmt for stmt in ir.walk_stmts(program.body) if isinstance(stmt, ir.Barrier)]


def without(program: ir.LoopProgram, barrier: ir.Stmt) -> ir.LoopProgram:
    """The program with one barrier dropped."""

    rewriter = Rewriter(stmt=lambda stmt: ir.Seq(()) if stmt is barrier else None)
    return rewriter.program(program)


# --- a detector ---------------------------------------------------------------------------------------------------------


def races(program: ir.LoopProgram, offsets: Mapping[ir.Buffer, int], sizes: dict[arith.Expr, int] | None = None) -> bool:
    """Whether threads of a block race for an element, or for bytes that elements of one type share by `offsets`: each thread is run
    by itself, at some sizes, without data in indices and conditions."""

    def nests(stmt: ir.Stmt, values: dict[arith.Expr, int]) -> Iterator[tuple[list[ir.For], ir.Stmt, dict[arith.Expr, int]]]:
        if isinstance(stmt, ir.For) and stmt.over_threads:
            loops = []
            while isinstance(stmt, ir.For) and stmt.over_threads:
                loops.append(stmt)
                stmt = stmt.body
            yield loops, stmt, values
        elif isinstance(stmt, ir.For):
            for number in range(arith.evaluate(stmt.extent, values)):
                yield from nests(stmt.body, {**values, stmt.var: number})
        else:
            for part in ir.substatements(stmt):
                yield from nests(part, values)

    for loops, body, values in nests(program.body, sizes or {}):
        private = {stmt.buffer for stmt in ir.walk_stmts(body) if isinstance(stmt, ir.Alloc)}
        lanes = next((indices for indices, loop in enumerate(loops) if loop.thread == LANES), len(loops))
        accesses: dict[tuple[int, object, object], set[tuple[tuple[int, ...], ir.Buffer, bool, int]]] = defaultdict(set)
        for thread in itertools.product(*(range(arith.evaluate(loop.extent, values)) for loop in loops)):
            epoch = meetings = 0  # barriers of the block, and any
            thread_values = values | {loop.var: number for loop, number in zip(loops, thread, strict=True)}
            for buffer, indices, writes in _events(body, thread_values):
                if buffer is None:
                    epoch += not indices
                    meetings += 1
                elif buffer.scope == SUBGROUP:
                    accesses[-1, buffer, indices].add((thread, buffer, writes, meetings))
                elif buffer not in private:
                    accesses[epoch, buffer, indices].add((thread, buffer, writes, epoch))
                    shape = tuple(arith.evaluate(extent, values) for extent in buffer.shape)
                    if buffer in offsets and all(0 <= index < extent for index, extent in zip(indices, shape, strict=True)):
                        flat = int(np.ravel_multi_index(indices, shape)) if shape else 0
                        accesses[epoch, buffer.scope, offsets[buffer] + flat * buffer.dtype.bytes].add(
                            (thread, buffer, writes, epoch)
                        )
        for (_, at, _), touches in accesses.items():
            for one, other in itertools.combinations(touches, 2):
                is_ordered = (
                    one[3] != other[3] and one[0][:lanes] == other[0][:lanes] and one[0][lanes + 1 :] == other[0][lanes + 1 :]
                )
                if one[0] != other[0] and not is_ordered and (one[2] or other[2]) and (one[1] is at or one[1] is not other[1]):
                    return True
    return False


def _events(stmt: ir.Stmt, values: dict[arith.Expr, int]) -> Iterator[tuple[ir.Buffer | None, tuple[int, ...], bool]]:
    if isinstance(stmt, ir.If):
        assert isinstance(stmt.condition, ir.Index)
        if arith.evaluate(stmt.condition.index, values):
            yield from _events(stmt.then, values)
        return
    for node in ir.walk_exprs(*statement_values(stmt)):
        if isinstance(node, ir.Load):
            yield node.buffer, tuple(arith.evaluate(index, values) for index in node.indices), False
    match stmt:
        case ir.Barrier(over=over):
            yield None, tuple(map(len, over)), False
        case ir.Store(buffer=buffer, indices=indices):
            yield buffer, tuple(arith.evaluate(index, values) for index in indices), True
        case ir.For(var=var, extent=extent, body=body):
            for number in range(arith.evaluate(extent, values)):
                yield from _events(body, {**values, var: number})
        case _:
            for part in ir.substatements(stmt):
                yield from _events(part, values)


# --- random programs ----------------------------------------------------------------------------------------------------

_PLACES = (
    "t", "((t + 1) % 4)", "(3 + (t * -1))", "(t // 2)", "((t * 2) % 4)", "((t + k) % 4)", "(((k % 2) * 4) + t)", "(t % 2)",
    "k", "5", "((((k + 1) % 2) * 4) + t)", "((t * 2) + i)", "((i * 4) + t)", "(((i * 4) + t) % 6)", "(((k * 3) + t) % 5)",
)  # fmt: skip
_WHERE = ("", "(t < 2)", "(2 <= t)", "(t == 3)", "(t < k)", "((t % 2) == 0)")


@st.composite
def programs(draw: st.DrawFn) -> ir.LoopProgram:
    """Phases of four threads over two shared buffers of eight elements, some of them in serial loops of two or three steps."""
    lines: list[str] = []
    count = itertools.count()

    def draw_index(depth: int, inner: bool, names: dict[str, str]) -> str:
        text = draw(st.sampled_from([item for item in _PLACES if (depth or "k" not in item) and (inner or "i" not in item)]))
        for name, var_name in names.items():
            text = text.replace(name, var_name)
        return text

    def phase(indent: str, depth: int, step: str) -> None:
        number = next(count)
        alone = draw(st.integers(0, 5)) == 0
        names = {"t": "0" if alone else f"t{number}", "i": f"i{number}", "k": step}
        if not alone:
            lines.append(f'{indent}for t{number} in 4, thread, "threadIdx.x":')
            indent += "  "
        condition = "" if alone else draw(st.sampled_from([item for item in _WHERE if depth or "k" not in item]))
        for name, var_name in names.items():
            condition = condition.replace(name, var_name)
        if condition:
            lines.append(f"{indent}if index(bool, {condition}):")
            indent += "  "
        inner = draw(st.booleans())
        if inner:
            lines.append(f"{indent}for i{number} in 2:")
            indent += "  "
        source, target = draw(st.sampled_from(["ab", "ba", "aa", "xa", "xb", "ay", "by"]))
        to = draw_index(depth, inner, names)
        lines.append(f"{indent}{target}[{to}] = ({source}[{draw_index(depth, inner, names)}] + {number})")

    def body(indent: str, depth: int, step: str) -> None:
        for _ in range(draw(st.integers(1, 3))):
            if depth < 2 and draw(st.integers(0, 2)) == 0:
                inner = f"k{next(count)}"
                lines.append(f"{indent}for {inner} in {draw(st.integers(1, 3))}:")
                body(indent + "  ", depth + 1, inner)
            else:
                phase(indent, depth, step)

    for buffer in "ab":
        lines += [
            f'  for t{buffer} in 4, thread, "threadIdx.x":',
            f"    for i{buffer} in 2:",
            f"      {buffer}[((t{buffer} * 2) + i{buffer})] = x[0]",
        ]
    body("  ", 0, "")
    head = [
        "program random(x: int32[8]) -> (y: int32[8]):",
        '  alloc a: int32[8] in "shared"',
        '  alloc b: int32[8] in "shared"',
        "  for all in 8:",
        "    y[all] = int32(0)",
    ]
    return parse("\n".join([*head, *lines]))
