"""Compile once for any batch size and any sequence length within bounds.

    python examples/symbolic_sizes.py

For a model in a file: `inlaid.compile("model.onnx", dims={"batch": (1, 64), "length": 128})`, or `inlaid compile model.onnx --dim
batch=1:64 --dim length=128`.
"""

from __future__ import annotations

import numpy as np

import inlaid

batch, length = inlaid.SizeVar("batch", 1, 64), inlaid.SizeVar("length", 1, 512)
x = inlaid.var("x", inlaid.TensorType((batch, length, 8), "float32"))

# Attention of every position to every other: the scores have shape (batch, length, length).
scores = inlaid.ops.matmul(x, inlaid.ops.transpose(x, perm=(0, 2, 1)))
result = inlaid.ops.matmul(inlaid.ops.softmax(scores, axis=2), x)
executable = inlaid.compile(inlaid.Module({"main": inlaid.function([x], result)}), targets=["x86"])
print(executable)


def attend(data: np.ndarray) -> np.ndarray:
    """Compute the same in numpy."""
    weights = np.exp(data @ data.transpose(0, 2, 1))
    return (weights / weights.sum(axis=2, keepdims=True)) @ data


generator = np.random.default_rng(0)
for shape in ((1, 3, 8), (5, 17, 8), (2, 64, 8)):
    data = generator.standard_normal(shape).astype(np.float32)
    (output,) = executable.run({"x": data}).values()
    np.testing.assert_allclose(output, attend(data), rtol=1e-4, atol=1e-5)
    print(f"{shape}: right; arena {executable.workspace_bytes({'x': data})} bytes")
