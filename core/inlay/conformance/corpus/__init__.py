"""Examples of every canonical operator: made from choices, pinned ones and those that Hypothesis draws."""

from inlay.conformance.corpus.elementwise import ENTRIES as ELEMENTWISE
from inlay.conformance.corpus.example import COMMON, RANKS, Choices, Entry, Example, Form
from inlay.conformance.corpus.host import ENTRIES as HOST
from inlay.conformance.corpus.product import ENTRIES as PRODUCT
from inlay.conformance.corpus.quantised import ENTRIES as QUANTISED
from inlay.conformance.corpus.reduction import ENTRIES as REDUCTION
from inlay.conformance.corpus.shape import ENTRIES as SHAPE

CORPUS: tuple[Entry, ...] = (*ELEMENTWISE, *REDUCTION, *SHAPE, *PRODUCT, *QUANTISED, *HOST)

__all__ = ["COMMON", "CORPUS", "RANKS", "Choices", "Entry", "Example", "Form"]
