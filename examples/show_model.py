"""Import an ONNX model and print it in Inlay's graph IR.

    python examples/show_model.py [MODEL.onnx]

`inlay show MODEL.onnx` does the same.
"""

from __future__ import annotations

import sys
from pathlib import Path

import onnx

import inlay
from inlay.graph.text import show

SQUEEZENET = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light" / "light_squeezenet.onnx"

module = inlay.load(sys.argv[1] if len(sys.argv) > 1 else SQUEEZENET)

# One line per node, `%1 = conv(%data, ...) : type`. Weights are left out; weights="hash" prints their content hashes instead.
print(show(module))

main = module.main
print()
print("inputs:", ", ".join(map(repr, main.params)))
print("result:", main.body.type)
