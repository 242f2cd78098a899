"""Programs in which a kernel computes a size, and an operator of the same region requires something of it.

Each runs at sizes that satisfy the requirement, with the values of numpy, and at sizes that do not, where it is refused before a
kernel accesses memory by the size.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from inlaid import ops
from inlaid.driver.compile import compile_module
from inlaid.graph import ir
from inlaid.graph.ir import Expr, Module, Var, var
from inlaid.plugins.registry import PluginRegistry
from inlaid_runtime import arith
from inlaid_runtime.arith import SizeVar
from inlaid_runtime.errors import InputError
from inlaid_runtime.execution.executable import Executable
from inlaid_runtime.types import TensorType

Array = np.ndarray[Any, Any]
Feeds = Mapping[str, Array]
N, M = SizeVar("N"), SizeVar("M")
INDICES = "int64"


@dataclass(frozen=True)
class Case:
    """A program, inputs, and the result in numpy; None for inputs that operator `operator` refuses with an error that contains
    `refusal`."""

    name: str
    build: Callable[[], tuple[Sequence[Var], Expr]]
    feeds: Sequence[Feeds]
    result: Callable[[Feeds], Array | None]
    operator: str
    refusal: str

    def module(self) -> Module:
        """The program; the operator that requires something has the span "model:node"."""
        params, body = self.build()
        return Module({"main": ir.function(params, body)})


def make_vector(name: str, size: SizeVar, dtype: str = "float32") -> Var:
    return var(name, TensorType((size,), dtype))


def x_with(count: int) -> Array:
    """Six elements, of which the last `count` are nonzero."""
    return (np.arange(6) >= 6 - count).astype(np.float32)


SPAN = ir.Span("model", "node")


def _nonzero_indices(x: Expr) -> Expr:
    """The indices of nonzero elements, as a vector."""
    indices = ops.nonzero(x)
    return ops.reshape(indices, shape=indices.type.shape[1:])


def _beside() -> tuple[Sequence[Var], Expr]:
    x, z = make_vector("x", N), make_vector("z", M, INDICES)
    rows = [ops.reshape(item, shape=(1, *item.type.shape)) for item in (_nonzero_indices(x), z)]
    return (x, z), ops.neg(ops.concat(*rows, axis=0, span=SPAN))


def _sum() -> tuple[Sequence[Var], Expr]:
    x, z = make_vector("x", N), make_vector("z", M, INDICES)
    return (x, z), ops.neg(ops.add(_nonzero_indices(x), z, span=SPAN))


def _halves() -> tuple[Sequence[Var], Expr]:
    x = make_vector("x", N)
    indices = _nonzero_indices(x)
    (count,) = indices.type.shape
    return (x,), ops.reduce_sum(ops.reshape(indices, shape=(arith.floordiv(count, 2), 2), span=SPAN), axes=(1,))


def _halves_as_view() -> tuple[Sequence[Var], Expr]:
    """No kernel runs after the one that computes the size."""
    x = make_vector("x", N)
    indices = _nonzero_indices(x)
    return (x,), ops.reshape(indices, shape=(arith.floordiv(indices.type.shape[0], 2), 2), span=SPAN)


def _slice() -> tuple[Sequence[Var], Expr]:
    x = make_vector("x", N)
    return (x,), ops.strided_slice(_nonzero_indices(x), begin=(1,), end=(3,), strides=(1,), span=SPAN)


def _topk() -> tuple[Sequence[Var], Expr]:
    x = make_vector("x", N)
    best = ops.topk(ops.cast(_nonzero_indices(x), dtype="float32"), k=3, axis=0, span=SPAN)
    return (x,), ir.tuple_item(best, 0)


def _product() -> tuple[Sequence[Var], Expr]:
    x, z = make_vector("x", N), var("z", TensorType((M, 3), "float32"))
    indices = _nonzero_indices(x)
    row = ops.reshape(ops.cast(indices, dtype="float32"), shape=(1, *indices.type.shape))
    return (x, z), ops.matmul(row, z, span=SPAN)


def _two_counts() -> tuple[Sequence[Var], Expr]:
    x, z = make_vector("x", N), make_vector("z", M)
    return (x, z), ops.mul(*(ops.reshape(_nonzero_indices(item), shape=(1, -1)) for item in (x, z)), span=SPAN)


def _distinct() -> tuple[Sequence[Var], Expr]:
    x, z = make_vector("x", N), make_vector("z", M, INDICES)
    first = ir.tuple_item(ops.unique(ops.reshape(x, shape=(N, 1))), 0)
    return (x, z), ops.less(first, ops.broadcast_to(z, shape=first.type.shape, span=SPAN))


def _cut() -> tuple[Sequence[Var], Expr]:
    """Two sizes from one kernel, one of which is required to be the size of an input."""
    x, at = var("x", TensorType((4, 5), "float32")), var("at", TensorType((2,), INDICES))
    z = var("z", TensorType((M, 1), "float32"))
    part = ops.dynamic_slice(x, np.zeros(2, np.int64), at, axes=(0, 1), strides=(1, 1))
    return (x, at, z), ops.reduce_sum(ops.concat(part, z, axis=1, span=SPAN), axes=(1,))


def _boxes() -> tuple[Sequence[Var], Expr]:
    boxes, scores = var("boxes", TensorType((1, N, 4), "float32")), var("scores", TensorType((1, 1, N), "float32"))
    z = var("z", TensorType((M, 3), INDICES))
    selection = ops.non_max_suppression(boxes, scores, np.float32(0.5), np.float32(0.5), max_output=10)
    return (boxes, scores, z), ops.minimum(ops.concat(selection, z, axis=1, span=SPAN), 7)


def _shrunk() -> tuple[Sequence[Var], Expr]:
    x = make_vector("x", N)
    return (x,), ops.neg(ops.pad(_nonzero_indices(x), 0, pads=(0, -2), span=SPAN))


def _indices(feeds: Feeds, name: str = "x") -> Array:
    return np.flatnonzero(feeds[name])


def _equal(one: Array, other: Array, result: Callable[[Array, Array], Array]) -> Array | None:
    return result(one, other) if len(one) == len(other) else None


def _broadcast(one: Array, other: Array, result: Callable[[Array, Array], Array]) -> Array | None:
    return result(one, other) if len(one) == len(other) or 1 in (len(one), len(other)) else None


def _vectors(counts: Sequence[int] = (4,), lengths: Sequence[int] = (4, 5, 3, 1, 0)) -> list[Feeds]:
    return [{"x": x_with(count), "z": np.full(length, 10)} for count in counts for length in lengths]


def _box_feeds() -> list[Feeds]:
    corners = np.array([[0, 0, 1, 1], [0, 0, 1, 1], [5, 5, 6, 6]], np.float32)[None]
    scores = np.array([[[0.9, 0.8, 0.7]]], np.float32)
    return [{"boxes": corners, "scores": scores, "z": np.full((rows, 3), 9)} for rows in (2, 3, 1, 0)]


CASES = (
    Case(
        "concat", _beside, _vectors((4, 0)),
        lambda f: _equal(_indices(f), f["z"], lambda a, b: -np.stack([a, b])), "concat", "must be",
    ),
    Case("add", _sum, _vectors((4, 1, 0)), lambda f: _broadcast(_indices(f), f["z"], lambda a, b: -(a + b)), "add", "to broadcast"),
    Case(
        "reshape", _halves, [{"x": x_with(n)} for n in (4, 5, 1, 0)],
        lambda f: _indices(f).reshape(-1, 2).sum(1) if len(_indices(f)) % 2 == 0 else None, "reshape", "must be",
    ),
    Case(
        "view", _halves_as_view, [{"x": x_with(n)} for n in (4, 5, 1, 0)],
        lambda f: _indices(f).reshape(-1, 2) if len(_indices(f)) % 2 == 0 else None, "reshape", "must be",
    ),
    Case(
        "slice", _slice, [{"x": x_with(n)} for n in (3, 6, 2, 0)],
        lambda f: _indices(f)[1:3] if len(_indices(f)) >= 3 else None, "strided_slice", "must be",
    ),
    Case(
        "topk", _topk, [{"x": x_with(n)} for n in (3, 6, 2, 0)],
        lambda f: np.sort(_indices(f).astype(np.float32))[::-1][:3] if len(_indices(f)) >= 3 else None, "topk", "k must be",
    ),
    Case(
        "matmul", _product, [{"x": x_with(4), "z": np.ones((length, 3), np.float32)} for length in (4, 5, 3, 0)],
        lambda f: _equal(_indices(f), f["z"], lambda a, b: (a.astype(np.float32) @ b)[None]), "matmul", "must be",
    ),
    Case(
        "two counts", _two_counts, [{"x": x_with(n), "z": x_with(m)} for n, m in ((3, 3), (3, 1), (3, 2), (0, 2), (2, 0), (0, 0))],
        lambda f: _broadcast(_indices(f), _indices(f, "z"), lambda a, b: (a * b)[None]), "mul", "to broadcast",
    ),
    Case(
        "unique", _distinct, [{"x": np.arange(6, dtype=np.float32) % 3, "z": np.full(m, 1)} for m in (3, 1, 2, 4, 0)],
        lambda f: np.arange(3) < f["z"] if len(f["z"]) in (1, 3) else None, "broadcast_to", "to broadcast",
    ),
    Case(
        "dynamic slice", _cut,
        [
            {"x": np.ones((4, 5), np.float32), "at": np.array([rows, 2]), "z": np.ones((3, 1), np.float32)}
            for rows in (3, 4, 2, 0)
        ],
        lambda f: np.full(3, 3, np.float32) if f["at"][0] == 3 else None, "concat", "must be",
    ),
    Case(
        "boxes", _boxes, _box_feeds(),
        lambda f: np.array([[0, 0, 0, 7, 7, 7], [0, 0, 2, 7, 7, 7]]) if len(f["z"]) == 2 else None, "concat", "must be",
    ),
    Case(
        "pad", _shrunk, [{"x": x_with(n)} for n in (5, 2, 1, 0)],
        lambda f: -_indices(f)[:-2] if len(_indices(f)) >= 2 else None, "pad", ">= 0",
    ),
)  # fmt: skip


def check(case: Case, run: Callable[[Feeds], Array]) -> None:
    """Run a case at all its inputs."""
    refused = 0
    for feeds in case.feeds:
        expected = case.result(feeds)
        if expected is None:
            with pytest.raises(InputError, match=re.escape(case.refusal)) as caught:
                run(feeds)
            assert (caught.value.operator, caught.value.node) == (case.operator, "model:node")
            assert "must be" in caught.value.message and "got" in caught.value.message
            refused += 1
        else:
            np.testing.assert_array_equal(run(feeds), expected)
    assert 0 < refused < len(case.feeds)


def check_executable(case: Case, executable: Executable) -> None:
    """Run a case that is one region."""
    assert len(executable.regions) == 1
    check(case, lambda feeds: np.asarray(next(iter(executable.run(feeds).values()))))


def check_target(case: Case, target: str, registry: PluginRegistry | None = None) -> None:
    """Compile a case for a target as one region, and run it."""
    check_executable(case, compile_module(case.module(), [target], registry, keep=False))
