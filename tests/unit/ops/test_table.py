"""The table of operators, and what each of its entries must have."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from inlaid import ops
from inlaid_conformance.corpus import CORPUS

CALLED = [(family, operator) for family, operators in ops.FAMILIES.items() for operator in operators if not operator.planned]
"""Operators that models call, with their families. Instructions of plans have no examples: no target gets them."""


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


@pytest.mark.parametrize(("family", "operator"), CALLED, ids=[operator.name for _, operator in CALLED])
def test_an_operator_has_examples(family, operator):
    """Those of older operators are in the corpus of the conformance suite."""
    count = sum(entry.operator is operator for entry in CORPUS)
    assert count == 1, (
        f"operator {operator.name} must have examples in one place, has them in {count}: "
        f"write examples=Examples(...) in its definition in core/inlaid/ops/{family}.py, as docs/add-an-operator.md shows"
    )


def test_all_modules_with_families_are_listed():
    """`winograd` alone is left to passes: no model has its operator."""
    paths = Path(ops.__file__).parent.glob("*.py")
    assert {path.stem for path in paths if "make_family(" in path.read_text(encoding="utf-8")} - {"define"} == {*ops.FAMILIES}


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
