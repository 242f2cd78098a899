"""Layers that run from row to row as one kernel: firmware is clean under sanitizers, and gives the bytes of the reference."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inlaid import ops
from inlaid.driver.compile import compile_module
from inlaid.driver.export import export_folder
from inlaid.graph.ir import Expr, Module, Var, constant, function, var
from inlaid.lowering.memory import arrange
from inlaid_runtime.execution.c_source import find_compiler
from inlaid_runtime.types import TensorType

pytestmark = pytest.mark.skipif(find_compiler() is None, reason="there is no C compiler: apt-get install gcc")

FLAGS = (
    "-std=c99",
    "-Wall",
    "-Wextra",
    "-Wconversion",
    "-Werror",
    "-O1",
    "-fsanitize=address,undefined",
    "-fno-sanitize-recover=all",
)


def channels_last(height: int, width: int, channels: int) -> tuple[Var, Expr]:
    x = var("x", TensorType((1, height, width, channels), "int8"))
    return x, ops.transpose(x, perm=(0, 3, 1, 2))


def module(x: Var, value: Expr) -> Module:
    return Module({"main": function([x], ops.transpose(value, perm=(0, 2, 3, 1)))})


def static_shape(value: Expr) -> tuple[int, ...]:
    assert isinstance(value.type, TensorType)
    return tuple(int(dim) for dim in value.type.shape)  # type: ignore[arg-type]


def layer(
    x: Expr,
    outputs: int | None,
    taps: tuple[int, int] = (1, 1),
    strides: tuple[int, int] = (1, 1),
    pads: tuple[int, ...] = (0, 0, 0, 0),
    dilation: int = 1,
    seed: int = 0,
) -> Expr:
    """A convolution in integers, of each channel alone where no number of outputs is given."""
    rng = np.random.default_rng(seed)
    channels = static_shape(x)[1]
    groups, count = (channels, channels) if outputs is None else (1, outputs)
    weights = constant(rng.integers(-128, 128, (count, channels // groups, *taps)).astype(np.int8))
    padded = ops.pad(x, constant(np.int8(-5)), pads=(0, 0, *pads[:2], 0, 0, *pads[2:])) if any(pads) else x
    total = ops.conv(padded, weights, strides=strides, pads=(0,) * 4, dilations=(dilation,) * 2, groups=groups, out_dtype="int32")
    total = ops.add(total, constant(rng.integers(-999, 999, (1, count, 1, 1)).astype(np.int32)))
    multiplier = rng.integers(1 << 30, (1 << 31) - 1, count).astype(np.int32)
    scaled = ops.multiply_fixed(total, constant(multiplier), constant(np.full(count, -8, np.int32)), axis=1)
    return ops.cast(ops.clip(ops.add(scaled, constant(np.int32(-5))), minimum=-128.0, maximum=127.0), dtype="int8")


def added(a: Expr, b: Expr) -> Expr:
    total = ops.add(ops.cast(a, dtype="int32"), ops.cast(b, dtype="int32"))
    return ops.cast(ops.clip(total, minimum=-128.0, maximum=127.0), dtype="int8")


def memory(module: Module, target: str, folder: Path) -> int:
    """The bytes of the arena of firmware that gives the bytes of the reference."""
    executable = compile_module(module, [target], keep=False)
    export_folder(executable.package, folder, "tiny")
    manifest = json.loads((folder / "manifest.json").read_text())
    array = np.frombuffer(bytes.fromhex(manifest["inputs"][0]["test"]), np.int8).reshape(executable.inputs[0].shape)
    (expected,) = compile_module(module, ["reference"], keep=False).run({executable.inputs[0].name: array}).values()
    assert manifest["outputs"][0]["test"] == expected.tobytes().hex()
    sources = sorted(map(str, folder.glob("*.c")))
    subprocess.run(["cc", *FLAGS, f"-I{folder}", *sources, "-o", str(folder / "program"), "-lm"], check=True)
    assert subprocess.run([folder / "program"], check=False).returncode == 0
    return int(manifest["arena_bytes"]) + int(manifest["fast_arena_bytes"] or 0)


def narrow_block() -> Module:
    """13 x 11 pixels of 4 channels, 24 between, and a sum with what came in."""
    x, image = channels_last(13, 11, 4)
    wide = layer(layer(image, 24, seed=1), None, (3, 3), pads=(1, 1, 1, 1), seed=2)
    return module(x, added(image, layer(wide, 4, seed=3)))


def test_a_kernel_of_several_does_their_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    facts = []
    for _ in range(2):
        package = compile_module(narrow_block(), ["microcontroller:cpu=cortex-m4"], keep=False).package
        facts.append(export_folder(package, tmp_path, "tiny").facts)
        monkeypatch.setattr(arrange, "streamed", lambda *_: ())
    together, apart = facts
    assert len(together["kernels"]) < len(apart["kernels"])
    assert together["multiplications"] == apart["multiplications"]
    assert together["arena_bytes"] < apart["arena_bytes"]


@pytest.mark.parametrize("target", ["c99", "cortex-m55", "cortex-m4,fast=200"])
def test_of_what_a_narrow_block_widens_rows_are_kept(target: str, tmp_path: Path) -> None:
    """The residual block takes two images of 4 channels and a few rows."""
    module = narrow_block()
    assert memory(module, f"microcontroller:cpu={target}", tmp_path) < 2 * 13 * 11 * 4 + 5 * 11 * 24 < 13 * 11 * 24


@settings(max_examples=4, deadline=None)
@given(st.data())
def test_random_blocks(drawn: st.DataObject) -> None:
    draw = drawn.draw
    x, value = channels_last(draw(st.integers(5, 13)), draw(st.integers(3, 9)), draw(st.integers(1, 5)))
    values = [value]
    for seed in range(draw(st.integers(2, 5))):
        alike = [other for other in values[:-1] if other.type == value.type]
        if alike and draw(st.booleans()):
            value = added(value, draw(st.sampled_from(alike)))
        else:
            taps = draw(st.sampled_from([(1, 1), (3, 3), (3, 1), (2, 3)]))
            dilation = draw(st.sampled_from([1, 1, 2]))
            reach = [(size - 1) * dilation for size in taps]
            ends = [
                draw(st.integers(0 if size > span else span, max(span, 0)))
                for span, size in zip(reach, static_shape(value)[2:], strict=True)
            ]
            pads = (0, reach[1] // 2, *ends)
            strides = draw(st.sampled_from([(1, 1), (2, 2), (2, 1)]))
            outputs = draw(st.sampled_from([None, None, 4, 12]))
            value = layer(value, outputs, taps, strides, pads, dilation, seed)
        values.append(value)
    cpu = draw(st.sampled_from(["c99", "cortex-m4", "cortex-m55"]))
    with TemporaryDirectory() as folder:
        memory(module(x, value), f"microcontroller:cpu={cpu}", Path(folder))
