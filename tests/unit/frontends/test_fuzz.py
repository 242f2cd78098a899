"""Mutated models: whatever the bytes, the importer gives a module or a `ModelImportError`, and soon."""

from __future__ import annotations

import contextlib
import random

import onnx
import onnx.parser
import pytest

from inlaid.errors import ModelImportError
from inlaid.frontends.onnx import load

MODELS = [
    "g (float[N, 3, 8, 8] x, float[4, 3, 3, 3] w) => (float[N, 4] y)"
    " { c = Conv <pads = [1, 1, 1, 1]> (x, w)  r = Relu(c)  p = GlobalAveragePool(r)  y = Flatten(p) }",
    "g (float[2, 6] x) => (float[?, ?] y) { s = Constant <value_ints = [3, 4]> ()  y = Reshape(x, s) }",
    "g (int64 n, float[2] x) => (float[2] y) { y = Loop (n, , x) <body = b (int64 i, bool c, float[2] s)"
    " => (bool d, float[2] t) { d = Identity(c)  t = Add(s, s) }> }",
    "g (bool c, float[2] x) => (float[2] y) { y = If (c) <then_branch = t () => (float[2] a) { a = Neg(x) },"
    " else_branch = e () => (float[2] b) { b = Abs(x) }> }",
    "g (float[2, 4] x, float[4] s) => (float[2, 4] y) { y = LayerNormalization <axis = -1> (x, s) }",
    "g (uint8[4, 4] x, float k, uint8 z) => (uint8[4, 4] y) { d = DequantizeLinear(x, k, z)  y = QuantizeLinear(d, k, z) }",
]


def mutated(data: bytes, rng: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.randint(1, 5)):
        place = rng.randrange(len(changed))
        match rng.randrange(5):
            case 0 | 1:
                changed[place] = rng.randrange(256)
            case 2:
                del changed[place : place + rng.randint(1, 8)]
            case 3:
                changed[place:place] = rng.randbytes(rng.randint(1, 4))
            case 4:
                changed = changed[: max(place, 1)]
        changed = changed or bytearray(b"\x08")
    return bytes(changed)


@pytest.mark.parametrize("number", range(len(MODELS)))
def test_mutated_models_give_one_clear_error(number):
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]>\n{MODELS[number]}')
    if number == 0:
        model.graph.initializer.append(onnx.helper.make_tensor("w", onnx.TensorProto.FLOAT, [4, 3, 3, 3], [0.5] * 108))
    data = model.SerializeToString()
    load(data)
    rng = random.Random(number)
    for _ in range(400):
        with contextlib.suppress(ModelImportError):
            load(mutated(data, rng))


def test_every_truncation_is_survived():
    data = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]>\n{MODELS[3]}').SerializeToString()
    for length in range(len(data)):
        with contextlib.suppress(ModelImportError):
            load(data[:length])
