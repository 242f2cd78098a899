"""The float models of MLPerf Tiny in int8, beside the int8 models that were published with them; and one on its way to firmware."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import inlaid
from inlaid.graph.interp import evaluate
from inlaid.graph.ir import Module
from inlaid.plugins.registry import default_registry
from inlaid_quantization.ranges import Scale
from inlaid_quantization.settings import Quantization
from inlaid_tflite.model import read_model

from .nets import Array, quantized

MODELS = Path(__file__).parents[4] / "shared" / "models"
pytestmark = pytest.mark.skipif(not MODELS.is_dir(), reason="the trained models are not beside the checkout, in ../shared/models")

PAIRS = {
    "anomalies": ("ad01_fp32", "ad01_int8", 20.0),
    "keywords": ("kws_ref_model_float32", "kws_ref_model", 18.0),
    "images": ("pretrainedResnet", "pretrainedResnet_quant", 9.0),
}
"""The float model, the int8 one, and decibels over quantization noise that the outputs of ours have at least."""


def patterns(shape: tuple[int, ...], low: float, high: float, count: int) -> list[Array]:
    """Smooth patterns in a range, as pictures and spectra have them."""
    generator = np.random.default_rng(0)
    places = np.meshgrid(*[np.linspace(0, 1, extent) for extent in shape], indexing="ij")
    images = []
    for _ in range(count):
        value = np.zeros(shape)
        for _ in range(6):
            waves = sum(step * coordinate for step, coordinate in zip(generator.normal(size=len(shape)) * 6, places, strict=True))
            value += generator.normal() * np.sin(waves + generator.uniform(0, 2 * np.pi))
        value = (value - value.min()) / (value.max() - value.min())
        images.append((low + (high - low) * value).astype(np.float32))
    return images


def request_borders(path: Path) -> tuple[Scale, Scale]:
    """The scales of the input and the output of a published int8 model."""
    graph = read_model(path.read_bytes(), path.name)[0]
    scales = []
    for number in (graph.inputs[0], graph.outputs[0]):
        stored = graph.tensors[number].quantization
        assert stored is not None
        scales.append(Scale(float(stored.scale[0]), int(stored.zero_point[0])))
    return scales[0], scales[1]


def run_stored(module: Module, value: Array, input_scale: Scale, output_scale: Scale) -> Array:
    return output_scale.real_array(np.asarray(evaluate(module, [input_scale.stored_array(value)])))


def decibels(actual: list[Array], expected: list[Array]) -> float:
    noise = sum(float(np.square(a - b).sum()) for a, b in zip(actual, expected, strict=True))
    return float(10 * np.log10(sum(float(np.square(each).sum()) for each in expected) / noise))


@pytest.mark.parametrize("name", ["anomalies", "keywords", pytest.param("images", marks=pytest.mark.slow)])
def test_ours_is_as_good_as_what_was_published(name: str) -> None:
    float_name, int8_name, least = PAIRS[name]
    real, published = (inlaid.load(MODELS / f"{each}.tflite") for each in (float_name, int8_name))
    input_scale, output_scale = request_borders(MODELS / f"{int8_name}.tflite")
    (param,) = real.main.params
    assert isinstance(param.type, inlaid.TensorType)
    low, high = ((end - input_scale.zero_point) * input_scale.scale for end in (-128, 127))
    shape = tuple(int(dim) for dim in param.type.shape)  # type: ignore[arg-type]
    values = patterns(shape, low, high, 12)
    quantized_module = quantized(real.main, [{param.name: value} for value in values[:6]], Quantization(borders="int8"))
    assert quantized_module.report.floats == ()
    scales = [
        Scale(side[0].scale, side[0].zero_point) for side in (quantized_module.report.inputs, quantized_module.report.outputs)
    ]  # type: ignore[arg-type]
    expected = [np.asarray(evaluate(real, [value])) for value in values[6:]]
    ours = decibels([run_stored(quantized_module, value, *scales) for value in values[6:]], expected)
    theirs = decibels([run_stored(published, value, input_scale, output_scale) for value in values[6:]], expected)
    assert ours > least
    assert ours > theirs - 3


@pytest.fixture
def samples(tmp_path: Path) -> Path:
    path = tmp_path / "samples.npz"
    np.savez(path, input_1=np.stack(patterns((49, 10, 1), -120.0, 25.0, 3)))
    return path


@pytest.mark.skipif("microcontroller" not in default_registry().kinds(), reason='needs pip install "inlaid[microcontroller]"')
def test_firmware_has_the_same_integers(samples: Path) -> None:
    real = inlaid.load(MODELS / f"{PAIRS['keywords'][0]}.tflite")
    quantized_module = inlaid.quantize(real, samples, Quantization(borders="int8"), targets=["reference"])
    executable = inlaid.compile(quantized_module, ["microcontroller"])
    assert [region.target for region in executable.regions] == ["microcontroller"]
    for seed in range(3):
        stored = np.random.default_rng(seed).integers(-128, 128, (1, 49, 10, 1)).astype(np.int8)
        (actual,) = executable.run({"input_1": stored}).values()
        np.testing.assert_array_equal(actual, evaluate(quantized_module, [stored]))
