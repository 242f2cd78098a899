"""Profile one run of a model by kernel and source node.

    python examples/profile_model.py [TRACE.json]

If a path is given, also writes a Chrome trace, for chrome://tracing or Perfetto.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import onnx

import inlaid
from inlaid_cli.common import progress_bar

SQUEEZENET = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light" / "light_squeezenet.onnx"

with progress_bar() as report:
    executable = inlaid.compile(SQUEEZENET, targets=["x86"], progress=report)
inputs = {spec.name: np.ones(spec.shape, spec.dtype.numpy) for spec in executable.inputs}
executable.run(inputs)  # warm-up: the first run starts the threads

profile = executable.profile(inputs)
print(profile.table())

longest = profile.rows()[0]
print()
print(f"the longest: {longest.name} on {longest.target}, {longest.share:.0%} of {profile.seconds * 1e3:.1f} ms")
print(f"its source nodes: {', '.join(longest.nodes) or 'none'}")
if len(sys.argv) > 1:
    profile.save_chrome_trace(sys.argv[1])
    print(f"wrote {sys.argv[1]}")
