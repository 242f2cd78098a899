"""Changes of shape."""

from __future__ import annotations

from collections.abc import Mapping

from inlay import ops
from inlay.frontends.tflite.node import Converter, Node
from inlay.graph.ir import Expr


def _reshape(node: Node) -> Expr:
    return ops.reshape(node.input(0), shape=node.result.shape)


CONVERTERS: Mapping[str, Converter] = {"RESHAPE": _reshape}
