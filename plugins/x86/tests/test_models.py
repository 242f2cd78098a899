"""Whole models on x86: every element type and every instruction set that this machine has, and what cannot run here."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from inlaid import ops
from inlaid.driver.compile import build_package, compile_module
from inlaid.graph import ir
from inlaid.graph.interp import evaluate
from inlaid.plugins.registry import default_registry
from inlaid_runtime import load
from inlaid_runtime.errors import TargetError, Unsupported
from inlaid_runtime.execution.executable import Executable
from inlaid_runtime.types import DTYPES, TensorType, dtype
from inlaid_x86_runtime.cpu import LEVELS
from inlaid_x86_runtime.options import X86Options
from inlaid_x86_runtime.runtime import X86Runtime

CPUS = tuple(LEVELS)
NUMBERS = [name for name, element in DTYPES.items() if element.kind in ("int", "uint", "float")]


@pytest.mark.parametrize("cpu", [*CPUS, "native"])
def test_every_element_type(cpu: str) -> None:
    """One model with all of them; small whole numbers, on which every arithmetic agrees."""
    params, results, inputs = [], [], {}
    for name in NUMBERS if cpu == "native" else NUMBERS[::3]:
        element = dtype(name)
        x, y = (ir.var(f"{name}_{letter}", TensorType((5, 7), name)) for letter in "xy")
        params += [x, y]
        results += [ops.add(x, y), ops.maximum(x, y), ops.less(x, y), ops.cast(x, dtype="float32"), ops.transpose(y, perm=(1, 0))]
        results += [ops.reduce_max(x, axes=(1,)), ops.where(ops.equal(x, y), x, y)]
        values = np.arange(35).reshape(5, 7) % 2
        inputs[x.name], inputs[y.name] = (
            values.astype(element.numpy),
            (values[::-1] * (1 if element.bits < 3 else 2)).astype(element.numpy),
        )
    flags = [ir.var(name, TensorType((5, 7), "bool")) for name in ("p", "q")]
    inputs.update({"p": values > 0, "q": values[::-1] > 0})
    results += [ops.logical_and(*flags), ops.logical_not(flags[0]), ops.cast(flags[1], dtype="float64")]
    module = ir.Module({"main": ir.function([*params, *flags], ir.tuple_(results))})
    executable = compile_module(module, [f"x86:threads=1,cpu={cpu}"])
    assert [info.target for info in executable.regions] == [f"x86:threads=1,cpu={cpu}" if cpu != "native" else "x86:threads=1"]
    for actual, expected in zip(executable.run(inputs).values(), evaluate(module, inputs), strict=True):
        assert actual.dtype == expected.dtype
        np.testing.assert_array_equal(actual.astype(np.float64), expected.astype(np.float64))


@pytest.mark.parametrize("cpu", CPUS)
def test_every_instruction_set(cpu: str) -> None:
    """A convolution, a matrix product and a softmax, as far as rounding goes."""
    x = ir.var("x", TensorType((1, 8, 9, 9), "float32"))
    rng = np.random.default_rng(0)
    w, m = (ir.constant(rng.normal(size=shape).astype(np.float32)) for shape in ((24, 8, 3, 3), (81, 10)))
    conv = ops.relu(ops.conv(x, w, strides=(1, 1), pads=(1, 1, 1, 1), dilations=(1, 1)))
    flat_ = ops.reshape(ops.reduce_max(conv, axes=(1,)), shape=(1, 81))
    module = ir.Module({"main": ir.function([x], ops.softmax(ops.matmul(flat_, m), axis=1))})
    value = rng.normal(size=(1, 8, 9, 9)).astype(np.float32)
    (actual,) = compile_module(module, [f"x86:threads=2,cpu={cpu}"]).run({"x": value}).values()
    np.testing.assert_allclose(actual, evaluate(module, {"x": value}), rtol=1e-3, atol=1e-5)


# --- what cannot run here ---------------------------------------------------------------------------------------------

X = ir.var("x", TensorType((4,), "float32"))
MODULE = ir.Module({"main": ir.function([X], ops.relu(X))})


def test_packages_for_another_processor(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package says what it needs; a machine that lacks it says what it lacks."""
    compile_module(MODULE, ["x86:cpu=x86-64-v3"]).save(tmp_path / "v3.inlaid")
    old = frozenset(LEVELS["x86-64-v2"])
    monkeypatch.setattr("inlaid_x86_runtime.cpu.processor_features", lambda: old)
    with pytest.raises(
        Unsupported,
        match=r"region0_x86 cannot run on x86:cpu=x86-64-v3 here: this machine lacks .*avx2.*fma.*; compile with .*x86-64-v2",
    ):
        load(tmp_path / "v3.inlaid")
    compile_module(MODULE, ["x86:cpu=x86-64-v2"]).save(tmp_path / "v2.inlaid")
    (actual,) = load(tmp_path / "v2.inlaid").run({"x": np.float32([-1, 0, 1, 2])}).values()
    assert actual.tolist() == [0, 0, 1, 2]


def test_cross_compiling_needs_no_such_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    """Code for AVX-512 can be made anywhere; it is its loading that is refused."""
    monkeypatch.setattr("inlaid_x86_runtime.cpu.processor_features", lambda: frozenset(LEVELS["x86-64-v2"]))
    with pytest.raises(Unsupported, match="avx512f"):
        compile_module(MODULE, ["x86:cpu=x86-64-v4"])


def test_options() -> None:
    registry = default_registry()
    assert registry.capabilities(registry.target("x86:cpu=x86-64-v2")).vector_bits == 128
    assert registry.capabilities(registry.target("x86:cpu=x86-64-v3")).vector_bits == 256
    v4 = registry.capabilities(registry.target("x86:cpu=x86-64-v4,threads=3"))
    assert (v4.vector_bits, v4.vector_registers, v4.cores) == (512, 32, 3)
    for text, words in (
        ("cpu=i386", "unknown cpu 'i386' of target x86; choose one of native, portable, x86-64-v2"),
        ("threads=-2", "must be 0 to 1024, got -2"),
    ):
        with pytest.raises(TargetError, match=words):
            registry.target(f"x86:{text}")


def test_without_llvmlite(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    """Packages run; compiling names what to install."""
    import sys

    compile_module(MODULE, ["x86:threads=1"]).save(tmp_path / "relu.inlaid")
    for name in ("inlaid_x86.codegen", "inlaid_x86.compilers"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    for name in ("llvmlite", "llvmlite.binding"):
        monkeypatch.setitem(sys.modules, name, None)
    registry = default_registry()
    assert registry.probe(registry.target("x86")).available
    assert registry.spec("x86").missing == ("llvmlite",)
    (actual,) = load(tmp_path / "relu.inlaid").run({"x": np.float32([-1, 0, 1, 2])}).values()
    assert actual.tolist() == [0, 0, 1, 2]
    words = r'x86 runs packages here but cannot compile: llvmlite is not installed; pip install "inlaid\[x86\]"'
    with pytest.raises(TargetError, match=words):
        compile_module(MODULE, ["x86"])
    for use in (registry.codegen, registry.intrinsics, registry.surroundings, registry.schedules):
        with pytest.raises(TargetError, match=words):
            use(registry.target("x86"))


def test_other_formats_are_refused() -> None:
    artifact = compile_module(MODULE, ["x86:threads=1"]).package.artifacts[0]
    runtime = X86Runtime(X86Options())
    assert runtime.check(artifact) is None
    import dataclasses

    assert "inlaid-graph" in str(runtime.check(dataclasses.replace(artifact, format="inlaid-graph")))
    assert "version 99" in str(runtime.check(dataclasses.replace(artifact, format_version=99)))
    assert "amx" in str(runtime.check(dataclasses.replace(artifact, requires=("amx",))))


def test_code_requires_what_it_uses(monkeypatch: pytest.MonkeyPatch) -> None:
    """A level, and the extensions of the instructions that occur."""
    package = build_package(MODULE, ["x86:cpu=sapphirerapids"])
    assert set(package.artifacts[0].requires) == set(LEVELS["x86-64-v4"])
    x = ir.var("x", TensorType((64, 64), "uint8"))
    w = ir.constant(np.ones((64, 48), np.int8))
    y, z = ops.matmul(x, w, out_dtype="int32"), ir.var("z", TensorType((8, 64), "bfloat16"))
    v = ir.constant(np.ones((64, 48), ml_dtypes.bfloat16), "bfloat16")
    products = {"avx512vnni": ir.function([x], y), "avx512bf16": ir.function([z], ops.matmul(z, v, out_dtype="float32"))}
    for extension, function in products.items():
        monkeypatch.setattr(
            "inlaid_x86_runtime.cpu.processor_features", lambda: frozenset((*LEVELS["x86-64-v4"], "avx512vnni", "avx512bf16"))
        )
        package = build_package(ir.Module({"main": function}), ["x86"])
        assert set(package.artifacts[0].requires) == {*LEVELS["x86-64-v4"], extension}
        monkeypatch.setattr("inlaid_x86_runtime.cpu.processor_features", lambda: frozenset(LEVELS["x86-64-v4"]))
        with pytest.raises(
            Unsupported, match=f"this machine lacks {extension}; compile with --target x86:cpu=x86-64-v4, or cpu=portable"
        ):
            Executable(package)
