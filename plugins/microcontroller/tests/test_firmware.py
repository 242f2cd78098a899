"""Firmware folders: they build without a warning, run clean under sanitizers, and give the outputs that they come with."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from tests.plugin_registry import both_halves

from inlaid import ops
from inlaid.codegen.c_names import c_name
from inlaid.driver.compile import compile_module
from inlaid.driver.export import export_folder
from inlaid.graph.ir import Expr, Module, Span, Var, constant, function, tuple_, var
from inlaid.plugins.registry import PluginRegistry, default_registry
from inlaid_conformance.nets import NETS, Net
from inlaid_runtime.errors import InputError, Unsupported
from inlaid_runtime.execution.c_source import find_compiler
from inlaid_runtime.execution.executable import Executable
from inlaid_runtime.types import TensorType

pytestmark = pytest.mark.skipif(find_compiler() is None, reason="there is no C compiler: apt-get install gcc")

STRICT = ("-std=c99", "-Wall", "-Wextra", "-Wconversion", "-Werror", "-O1")
SANITIZED = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")


def module(params: list[Var], *results: Expr) -> Module:
    return Module({"main": function(params, results[0] if len(results) == 1 else tuple_(results))})


def convolution() -> Module:
    """Channels last on the outside, padding with another value than 0, 13 channels, sums of 32 bits scaled to 8."""
    rng = np.random.default_rng(0)
    x = var("image", TensorType((1, 7, 5, 3), "int8"))
    padded = ops.pad(ops.transpose(x, perm=(0, 3, 1, 2)), constant(np.int8(-7)), pads=(0, 0, 1, 1, 0, 0, 1, 1))
    weights = constant(rng.integers(-128, 128, (13, 3, 3, 3)).astype(np.int8))
    total = ops.add(ops.conv(padded, weights, strides=(2, 1), pads=(0, 0, 0, 0), dilations=(1, 1)), constant(np.int32(900)))
    scaled = ops.multiply_fixed(
        total, constant(np.full(13, 1 << 30, np.int32)), constant(np.arange(-15, -2, dtype=np.int32)), axis=1
    )
    stored = ops.cast(ops.clip(scaled, minimum=-128.0, maximum=127.0), dtype="int8")
    return module([x], ops.transpose(stored, perm=(0, 2, 3, 1)))


def several() -> Module:
    """Two inputs, two outputs, an index that the data gives."""
    x, at = var("x", TensorType((4, 3), "float32")), var("at", TensorType((2,), "int8"))
    rows = ops.take(x, ops.bitwise_and(at, constant(np.int8(3))), axis=0)
    return module([x, at], ops.softmax(rows, axis=1), ops.reduce_max(x, axes=(0,), keepdims=False))


def alike() -> Module:
    """Three layers that differ in integers alone: multipliers, shifts, zero points and padding."""
    rng = np.random.default_rng(2)
    value: Expr = (x := var("x", TensorType((1, 4, 5, 5), "int8")))
    for multiplier, shift, zero in ((1 << 30, -6, -128), (1_500_000_000, -8, 7), (2_000_000_001, -7, -3)):
        weights = constant(rng.integers(-128, 128, (4, 4, 3, 3)).astype(np.int8))
        padded = ops.pad(value, constant(np.int8(zero)), pads=(0, 0, 1, 1, 0, 0, 1, 1))
        total = ops.conv(padded, weights, strides=(1, 1), pads=(0, 0, 0, 0), dilations=(1, 1))
        scaled = ops.multiply_fixed(total, constant(np.int32(multiplier)), constant(np.int32(shift)), axis=-1)
        value = ops.cast(ops.clip(ops.add(scaled, constant(np.int32(zero))), minimum=-128.0, maximum=127.0), dtype="int8")
    return module([x], value)


def wide() -> Module:
    """Elements of eight bytes beside single ones."""
    x = var("x", TensorType((4, 3), "int64"))
    part = ops.cumsum(ops.strided_slice(x, begin=(0, 1), end=(4, 3), strides=(1, 2)), axis=0)
    return module([x], ops.less(x, constant(np.arange(12).reshape(4, 3))), ops.less(part, constant(np.arange(4).reshape(4, 1))))


def nothing() -> Module:
    """Tensors without elements, which lie where others do."""
    x = var("x", TensorType((3, 5), "float32"))
    none = ops.strided_slice(x, begin=(0, 2), end=(3, 2), strides=(1, 1))
    return module([x], ops.maximum(ops.abs(none), none), ops.abs(none))


def no_number() -> Module:
    """Results that are no numbers, the bits of which are the processor's."""
    x = var("x", TensorType((2, 5), "float32"))
    return module([x], ops.neg(ops.softmax(ops.sqrt(x), axis=1)), ops.sqrt(ops.neg(x)), ops.exp(x))


def repeated() -> Module:
    """Results that are an input that nothing else reads, one that layers read, constants, and another result; and an input that
    nothing reads at all."""
    x, y = var("x", TensorType((3, 5), "int8")), var("y", TensorType((2,), "float32"))
    halves = ops.relu(x)
    return module(
        [x, y, var("unread", TensorType((3,), "float32"))], halves, y, x, constant(np.arange(5)), halves, constant(np.float32(2.5))
    )


def build(folder: Path, *flags: str) -> Path:
    program = folder / "program"
    sources = sorted(map(str, folder.glob("*.c")))
    process = subprocess.run(
        ["cc", *flags, f"-I{folder}", *sources, "-o", str(program), "-lm"], capture_output=True, text=True, check=False
    )
    assert process.returncode == 0, process.stderr
    return program


def chosen() -> Module:
    """Selections by heaps of one element and of several, and functions with bits of floats."""
    x = var("x", TensorType((2, 9), "float32"))
    best, places = ops.topk(x, k=1, axis=1)
    return module([x], best, places, *ops.topk(ops.tanh(x), k=3, axis=1), ops.cast(ops.log(x), dtype="float16"))


WARNINGS = ("-Wall", "-Wextra", "-Wconversion", "-Werror", "-O2")
COMPILERS = {
    "gcc": ("-std=c99", "-Wrestrict"),
    "clang": ("-std=c99",),
    "g++": ("-x", "c++", "-std=c++17", "-Wrestrict"),
    "clang++": ("-x", "c++", "-std=c++17"),
}
"""Compilers and their flags. Hexadecimal floats need C++17."""


@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize("make", [convolution, several, wide, nothing, no_number, repeated, chosen])
def test_folders_compile_without_a_warning_as_c_and_as_cplusplus(make, compiler: str, tmp_path: Path) -> None:
    if shutil.which(compiler) is None:
        pytest.skip(f"there is no {compiler}: apt-get install {compiler.replace('+', '')}")
    export_folder(compile_module(make(), ["microcontroller"], keep=False).package, tmp_path, "net")
    program = tmp_path / "program"
    sources = sorted(map(str, tmp_path.glob("*.c")))
    command = [compiler, *WARNINGS, *COMPILERS[compiler], f"-I{tmp_path}", *sources, "-x", "none", "-lm", "-o", str(program)]
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    assert process.returncode == 0 and not process.stderr, process.stderr
    assert subprocess.run([program], check=False).returncode == 0


@pytest.mark.parametrize("make", [convolution, several, alike, wide, nothing, no_number, repeated])
def test_folders_build_and_check_themselves(make, tmp_path: Path) -> None:
    executable = compile_module(make(), ["microcontroller:cpu=cortex-m4"], keep=False)
    exported = export_folder(executable.package, tmp_path, "tiny")
    assert all(file.parent == tmp_path and file.stat().st_size for file in exported.files)
    assert subprocess.run([build(tmp_path, *STRICT, *SANITIZED)], check=False).returncode == 0
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    assert manifest["arena_bytes"] > 0 and manifest["flash"]["weights"] >= 0 and manifest["cpu"] == "cortex-m4"
    reference = compile_module(make(), ["reference"]).run(
        {spec.name: example for spec, example in decode_inputs(executable, manifest)}
    )
    for port, expected in zip(manifest["outputs"], reference.values(), strict=True):
        actual = np.frombuffer(bytes.fromhex(port["test"]), expected.dtype).reshape(expected.shape)
        np.testing.assert_allclose(actual, expected, rtol=0 if actual.dtype.kind == "i" else 1e-5)


@pytest.mark.parametrize("cpu", ["cortex-m4", "c99"])
def test_layers_that_differ_in_integers_alone_have_one_function(cpu: str, tmp_path: Path) -> None:
    export_folder(compile_module(alike(), [f"microcontroller:cpu={cpu}"], keep=False).package, tmp_path, "tiny")
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    assert len(manifest["kernels"]) > len({kernel["function"] for kernel in manifest["kernels"]})
    assert subprocess.run([build(tmp_path, *STRICT, *SANITIZED)], check=False).returncode == 0


REFUSED = {
    "perceptron-symbolic": r"does not support matmul.*are not static.*; fix its sizes: dims=\{\"batch\": \.\.\.\}; see all",
    "with-fallback": "does not support sequence_construct.*are supported only on the host",
}


def named(*names: str) -> Module:
    """Layers of these names, on inputs of these names, so that each has weights of its own."""
    params = [var(name, TensorType((1, 4), "float32")) for name in names]
    x = params[0]
    for number, (param, name) in enumerate(zip(params, names, strict=True), 2):
        weights = constant(np.arange(4 * 4, dtype=np.float32).reshape(4, 4) / (10 * number))
        x = ops.matmul(ops.tanh(ops.add(x, param)), weights, span=Span("model.onnx", name))
    return module(params, x)


@pytest.mark.parametrize("name", ["tiny", "main", "string", "Math", "int", "test", "7 segments"])
def test_any_name_will_do(name: str, tmp_path: Path) -> None:
    """Names of layers and inputs that are words of C, functions of the model's own, no words at all, or none to tell apart."""
    names = ("run", "input", "input_x", "x weights", "x", "X", "max", "up", "int", "*/ /* x", "é", "", "output", "a\nb")
    package = compile_module(named(*names), ["microcontroller:cpu=cortex-m4"], keep=False).package
    export_folder(package, tmp_path, c_name(name))
    assert subprocess.run([build(tmp_path, *STRICT)], check=False).returncode == 0


@pytest.mark.parametrize("net", NETS, ids=lambda net: net.name)
def test_the_nets_of_the_conformance_suite_as_firmware(net: Net, tmp_path: Path) -> None:
    if net.name in REFUSED:
        with pytest.raises(Unsupported, match=REFUSED[net.name]):
            compile_module(net.module(), ["microcontroller:cpu=cortex-m4"], keep=False)
        return
    package = compile_module(net.module(), ["microcontroller:cpu=cortex-m4"], keep=False).package
    export_folder(package, tmp_path, "net")
    assert subprocess.run([build(tmp_path, *STRICT, *SANITIZED)], check=False).returncode == 0


def test_two_memories(tmp_path: Path) -> None:
    package = compile_module(several(), ["microcontroller:fast=48"], keep=False).package
    export_folder(package, tmp_path, "tiny")
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    assert 0 < manifest["fast_arena_bytes"] <= 48 and manifest["arena_bytes"] > 0
    assert "state->fast->memory.arena" in (tmp_path / "tiny.h").read_text()
    assert subprocess.run([build(tmp_path, *STRICT, *SANITIZED)], check=False).returncode == 0


def test_files_of_the_users_are_not_written_over(tmp_path: Path) -> None:
    package = compile_module(several(), ["microcontroller"], keep=False).package
    first = export_folder(package, tmp_path, "tiny")
    written = {file: file.read_bytes() for file in first.files}
    assert export_folder(package, tmp_path, "tiny").files == first.files
    assert {file: file.read_bytes() for file in first.files} == written
    (tmp_path / "main.c").write_text("int main(void) { return 0; }\n")
    (tmp_path / "tiny.h").unlink()
    with pytest.raises(InputError, match=r"main\.c was not written by Inlaid"):
        export_folder(package, tmp_path, "tiny")
    assert not (tmp_path / "tiny.h").exists()
    (tmp_path / "main.c").unlink()
    (tmp_path / "tiny.h").mkdir()
    with pytest.raises(InputError, match=r"cannot write .*tiny\.h: it is a folder"):
        export_folder(package, tmp_path, "tiny")


def decode_inputs(executable, manifest):
    for spec, port in zip(executable.inputs, manifest["inputs"], strict=True):
        yield spec, np.frombuffer(bytes.fromhex(port["test"]), spec.dtype.numpy).reshape(spec.shape)


def test_two_models_in_one_image(tmp_path: Path) -> None:
    for name, make in (("one", convolution), ("two", several)):
        export_folder(compile_module(make(), ["microcontroller"], keep=False).package, tmp_path, name)
        (tmp_path / "main.c").rename(tmp_path / f"{name}_main.c")
        text = (tmp_path / f"{name}_main.c").read_text()
        (tmp_path / f"{name}_main.c").write_text(text.replace("int main(void)", f"int {name}_main(void);\nint {name}_main(void)"))
    (tmp_path / "main.c").write_text(
        "int one_main(void);\nint two_main(void);\nint main(void) { return one_main() || two_main(); }\n"
    )
    assert subprocess.run([build(tmp_path, *STRICT)], check=False).returncode == 0


def test_what_the_controller_cannot_run_is_refused_with_the_node(tmp_path: Path) -> None:
    x = var("x", TensorType((4,), "float32"))
    mixed = module([x], ops.nonzero(ops.exp(x), span=Span("model.onnx", "indices")))
    with pytest.raises(Unsupported, match=r"does not support nonzero at model\.onnx:indices"):
        compile_module(mixed, ["microcontroller"], keep=False)
    tried = compile_module(mixed, ["microcontroller", "reference"], keep=False)
    with pytest.raises(Unsupported, match="expected every region as C, since the controller runs the whole model"):
        export_folder(tried.package, tmp_path, "mixed")


def test_a_vendors_c_goes_into_the_same_firmware(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the NPU takes is the vendor's C, the rest the controller's: one folder, one arena."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    registry = PluginRegistry.discover([*default_registry().entry_points, *both_halves("acme_npu", "acme_npu")])
    x = var("x", TensorType((3, 4), "float32"))
    weights = constant(np.linspace(-1, 1, 16, dtype=np.float32).reshape(4, 4))
    both = module([x], ops.exp(ops.relu(ops.matmul(ops.relu(ops.sub(x, constant(np.float32(0.5)))), weights))))
    executable = compile_module(both, ["acme_npu", "microcontroller"], registry, keep=False)
    assert {region.target for region in executable.regions} == {"acme_npu", "microcontroller"}
    export_folder(executable.package, tmp_path, "mixed", registry)
    assert subprocess.run([build(tmp_path, *STRICT, *SANITIZED)], check=False).returncode == 0
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    assert manifest["flash"]["weights"] >= 4 * 16 and manifest["multiplications"] >= 3 * 4 * 4 and "math.h" in manifest["headers"]
    values = sum(part.workspace[""] for part in executable.package.artifacts) + 4 * 12 * 6  # type: ignore[misc]
    assert 0 < manifest["arena_bytes"] < values


def test_stored_bytes_need_no_mathematics(tmp_path: Path) -> None:
    """What a softmax of bytes asks of floats is code of its own: `floor`, to the bit, signs of zeros too."""
    edges = [0.0, -0.0, 0.5, -0.5, 8388607.5, -8388607.5, 8388608.0, -8388609.0, 2.0**31, -(2.0**40), 1e-45, -1e-45]
    edges += [np.inf, -np.inf, np.nan]
    values = np.concatenate([np.array(edges), np.random.default_rng(0).normal(size=985) * 1000]).astype(np.float32)
    x = var("x", TensorType(values.shape, "float32"))
    package = compile_module(module([x], ops.floor(x)), ["microcontroller"], keep=False).package
    (actual,) = Executable(package).run({"x": values}).values()
    np.testing.assert_array_equal(actual, np.floor(values))
    np.testing.assert_array_equal(np.signbit(actual), np.signbit(np.floor(values)))
    export_folder(package, tmp_path, "floor")
    assert json.loads((tmp_path / "manifest.json").read_text())["headers"] == ["stdint.h"]
