"""The accelerator of the tutorial: exact layers of any size, stored layouts from border to border, models, and conformance."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import replace

import numpy as np
import pytest

import inlaid
from inlaid import ops
from inlaid.driver import build_package, compile_module, cut
from inlaid.driver.build import at_borders
from inlaid.driver.context import DriverContext
from inlaid.driver.measure import MeasuredCosts
from inlaid.driver.shadow import shadow
from inlaid.graph import ir
from inlaid.graph.interp import evaluate
from inlaid.graph.transform import substitute
from inlaid.ops.fixed_point import fixed_points
from inlaid.partitioning.explain import explain
from inlaid.partitioning.outline import region_operators
from inlaid.plugins import Region
from inlaid.settings import Isolation, Settings
from inlaid_conformance.case import Outcome
from inlaid_conformance.levels import chains, composites
from inlaid_conformance.pattern_examples import operator_properties
from inlaid_conformance.suite import cases, run
from inlaid_conformance.target_under_test import TargetUnderTest
from inlaid_quantization.driver import quantize
from inlaid_runtime.artifact.plan import Invoke
from inlaid_runtime.errors import Unsupported
from inlaid_runtime.types import TensorType
from zoo import feeds
from zoo.net import Net
from zoo.quantized import quantized


def integers(shape, dtype="int8", seed=0, bound=100):
    return ir.constant(np.random.default_rng(seed).integers(-bound, bound, shape).astype(dtype))


def scalar(value, dtype):
    return ir.constant(np.asarray(value, dtype))


def stored(total, channels, axis=1, zero=3):
    """Requantized in float32, with a scale per channel."""
    scales = ir.constant(np.linspace(1e-3, 9e-3, channels).astype(np.float32))
    return ops.requantize(total, scales, scalar(zero, "int8"), dtype="int8", axis=axis)


def fixed(total, scales, rounding, axis=0):
    """Multiplied by fixed-point factors."""
    multipliers, shifts = (ir.constant(np.asarray(part if len(scales) > 1 else part[0], np.int32)) for part in fixed_points(scales))
    return ops.multiply_fixed(total, multipliers, shifts, axis=axis, rounding=rounding)


def narrowed(values, zero=3):
    return ops.cast(ops.clip(ops.add(values, scalar(zero, "int32")), minimum=-128.0, maximum=127.0), dtype="int8")


def sums(x, channels, kernel=1, groups=1, zero=-7, **attrs):
    """The sums of a convolution that keeps sizes at stride 1, with a bias per channel."""
    edge = kernel // 2
    padded = ops.pad(x, scalar(zero, "int8"), pads=(0, 0, edge, edge) * 2) if edge else x
    weights = integers((channels, x.type.shape[1] // groups, kernel, kernel), seed=channels)
    total = ops.conv(padded, weights, out_dtype="int32", groups=groups, **attrs)
    return ops.add(total, integers((channels, 1, 1), "int32", 1, 5000))


def conv(x, channels, kernel=1, **attrs):
    return stored(sums(x, channels, kernel, **attrs), channels)


def added(x, y, relu=False):
    sides = [ops.dequantize(side, scalar(0.25, "float32"), scalar(3, "int8"), dtype="float32") for side in (x, y)]
    total = ops.add(*sides)
    return ops.quantize(ops.relu(total) if relu else total, scalar(0.3, "float32"), scalar(-60, "int8"), dtype="int8")


def added_in_integers(x, y, rounding):
    sides = [ops.sub(ops.cast(side, dtype="int32"), scalar(3, "int32")) for side in (x, y)]
    scaled = [
        fixed(ops.shift_left(side, scalar(20, "int32")), [factor], rounding) for side, factor in zip(sides, (0.4, 0.3), strict=True)
    ]
    return narrowed(fixed(ops.add(*scaled), [2.0**-20], rounding))


def mean(x):
    total = ops.reduce_sum(ops.sub(ops.cast(x, dtype="int32"), scalar(-9, "int32")), axes=(2, 3), keepdims=True)
    return ops.requantize(total, scalar(1 / 42, "float32"), scalar(-1, "int8"), dtype="int8", axis=1)


def image(*shape, name="x"):
    return ir.var(name, TensorType(shape, "int8"))


def module(*results):
    body = results[0] if len(results) == 1 else ir.tuple_(results)
    params = dict.fromkeys(expr for expr in ir.post_order(body) if isinstance(expr, ir.Var))
    return ir.Module({"main": ir.function(tuple(params), body)})


def random_inputs(executable):
    generator = np.random.default_rng(5)
    return {spec.name: generator.integers(-128, 128, spec.shape).astype(np.int8) for spec in executable.inputs}


def exact(model, vendors, targets=("acme",)):
    """Compile a module for the accelerator, and check that results are the reference's to the last bit."""
    executable = compile_module(model, list(targets), vendors)
    inputs = random_inputs(executable)
    expected = compile_module(model, ["reference"], vendors).run(inputs)
    for key, result in executable.run(inputs).items():
        np.testing.assert_array_equal(result, expected[key], strict=True)
        assert len(np.unique(result)) > 1
    return executable


def layers(channels):
    x, z, flat = image(2, channels, 7, 6), image(2, channels, 7, 6, name="z"), image(3, channels)
    product = ops.add(ops.matmul(flat, integers((channels, 21)), out_dtype="int32"), integers((21,), "int32", 1, 900))
    return {
        "conv": conv(x, 19, kernel=3),
        "strided": conv(x, channels + 1, kernel=3, strides=(2, 3)),
        "dilated": conv(x, 5, kernel=3, dilations=(2, 1)),
        "depthwise": conv(x, channels, kernel=3, groups=channels),
        "up": narrowed(fixed(sums(x, channels), np.linspace(1e-3, 9e-3, channels).tolist(), "up", 1)),
        "once_away": narrowed(fixed(sums(x, 9), [2.0**-9], "once_away")),
        "dense": stored(product, 21, -1 % 2),
        "add": added(x, z, relu=True),
        "add to itself": added(x, x),
        "add in integers": added_in_integers(x, z, "up"),
        "add in integers, rounded once": added_in_integers(x, z, "once_away"),
        "mean": mean(x),
        "padding beyond the window": stored(
            ops.conv(x, integers((4, channels, 1, 1)), out_dtype="int32", strides=(1, 7), pads=(0, 3, 0, 0)), 4
        ),
        "max_pool": ops.max_pool(x, kernel=(3, 2), strides=(2, 2), pads=(1, 0, 1, 1)),
    }


@pytest.mark.parametrize("channels", [1, 21, 32])
@pytest.mark.parametrize("name", layers(16))
def test_layers_are_exact_at_any_number_of_channels(vendors, name, channels):
    executable = exact(module(layers(channels)[name]), vendors)
    regions = [region.target for region in executable.regions]
    assert regions.count("acme") == 1 and len(regions) > 1  # and conversions at its borders


LARGE = {
    "rows": conv(image(1, 40, 33, 65), 20, kernel=3),
    "weights": conv(image(1, 64, 5, 5), 70, kernel=3),
    "columns": stored(ops.matmul(image(70, 300), integers((300, 75)), out_dtype="int32"), 75),
    "elements": added(image(2, 70, 30, 31), image(2, 70, 30, 31, name="z")),
    "channels": conv(image(2, 100, 20, 21), 100, kernel=5, groups=100, strides=(2, 1)),
    "alignment": conv(image(1, 16, 37, 22), 32, kernel=3),  # a tile that fits but for the alignment of its buffers
}


@pytest.mark.parametrize("name", LARGE)
def test_layers_larger_than_the_scratch_memory_are_tiled(vendors, name):
    from inlaid_acme.hardware import SCRATCH

    executable = exact(module(LARGE[name]), vendors)
    (artifact,) = [artifact for artifact in executable.package.artifacts if artifact.format == "acme-program"]
    (word,) = json.loads(artifact.code)["instructions"]
    rows, blocks = word["tile"]
    assert rows < word["result"][1] or blocks < word["result"][3]
    assert len(word["scratch"]) >= 3 and all(0 <= offset < SCRATCH and offset % 64 == 0 for offset in word["scratch"])


def residual(x, channels):
    y = conv(conv(x, channels, kernel=3), channels, kernel=3, groups=channels)
    return added(x, y)


def two_regions():
    """A layer, then an operator that the accelerator lacks, beside a residual block; and a layer that reads both."""
    x = conv(image(1, 21, 9, 8), 21)
    return module(added(residual(x, 21), conv(ops.abs(x), 21, kernel=3)))


def test_regions_exchange_stored_tensors(vendors):
    """The first region's result enters the second as it is stored."""
    model = two_regions()
    partitioned, candidates = cut(model, ["acme"], vendors)
    regions = [name for name, number in partitioned.regions.items() if number == 0]
    assert len(regions) == 2
    main = at_borders(partitioned, candidates, vendors).partitioned.module.main
    calls = {
        expr.callee.name: expr
        for expr in ir.post_order(main)
        if isinstance(expr, ir.Call) and isinstance(expr.callee, ir.GlobalVar)
    }
    sources = [arg.tuple.callee.name for arg in calls[regions[1]].args if isinstance(arg, ir.TupleItem)]
    assert regions[0] in sources
    # Into the first and out of the second; the host's region between them converts its own operand and result.
    assert sum(name.startswith("border") for name in calls) == 2
    executable = exact(model, vendors)
    (plan,) = executable.package.program.plans.values()
    first, second = (step for step in plan.instructions if isinstance(step, Invoke) and step.symbol in regions)
    assert {*first.outputs} & {*second.inputs}, "the value stays in device memory"


def test_neighbors_that_agree_convert_nothing(vendors):
    """Two regions in a row convert at the ends of the model alone."""
    model = module(residual(image(1, 21, 9, 8), 21))
    partitioned, candidates = cut(model, ["acme", "reference"], vendors)
    (name,) = partitioned.regions
    region, x = partitioned.module[name], model.main.params[0]
    first = ir.Call(region.type.result, None, ir.global_var(name, region.type), (x,), ops.abs(x).attrs)
    second = ir.Call(region.type.result, None, ir.global_var(name, region.type), (ir.tuple_item(first, 0),), first.attrs)
    main = ir.function([x], ir.tuple_item(second, 0))
    twice = type(partitioned)(ir.Module({"main": main, name: region}), (), {name: 0})
    assert sum(other.startswith("border") for other in at_borders(twice, candidates, vendors).partitioned.regions) == 2


def channels_last(body):
    """Return the model of a layer in N C H W, with inputs and results in N H W C."""
    (x,) = [expr for expr in ir.post_order(body) if isinstance(expr, ir.Var)]
    outside = ir.var("x", TensorType(tuple(x.type.shape[axis] for axis in (0, 2, 3, 1)), "int8"))
    inside = substitute(body, {x: ops.transpose(outside, perm=(0, 3, 1, 2))})
    return module(ops.transpose(inside, perm=(0, 2, 3, 1)))


def host_operators(model, targets, vendors):
    """Return the operators of the host's regions, in order of the regions."""
    partitioned, candidates = cut(model, targets, vendors)
    bordered = at_borders(partitioned, candidates, vendors).partitioned
    hosts = [bordered.module[name] for name, number in bordered.regions.items() if candidates[number].target.kind != "acme"]
    return [[call.callee.name for call in region_operators(host)] for host in hosts]


@pytest.mark.parametrize("host", ["x86:threads=1", "reference"])
@pytest.mark.parametrize(("channels", "results"), [(16, 32), (21, 5), (1, 16)])
def test_models_in_channels_last_are_not_transposed(vendors, host, channels, results):
    """Inputs enter by a copy, padded if channels do not fill the lanes; results leave in the same way."""
    if host != "reference":
        pytest.importorskip("inlaid_x86", reason='needs the x86 plugin: pip install "inlaid[x86]"')
    model = channels_last(conv(image(2, channels, 7, 6), results, kernel=3))
    operators = host_operators(model, ["acme", host], vendors)
    names = [name for region in operators for name in region]
    assert len(operators) == 2 and "transpose" not in names
    assert names.count("pad") == (channels % 16 != 0) + (results % 16 != 0)
    exact(model, vendors, ["acme", host])


def test_values_in_channels_last_with_several_readers(vendors):
    """A result of the model in N C H W beside one in N H W C needs the conversion that ONNX models have."""
    y = conv(ops.transpose(image(1, 7, 6, 16), perm=(0, 3, 1, 2)), 16)
    model = module(ops.transpose(y, perm=(0, 2, 3, 1)), y, added(y, conv(ops.abs(y), 16)))
    exact(model, vendors)
    assert host_operators(model, ["acme"], vendors)[0] == ["reshape"]


def test_models_in_channels_first_convert_once(vendors):
    operators = host_operators(module(conv(image(2, 21, 7, 6), 21)), ["acme"], vendors)
    assert [names.count("transpose") for names in operators] == [1, 1]


REFUSED = {
    "a row that exceeds the scratch memory": (conv(image(1, 17, 8, 2000), 17), "must fit into 32768 bytes of on-chip memory"),
    "groups": (conv(image(1, 8, 6, 6), 8, groups=2), "must have 1 group, or one per channel of data and result, got 2 groups"),
    "broadcasting": (added(image(1, 3, 4, 4), image(3, 1, 4, name="z")), "operands must have equal shapes"),
    "a large window": (conv(image(1, 2, 17, 17), 2, kernel=16), "windows must be at most 15 by 15, got (16, 16)"),
    "one spatial axis": (
        stored(ops.conv(image(1, 6, 9), integers((4, 6, 3)), out_dtype="int32"), 4),
        "data must be int8 of rank 4 with elements",
    ),
    "unsigned data": (
        ops.max_pool(ir.var("x", TensorType((1, 2, 4, 4), "uint8")), kernel=(2, 2)),
        "element type uint8 is not among",
    ),
    "sums beyond the accumulator": (
        stored(ops.conv(image(1, 1024, 1, 1), ir.constant(np.full((2, 1024, 1, 1), 127, np.int8)), out_dtype="int32"), 2),
        "accumulat",
    ),
    "another operator": (ops.abs(image(2, 3)), "has no rule for abs"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_rejections_have_reasons(vendors, name):
    body, reason = REFUSED[name]
    report = explain(*cut(module(body), ["acme"], vendors))
    assert not [region for region in report.regions if region.target == "acme"]
    assert any(reason in words for operator in report.operators for _, words in operator.verdicts)


def test_a_region_that_it_never_claimed(vendors):
    target, x = vendors.target("acme"), image(2, 3)
    region = Region("r", ir.function((x,), ir.tuple_([ops.abs(x, span=ir.Span("m", "here"))])), target)
    with pytest.raises(Unsupported, match=r"has no rule for abs \(operator abs, at m:here\)"):
        vendors.codegen(target).compile(region, DriverContext(target, vendors, ops.TABLE))


def test_a_damaged_program(vendors):
    runtime = vendors.runtime(vendors.target("acme"))
    package = compile_module(module(layers(16)["add"]), ["acme"], vendors).package
    (artifact,) = [artifact for artifact in package.artifacts if artifact.format == "acme-program"]
    assert runtime.check(artifact) is None
    for code in (
        b"",
        artifact.code[:-1],
        artifact.code.replace(b'"add"', b'"sub"'),
        artifact.code.replace(b'"output": ', b'"output": 9'),
    ):
        with pytest.raises(Unsupported, match="must be a program of Acme"):
            runtime.load(replace(artifact, code=code), artifact.constants)


def test_shadow_mode_names_the_layer_that_is_wrong(vendors, monkeypatch):
    model = two_regions()
    inputs = {"x": np.random.default_rng(0).integers(-128, 128, (1, 21, 9, 8)).astype(np.int8)}
    assert shadow(model, inputs, ["acme"], vendors).difference is None
    from inlaid_acme import simulator

    monkeypatch.setitem(simulator.UNITS, "add", lambda word, tile: simulator.add(word, tile) + 1)
    difference = shadow(model, {"x": np.zeros((1, 21, 9, 8), np.int8)}, ["acme"], vendors).difference
    assert difference is not None and difference.unit == "composite add"


def test_measured_placement_leaves_conversions_out(vendors, monkeypatch):
    """A layer is measured without conversions: neighbors may need none."""
    monkeypatch.setattr("inlaid.driver.measure.region_seconds", lambda executable, inputs: {"region0": 7.0})
    partitioned, candidates = cut(module(layers(16)["dense"]), ["acme"], vendors)
    (claim,) = [claim for placement in partitioned.placements for claim in placement.claims if claim.target == 0]
    able = tuple(vendors.capabilities(candidate.target) for candidate in candidates)
    assert MeasuredCosts(able, candidates=candidates, registry=vendors).seconds(claim) == 7.0


def test_isolated_code_generators_have_borders(vendors):
    model = module(layers(21)["conv"])
    packages = [build_package(model, ["acme"], vendors, settings=Settings(isolation=each)) for each in (Isolation(), None)]
    isolated, direct = ({item.symbol: (item.code, item.signature) for item in package.artifacts} for package in packages)
    assert isolated == direct and any(item.format == "acme-program" for item in packages[0].artifacts)


def network():
    """A small MobileNet: depthwise and pointwise convolutions, a pool, branches that are added, a mean and a product; with a
    hard swish, which the accelerator lacks, in the middle."""
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


@pytest.mark.parametrize("other_targets", [("x86",), ()], ids=["x86", "reference"])
def test_a_network_shared_with_another_target(vendors, other_targets):
    pytest.importorskip("onnxruntime", reason="quantizes the model: pip install onnxruntime")
    if not {*other_targets} <= {*vendors.kinds()}:
        pytest.skip('the x86 plugin is not installed: pip install "inlaid[x86]"')
    float_model = network()
    model = quantized(float_model, lambda seed: feeds(float_model, seed), signed=True)
    module = inlaid.load(model)
    shared = compile_module(module, ["acme", *other_targets], vendors)
    targets = [region.target for region in shared.regions]
    assert targets.count("acme") == 2 and set(targets) == {"acme", *(other_targets or ("reference",))}
    report = explain(*cut(module, ["acme", *other_targets], vendors))
    composites_of_acme = {operator.composite for operator in report.operators if operator.target == "acme"}
    assert composites_of_acme == {"conv", "matmul", "mean", "add", "max_pool", "flatten"}
    assert {"conv", "matmul", "max_pool"}.isdisjoint(item.operator for item in report.operators if item.target != "acme")
    reference = compile_module(module, ["reference"], vendors)
    for seed in (3, 4):
        arrays = feeds(model, seed)
        results, expected = shared.run(arrays), reference.run(arrays)
        np.testing.assert_allclose(results["probabilities"], expected["probabilities"], rtol=1e-6, atol=0)


def float_residual():
    """A float network of convolutions, one of them depthwise, with a residual sum."""
    generator = np.random.default_rng(0)

    def weights(*shape):
        return ir.constant(generator.normal(size=shape).astype(np.float32))

    x = ir.var("x", TensorType((1, 8, 9, 9), "float32"))
    first = ops.relu(ops.conv(x, weights(8, 8, 3, 3), pads=(1, 1, 1, 1)))
    second = ops.conv(first, weights(8, 1, 3, 3), pads=(1, 1, 1, 1), groups=8)
    pooled = ops.reduce_sum(ops.relu(ops.add(first, second)), axes=(2, 3), keepdims=True)
    return ir.Module({"main": ir.function([x], ops.conv(ops.mul(pooled, ir.constant(np.float32(1 / 81))), weights(4, 8, 1, 1)))})


def test_models_quantized_for_it_run_on_it(vendors):
    samples = [{"x": np.random.default_rng(seed).normal(size=(1, 8, 9, 9)).astype(np.float32)} for seed in range(3)]
    settings = inlaid.Quantization(borders="int8")
    quantized = quantize(float_residual(), samples, samples, settings, ["reference"], ["acme"], vendors)
    executable = compile_module(quantized, ["acme", "reference"], vendors)
    assert [region.symbol for region in executable.package.program.regions if "border" not in region.symbol] == ["region0_acme"]
    arrays = {"x": np.random.default_rng(9).integers(-128, 128, (1, 8, 9, 9)).astype(np.int8)}
    expected = compile_module(quantized, ["reference"], vendors).run(arrays)
    np.testing.assert_array_equal(executable.run(arrays)["output0"], expected["output0"])
    assert quantized.report.layers[-1].difference.sqnr_db > 20


@pytest.fixture(scope="module")
def conformance(vendors):
    """The results of cases on composites, and their examples, by case. The whole suite runs where the tutorial does."""
    results, examples = [], defaultdict(list)

    def recorded(hold):
        def record(under_test, what, *rest):
            examples[case.id].append(what)
            hold(under_test, what, *rest)

        return record

    under_test = TargetUnderTest("acme", vendors)
    with pytest.MonkeyPatch.context() as patch:
        for level in (composites, chains):
            patch.setattr(level, "hold", recorded(level.hold))
        for case in cases(under_test):
            if case.id in ("operators/composite[conv]", "operators/composite[matmul]", "operators/chains"):
                results += run(under_test, [case])
    return results, examples


@pytest.mark.slow
def test_composites_are_varied(conformance):
    results, examples = conformance
    assert {result.outcome for result in results} == {Outcome.PASSED} and not any(result.unexercised for result in results)
    properties = [operator_properties(example.function, "conv") for example in examples["operators/composite[conv]"]]
    assert {"one", "depthwise"} <= {each["groups"].partition(",")[0] for each in properties}
    assert {"all 1", "all 2", "mixed"} <= {each["strides"] for each in properties}
    products = [np.asarray(evaluate(example.function, example.inputs)) for example in examples["operators/composite[matmul]"]]
    assert sum(len(np.unique(product)) > 8 for product in products) > 3
    assert max(len(chain.names) for chain in examples["operators/chains"]) > 2
    for chain in examples["operators/chains"]:
        calls = [expr for expr in ir.in_order(chain.composed.body) if isinstance(expr, ir.Call)]
        assert len(calls) == len(chain.names)
        np.testing.assert_array_equal(evaluate(chain.composed, chain.inputs), evaluate(chain.plain, chain.inputs))
