"""Listed rows of part 3: products whose operands are both inputs, and shapes narrower than a vector."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import onnx

from variants.axes import SYMBOLIC_LIMIT
from variants.row import Row, beside, listed, unknown_sizes
from zoo.net import Net, Size

Shape = tuple[Size, ...]


def rows() -> Iterator[Row]:
    """Yield the rows, static and symbolic."""
    for name, build, rank, static, symbolic, sizes in (
        (
            "x · wᵀ, w an input",
            _transposed,
            2,
            ((128, 768), (768, 768)),
            (("rows", 768), ("columns", 768)),
            {"rows": 128, "columns": 768},
        ),
        (
            "gemm transB, w an input",
            _gemm,
            2,
            ((128, 768), (768, 768)),
            (("rows", 768), ("columns", 768)),
            {"rows": 128, "columns": 768},
        ),
        (
            "decode step q · kᵀ",
            _scores,
            4,
            ((1, 12, 1, 64), (1, 12, 512, 64)),
            ((1, 12, 1, 64), (1, 12, "past", 64)),
            {"past": 512},
        ),
        ("matrix × vector", _product, 1, ((1024, 1024), (1024,)), (("rows", 1024), (1024,)), {"rows": 1024}),
        ("vector × matrix", _product, 1, ((1024,), (1024, 1024)), ((1024,), (1024, "columns")), {"columns": 1024}),
        ("one row, w an input", _product, 2, ((1, 768), (768, 3072)), ((1, 768), (768, "columns")), {"columns": 3072}),
        ("product of 3 columns", _product, 2, ((1024, 256), (256, 3)), (("rows", 256), (256, 3)), {"rows": 1024}),
        ("einsum ij,j->i", partial(_einsum, "ij,j->i"), 1, ((1024, 1024), (1024,)), (("rows", 1024), (1024,)), {"rows": 1024}),
        ("einsum bii->bi", partial(_einsum, "bii->bi"), 2, ((64, 256, 256),), (("batch", 256, 256),), {"batch": 64}),
        (
            "einsum bij,bkj->bik",
            partial(_einsum, "bij,bkj->bik"),
            3,
            ((8, 64, 64), (8, 64, 64)),
            (("batch", 64, 64),) * 2,
            {"batch": 8},
        ),
    ):
        yield listed(3, name, partial(build, rank, *static))
        yield listed(
            3, f"{name}, symbolic", partial(build, rank, *symbolic), beside(name, "symbolic by static", SYMBOLIC_LIMIT), sizes=sizes
        )


def _transposed(rank: int, data: Shape, weights: Shape) -> onnx.ModelProto:
    net = Net("variant")
    x, w = net.input("x", data), net.input("w", weights)
    net.output(net.node("MatMul", x, net.node("Transpose", w, perm=[1, 0])), "y", unknown_sizes(rank))
    return net.build()


def _gemm(rank: int, data: Shape, weights: Shape) -> onnx.ModelProto:
    net = Net("variant")
    net.output(net.node("Gemm", net.input("x", data), net.input("w", weights), transB=1), "y", unknown_sizes(rank))
    return net.build()


def _scores(rank: int, queries: Shape, keys: Shape) -> onnx.ModelProto:
    net = Net("variant")
    q, k = net.input("q", queries), net.input("k", keys)
    net.output(net.node("MatMul", q, net.node("Transpose", k, perm=[0, 1, 3, 2])), "y", unknown_sizes(rank))
    return net.build()


def _product(rank: int, data: Shape, weights: Shape) -> onnx.ModelProto:
    net = Net("variant")
    net.output(net.node("MatMul", net.input("x", data), net.input("w", weights)), "y", unknown_sizes(rank))
    return net.build()


def _einsum(equation: str, rank: int, *shapes: Shape) -> onnx.ModelProto:
    net = Net("variant")
    operands = [net.input(f"x{number}", shape) for number, shape in enumerate(shapes)]
    net.output(net.node("Einsum", *operands, equation=equation), "y", unknown_sizes(rank))
    return net.build()
