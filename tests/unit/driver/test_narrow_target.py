"""Lowering makes nothing that its target does not claim: random graphs on targets of random claims."""

from __future__ import annotations

import contextlib
import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inlaid import ops
from inlaid.driver import loop_lowering
from inlaid.driver.compile import build_package, compile_module
from inlaid.graph import ir
from inlaid.graph.interp import evaluate
from inlaid.graph.operator import Operator
from inlaid.lowering.rewrites import pipeline as rewrites
from inlaid.tensor.primitives import TensorIntrin
from inlaid.tensor.scheduling.dot_products import dot_product
from inlaid_conformance.corpus import CORPUS
from inlaid_conformance.graphs import grown
from inlaid_runtime.errors import PluginError
from inlaid_runtime.types import TensorType

from .narrow_target import KIND, Narrow

DTYPES = ("float32", "int8", "uint8", "int32", "bool")
ENTRIES = [entry for entry in CORPUS if entry.exact and {*entry.dtypes} & {*DTYPES} and entry.operator.compute is not None]
VECTORS = {"vector_bits": 256, "peak": 1e11, "bandwidth": 1e10}
WIDE = {"vector_bits": 512, "vector_registers": 32, "peak": 2.5e11, "bandwidth": 3e11}


def holds(target: Narrow, function: ir.Function, inputs: Any) -> None:
    """A function compiled for a target, and for the reference where that claims nothing, gives what the interpreter gives."""
    module = ir.Module({"main": function})
    executable = compile_module(module, [KIND], target.registry(), keep=False)
    names = [param.name for param in function.params]
    with np.errstate(all="ignore"):
        found = executable.run(dict(zip(names, inputs, strict=True)))
        wanted = evaluate(function, list(inputs))
    for a, b in zip(found.values(), wanted if isinstance(wanted, tuple) else (wanted,), strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-3 if b.dtype.kind == "f" else 0)  # tiles round sums on the way


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_random_graphs_on_random_claims(data) -> None:
    choose = random.Random(data.draw(st.integers(0, 1 << 32))).randrange
    graph = grown(choose, ENTRIES, lambda call: all(item.type.dtype.name in DTYPES for item in (call, *call.args)))
    if graph is None:
        return
    names = sorted({call.callee.name for call in calls(graph.function)})
    claimed = frozenset(data.draw(st.sets(st.sampled_from(names))))
    facts = data.draw(st.sampled_from([{}, VECTORS]))
    most = data.draw(st.sampled_from([10, 100, 10**6]))
    target = Narrow(claimed, DTYPES, lambda call: all(np.prod(item.type.shape) <= most for item in (call, *call.args)), facts)
    holds(target, graph.function, graph.inputs)


def calls(function: ir.Function) -> list[ir.Call]:
    return [e for e in ir.post_order(function) if isinstance(e, ir.Call) and isinstance(e.callee, Operator)]


RNG = np.random.default_rng(0)


def tensor(*shape: int, of: str = "float32") -> ir.Var:
    return ir.var("x", TensorType(shape, of))


def whole(*shape: int, of: str = "float32") -> ir.Constant:
    """Small integers."""
    return ir.constant(RNG.integers(-2, 3, shape).astype(of))


def scaled(x: ir.Expr, scale: float, operator: Any, **attrs: Any) -> ir.Expr:
    return operator(x, ir.constant(np.float32(scale)), ir.constant(np.int8(3)), **attrs)


def bytes_() -> ir.Function:
    x = tensor(3, 5, of="int8")
    real = ops.tanh(scaled(x, 0.25, ops.dequantize, dtype="float32"))
    return ir.function([x], scaled(real, 0.125, ops.quantize, dtype="int8"))


def fixed() -> ir.Function:
    x = tensor(7, of="int32")
    return ir.function([x], ops.multiply_fixed(x, ir.constant(np.int32(1 << 30)), ir.constant(np.int32(-4))))


def convolution(inputs: int, outputs: int, size: int, window: int, groups: int = 1, of: str = "float32") -> ir.Function:
    x = tensor(1, inputs, size, size, of=of)
    weights = whole(outputs, inputs // groups, window, window, of=of)
    attrs = {} if of == "float32" else {"out_dtype": "int32"}
    body = ops.conv(x, weights, pads=(window // 2,) * 4, groups=groups, **attrs)
    return ir.function([x], ops.add(body, whole(outputs, 1, 1, of=attrs.get("out_dtype", of))))


def dots(*data: tuple[str, int]) -> tuple[TensorIntrin, ...]:
    return tuple(TensorIntrin(f"dot.{of}", dot_product(of, "int8", "int32", 8, group)) for of, group in data)


REWRITES = [
    pytest.param(bytes_(), {}, (), "take", id="tabulate"),
    pytest.param(fixed(), VECTORS, (), "multiply_high", id="fixed_products"),
    pytest.param(convolution(4, 6, 8, 1), {**VECTORS, "peak": 1e9, "bandwidth": 1e12}, (), "matmul", id="pointwise_products"),
    pytest.param(convolution(8, 4, 9, 3), WIDE, (), "unfold", id="unfolded windows"),
    pytest.param(convolution(8, 4, 12, 3), VECTORS, (), "winograd_conv", id="tiles"),
    pytest.param(convolution(8, 8, 4, 3), VECTORS, (), "relayout", id="layouts"),
    pytest.param(convolution(8, 8, 4, 3, of="int8"), VECTORS, dots(("uint8", 4), ("int8", 2)), "bitwise_xor", id="unsigned_data"),
]


@pytest.mark.parametrize(("function", "facts", "intrinsics", "made"), REWRITES)
def test_rewrites_are_of_claimed_operators(function: ir.Function, facts: Any, intrinsics: Any, made: str) -> None:
    """A target that claims all has the operator that a rewrite makes; one that claims the model's operators alone has not, and runs
    them as they are."""
    x = function.params[0].type
    assert isinstance(x, TensorType)
    inputs = [RNG.integers(-3, 4, x.shape).astype(x.dtype.numpy)]
    own = {call.callee.name for call in calls(function)}  # type: ignore[union-attr]
    everything = frozenset({*ops.TABLE, made})
    for claimed in (everything, frozenset(own)):
        target = Narrow(claimed, DTYPES, facts=facts, intrinsics=intrinsics)
        holds(target, function, inputs)
        ((_, program),) = target.regions.items()
        found = {name for item in program.schedules for name in item.operators} | {kernel.name for kernel in program.kernels}
        assert (made in found) == (claimed is everything)


REFUSED = {
    "unsigned_data": ["bitwise_xor"],
    "fixed_products": ["multiply_high"],
    "choose_convolution": ["unfold", "winograd_conv"],
    "pointwise_products": ["matmul"],
    "tabulate": ["take"],
}
"""What a target that claims a model's operators alone refuses of `REWRITES`, by the rewrite that does not ask."""


@pytest.mark.parametrize("name", REFUSED)
def test_rewrites_that_do_not_ask_are_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The target refuses what each rewrite makes where it does not ask for claims."""
    module = loop_lowering if name == "choose_convolution" else rewrites
    rewrite = getattr(module, name)
    monkeypatch.setattr(module, name, lambda function, *target, supports=None, **options: rewrite(function, *target[:1], **options))
    refused = []
    for function, facts, intrinsics, made in (case.values for case in REWRITES):
        own = frozenset(call.callee.name for call in calls(function))
        target = Narrow(own, DTYPES, facts=facts, intrinsics=intrinsics)
        with contextlib.suppress(PluginError):
            build_package(ir.Module({"main": function}), [KIND], target.registry(), keep=False)
            continue
        refused.append(made)
    assert refused == REFUSED[name]
