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
    found = []
    for _ in range(count):
        value = np.zeros(shape)
        for _ in range(6):
            waves = sum(step * place for step, place in zip(generator.normal(size=len(shape)) * 6, places, strict=True))
            value += generator.normal() * np.sin(waves + generator.uniform(0, 2 * np.pi))
        value = (value - value.min()) / (value.max() - value.min())
        found.append((low + (high - low) * value).astype(np.float32))
    return found


def borders_of(path: Path) -> tuple[Scale, Scale]:
    """The scales of the input and the output of a published int8 model."""
    graph = read_model(path.read_bytes(), path.name)[0]
    found = []
    for number in (graph.inputs[0], graph.outputs[0]):
        stored = graph.tensors[number].quantization
        assert stored is not None
        found.append(Scale(float(stored.scale[0]), int(stored.zero_point[0])))
    return found[0], found[1]


def run_stored(module: Module, value: Array, taken: Scale, given: Scale) -> Array:
    return given.real_array(np.asarray(evaluate(module, [taken.stored_array(value)])))


def decibels(found: list[Array], wanted: list[Array]) -> float:
    noise = sum(float(np.square(a - b).sum()) for a, b in zip(found, wanted, strict=True))
    return float(10 * np.log10(sum(float(np.square(each).sum()) for each in wanted) / noise))


@pytest.mark.parametrize("name", ["anomalies", "keywords", pytest.param("images", marks=pytest.mark.slow)])
def test_ours_is_as_good_as_what_was_published(name: str) -> None:
    of_float, of_int8, least = PAIRS[name]
    real, published = (inlaid.load(MODELS / f"{each}.tflite") for each in (of_float, of_int8))
    taken, given = borders_of(MODELS / f"{of_int8}.tflite")
    (param,) = real.main.params
    assert isinstance(param.type, inlaid.TensorType)
    low, high = ((end - taken.zero_point) * taken.scale for end in (-128, 127))
    shape = tuple(int(dim) for dim in param.type.shape)  # type: ignore[arg-type]
    values = patterns(shape, low, high, 12)
    found = quantized(real.main, [{param.name: value} for value in values[:6]], Quantization(borders="int8"))
    assert found.report.floats == ()
    own = [Scale(side[0].scale, side[0].zero_point) for side in (found.report.inputs, found.report.outputs)]  # type: ignore[arg-type]
    wanted = [np.asarray(evaluate(real, [value])) for value in values[6:]]
    ours = decibels([run_stored(found, value, *own) for value in values[6:]], wanted)
    theirs = decibels([run_stored(published, value, taken, given) for value in values[6:]], wanted)
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
    found = inlaid.quantize(real, samples, Quantization(borders="int8"), targets=["reference"])
    executable = inlaid.compile(found, ["microcontroller"])
    assert [region.target for region in executable.regions] == ["microcontroller"]
    for seed in range(3):
        stored = np.random.default_rng(seed).integers(-128, 128, (1, 49, 10, 1)).astype(np.int8)
        (got,) = executable.run({"input_1": stored}).values()
        np.testing.assert_array_equal(got, evaluate(found, [stored]))
