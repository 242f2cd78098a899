"""The canonical operators.

`TABLE` maps names to operators; each operator is also an attribute of this package (`ops.add`). The package also has functions that
build several calls, such as `split`. Operators do not register themselves: `FAMILIES` lists the modules that define them.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from types import MappingProxyType, ModuleType

from inlaid.graph.operator import Operator
from inlaid.ops.notation import mean as mean
from inlaid.ops.notation import split as split
from inlaid.ops.notation import subscript as subscript
from inlaid.ops.notation import sum as sum
from inlaid_runtime.errors import InlaidError, suggestion

# The order of operators is that of this list.
FAMILIES: Mapping[str, tuple[Operator, ...]] = MappingProxyType(
    {
        name: import_module(f"inlaid.ops.{name}").OPERATORS
        for name in (
            *("activation", "attend", "container", "convolution", "conversion", "deform", "elementwise", "fixed_point", "index"),
            *("linear", "normalize", "plan", "pool", "quantized", "random", "recurrent", "reduce", "interpolation", "roi"),
            *("sample", "scatter", "select", "slicing", "shape", "sort", "transposed"),
        )
    }
)
"""Operators by the module of this package that defines them."""
OPERATORS: tuple[Operator, ...] = tuple(operator for family in FAMILIES.values() for operator in family)

_FUNCTIONS = ("mean", "split", "sum")
TABLE: Mapping[str, Operator] = MappingProxyType({operator.name: operator for operator in OPERATORS})
for _operator in OPERATORS:
    if TABLE[_operator.name] is not _operator:
        raise InlaidError(
            "expected unique names of operators, got two operators of one name", operator=_operator.name, remedy="rename one"
        )
for _name in [name for name, value in globals().items() if isinstance(value, ModuleType) and hasattr(value, "OPERATORS")]:
    del globals()[_name]  # `ops.linear` would be the module of a family, not an operator; `import` still finds it in `sys.modules`


def __getattr__(name: str) -> Operator:
    try:
        return TABLE[name]
    except KeyError:
        hint = f"{suggestion(name, [*TABLE, *_FUNCTIONS])}; dir(inlaid.ops) lists all operators"
        raise AttributeError(f"unknown operator {name!r}{hint}") from None


def __dir__() -> list[str]:
    return sorted({"FAMILIES", "OPERATORS", "TABLE", *_FUNCTIONS, *TABLE})
