"""Converters of convolutions, pooling, normalization, resampling, recurrent layers and attention: what ONNX's own node cases leave
out, old opsets and rare attributes above all. The oracle is ONNX Runtime where it has the operator, else numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import numpy_helper

import inlaid
from inlaid.graph.ir import Call, post_order
from inlaid_onnx import load
from inlaid_runtime.errors import ModelImportError

from .one_node import Array, check_with_onnxruntime, make_model, run


def normal(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def positive(*shape: int) -> Array:
    return np.random.default_rng(0).uniform(0.1, 1, shape).astype(np.float32)


# --- convolution ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("opset", [1, 11, 22])
@pytest.mark.parametrize("auto_pad", ["NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"])
def test_conv(opset: int, auto_pad: str) -> None:
    inputs = [normal(2, 4, 7, 6), normal(6, 2, 3, 2), normal(6)]
    check_with_onnxruntime("Conv", opset, inputs, auto_pad=auto_pad, strides=[2, 1], group=2)


def test_conv_of_other_ranks() -> None:
    check_with_onnxruntime("Conv", 11, [normal(1, 2, 9), normal(3, 2, 3)], dilations=[2], pads=[1, 2])
    check_with_onnxruntime(
        "Conv", 11, [normal(1, 2, 4, 5, 4), normal(3, 2, 2, 2, 2)], kernel_shape=[2, 2, 2], pads=[0, 1, 0, 1, 0, 1]
    )


@pytest.mark.parametrize(
    "attrs",
    [
        {"auto_pad": "SAME_UPPER", "strides": [2, 2]},
        {"auto_pad": "SAME_LOWER", "strides": [2, 3]},
        {"auto_pad": "VALID", "strides": [2, 2]},
        {"output_shape": [9, 9], "strides": [2, 2]},
        {"output_shape": [9, 10], "strides": [2, 2], "auto_pad": "SAME_UPPER"},
        {"output_shape": [10, 7], "strides": [2, 2]},
        {"output_padding": [1, 0], "strides": [2, 2], "pads": [1, 1, 0, 1]},
        {"group": 2, "dilations": [2, 1]},
    ],
)
def test_conv_transpose(attrs: dict[str, Any]) -> None:
    check_with_onnxruntime(
        "ConvTranspose", 11, [normal(1, 4, 4, 4), normal(4, 3, 3, 3), normal(3 * attrs.get("group", 1))], **attrs
    )


def test_conv_refuses() -> None:
    with pytest.raises(ModelImportError, match="auto_pad"):
        run("Conv", 11, [normal(1, 1, 3), normal(1, 1, 2)], auto_pad="SAME")
    with pytest.raises(ModelImportError, match="kernel_shape"):
        run("Conv", 11, [normal(1, 1, 3), normal(1, 1, 2)], kernel_shape=[3])
    with pytest.raises(ModelImportError, match="strides"):
        run("Conv", 11, [normal(1, 1, 3), normal(1, 1, 2)], strides=[1, 1])
    with pytest.raises(ModelImportError, match="rank"):
        run("Conv", 11, [normal(1, 3), normal(1, 3)])


# --- pooling ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("op", ["MaxPool", "AveragePool", "LpPool"])
@pytest.mark.parametrize(
    "attrs",
    [
        {"pads": [1, 0, 1, 1], "strides": [2, 1]},
        {"auto_pad": "SAME_UPPER", "strides": [2, 2]},
        {"auto_pad": "SAME_LOWER", "strides": [1, 2]},
        {"auto_pad": "VALID"},
    ],
)
def test_pools_of_old_opsets(op: str, attrs: dict[str, Any]) -> None:
    check_with_onnxruntime(op, 7 if op != "LpPool" else 2, [positive(1, 2, 6, 7)], kernel_shape=[3, 2], **attrs)


@pytest.mark.parametrize("include", [0, 1])
@pytest.mark.parametrize("pads", [[0, 0, 0, 0], [1, 1, 1, 1], [0, 1, 1, 0]])
def test_ceil_mode(include: int, pads: list[int]) -> None:
    x = normal(1, 1, 6, 8)
    attrs = {"kernel_shape": [3, 3], "strides": [2, 3], "pads": pads, "ceil_mode": 1}
    check_with_onnxruntime("AveragePool", 19, [x], count_include_pad=include, **attrs)
    check_with_onnxruntime("MaxPool", 12, [x], outputs=2, **attrs)


def test_max_pool_counts_places_by_columns() -> None:
    check_with_onnxruntime("MaxPool", 12, [normal(1, 2, 5, 6)], outputs=2, kernel_shape=[2, 2], storage_order=1, dilations=[2, 2])


@pytest.mark.parametrize("op", ["GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool"])
def test_global_pools(op: str) -> None:
    check_with_onnxruntime(op, 2 if op == "GlobalLpPool" else 1, [normal(2, 3, 4, 5)])


def test_max_unpool() -> None:
    values, places = run("MaxPool", 12, [normal(1, 2, 4, 4)], outputs=2, kernel_shape=[2, 2], strides=[2, 2])
    check_with_onnxruntime("MaxUnpool", 11, [values, places], kernel_shape=[2, 2], strides=[2, 2])


@pytest.mark.parametrize("scale", [1.0, 0.5])
def test_max_roi_pool(scale: float) -> None:
    rois = np.array([[0, 1, 1, 4, 4], [1, 0, 2, 9, 3], [0, 5, 5, 5, 5], [1, 6, 6, 2, 1]], np.float32)
    check_with_onnxruntime("MaxRoiPool", 1, [normal(2, 3, 6, 7), rois], pooled_shape=[2, 3], spatial_scale=scale)


# --- linear algebra ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("opset", [7, 13])
def test_gemm(opset: int) -> None:
    check_with_onnxruntime("Gemm", opset, [normal(4, 3), normal(5, 4), normal(5)], alpha=0.5, beta=2.0, transA=1, transB=1)


def test_gemm_of_integers() -> None:
    a, b = np.arange(6, dtype=np.int32).reshape(2, 3), np.arange(12, dtype=np.int32).reshape(3, 4)
    np.testing.assert_array_equal(run("Gemm", 13, [a, b], alpha=2.0)[0], 2 * a @ b)
    with pytest.raises(ModelImportError, match="the factor of int32 must be an integer, got 0"):
        run("Gemm", 13, [a, b], alpha=0.5)


# --- normalization ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax"])
@pytest.mark.parametrize("axis", [0, 1, 2, -1])
@pytest.mark.parametrize("opset", [11, 13])
def test_softmax(op: str, axis: int, opset: int) -> None:
    check_with_onnxruntime(op, opset, [normal(2, 3, 4)], axis=axis)


@pytest.mark.parametrize("opset", [7, 9, 14, 15])
def test_batch_norm(opset: int) -> None:
    check_with_onnxruntime(
        "BatchNormalization", opset, [normal(2, 3, 4), normal(3), normal(3), normal(3), positive(3)], epsilon=1e-3
    )


def test_batch_norm_of_each_element() -> None:
    x, scale, bias, mean, variance = normal(2, 3, 4), normal(3, 4), normal(3, 4), normal(3, 4), positive(3, 4)
    result = run("BatchNormalization", 7, [x, scale, bias, mean, variance], spatial=0)[0]
    np.testing.assert_allclose(result, (x - mean) / np.sqrt(variance + 1e-5) * scale + bias, rtol=1e-4, atol=1e-5)


def test_batch_norm_in_training_before_opset_14() -> None:
    x, scale, bias, mean, variance = normal(4, 3, 5), normal(3), normal(3), normal(3), positive(3)
    results = run("BatchNormalization", 9, [x, scale, bias, mean, variance], outputs=5, momentum=0.8)
    batch_mean, batch_variance = x.mean(axis=(0, 2)), x.var(axis=(0, 2))
    expected = [
        (x - batch_mean[:, None]) / np.sqrt(batch_variance[:, None] + 1e-5) * scale[:, None] + bias[:, None],
        0.8 * mean + 0.2 * batch_mean,
        0.8 * variance + 0.2 * batch_variance,
        batch_mean,
        batch_variance,
    ]
    for mine, other in zip(results, expected, strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("size", [1, 3, 5])
def test_lrn(size: int) -> None:
    check_with_onnxruntime("LRN", 13, [normal(2, 6, 3, 3)], size=size, alpha=0.2, beta=0.6, bias=1.3)


@pytest.mark.parametrize("p", [1, 2])
def test_lp_normalization(p: int) -> None:
    check_with_onnxruntime("LpNormalization", 1, [normal(3, 4)], p=p, axis=0)


@pytest.mark.parametrize("shape", [(2, 3, 4, 5), (2, 3, 7), (1, 3, 2, 3, 4)])
def test_instance_norm(shape: tuple[int, ...]) -> None:
    check_with_onnxruntime("InstanceNormalization", 6, [normal(*shape), normal(3), normal(3)], epsilon=1e-3)


def test_an_instance_norm_without_spatial_axes_is_refused() -> None:
    with pytest.raises(ModelImportError, match="expected data of N x C x D1"):
        run("InstanceNormalization", 6, [normal(2, 3), normal(3), normal(3)])


@pytest.mark.parametrize(("opset", "parameters"), [(18, 2), (21, 6)])
@pytest.mark.parametrize("spatial", [(), (4, 5)])
def test_group_norm(opset: int, parameters: int, spatial: tuple[int, ...]) -> None:
    x, scale, bias = normal(2, 6, *spatial), normal(parameters), normal(parameters)
    (actual,) = run("GroupNormalization", opset, [x, scale, bias], num_groups=2, epsilon=1e-3)
    grouped = x.reshape(2, 2, -1).astype(np.float64)
    centered = grouped - grouped.mean(2, keepdims=True)
    normalized = (centered / np.sqrt((centered**2).mean(2, keepdims=True) + 1e-3)).reshape(x.shape)
    factor, term = (np.repeat(item, 6 // parameters).reshape(6, *(1,) * len(spatial)) for item in (scale, bias))
    np.testing.assert_allclose(actual, normalized * factor + term, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("op", "opset"), [("InstanceNormalization", 6), ("GroupNormalization", 21)])
def test_instance_and_group_norm_are_layer_norms(op: str, opset: int) -> None:
    attrs = {"num_groups": 2} if op.startswith("Group") else {}
    module = load(make_model(op, opset, [normal(2, 6, 4, 5), normal(6), normal(6)], **attrs))
    called = [expr.callee.name for expr in post_order(module.main.body) if isinstance(expr, Call)]
    assert called.count("layer_norm") == 1
    assert "reduce_sum" not in called


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_layer_norm_with_statistics(axis: int) -> None:
    shape = (2, 3, 4)[axis:]
    check_with_onnxruntime("LayerNormalization", 17, [normal(2, 3, 4), normal(*shape), normal(*shape)], outputs=3, axis=axis)


# --- resampling -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("opset", "mode"), [(7, "nearest"), (7, "linear"), (9, "nearest"), (9, "linear")])
def test_upsample(opset: int, mode: str) -> None:
    x, scales = normal(1, 2, 3, 4), np.array([1, 1, 2, 3], np.float32)
    if opset >= 9:
        check_with_onnxruntime("Upsample", opset, [x, scales], mode=mode)
    else:
        check_with_onnxruntime("Upsample", opset, [x], mode=mode, scales=scales.tolist())


@pytest.mark.parametrize("mode", ["nearest", "linear"])
@pytest.mark.parametrize("scales", [[1, 1, 2, 1.5], [1, 1, 0.5, 0.7]])
def test_resize_of_opset_10(mode: str, scales: list[float]) -> None:
    check_with_onnxruntime("Resize", 10, [normal(1, 2, 4, 6), np.array(scales, np.float32)], mode=mode)


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("coordinates", ["half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel"])
@pytest.mark.parametrize("sizes", [[1, 1, 7, 3], [1, 1, 1, 9]])
def test_resize(mode: str, coordinates: str, sizes: list[int]) -> None:
    inputs = [normal(1, 1, 4, 5), None, None, np.array(sizes)]
    check_with_onnxruntime("Resize", 13, inputs, mode=mode, coordinate_transformation_mode=coordinates)


@pytest.mark.parametrize("scale", [0.7, 0.9, 2.3, 1 / 3, 1.3, 2.34, 1.9299516677856445])
def test_sizes_of_float32_products(scale: float) -> None:
    """The product is rounded to float32 before it is rounded down. The last three scales have no fraction with equal products."""
    body = 'g (float[1, n] x, float[2] s) => (float[1, m] y) { y = Resize<mode = "linear"> (x, , s) }'
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 13]> {body}')
    model.graph.initializer.append(numpy_helper.from_array(np.array([1, scale], np.float32), "s"))
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    symbolic = inlaid.compile(model, targets=["reference"])
    for size in (1, 3, 10, 30, 60, 414, 1000, 4096, 50000):
        feeds = {"x": np.arange(size, dtype=np.float32)[None]}
        (expected,) = session.run(None, feeds)
        for compiled in (symbolic, inlaid.compile(model, targets=["reference"], dims={"n": size})):
            (result,) = compiled.run(feeds).values()
            assert isinstance(result, np.ndarray) and result.shape == expected.shape


def test_resize_refuses() -> None:
    x = normal(1, 1, 4, 4)
    with pytest.raises(ModelImportError, match="either scales or sizes"):
        run("Resize", 13, [x, None, None, np.array([2, 2])])
    with pytest.raises(ModelImportError, match="roi must have a start and an end for each of 4 axes"):
        run("Resize", 13, [x, None, None, np.array(x.shape)], coordinate_transformation_mode="tf_crop_and_resize")
    with pytest.raises(ModelImportError, match="positive"):
        run("Resize", 13, [x, None, np.array([1, 1, 0, 1], np.float32)])


@pytest.mark.parametrize("opset", [10, 16])
@pytest.mark.parametrize("mode", ["avg", "max"])
def test_roi_align(opset: int, mode: str) -> None:
    rois = np.array([[0, 0, 5, 5], [1, 2, 6.5, 4]], np.float32)
    inputs = [positive(2, 2, 6, 8), rois, np.array([0, 1])]
    attrs = {"mode": mode, "output_height": 2, "output_width": 3, "sampling_ratio": 2, "spatial_scale": 0.8}
    check_with_onnxruntime("RoiAlign", opset, inputs, **attrs)


@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize(("opset", "mode"), [(16, "bilinear"), (16, "nearest"), (20, "linear")])
def test_grid_sample(opset: int, mode: str, padding: str) -> None:
    grid = np.random.default_rng(1).uniform(-1.4, 1.4, (1, 3, 2, 2)).astype(np.float32)
    check_with_onnxruntime("GridSample", opset, [normal(1, 2, 4, 5), grid], mode=mode, padding_mode=padding)


@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize(("opset", "mode"), [(16, "bicubic"), (20, "cubic")])
@pytest.mark.parametrize("align", [0, 1])
def test_cubic_grid_sample(opset: int, mode: str, padding: str, align: int) -> None:
    grid = np.random.default_rng(1).uniform(-3, 3, (1, 5, 6, 2)).astype(np.float32)
    check_with_onnxruntime("GridSample", opset, [normal(1, 2, 4, 5), grid], mode=mode, padding_mode=padding, align_corners=align)


def test_affine_grid_of_one_point() -> None:
    """Its coordinate is -1 with aligned corners, and 0 without."""
    theta = normal(1, 2, 3)
    for aligned, x in ((1, -1.0), (0, 0.0)):
        (actual,) = run("AffineGrid", 20, [theta, np.array([1, 1, 3, 1], np.int64)], align_corners=aligned)
        for row, y in enumerate((-1.0, 0.0, 1.0) if aligned else (-2 / 3, 0.0, 2 / 3)):
            np.testing.assert_allclose(actual[0, row, 0], theta[0] @ [x, y, 1.0], rtol=1e-5, atol=1e-6)


# --- recurrent layers -------------------------------------------------------------------------------------------------


def recurrent(gates: int, directions: int, states: int, peephole: bool = False) -> list[Any]:
    """X, W, R, B, sequence_lens, initial states and peephole weights for 4 steps, a batch of 3, 2 inputs and 5 hidden units."""
    inputs: list[Any] = [
        normal(4, 3, 2),
        normal(directions, gates * 5, 2, seed=1),
        normal(directions, gates * 5, 5, seed=2),
        normal(directions, 2 * gates * 5, seed=3),
        np.array([4, 1, 3], np.int32),
        *(normal(directions, 3, 5, seed=4 + index) for index in range(states)),
    ]
    return [*inputs, normal(directions, 15, seed=9)] if peephole else inputs


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("opset", [7, 14])
def test_lstm(direction: str, opset: int) -> None:
    inputs = recurrent(4, 2 if direction == "bidirectional" else 1, 2, peephole=True)
    check_with_onnxruntime("LSTM", opset, inputs, outputs=3, direction=direction, hidden_size=5)
    check_with_onnxruntime("LSTM", opset, inputs[:3], outputs=3, direction=direction, hidden_size=5)


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("linear_before_reset", [0, 1])
def test_gru(direction: str, linear_before_reset: int) -> None:
    inputs = recurrent(3, 2 if direction == "bidirectional" else 1, 1)
    check_with_onnxruntime(
        "GRU", 14, inputs, outputs=2, direction=direction, hidden_size=5, linear_before_reset=linear_before_reset, clip=0.8
    )


@pytest.mark.parametrize("direction", ["forward", "bidirectional"])
def test_rnn(direction: str) -> None:
    inputs = recurrent(1, 2 if direction == "bidirectional" else 1, 1)
    check_with_onnxruntime("RNN", 14, inputs, outputs=2, direction=direction, hidden_size=5)


def test_activations_with_parameters() -> None:
    inputs = recurrent(4, 1, 2)
    activations = ["HardSigmoid", "LeakyRelu", "ScaledTanh"]
    attrs = {"activation_alpha": [0.3, 0.1, 0.9], "activation_beta": [0.4, 0.0, 1.2]}
    check_with_onnxruntime("LSTM", 14, inputs, outputs=3, hidden_size=5, activations=activations, **attrs)
    with pytest.raises(ModelImportError, match="activation"):
        run("LSTM", 14, inputs, outputs=3, hidden_size=5, activations=["Sin", "Tanh", "Tanh"])


@pytest.mark.parametrize(("op", "gates"), [("GRU", 3), ("RNN", 1)])
@pytest.mark.parametrize("direction", ["forward", "bidirectional"])
def test_recurrent_layers_clip(op: str, gates: int, direction: str) -> None:
    sides = 2 if direction == "bidirectional" else 1
    inputs = [normal(6, 2, 3) * 2, normal(sides, gates * 5, 3) * 2, normal(sides, gates * 5, 5) * 2]
    check_with_onnxruntime(op, 14, inputs, outputs=2, hidden_size=5, clip=0.6, direction=direction)


def test_an_lstm_clips_the_argument_of_every_activation() -> None:
    """The cell's too, as ONNX's text says; ONNX Runtime does not clip the cell."""
    x, w, r = normal(6, 2, 3) * 2, normal(1, 20, 3) * 2, normal(1, 20, 5) * 2
    _, h, c = run("LSTM", 14, [x, w, r], 3, hidden_size=5, clip=0.6)

    def sigmoid(value: Any) -> Any:
        return 1 / (1 + np.exp(-np.clip(value, -0.6, 0.6)))

    output, cell = np.zeros((2, 2, 5))
    for step in x:
        i, o, f, g = np.split(step @ w[0].T + output @ r[0].T, 4, axis=1)
        cell = sigmoid(f) * cell + sigmoid(i) * np.tanh(np.clip(g, -0.6, 0.6))
        output = sigmoid(o) * np.tanh(np.clip(cell, -0.6, 0.6))
    np.testing.assert_allclose(h[0], output, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(c[0], cell, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("op", ["LSTM", "GRU", "RNN"])
def test_batch_first(op: str) -> None:
    gates, states = {"LSTM": (4, 2), "GRU": (3, 1), "RNN": (1, 1)}[op]
    inputs = recurrent(gates, 2, states)
    plain = run(op, 14, inputs, outputs=1 + states, direction="bidirectional", hidden_size=5)
    turned = [np.swapaxes(item, 0, 1) if index in (0, 5, 6) else item for index, item in enumerate(inputs)]
    first = run(op, 14, turned, outputs=1 + states, direction="bidirectional", hidden_size=5, layout=1)
    np.testing.assert_array_equal(first[0], plain[0].transpose(2, 0, 1, 3))
    for mine, other in zip(first[1:], plain[1:], strict=True):
        np.testing.assert_array_equal(mine, other.transpose(1, 0, 2))


# --- attention --------------------------------------------------------------------------------------------------------


def test_attention_refuses() -> None:
    q = normal(1, 2, 6)
    with pytest.raises(ModelImportError, match="q_num_heads"):
        run("Attention", 23, [q, q, q])
    with pytest.raises(ModelImportError, match="expected both past_key and past_value or neither, got one"):
        run("Attention", 23, [q, q, q, None, normal(1, 2, 3, 3)], q_num_heads=2, kv_num_heads=2)
    with pytest.raises(ModelImportError, match="the hidden size, which is divided by heads, must be a multiple of 4, got 6"):
        run("Attention", 23, [q, q, q], q_num_heads=4, kv_num_heads=4)
    with pytest.raises(ModelImportError, match="update_rule"):
        run("LinearAttention", 27, [q, q, q], outputs=2, q_num_heads=2, kv_num_heads=2, update_rule="delta")
