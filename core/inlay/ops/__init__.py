"""The canonical operators.

`TABLE` maps every operator by its name; each is also an attribute of this package (`ops.add`). Nothing registers itself: the
families are listed here.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from inlay.graph.operator import Operator
from inlay.ops.elementwise import OPERATORS as ELEMENTWISE
from inlay.ops.index import OPERATORS as INDEX
from inlay.ops.shape import OPERATORS as SHAPE

OPERATORS: tuple[Operator, ...] = (*ELEMENTWISE, *INDEX, *SHAPE)

TABLE: Mapping[str, Operator] = MappingProxyType({operator.name: operator for operator in OPERATORS})
assert len(TABLE) == len(OPERATORS), "two operators have one name"


def __getattr__(name: str) -> Operator:
    try:
        return TABLE[name]
    except KeyError:
        raise AttributeError(f"there is no operator {name!r}") from None


def __dir__() -> list[str]:
    return sorted({*globals(), *TABLE})
