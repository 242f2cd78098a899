"""The NPU: what it takes and why not the rest, its programs, and whole networks that it shares with other targets."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import inlaid
from inlaid import ops
from inlaid.driver import compile_module, cut
from inlaid.driver.context import DriverContext
from inlaid.driver.quantize import quantize
from inlaid.errors import Unsupported
from inlaid.graph import ir
from inlaid.partitioning.explain import explain
from inlaid.plugins import Region
from inlaid.types import TensorType
from zoo import feeds
from zoo.net import Net
from zoo.quantised import quantised

SOURCES = Path(__file__).parents[1] / "src"
MOST_LINES = 150


def code_lines(folder: Path) -> int:
    """Lines that are neither blank nor comment, docstrings included, of all Python files but the simulator."""
    files = [file for file in folder.rglob("*.py") if "simulator" not in file.name]
    lines = [line.strip() for file in files for line in file.read_text().splitlines()]
    return sum(bool(line) and not line.startswith("#") for line in lines)


def test_a_useful_plugin_is_short():
    assert 0 < code_lines(SOURCES) <= MOST_LINES


def integers(shape, dtype="int8", seed=0, bound=100):
    return ir.constant(np.random.default_rng(seed).integers(-bound, bound, shape).astype(dtype))


def scalar(value, dtype):
    return ir.constant(np.asarray(value, dtype))


def stored(total, channels=0, axis=1, zero=3, dtype="int8"):
    """Requantised, with one scale or one for each channel."""
    values = np.linspace(1e-3, 9e-3, channels) if channels else np.asarray(2e-3)
    return ops.requantize(total, ir.constant(values.astype(np.float32)), scalar(zero, dtype), dtype=dtype, axis=axis)


def conv(x, w, bias=True, pads=(), zero=-7, channels=True, **attrs):
    padded = ops.pad(x, scalar(zero, "int8"), pads=(0, 0, *pads[:2], 0, 0, *pads[2:])) if pads else x
    total = ops.conv(padded, w, out_dtype="int32", **attrs)
    many = w.type.shape[0]
    if bias:
        total = ops.add(total, integers((many, 1, 1), "int32", 1, 5000))
    return stored(total, many if channels else 0)


def image(*shape, name="x"):
    return ir.var(name, TensorType(shape, "int8"))


X = image(2, 6, 11, 7)
FLAT = image(5, 13)


def both(x, y, zero, relu):
    sides = [ops.dequantize(x, scalar(0.25, "float32"), scalar(3, "int8"), dtype="float32")]
    sides.append(ops.dequantize(y, scalar(0.4, "float32"), dtype="float32"))
    total = ops.add(*sides)
    return ops.quantize(ops.relu(total) if relu else total, scalar(0.3, "float32"), scalar(zero, "int8"), dtype="int8")


def mean(x):
    wide = ops.sub(ops.cast(x, dtype="int32"), scalar(-9, "int32"))
    return ops.requantize(
        ops.reduce_sum(wide, axes=(2, 3), keepdims=True), scalar(1 / 77, "float32"), scalar(-1, "int8"), dtype="int8", axis=1
    )


def bounded(x):
    return ops.minimum(ops.maximum(x, scalar(-20, "int8")), scalar(40, "int8"))


def requantised(x, dtype):
    return stored(ops.conv(x, integers((4, 6, 1, 1)), out_dtype="int32"), dtype=dtype)


W33, W55 = integers((4, 6, 3, 3)), integers((4, 6, 5, 5))
LAYERS = {
    "1x1": conv(X, integers((9, 6, 1, 1))),
    "no bias, one scale": conv(X, W33, bias=False, channels=False),
    "padded": conv(X, W33, pads=(1, 1, 1, 1)),
    "padded with zeros": conv(X, W33, pads=(0, 2, 1, 0), zero=0),
    "steps": conv(X, W55, pads=(2, 1, 0, 2), strides=(3, 2)),
    "steps that leave data over": conv(X, integers((4, 6, 1, 1)), strides=(4, 4)),
    "grouped": conv(X, integers((9, 2, 3, 3)), pads=(1, 1, 1, 1), groups=3),
    "depthwise": conv(X, integers((6, 1, 3, 3)), pads=(1, 0, 1, 0), groups=6, strides=(2, 1)),
    "bounded": bounded(conv(X, W33)),
    "sums that wrap": stored(ops.add(ops.conv(X, W33, out_dtype="int32"), scalar(np.full((4, 1, 1), 2**31 - 1), "int32")), 4),
    "matmul": stored(ops.add(ops.matmul(FLAT, integers((13, 4)), out_dtype="int32"), integers((4,), "int32", 1, 900)), 4, -1 % 2),
    "matmul of many": stored(ops.matmul(image(2, 3, 5), integers((5, 7)), out_dtype="int32"), 7, 2),
    "bounded matmul": bounded(stored(ops.matmul(FLAT, integers((13, 1)), out_dtype="int32"))),
    "mean": mean(X),
    "add": both(X, image(2, 6, 11, 7, name="z"), 4, False),
    "add, then relu": both(X, image(2, 6, 11, 7, name="z"), -60, True),
    "add of a row": both(X, image(6, 1, 7, name="z"), 4, False),
    "add to itself": both(X, X, 4, False),
    "max_pool": ops.max_pool(X, kernel=(3, 2), strides=(2, 2), pads=(1, 0, 1, 1)),
    "reshape": ops.reshape(X, shape=(4, 231)),
}


def module(body):
    params = dict.fromkeys(expr for expr in ir.post_order(body) if isinstance(expr, ir.Var))
    return ir.Module({"main": ir.function(tuple(params), body)})


def random_inputs(executable, seed=0):
    generator = np.random.default_rng(seed)
    return {
        spec.name: generator.integers(-128, 128, spec.shape).astype(np.int8) if spec.dtype.is_int else generator.random(spec.shape)
        for spec in executable.inputs
    }


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_is_exact(vendors, name):
    whole = module(LAYERS[name])
    npu = compile_module(whole, ["npu"], vendors)
    assert [region.target for region in npu.regions] == ["npu"]
    inputs = random_inputs(npu)
    expected = compile_module(whole, ["reference"], vendors).run(inputs)
    for key, found in npu.run(inputs).items():
        np.testing.assert_array_equal(found, expected[key], strict=True)
        assert len(np.unique(found)) > (1 if name == "sums that wrap" else 3)  # not all at a bound


REFUSED = {
    "unsigned data": (requantised(X, "uint8"), "element type uint8 is not among its capabilities"),
    "a large window": (conv(X, integers((1, 6, 8, 2))), "expected a 2-D window of at most 7 by 7, found (8, 2)"),
    "a window of one dimension": (stored(ops.conv(image(1, 6, 9), integers((1, 6, 3)), out_dtype="int32")), "found (3,)"),
    "gaps": (conv(X, W33, dilations=(2, 1)), "expected no dilation"),
    "a sum over rows": (
        stored(ops.reduce_sum(ops.cast(X, dtype="int32"), axes=(2,), keepdims=True)),
        "expected a mean over whole images",
    ),
    "five dimensions": (ops.reshape(X, shape=(1, 2, 6, 11, 7)), "expected int8 of rank 1 to 4"),
    "floats": (ops.reshape(ir.var("x", TensorType((4,), "float32")), shape=(2, 2)), "element type float32 is not among"),
    "another operator": (ops.abs(X), "has no rule for abs"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_it_refuses_and_why(vendors, name):
    body, reason = REFUSED[name]
    report = explain(*cut(module(body), ["npu"], vendors))
    assert not [region for region in report.regions if region.target == "npu"]
    assert any(reason in words for operator in report.operators for target, words in operator.verdicts if target == "npu")


def test_a_program(vendors):
    one, other = (compile_module(module(LAYERS["padded"]), ["npu"], vendors).package.artifacts[0] for _ in range(2))
    assert one.code == other.code and one.code.startswith(b"NPU1")
    assert len(one.code) == 12 + 5 * 24 + 64  # data, weights, bias, scales and results; one instruction
    assert [array.dtype.name for array in one.constants.values()] == ["int32", "float32", "int8"]


def network():
    """A small MobileNet: depthwise and pointwise convolutions, a pool, branches that are added, a mean and a product; with a
    hard swish, which the NPU lacks, in the middle."""
    net = Net("mobile")

    def layer(x, inputs, outputs, kernel, stride=1, groups=1, clipped=True):
        weight = net.weight("weight", (outputs, inputs // groups, kernel, kernel), (6 * groups / inputs) ** 0.5 / kernel)
        attrs = {"strides": [stride] * 2, "pads": [kernel // 2] * 4, "group": groups}
        x = net.node("Conv", x, weight, net.weight("bias", (outputs,), 0.1), kernel_shape=[kernel] * 2, **attrs)
        return net.node("Clip", x, net.constant(0.0), net.constant(6.0)) if clipped else x

    x = layer(net.input("image", (1, 3, 33, 31)), 3, 8, 3, stride=2)
    x = net.node("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    y = layer(layer(layer(x, 8, 24, 1), 24, 24, 3, groups=24), 24, 8, 1, clipped=False)
    x = net.node("HardSwish", net.node("Add", x, y))
    x = layer(layer(x, 8, 16, 1), 16, 16, 3, stride=2, groups=16)
    x = net.node("Flatten", net.node("GlobalAveragePool", x), axis=1)
    x = net.node("Gemm", x, net.weight("classifier", (10, 16), 0.4), net.weight("offsets", (10,), 0.1), transB=1)
    net.output(net.node("Softmax", x, axis=1), "probabilities", (1, 10))
    return net.build()


@pytest.fixture(scope="module")
def in_eight_bits():
    pytest.importorskip("onnxruntime")
    model = network()
    return quantised(model, lambda seed: feeds(model, seed), signed=True)


@pytest.mark.parametrize("others", [("x86",), ()], ids=["x86", "reference"])
def test_a_network_shared_with_another_target(vendors, in_eight_bits, others):
    if not {*others} <= {*vendors.kinds()}:
        pytest.skip("the x86 plugin is not installed")
    whole = inlaid.load(in_eight_bits)
    shared = compile_module(whole, ["npu", *others], vendors)
    targets = [region.target for region in shared.regions]
    assert targets.count("npu") == 2 and set(targets) == {"npu", *(others or ("reference",))}
    report = explain(*cut(whole, ["npu", *others], vendors))
    taken = [operator.composite for operator in report.operators if operator.target == "npu"]
    assert {"conv", "matmul", "mean", "add", "max_pool", "reshape"} == set(taken)
    left = {operator.operator for operator in report.operators if operator.target != "npu"}
    assert left.isdisjoint({"conv", "matmul", "max_pool"}), "every product is the NPU's"
    reference = compile_module(whole, ["reference"], vendors)
    for seed in (3, 4):
        arrays = feeds(in_eight_bits, seed)
        found, expected = shared.run(arrays), reference.run(arrays)
        np.testing.assert_allclose(found["probabilities"], expected["probabilities"], rtol=1e-6, atol=0)


def test_a_damaged_program(vendors):
    runtime = vendors.runtime(vendors.target("npu"))
    (artifact,) = compile_module(module(LAYERS["add"]), ["npu"], vendors).package.artifacts
    assert runtime.check(artifact) is None
    broken = [b"", artifact.code[:-1], b"NPU2" + artifact.code[4:]]
    for code in broken:
        with pytest.raises(ValueError, match="expected a program of the NPU"):
            runtime.load(replace(artifact, code=code), artifact.constants)


def test_a_region_that_it_never_claimed(vendors):
    target = vendors.target("npu")
    region = Region("r", ir.function((X,), ir.tuple_([ops.abs(X, span=ir.Span("m", "here"))])), target)
    with pytest.raises(Unsupported, match=r"has no rule for abs \(operator abs, at m:here\)"):
        vendors.codegen(target).compile(region, DriverContext(target, vendors, ops.TABLE))


def residual():
    """A float network of convolutions, one of them of each channel, around which a sum goes."""
    generator = np.random.default_rng(0)

    def weights(*shape):
        return ir.constant(generator.normal(size=shape).astype(np.float32))

    x = ir.var("x", TensorType((1, 8, 9, 9), "float32"))
    first = ops.relu(ops.conv(x, weights(8, 8, 3, 3), pads=(1, 1, 1, 1)))
    second = ops.conv(first, weights(8, 1, 3, 3), pads=(1, 1, 1, 1), groups=8)
    pooled = ops.reduce_sum(ops.relu(ops.add(first, second)), axes=(2, 3), keepdims=True)
    return ir.Module({"main": ir.function([x], ops.conv(ops.mul(pooled, ir.constant(np.float32(1 / 81))), weights(4, 8, 1, 1)))})


def test_what_is_quantised_for_it_is_its(vendors):
    samples = [{"x": np.random.default_rng(seed).normal(size=(1, 8, 9, 9)).astype(np.float32)} for seed in range(3)]
    settings = inlaid.Quantization(borders="int8")
    made = [quantize(residual(), samples, samples, settings, ["reference"], [target], vendors) for target in ("npu", "reference")]
    mine, usual = (compile_module(module, ["npu", "reference"], vendors) for module in made)
    assert [region.target for region in mine.package.program.regions] == ["npu"]
    assert [region.target for region in usual.package.program.regions] == ["reference"]
    stored = np.random.default_rng(9).integers(-128, 128, (1, 8, 9, 9)).astype(np.int8)
    wanted = compile_module(made[0], ["reference"], vendors).run({"x": stored})
    np.testing.assert_array_equal(mine.run({"x": stored})["output0"], wanted["output0"])
    assert made[0].report.settings.arithmetic == "float"
    assert made[0].report.layers[-1].difference.sqnr_db > 20
