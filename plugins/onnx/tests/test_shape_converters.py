"""Converters of operators on shapes, indices and order: what ONNX's own node cases leave out.

Old opsets, symbolic dimensions and shapes worked out in the graph, with ONNX Runtime as the oracle.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest
from tests.onnx_runtime import answers

from inlaid.graph.interp import evaluate
from inlaid.graph.ir import Module
from inlaid_onnx import load
from inlaid_onnx.node import NeedsStatic
from inlaid_runtime.errors import ModelImportError

Array = np.ndarray[Any, Any]


def normal(*shape: int) -> Array:
    return np.random.default_rng(0).normal(size=shape).astype(np.float32)


def rounded(*shape: int) -> Array:
    return np.round(normal(*shape))


def int64(*values: int) -> Array:
    return np.array(values, np.int64)


def imported(model: onnx.ModelProto, feeds: dict[str, Array]) -> Module:
    """The module, with the inputs bound that must be known before the run."""
    bound: dict[str, Array] = {}
    for _ in feeds:
        try:
            return load(model, specialize=bound)
        except NeedsStatic as need:
            bound |= {name: feeds[name] for name in need.sources.inputs}
    return load(model, specialize=bound)


def parsed(opset: int, graph: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": {opset}]> g {graph}')


@pytest.mark.parametrize(
    ("opset", "graph", "feeds"),
    [
        (7, "(float[6,4] x) => (float[2,4] a, float[4,4] b) { a, b = Split<axis=0, split=[2,4]>(x) }", [normal(6, 4)]),
        (11, "(float[n,4] x) => (float[n,2] a, float[n,2] b) { a, b = Split<axis=-1>(x) }", [normal(6, 4)]),
        (13, "(float[n,4] x) => (float[k,4] a, float[k,4] b) { a, b = Split<axis=0>(x) }", [normal(6, 4)]),
        (18, "(float[n,4] x) => (float[k,4] a, float[l,4] b) { a, b = Split<axis=0, num_outputs=2>(x) }", [normal(5, 4)]),
        (11, "(float[1,n,1] x) => (float[n] y) { y = Squeeze<axes=[0,-1]>(x) }", [normal(1, 3, 1)]),
        (7, "(float[1,3,1] x) => (float[3] y) { y = Squeeze(x) }", [normal(1, 3, 1)]),
        (11, "(float[n,2] x) => (float[1,n,2,1] y) { y = Unsqueeze<axes=[0,3]>(x) }", [normal(3, 2)]),
        (9, "(float[n,4] x) => (float[k,2] y) { y = Slice<starts=[1,-2], ends=[-1,10000]>(x) }", [normal(6, 4)]),
        (
            13,
            "(float[n,4] x) => (float[k,4] y) <int64[1] s = {-3}, int64[1] e = {9223372036854775807}> { y = Slice(x, s, e) }",
            [normal(6, 4)],
        ),
        (
            13,
            "(float[n,4] x) => (float[k,l] y) <int64[2] s = {5,-1}, int64[2] e = {-9223372036854775808,0}, int64[2] a = {0,1},"
            "int64[2] t = {-2,-1}> { y = Slice(x, s, e, a, t) }",
            [normal(6, 4)],
        ),
        (
            13,
            "(float[n,4] x, int64[2] s, int64[2] e) => (float[k,l] y) { y = Slice(x, s, e) }",
            [normal(6, 4), int64(1, -2), int64(-1, 9)],
        ),
        (7, "(float[3,4] x) => (float[6,3] y) { y = Pad<pads=[1,0,2,-1], value=2.5>(x) }", [normal(3, 4)]),
        (13, '(float[3,4] x, int64[4] p) => (float[k,l] y) { y = Pad<mode="reflect">(x, p) }', [normal(3, 4), int64(-1, 2, 1, -1)]),
        (
            18,
            "(float[n,m] x, float v) => (float[n,k] y) <int64[2] p = {1,3}, int64[1] a = {-1}> { y = Pad(x, p, v, a) }",
            [normal(3, 4), np.float32(3)],
        ),
        (7, "(float[n,4] x, int64[2] r) => (float[k,4] y) { y = Tile(x, r) }", [normal(3, 4), int64(2, 1)]),
        (
            13,
            "(float[n,4,5] x) => (float[n,k] y) <int64 z = {0}, int64[1] a = {0}, int64[1] rest = {-1}>"
            "{ s = Shape(x) l = Gather(s, z) m = Unsqueeze(l, a) t = Concat<axis=0>(m, rest) y = Reshape(x, t) }",
            [normal(3, 4, 5)],
        ),
        (13, "(float[n,4,5] x) => (float[k,2,5] y) <int64[3] t = {-1,2,5}> { y = Reshape(x, t) }", [normal(3, 4, 5)]),
        (13, "(float[n,m,5] x) => (float[n,m,5] y) <int64[3] t = {0,0,-1}> { y = Reshape(x, t) }", [normal(3, 4, 5)]),
        (9, "(float[6,4] x) => (float[2,4] a, int64[2,4] b) { a, b = TopK<k=2, axis=0>(x) }", [normal(6, 4)]),
        (10, "(float[n,4] x) => (float[n,3] a, int64[n,3] b) <int64[1] k = {3}> { a, b = TopK(x, k) }", [rounded(6, 4)]),
        (
            13,
            "(float[n,4] x) => (float[k,4] a, int64[k,4] b) <int64[1] z = {0}, int64[1] o = {1}, int64[1] c = {4}>"
            "{ s = Shape(x) n1 = Slice(s, z, o) k1 = Min(n1, c) a, b = TopK<axis=0>(x, k1) }",
            [normal(6, 4)],
        ),
        (
            9,
            "(float[n,4] x, bool[m] c) => (float[k,4] y) { y = Compress<axis=0>(x, c) }",
            [normal(6, 4), np.array([1, 0, 1], bool)],
        ),
        (
            11,
            "(float[n,4] x, bool[m] c) => (float[k] y) { y = Compress(x, c) }",
            [normal(6, 4), np.array([1, 0, 1, 0, 1, 1, 1], bool)],
        ),
        (
            9,
            "(float[n,4] x, int64[1,2] i, float[1,2] u) => (float[n,4] y) { y = Scatter<axis=1>(x, i, u) }",
            [normal(6, 4), int64(1, 2)[None], normal(1, 2)],
        ),
        (
            18,
            '(float[n,4] x, int64[1,2] i, float[1,2] u) => (float[n,4] y) { y = ScatterElements<axis=1,reduction="add">(x, i, u) }',
            [normal(6, 4), int64(1, 1)[None], normal(1, 2)],
        ),
        (13, "(float[n,1] x, float[n,m] z) => (float[n,m] y) { s = Shape(z) y = Expand(x, s) }", [normal(3, 1), normal(3, 5)]),
        (13, "(float[n,1] x) => (float[2,n,6] y) <int64[3] s = {2,1,6}> { y = Expand(x, s) }", [normal(3, 1)]),
        (
            13,
            "(float[n,4] x) => (int64[n] y) <int64 z = {0}, int64 o = {1}> { s = Shape(x) l = Gather(s, z) y = Range(z, l, o) }",
            [normal(6, 4)],
        ),
        (13, "(int64 a, int64 b, int64 c) => (int64[k] y) { y = Range(a, b, c) }", [np.int64(11), np.int64(2), np.int64(-3)]),
        (13, "(float[n,4] x) => (float[n,4] y) { s = Shape(x) y = ConstantOfShape(s) }", [normal(6, 4)]),
        (
            13,
            "(int64[2,2] x, float[2] v, int64[1] d) => (float[k,2,2] y) { y = OneHot<axis=0>(x, d, v) }",
            [np.array([[1, -1], [9, 0]]), np.float32([2, 5]), int64(4)],
        ),
        (
            13,
            "(float[n,4] x) => (int64[k,2] b, float[k] c, float[1,k] y) <int64[2] r = {1,-1}>"
            "{ a = NonZero(x) b = Transpose(a) c = GatherND(x, b) y = Reshape(c, r) }",
            [rounded(6, 4)],
        ),
        (
            13,
            "(float[2,n] x) => (float[2,k] a, int64[k] b, int64[n] c, int64[k] d) { a, b, c, d = Unique<axis=1>(x) }",
            [rounded(2, 6)],
        ),
        (
            13,
            "(float[2,n] x) => (float[k] a, int64[k] b, int64[m] c, int64[k] d) { a, b, c, d = Unique<sorted=0>(x) }",
            [rounded(2, 6)],
        ),
        (
            13,
            "(float[2,n,4] b, float[2,c,n] s, float[1] t, float[1] u) => (int64[k,3] y) <int64[1] m = {4}>"
            "{ y = NonMaxSuppression(b, s, m, t, u) }",
            [normal(2, 9, 4), normal(2, 3, 9), np.float32([0.3]), np.float32([0.1])],
        ),
        (
            13,
            "(float[2,n,4] b, float[2,c,n] s) => (int64[k,3] y) <int64[1] m = {4}>"
            "{ y = NonMaxSuppression<center_point_box=1>(b, s, m) }",
            [np.abs(normal(2, 9, 4)), normal(2, 3, 9)],
        ),
        (
            13,
            "(float[2,n,4] x, int64[2,1,1] i) => (float[2,1,4] y) { y = GatherND<batch_dims=1>(x, i) }",
            [normal(2, 3, 4), int64(1, -1).reshape(2, 1, 1)],
        ),
        (14, "(float[b,n,m] x, int64 k) => (float[b,n,m] y) { y = Trilu<upper=0>(x, k) }", [normal(2, 3, 4), np.int64(-1)]),
        (18, "(float[n,m] x, int64[2] s) => (float[k,l] y) { y = CenterCropPad(x, s) }", [normal(5, 4), int64(2, 9)]),
        (13, "(float[b,8,h,w] x) => (float[b,2,k,l] y) { y = DepthToSpace<blocksize=2>(x) }", [normal(1, 8, 2, 3)]),
        (13, "(float[b,8,h,w] x) => (float[k,w] y) { y = Flatten<axis=-1>(x) }", [normal(2, 8, 2, 3)]),
        (9, "(float[n,m] x) => (int64[n,m] y) { y = EyeLike<k=1, dtype=7>(x) }", [normal(3, 4)]),
        (15, "(float[n,m] x) => (int64 y, int64[1] z) { y = Size(x) z = Shape<start=1>(x) }", [normal(3, 4)]),
    ],
)
def test_agrees_with_onnx_runtime(opset: int, graph: str, feeds: list[Array]) -> None:
    model = parsed(opset, graph)
    named = {item.name: np.asarray(value) for item, value in zip(model.graph.input, feeds, strict=True)}
    expected = answers(model, named).values()
    module = imported(model, named)
    outputs = evaluate(module, [named[param.name] for param in module.main.params])
    for one, other in zip(outputs if isinstance(outputs, tuple) else (outputs,), expected, strict=True):
        assert (one.dtype, one.shape) == (other.dtype, other.shape)
        np.testing.assert_array_equal(one, other)


def slices(extent: int, constant: bool) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """Slices of a vector from everywhere to everywhere, the positions known to the importer or not; the feeds."""
    steps = {f"t{step}": int64(step) for step in (-3, -2, -1, 1, 2)}
    positions = {f"p{position}": int64(position) for position in range(-2 * extent - 2, 2 * extent + 3)}
    feeds = {"x": np.arange(extent, dtype=np.float32), **({} if constant else positions)}
    nodes = [
        onnx.helper.make_node("Slice", ["x", start, end, "zero", step], [f"y{start}{end}{step}"])
        for start in positions
        for end in positions
        for step in steps
    ]
    graph = onnx.helper.make_graph(
        nodes,
        "slices",
        [onnx.helper.make_tensor_value_info(n, onnx.helper.np_dtype_to_tensor_dtype(v.dtype), v.shape) for n, v in feeds.items()],
        [onnx.helper.make_tensor_value_info(node.output[0], onnx.TensorProto.FLOAT, [None]) for node in nodes],
        [
            onnx.numpy_helper.from_array(value, name)
            for name, value in {**steps, "zero": int64(0), **(positions if constant else {})}.items()
        ],
    )
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 13)], ir_version=8), feeds


@pytest.mark.parametrize("constant", [True, False])
@pytest.mark.parametrize("extent", [0, 1, 3, 4])
def test_slices_from_everywhere_to_everywhere(extent: int, constant: bool) -> None:
    """A start before the axis is its first element, with a negative step too, which Python's slices have otherwise."""
    model, feeds = slices(extent, constant)
    results = evaluate(load(model), feeds)
    expectations = answers(model, feeds, optimized=False).values()
    for node, expected, result in zip(model.graph.node, expectations, results, strict=True):
        assert result.tolist() == expected.tolist(), node.input


@pytest.mark.parametrize(
    ("opset", "graph", "message"),
    [
        (13, "(float[6,4] x) => (float[k] y) <int64[2] t = {-1,-1}> { y = Reshape(x, t) }", "at most one -1"),
        (13, "(float[6,4] x) => (float[k] y) <int64[3] t = {0,0,0}> { y = Reshape(x, t) }", "must be < 2, got 2"),
        (
            13,
            "(float[6,4] x) => (float[k] y) <int64[1] t = {5}> { y = Reshape(x, t) }",
            "new shape must be 24, got 5",
        ),
        (13, "(float[6,4] x) => (float[k] y) { y = Transpose<perm=[0,0]>(x) }", "axes must be unique"),
        (13, "(float[6,4] x) => (float[k] y) { y = Flatten<axis=3>(x) }", "axis must be >= -2 and <= 2, got 3"),
        (11, "(float[6,4] x) => (float[k] y) { y = Squeeze<axes=[0]>(x) }", "dimension 0, which is squeezed, must be 1, got 6"),
        (
            13,
            "(float[6,4] x) => (float[k] a, float[k] b) <int64[2] s = {1,2}> { a, b = Split(x, s) }",
            "the sum of the parts .* must be 6, got 3",
        ),
        (13, "(float[5,4] x) => (float[k] a, float[k] b) { a, b = Split(x) }", "must be a multiple of 2"),
        (
            13,
            "(float[6] x) => (float[k] y) <int64[2] s = {0,0}, int64[2] e = {1,1}> { y = Slice(x, s, e) }",
            "axis must be >= -1 and < 1",
        ),
        (
            13,
            "(float[6] x) => (float[k] y) <int64[3] p = {0,0,0}> { y = Pad(x, p) }",
            "pads must have 2 elements for rank 1, got 3",
        ),
        (13, "(float[6,4] x) => (float[k] y) <int64[1] s = {3}> { y = Expand(x, s) }", "must be 1 or 4 to broadcast, got 3"),
        (13, "(float[6] x) => (float[k] y) { y = DepthToSpace<blocksize=2>(x) }", "must be .N, C, H, W."),
        (14, "(float[6] x) => (float[k] y) { y = Trilu(x) }", "the input must have rank >= 2, got 1"),
        (13, "(float[6,4] x, int64[2] i) => (float[k] y) { y = Gather<axis=2>(x, i) }", "axis must be >= -2 and < 2, got 2"),
        (13, "() => (int64[k] y) <int64 a = {0}, int64 b = {3}, int64 c = {0}> { y = Range(a, b, c) }", "delta must not be 0"),
    ],
)
def test_a_bad_node_is_named(opset: int, graph: str, message: str) -> None:
    with pytest.raises(ModelImportError, match=message) as caught:
        load(parsed(opset, graph))
    assert caught.value.operator and caught.value.node
