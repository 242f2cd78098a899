"""Save a compiled model as a package and run it in a process that never loads the compiler.

python examples/save_and_load.py
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
from pathlib import Path

import inlaid

RUN = """
import sys
import numpy as np
import inlaid

# The hash is optional. A package holds native code: load those whose author you trust.
executable = inlaid.runtime.load(sys.argv[1], expect_sha256=sys.argv[2])
print(executable)
print(executable.run({"x": np.array([-2, 0.5, 3], np.float32)}))
print("the compiler was loaded:", any(name in sys.modules for name in ("inlaid.graph", "inlaid.tensor", "inlaid.lowering")))
"""

x = inlaid.var("x", inlaid.TensorType((3,), "float32"))
module = inlaid.Module({"main": inlaid.function([x], inlaid.ops.relu(inlaid.ops.mul(x, x)))})

with tempfile.TemporaryDirectory() as folder:
    package = Path(folder, "square.inlaid")
    inlaid.compile(module, targets=["x86"]).save(package)
    digest = hashlib.sha256(package.read_bytes()).hexdigest()
    print(f"{package.name}: {package.stat().st_size} bytes, sha256 {digest}", flush=True)
    subprocess.run([sys.executable, "-c", RUN, str(package), digest], check=True)
