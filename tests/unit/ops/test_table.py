"""The table of operators, and what each of its entries must have."""

from __future__ import annotations

import importlib

import pytest

from inlaid import ops


@pytest.mark.parametrize("operator", ops.OPERATORS, ids=lambda operator: operator.name)
def test_an_operator_is_whole(operator):
    assert getattr(ops, operator.name) is operator
    if operator.host_only:
        assert operator.reference is not None
        assert operator.compute is None
    else:
        # Every loop-level target has it at once, and there is an oracle for it.
        assert operator.compute is not None or operator.decompose is not None
        assert operator.reference is not None or operator.decompose is not None
    least, greatest = operator.arity
    assert greatest is None or least <= greatest
    assert not operator.commutative or operator.arity == (2, 2)
    assert len(operator.inputs) == (greatest if greatest is not None else len(operator.inputs))


def test_an_unknown_operator_is_an_attribute_error():
    with pytest.raises(AttributeError, match="unknown operator"):
        ops.frobnicate  # noqa: B018
    assert "add" in dir(ops)


@pytest.mark.parametrize(
    ("module", "suggestion"), [("linear", ""), ("pool", r" \(is 'max_pool' meant\?\)"), ("convolution", r" \(is 'conv' meant\?\)")]
)
def test_a_module_of_operators_is_no_operator(module, suggestion):
    with pytest.raises(AttributeError, match=f"unknown operator '{module}'{suggestion}; dir\\(inlaid.ops\\) lists all operators"):
        getattr(ops, module)
    assert module not in dir(ops) and importlib.import_module(f"inlaid.ops.{module}").OPERATORS
