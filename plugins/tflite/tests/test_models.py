"""TensorFlow Lite models beside LiteRT: integers equal, floats close; damaged files refused."""

from __future__ import annotations

import contextlib
import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import inlaid
from inlaid.graph.interp import evaluate
from inlaid_runtime.errors import ModelImportError
from inlaid_tflite import load

from .build import litert

MODELS = Path(__file__).parents[4] / "shared" / "models"
INTEGERS = ("ad01_int8", "kws_ref_model", "pretrainedResnet_quant", "vww_96_int8")
FLOATS = ("ad01_fp32", "pretrainedResnet", "vww_96_float")
HYBRID = "kws_ref_model_float32"
"""Weights in eight bits between floats: LiteRT rounds the data to eight bits too, Inlaid does not."""

needs_models = pytest.mark.skipif(not MODELS.is_dir(), reason="the trained models are not beside the checkout, in ../shared/models")


def drawn(module: inlaid.Module, seed: int) -> list[np.ndarray[Any, Any]]:
    generator = np.random.default_rng(seed)
    inputs = []
    for param in module.main.params:
        assert isinstance(param.type, inlaid.TensorType)
        shape = tuple(int(dim) for dim in param.type.shape if isinstance(dim, int))
        integers = generator.integers(-128, 128, shape)
        inputs.append(
            integers.astype(np.int8) if param.type.dtype.name == "int8" else generator.normal(size=shape).astype(np.float32)
        )
    return inputs


@needs_models
@pytest.mark.parametrize("name", INTEGERS)
def test_integers_are_equal(name: str) -> None:
    pytest.importorskip("inlaid_x86", reason='needs the x86 plugin: pip install "inlaid[x86]"')
    data = (MODELS / f"{name}.tflite").read_bytes()
    module = load(data)
    executable = inlaid.compile(module, ["x86:threads=1"])
    for seed in range(10):
        inputs = drawn(module, seed)
        outputs = list(executable.run({p.name: value for p, value in zip(module.main.params, inputs, strict=True)}).values())
        for actual, expected in zip(outputs, litert(data, inputs), strict=True):
            np.testing.assert_array_equal(actual, expected)
    assert {region.target for region in executable.regions} == {"x86:threads=1"}


@needs_models
@pytest.mark.parametrize("name", [*FLOATS, HYBRID])
def test_floats_are_close(name: str) -> None:
    pytest.importorskip("inlaid_x86", reason='needs the x86 plugin: pip install "inlaid[x86]"')
    data = (MODELS / f"{name}.tflite").read_bytes()
    module = load(data)
    inputs = drawn(module, 0)
    executable = inlaid.compile(module, ["x86:threads=1"])
    (actual,) = executable.run({module.main.params[0].name: inputs[0]}).values()
    (expected,) = litert(data, inputs)
    allowed = 0.05 if name == HYBRID else 1e-4 * float(np.abs(expected).max()) + 1e-5
    assert np.abs(actual - expected).max() <= allowed


@needs_models
def test_the_reference_gives_the_same_integers() -> None:
    data = (MODELS / "kws_ref_model.tflite").read_bytes()
    module = load(data)
    inputs = drawn(module, 3)
    actual = evaluate(module, {module.main.params[0].name: inputs[0]})
    np.testing.assert_array_equal(actual, litert(data, inputs)[0])


@needs_models
def test_a_model_is_loaded_by_path_and_by_bytes() -> None:
    path = MODELS / "ad01_int8.tflite"
    by_path, by_bytes = inlaid.load(path), inlaid.load(path.read_bytes())
    assert by_path.main.type == by_bytes.main.type
    spans = {expr.span.file for expr in inlaid.load(path).main.body.args if expr.span is not None}  # type: ignore[attr-defined]
    assert spans <= {"ad01_int8.tflite"}
    with pytest.raises(ModelImportError, match="the model has no dynamic size 'batch'"):
        inlaid.load(path, dims={"batch": 2})


@needs_models
@pytest.mark.parametrize("seed", range(40))
def test_damage_is_one_clear_error(seed: int) -> None:
    content = bytearray((MODELS / "kws_ref_model.tflite").read_bytes())
    generator = np.random.default_rng(seed)
    damaged = copy.copy(content)
    if seed % 4 == 0:
        damaged = damaged[: int(generator.integers(8, len(content)))]
    else:
        for _ in range(int(generator.integers(1, 40))):
            offset = int(generator.integers(8, len(content) if seed % 4 == 1 else 30000))
            damaged[offset] = int(generator.integers(0, 256))
    with contextlib.suppress(ModelImportError):  # what is damaged in a weight alone is a model still
        load(bytes(damaged))


@pytest.mark.parametrize(
    "data", [b"", b"TFL3", b"\x00\x00\x00\x00TFL3", b"\xff\xff\xff\xffTFL3" + b"\xff" * 64, b"\x08\x00\x00\x00TFL3" + b"\x00" * 64]
)
def test_what_is_no_model_is_refused(data: bytes) -> None:
    with pytest.raises(ModelImportError, match=r"is not a TensorFlow Lite model|is damaged|has no graph"):
        load(data)
