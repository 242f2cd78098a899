"""Operators that generate random values.

Operators are pure, so a node's generator is seeded by its `seed`, or by a hash of the node's name: each run of a model returns the
same values.
"""

from __future__ import annotations

import hashlib
import struct
import warnings
from collections.abc import Mapping

import numpy as np

from inlaid.graph.ir import Expr, constant, tuple_item
from inlaid.graph.operator import Operator
from inlaid.ops.compose import cast_to, expand_dims, expr_type, scalar, widened
from inlaid.ops.elementwise import add, div, less, less_equal, log, mul, neg, sub, where
from inlaid.ops.random import random_normal, random_uniform
from inlaid.ops.reduce import argmax
from inlaid.ops.shape import full
from inlaid_onnx.node import Converter, Node
from inlaid_onnx.proto import decode_dtype
from inlaid_runtime.arith import Dim
from inlaid_runtime.errors import TrainingWarning
from inlaid_runtime.types import DType


def _drawn(node: Node, operator: Operator, shape: tuple[Dim, ...], dtype: DType) -> Expr:
    """Draw random values of a float dtype."""
    seed = node.attrs.get("seed")
    source = str(node.span).encode() if seed is None else struct.pack("<d", seed)
    state = constant(np.asarray(int.from_bytes(hashlib.sha256(source).digest()[:8], "little"), np.uint64))
    return tuple_item(operator(state, shape=shape, dtype=dtype.name), 0)


def _shape(node: Node) -> tuple[Dim, ...]:
    if node.op_type.endswith("Like"):
        return node.tensor(0).shape
    shape = node.attrs.get("shape")
    if shape is None:
        raise node.error("the attribute shape is missing")
    return tuple(shape)


def _dtype(node: Node, default: DType) -> DType:
    code = node.attrs.get("dtype", 0)
    return decode_dtype(code) if code else default


def _float_dtype(node: Node) -> DType:
    dtype = _dtype(node, node.dtype(0) if node.op_type.endswith("Like") else decode_dtype(1))
    if not dtype.is_float:
        raise node.error(f"the dtype of random values must be a float, got {dtype}: set the attribute dtype")
    return dtype


def _uniform(node: Node) -> Expr:
    dtype = _float_dtype(node)
    low, high = node.attrs.get("low", 0.0), node.attrs.get("high", 1.0)
    return add(mul(_drawn(node, random_uniform, _shape(node), dtype), scalar(high - low, dtype)), scalar(low, dtype))


def _normal(node: Node) -> Expr:
    dtype = _float_dtype(node)
    mean, scale = node.attrs.get("mean", 0.0), node.attrs.get("scale", 1.0)
    return add(mul(_drawn(node, random_normal, _shape(node), dtype), scalar(scale, dtype)), scalar(mean, dtype))


def _bernoulli(node: Node) -> Expr:
    """Convert Bernoulli: 1 with the probability given by the input, else 0."""
    dtype = node.dtype(0)
    hit = less(_drawn(node, random_uniform, node.tensor(0).shape, dtype), node.input(0))
    return cast_to(hit, _dtype(node, dtype))


def _multinomial(node: Node) -> Expr:
    """Convert Multinomial: draw classes from unnormalized log probabilities, (N, C) -> (N, samples), as the argmax of log
    probability plus Gumbel noise (Gumbel, 1954)."""
    logits = widened(node.input(0))
    dtype, (batch, classes) = expr_type(logits).dtype, expr_type(logits).shape
    uniform = _drawn(node, random_uniform, (batch, node.attrs.get("sample_size", 1), classes), dtype)
    noise = neg(log(neg(log(uniform))))
    return cast_to(argmax(add(expand_dims(logits, 1), noise), axis=2), _dtype(node, decode_dtype(6)))


def _dropout(node: Node) -> tuple[Expr, ...]:
    """Convert Dropout to (data, mask). Only training drops data: by attribute `is_test` before opset 7, by an input since 12."""
    x, dtype, shape = node.input(0), node.dtype(0), node.tensor(0).shape
    if node.opset < 12:
        training = node.opset < 7 and not node.attrs.get("is_test", 0)
        ratio: Expr | None = scalar(node.attrs.get("ratio", 0.5), dtype)
    else:
        training = node.optional(2) is not None and bool(node.require_static(2).reshape(()))
        ratio = node.optional(1)
    mask_dtype = "bool" if node.opset >= 10 else dtype
    if not training:
        return x, full(scalar(1, mask_dtype), shape=shape)
    # The same text for each node of a model, so that Python shows it once.
    message = "Dropout is in training mode and drops random elements, the same ones in each run; export the model for inference"
    warnings.warn(f"{node.span.file}: {message}", TrainingWarning, stacklevel=2)
    ratio = scalar(0.5, dtype) if ratio is None else cast_to(ratio, dtype)
    mask = less_equal(ratio, _drawn(node, random_uniform, shape, dtype))
    scaled = mul(x, div(scalar(1, dtype), sub(scalar(1, dtype), ratio)))
    return where(mask, scaled, scalar(0, dtype)), cast_to(mask, mask_dtype)


CONVERTERS: Mapping[str, Converter] = {
    "RandomNormal": _normal,
    "RandomNormalLike": _normal,
    "RandomUniform": _uniform,
    "RandomUniformLike": _uniform,
    "Bernoulli": _bernoulli,
    "Multinomial": _multinomial,
    "Dropout": _dropout,
}
