"""A transformer layer as exporters write it: every shape is computed from the sizes of the input, none is known."""

from __future__ import annotations

import numpy as np
import onnx.parser
import pytest
from tests.onnx_runtime import answers

import inlaid.onnx_backend as backend
from inlaid_onnx import load
from inlaid_runtime.arith import SizeVar
from inlaid_runtime.types import TensorType

LAYER = """<ir_version: 8, opset_import: ["" : 17]>
g (int64[batch, seq] ids, float[10, 8] words, float[64, 8] places, float[8, 24] weights) => (float[batch, seq, 8] y) {
  shape = Shape(ids)
  i0 = Constant <value_int = 0> ()
  i1 = Constant <value_int = 1> ()
  v0 = Constant <value_ints = [0]> ()
  v1 = Constant <value_ints = [1]> ()
  b = Gather(shape, i0)
  s = Gather(shape, i1)
  range = Range(i0, s, i1)
  row = Unsqueeze(range, v0)
  place_ids = Expand(row, shape)
  word = Gather(words, ids)
  place = Gather(places, place_ids)
  x = Add(word, place)
  qkv = MatMul(x, weights)
  q, k, v = Split <axis = 2> (qkv)
  bs = Unsqueeze(b, v0)
  ss = Unsqueeze(s, v0)
  heads = Constant <value_ints = [2, 4]> ()
  split = Concat <axis = 0> (bs, ss, heads)
  q1 = Reshape(q, split)
  k1 = Reshape(k, split)
  v_1 = Reshape(v, split)
  q2 = Transpose <perm = [0, 2, 1, 3]> (q1)
  k2 = Transpose <perm = [0, 2, 3, 1]> (k1)
  v2 = Transpose <perm = [0, 2, 1, 3]> (v_1)
  scores = MatMul(q2, k2)
  square = Concat <axis = 0> (ss, ss)
  low = ConstantOfShape <value = float[1] {-10000.0}> (square)
  mask = Trilu <upper = 1> (low, i1)
  masked = Add(scores, mask)
  p = Softmax <axis = -1> (masked)
  o = MatMul(p, v2)
  o1 = Transpose <perm = [0, 2, 1, 3]> (o)
  rest = Constant <value_ints = [-1]> ()
  width = Constant <value_ints = [8]> ()
  joined = Concat <axis = 0> (bs, rest, width)
  o2 = Reshape(o1, joined)
  all = Slice(o2, v0, ss, v1, v1)
  y = Relu(all)
}"""


def test_sizes_are_followed_to_the_end():
    assert load(onnx.parser.parse_model(LAYER)).main.body.type == TensorType((SizeVar("batch"), SizeVar("seq"), 8), "float32")
    assert load(onnx.parser.parse_model(LAYER), dims={"batch": 2, "seq": 5}).main.body.type == TensorType((2, 5, 8), "float32")


@pytest.mark.parametrize("device", ["reference", "x86"])
def test_one_program_serves_all_sizes(device):
    model = onnx.parser.parse_model(LAYER)
    rng = np.random.default_rng(0)
    tables = {
        name: rng.standard_normal(shape, np.float32)
        for name, shape in (("words", (10, 8)), ("places", (64, 8)), ("weights", (8, 24)))
    }
    prepared = backend.prepare(model, device)
    for sizes in ((1, 3), (4, 7), (2, 1)):
        inputs = {"ids": rng.integers(0, 10, sizes), **tables}
        (actual,) = prepared.run(inputs)
        np.testing.assert_allclose(actual, *answers(model, inputs).values(), rtol=1e-4, atol=1e-5)
    assert len(prepared.programs) == 1
