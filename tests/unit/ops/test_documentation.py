"""`help` of an operator is about that operator."""

from __future__ import annotations

import pydoc

import pytest

import inlaid
from inlaid import ops
from inlaid.ops.documentation import DOCUMENTATION


def shown(thing: object) -> str:
    return pydoc.plain(pydoc.render_doc(thing))


def test_help_of_convolution_is_about_convolution() -> None:
    text = shown(ops.conv)
    assert "Convolution (cross-correlation) without bias." in text and "Operands: x (N, C, spatial...)" in text
    assert "conv(x, w, *, strides=(), pads=(), dilations=(), groups=1, out_dtype='')" in text
    assert "`groups`: the number of groups" in text
    assert "class Operator" not in text and "infer" not in text


@pytest.mark.parametrize("name", sorted(ops.TABLE))
def test_every_operator_is_documented(name: str) -> None:
    operator = ops.TABLE[name]
    assert operator.__doc__ is not None
    usage, line = operator.__doc__.split("\n\n")[:2]
    assert usage.startswith(f"{name}(") and line == DOCUMENTATION[name] and line.endswith(".")
    assert all(f"    {each}" in shown(operator) for each in line.splitlines())


def test_nothing_else_is_documented() -> None:
    assert DOCUMENTATION.keys() == ops.TABLE.keys()


def test_short_forms_and_the_class_have_their_own() -> None:
    assert "Split a tensor along an axis" in shown(ops.split)
    assert (inlaid.Operator.__doc__ or "").startswith("An operator.")
    swish = inlaid.Operator("my.swish", lambda attrs, x: x, doc="Swish.", inputs=("x",))
    assert swish.__doc__ == "my.swish(x)\n\nSwish."
