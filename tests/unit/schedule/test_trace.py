"""Traces print, parse and replay; a text that is no trace, or does not fit the program, gives one clear error."""

from __future__ import annotations

import pytest

from inlaid.tensor import ir
from inlaid.tensor.analysis.keys import structurally_equal
from inlaid.tensor.primitives import AnnotationKey
from inlaid.tensor.schedule import Schedule, parse_trace, replay
from inlaid_runtime.errors import ParseError, ScheduleError

LIMIT = AnnotationKey("limit", int)


def scheduled(program: ir.LoopProgram) -> Schedule:
    s = Schedule(program, annotation_keys=(LIMIT,))
    i, j, k = s.loops("product")
    i_0, i_1 = s.split(i, (None, 4))
    s.reorder(i_0, j, k, i_1)
    s.annotate(i_0, "limit", 3)
    s.cache_write("c", "local")
    s.transform_layout("c_local", "(i, j) -> (j, i)")
    s.vectorize(i_1)
    return s


def test_replay_gives_the_same_program(matmul_program: ir.LoopProgram) -> None:
    s = scheduled(matmul_program)
    text = str(s.trace)
    assert parse_trace(text) == s.trace
    again = replay(matmul_program, text, annotation_keys=(LIMIT,))
    assert str(again.trace) == text
    assert structurally_equal(again.program, s.program)


def test_trace_reads_as_what_was_done(matmul_program: ir.LoopProgram) -> None:
    assert str(scheduled(matmul_program).trace) == (
        'i0, i1, k = loops("product")\n'
        "i0_0, i0_1 = split(i0, (None, 4))\n"
        "reorder((i0_0, i1, k, i0_1))\n"
        'annotate(i0_0, "limit", 3)\n'
        'cache_write("c", "local")\n'
        'transform_layout("c_local", "(i, j) -> (j, i)", None)\n'
        "vectorize(i0_1)"
    )


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("explode()", "expected a schedule primitive, got explode"),
        ("_record(1)", "expected a schedule primitive, got _record"),
        ("a, b", "expected '='"),
        ("split(i, (None, 4)", "expected"),
        ("x = split", "expected a name"),
        ('"x"', "expected a name"),
    ],
)
def test_text_that_is_no_trace(text: str, match: str, matmul_program: ir.LoopProgram) -> None:
    with pytest.raises(ParseError, match=match):
        replay(matmul_program, text)


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("unroll(i)", "uses loop i, which no earlier step returns"),
        ('a, b = loops("product")', "expects 2 loops, but the program has 3"),
        ('a, b, c = loops("product")\nsplit(a)', "has arguments that split does not accept"),
        ('i = loops("nowhere")', "unknown block nowhere"),
        ('a, b, c = loops("product")\nannotate(a, "limit", 3)', "unknown annotation key limit"),
    ],
)
def test_trace_that_does_not_fit(text: str, match: str, matmul_program: ir.LoopProgram) -> None:
    with pytest.raises(ScheduleError, match=match):
        replay(matmul_program, text)


def test_annotations_are_typed(matmul_program: ir.LoopProgram) -> None:
    s = Schedule(matmul_program, annotation_keys=(LIMIT,))
    i = s.loops("product")[0]
    with pytest.raises(ScheduleError, match="annotation limit must be of type int, got 'many'"):
        s.annotate(i, "limit", "many")
