"""Import an ONNX model and print it in Inlaid's graph IR.

    python examples/show_model.py [MODEL.onnx]

`inlaid show MODEL.onnx` does the same.
"""

from __future__ import annotations

import sys
from pathlib import Path

import onnx

import inlaid
from inlaid.graph.text import show

SQUEEZENET = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light" / "light_squeezenet.onnx"

module = inlaid.load(sys.argv[1] if len(sys.argv) > 1 else SQUEEZENET)

# One line per node, `%1 = conv(%data, ...) : type`. Weights are omitted; weights="hash" prints their content hashes.
print(show(module))

main = module.main
print()
print("inputs:", ", ".join(map(repr, main.params)))
print("result:", main.body.type)
