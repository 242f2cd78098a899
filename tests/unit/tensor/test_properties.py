"""Random tensor expressions against numpy; random loop programs through the verifier, the text form and legalization."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from inlaid.tensor import ir
from inlaid.tensor.analysis.keys import structural_key
from inlaid.tensor.analysis.verify import verify
from inlaid.tensor.interp import run
from inlaid.tensor.lower import lower
from inlaid.tensor.parse import parse
from inlaid.tensor.text import show
from inlaid.tensor.transform.legalize import legalize
from inlaid_runtime.types import dtype

from .strategies import NARROW, NATIVE, Array, Example, computes, make_inputs, programs

PLAIN = frozenset({"float32", "float64", "bool", *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))})


@given(computes())
@settings(max_examples=60, deadline=None)
def test_lowered_computes_agree_with_numpy(example: Example) -> None:
    program = lower(example.outputs, example.inputs, "example")
    verify(program)
    for actual, expected in zip(run(program, example.arrays), example.expected, strict=True):
        assert actual.dtype == expected.dtype
        np.testing.assert_array_equal(actual, expected)


def assert_close(actual: list[Array], expected: list[Array]) -> None:
    for a, b in zip(actual, expected, strict=True):
        assert a.dtype == b.dtype
        if dtype(a.dtype.name if a.dtype.name in PLAIN else "float32").is_float:
            np.testing.assert_array_equal(a.astype(np.float64), b.astype(np.float64))
        else:
            np.testing.assert_array_equal(a, b)


@given(programs(), st.data())
@settings(max_examples=60, deadline=None)
def test_text_parses_back(program: ir.LoopProgram, data: st.DataObject) -> None:
    verify(program)
    again = parse(show(program))
    verify(again)
    assert structural_key(again) == structural_key(program)
    assert show(parse(show(again))) == show(again)
    inputs = data.draw(st.composite(make_inputs)(program))
    assert_close(run(again, inputs), run(program, inputs))


@given(programs(NATIVE + NARROW), st.data())
@settings(max_examples=60, deadline=None)
def test_legalized_programs_agree(program: ir.LoopProgram, data: st.DataObject) -> None:
    inputs = data.draw(st.composite(make_inputs)(program))
    plain = legalize(program, PLAIN)
    verify(plain)
    carried = [array.view(buffer.dtype.numpy) for array, buffer in zip(inputs, plain.inputs, strict=True)]
    outputs = run(plain, carried)
    for array, buffer, expected in zip(outputs, program.outputs, run(program, inputs), strict=True):
        actual = array.view(buffer.dtype.numpy)
        if buffer.dtype.is_float:
            np.testing.assert_array_equal(actual.astype(np.float64), expected.astype(np.float64))
        else:
            np.testing.assert_array_equal(actual, expected)
