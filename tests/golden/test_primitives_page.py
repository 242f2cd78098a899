"""docs/primitives.md: every schedule primitive, with its docstring and a program before and after. Written by --update-golden."""

# ruff: noqa: RUF059 (the page shows the names of all loops that a primitive returns)

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Callable, Iterator

import numpy as np
import pytest

import inlaid
from inlaid import te
from inlaid.tensor import interp, ir, primitives
from inlaid.tensor.build import Builder
from inlaid.tensor.schedule import PRIMITIVES
from inlaid.tensor.text import show
from inlaid_runtime.types import dtype

HEAD = """\
# Schedule primitives

What each primitive of `inlaid.Schedule` does: its own description, and a program before and after, as `print(schedule)` shows it.
[schedules.md](schedules.md) says how a schedule is made and built. The tests make this page and run its programs:
`pytest tests/golden --update-golden` writes it anew.

A primitive that cannot be applied raises `inlaid.errors.ScheduleError`, prints the program with the place marked, and leaves the
schedule as it was.

## The programs

```py
{programs}
```
"""
GROUPS = {
    "Loops": ("split", "fuse", "reorder", "tile"),
    "How loops run": ("parallel", "vectorize", "unroll", "bind", "vthread", "annotate"),
    "Where blocks are computed": ("compute_inline", "reverse_compute_inline", "compute_at", "reverse_compute_at"),
    "Reductions": ("decompose_reduction", "rfactor"),
    "Memory": ("cache_read", "cache_write", "set_scope", "transform_layout", "lay_out", "storage_align", "pad"),
    "Hardware": ("blockize", "tensorize"),
    "Fetching ahead": ("double_buffer", "software_pipeline", "rolling_buffer", "prefetch", "stream"),
}
Example = Iterator[None]


# --- programs ---------------------------------------------------------------------------------------------------------


def scale():
    a = te.placeholder((10,), "int32", "a")
    b = te.compute((10,), lambda i: a[i] * 2, "b")
    c = te.compute((10,), lambda j: b[j] + 1, "c")
    return te.program([a], [c], "scale")


def blur():
    a = te.placeholder((18,), "int32", "a")
    b = te.compute((18,), lambda i: a[i] * 2, "b")
    c = te.compute((16,), lambda j: b[j] + b[j + 1] + b[j + 2], "c")
    return te.program([a], [c], "blur")


def matmul():
    a = te.placeholder((8, 6), "int32", "a")
    b = te.placeholder((6, 8), "int32", "b")
    k = te.reduce_axis(6, "k")
    product = te.compute((8, 8), lambda i, j: te.sum_(a[i, k] * b[k, j], k), "product")
    c = te.compute((8, 8), lambda y, x: te.maximum(product[y, x], 0), "c")
    return te.program([a, b], [c], "matmul")


PROGRAMS: tuple[Callable[[], ir.LoopProgram], ...] = (scale, blur, matmul)


def multiply_add() -> inlaid.TensorIntrin:
    """c[4] += a * b[4]."""
    a, b, c = (ir.Buffer(name, shape, dtype("int32")) for name, shape in (("a", ()), ("b", (4,)), ("c", (4,))))
    builder = Builder()
    with builder.loop(4, "i") as i:
        builder.store(c, i, c[i] + a[()] * b[i])
    return inlaid.TensorIntrin("multiply_add", ir.LoopProgram("multiply_add", (a, b), (c,), builder.finish()))


# --- examples: what is before `yield` leads up to the program before ---------------------------------------------------


def split(s: inlaid.Schedule, program=scale) -> Example:
    (j,) = s.loops("c")
    yield
    s.split(j, (None, 4))


def fuse(s: inlaid.Schedule, program=matmul) -> Example:
    y, x = s.loops("c")
    yield
    s.fuse(y, x)


def reorder(s: inlaid.Schedule, program=matmul) -> Example:
    i, j, k = s.loops("product")
    yield
    s.reorder(i, k, j)


def tile(s: inlaid.Schedule, program=matmul) -> Example:
    y, x = s.loops("c")
    yield
    s.tile((y, x), (4, 2))


def parallel(s: inlaid.Schedule, program=scale) -> Example:
    (j,) = s.loops("c")
    yield
    s.parallel(j)


def vectorize(s: inlaid.Schedule, program=matmul) -> Example:
    y, x = s.loops("c")
    yield
    s.vectorize(x)


def unroll(s: inlaid.Schedule, program=matmul) -> Example:
    i, j, k = s.loops("product")
    yield
    s.unroll(k)


def bind(s: inlaid.Schedule, program=matmul) -> Example:
    y, x = s.loops("c")
    yield
    s.bind(y, "blockIdx.x")
    s.bind(x, "threadIdx.x")


def vthread(s: inlaid.Schedule, program=scale) -> Example:
    outer, inner = s.split(s.loops("c")[0], (2, None))
    yield
    s.vthread(outer)


def annotate(s: inlaid.Schedule, program=scale) -> Example:
    (j,) = s.loops("c")
    yield
    s.annotate(j, "remainders", 4)


def compute_inline(s: inlaid.Schedule, program=scale) -> Example:
    yield
    s.compute_inline("b")


def reverse_compute_inline(s: inlaid.Schedule, program=scale) -> Example:
    yield
    s.reverse_compute_inline("c")


def compute_at(s: inlaid.Schedule, program=blur) -> Example:
    outer, inner = s.split(s.loops("c")[0], (None, 4))
    yield
    s.compute_at("b", outer)


def reverse_compute_at(s: inlaid.Schedule, program=matmul) -> Example:
    i, j, k = s.loops("product")
    yield
    s.reverse_compute_at("c", i)


def decompose_reduction(s: inlaid.Schedule, program=matmul) -> Example:
    i, j, k = s.loops("product")
    yield
    s.decompose_reduction("product", k)


def rfactor(s: inlaid.Schedule, program=matmul) -> Example:
    outer, inner = s.split(s.loops("product")[2], (None, 2))
    yield
    s.rfactor("product", inner)


def cache_read(s: inlaid.Schedule, program=matmul) -> Example:
    yield
    s.cache_read("product", "a", "shared")


def cache_write(s: inlaid.Schedule, program=matmul) -> Example:
    yield
    s.cache_write("product", "local")


def set_scope(s: inlaid.Schedule, program=scale) -> Example:
    yield
    s.set_scope("b", "local")


def transform_layout(s: inlaid.Schedule, program=scale) -> Example:
    yield
    s.transform_layout("b", "(i) -> ((i // 4), (i % 4))")


def lay_out(s: inlaid.Schedule, program=matmul) -> Example:
    yield
    s.lay_out(("product", ((0, 4), (1, 4))))


def storage_align(s: inlaid.Schedule, program=matmul) -> Example:
    yield
    s.storage_align("product", 0, 16, 1)


def pad(s: inlaid.Schedule, program=matmul) -> Example:
    yield
    s.pad("product", (1, 3, 4))


def blockize(s: inlaid.Schedule, program=matmul) -> Example:
    *outer, inner_i, inner_j = s.tile(s.loops("product")[:2], (4, 4))
    s.reorder(s.loops("product")[-1], inner_i, inner_j)
    yield
    s.blockize(inner_i)


def tensorize(s: inlaid.Schedule, program=matmul) -> Example:
    i, j, k = s.loops("product")
    outer, inner = s.split(j, (None, 4))
    s.reorder(outer, k, inner)
    yield
    s.tensorize(inner, "multiply_add")


def double_buffer(s: inlaid.Schedule, program=blur) -> Example:
    outer, inner = s.split(s.loops("c")[0], (None, 4))
    s.compute_at("b", outer)
    yield
    s.double_buffer("b")


def software_pipeline(s: inlaid.Schedule, program=blur) -> Example:
    outer, inner = s.split(s.loops("c")[0], (None, 4))
    s.compute_at("b", outer)
    s.compute_at(s.cache_read("b", "a", "local"), outer)
    yield
    s.software_pipeline(outer, (0, 1, 2))


def rolling_buffer(s: inlaid.Schedule, program=blur) -> Example:
    s.compute_at("b", s.loops("c")[0])
    yield
    s.rolling_buffer("b")


def prefetch(s: inlaid.Schedule, program=matmul) -> Example:
    i, j, k = s.loops("product")
    yield
    s.prefetch("product", "a", i, 2)


def stream(s: inlaid.Schedule, program=matmul) -> Example:
    i, j, k = s.loops("product")
    yield
    s.stream("product", "a", i, j)


# --- the page ---------------------------------------------------------------------------------------------------------


def run(schedule: inlaid.Schedule) -> list[np.ndarray]:
    program = schedule.program
    inputs = [np.arange(np.prod(item.shape), dtype="int32").reshape(item.shape) % 7 - 3 for item in program.inputs]
    return interp.run(program, inputs, intrinsics=schedule.semantics)


def marked_up(text: str) -> str:
    """A docstring as Markdown: what is indented is code."""
    lines: list[str] = []
    for line in inspect.cleandoc(text).splitlines():
        code = line.startswith("    ")
        if code != (len(lines) > 0 and lines[-1] != "" and inside(lines)):
            lines += ["", "```text"] if code else ["```", ""]
        lines.append(line[4:] if code else line)
    if inside(lines):
        lines.append("```")
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()


def inside(lines: list[str]) -> bool:
    """Whether a block of code is open."""
    return sum(line.startswith("```") for line in lines) % 2 == 1


def section(name: str) -> str:
    """The part of the page on one primitive. Before and after compute the same."""
    example = globals()[name]
    schedule = inlaid.Schedule(
        inspect.signature(example).parameters["program"].default(),
        intrinsics=(multiply_add(),),
        annotation_keys=(inlaid.AnnotationKey("remainders", int),),
    )
    steps = example(schedule)
    next(steps)
    before, expected = show(schedule.program), run(schedule)
    assert next(steps, "done") == "done"
    after = show(schedule.program)
    assert after != before
    for actual, expected_output in zip(run(schedule), expected, strict=True):
        np.testing.assert_array_equal(actual, expected_output)
    body = textwrap.dedent(inspect.getsource(example).partition("\n")[2])
    setup, _, applied = body.partition("yield\n")
    method = getattr(inlaid.Schedule, name)
    parameters = [str(item) for item in list(inspect.signature(method).parameters.values())[1:]]
    signature = f"{name}({', '.join(parameters)}) -> {inspect.signature(method).return_annotation}".replace("'", "")
    return "\n\n".join(
        [
            f"### {name}",
            f"```text\n{signature}\n```",
            marked_up(getattr(primitives, name, method).__doc__),
            *([f"```py\n{setup.strip()}\n```"] if setup.strip() else []),
            f"```text\n{before}\n```",
            f"becomes, by `{'`, `'.join(applied.strip().splitlines())}`,",
            f"```text\n{after}\n```",
        ]
    )


def test_every_primitive_has_a_section() -> None:
    assert sorted(name for group in GROUPS.values() for name in group) == sorted(PRIMITIVES - {"loops"})


def test_the_page(golden: Callable[[str, str], None]) -> None:
    programs = "\n\n\n".join(inspect.getsource(make).strip() for make in (*PROGRAMS, multiply_add))
    parts = [HEAD.format(programs=programs).strip()]
    for title, names in GROUPS.items():
        parts += [f"## {title}", *map(section, names)]
    golden("../../docs/primitives.md", "\n\n".join(parts))


@pytest.mark.parametrize("text", ["One.\n\n    a\n    gives\n    b\n\nTwo.", "One.\n\n    a\nf() gives\n    b"])
def test_code_in_docstrings_is_fenced(text: str) -> None:
    lines = marked_up(text).splitlines()
    assert not inside(lines)
    assert lines.count("```text") == lines.count("```")
