"""Print peak resident memory in MiB: of a process that compiles a model, of one that loads the package and runs it, and of one that
runs the model with ONNX Runtime.

    python benchmarks/peak_memory.py [MODEL ...] [--target x86:threads=1]

Models are names of benchmarks/zoo, or files. Dimensions that are not fixed are taken as 1. Exits with 1 where the process that
compiles takes more than three times the bytes of the model and 300 MB, or the one that runs takes more than ONNX Runtime's.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from zoo import path_of

DEFAULT = ("resnet50", "vgg19", "bert_base")
RUN = """
import sys
import numpy as np
from inlaid_runtime.execution.executable import load
model = load(sys.argv[1])
sizes = lambda spec: [dim if isinstance(dim, int) else 1 for dim in spec.shape]
model.run({spec.name: np.zeros(sizes(spec), spec.dtype.numpy) for spec in model.inputs})
"""
PEER = """
import sys
import numpy as np
import onnxruntime
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = 1
session = onnxruntime.InferenceSession(sys.argv[1], options, providers=["CPUExecutionProvider"])
types = {"tensor(float)": np.float32, "tensor(int64)": np.int64, "tensor(bool)": np.bool_}
sizes = lambda item: [dim if isinstance(dim, int) else 1 for dim in item.shape]
session.run(None, {item.name: np.zeros(sizes(item), types[item.type]) for item in session.get_inputs()})
"""
WATCH = """
import resource, subprocess, sys
subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""
COMPILE = "from inlaid_cli import main; main()"


def peak(arguments: Sequence[str], cache: str) -> float:
    """MiB that `python -c arguments...` takes at most."""
    command = [sys.executable, "-c", WATCH, sys.executable, "-c", *arguments]
    environment = {**os.environ, "XDG_CACHE_HOME": cache}
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    return int(done.stdout) / 1024


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=DEFAULT)
    parser.add_argument("--target", default="x86:threads=1")
    options = parser.parse_args()
    print(f"{'model':<16}{'file, MB':>10}{'compile':>10}{'allowed':>10}{'run':>10}{'onnxruntime':>13}  MiB")
    met = True
    for name in options.models:
        path = Path(name) if Path(name).exists() else path_of(name)
        with tempfile.TemporaryDirectory() as scratch:
            package = str(Path(scratch) / "model.inlaid")
            compiling = peak([COMPILE, "compile", str(path), "--target", options.target, "-o", package], scratch)
            running, peer = peak([RUN, package], scratch), peak([PEER, str(path)], scratch)
        size = path.stat().st_size
        allowed = (3 * size + 300e6) / 2**20
        met &= compiling <= allowed and running <= peer
        print(f"{path.stem:<16}{size / 1e6:>10.0f}{compiling:>10.0f}{allowed:>10.0f}{running:>10.0f}{peer:>13.0f}", flush=True)
    return int(not met)


if __name__ == "__main__":
    sys.exit(main())
