"""Casts."""

from __future__ import annotations

from collections.abc import Mapping

from inlaid.graph.ir import Expr
from inlaid.ops.container import string_cast
from inlaid.ops.conversion import bitcast, cast
from inlaid_onnx.node import Converter, Node
from inlaid_onnx.proto import decode_dtype
from inlaid_runtime.types import DType, dtype

# Names of dtypes in opsets before 6.
_NAMES = {
    "FLOAT": "float32",
    "DOUBLE": "float64",
    **{
        name.upper(): name for name in ("float16", "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
    },
}


def _target(node: Node) -> DType:
    to = node.attrs.get("to")
    if to is None:
        raise node.error("the attribute `to` is missing")
    if isinstance(to, str):
        if to.upper() not in _NAMES:
            raise node.error(f"unknown element type {to!r}")
        return dtype(_NAMES[to.upper()])
    return decode_dtype(to)


def _converted(node: Node, to: DType) -> Expr:
    x, source_dtype = node.input(0), node.dtype(0)
    if source_dtype is to:
        return x
    if "string" in (source_dtype.kind, to.kind):
        return string_cast(x, dtype=to.name)
    saturate, round_mode = bool(node.attrs.get("saturate", 1)), node.attrs.get("round_mode", "up")
    return cast(x, dtype=to.name, saturate=saturate, round_mode=round_mode)


def _cast(node: Node) -> Expr:
    return _converted(node, _target(node))


def _cast_like(node: Node) -> Expr:
    return _converted(node, node.dtype(1))


def _bit_cast(node: Node) -> Expr:
    return bitcast(node.input(0), dtype=_target(node).name)


CONVERTERS: Mapping[str, Converter] = {"Cast": _cast, "CastLike": _cast_like, "BitCast": _bit_cast}
