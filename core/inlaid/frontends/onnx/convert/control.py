"""Constants, identity and branches. Loops are in `convert.loop`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from inlaid.errors import TypeInferenceError
from inlaid.frontends.onnx.convert.coerce import coerce, common_type, scalar
from inlaid.frontends.onnx.node import Converter, Node
from inlaid.graph.ir import Expr, Tuple, constant, if_, tuple_, tuple_item

# The attributes that can hold the value of a Constant, with the dtype of the plain ones.
_VALUE_DTYPES: Mapping[str, type] = {
    "value_float": np.float32,
    "value_floats": np.float32,
    "value_int": np.int64,
    "value_ints": np.int64,
    "value_string": np.object_,
    "value_strings": np.object_,
}


def _constant(node: Node) -> Expr:
    given = [name for name in ("value", "sparse_value", *_VALUE_DTYPES) if name in node.attrs]
    if len(given) != 1:
        raise node.error(f"it needs one of the attributes that hold a value, not {given or 'none'}")
    value: Any = node.attrs[given[0]]
    if given[0] in _VALUE_DTYPES:
        value = np.array(value, _VALUE_DTYPES[given[0]])
    return constant(value, span=node.span)


def _identity(node: Node) -> Expr:
    return node.input(0)


def _if(node: Node) -> tuple[Expr | None, ...]:
    known = node.static(0)
    if known is not None:
        if known.size != 1:
            raise node.error(f"the condition has {known.size} elements instead of one")
        return _branch(node, "then_branch" if known.reshape(()) else "else_branch")
    then, otherwise = _branch(node, "then_branch"), _branch(node, "else_branch")
    if len(then) != len(otherwise):
        raise node.error(f"the branches have {len(then)} and {len(otherwise)} outputs")
    try:
        types = [common_type(a.type, b.type) for a, b in zip(then, otherwise, strict=True)]
    except TypeInferenceError:
        node.require_static(0)  # the branches differ in rank or dtype: only one of them can be imported
        raise
    sides = [[coerce(item, wanted, node.span) for item, wanted in zip(side, types, strict=True)] for side in (then, otherwise)]
    result = if_(scalar(node.input(0)), tuple_(sides[0], node.span), tuple_(sides[1], node.span), span=node.span)
    return tuple(tuple_item(result, index, node.span) for index in range(len(types)))


def _branch(node: Node, name: str) -> tuple[Expr, ...]:
    if name not in node.attrs:
        raise node.error(f"attribute {name!r} is missing")
    body = node.scope.subgraph(node.attrs[name], ()).body
    assert isinstance(body, Tuple)
    return body.fields


CONVERTERS: Mapping[str, Converter] = {"Constant": _constant, "Identity": _identity, "If": _if}
