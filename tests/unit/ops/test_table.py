"""The table of operators."""

from __future__ import annotations

from inlay import ops


def test_operators_are_attributes_of_the_package() -> None:
    """No module of the package hides an operator of its name."""
    assert {name for name, operator in ops.TABLE.items() if getattr(ops, name) is not operator} == set()


def test_every_operator_has_a_meaning() -> None:
    for operator in ops.TABLE.values():
        assert operator.reference is not None or operator.decompose is not None, operator.name
        assert operator.host_only or operator.compute is not None or operator.decompose is not None, operator.name
