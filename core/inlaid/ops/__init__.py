"""The canonical operators.

`TABLE` maps names to operators; each operator is also an attribute of this package (`ops.add`). The package also has functions that
build several calls, such as `split`. Operators do not register themselves: this file lists the operator families.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType, ModuleType

from inlaid.graph.operator import Operator
from inlaid.ops.activation import OPERATORS as ACTIVATION
from inlaid.ops.attend import OPERATORS as ATTENTION
from inlaid.ops.container import OPERATORS as CONTAINER
from inlaid.ops.conversion import OPERATORS as CONVERSION
from inlaid.ops.convolution import OPERATORS as CONV
from inlaid.ops.deform import OPERATORS as DEFORM
from inlaid.ops.documentation import DOCUMENTATION
from inlaid.ops.elementwise import OPERATORS as ELEMENTWISE
from inlaid.ops.fixed_point import OPERATORS as FIXED_POINT
from inlaid.ops.index import OPERATORS as INDEX
from inlaid.ops.interpolation import OPERATORS as RESIZE
from inlaid.ops.linear import OPERATORS as LINEAR
from inlaid.ops.normalize import OPERATORS as NORMALIZE
from inlaid.ops.notation import mean as mean
from inlaid.ops.notation import split as split
from inlaid.ops.notation import subscript as subscript
from inlaid.ops.notation import sum as sum
from inlaid.ops.plan import OPERATORS as PLAN
from inlaid.ops.pool import OPERATORS as POOL
from inlaid.ops.quantized import OPERATORS as QUANTIZED
from inlaid.ops.random import OPERATORS as RANDOM
from inlaid.ops.recurrent import OPERATORS as RECURRENT
from inlaid.ops.reduce import OPERATORS as REDUCE
from inlaid.ops.roi import OPERATORS as ROI
from inlaid.ops.sample import OPERATORS as SAMPLE
from inlaid.ops.scatter import OPERATORS as SCATTER
from inlaid.ops.select import OPERATORS as SELECT
from inlaid.ops.shape import OPERATORS as SHAPE
from inlaid.ops.slicing import OPERATORS as SLICING
from inlaid.ops.sort import OPERATORS as SORT
from inlaid.ops.transposed import OPERATORS as TRANSPOSED
from inlaid_runtime.errors import suggestion

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
    NORMALIZE,
    PLAN,
    POOL,
    QUANTIZED,
    RANDOM,
    RECURRENT,
    REDUCE,
    RESIZE,
    ROI,
    SAMPLE,
    SCATTER,
    SELECT,
    SLICING,
    SHAPE,
    SORT,
    TRANSPOSED,
)
OPERATORS: tuple[Operator, ...] = tuple(operator for family in FAMILIES for operator in family)

_FUNCTIONS = ("mean", "split", "sum")
TABLE: Mapping[str, Operator] = MappingProxyType({operator.name: operator for operator in OPERATORS})
assert len(TABLE) == len(OPERATORS), "two operators have one name"

for _operator in OPERATORS:
    # The documentation of all operators is in one file, to keep its wording consistent.
    object.__setattr__(_operator, "doc", DOCUMENTATION[_operator.name])
for _name in [name for name, value in globals().items() if isinstance(value, ModuleType) and hasattr(value, "OPERATORS")]:
    del globals()[_name]  # the module of a family, such as `linear`, is no operator; an import finds it in `sys.modules`


def __getattr__(name: str) -> Operator:
    try:
        return TABLE[name]
    except KeyError:
        hint = f"{suggestion(name, [*TABLE, *_FUNCTIONS])}; dir(inlaid.ops) lists all operators"
        raise AttributeError(f"unknown operator {name!r}{hint}") from None


def __dir__() -> list[str]:
    return sorted({"FAMILIES", "OPERATORS", "TABLE", *_FUNCTIONS, *TABLE})
