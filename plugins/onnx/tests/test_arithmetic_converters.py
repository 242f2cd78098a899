"""Converters of arithmetic, reductions, quantized operators, losses, optimizers, signals and random values: what ONNX's own node
cases leave out, old opsets above all. The oracle is ONNX Runtime where it has the operator, else numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest
from tests.onnx_runtime import answers

from inlaid.graph.interp import evaluate
from inlaid_onnx import load
from inlaid_runtime.errors import ModelImportError, TrainingWarning

from .one_node import Array, check_with_onnxruntime, run

TRAINING = "ai.onnx.preview.training"


def normal(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def integers(low: int, high: int, shape: tuple[int, ...], dtype: Any = np.int64, seed: int = 0) -> Array:
    return np.random.default_rng(seed).integers(low, high, shape, endpoint=True).astype(dtype)


def positive(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).uniform(0.1, 1, shape).astype(np.float32)


# --- arithmetic -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("op", "numpy"), [("Add", np.add), ("Sub", np.subtract), ("Mul", np.multiply), ("Div", np.divide)])
def test_operands_aligned_by_an_axis(op, numpy):
    a, b = normal(3, 4, 5), normal(4, seed=1)
    np.testing.assert_array_equal(run(op, 6, [a, b], broadcast=1, axis=1)[0], numpy(a, b[:, None]))
    np.testing.assert_array_equal(run(op, 6, [a, a[0]], broadcast=1)[0], numpy(a, a[0]))
    with pytest.raises(ModelImportError, match="the second operand, of rank 2, must fit axis 2 of rank 3"):
        run(op, 6, [a, normal(5, 1)], broadcast=1, axis=2)


@pytest.mark.parametrize(
    "inputs",
    [
        [np.arange(-5, 6), np.float32(3)],
        [normal(5), np.int64(2)],
        [np.arange(-5, 6, dtype=np.int32), np.arange(11)],
        [positive(3, 4), normal(4)],
    ],
)
def test_powers_of_mixed_types(inputs):
    check_with_onnxruntime("Pow", 13, inputs)


def test_integers_divide_as_in_c():
    a, b = integers(-20, 20, (50,), np.int32), np.where(integers(0, 1, (50,), seed=1) == 0, -1, 1) * integers(1, 9, (50,), np.int32)
    b = b.astype(np.int32)
    for op, opset, attrs in (("Div", 7, {}), ("Div", 14, {}), ("Mod", 13, {}), ("Mod", 13, {"fmod": 1})):
        check_with_onnxruntime(op, opset, [a, b], exact=True, **attrs)
    check_with_onnxruntime("Mod", 13, [a.astype(np.float32) * 0.75, b.astype(np.float32)], fmod=1)


@pytest.mark.parametrize("op", ["Sum", "Mean", "Max", "Min"])
def test_many_operands(op):
    x = normal(3, 4)
    check_with_onnxruntime(op, 8, [x])
    check_with_onnxruntime(op, 8, [x, x[:1], x[:, :1]])


@pytest.mark.parametrize(
    ("opset", "inputs", "attrs"),
    [
        (6, [normal(9)], {"min": -0.5, "max": 0.25}),
        (6, [normal(9)], {}),
        (13, [normal(9), np.float32(-0.5), np.float32(0.25)], {}),
        (13, [normal(9), None, np.float32(0.25)], {}),
        (6, [np.float32([np.inf, -np.inf, 2])], {"min": -0.5}),
        (13, [np.float32([np.inf, -np.inf, 2]), np.float32(-0.5)], {}),
        (13, [np.float16([np.inf, -np.inf, 2]), None, np.float16(0.5)], {}),
        (13, [np.float64([np.inf, -np.inf, 2])], {}),
        (13, [np.arange(2**53, 2**53 + 5), np.int64(2**53 + 1), np.int64(2**53 + 3)], {}),
    ],
)
def test_clip(opset, inputs, attrs):
    check_with_onnxruntime("Clip", opset, inputs, exact=True, **attrs)


@pytest.mark.parametrize(
    ("op", "opset", "attrs"),
    [
        *(
            (op, 20, {})
            for op in ("Elu", "Celu", "Selu", "Softplus", "Softsign", "HardSigmoid", "HardSwish", "Mish", "Gelu", "Sigmoid")
        ),
        ("Gelu", 20, {"approximate": "tanh"}),
        ("Elu", 6, {"alpha": 0.5}),
        ("LeakyRelu", 16, {"alpha": 0.3}),
        ("ThresholdedRelu", 10, {"alpha": 0.5}),
        ("Shrink", 9, {"lambd": 0.4, "bias": 0.2}),
        ("IsInf", 10, {"detect_negative": 0}),
    ],
)
def test_activations(op, opset, attrs):
    check_with_onnxruntime(op, opset, [np.array([-1e3, -2, -0.5, 0, 0.3, 2, 50, np.inf], np.float32)], **attrs)


def test_activations_of_float16_round_once():
    x = normal(64).astype(np.float16)
    (actual,) = run("Softplus", 22, [x])
    np.testing.assert_array_equal(actual, np.log1p(np.exp(x.astype(np.float32))).astype(np.float16))


def test_shrinking_integers():
    check_with_onnxruntime("Shrink", 9, [np.arange(-3, 4, dtype=np.int8)], exact=True, lambd=1.5, bias=1.0)


def test_slopes():
    x, slopes = normal(3, 4, 5), normal(4, seed=1)
    np.testing.assert_array_equal(run("PRelu", 6, [x, slopes])[0], np.where(x < 0, x * slopes[:, None], x))
    check_with_onnxruntime("PRelu", 9, [x, normal(5, seed=1)])


# --- casts ------------------------------------------------------------------------------------------------------------


def test_casts_to_types_by_name():
    actual = run("Cast", 1, [normal(5) * 10], to="INT32")[0]
    assert actual.dtype == np.int32
    with pytest.raises(ModelImportError, match="unknown element type"):
        run("Cast", 1, [normal(5)], to="COMPLEX64")
    with pytest.raises(ModelImportError, match="or attributes: ValueError: expected a supported element type"):
        run("Cast", 13, [normal(5)], to=onnx.TensorProto.COMPLEX64)


def test_casts_of_strings():
    assert run("Cast", 13, [np.array(["1.5", "-INF", "7"], object)], to=1)[0].tolist() == [1.5, -np.inf, 7]


# --- reductions -------------------------------------------------------------------------------------------------------

REDUCTIONS = ["Sum", "Mean", "Max", "Min", "Prod", "L1", "L2", "LogSum", "LogSumExp", "SumSquare"]


@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions(name):
    op, x = f"Reduce{name}", positive(3, 4, 5)
    check_with_onnxruntime(op, 11, [x], axes=[0, -1])
    check_with_onnxruntime(op, 11, [x], keepdims=0)
    check_with_onnxruntime(op, 18, [x, np.array([0, -1])])
    check_with_onnxruntime(op, 18, [x, np.array([], np.int64)], noop_with_empty_axes=1)
    check_with_onnxruntime(op, 18, [x])
    check_with_onnxruntime(op, 11, [np.arange(1, 13, dtype=np.int32).reshape(3, 4)], axes=[1], exact=True)
    with pytest.raises(ModelImportError, match="axes must be unique, got"):
        run(op, 11, [x], axes=[1, -2])


def test_the_sum_has_axes_as_an_input_since_opset_13():
    check_with_onnxruntime("ReduceSum", 13, [normal(3, 4), np.array([1])])
    check_with_onnxruntime("ReduceMax", 13, [normal(3, 4)], axes=[1])


def test_a_great_sum_of_exponentials():
    x = np.array([[1000, 1000.0], [-1000, -1000], [-np.inf, -np.inf], [np.inf, 0]], np.float32)
    (actual,) = run("ReduceLogSumExp", 13, [x], axes=[1], keepdims=0)
    np.testing.assert_allclose(actual, [1000 + np.log(2), -1000 + np.log(2), -np.inf, np.inf], rtol=1e-6)


@pytest.mark.parametrize("opset", [11, 13])
@pytest.mark.parametrize("attrs", [{}, {"axis": 0}, {"axis": 1}])
def test_hardmax(opset, attrs):
    check_with_onnxruntime("Hardmax", opset, [np.round(normal(3, 4, 5))], exact=True, **attrs)


@pytest.mark.parametrize("op", ["ArgMax", "ArgMin"])
@pytest.mark.parametrize("last", [0, 1])
def test_positions(op, last):
    check_with_onnxruntime(op, 13, [np.round(normal(6, 7))], exact=True, axis=-1, select_last_index=last, keepdims=0)


def test_running_sums():
    check_with_onnxruntime("CumSum", 14, [np.round(normal(3, 4)), np.int64(-1)], exact=True, exclusive=1, reverse=1)


EQUATIONS = [
    ("ij,jk->ik", [(2, 3), (3, 4)]), ("ij,jk", [(2, 3), (3, 4)]), ("...ij,...jk->...ik", [(2, 1, 3, 4), (5, 4, 2)]),
    ("ii->i", [(3, 3)]), ("ii", [(3, 3)]), ("i,j->ij", [(3,), (4,)]), ("ij,ij->", [(2, 3), (2, 3)]), ("i...->...i", [(2, 3, 4)]),
    ("abc,cd,de->abe", [(2, 3, 4), (4, 5), (5, 2)]), ("bhwc,hkc->bhwk", [(2, 3, 4, 5), (3, 6, 5)]), ("ij,k->", [(2, 3), (4,)]),
    ("iij,jk->ik", [(3, 3, 2), (2, 4)]), ("ba, b -> a", [(2, 3), (2,)]),
]  # fmt: skip


@pytest.mark.parametrize(("equation", "shapes"), EQUATIONS)
def test_einsum(equation, shapes):
    arrays = [normal(*shape, seed=seed) for seed, shape in enumerate(shapes)]
    actual = run("Einsum", 12, arrays, equation=equation)[0]
    np.testing.assert_allclose(actual, np.einsum(equation, *arrays), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("equation", "message"),
    [
        ("ij,jk->ik", "must have 1 input terms"),
        ("i->i", "must label 2 axes"),
        ("ij->k", "labels of inputs"),
        ("i!->i", "expected a term"),
    ],
)
def test_equations_that_make_no_sense(equation, message):
    with pytest.raises(ModelImportError, match=message):
        run("Einsum", 12, [normal(2, 3)], equation=equation)


# --- quantized --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_quantized_convolution_is_exact(dtype):
    x, w = integers(0, 127, (2, 4, 9, 9), dtype), integers(-100, 100, (6, 2, 3, 3), np.int8)
    scales, zeros = positive(6) * np.float32(0.05), np.zeros(6, np.int8)
    bias = integers(-100, 100, (6,), np.int32)
    inputs = [x, np.float32(0.02), dtype(3), w, scales, zeros, np.float32(0.7), dtype(5), bias]
    check_with_onnxruntime("QLinearConv", 10, inputs, exact=True, group=2, pads=[1, 1, 1, 1], strides=[2, 1])


def test_quantized_products_are_exact():
    a, b = integers(0, 255, (2, 5, 7), np.uint8), integers(-127, 127, (7, 3), np.int8)
    per_column = [b, positive(3) * np.float32(0.03), np.zeros(3, np.int8)]
    check_with_onnxruntime(
        "QLinearMatMul", 10, [a, np.float32(0.02), np.uint8(100), *per_column, np.float32(0.3), np.uint8(128)], exact=True
    )
    check_with_onnxruntime("MatMulInteger", 10, [a[0], b, np.uint8(7), np.array([1, 2, 3], np.int8)], exact=True)
    x, w = integers(0, 255, (1, 4, 7, 7), np.uint8), integers(0, 255, (2, 4, 3, 3), np.uint8)
    check_with_onnxruntime("ConvInteger", 10, [x, w, np.uint8(7), np.uint8(3)], exact=True, pads=[1, 1, 1, 1])


def test_scales_for_each_row_and_column():
    a, b = integers(0, 255, (5, 7), np.uint8), integers(0, 255, (7, 3), np.uint8)
    a_scale, b_scale = positive(5), positive(3)
    inputs = [a, a_scale, np.full(5, 3, np.uint8), b, b_scale, np.full(3, 4, np.uint8), np.float32(900), np.uint8(9)]
    real = (a.astype(np.float32) - 3) @ (b.astype(np.float32) - 4) * a_scale[:, None] * b_scale
    np.testing.assert_array_equal(run("QLinearMatMul", 21, inputs)[0], np.clip(np.rint(real / 900) + 9, 0, 255))


@pytest.mark.parametrize("scale", [1.0, 1e-3, 1e5, 0.0])
def test_dynamic_quantization_is_exact(scale):
    check_with_onnxruntime("DynamicQuantizeLinear", 11, [normal(50, 40) * np.float32(scale)], 3, exact=True)


def test_quantization_along_an_axis_is_exact():
    x, points = normal(50, 40) * np.float32(30), integers(-5, 5, (40,), np.int8)
    check_with_onnxruntime("QuantizeLinear", 13, [x, positive(40), points], exact=True, axis=-1)
    check_with_onnxruntime("QuantizeLinear", 13, [x, np.array([0.5], np.float32)], exact=True)
    check_with_onnxruntime(
        "DequantizeLinear", 13, [integers(-127, 127, (40, 3), np.int8), positive(40), points], exact=True, axis=0
    )


# --- losses, optimizers -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
@pytest.mark.parametrize(("op", "outputs"), [("NegativeLogLikelihoodLoss", 1), ("SoftmaxCrossEntropyLoss", 2)])
def test_losses(op, outputs, reduction):
    scores, target, weights = normal(4, 5, 3), integers(0, 4, (4, 3)), positive(5)
    ignoring = np.where(target == 2, -1, target)
    for inputs in ([scores, target], [scores, target, weights]):
        check_with_onnxruntime(op, 13, inputs, outputs, reduction=reduction)
        check_with_onnxruntime(op, 13, [scores, ignoring, *inputs[2:]], outputs, reduction=reduction, ignore_index=-1)


def test_optimizers_step_every_tensor():
    rate, count, x = np.float32(0.1), np.int64(3), [normal(3), normal(2, 2, seed=1)]
    gradients, state = [normal(3, seed=2), normal(2, 2, seed=3)], [positive(3), positive(2, 2)]
    outputs = run(
        "Momentum",
        1,
        [rate, count, *x, *gradients, *state],
        4,
        TRAINING,
        alpha=0.9,
        beta=0.5,
        mode="nesterov",
        norm_coefficient=0.1,
    )
    for index in range(2):
        regular = 0.1 * x[index] + gradients[index]
        momentum = 0.9 * state[index] + 0.5 * regular
        np.testing.assert_allclose(outputs[2 + index], momentum, rtol=1e-5)
        np.testing.assert_allclose(outputs[index], x[index] - 0.1 * (regular + 0.9 * momentum), rtol=1e-5)
    with pytest.raises(ModelImportError, match="the number of tensors must be a multiple of 4, got 6"):
        run("Adam", 1, [rate, count, *x, *gradients, *state], 6, TRAINING)


# --- signals ----------------------------------------------------------------------------------------------------------


def parts(values: Array) -> Array:
    return np.stack([values.real, values.imag], -1)


@pytest.mark.parametrize("axis", [0, 1, 2, -2, -3])
@pytest.mark.parametrize("length", [None, 5, 10])
@pytest.mark.parametrize("extent", [7, 8])
def test_fourier_transforms(axis, length, extent):
    real, index = normal(3, extent, 4), axis if axis >= 0 else axis + 4
    values = real + 1j * normal(3, extent, 4, seed=1)
    rest = [None if length is None else np.int64(length), np.int64(axis)]

    def transform(x: Array, **attrs: int) -> Array:
        return run("DFT", 20, [x.astype(np.float32), *rest], **attrs)[0]

    def close(mine: Array, other: Array) -> None:
        np.testing.assert_allclose(mine, other, rtol=1e-4, atol=2e-5)

    close(transform(real[..., None]), parts(np.fft.fft(real, length, index)))
    close(transform(real[..., None], onesided=1), parts(np.fft.rfft(real, length, index)))
    close(transform(parts(values)), parts(np.fft.fft(values, length, index)))
    close(transform(parts(values), inverse=1), parts(np.fft.ifft(values, length, index)))
    close(transform(parts(values), inverse=1, onesided=1)[..., 0], np.fft.irfft(values, length, index))


def test_short_time_fourier_transforms():
    signal, window = normal(2, 40), np.hanning(9).astype(np.float32)
    frames = np.stack([signal[:, start : start + 9] for start in range(0, 32, 3)], 1)
    (actual,) = run("STFT", 17, [signal[..., None], np.int64(3), window])
    np.testing.assert_allclose(actual, parts(np.fft.rfft(frames * window)), rtol=1e-4, atol=2e-5)
    (flat,) = run("STFT", 17, [signal, np.int64(3), window])  # as PyTorch's exporter writes it
    np.testing.assert_array_equal(flat, actual)
    values = signal[..., None] * np.array([1, 2], np.float32)
    (actual,) = run("STFT", 17, [values, np.int64(3), None, np.int64(9)])
    np.testing.assert_allclose(actual, parts(np.fft.fft(frames * (1 + 2j))), rtol=1e-4, atol=4e-5)


@pytest.mark.parametrize(("op", "numpy"), [("HannWindow", np.hanning), ("HammingWindow", None), ("BlackmanWindow", np.blackman)])
def test_windows(op, numpy):
    for attrs in ({}, {"periodic": 0}, {"output_datatype": 11}):
        check_with_onnxruntime(op, 17, [np.int64(10)], **attrs)
    if numpy is not None:
        np.testing.assert_allclose(run(op, 17, [np.int64(9)], periodic=0)[0], numpy(9), atol=1e-6)


def test_mel_weights():
    check_with_onnxruntime("MelWeightMatrix", 17, [np.int64(20), np.int64(64), np.int64(16000), np.float32(50), np.float32(7000)])
    with pytest.raises(ModelImportError, match="num_mel_bins and dft_length must be >= 0 and sample_rate > 0, got 20, 64 and 0"):
        run("MelWeightMatrix", 17, [np.int64(20), np.int64(64), np.int64(0), np.float32(50), np.float32(7000)])


# --- random -----------------------------------------------------------------------------------------------------------


def test_random_values_have_their_type_and_range():
    (uniform,) = run("RandomUniform", 1, [], shape=[1000], low=2.0, high=3.0, dtype=11)
    assert (uniform.dtype, uniform.shape) == (np.float64, (1000,))
    assert ((uniform >= 2) & (uniform < 3)).all()
    (samples,) = run("RandomNormalLike", 1, [normal(10, 100)], mean=5.0, scale=2.0)
    assert samples.mean() == pytest.approx(5, abs=0.3)
    assert samples.std() == pytest.approx(2, abs=0.2)
    (coins,) = run("Bernoulli", 15, [np.full(1000, 0.25, np.float32)], dtype=6)
    assert coins.dtype == np.int32
    assert coins.mean() == pytest.approx(0.25, abs=0.05)
    with pytest.raises(ModelImportError, match="the dtype of random values must be a float, got int64: set the"):
        run("RandomUniformLike", 1, [np.arange(3)])


def test_random_classes():
    logits = np.log(np.array([[0.5, 0.25, 0.25, 0.0], [0, 0, 0, 1]], np.float32) + 1e-30)
    (actual,) = run("Multinomial", 7, [logits], sample_size=2000, seed=1.0)
    assert actual.dtype == np.int32
    assert (actual[1] == 3).all()
    np.testing.assert_allclose(np.bincount(actual[0], minlength=4) / 2000, [0.5, 0.25, 0.25, 0], atol=0.05)


def test_seeds_decide_random_values():
    one, repeat, other = (run("RandomNormal", 1, [], shape=[5], seed=seed)[0] for seed in (1.0, 1.0, 2.0))
    np.testing.assert_array_equal(one, repeat)
    assert (one != other).all()


@pytest.mark.parametrize(("opset", "attrs"), [(6, {"is_test": 1}), (7, {}), (10, {}), (13, {})])
def test_dropout_keeps_everything_but_in_training(opset, attrs):
    x = normal(3, 4)
    actual, mask = run("Dropout", opset, [x], 2, **attrs)
    np.testing.assert_array_equal(actual, x)
    assert mask.dtype == (np.bool_ if opset >= 10 else np.float32)
    assert mask.all()


def test_dropout_in_training():
    x = np.ones((100, 100), np.float32)
    for opset, more, attrs in ((13, [np.float32(0.75), np.array(True)], {}), (6, [], {"ratio": 0.75})):
        with pytest.warns(TrainingWarning, match="^<model>: Dropout is in training mode .*; export the model for inference$"):
            actual, mask = run("Dropout", opset, [x, *more], 2, **attrs)
        np.testing.assert_array_equal(actual, np.where(mask, np.float32(4), np.float32(0)))
        assert mask.mean() == pytest.approx(0.25, abs=0.03)


# --- symbolic dimensions ----------------------------------------------------------------------------------------------

SYMBOLIC = [
    (
        18,
        "(float[n,4] x) => (float[4] y) { axes = Constant<value_ints=[0]>() y = ReduceMean<keepdims=0>(x, axes) }",
        [normal(3, 4)],
    ),
    (11, "(float[n,m] x) => (float y) { y = ReduceL2<keepdims=0>(x) }", [normal(3, 4)]),
    (13, "(float[n,m] x) => (float[n,m] y) { y = Hardmax(x) }", [normal(3, 4)]),
    (12, "(float[n,3,4] x) => (float[n,m,m] y) { y = Hardmax<axis=1>(x) }", [normal(2, 3, 4)]),
    (13, "(float[n,m] x, float[m] s) => (uint8[n,m] y) { y = QuantizeLinear<axis=1>(x, s) }", [normal(3, 4) * 9, positive(4)]),
    (14, "(float[n,m] x) => (float[n,m] y) { a = Constant<value_int=1>() y = CumSum(x, a) }", [np.round(normal(3, 4))]),
    (12, '(float[n,m] x, float[m,k] w) => (float[k,n] y) {y = Einsum<equation="nm,mk->kn">(x, w) }', [normal(3, 4), normal(4, 2)]),
    (
        13,
        "(float[n,c] x, int64[n] t) => (float y, float[n,c] p) { y, p = SoftmaxCrossEntropyLoss(x, t) }",
        [normal(3, 4), np.arange(3)],
    ),
    (17, "(float[n,m,1] x) => (float[n,k,2] y) { y = DFT<axis=1, onesided=1>(x) }", [normal(3, 8, 1)]),
    (17, "(float[n] x) => (float[n] y) { s = Shape(x) z = Squeeze(s) y = HannWindow(z) }", [normal(7)]),
    (13, "(float[n] a, float[m] b) => (float[k] y) { y = Add(a, b) }", [normal(5), normal(1)]),
]


@pytest.mark.parametrize(("opset", "graph", "inputs"), SYMBOLIC)
def test_symbolic_dimensions(opset, graph, inputs):
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": {opset}]> g {graph}')
    for value in model.graph.output:
        value.type.tensor_type.ClearField("shape")
    feeds = {item.name: array for item, array in zip(model.graph.input, inputs, strict=True)}
    actual = evaluate(load(model), feeds)
    for mine, other in zip(actual if isinstance(actual, tuple) else (actual,), answers(model, feeds).values(), strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-5, atol=1e-5)
