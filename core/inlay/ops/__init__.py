"""The canonical operators.

`TABLE` maps every operator by its name; each is also an attribute of this package (`ops.add`). Nothing registers itself: the
families are listed here.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from inlay.graph.operator import Operator
from inlay.ops.activation import OPERATORS as ACTIVATION
from inlay.ops.attend import OPERATORS as ATTENTION
from inlay.ops.container import OPERATORS as CONTAINER
from inlay.ops.conversion import OPERATORS as CONVERSION
from inlay.ops.convolution import OPERATORS as CONV
from inlay.ops.deform import OPERATORS as DEFORM
from inlay.ops.elementwise import OPERATORS as ELEMENTWISE
from inlay.ops.fixed_point import OPERATORS as FIXED_POINT
from inlay.ops.index import OPERATORS as INDEX
from inlay.ops.interpolation import OPERATORS as RESIZE
from inlay.ops.linear import OPERATORS as LINEAR
from inlay.ops.normalise import OPERATORS as NORMALISE
from inlay.ops.pool import OPERATORS as POOL
from inlay.ops.quantised import OPERATORS as QUANTISED
from inlay.ops.random import OPERATORS as RANDOM
from inlay.ops.recurrent import OPERATORS as RECURRENT
from inlay.ops.reduce import OPERATORS as REDUCE
from inlay.ops.roi import OPERATORS as ROI
from inlay.ops.sample import OPERATORS as SAMPLE
from inlay.ops.scatter import OPERATORS as SCATTER
from inlay.ops.select import OPERATORS as SELECT
from inlay.ops.shape import OPERATORS as SHAPE
from inlay.ops.sort import OPERATORS as SORT

FAMILIES: tuple[tuple[Operator, ...], ...] = (
    ACTIVATION,
    ATTENTION,
    CONTAINER,
    CONV,
    CONVERSION,
    DEFORM,
    ELEMENTWISE,
    FIXED_POINT,
    INDEX,
    LINEAR,
    NORMALISE,
    POOL,
    QUANTISED,
    RANDOM,
    RECURRENT,
    REDUCE,
    RESIZE,
    ROI,
    SAMPLE,
    SCATTER,
    SELECT,
    SHAPE,
    SORT,
)
OPERATORS: tuple[Operator, ...] = tuple(operator for family in FAMILIES for operator in family)

TABLE: Mapping[str, Operator] = MappingProxyType({operator.name: operator for operator in OPERATORS})
assert len(TABLE) == len(OPERATORS), "two operators have one name"


def __getattr__(name: str) -> Operator:
    try:
        return TABLE[name]
    except KeyError:
        raise AttributeError(f"there is no operator {name!r}") from None


def __dir__() -> list[str]:
    return sorted({*globals(), *TABLE})
