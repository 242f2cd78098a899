"""Layouts of a plugin's own, from border to border: layers exact at any number of channels, regions that agree, stored arenas."""

from __future__ import annotations

import math
from collections import defaultdict

import numpy as np
import pytest

from inlaid import ops
from inlaid.conformance.case import Outcome
from inlaid.conformance.levels import chains, composites
from inlaid.conformance.patterned import facts
from inlaid.conformance.suite import cases, run
from inlaid.conformance.target_under_test import TargetUnderTest
from inlaid.driver import build_package, compile_module, cut
from inlaid.driver.build import at_borders
from inlaid.driver.context import DriverContext
from inlaid.driver.measure import MeasuredCosts
from inlaid.driver.shadow import shadow
from inlaid.graph import ir
from inlaid.graph.interp import evaluate
from inlaid.graph.transform import substitute
from inlaid.partitioning.explain import explain
from inlaid.partitioning.outline import region_operators
from inlaid.plugins import Region, Scratch
from inlaid.settings import Isolation, Settings
from inlaid.types import TensorType


def integers(shape, dtype="int8", seed=0, bound=100):
    return ir.constant(np.random.default_rng(seed).integers(-bound, bound, shape).astype(dtype))


def scalar(value, dtype):
    return ir.constant(np.asarray(value, dtype))


def stored(total, channels, axis=1, zero=3):
    """Requantised, with a scale for each channel."""
    scales = ir.constant(np.linspace(1e-3, 9e-3, channels).astype(np.float32))
    return ops.requantize(total, scales, scalar(zero, "int8"), dtype="int8", axis=axis)


def conv(x, channels, kernel=1, groups=1, zero=-7, **attrs):
    """A convolution that keeps sizes at stride 1, with a bias and a scale for each channel."""
    edge = kernel // 2
    padded = ops.pad(x, scalar(zero, "int8"), pads=(0, 0, edge, edge) * 2) if edge else x
    weights = integers((channels, x.type.shape[1] // groups, kernel, kernel), seed=channels)
    total = ops.conv(padded, weights, out_dtype="int32", groups=groups, **attrs)
    return stored(ops.add(total, integers((channels, 1, 1), "int32", 1, 5000)), channels)


def added(x, y, relu=False):
    sides = [ops.dequantize(side, scalar(0.25, "float32"), scalar(3, "int8"), dtype="float32") for side in (x, y)]
    total = ops.add(*sides)
    return ops.quantize(ops.relu(total) if relu else total, scalar(0.3, "float32"), scalar(-60, "int8"), dtype="int8")


def image(*shape, name="x"):
    return ir.var(name, TensorType(shape, "int8"))


def module(*results):
    body = results[0] if len(results) == 1 else ir.tuple_(results)
    params = dict.fromkeys(expr for expr in ir.post_order(body) if isinstance(expr, ir.Var))
    return ir.Module({"main": ir.function(tuple(params), body)})


def random_inputs(executable):
    generator = np.random.default_rng(5)
    return {spec.name: generator.integers(-128, 128, spec.shape).astype(np.int8) for spec in executable.inputs}


def exact(whole, vendors):
    """The package of a module for the accelerator, whose results are the reference's to the last bit."""
    executable = compile_module(whole, ["lanes"], vendors)
    inputs = random_inputs(executable)
    expected = compile_module(whole, ["reference"], vendors).run(inputs)
    for key, found in executable.run(inputs).items():
        np.testing.assert_array_equal(found, expected[key], strict=True)
        assert len(np.unique(found)) > 3
    return executable


def layers(channels):
    x, flat = image(2, channels, 7, 6), image(3, channels)
    product = ops.add(ops.matmul(flat, integers((channels, 21)), out_dtype="int32"), integers((21,), "int32", 1, 900))
    return {
        "conv": conv(x, 19, kernel=3),
        "strided conv": conv(x, channels + 1, kernel=3, strides=(2, 2)),
        "depthwise": conv(x, channels, kernel=3, groups=channels),
        "matmul": stored(product, 21, -1 % 2),
        "add": added(x, image(2, channels, 7, 6, name="z"), relu=True),
        "max_pool": ops.max_pool(x, kernel=(3, 2), strides=(2, 2), pads=(1, 0, 1, 1)),
    }


@pytest.mark.parametrize("channels", [1, 5, 16, 17, 40])
@pytest.mark.parametrize("name", layers(16))
def test_layers_are_exact_at_any_number_of_channels(vendors, name, channels):
    executable = exact(module(layers(channels)[name]), vendors)
    own = [region for region in executable.regions if region.target == "lanes"]
    assert len(own) == 1 and len(executable.regions) > 1  # and conversions at its borders


def residual(x, channels):
    y = conv(conv(x, channels, kernel=3), channels, kernel=3, groups=channels)
    return added(x, y)


def two_regions():
    """A layer, then what the accelerator lacks, beside a residual block; and a layer that reads all of it."""
    x = conv(image(1, 21, 9, 8), 21)
    other = ops.abs(x)
    return module(added(residual(x, 21), conv(other, 21, kernel=3)))


def test_regions_exchange_what_they_store(vendors):
    """The first region's result enters the second as it is stored. What the host reads and writes between is converted."""
    whole = two_regions()
    partitioned, candidates = cut(whole, ["lanes"], vendors)
    assert [candidate.target.kind for candidate in candidates] == ["lanes", "reference"]
    regions = [name for name, number in partitioned.regions.items() if number == 0]
    assert len(regions) == 2
    main = at_borders(partitioned, candidates, vendors).partitioned.module.main
    calls = {
        expr.callee.name: expr
        for expr in ir.post_order(main)
        if isinstance(expr, ir.Call) and isinstance(expr.callee, ir.GlobalVar)
    }
    sources = [arg.tuple.callee.name for arg in calls[regions[1]].args if isinstance(arg, ir.TupleItem)]
    assert regions[0] in sources  # straight, and not by way of a conversion
    # into the first, and out of the second; the host's region between them converts what it reads and writes
    assert sum(name.startswith("border") for name in calls) == 2
    exact(whole, vendors)


def test_neighbours_that_agree_convert_nothing(vendors):
    """Two regions in a row, with nothing of the host's between them, convert at the ends of the model alone."""
    whole = module(residual(image(1, 21, 9, 8), 21))
    partitioned, candidates = cut(whole, ["lanes", "reference"], vendors)
    (name,) = partitioned.regions
    region = partitioned.module[name]
    x = whole.main.params[0]
    first = ir.Call(region.type.result, None, ir.global_var(name, region.type), (x,), ops.abs(x).attrs)
    second = ir.Call(region.type.result, None, ir.global_var(name, region.type), (ir.tuple_item(first, 0),), first.attrs)
    main = ir.function([x], ir.tuple_item(second, 0))
    twice = type(partitioned)(ir.Module({"main": main, name: region}), (), {name: 0})
    assert sum(other.startswith("border") for other in at_borders(twice, candidates, vendors).partitioned.regions) == 2


def channels_last(body):
    """The model of a layer in N C H W, with inputs and results in N H W C."""
    (x,) = [expr for expr in ir.post_order(body) if isinstance(expr, ir.Var)]
    outside = ir.var("x", TensorType(tuple(x.type.shape[axis] for axis in (0, 2, 3, 1)), "int8"))
    inside = substitute(body, {x: ops.transpose(outside, perm=(0, 3, 1, 2))})
    return module(ops.transpose(inside, perm=(0, 2, 3, 1)))


def host_operators(whole, targets, vendors):
    """The operators of the host's regions, in order of the regions."""
    partitioned, candidates = cut(whole, targets, vendors)
    stored = at_borders(partitioned, candidates, vendors).partitioned
    hosts = [stored.module[name] for name, number in stored.regions.items() if candidates[number].target.kind != "lanes"]
    return [[call.callee.name for call in region_operators(host)] for host in hosts]


def count(operators, name):
    return sum(operator == name for region in operators for operator in region)


@pytest.mark.parametrize("host", ["x86:threads=1", "reference"])
@pytest.mark.parametrize(("channels", "results"), [(16, 32), (21, 5), (1, 16)])
def test_models_in_channels_last_are_not_transposed(vendors, host, channels, results):
    """Inputs enter by a copy, padded if channels do not fill the lanes; results leave in the same way."""
    if host != "reference":
        pytest.importorskip("inlaid_x86", reason='needs the x86 plugin: pip install "inlaid[x86]"')
    whole = channels_last(conv(image(2, channels, 7, 6), results, kernel=3))
    operators = host_operators(whole, ["lanes", host], vendors)
    assert len(operators) == 2 and not count(operators, "transpose")
    assert count(operators, "pad") == (channels % 16 != 0) + (results % 16 != 0)
    executable = compile_module(whole, ["lanes", host], vendors)
    inputs = random_inputs(executable)
    (found,) = executable.run(inputs).values()
    np.testing.assert_array_equal(found, evaluate(whole, inputs), strict=True)


def test_values_in_channels_last_with_several_readers(vendors):
    """A result of the model in N C H W beside one in N H W C needs the conversion that ONNX models have."""
    y = conv(ops.transpose(image(1, 7, 6, 16), perm=(0, 3, 1, 2)), 16)
    whole = module(ops.transpose(y, perm=(0, 2, 3, 1)), y, added(y, conv(ops.abs(y), 16)))
    exact(whole, vendors)
    operators = host_operators(whole, ["lanes"], vendors)
    assert operators[0] == ["reshape"]


def test_models_in_channels_first_convert_as_before(vendors):
    operators = host_operators(module(conv(image(2, 21, 7, 6), 21)), ["lanes"], vendors)
    assert operators == [
        ["pad", "reshape", "transpose", "reshape", "transpose"],
        ["transpose", "reshape", "transpose", "reshape", "pad"],
    ]


def test_arenas_hold_what_is_stored(vendors):
    """Buffers between steps have full lanes, and offsets of the planner's own."""
    x = image(1, 21, 9, 8)
    function = compile_module(module(residual(x, 21)), ["lanes"], vendors)
    partitioned, _ = cut(module(residual(x, 21)), ["lanes"], vendors)
    (name,) = [name for name, number in partitioned.regions.items() if number == 0]
    target = vendors.target("lanes")
    region = Region(name, partitioned.module[name], target)
    from inlaid_lanes.form import form

    context = DriverContext(target, vendors, ops.TABLE)
    bordered = Region(name, region.function, target, region.stored_as(form))
    program = context.steps(bordered, form)
    inside = [buffer for buffer in program.buffers if buffer.storage == "arena"]
    assert {buffer.shape for buffer in inside} == {(1, 1, 9, 8, 2, 16)}
    assert program.workspace == sum(math.prod(buffer.shape) for buffer in inside) == 2 * 9 * 8 * 32
    assert {buffer.shape for buffer in context.steps(bordered).buffers if buffer.storage == "arena"} == {(1, 21, 9, 8)}
    scratch = context.steps(bordered, form, lambda step: [Scratch(1000, "lanes.chip"), Scratch(64)])
    assert scratch.scopes == {"lanes.chip": 1000} and scratch.workspace > program.workspace
    (artifact,) = [artifact for artifact in function.package.artifacts if artifact.format == "lanes-program"]
    assert dict(artifact.workspace) == {"": program.workspace}
    assert [spec.shape for spec in artifact.signature.inputs] == [(1, 1, 9, 8, 2, 16)]


REFUSED = {
    "more than fits as it is stored": (conv(image(1, 17, 64, 64), 17), "expected stored operands of at most 262144 bytes"),
    "groups": (conv(image(1, 8, 6, 6), 8, groups=2), "expected 1 group or one per channel, found 2 groups"),
    "rows": (added(image(1, 3, 4, 4), image(3, 1, 4, name="z")), "expected operands of equal shape"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_it_refuses_and_why(vendors, name):
    body, reason = REFUSED[name]
    report = explain(*cut(module(body), ["lanes"], vendors))
    assert not [region for region in report.regions if region.target == "lanes"]
    assert any(reason in words for operator in report.operators for _, words in operator.verdicts)


def test_shadow_mode_compares_what_has_borders(vendors):
    whole = two_regions()
    inputs = {"x": np.random.default_rng(0).integers(-128, 128, (1, 21, 9, 8)).astype(np.int8)}
    found = shadow(whole, inputs, ["lanes"], vendors)
    assert found.difference is None and found.compared == 3


def test_shadow_mode_names_the_layer_that_is_wrong(vendors, monkeypatch):
    compile_module(module(layers(16)["add"]), ["lanes"], vendors)
    from inlaid_lanes import lanes_simulator

    monkeypatch.setitem(lanes_simulator.UNITS, "add", lambda layer, view, read: lanes_simulator._add(layer, view, read) + 1)
    inputs = {"x": np.zeros((1, 21, 9, 8), np.int8)}
    found = shadow(two_regions(), inputs, ["lanes"], vendors).difference
    assert found is not None and found.unit == "composite add"


def test_measured_placement_leaves_conversions_out(vendors, monkeypatch):
    """What is measured of a layer is its own region: neighbours may need no conversion."""
    monkeypatch.setattr("inlaid.driver.measure.region_seconds", lambda executable, inputs: {"region0": 7.0})
    partitioned, candidates = cut(module(layers(16)["matmul"]), ["lanes"], vendors)
    (claim,) = [claim for placement in partitioned.placements for claim in placement.claims if claim.target == 0]
    able = tuple(vendors.capabilities(candidate.target) for candidate in candidates)
    assert MeasuredCosts(able, candidates=candidates, registry=vendors).seconds(claim) == 7.0


def test_code_generators_in_processes_of_their_own_have_borders(vendors):
    whole = module(layers(17)["conv"])
    apart, here = (build_package(whole, ["lanes"], vendors, settings=Settings(isolation=each)) for each in (Isolation(), None))
    found, wanted = ({item.symbol: (item.code, item.signature) for item in package.artifacts} for package in (apart, here))
    assert found == wanted and any(item.format == "lanes-program" for item in apart.artifacts)


@pytest.fixture(scope="module")
def conformance(vendors):
    """The results of the whole suite, and what it compares with the reference in cases on composites, by case."""
    results, examples = [], defaultdict(list)

    def recorded(hold):
        def record(under_test, what, *rest):
            examples[case.id].append(what)
            hold(under_test, what, *rest)

        return record

    under_test = TargetUnderTest("lanes", vendors)
    with pytest.MonkeyPatch.context() as patch:
        for level in (composites, chains):
            patch.setattr(level, "hold", recorded(level.hold))
        for case in cases(under_test):
            results += run(under_test, [case])
    return results, examples


@pytest.mark.slow
def test_composites_are_varied(conformance):
    _, examples = conformance
    found = [facts(made.function, "conv") for made in examples["operators/composite[conv]"]]
    assert {"one", "depthwise"} <= {each["groups"].partition(",")[0] for each in found}
    assert {"all 1", "all 2", "mixed"} <= {each["strides"] for each in found}


@pytest.mark.slow
def test_examples_show_what_they_compute(conformance):
    _, examples = conformance
    results = [np.asarray(evaluate(made.function, made.inputs)) for made in examples["operators/composite[matmul]"]]
    assert sum(len(np.unique(result)) > 8 for result in results) > 3


@pytest.mark.slow
def test_composites_are_chained(conformance):
    _, examples = conformance
    found = examples["operators/chains"]
    assert max(len(chain.names) for chain in found) > 2
    for chain in found:
        calls = [expr for expr in ir.in_order(chain.composed.body) if isinstance(expr, ir.Call)]
        assert len(calls) == len(chain.names)
        np.testing.assert_array_equal(evaluate(chain.composed, chain.inputs), evaluate(chain.plain, chain.inputs))


@pytest.mark.slow
def test_it_conforms(conformance):
    results, _ = conformance
    assert not [result for result in results if result.outcome is Outcome.FAILED]
    passed = {result.id for result in results if result.outcome is Outcome.PASSED}
    composites = {f"operators/composite[{name}]" for name in ("conv", "matmul", "add", "max_pool")}
    levels = {"codegen/artifacts-are-whole", "runtime/keeps-to-its-buffers", "package/runs-elsewhere"}
    assert passed >= composites | levels
