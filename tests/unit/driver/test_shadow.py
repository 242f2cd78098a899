"""Shadow mode finds the operator that a target gets wrong, and nothing where it gets all right."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.unit.partitioning.fakes import make_registry, taking

from inlaid import ops
from inlaid.driver.deviation import deviation
from inlaid.driver.shadow import shadow
from inlaid.graph import ir
from inlaid.graph.ir import Span
from inlaid.graph.pattern import is_op, wildcard
from inlaid.plugins import Conformance, Loaded, OpRule, RuntimeModule, Tolerance
from inlaid.plugins.registry import PluginRegistry
from inlaid_runtime.types import TensorType

X = ir.var("x", TensorType((2, 3), "float32"))
INPUTS = {"x": np.array([[-1, 2, -3], [4, -5, 6]], np.float32)}


def model() -> ir.Module:
    turned = ops.neg(ops.relu(X, span=Span("m", "act")), span=Span("m", "turn"))
    top = ops.topk(turned, k=2, axis=1, span=Span("m", "top"))
    body = ops.add(ops.exp(ir.tuple_item(top, 0), span=Span("m", "exp")), ir.constant(np.float32(1)))
    return ir.Module({"main": ir.function([X], body)})


def test_all_is_right() -> None:
    judges = {"a": taking("relu", "add", "topk"), "b": taking("neg")}
    comparison = shadow(model(), INPUTS, list(judges), make_registry(judges))
    assert comparison.difference is None and comparison.compared == 5
    (result,) = comparison.outputs
    np.testing.assert_allclose(result, np.exp(np.array([[0, 0], [0, -4]], np.float32)) + 1, rtol=1e-6)


def test_x86_is_right() -> None:
    pytest.importorskip("inlaid_x86", reason="needs the x86 target: pip install -e plugins/x86")
    comparison = shadow(model(), INPUTS, ["x86:threads=1"])
    assert comparison.difference is None and comparison.compared == 1


@pytest.mark.parametrize(("wrong", "node"), [("neg", "turn"), ("topk", "top"), ("exp", "exp")])
def test_the_operator_that_is_wrong_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, wrong: str, node: str) -> None:
    judges = {"a": taking("relu", "neg", "exp", "add", "topk")}
    registry = make_registry(judges)
    _sabotage(monkeypatch, registry, lambda code: f"{wrong}(" in code)
    difference = shadow(model(), INPUTS, ["a"], registry).difference
    assert difference is not None
    assert (difference.unit, difference.nodes, difference.target) == (wrong, (f"m:{node}",), "a")
    assert f"{wrong} at m:{node}" in str(difference)
    difference.save(tmp_path / "inputs.npz")
    with np.load(tmp_path / "inputs.npz") as saved:
        assert saved["x0"].shape[0] == 2


def test_a_region_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    judges = {"a": taking("relu")}
    registry = make_registry(judges)
    _sabotage(monkeypatch, registry, lambda code: "relu(" in code, fails=True)
    difference = shadow(model(), INPUTS, ["a"], registry).difference
    assert difference is not None and difference.unit == "relu" and "failed: " in difference.error


def composed() -> tuple[ir.Module, PluginRegistry]:
    """A model in one region of target a, and its registry: relu, then exp and neg, which a takes as one, then tanh."""
    inner = ops.exp(ops.relu(X, span=Span("m", "act")), span=Span("m", "exp"))
    body = ops.tanh(ops.neg(inner, span=Span("m", "turn")), span=Span("m", "size"))
    pair = OpRule(is_op("neg")(is_op("exp")(wildcard())), "pair")
    registry = make_registry({"a": (pair, OpRule("relu"), OpRule("tanh"))})
    return ir.Module({"main": ir.function([X], body)}), registry


def test_a_composite_is_one_unit(monkeypatch: pytest.MonkeyPatch) -> None:
    """A target that is wrong about exp without neg is right about the two, so tanh behind them is what is wrong."""
    module, registry = composed()
    _sabotage(monkeypatch, registry, lambda code: "tanh(" in code or ("exp(" in code and "neg(" not in code))
    difference = shadow(module, INPUTS, ["a"], registry).difference
    assert difference is not None and (difference.unit, difference.nodes) == ("tanh", ("m:size",))


def test_a_composite_that_is_wrong_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    module, registry = composed()
    _sabotage(monkeypatch, registry, lambda code: "exp(" in code or "tanh(" in code)
    difference = shadow(module, INPUTS, ["a"], registry).difference
    assert difference is not None and difference.unit == "composite pair"
    assert "composite pair at m:exp, m:turn" in str(difference)


def test_what_is_wrong_only_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    module, registry = composed()
    _sabotage(monkeypatch, registry, lambda code: "relu(" in code and "tanh(" in code)
    difference = shadow(module, INPUTS, ["a"], registry).difference
    assert difference is not None and not difference.unit and "although each operator alone is within tolerance" in str(difference)


def test_a_loop_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A region that is a whole loop is one unit."""
    state, index = ir.var("s", TensorType((), "float32")), ir.var("i", TensorType((), "int64"))
    step = ir.function([index, state], ir.tuple_([ir.constant(np.bool_(True)), ops.neg(state, span=Span("m", "turn"))]))
    first = ir.var("x", TensorType((), "float32"))
    loop = ir.loop(step, state=(first,), trip_count=ir.constant(np.int64(3)))
    registry = make_registry({"a": taking("neg")}, control_flow=True)
    _sabotage(monkeypatch, registry, lambda code: "neg(" in code)
    comparison = shadow(
        ir.Module({"main": ir.function([first], ir.tuple_item(loop, 0))}), {"x": np.array(2, np.float32)}, ["a"], registry
    )
    assert comparison.difference is not None and comparison.difference.unit == "loop"


@pytest.mark.parametrize("declared", [(), ("",), ("relu",), ("", "relu")])
def test_integers_may_differ_by_the_steps_that_are_declared(monkeypatch: pytest.MonkeyPatch, declared: tuple[str, ...]) -> None:
    """A target that adds one to its results, in a region of two operators."""
    x = ir.var("x", TensorType((3,), "int8"))
    body = ops.neg(ops.relu(x, span=Span("m", "act")), span=Span("m", "turn"))
    registry = make_registry({"a": taking("relu", "neg")}, ("int8",))
    _sabotage(monkeypatch, registry, lambda code: "relu(" in code)
    tolerances = tuple(Tolerance("int8", steps=1, operator=name) for name in declared)
    monkeypatch.setattr(registry, "conformance", lambda target: Conformance(tolerances))
    difference = shadow(ir.Module({"main": ir.function([x], body)}), {"x": np.arange(3, dtype=np.int8)}, ["a"], registry).difference
    if "" in declared:
        assert difference is None  # the whole region is within its tolerance
    else:
        assert difference is not None and difference.unit == ("" if "relu" in declared else "relu")
        assert difference.error == "3 of 3 elements, by up to 1 steps"


@pytest.mark.parametrize(
    ("dtype_name", "steps"), [("int8", 255), ("uint8", 255), ("int64", (1 << 64) - 1), ("uint64", (1 << 64) - 1)]
)
def test_how_far_integers_are_apart(dtype_name: str, steps: int) -> None:
    type_ = TensorType((2,), dtype_name)
    limits = np.array([np.iinfo(dtype_name).min, np.iinfo(dtype_name).max], dtype_name)
    assert deviation(type_, limits, limits[::-1]).error == f"2 of 2 elements, by up to {steps} steps"
    neighbors = limits + np.array([1, -1]).astype(dtype_name)
    assert deviation(type_, limits, neighbors, Tolerance(dtype_name, steps=1)).error is None
    assert deviation(type_, limits, neighbors + np.array([1, 0], dtype_name), Tolerance(dtype_name, steps=1)).error == (
        "1 of 2 elements, by up to 2 steps, expected at most 1"
    )


def test_deviations_have_magnitudes_and_places() -> None:
    type_ = TensorType((2, 3), "float32")
    expected = np.array([[1, 2, 4], [0, np.nan, np.inf]], np.float32)
    off = expected + np.array([[0, 1, 0], [-0.5, 0, 0]], np.float32)
    error = deviation(type_, expected, off)
    assert (error.worst, error.relative, error.at, error.unlike, error.size) == (1, 0.25, (0, 1), 2, 6)
    assert error.error == "by 1, expected at most 0.00401" and error.excess > 200
    assert str(error) == "at most 1 (0.25 of the greatest value) at [0, 1], 2 of 6 elements differ"
    within = deviation(type_, expected, off, Tolerance("float32", absolute=2.0))
    assert within.error is None and within.excess == 0.5 and within.worst == 1
    lost = deviation(type_, expected, np.nan_to_num(expected))
    assert lost.error == str(lost) == "NaN or infinity at different places" and lost.at == (1, 1)
    assert str(deviation(type_, expected, expected)) == "no difference"
    steps = deviation(TensorType((3,), "int8"), np.array([5, 6, 7], np.int8), np.array([5, 9, 6], np.int8))
    assert str(steps) == "at most 3 steps at [1], 2 of 3 elements differ"


def test_all_regions_are_compared_the_worst_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """A target that is wrong in two of its three regions: what comes before and after is compared as well."""
    x = ir.var("x", TensorType((3,), "int8"))
    body = ops.abs(ops.relu(ops.neg(ops.abs(x, span=Span("m", "size")))), span=Span("m", "again"))
    body = ops.relu(ops.neg(body), span=Span("m", "end"))
    registry = make_registry({"a": taking("abs", "relu"), "b": taking("neg")}, ("int8",))
    _sabotage(monkeypatch, registry, lambda code: "abs(" in code, change=lambda value: value + 3)
    comparison = shadow(ir.Module({"main": ir.function([x], body)}), {"x": np.arange(3, dtype=np.int8)}, ["a", "b"], registry)
    assert comparison.compared == len(comparison.regions) == 5
    wrong = [region for region in comparison.regions if region.difference is not None]
    assert wrong == list(comparison.regions[: len(wrong)]) and len(wrong) == 2
    nodes = {region.difference.nodes for region in wrong}  # type: ignore[union-attr]
    assert comparison.difference is wrong[0].difference and nodes == {("m:size",), ("m:again",)}
    assert all(region.deviation.worst == 3 and "at most 3 steps at [0], 3 of 3" in str(region) for region in wrong)
    assert not any(region.deviation.unlike for region in comparison.regions[2:])


def test_a_region_that_runs_often_shows_its_worst_run(monkeypatch: pytest.MonkeyPatch) -> None:
    state, index = ir.var("s", TensorType((), "int32")), ir.var("i", TensorType((), "int64"))
    step = ir.function([index, state], ir.tuple_([ir.constant(np.bool_(True)), ops.mul(state, ir.constant(np.int32(3)))]))
    first = ir.var("x", TensorType((), "int32"))
    loop = ir.loop(step, state=(first,), trip_count=ir.constant(np.int64(3)))
    registry = make_registry({"a": taking("mul")}, ("int32", "int64", "bool"))
    _sabotage(monkeypatch, registry, lambda code: "mul(" in code, change=lambda value: value // 2)
    comparison = shadow(
        ir.Module({"main": ir.function([first], ir.tuple_item(loop, 0))}), {"x": np.array(2, np.int32)}, ["a"], registry
    )
    (region,) = [region for region in comparison.regions if region.target == "a"]
    assert region.runs == 3 and region.deviation.worst == 27  # 54 in the last round, half of it
    assert region.difference is not None and region.difference.inputs["p0"] == 18


def _sabotage(
    monkeypatch: pytest.MonkeyPatch,
    registry: Any,
    wrong: Callable[[str], bool],
    *,
    fails: bool = False,
    change: Callable[[Any], Any] = lambda value: value + 1,
) -> None:
    """Let target a change every result of kernels whose code is wrong, or fail there."""
    real = registry.runtime

    class Wrong(RuntimeModule):
        def __init__(self, inner: Any) -> None:
            self.inner = inner

        def check(self, artifact: Any) -> str | None:
            return self.inner.check(artifact)  # type: ignore[no-any-return]

        def load(self, artifact: Any, constants: Mapping[str, Any]) -> Any:
            loaded = self.inner.load(artifact, constants)
            if not wrong(artifact.code.decode()):
                return loaded

            class Kernel:
                def call(self, inputs: Any) -> Any:
                    if fails:
                        raise RuntimeError("out of order")
                    return [np.asarray(change(item), item.dtype) for item in loaded.allocating.call(inputs)]

            return Loaded(allocating=Kernel())

    def runtime(target: Any, *args: Any, **kwargs: Any) -> Any:
        module = real(target, *args, **kwargs)
        return Wrong(module) if target.kind == "a" else module

    monkeypatch.setattr(registry, "runtime", runtime)
