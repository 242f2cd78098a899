"""`help` of an operator is about that operator."""

from __future__ import annotations

import pydoc

import pytest

import inlaid
from inlaid import ops
from inlaid.ops.define import FLOAT, elementwise, make_family
from inlaid_runtime.errors import InlaidError


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
    assert usage.startswith(f"{name}(") and line == operator.doc and line.endswith(".")
    assert all(f"    {each}" in shown(operator) for each in line.splitlines())


def test_element_wise_operators_document_operands_and_result() -> None:
    assert ops.exp.doc.endswith("\nOperand: x, float, any shape. Result: shape and dtype of x.")
    assert ops.isnan.doc.endswith("\nOperand: x, float, any shape. Result: bool, shape of x.")
    assert ops.bitwise_or.doc.endswith(
        "\nOperands: a and b, of one integer dtype, broadcast. Result: that dtype, the broadcast shape."
    )


def test_an_operator_without_documentation_is_an_error() -> None:
    cube = elementwise("cube", lambda x: x * x * x, lambda x: x**3, kinds=FLOAT)
    with pytest.raises(InlaidError, match=r'got none \(operator cube\); add doc="..." to the definition of cube: a line'):
        make_family(cube)


def test_short_forms_and_the_class_have_their_own() -> None:
    assert "Split a tensor along an axis" in shown(ops.split)
    assert (inlaid.Operator.__doc__ or "").startswith("An operator.")
    swish = inlaid.Operator("my.swish", lambda attrs, x: x, doc="Swish.", inputs=("x",))
    assert swish.__doc__ == "my.swish(x)\n\nSwish."
