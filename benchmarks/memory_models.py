"""Models of two sizes, which may be symbolic, whose memory `memory.py --symbolic` compares.

An encoder of free batch and sequence, a decoding step of free batch and cache, and a network of free height and width that goes
down and up again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from inlaid import ops
from inlaid.graph import ir
from inlaid_runtime.arith import Dim
from inlaid_runtime.types import TensorType

WIDTH, HEADS, INNER = 256, 4, 1024


def weight(*shape: int) -> ir.Expr:
    """Random weights."""
    return ir.constant((np.random.default_rng(sum(shape)).standard_normal(shape) * 0.05).astype(np.float32))


def heads(value: ir.Expr, batch: Dim, length: Dim) -> ir.Expr:
    """A value of [batch, length, width] as [batch, heads, length, depth]."""
    return ops.transpose(ops.reshape(value, shape=(batch, length, HEADS, WIDTH // HEADS)), perm=(0, 2, 1, 3))


def attended(query: ir.Expr, key: ir.Expr, value: ir.Expr, batch: Dim, length: Dim) -> ir.Expr:
    """Attention over heads, joined again."""
    scores = ops.matmul(query, ops.transpose(key, perm=(0, 1, 3, 2)))
    shares = ops.softmax(ops.mul(scores, ir.constant(np.float32(0.125))), axis=3)
    return ops.reshape(ops.transpose(ops.matmul(shares, value), perm=(0, 2, 1, 3)), shape=(batch, length, WIDTH))


def forward(value: ir.Expr) -> ir.Expr:
    """Two products with a nonlinearity between them."""
    return ops.add(value, ops.matmul(ops.gelu(ops.matmul(value, weight(WIDTH, INNER))), weight(INNER, WIDTH)))


def encoder(batch: Dim, length: Dim) -> ir.Function:
    """Two layers of a transformer."""
    x = ir.var("x", TensorType((batch, length, WIDTH), "float32"))
    value: ir.Expr = x
    for _ in range(2):
        parts = [heads(ops.matmul(value, weight(WIDTH, WIDTH)), batch, length) for _ in range(3)]
        value = forward(ops.add(value, ops.matmul(attended(parts[0], parts[1], parts[2], batch, length), weight(WIDTH, WIDTH))))
    return ir.function([x], ir.tuple_([value]))


def decoder(batch: Dim, length: Dim) -> ir.Function:
    """A layer that reads one token, and keys and values of a cache."""
    x = ir.var("x", TensorType((batch, 1, WIDTH), "float32"))
    cache = [ir.var(name, TensorType((batch, HEADS, length, WIDTH // HEADS), "float32")) for name in ("keys", "values")]
    query, *new = (heads(ops.matmul(x, weight(WIDTH, WIDTH)), batch, 1) for _ in range(3))
    key, value = (ops.concat(old, row, axis=2) for old, row in zip(cache, new, strict=True))
    output = forward(ops.add(x, attended(query, key, value, batch, 1)))
    return ir.function([x, *cache], ir.tuple_([output, key, value]))


def pyramid(height: Dim, width: Dim) -> ir.Function:
    """Convolutions that go down two steps, and up again, joined with what was there on the way down."""
    x = ir.var("x", TensorType((1, 3, height, width), "float32"))

    def convolved(value: ir.Expr, channels: int, stride: int = 1) -> ir.Expr:
        assert isinstance(value.type, TensorType) and isinstance(value.type.shape[1], int)
        weights = weight(channels, value.type.shape[1], 3, 3)
        return ops.relu(ops.conv(value, weights, pads=(1,) * 4, strides=(stride, stride)))

    first = convolved(convolved(x, 16), 16)
    second = convolved(convolved(first, 32, 2), 32)
    third = convolved(convolved(second, 64, 2), 64)
    value = convolved(third, 64)
    for before in (second, first):
        assert isinstance(before.type, TensorType) and isinstance(value.type, TensorType)
        rows, columns = before.type.shape[2:]
        larger = ops.resize(value, shape=(1, value.type.shape[1], rows, columns), scales=(1.0, 1.0, 0.0, 0.0))
        value = convolved(ops.concat(larger, before, axis=1), 16)
    return ir.function([x], ir.tuple_([convolved(value, 4)]))


MODELS: Mapping[str, tuple[Callable[[Dim, Dim], ir.Function], Sequence[tuple[int, int]]]] = {
    "encoder": (encoder, ((1, 16), (1, 128), (4, 64), (1, 512), (8, 384))),
    "decoder": (decoder, ((1, 1), (1, 100), (4, 500), (1, 2000))),
    "pyramid": (pyramid, ((32, 32), (65, 97), (224, 224), (480, 640))),
}
"""Functions of two sizes, and the sizes at which they are compared, by name."""
