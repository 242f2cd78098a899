"""Models as shared libraries for C programs."""

from __future__ import annotations

import ctypes
import dataclasses
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from elftools.elf.elffile import ELFFile

from inlaid import ops
from inlaid.driver.compile import compile_module
from inlaid.driver.export import ExportedLibrary, export_library
from inlaid.graph import ir
from inlaid.graph.interp import evaluate
from inlaid.settings import Settings
from inlaid_runtime import aligned_empty, arith
from inlaid_runtime.arith import SizeVar
from inlaid_runtime.errors import CompileError, Unsupported
from inlaid_runtime.execution.c_source import find_compiler
from inlaid_runtime.execution.executable import Executable
from inlaid_runtime.types import TensorType

needs_compiler = pytest.mark.skipif(find_compiler() is None, reason="there is no C compiler: apt-get install gcc")
ROOT = Path(__file__).parents[2]
F32 = "float32"
X = ir.var("x", TensorType((1, 4, 6, 6), F32))
VALUE = np.random.default_rng(0).normal(size=(1, 4, 6, 6)).astype(np.float32)


def network() -> ir.Module:
    """A convolution, a matrix product and a lookup that may be out of range; what is returned is of every origin."""
    rng = np.random.default_rng(1)
    w = ir.constant(rng.normal(size=(8, 4, 3, 3)).astype(np.float32))
    m = ir.constant(rng.normal(size=(36, 5)).astype(np.float32))
    at = ir.var("at", TensorType((2,), "int64"))
    conv = ops.relu(ops.conv(X, w, strides=(1, 1), pads=(1, 1, 1, 1), dilations=(1, 1)))
    rows = ops.matmul(ops.reshape(conv, shape=(8, 36)), m)
    results = [ops.softmax(rows, axis=1), ops.take(rows, at, axis=0), X, ir.constant(np.arange(3, dtype=np.int16))]
    named = (("outputs", '["probabilities", "rows", "same", "fixed"]'),)
    return ir.Module({"main": ir.function([X, at], ir.tuple_(results), named)})


MAIN = """
#include <stdio.h>
#include <stdlib.h>
#include "libnet.h"

static void *room(size_t bytes) { return aligned_alloc(64, (bytes + 63) / 64 * 64); }

int main(int count, char **arguments) {
    float *x = room(4 * 144), *probabilities = room(4 * 40), *rows = room(4 * 10), *same = room(4 * 144);
    int64_t *at = room(16);
    int16_t *fixed = room(6);
    char message[256] = "";
    FILE *input = fopen(arguments[1], "rb");
    if (fread(x, 4, 144, input) != 144) return 9;
    at[0] = atoi(arguments[2]), at[1] = -1;
    int32_t status = net_run(x, at, probabilities, rows, same, fixed, room(NET_WORKSPACE_BYTES), message);
    if (status) return printf("%d %s", status, message), 0;
    FILE *output = fopen(arguments[3], "wb");
    fwrite(probabilities, 4, 40, output), fwrite(rows, 4, 10, output), fwrite(same, 4, 144, output), fwrite(fixed, 2, 3, output);
    fclose(output);
    return (void)count, 0;
}
"""


@needs_compiler
@pytest.mark.parametrize("target", ["x86:threads=1", "x86:threads=2,cpu=x86-64-v2"])
def test_a_program_without_python(tmp_path: Path, target: str) -> None:
    """The library needs nothing but the C library, and computes the same bits as in Python."""
    executable = compile_module(network(), [target])
    export = export_library(executable, tmp_path / "libnet.so")
    assert (export.library, export.header) == (tmp_path / "libnet.so", tmp_path / "libnet.h")
    (tmp_path / "main.c").write_text(MAIN)
    compiler = find_compiler()
    command = [compiler, "-std=c11", "-Wall", "-Werror", "-o", "main", "main.c", "-L.", "-lnet", "-Wl,-rpath,$ORIGIN"]
    subprocess.run(command, cwd=tmp_path, check=True, timeout=120)
    VALUE.tofile(tmp_path / "x.bin")
    subprocess.run([str(tmp_path / "main"), "x.bin", "3", "out.bin"], cwd=tmp_path, check=True, timeout=60)
    expected = executable.run({"x": VALUE, "at": np.array([3, -1])})
    raw = (tmp_path / "out.bin").read_bytes()
    assert raw == b"".join(array.tobytes() for array in expected.values())
    np.testing.assert_allclose(expected["probabilities"], evaluate(network(), {"x": VALUE, "at": np.array([3, -1])})[0], rtol=1e-4)
    failed = subprocess.run(
        [str(tmp_path / "main"), "x.bin", "8", "none.bin"], cwd=tmp_path, capture_output=True, text=True, check=True, timeout=60
    )
    assert failed.stdout.startswith("1 an index is out of range in kernel ") and not (tmp_path / "none.bin").exists()


def test_only_the_function_is_exported(tmp_path: Path) -> None:
    """Two libraries in one program do not take each other's regions."""
    libraries = []
    for name, factor in (("one", 2), ("two", 3)):
        x = ir.var("x", TensorType((3,), F32))
        module = ir.Module({"main": ir.function([x], ops.mul(x, ir.constant(np.float32(factor))))})
        export_library(compile_module(module, ["x86:threads=1"]), tmp_path / f"{name}.so")
        libraries.append(ctypes.CDLL(str(tmp_path / f"{name}.so"), mode=ctypes.RTLD_GLOBAL))
    for library, name, factor in zip(libraries, ("one", "two"), (2, 3), strict=True):
        x, y = np.arange(3, dtype=np.float32), np.zeros(3, np.float32)
        assert getattr(library, f"{name}_run")(x.ctypes, y.ctypes, None, None) == 0
        np.testing.assert_array_equal(y, x * factor)
        assert not hasattr(library, "region0_x86") and not hasattr(library, "inlaid_weights")


@needs_compiler
def test_names_that_c_has_not(tmp_path: Path) -> None:
    """Keywords, digits, the same name twice, and names that the code uses itself; the header keeps the model's own as a remark."""
    names = ["int", "0", "a/b", "a.b", "workspace", "inlaid_arena", "é", "*/"]
    params = [ir.var(name, TensorType((2,), F32)) for name in names]
    total = params[0]
    for param in params[1:]:
        total = ops.add(total, param)  # type: ignore[assignment]
    module = ir.Module({"main": ir.function(params, total, (("outputs", '["a b"]'),))})
    export = export_library(compile_module(module, ["x86:threads=1"]), tmp_path / "3-d.so")
    header = export.header.read_text()
    for text in ("model_3_d_run(", "MODEL_3_D_WORKSPACE_BYTES", "in  int_1: float32[2] (int)", "a_b_1", "x_0", "x_inlaid_arena"):
        assert text in header
    compiler = find_compiler()
    for language in ("c", "c++"):
        (tmp_path / "use.c").write_text(f'#include "{export.header.name}"\nint main(void) {{ return 0; }}\n')
        if language == "c" or shutil.which("c++") or shutil.which("g++"):
            subprocess.run([compiler, "-fsyntax-only", "-Wall", "-Werror", "-x", language, "use.c"], cwd=tmp_path, check=True)


@needs_compiler
def test_one_array_for_what_is_updated_and_the_result(tmp_path: Path) -> None:
    """C programs may give one array for both, and then nothing is copied; or two."""
    cache, at = ir.var("cache", TensorType((6, 4), F32)), ir.constant(np.array([[2]]))
    module = ir.Module({"main": ir.function([cache], ops.scatter_nd(cache, at, ir.constant(np.ones((1, 4), np.float32))))})
    export = export_library(compile_module(module, ["x86:threads=1"], settings=Settings(donate=("cache",))), tmp_path / "held.so")
    library = ctypes.CDLL(str(export.library))
    value, other, expected = (np.full((6, 4), 5, np.float32) for _ in range(3))
    expected[2] = 1
    assert library.held_run(value.ctypes, other.ctypes, None, None) == 0
    assert (value == 5).all() and (other == expected).all()
    assert library.held_run(value.ctypes, value.ctypes, None, None) == 0
    assert (value == expected).all()


def test_branch_free_models_of_several_regions(tmp_path: Path) -> None:
    """A model that computes nothing, and element types that C has no name for."""
    x = ir.var("x", TensorType((4,), "float16"))
    module = ir.Module({"main": ir.function([x], ir.tuple_([x, ops.neg(x)]))})
    export = export_library(compile_module(module, ["x86:threads=1"]), tmp_path / "half.so", "half")
    assert "const uint16_t *x" in export.header.read_text()
    library = ctypes.CDLL(str(export.library))
    value, copy, other = np.arange(4, dtype=np.float16), np.zeros(4, np.float16), np.zeros(4, np.float16)
    assert library.half_run(value.ctypes, copy.ctypes, other.ctypes, None, None) == 0
    assert copy.tolist() == [0, 1, 2, 3] and other.tolist() == [0, -1, -2, -3]
    idle = ir.Module({"main": ir.function([x], x)})
    library = ctypes.CDLL(str(export_library(compile_module(idle, ["x86"]), tmp_path / "idle.so").library))
    assert library.idle_run(value.ctypes, other.ctypes, None, None) == 0 and other.tolist() == [0, 1, 2, 3]


# --- symbolic sizes and threads ---------------------------------------------------------------------------------------


def batched() -> ir.Module:
    """A convolution and a matrix product over batches of 1 to 6, which also returns its input."""
    rng = np.random.default_rng(2)
    batch = SizeVar("batch", 1, 6)
    x = ir.var("x", TensorType((batch, 4, 6, 6), F32))
    w = ir.constant(rng.normal(size=(8, 4, 3, 3)).astype(np.float32))
    m = ir.constant(rng.normal(size=(288, 5)).astype(np.float32))
    conv = ops.relu(ops.conv(x, w, strides=(1, 1), pads=(1, 1, 1, 1), dilations=(1, 1)))
    return ir.Module({"main": ir.function([x], ir.tuple_([ops.matmul(ops.reshape(conv, shape=(batch, 288)), m), x]))})


def test_sizes_up_to_a_bound(tmp_path: Path) -> None:
    """Sizes are parameters, checked before anything runs; memory is planned for the largest."""
    executable = compile_module(batched(), ["x86:threads=1"])
    export = export_library(executable, tmp_path / "net.so")
    assert export.sizes == {"batch": (1, 6)} and not export.threads
    assert "int32_t net_run(int64_t batch, const float *x, float *output0," in export.header.read_text()
    library = ctypes.CDLL(str(export.library))
    workspace, message = aligned_empty((export.workspace,), "uint8"), ctypes.create_string_buffer(256)
    for size in (0, 1, 3, 6, 7):
        x, y, copy = (aligned_empty((size, *shape), F32) for shape in ((4, 6, 6), (5,), (4, 6, 6)))
        x[...] = np.random.default_rng(size).normal(size=x.shape)
        status = library.net_run(ctypes.c_int64(size), x.ctypes, y.ctypes, copy.ctypes, workspace.ctypes, message)
        if not 1 <= size <= 6:
            assert (status, message.value) == (-2, b"batch must be 1 to 6")
            continue
        expected = list(executable.run({"x": x}).values())
        assert status == 0 and np.array_equal(y, expected[0]) and np.array_equal(copy, x)


def test_the_last_columns_of_a_symbolic_number(tmp_path: Path) -> None:
    """`x[:, -3:]` has at most three columns, for which the workspace is planned."""
    rows, columns = SizeVar("rows", 1, 8), SizeVar("columns", 1, 1024)
    x, w = ir.var("x", TensorType((rows, columns), F32)), ir.var("w", TensorType((5, rows), F32))
    last = ops.strided_slice(x, begin=(0, arith.maximum(columns - 3, 0)), end=(rows, columns), strides=(1, 1))
    executable = compile_module(
        ir.Module({"main": ir.function([x, w], ops.matmul(w, ops.softmax(last, axis=1)))}), ["x86:threads=1"]
    )
    export = export_library(executable, tmp_path / "net.so")
    assert export.workspace < 4096
    library, workspace = ctypes.CDLL(str(export.library)), aligned_empty((export.workspace,), "uint8")
    for height, width in ((8, 1024), (3, 2), (1, 1), (8, 3)):
        inputs = {"x": aligned_empty((height, width), F32), "w": aligned_empty((5, height), F32)}
        for number, value in enumerate(inputs.values()):
            value[...] = np.random.default_rng(number).normal(size=value.shape)
        result = aligned_empty((5, min(width, 3)), F32)
        sizes = ctypes.c_int64(height), ctypes.c_int64(width)
        assert library.net_run(*sizes, inputs["x"].ctypes, inputs["w"].ctypes, result.ctypes, workspace.ctypes, None) == 0
        assert np.array_equal(result, executable.run(inputs)["output0"])


def test_what_regions_ask_of_sizes(tmp_path: Path) -> None:
    """A convolution without padding needs an image as large as its window."""
    side = SizeVar("side", 1, 9)
    x = ir.var("x", TensorType((1, 1, side, 9), F32))
    w = ir.constant(np.ones((1, 1, 3, 3), np.float32))
    body = ops.conv(x, w, strides=(1, 1), pads=(0, 0, 0, 0), dilations=(1, 1))
    executable = compile_module(ir.Module({"main": ir.function([x], body)}), ["x86:threads=1"])
    export = export_library(executable, tmp_path / "net.so")
    library, message = ctypes.CDLL(str(export.library)), ctypes.create_string_buffer(256)
    workspace, value, result = aligned_empty((export.workspace,), "uint8"), aligned_empty((81,), F32), aligned_empty((49,), F32)
    value[:] = 1
    statuses = [library.net_run(ctypes.c_int64(size), value.ctypes, result.ctypes, workspace.ctypes, message) for size in (9, 3, 2)]
    assert statuses == [0, 0, -2] and b"operator conv" in message.value and result.tolist()[:7] == [9] * 7


def run(export: ExportedLibrary, sizes: tuple[int, ...], *arrays: np.ndarray[Any, Any]) -> tuple[int, bytes]:
    """Run a library. Returns its code and its message."""
    library, message = ctypes.CDLL(str(export.library)), ctypes.create_string_buffer(256)
    pointers = (array.ctypes for array in (*arrays, aligned_empty((export.workspace,), "uint8")))
    return library.net_run(*map(ctypes.c_int64, sizes), *pointers, message), message.value


def test_sizes_that_a_region_computes(tmp_path: Path) -> None:
    """The product of the elements that are not 0 with a vector, which must have as many: checked after they are counted."""
    x, y = (ir.var(name, TensorType((SizeVar(size, 0, 9),), F32)) for name, size in (("x", "n"), ("y", "m")))
    places = ops.nonzero(x)
    chosen = ops.take(x, ops.reshape(places, shape=(places.shape[1],)), axis=0)
    executable = compile_module(ir.Module({"main": ir.function([x, y], ops.matmul(chosen, ops.neg(y)))}), ["x86:threads=1"])
    export = export_library(executable, tmp_path / "net.so")
    left, right, result = (aligned_empty((size,), F32) for size in (9, 9, 1))
    left[:5], right[:] = (3, 0, 4, 0, 5), 2
    assert run(export, (5, 3), left, right, result) == (0, b"") and result[0] == -24
    for size in (0, 1, 2, 4, 9):
        status, message = run(export, (5, size), left, right, result)
        assert status == -2 and b"the inner dimension of a must be m (operator matmul)" in message
    left[:] = 0
    assert run(export, (9, 0), left, right, result) == (0, b"") and result[0] == 0


def test_a_size_that_divides_is_not_zero(tmp_path: Path) -> None:
    """Generated code divides by 1 where a size is 0, and would slice beyond the end."""
    size, parts = SizeVar("size", 0, 9), SizeVar("parts", 0, 9)
    x, y = ir.var("x", TensorType((size,), F32)), ir.var("y", TensorType((parts,), F32))
    body = ops.neg(ops.strided_slice(x, begin=(0,), end=(size // parts,), strides=(1,)))
    executable = compile_module(ir.Module({"main": ir.function([x, y], body)}), ["x86:threads=1"])
    export = export_library(executable, tmp_path / "net.so")
    data, result = (aligned_empty((9,), F32) for _ in range(2))
    data[:], result[:] = range(9), 0
    assert run(export, (9, 4), data, data, result) == (0, b"") and result.tolist() == [0, -1, 0, 0, 0, 0, 0, 0, 0]
    result[:] = 0
    status, message = run(export, (9, 0), data, data, result)
    assert status == -2 and b" must be " in message and not result.any()


def test_threads_of_the_program(tmp_path: Path) -> None:
    """The same bits on a team as on one thread, and its jobs are opened."""
    x = ir.var("x", TensorType((256, 256), F32))
    w = ir.constant(np.random.default_rng(3).normal(size=(256, 256)).astype(np.float32))
    executable = compile_module(ir.Module({"main": ir.function([x], ops.matmul(x, w))}), ["x86:threads=2"])
    export = export_library(executable, tmp_path / "net.so")
    assert export.threads and "NET_TEAM_BYTES(threads)" in export.header.read_text()
    program = f"""
import ctypes, os, threading
import numpy as np
from inlaid_runtime import aligned_empty
library = ctypes.CDLL({str(export.library)!r})
memory = aligned_empty((128 * 6,), "uint8")
team = ctypes.c_void_p(-(-memory.ctypes.data // 128) * 128)
library.net_team(team, 2)
threading.Thread(target=library.net_worker, args=(team, ctypes.c_int64(1)), daemon=True).start()
x, one, two = (aligned_empty((256, 256), "float32") for _ in range(3))
x[...] = np.arange(256 * 256).reshape(256, 256) % 7
workspace = aligned_empty(({export.workspace},), "uint8")
assert library.net_run(x.ctypes, one.ctypes, workspace.ctypes, None) == 0
assert ctypes.c_int32.from_address(team.value + 128).value == 0
for _ in range(50):
    two[...] = 0
    assert library.net_run_on(team, x.ctypes, two.ctypes, workspace.ctypes, None) == 0
    assert np.array_equal(one, two)
assert ctypes.c_int32.from_address(team.value + 128).value >= 50
os._exit(7)
"""
    assert subprocess.run([sys.executable, "-c", program], check=False, timeout=120).returncode == 7


@needs_compiler
def test_the_example_in_c(tmp_path: Path) -> None:
    """The commands at its head work."""
    source = ROOT / "examples" / "c" / "classify.c"
    commands = [line.strip() for line in source.read_text().splitlines()[2:5]]
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    scripts = {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    process = subprocess.run(
        ["sh", "-ec", "\n".join(commands)], cwd=tmp_path, env={**os.environ, **scripts}, capture_output=True, text=True, check=True
    )
    assert process.stdout.splitlines()[-1] == "image 1: 1 (1.00)"


# --- what cannot be exported ------------------------------------------------------------------------------------------


def exported(body: ir.Expr, *params: ir.Var, folder: Path, targets: tuple[str, ...] = ("x86:threads=1",)) -> Any:
    module = ir.Module({"main": ir.function(params, body)})
    return export_library(compile_module(module, targets), folder / "m.so")


def test_what_cannot_be_exported(tmp_path: Path) -> None:
    n = ir.var("n", TensorType((SizeVar("batch"), 2), F32))
    flag = ir.var("flag", TensorType((), "bool"))
    x = ir.var("x", TensorType((2,), F32))
    y = ir.var("y", TensorType((2,), F32))
    for body in (ops.relu(n), n):
        with pytest.raises(Unsupported, match=r"dimension batch has no upper bound.*dims=\{\"batch\": \(1, 64\)\}"):
            exported(body, n, folder=tmp_path)
    bounded = ir.var("n", TensorType((SizeVar("batch", 1, 8),), F32))
    with pytest.raises(Unsupported, match=r"depends on data"):
        exported(ops.nonzero(bounded), bounded, folder=tmp_path)
    with pytest.raises(Unsupported, match=r"control flow \(Branch\)"):
        exported(ir.if_(flag, x, y), flag, x, y, folder=tmp_path)
    with pytest.raises(Unsupported, match=r"expected native code, got inlaid-graph in region region0_reference"):
        exported(ops.relu(x), x, folder=tmp_path, targets=("reference",))
    assert not list(tmp_path.iterdir())


def test_without_a_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing outside of Inlaid is run, and the library needs no other."""
    monkeypatch.setenv("PATH", "")
    x = ir.var("x", TensorType((2,), F32))
    library = exported(ops.relu(x), x, folder=tmp_path).library
    with library.open("rb") as file:
        dynamic = ELFFile(file).get_section_by_name(".dynamic")
        assert not list(dynamic.iter_tags("DT_NEEDED"))
        assert [tag.soname for tag in dynamic.iter_tags("DT_SONAME")] == ["m.so"]
    x_value, y = np.array([-1, 2], np.float32), np.zeros(2, np.float32)
    assert ctypes.CDLL(str(library)).m_run(x_value.ctypes, y.ctypes, None, None) == 0 and y.tolist() == [0, 2]


def test_equal_models_give_equal_libraries(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    first, second = (export_library(compile_module(network(), ["x86:threads=1"]), tmp_path / name / "n.so") for name in ("a", "b"))
    assert first.library.read_bytes() == second.library.read_bytes() and first.header.read_text() == second.header.read_text()


def test_code_that_no_library_can_hold(tmp_path: Path) -> None:
    x = ir.var("x", TensorType((2,), F32))
    package = compile_module(ir.Module({"main": ir.function([x], ops.relu(x))}), ["x86:threads=1"]).package
    broken = [dataclasses.replace(artifact, code=artifact.code[:60]) for artifact in package.artifacts]

    class Holder:
        def __init__(self) -> None:
            self.package = dataclasses.replace(package, artifacts=tuple(broken))

    with pytest.raises(CompileError, match="cannot link the code of region region0_x86: it has 60 bytes"):
        export_library(cast("Executable", Holder()), tmp_path / "m.so")
    assert not list(tmp_path.iterdir())
