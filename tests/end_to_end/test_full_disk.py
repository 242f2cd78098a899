"""Output files on a full disk: an error with the reason, no partial file, and the old files unchanged."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import pathlib, resource, signal, sys
import numpy as np
import inlaid
from inlaid import ops
from inlaid.driver.compile import compile_module
from inlaid.driver.export import export_folder, export_library
from inlaid_runtime.errors import OutputError
from inlaid.graph import ir
from inlaid_runtime.types import TensorType
from inlaid_microcontroller.templates import SIGNATURE

folder = pathlib.Path(sys.argv[1])
x = ir.var("x", TensorType((64, 256), "float32"))
weights = ir.constant(np.random.default_rng(0).normal(size=(256, 256)).astype(np.float32))
module = ir.Module({"main": ir.function([x], ops.matmul(x, weights))})
executable = compile_module(module, ["x86:threads=1"])
firmware = compile_module(module, ["microcontroller"]).package
profile = executable.profile({"x": np.zeros((64, 256), np.float32)})
names = ["m.so", "m.h", "m.inlaid", "trace.json", "c/model.c"]
(folder / "c").mkdir()
for name in names:
    (folder / name).write_text(SIGNATURE if name.startswith("c/") else "old")
before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
if sys.argv[2] == "limit":
    resource.setrlimit(resource.RLIMIT_FSIZE, (64, 64))
else:
    try:
        with open(folder / "filler", "wb", buffering=0) as file:
            while True:
                file.write(bytes(512))
    except OSError:
        before[folder / "filler"] = (folder / "filler").read_bytes()
writers = [
    lambda: export_library(executable, folder / "m.so"),
    lambda: executable.save(folder / "m.inlaid"),
    lambda: profile.save_chrome_trace(folder / "trace.json"),
]
if sys.argv[2] == "full":  # a limit would stop the C compiler, which tries out the firmware
    writers.append(lambda: export_folder(firmware, folder / "c", "model"))
for write in writers:
    try:
        write()
    except OutputError as error:
        assert isinstance(error, OSError), error
        assert str(error).startswith(f"cannot write {folder}"), error
        assert "No space left on device, 0 bytes are free" in str(error) or "File too large" in str(error), error
        assert "; free space, or choose another folder for the file" in str(error), error
    else:
        raise SystemExit(f"{write} wrote a file")
    assert before == {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
print("done")
"""


def run(folder: Path, kind: str, *prefix: str) -> str:
    command = [*prefix, sys.executable, "-B", "-c", SCRIPT, str(folder), kind]
    process = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert process.returncode == 0, process.stderr
    return process.stdout


def test_a_limit_on_the_size_of_files(tmp_path: Path) -> None:
    assert run(tmp_path, "limit") == "done\n"


def test_a_full_file_system(tmp_path: Path) -> None:
    mount = ["unshare", "--map-root-user", "--mount", "sh", "-ec", f'mount -t tmpfs -o size=64k none "{tmp_path}"; exec "$@"', "sh"]
    try:
        possible = subprocess.run([*mount, "true"], capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        possible = False
    if not possible:
        pytest.skip("cannot mount a tmpfs in a user namespace")
    assert run(tmp_path, "full", *mount) == "done\n"
