"""Whole models split between vta_fpga and x86, bit for bit as on x86 alone."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import inlaid
import resnet18
from inlaid import ops
from inlaid.graph.interp import evaluate
from inlaid.graph.ir import Call, Expr, Module, constant, function, post_order, var
from inlaid_runtime.types import TensorType
from inlaid_vta_fpga.options import VtaOptions
from inlaid_vta_fpga.runtime import probe

SPLIT = ["vta_fpga", "x86"]
MODELS = Path(__file__).parents[4] / "shared" / "models"
needs_models = pytest.mark.skipif(not MODELS.is_dir(), reason="the trained models are not beside the checkout, in ../shared/models")
Array = np.ndarray[Any, Any]


def drawn(module: Module, seed: int) -> dict[str, Array]:
    random = np.random.default_rng(seed)
    inputs = {}
    for param in module.main.params:
        assert isinstance(param.type, TensorType)
        shape = tuple(int(dim) for dim in param.type.shape)  # type: ignore[arg-type]
        integers = random.integers(-128, 128, shape).astype(np.int8)
        inputs[param.name] = integers if param.type.dtype.name == "int8" else random.normal(size=shape).astype(np.float32)
    return inputs


def check(module: Module, targets: list[str] = SPLIT, seeds: int = 2) -> inlaid.Executable:
    """Outputs equal those of x86 alone."""
    pytest.importorskip("inlaid_x86", reason='needs the x86 plugin: pip install "inlaid[x86]"')
    split, alone = inlaid.compile(module, targets), inlaid.compile(module, ["x86"])
    for seed in range(seeds):
        data = drawn(module, seed)
        for actual, expected in zip(split.run(data).values(), alone.run(data).values(), strict=True):
            np.testing.assert_array_equal(actual, expected)
    return split


def partition(path: Path) -> list[dict[str, Any]]:
    """The operators of `inlaid partition --json`."""
    command = [sys.executable, "-c", "from inlaid_cli import main; main()", "partition", str(path), "--target", "vta_fpga,x86"]
    process = subprocess.run([*command, "--json"], capture_output=True, text=True, check=True)
    operators: list[dict[str, Any]] = json.loads(process.stdout)["operators"]
    return operators


@needs_models
def test_image_classification_runs_but_for_the_first_convolution() -> None:
    path = MODELS / "pretrainedResnet_quant.tflite"
    products = [each for each in partition(path) if each["operator"] in ("conv", "matmul")]
    assert [each["target"] for each in products] == ["x86"] + ["vta_fpga"] * (len(products) - 1)
    assert len(products) == 10
    check(inlaid.load(path))


@needs_models
@pytest.mark.slow
def test_visual_wake_words_runs_its_pointwise_convolutions() -> None:
    path = MODELS / "vww_96_int8.tflite"
    operators = partition(path)
    module = inlaid.load(path)
    targets = [each["target"] for each in operators if each["operator"] == "conv"]
    # The first convolution has 3 channels; depthwise and pointwise ones alternate from then on.
    assert targets == ["x86"] + ["x86", "vta_fpga"] * 13
    check(module)


@pytest.fixture(scope="module")
def residual_network() -> inlaid.QuantizedModule:
    pytest.importorskip("inlaid_x86", reason='needs the x86 plugin: pip install "inlaid[x86]"')
    return resnet18.quantized(resnet18.build(size=32, classes=10, stages=(16, 32)))


def test_residual_networks_stay_in_one_region(residual_network: inlaid.QuantizedModule) -> None:
    split = check(residual_network)
    assert [region.target for region in split.regions if region.target.startswith("vta_fpga")] == ["vta_fpga"] * 2


@pytest.mark.parametrize("options", ["simulator=timing", "threads=1", "threads=1,serial=true", "log_inp_buff=13,log_acc_buff=15"])
def test_options_give_the_same_results(residual_network: inlaid.QuantizedModule, options: str) -> None:
    check(residual_network, [f"vta_fpga:{options}", "x86"], 1)


def test_the_rtl_core_gives_the_same_results(residual_network: inlaid.QuantizedModule) -> None:
    status = probe(VtaOptions(simulator="rtl"))
    if not status.available:
        pytest.skip(status.detail)
    check(residual_network, ["vta_fpga:simulator=rtl", "x86"], 1)


def layer(
    shape: tuple[int, ...], outputs: int, kernel: int, stride: int, pad: int, shift: int | None, point: int, seed: int, largest: int
) -> Module:
    """A quantized convolution: sums as they are where `shift` is None, else shifted, with a zero point, and clipped."""
    random = np.random.default_rng(seed)
    x: Expr = var("x", TensorType(shape, "int8"))
    weights = random.integers(-128, 128, (outputs, shape[1], kernel, kernel)).astype(np.int8)
    bias = random.integers(-largest, largest + 1, (1, outputs, 1, 1)).astype(np.int32)
    y: Expr = ops.conv(x, constant(weights), strides=(stride, stride), pads=(pad,) * 4, out_dtype="int32")
    y = ops.add(y, constant(bias))
    return Module({"main": function([x], y if shift is None else stored(y, shift, point))})


@settings(max_examples=12, deadline=None)
@given(
    st.tuples(st.integers(1, 2), st.integers(8, 40), st.integers(3, 9), st.integers(3, 9)),
    st.integers(1, 40),
    st.sampled_from([(1, 1, 0), (3, 1, 1), (3, 2, 1), (1, 2, 0), (2, 1, 0), (3, 1, 2)]),
    st.one_of(st.none(), st.integers(0, 24)),
    st.sampled_from([0, -128, 7]),
    st.sampled_from([100, 400_000, 1 << 28]),
    st.integers(0, 99),
)
def test_any_convolution(
    shape: tuple[int, ...], outputs: int, window: tuple[int, int, int], shift: int | None, point: int, largest: int, seed: int
) -> None:
    """On vta_fpga with the reference for the rest, as the reference alone."""
    module = layer(shape, outputs, *window, shift, point, seed, largest)
    agrees(module, seed)


def stored(total: Expr, shift: int, point: int, least: int = -128, greatest: int = 127) -> Expr:
    """Sums in int32 shifted to the right, rounded half up, with a zero point, as int8 within bounds."""
    if shift:
        total = ops.add(total, constant(np.asarray(1 << (shift - 1), np.int32)))
        total = ops.shift_right(total, constant(np.asarray(shift, np.int32)))
    total = ops.add(total, constant(np.asarray(point, np.int32))) if point else total
    return ops.cast(ops.clip(total, minimum=float(least), maximum=float(greatest)), dtype="int8")


@pytest.mark.parametrize("channels", [32, 20])
@pytest.mark.parametrize(("least", "greatest", "reject"), [(-5, 100, False), (0, 100, False), (5, 100, True), (-100, -5, True)])
@pytest.mark.parametrize("operator", ["conv", "matmul", "add"])
def test_channels_padded_to_lanes_need_bounds_around_0(
    operator: str, channels: int, least: int, greatest: int, reject: bool
) -> None:
    """The lanes that pad a block are 0, which bounds must leave 0: else another target requantizes."""
    shape = (2, channels) if operator == "matmul" else (1, channels, 3, 3)
    x, y = (var(name, TensorType(shape, "int8")) for name in "xy")
    weights = np.random.default_rng(0).integers(-128, 128, (channels, channels)).astype(np.int8)
    match operator:
        case "conv":
            total: Expr = ops.conv(x, constant(weights[..., None, None]), out_dtype="int32")
        case "matmul":
            total = ops.matmul(x, constant(weights), out_dtype="int32")
        case _:
            total = ops.add(raised(x, 1, 3), raised(y, 2, 5))
    parameters = [x, y] if operator == "add" else [x]
    module = Module({"main": function(parameters, stored(total, 3, 0, least, greatest))})
    requantized_elsewhere = reject and bool(channels % 16)
    partitioned = inlaid.partition(module, ["vta_fpga"])
    reference = [region for name, region in partitioned.functions.items() if name.endswith("_reference")]
    operators = {node.callee for region in reference for node in post_order(region.body) if isinstance(node, Call)}
    assert (ops.shift_right in operators) == requantized_elsewhere
    agrees(module, 0, regions=int(operator != "add" or not requantized_elsewhere))


def raised(value: Expr, left: int, point: int) -> Expr:
    """An int8 tensor in int32, less its zero point, shifted to the left."""
    wide = ops.cast(value, dtype="int32")
    wide = ops.sub(wide, constant(np.asarray(point, np.int32))) if point else wide
    return ops.shift_left(wide, constant(np.asarray(left, np.int32))) if left else wide


def agrees(module: Module, seed: int, regions: int = 1) -> None:
    executable = inlaid.compile(module, ["vta_fpga"])
    assert sum(region.target == "vta_fpga" for region in executable.regions) == regions
    data = drawn(module, seed)
    np.testing.assert_array_equal(next(iter(executable.run(data).values())), evaluate(module, list(data.values())))


SIDE = st.tuples(st.integers(0, 6), st.sampled_from([0, 5, -128]))


@settings(max_examples=10, deadline=None)
@given(
    st.sampled_from([(1, 20, 5, 4), (2, 16, 1, 3), (3, 40)]), SIDE, SIDE, st.integers(1, 9), st.sampled_from([0, -7]), st.booleans()
)
def test_any_residual_sum(
    shape: tuple[int, ...], a: tuple[int, int], b: tuple[int, int], shift: int, point: int, continued: bool
) -> None:
    """A sum alone, and behind a product whose accumulators it continues."""
    random = np.random.default_rng(shift)
    x, y = (var(name, TensorType(shape, "int8")) for name in "xy")
    first: Expr = x
    if continued and len(shape) == 4:
        weights = random.integers(-128, 128, (shape[1], shape[1], 1, 1)).astype(np.int8)
        first = stored(ops.conv(x, constant(weights), out_dtype="int32"), 9, 3)
    elif continued:
        weights = random.integers(-128, 128, (shape[1], shape[1])).astype(np.int8)
        first = stored(ops.matmul(x, constant(weights), out_dtype="int32"), 9, 3)
    total = stored(ops.add(raised(first, *a), raised(y, *b)), shift, point)
    agrees(Module({"main": function([x, y], total)}), shift)


@settings(max_examples=8, deadline=None)
@given(st.integers(1, 20), st.integers(1, 70), st.integers(1, 70), st.one_of(st.none(), st.integers(0, 20)), st.integers(0, 99))
def test_any_matrix_product(rows: int, depth: int, columns: int, shift: int | None, seed: int) -> None:
    weights = np.random.default_rng(seed).integers(-128, 128, (depth, columns)).astype(np.int8)
    x = var("x", TensorType((rows, depth), "int8"))
    total = ops.matmul(x, constant(weights), out_dtype="int32")
    agrees(Module({"main": function([x], total if shift is None else stored(total, shift, 0))}), seed)


@pytest.mark.parametrize("point", [1 << 20, 1 << 28, -1850080577])
def test_zero_points_far_outside_int8_saturate(point: int) -> None:
    """Part of the bias where the sums leave room for it; else another target requantizes or adds."""
    agrees(layer((1, 16, 4, 4), 16, 1, 1, 0, 3, point, 0, 100), 0)
    x, y = (var(name, TensorType((3, 40), "int8")) for name in "xy")
    total = stored(ops.add(raised(x, 1, 0), raised(y, 2, 5)), 3, point)
    agrees(Module({"main": function([x, y], total)}), 0, regions=int(point == 1 << 20))
