"""Partition a model into regions, one target each, and explain each operator's placement.

    python examples/partition.py

`inlaid partition MODEL.onnx --targets x86 --explain` prints the same for a model in a file.
"""

from __future__ import annotations

import numpy as np

import inlaid
from inlaid.driver import cut
from inlaid.partitioning.explain import explain

# A table maps words to numbers, which select rows of a matrix, from which scores are computed. x86 does not support strings, so the
# first step runs on the target `reference`.
words = ("good", "bad", "film")
generator = np.random.default_rng(0)
rows = generator.standard_normal((4, 8)).astype(np.float32)
weights = generator.standard_normal((8, 2)).astype(np.float32)
text = inlaid.var("text", inlaid.TensorType((5,), "string"))
numbers = inlaid.ops.lookup(text, keys=words, values=(0, 1, 2), default=3, dtype="int64")
embedded = inlaid.ops.take(inlaid.constant(rows), numbers, axis=0)
scores = inlaid.ops.softmax(inlaid.ops.matmul(embedded, inlaid.constant(weights)), axis=1)
module = inlaid.Module({"main": inlaid.function([text], scores)})

# The first target that accepts an operator takes it; `reference` is the fallback after the listed targets.
partitioned, candidates = cut(module, ["x86"])
print(explain(partitioned, candidates).to_text())

executable = inlaid.compile(module, targets=["x86"])
(result,) = executable.run({"text": np.array(["a", "good", "film", "not", "bad"], object)}).values()
powers = np.exp(rows[[3, 0, 2, 3, 1]] @ weights)
np.testing.assert_allclose(result, powers / powers.sum(axis=1, keepdims=True), rtol=1e-4)
print()
print("regions:", ", ".join(f"{region.symbol} on {region.target}" for region in executable.regions))
