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
        results = executable.run(dict(zip(names, inputs, strict=True)))
        expected = evaluate(function, list(inputs))
    for a, b in zip(results.values(), expected if isinstance(expected, tuple) else (expected,), strict=True):
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
    size_limit = data.draw(st.sampled_from([10, 100, 10**6]))
    target = Narrow(claimed, DTYPES, lambda call: all(np.prod(item.type.shape) <= size_limit for item in (call, *call.args)), facts)
    holds(target, graph.function, graph.inputs)


def calls(function: ir.Function) -> list[ir.Call]:
    return [e for e in ir.post_order(function) if isinstance(e, ir.Call) and isinstance(e.callee, Operator)]


RNG = np.random.default_rng(0)


def tensor(*shape: int, dtype_name: str = "float32") -> ir.Var:
    return ir.var("x", TensorType(shape, dtype_name))


def small_integers(*shape: int, dtype_name: str = "float32") -> ir.Constant:
    """Small integers."""
    return ir.constant(RNG.integers(-2, 3, shape).astype(dtype_name))


def scaled(x: ir.Expr, scale: float, operator: Any, **attrs: Any) -> ir.Expr:
    return operator(x, ir.constant(np.float32(scale)), ir.constant(np.int8(3)), **attrs)


def bytes_() -> ir.Function:
    x = tensor(3, 5, dtype_name="int8")
    real = ops.tanh(scaled(x, 0.25, ops.dequantize, dtype="float32"))
    return ir.function([x], scaled(real, 0.125, ops.quantize, dtype="int8"))


def fixed() -> ir.Function:
    x = tensor(7, dtype_name="int32")
    return ir.function([x], ops.multiply_fixed(x, ir.constant(np.int32(1 << 30)), ir.constant(np.int32(-4))))


def convolution(inputs: int, outputs: int, size: int, window: int, groups: int = 1, dtype_name: str = "float32") -> ir.Function:
    x = tensor(1, inputs, size, size, dtype_name=dtype_name)
    weights = small_integers(outputs, inputs // groups, window, window, dtype_name=dtype_name)
    attrs = {} if dtype_name == "float32" else {"out_dtype": "int32"}
    body = ops.conv(x, weights, pads=(window // 2,) * 4, groups=groups, **attrs)
    return ir.function([x], ops.add(body, small_integers(outputs, 1, 1, dtype_name=attrs.get("out_dtype", dtype_name))))


def dots(*data: tuple[str, int]) -> tuple[TensorIntrin, ...]:
    return tuple(
        TensorIntrin(f"dot.{dtype_name}", dot_product(dtype_name, "int8", "int32", 8, group)) for dtype_name, group in data
    )


REWRITES = [
    pytest.param(bytes_(), {}, (), "take", id="tabulate"),
    pytest.param(fixed(), VECTORS, (), "multiply_high", id="fixed_products"),
    pytest.param(convolution(4, 6, 8, 1), {**VECTORS, "peak": 1e9, "bandwidth": 1e12}, (), "matmul", id="pointwise_products"),
    pytest.param(convolution(8, 4, 9, 3), WIDE, (), "unfold", id="unfolded windows"),
    pytest.param(convolution(8, 4, 12, 3), VECTORS, (), "winograd_conv", id="tiles"),
    pytest.param(convolution(8, 8, 4, 3), VECTORS, (), "relayout", id="layouts"),
    pytest.param(
        convolution(8, 8, 4, 3, dtype_name="int8"), VECTORS, dots(("uint8", 4), ("int8", 2)), "bitwise_xor", id="unsigned_data"
    ),
]


@pytest.mark.parametrize(("function", "facts", "intrinsics", "new_operator"), REWRITES)
def test_rewrites_are_of_claimed_operators(function: ir.Function, facts: Any, intrinsics: Any, new_operator: str) -> None:
    """A target that claims all has the operator that a rewrite makes; one that claims the model's operators alone has not, and runs
    them as they are."""
    x = function.params[0].type
    assert isinstance(x, TensorType)
    inputs = [RNG.integers(-3, 4, x.shape).astype(x.dtype.numpy)]
    model_operators = {call.callee.name for call in calls(function)}  # type: ignore[union-attr]
    everything = frozenset({*ops.TABLE, new_operator})
    for claimed in (everything, frozenset(model_operators)):
        target = Narrow(claimed, DTYPES, facts=facts, intrinsics=intrinsics)
        holds(target, function, inputs)
        ((_, program),) = target.regions.items()
        operators = {name for item in program.schedules for name in item.operators} | {kernel.name for kernel in program.kernels}
        assert (new_operator in operators) == (claimed is everything)


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
    for function, facts, intrinsics, new_operator in (case.values for case in REWRITES):
        model_operators = frozenset(call.callee.name for call in calls(function))
        target = Narrow(model_operators, DTYPES, facts=facts, intrinsics=intrinsics)
        with contextlib.suppress(PluginError):
            build_package(ir.Module({"main": function}), [KIND], target.registry(), keep=False)
            continue
        refused.append(new_operator)
    assert refused == REFUSED[name]
