"""The generated models on x86: the answers of ONNX Runtime, and nothing left to another target."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import inlaid
from inlaid.plugins.registry import default_registry
from zoo import GENERATED, LIGHT_MODELS, feeds
from zoo.detector import TINY_DETECTOR, detector
from zoo.images import TINY_DCGAN, TINY_SUPER, TINY_UNET, dcgan, super_resolution, unet
from zoo.kernels import KERNELS
from zoo.language import TINY_BERT, TINY_GPT2, TINY_LSTM, TINY_SEQ2SEQ, Bert, bert, gpt2, lstm, seq2seq
from zoo.ocr import TINY_CRNN, TINY_FINDER, crnn, text_finder
from zoo.speech import TINY_SPEECH, speech
from zoo.vision import TINY_MOBILENET, TINY_VIT, mobilenet, vit

TOLERANCE = 1e-3
"""Of the largest number of an output: what a whole model may differ."""
TARGET = "x86:threads=1"

pytestmark = pytest.mark.skipif(
    "x86" not in default_registry().kinds(), reason='the x86 plugin is not installed: pip install "inlaid[x86]"'
)


class Expected:
    """What ONNX Runtime answers, or the reference target where that is not installed."""

    def __init__(self, model):
        try:
            import onnxruntime
        except ImportError:
            self.run = inlaid.compile(model, ["reference"]).run
            return
        session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        names = [item.name for item in session.get_outputs()]
        self.run = lambda arrays: dict(zip(names, session.run(None, arrays), strict=True))


def assert_close(actual, expected):
    assert actual.keys() == expected.keys()
    for name, other in expected.items():
        assert (actual[name].dtype, actual[name].shape) == (other.dtype, other.shape)
        np.testing.assert_allclose(actual[name], other, rtol=0, atol=TOLERANCE * np.abs(other).max(), err_msg=name)


def assert_native(executable):
    assert {region.target for region in executable.regions} == {TARGET}


def check(model):
    executable = inlaid.compile(model, [TARGET])
    assert_native(executable)
    arrays = feeds(model)
    assert_close(executable.run(arrays), Expected(model).run(arrays))


@pytest.mark.parametrize("name", GENERATED)
def test_tiny(name):
    check(GENERATED[name].tiny())


def test_the_same_model_every_time():
    first, second = (GENERATED["bert_base"].tiny().SerializeToString(deterministic=True) for _ in range(2))
    assert first == second


def test_weights_are_those_of_the_seed():
    """Fixed numbers: other machines and other versions of numpy give the same model."""
    (weight,) = (item for item in mobilenet(TINY_MOBILENET).graph.initializer if item.name == "stem/weight")
    weights = onnx.numpy_helper.to_array(weight).ravel()[:3]
    np.testing.assert_array_equal(weights, np.array([0.33057168, 0.12912866, 0.010499567], np.float32))


DYNAMIC = {
    "bert": (
        lambda: bert(TINY_BERT, "batch", "sequence"),
        {"batch": (1, 8), "sequence": (1, 64)},
        ({"batch": 1, "sequence": 1}, {"batch": 3, "sequence": 17}, {"batch": 2, "sequence": 64}),
    ),
    "gpt2_prefill": (
        lambda: gpt2(TINY_GPT2, "batch", "sequence"),
        {"batch": (1, 8), "sequence": (1, 64)},
        ({"batch": 1, "sequence": 1}, {"batch": 3, "sequence": 17}),
    ),
    "gpt2_steps": (
        lambda: gpt2(TINY_GPT2, "batch", "new", "past"),
        {"batch": (1, 4), "new": (1, 4), "past": (0, 60)},
        ({"batch": 1, "new": 1, "past": 0}, {"batch": 2, "new": 3, "past": 17}),
    ),
    "seq2seq": (
        lambda: seq2seq(TINY_SEQ2SEQ, "batch", "source", "target"),
        {"batch": (1, 8), "source": (1, 64), "target": (1, 64)},
        ({"batch": 1, "source": 1, "target": 1}, {"batch": 3, "source": 17, "target": 5}),
    ),
    "lstm": (
        lambda: lstm(TINY_LSTM, "batch", "sequence"),
        {"batch": (1, 8), "sequence": (1, 64)},
        ({"batch": 1, "sequence": 1}, {"batch": 3, "sequence": 17}),
    ),
    "vit": (lambda: vit(TINY_VIT, "batch"), {"batch": (1, 8)}, ({"batch": 1}, {"batch": 3})),
    "mobilenet": (
        lambda: mobilenet(TINY_MOBILENET, "batch", "height", "width"),
        {"batch": (1, 8), "height": (8, 64), "width": (8, 64)},
        ({"batch": 1, "height": 8, "width": 37}, {"batch": 3, "height": 41, "width": 16}),
    ),
    "dcgan": (lambda: dcgan(TINY_DCGAN, "batch"), {"batch": (1, 8)}, ({"batch": 1}, {"batch": 3})),
    "unet": (
        lambda: unet(TINY_UNET, "batch", "height", "width"),
        {"batch": (1, 4), "height": (8, 64), "width": (8, 64)},
        ({"batch": 1, "height": 8, "width": 36}, {"batch": 2, "height": 44, "width": 16}),
    ),
    "super_resolution": (
        lambda: super_resolution(TINY_SUPER, "batch", "height", "width"),
        {"batch": (1, 4), "height": (1, 32), "width": (1, 32)},
        ({"batch": 1, "height": 1, "width": 19}, {"batch": 2, "height": 23, "width": 8}),
    ),
    "text_finder": (
        lambda: text_finder(TINY_FINDER, "batch", "height", "width"),
        {"batch": (1, 4), "height": (8, 64), "width": (8, 64)},
        ({"batch": 1, "height": 8, "width": 40}, {"batch": 2, "height": 48, "width": 16}),
    ),
    "crnn": (
        lambda: crnn(TINY_CRNN, "batch", "width"),
        {"batch": (1, 4), "width": (8, 64)},
        ({"batch": 1, "width": 8}, {"batch": 3, "width": 37}),
    ),
    "speech": (
        lambda: speech(TINY_SPEECH, "batch", "frames"),
        {"batch": (1, 4), "frames": (1, 16)},
        ({"batch": 1, "frames": 1}, {"batch": 3, "frames": 7}),
    ),
    "detector": (
        lambda: detector(TINY_DETECTOR, "height", "width"),
        {"height": (40, 80), "width": (40, 80)},
        ({"height": 40, "width": 64}, {"height": 75, "width": 47}),
    ),
}
"""Model, bounds of its symbolic sizes, sizes to run."""


@pytest.mark.parametrize("bounded", [True, False], ids=["bounded", "free"])
@pytest.mark.parametrize("name", DYNAMIC)
def test_one_executable_for_all_sizes(name, bounded):
    build, bounds, cases = DYNAMIC[name]
    model = build()
    executable = inlaid.compile(model, [TARGET], dims=bounds if bounded else None)
    assert_native(executable)
    expected = Expected(model)
    for sizes in cases:
        arrays = feeds(model, sizes=sizes)
        assert_close(executable.run(arrays), expected.run(arrays))


@pytest.mark.parametrize("max_size", [2, 8])
@pytest.mark.parametrize("name", KERNELS)
def test_kernels_of_few_sizes(name, max_size):
    """Bounds that are no larger than a tile."""
    kernel = KERNELS[name]
    model = kernel.build()
    executable = inlaid.compile(model, [TARGET], dims=dict.fromkeys(kernel.sizes, (1, max_size)))
    reference = inlaid.compile(model, ["reference"])
    for size in (1, max_size):
        arrays = feeds(model, sizes=dict.fromkeys(kernel.sizes, size))
        outputs, expected = executable.run(arrays), reference.run(arrays)
        for output, other in expected.items():
            assert outputs[output].shape == other.shape
            # Integers may round to the neighboring step.
            tolerance = 0.03 if "int8" in name else TOLERANCE
            np.testing.assert_allclose(outputs[output], other, rtol=0, atol=tolerance * np.abs(other).max(initial=0))


def test_some_sizes_fixed():
    model = bert(TINY_BERT, "batch", "sequence")
    executable = inlaid.compile(model, [TARGET], dims={"batch": (1, 4), "sequence": 12})
    assert executable.inputs[0].shape[1] == 12
    arrays = feeds(model, sizes={"batch": 2, "sequence": 12})
    assert_close(executable.run(arrays), Expected(model).run(arrays))


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in LIGHT_MODELS if name not in ("vgg19", "zfnet512", "bvlc_alexnet")])
def test_the_networks_of_the_light_models(name):
    """With weights that differ, so that mistakes between channels show. Those of several hundred megabytes are left out."""
    check(LIGHT_MODELS[name].full())


@pytest.mark.slow
@pytest.mark.parametrize("name", ["squeezenet", "inception_v1"])
def test_light_models_with_symbolic_sizes(name):
    """At the sizes of the files they are the same networks, at others they run."""
    static_model, free = LIGHT_MODELS[name].full(), LIGHT_MODELS[name].symbolic.build()
    (image,) = feeds(static_model).values()
    expected = Expected(free)
    for other in expected.run({free.graph.input[0].name: image}).values():
        (static_output,) = Expected(static_model).run({static_model.graph.input[0].name: image}).values()
        np.testing.assert_allclose(other.ravel(), static_output.ravel(), rtol=0, atol=TOLERANCE * np.abs(static_output).max())
    executable = inlaid.compile(free, [TARGET])
    assert_native(executable)
    arrays = feeds(free, sizes={"batch": 2, "height": 97, "width": 130})
    assert_close(executable.run(arrays), expected.run(arrays))


@pytest.mark.slow
def test_mobilenet_in_full():
    check(mobilenet())


@pytest.mark.slow
def test_a_layer_of_bert_base():
    check(bert(Bert(layers=1, vocabulary=128)))
