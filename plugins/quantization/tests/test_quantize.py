"""Whole models in int8: random ones, what stays float and why, reports, samples that do not fit."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import inlaid
from inlaid import ops
from inlaid.graph.interp import evaluate
from inlaid.graph.ir import Call, Expr, Module, constant, function, if_, post_order, tuple_
from inlaid.graph.operator import Operator
from inlaid.graph.verify import verify
from inlaid_quantization.report import Difference
from inlaid_quantization.samples import read_samples
from inlaid_quantization.settings import Quantization
from inlaid_runtime.errors import InputError

from .nets import Array, drawn, named, quantized, real

CALIBRATIONS = ("minmax", "percentile", "entropy", "mse")


def names(module: Module) -> list[str]:
    return [e.callee.name for e in post_order(module.main.body) if isinstance(e, Call) and isinstance(e.callee, Operator)]


def weights(generator: np.random.Generator, *shape: int) -> Expr:
    return constant((generator.normal(size=shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32))


def random_net(seed: int) -> Module:
    """Convolutions, branches, normalizations and pools at random, then a mean, a matrix product and a softmax."""
    generator = np.random.default_rng(seed)
    image = real("image", 1, 3, 9, 9)
    value: Expr = ops.conv(image, weights(generator, 4, 3, 3, 3), pads=(1, 1, 1, 1))
    for layer in range(5):
        type_ = value.type
        assert isinstance(type_, inlaid.TensorType)
        width = int(type_.shape[1])  # type: ignore[arg-type]
        kind = generator.integers(0, 6)
        conv = ops.conv(value, weights(generator, 4 + layer, width, 3, 3), pads=(1, 1, 1, 1), span=named(f"conv{layer}"))
        if kind == 0:
            value = ops.relu(conv)
        elif kind == 1:
            value = ops.concat(value, ops.mul(conv, ops.sigmoid(conv)), axis=1)
        elif kind == 2:
            depthwise = ops.conv(value, weights(generator, width, 1, 3, 3), pads=(1, 1, 1, 1), groups=width)
            value = ops.relu(ops.add(value, depthwise))
        elif kind == 3:
            statistics = [constant(np.abs(generator.normal(size=width)).astype(np.float32) + 0.5) for _ in range(4)]
            value = ops.batch_norm(ops.max_pool(value, kernel=(3, 3), pads=(1, 1, 1, 1)), *statistics, epsilon=1e-5)
        elif kind == 4:
            gate = ops.sigmoid(ops.avg_pool(value, kernel=(9, 9)))
            value = ops.mul(conv, ops.reduce_max(gate, axes=(1,), keepdims=True))
        else:
            value = ops.avg_pool(conv, kernel=(3, 3), pads=(1, 1, 1, 1))
    assert isinstance(value.type, inlaid.TensorType)
    width = int(value.type.shape[1])  # type: ignore[arg-type]
    features = ops.reshape(ops.avg_pool(value, kernel=(9, 9)), shape=(1, width))
    logits = ops.matmul(features, weights(generator, width, 5))
    return Module({"main": function([image], tuple_([logits, ops.softmax(logits, axis=1)]))})


@pytest.mark.parametrize("calibration", CALIBRATIONS)
@pytest.mark.parametrize("seed", range(6))
def test_random_models_lose_little(seed: int, calibration: str) -> None:
    main = random_net(seed).main
    quantized_module = quantized(main, drawn(main, seed), Quantization(calibration))
    verify(quantized_module)
    assert quantized_module.report.floats == ()
    assert not {"sigmoid", "relu", "batch_norm", "avg_pool", "layer_norm"} & set(names(quantized_module))
    for layer in quantized_module.report.layers:
        assert layer.difference.sqnr_db > 15, layer
    parts = quantized_module.report.outputs[1].difference
    assert parts is not None
    assert parts.max_error < 0.03


def test_x86_and_the_reference_agree_on_random_models() -> None:
    pytest.importorskip("inlaid_x86", reason='needs the x86 plugin: pip install "inlaid[x86]"')
    main = random_net(3).main
    quantized_module = quantized(main, drawn(main), Quantization(arithmetic="float"))
    executable = inlaid.compile(quantized_module, ["x86:threads=1"])
    for sample in drawn(main, seed=5):
        for actual, expected in zip(executable.run(sample).values(), evaluate(quantized_module, sample), strict=True):
            np.testing.assert_array_equal(actual, expected)


def two_layers(middle: Callable[[Expr], Expr]) -> Module:
    """A product, something, a product."""
    generator = np.random.default_rng(1)
    x = real("x", 4, 8)
    first = ops.matmul(x, weights(generator, 8, 8), span=named("first"))
    return Module({"main": function([x], ops.matmul(middle(first), weights(generator, 8, 8), span=named("second")))})


def normalized(x: Expr) -> Expr:
    ones = constant(np.ones(8, np.float32))
    return ops.layer_norm(x, ones, ones, axis=1, epsilon=1e-5, span=named("norm"))


def test_what_has_no_form_stays_float_between_borders() -> None:
    main = two_layers(normalized).main
    quantized_module = quantized(main, drawn(main))
    assert [(item.node, item.operator, item.why) for item in quantized_module.report.floats] == [
        ("norm", "layer_norm", "it has no integer implementation")
    ]
    order = names(quantized_module)
    assert order.index("dequantize") < order.index("layer_norm") < len(order) - 1 - order[::-1].index("quantize")


def test_what_lies_between_floats_stays_float() -> None:
    """A normalization written out: mean, difference, square, mean, root, quotient."""

    def written_out(x: Expr) -> Expr:
        def mean(operand: Expr) -> Expr:
            return ops.div(ops.reduce_sum(operand, axes=(1,), keepdims=True), constant(np.float32(8)))

        apart = ops.sub(x, mean(x))
        root = ops.sqrt(ops.add(mean(ops.mul(apart, apart)), constant(np.float32(1e-5))))
        return ops.add(ops.div(apart, root), constant(np.arange(8, dtype=np.float32)))

    main = two_layers(written_out).main
    quantized_module = quantized(main, drawn(main))
    assert {item.operator for item in quantized_module.report.floats} >= {"reduce_sum", "sub", "sqrt", "div", "add"}
    assert {item.why for item in quantized_module.report.floats} >= {
        "all of its consumers are float",
        "it has no integer implementation",
    }
    assert quantized_module.report.outputs[0].difference is not None
    assert quantized_module.report.outputs[0].difference.sqnr_db > 30


def test_a_chain_is_a_table() -> None:
    main = two_layers(lambda x: ops.mul(x, ops.sigmoid(ops.mul(x, constant(np.float32(1.7)))))).main
    quantized_module = quantized(main, drawn(main))
    assert names(quantized_module).count("take") == 1
    assert "sigmoid" not in names(quantized_module)


def test_operators_stay_float_when_asked() -> None:
    main = two_layers(ops.relu).main
    both = quantized(main, drawn(main), Quantization(keep_float=("first",)))
    assert ("first", "matmul", "keep_float names it") in [(i.node, i.operator, i.why) for i in both.report.floats]
    with pytest.raises(InputError, match="expected a float32 convolution or matrix product"):
        quantized(main, drawn(main), Quantization(keep_float=("matmul",)))
    with pytest.raises(InputError, match=r"keep_float names 'frist', which is neither a node .*; is it 'first'\?"):
        quantized(main, drawn(main), Quantization(keep_float=("frist",)))


def attention(mask: float) -> Module:
    """Scores with a mask on the last of five, a softmax, and a product."""
    generator = np.random.default_rng(4)
    x = real("x", 5, 8)
    query, key, value = (ops.matmul(x, weights(generator, 8, 8)) for _ in range(3))
    scores = ops.mul(ops.matmul(query, ops.transpose(key, perm=(1, 0))), constant(np.float32(0.35)))
    added = constant(np.array([0, 0, 0, 0, mask], np.float32))
    parts = ops.softmax(ops.add(scores, added), axis=1, span=named("parts"))
    return Module({"main": function([x], tuple_([ops.matmul(parts, value), parts]))})


@pytest.mark.parametrize("mask", [-100.0, -1e4, float(np.finfo(np.float32).min), -np.inf])
def test_masks_leave_the_scores_their_precision(mask: float) -> None:
    main = attention(mask).main
    quantized_module = quantized(main, drawn(main))
    assert quantized_module.report.floats == ()
    context = quantized_module.report.outputs[0].difference
    assert context is not None
    assert context.sqnr_db > 28
    assert not np.asarray(evaluate(quantized_module, drawn(main)[0])[1])[:, 4].any()


def test_loops_and_branches_stay_float() -> None:
    def choice(x: Expr) -> Expr:
        inner = ops.matmul(x, weights(np.random.default_rng(2), 8, 8), span=named("inner"))
        positive = ops.less(constant(np.float32(0)), ops.reduce_sum(x, axes=(0, 1), keepdims=False))
        return if_(positive, inner, ops.neg(x))

    main = two_layers(choice).main
    quantized_module = quantized(main, drawn(main))
    verify(quantized_module)
    assert ("inner", "matmul", "it is in a loop or branch") in [(i.node, i.operator, i.why) for i in quantized_module.report.floats]
    evaluate(quantized_module, drawn(main)[0])


def test_one_table_for_what_is_read_twice_and_shared_scales() -> None:
    """Outputs that are moved from one tensor have its scale; a tensor that is itself an output stays one."""
    generator = np.random.default_rng(1)
    x = real("x", 4, 8)
    product = ops.matmul(x, weights(generator, 8, 6))
    main = function([x], tuple_([product, ops.transpose(product, perm=(1, 0)), ops.relu(product), x]))
    quantized_module = quantized(main, drawn(main), Quantization(borders="int8"))
    first, second, third, passthrough = quantized_module.report.outputs
    assert (first.scale, first.zero_point) == (second.scale, second.zero_point) != (third.scale, third.zero_point)
    assert (passthrough.scale, passthrough.zero_point) == (
        quantized_module.report.inputs[0].scale,
        quantized_module.report.inputs[0].zero_point,
    )
    sample = [np.arange(32, dtype=np.int8).reshape(4, 8)]
    results = evaluate(quantized_module, sample)
    np.testing.assert_array_equal(results[0].T, results[1])
    np.testing.assert_array_equal(results[3], sample[0])


def test_large_biases_and_dead_channels_are_kept() -> None:
    x = real("x", 4, 2)
    narrow = constant(np.array([[1e-9, 0.0, 1.0], [2e-9, 0.0, -1.0]], np.float32))
    main = function([x], ops.add(ops.matmul(x, narrow), constant(np.array([100.0, -50.0, 0.0], np.float32))))
    for chosen in (Quantization(), Quantization(scales="power_of_two", weights="tensor")):
        quantized_module = quantized(main, drawn(main), chosen)
        actual, expected = (np.asarray(evaluate(each, drawn(main)[0])) for each in (quantized_module, main))
        assert np.abs(actual - expected).max() <= 1.5


def test_symbolic_sizes_stay_symbolic() -> None:
    batch = inlaid.SizeVar("batch", 1, 64)
    x = inlaid.var("x", inlaid.TensorType((batch, 3, 6, 6), "float32"))
    generator = np.random.default_rng(0)
    conv = ops.relu(ops.conv(x, weights(generator, 4, 3, 3, 3), pads=(1, 1, 1, 1)))
    main = function([x], ops.softmax(ops.reshape(ops.avg_pool(conv, kernel=(6, 6)), shape=(batch, 4)), axis=1))
    samples = [{"x": generator.normal(size=(count, 3, 6, 6)).astype(np.float32)} for count in (2, 3)]
    quantized_module = quantized(main, samples)
    assert quantized_module.report.floats == ()
    assert evaluate(quantized_module, samples[1]).shape == (3, 4)


# --- reports ----------------------------------------------------------------------------------------------------------


def test_the_report_as_text_and_as_json() -> None:
    main = two_layers(normalized).main
    report = quantized(main, drawn(main), Quantization("mse")).report
    data = json.loads(json.dumps(report.to_json()))
    assert data["samples"] == 4
    assert data["settings"]["calibration"] == "mse"
    assert [layer["node"] for layer in data["layers"]] == ["first", "norm", "second"]
    assert all(layer["sqnr_db"] > 20 for layer in data["layers"])
    # Nobody reads the first and the last product as integers.
    assert [layer["scale"] is None for layer in data["layers"]] == [True, False, True]
    assert [layer["in_floats"] for layer in data["layers"]] == [False, True, False]
    text = report.to_text()
    assert "3 layers in integers" in text
    assert "layer_norm in floats  norm" in text
    assert "1 operator in floats:" in text
    assert "layer_norm at norm: it has no integer implementation" in text
    assert "int8, mse ranges, any scales; measured on 4 samples" in text


def test_differences_are_measured_by_their_definition() -> None:
    main = two_layers(ops.relu).main
    samples = drawn(main)
    quantized_module = quantized(main, samples)
    difference = quantized_module.report.outputs[0].difference
    assert difference is not None
    real_, stored = (
        np.concatenate([np.asarray(evaluate(each, sample)) for sample in samples]) for each in (main, quantized_module)
    )
    noise, signal = np.square(real_ - stored, dtype=np.float64).sum(), np.square(real_, dtype=np.float64).sum()
    assert difference.sqnr_db == pytest.approx(10 * np.log10(signal / noise), rel=1e-6)
    assert difference.max_error == pytest.approx(np.abs(real_ - stored).max())


def test_differences_where_there_is_no_number() -> None:
    real_ = np.array([1.0, np.nan, np.inf, -np.inf, 2.0])
    difference = Difference().with_values(real_, np.array([1.5, np.nan, np.inf, -np.inf, 2.0]))
    assert (difference.signal, difference.noise, difference.max_error) == (5.0, 0.25, 0.5)
    for other in (0.0, np.nan):
        apart = Difference().with_values(real_, np.array([1.5, np.nan, other, -np.inf, 2.0]))
        assert apart.to_json() == {"sqnr_db": None, "max_error": None}
        assert apart.sqnr_db == -np.inf


# --- the interface ----------------------------------------------------------------------------------------------------


def sample(*shape: int, value: float = 0.5) -> dict[str, Array]:
    return {"x": np.full(shape, value, np.float32)}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([], "at least one calibration sample"),
        (sample(4, 8), "expected an iterable of samples"),
        (7, "expected an iterable of samples"),
        ([np.zeros((4, 8))], "sample 0 must be a dict keyed by input name, got ndarray"),
        ([sample(4, 8, value=np.nan)], "input x of sample 0 has values that are not finite"),
        ([{"y": np.zeros((4, 8), np.float32)}], "has no input 'y'"),
        ([sample(4, 8), sample(4, 7)], "sample 1: input 'x' has shape"),
        ([{"x": np.zeros((4, 8))}], "float64"),
    ],
)
def test_samples_that_do_not_fit_are_refused(data: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        inlaid.quantize(two_layers(ops.relu), data, targets=["reference"])


def test_values_that_are_not_finite_are_told_with_their_layer() -> None:
    with pytest.raises(InputError, match="sample 1 gives NaN or infinity at relu"):
        inlaid.quantize(two_layers(ops.relu), [sample(4, 8), sample(4, 8, value=3e38)], targets=["reference"])


def test_a_module_and_settings_from_the_interface(tmp_path: Path) -> None:
    module = two_layers(ops.relu)
    quantized_module = inlaid.quantize(module, drawn(module.main), inlaid.Quantization("percentile"), targets=["reference"])
    executable = inlaid.compile(quantized_module, ["reference"])
    assert executable.run(drawn(module.main)[0])["output0"].shape == (4, 8)
    stacked = tmp_path / "samples.npz"
    np.savez(stacked, x=np.stack([each["x"] for each in drawn(module.main)]))
    again = inlaid.quantize(module, stacked, inlaid.Quantization("percentile"), targets=["reference"], evaluation_data=stacked)
    assert again.report == quantized_module.report


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"y": np.zeros((4, 8))}, "has arrays for y"),
        ({"x": np.zeros(8)}, "must have 3 dimensions, got 1"),
        ({"x": np.zeros((0, 4, 8))}, "at least one calibration sample"),
    ],
)
def test_files_that_do_not_fit_are_refused(tmp_path: Path, arrays: dict[str, Array], message: str) -> None:
    path = tmp_path / "samples.npz"
    np.savez(path, **arrays)
    with pytest.raises(InputError, match=message):
        read_samples(path, two_layers(ops.relu).main.params)


def test_files_that_are_none_are_refused(tmp_path: Path) -> None:
    path, params = tmp_path / "samples.npz", two_layers(ops.relu).main.params
    with pytest.raises(InputError, match="cannot read"):
        read_samples(path, params)
    path.write_bytes(b"no archive")
    np.save(tmp_path / "samples.npy", np.zeros((4, 8)))
    np.savez(tmp_path / "objects.npz", x=np.array([{}], object))
    for each in (path, tmp_path / "samples.npy", tmp_path / "objects.npz"):
        with pytest.raises(InputError, match=r"is not an \.npz file"):
            read_samples(each, params)


def test_samples_lie_along_the_first_dimension(tmp_path: Path) -> None:
    path = tmp_path / "samples.npz"
    np.savez(path, x=np.arange(24).reshape(3, 8))
    assert [each["x"].shape for each in read_samples(path, [real("x", 1, 8)])] == [(1, 8)] * 3


@pytest.mark.parametrize(
    "wrong",
    [{"calibration": "max"}, {"scales": "two"}, {"percentile": 30.0}, {"borders": "int4"}, {"keep_float": "conv"}, {"weights": ""}],
)
def test_settings_that_there_are_not_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        Quantization(**wrong)


def test_settings_of_another_type_are_refused() -> None:
    with pytest.raises(InputError, match=r"expected settings of type inlaid.Quantization, got 'mse'"):
        inlaid.quantize(two_layers(ops.relu), [sample(4, 8)], "mse", targets=["reference"])  # type: ignore[arg-type]
