"""Every form in integers beside the float operator on the same stored values: the nearest stored result, give or take one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import inlaid
from inlaid import ops
from inlaid.graph.interp import evaluate
from inlaid.graph.ir import Expr, Function, Module, constant, function, post_order, tuple_
from inlaid.graph.verify import verify
from inlaid.ops.requantization import factor
from inlaid.plugins import Requantization
from inlaid_quantization.ranges import Scale
from inlaid_quantization.settings import Quantization, fitted

from .nets import a_function, drawn, exact_weights, quantized, real, through_product

GENERATOR = np.random.default_rng(7)
IMAGE = (2, 4, 7, 5)


def channels(*values: float) -> Expr:
    return constant(np.array(values, np.float32).reshape(-1, 1, 1))


def silu(x: Expr) -> Expr:
    return ops.mul(x, ops.sigmoid(x))


def hard_swish(x: Expr) -> Expr:
    shifted = ops.clip(ops.add(x, constant(np.float32(3))), minimum=0.0, maximum=6.0)
    return ops.mul(x, ops.div(shifted, constant(np.float32(6))))


FORMS: dict[str, tuple[Callable[..., Expr], list[tuple[int, ...]]]] = {
    "conv": (
        lambda x: ops.relu(
            ops.add(ops.conv(x, exact_weights(GENERATOR, 3, 4, 3, 3), pads=(1, 1, 1, 1)), channels(0.3, -2.0, 5.0)),
        ),
        [IMAGE],
    ),
    "grouped, strided": (
        lambda x: ops.conv(x, exact_weights(GENERATOR, 6, 2, 3, 2), strides=(2, 1), pads=(0, 1, 1, 0), groups=2),
        [IMAGE],
    ),
    "depthwise": (
        lambda x: ops.clip(
            ops.conv(x, exact_weights(GENERATOR, 4, 1, 3, 3), pads=(1, 1, 1, 1), groups=4), minimum=-0.1, maximum=0.2
        ),
        [IMAGE],
    ),
    "transposed": (
        lambda x: ops.conv_transpose(x, exact_weights(GENERATOR, 4, 3, 3, 3, axis=1), strides=(2, 2), pads=(1, 0, 0, 1)),
        [IMAGE],
    ),
    "matmul": (lambda x: ops.sub(ops.matmul(x, exact_weights(GENERATOR, 5, 9, axis=1)), constant(np.float32(0.5))), [IMAGE]),
    "both computed": (lambda a, b: ops.matmul(a, ops.transpose(b, perm=(0, 2, 1))), [(2, 3, 8), (2, 4, 8)]),
    "scaled scores": (
        lambda a, b: ops.mul(ops.matmul(a, ops.transpose(b, perm=(0, 2, 1))), constant(np.float32(0.35))),
        [(2, 3, 8), (2, 4, 8)],
    ),
    "sum": (lambda a, b: ops.relu(ops.add(a, ops.mul(b, constant(np.float32(7.3))))), [IMAGE, IMAGE]),
    "sum with itself": (lambda a: ops.add(a, ops.transpose(ops.transpose(a, perm=(0, 2, 1)), perm=(1, 0, 2))), [(3, 3, 3)]),
    "difference": (lambda a, b: ops.sub(b, a), [IMAGE, (5,)]),
    "product": (lambda a, b: ops.mul(a, ops.sigmoid(b)), [IMAGE, (2, 4, 1, 1)]),
    "constant sum": (lambda x: ops.add(x, constant(GENERATOR.normal(size=(7, 5)).astype(np.float32))), [IMAGE]),
    "affine": (lambda x: ops.add(ops.mul(x, channels(0.01, 3.0, -2.0, 0.0)), channels(1.0, -7.0, 0.2, 0.1)), [IMAGE]),
    "shifted": (lambda x: ops.sub(ops.concat(x, x, axis=1), channels(*range(8))), [IMAGE]),
    "mean": (
        lambda x: ops.div(ops.reduce_sum(x, axes=(1, 3), keepdims=False), constant(np.float32(20))),
        [IMAGE],
    ),
    "image mean": (lambda x: ops.avg_pool(x, kernel=(7, 5)), [IMAGE]),
    "average": (lambda x: ops.avg_pool(x, kernel=(3, 2), strides=(2, 1)), [IMAGE]),
    "padded average": (lambda x: ops.avg_pool(x, kernel=(3, 3), pads=(1, 1, 1, 1), count_include_pad=True), [IMAGE]),
    "average inside": (lambda x: ops.avg_pool(x, kernel=(3, 3), pads=(1, 1, 1, 1)), [IMAGE]),
    "softmax": (lambda x: ops.softmax(x, axis=2), [(2, 3, 40)]),
    "softmax along": (lambda x: ops.softmax(x, axis=1), [(2, 9, 3)]),
    "largest": (lambda x: ops.max_pool(x, kernel=(2, 2), strides=(2, 2), pads=(1, 1, 0, 0)), [IMAGE]),
    "greatest": (lambda a, b: ops.reduce_max(ops.maximum(a, b), axes=(2,), keepdims=True), [IMAGE, IMAGE]),
    "moved": (
        lambda x: ops.reshape(
            ops.strided_slice(ops.transpose(x, perm=(0, 2, 3, 1)), begin=(0, 1, 0, 0), end=(2, 6, 5, 4), strides=(1, 2, 1, 1)),
            shape=(6, 20),
        ),
        [IMAGE],
    ),
    "joined": (lambda a, b: ops.concat(a, ops.relu(b), axis=1), [IMAGE, (2, 3, 7, 5)]),
    "padded": (lambda x: ops.pad(x, constant(np.float32(1.5)), pads=(0, 0, 1, 2, 0, 0, 3, 0)), [IMAGE]),
    "reflected": (lambda x: ops.pad(x, pads=(0, 0, 1, 2, 0, 0, 3, 0), mode="reflect"), [IMAGE]),
    "taken": (lambda x: ops.take(x, constant(np.array([3, 0, 0])), axis=1), [IMAGE]),
    "chosen": (lambda a, b: ops.where(constant(np.arange(5) % 2 == 0), a, b), [IMAGE, IMAGE]),
    "nearest": (lambda x: ops.resize(x, shape=(2, 4, 14, 10), mode="nearest"), [IMAGE]),
    "silu": (silu, [IMAGE]),
    "hard swish": (hard_swish, [IMAGE]),
    "gelu": (lambda x: ops.gelu(x), [IMAGE]),
}
ROUGH = {"sum": 1, "scaled scores": 1, "product": 1, "joined": 1}
"""Steps that forms of two layers may be off by besides: an inner result is rounded too."""


def border_scale(border: object) -> Scale:
    return Scale(border.scale, border.zero_point)  # type: ignore[attr-defined]


def requantizes(*roundings: str, **more: Any) -> Quantization:
    return fitted(Quantization(borders="int8"), Requantization(roundings, **more))


CHOSEN = {
    "usual": Quantization(borders="int8"),
    "powers of two": Quantization(borders="int8", scales="power_of_two"),
    "float": Quantization(borders="int8", arithmetic="float"),
    "half even": requantizes("half_even"),
    "up": requantizes("up"),
    "away": requantizes("half_even", "away", multiplier_bits=16),
    "once": requantizes("once", multiplier_bits=15),
    "shifts": requantizes("once", multiplier_bits=1, per_channel=False),
    "shifts, rounded twice": requantizes("away", multiplier_bits=1),
}
UNSHIFTABLE_FORMS = ("scaled scores", "mean", "image mean", "average", "padded average")
"""Forms whose factors are no powers of two, whatever the scales: no hardware that shifts alone computes them."""


def unlike(main: Function, having: Requantization) -> list[str]:
    """The calls that scale sums in a way that some hardware has not."""
    mismatches = []
    for expr in post_order(main.body):
        scale_factor = factor(expr)
        if scale_factor is None or not having.roundings:
            continue
        bits = [int(value).bit_length() - (int(value) & -int(value)).bit_length() + 1 for value in scale_factor.multipliers]
        fits = scale_factor.rounding in having.roundings and (
            scale_factor.rounding == "half_even" or max(bits) <= having.multiplier_bits
        )
        if not fits or (scale_factor.per_channel and not having.per_channel):
            mismatches.append(f"{expr!r}: {scale_factor}")
    return mismatches


@pytest.mark.parametrize("chosen", CHOSEN)
@pytest.mark.parametrize("name", FORMS)
def test_a_form_gives_the_nearest_stored_value(name: str, chosen: str) -> None:
    build, shapes = FORMS[name]
    main = a_function(build, *shapes)
    quantized_module = quantized(main, drawn(main), CHOSEN[chosen])
    verify(quantized_module)
    having = CHOSEN[chosen].requantization
    assert (unlike(quantized_module.main, having) == []) == (having.multiplier_bits > 1 or name not in UNSHIFTABLE_FORMS)
    assert quantized_module.report.floats == ()
    inputs, (output,) = (
        [border_scale(item) for item in quantized_module.report.inputs],
        map(border_scale, quantized_module.report.outputs),
    )
    for sample in drawn(main, seed=1):
        stored = [scale.stored_array(value) for scale, value in zip(inputs, sample.values(), strict=True)]
        ideal = evaluate(main, [scale.real_array(value) for scale, value in zip(inputs, stored, strict=True)])
        expected = np.clip(ideal.astype(np.float64) / output.scale + output.zero_point, -128, 127)
        actual = evaluate(quantized_module, stored)
        assert actual.dtype == np.int8
        # What is halved and rounded, then shifted and rounded again, is up to 3/4 away.
        twice = 0.25 if chosen == "shifts, rounded twice" else 0
        assert np.abs(actual - expected).max() <= 1.01 + ROUGH.get(name, 0) + twice


def make_forms_module() -> Module:
    """All forms as one model of many inputs and outputs, which is compiled once."""
    params, results = [], []
    for number, (build, shapes) in enumerate(FORMS.values()):
        inputs = [real(f"x{number}_{position}", *shape) for position, shape in enumerate(shapes)]
        params += inputs
        results.append(build(*map(through_product, inputs)))
    return Module({"main": function(params, tuple_(results))})


@pytest.mark.parametrize(
    ("target", "chosen"),
    [
        ("x86:threads=1", Quantization()),
        ("x86:threads=1,cpu=x86-64-v2", Quantization("mse", scales="power_of_two", borders="int8")),
    ],
)
def test_x86_gives_the_same_integers(target: str, chosen: Quantization) -> None:
    pytest.importorskip("inlaid_x86", reason='needs the x86 plugin: pip install "inlaid[x86]"')
    main = make_forms_module().main
    quantized_module = quantized(main, drawn(main, count=2), chosen)
    executable = inlaid.compile(quantized_module, [target])
    sample = drawn(main, seed=3, count=1)[0]
    if chosen.borders == "int8":
        borders = zip(sample.items(), quantized_module.report.inputs, strict=True)
        sample = {name: border_scale(item).stored_array(value) for (name, value), item in borders}
    for actual, expected in zip(executable.run(sample).values(), evaluate(quantized_module, sample), strict=True):
        np.testing.assert_array_equal(actual, expected)
