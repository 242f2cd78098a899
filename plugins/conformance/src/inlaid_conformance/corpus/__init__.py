"""Examples of every canonical operator, made from choices that are fixed or drawn by Hypothesis.

The definition of an operator may have them (`inlaid.graph.examples.Examples`); those of the other operators are in this package.
"""

from inlaid import ops
from inlaid.graph.operator import Operator
from inlaid_conformance.corpus.elementwise import ENTRIES as ELEMENTWISE
from inlaid_conformance.corpus.example import (
    COMMON,
    CONSTANTS,
    RANKS,
    TILES,
    Choices,
    Entry,
    Example,
    Form,
    Unfit,
    definition_entry,
)
from inlaid_conformance.corpus.host import ENTRIES as HOST
from inlaid_conformance.corpus.product import ENTRIES as PRODUCT
from inlaid_conformance.corpus.product import FILLS, SEVERAL
from inlaid_conformance.corpus.quantized import ENTRIES as QUANTIZED
from inlaid_conformance.corpus.reduction import ENTRIES as REDUCTION
from inlaid_conformance.corpus.shape import ENTRIES as SHAPE

DEFINED = tuple(definition_entry(operator, operator.examples) for operator in ops.OPERATORS if operator.examples is not None)
"""Entries of the operators whose definitions have examples."""
CORPUS: tuple[Entry, ...] = (*ELEMENTWISE, *REDUCTION, *SHAPE, *PRODUCT, *QUANTIZED, *HOST, *DEFINED)


def find_entry(operator: Operator) -> Entry | None:
    """Return the corpus entry of an operator; None if it is not canonical."""
    return _BY_OPERATOR.get(operator)


_BY_OPERATOR = {entry.operator: entry for entry in CORPUS}

__all__ = [
    "COMMON",
    "CONSTANTS",
    "CORPUS",
    "FILLS",
    "RANKS",
    "SEVERAL",
    "TILES",
    "Choices",
    "Entry",
    "Example",
    "Form",
    "Unfit",
    "find_entry",
]
