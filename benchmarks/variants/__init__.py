"""Variants of ordinary models: one step beside what people write most often, in type, form, shape, operand or epilogue.

A rewrite that knows one spelling, or a schedule that knows one type, leaves its neighbors slow. So the rows are the product of
named axes (`generated`, `operators`), thinned by a hash of their names, and the lines that were slow, one by one. Loops are rows
of `real`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from types import MappingProxyType

from variants import convolutions, floats, full_models, generated, operands, operators, quantized, windows
from variants.row import PARTS, Row, Sibling

__all__ = ["PARTS", "Row", "Sibling", "named", "rows"]


@cache
def rows() -> Mapping[str, Row]:
    """Return the rows of the matrix by name, listed ones first."""
    listed = (row for module in (quantized, floats, full_models, operands, convolutions, windows) for row in module.rows())
    return MappingProxyType({row.name: row for row in (*listed, *generated.thinned(), *operators.thinned())})


@cache
def named() -> Mapping[str, Row]:
    """Return all rows by name, those included that thinning leaves out: siblings may be among them."""
    return MappingProxyType({row.name: row for row in (*generated.product_points(), *operators.operator_points())} | dict(rows()))
