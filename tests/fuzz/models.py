"""Small models of every kind of plan: static and symbolic sizes, branches, loops, sizes that data decides, states, host objects."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import onnx
import onnx.helper
import onnx.numpy_helper
import onnx.parser

_HEAD = '<ir_version: 8, opset_import: ["" : 17]>\n'


@dataclass(frozen=True)
class Sample:
    """An ONNX model as text, with initializers; `donate` are inputs whose buffers outputs may reuse, `targets` all targets that its
    packages are compiled for."""

    text: str
    weights: dict[str, np.ndarray] = field(default_factory=dict)
    donate: tuple[str, ...] = ()
    targets: tuple[str, ...] = ("x86", "reference", "opencl")

    def model(self) -> onnx.ModelProto:
        """Parse the text and add the initializers."""
        proto = onnx.parser.parse_model(_HEAD + self.text if not self.text.startswith("<") else self.text)
        for name, array in self.weights.items():
            proto.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
        return proto


def _weights(*shape: int) -> np.ndarray:
    """Initializers; those of 16 KB and more are read past protobuf."""
    return np.linspace(-1, 1, int(np.prod(shape)), dtype=np.float32).reshape(shape)


SAMPLES: dict[str, Sample] = {
    "convolution": Sample(
        "g (float[N, 3, 8, 8] x, float[4, 3, 3, 3] w) => (float[N, 4] y)"
        " { c = Conv <pads = [1, 1, 1, 1]> (x, w)  r = Relu(c)  p = GlobalAveragePool(r)  y = Flatten(p) }",
        {"w": _weights(4, 3, 3, 3)},
    ),
    "dense": Sample(
        "g (float[2, 6] x, float[6, 5] w, float[5] b) => (float[2, 5] y)"
        " { m = MatMul(x, w)  a = Add(m, b)  s = Sigmoid(a)  y = Softmax <axis = 1> (s) }",
        {"w": _weights(6, 5), "b": _weights(5)},
    ),
    "large weight": Sample("g (float[N, 64] x, float[64, 80] w) => (float[N, 80] y) { y = MatMul(x, w) }", {"w": _weights(64, 80)}),
    "reshape": Sample("g (float[2, 6] x) => (float[?, ?] y) { s = Constant <value_ints = [3, 4]> ()  y = Reshape(x, s) }"),
    "constraint": Sample(
        "g (float[N, M] x, float[K, M] w) => (float[?, M] y, float[N, M] z)"
        " { y = Concat <axis = 0> (x, w)  t = Add(x, w)  z = Abs(t) }"
    ),
    "gather": Sample(
        "g (float[N, 6] x, int64[3] i) => (float[3, 6] y, float[N, 2] z)"
        " { y = Gather <axis = 0> (x, i)  k = Constant <value_ints = [5, 0]> ()  z = Gather <axis = 1> (x, k) }"
    ),
    "scatter": Sample(
        "g (float[N, 4] x, int64[N, 4] i, float[N, 4] u) => (float[N, 4] y, float[N, 4] z)"
        " { y = ScatterElements <axis = 1> (x, i, u)  z = GatherElements <axis = 1> (u, i) }",
        donate=("x",),
    ),
    "loop": Sample(
        "g (int64 n, float[2] x) => (float[2] y, float[?, 2] z) { y, z = Loop (n, , x) <body = b (int64 i, bool c, float[2] s)"
        " => (bool d, float[2] t, float[2] o) { d = Identity(c)  t = Add(s, s)  o = Neg(s) }> }"
    ),
    "counted loop": Sample(
        "g (float[2] x) => (float[2] y, float[5, 2] z) { n = Constant <value_int = 5> ()  y, z = Loop (n, , x)"
        " <body = b (int64 i, bool c, float[2] s) => (bool d, float[2] t, float[2] o)"
        " { d = Identity(c)  t = Add(s, s)  o = Neg(s) }> }"
    ),
    "scan": Sample(
        "g (float[3] s, float[T, 3] x) => (float[3] y, float[T, 3] z) { y, z = Scan <num_scan_inputs = 1,"
        " body = b (float[3] s, float[3] x) => (float[3] t, float[3] o) { t = Add(s, x)  o = Tanh(t) }> (s, x) }"
    ),
    "lstm": Sample(
        "g (float[T, 1, 3] x, float[1, 8, 3] w, float[1, 8, 2] r) => (float[T, 1, 1, 2] y)"
        " { y, h, c = LSTM <hidden_size = 2> (x, w, r) }",
        {"w": _weights(1, 8, 3), "r": _weights(1, 8, 2)},
    ),
    "branch": Sample(
        "g (bool c, float[N] x) => (float[N] y) { y = If (c) <then_branch = t () => (float[N] a) { a = Neg(x) },"
        " else_branch = e () => (float[N] b) { q = Abs(x)  b = Sqrt(q) }> }"
    ),
    "nonzero": Sample(
        "g (float[N] x) => (int64[1, ?] y, float[?] z) { y = NonZero(x)  t = Transpose(y)  g = GatherND(x, t)  z = Exp(g) }"
    ),
    "range": Sample(
        "g (int64[N] n) => (int64[?] y, float[?] e) { m = ReduceMax <keepdims = 0> (n)  a = Constant <value_int = 0> ()"
        " b = Constant <value_int = 1> ()  y = Range(a, m, b)  f = Cast <to = 1> (y)  e = Exp(f) }"
    ),
    "top": Sample(
        "g (float[N, 9] x) => (float[N, 3] v, int64[N, 3] i, float[N, 9] c)"
        " { k = Constant <value_ints = [3]> ()  v, i = TopK(x, k)  a = Constant <value_int = 1> ()  c = CumSum(x, a) }"
    ),
    "cache": Sample(
        "g (float[1, M, 4] c, float[1, 1, 4] n) => (float[1, ?, 4] y, float[1, ?, 1] s)"
        " { y = Concat <axis = 1> (c, n)  q = Transpose <perm = [0, 2, 1]> (n)  s = MatMul(y, q) }"
    ),
    "update": Sample(
        "g (float[8, 4] c, int64[1, 1] p, float[1, 4] n) => (float[8, 4] y) { y = ScatterND(c, p, n) }", donate=("c",)
    ),
    "normalization": Sample(
        "g (float[N, 4] x, float[4] s) => (float[N, 4] y) { y = LayerNormalization <axis = -1> (x, s) }", {"s": _weights(4)}
    ),
    "quantized": Sample(
        "g (uint8[N, 4] x, float k, uint8 z) => (uint8[N, 4] y)"
        " { d = DequantizeLinear(x, k, z)  r = Relu(d)  y = QuantizeLinear(r, k, z) }"
    ),
    "sequence": Sample(
        "g (float[2, 3] x, float[2, 3] w) => (float[?, 3] y)"
        " { s = SequenceConstruct(x, w)  y = ConcatFromSequence <axis = 0> (s) }",
        targets=("x86",),
    ),
    "function": Sample(
        '<ir_version: 8, opset_import: ["" : 17, "own" : 1]>\n'
        "g (float[N] x) => (float[N] y) { a = own.twice(x)  y = own.twice(a) }\n"
        '<domain: "own", opset_import: ["" : 17]> twice (x) => (y) { y = Add(x, x) }'
    ),
    "pool": Sample(
        "g (float[1, 2, H, W] x) => (float[1, 2, ?, ?] y) { y = MaxPool <kernel_shape = [3, 3], strides = [2, 2]> (x) }",
    ),
}
"""Models by name."""
