"""Operators that a user defines are treated by what they declare, as built-in ones; without, they are left as they are."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from plugins.quantization.tests.nets import drawn, exact_weights, quantized, real
from tests.unit.lowering.oracle import lowered, run

from inlaid import ops
from inlaid.graph.interp import evaluate
from inlaid.graph.ir import Call, Expr, Function, constant, function, post_order, var
from inlaid.graph.operator import NO_TRAITS, Attrs, Choice, ErrorPropagation, FusionKind, Moves, Operator, Traits
from inlaid.graph.verify import verify
from inlaid.lowering.rewrites.unsigned_data import unsigned_data
from inlaid.ops.shape import PadAttrs
from inlaid.passes.canonicalize_quantized import quantize_integers
from inlaid.passes.fuse import PRIMITIVE, fuse
from inlaid.passes.integer_ranges import integer_ranges
from inlaid.passes.lower_precision import lower_precision
from inlaid.passes.simplify import simplify
from inlaid.passes.tables import tabulate
from inlaid.plugins import Capabilities
from inlaid.tensor import te
from inlaid.tensor.primitives import TensorIntrin
from inlaid.tensor.scheduling.dot_products import dot_product
from inlaid.tensor.scheduling.rule import KernelContext
from inlaid_runtime.types import TensorType

Array = np.ndarray[Any, Any]
WEIGHTS = constant(np.random.default_rng(0).uniform(-1, 1, (4, 4, 3, 3)).astype(np.float32))


def _mirrored(attrs: Attrs, x: te.Tensor) -> te.Tensor:
    result: te.Tensor = te.compute(x.shape, lambda *i: x[(*i[:-1], x.shape[-1] - 1 - i[-1])], "mirror")
    return result


def mirror(traits: Traits) -> Operator:
    """The last axis backwards."""
    return Operator(
        "acme.mirror",
        lambda attrs, x: x,
        reference=lambda attrs, x: x[..., ::-1].copy(),
        compute=_mirrored,
        fusion=FusionKind.INJECTIVE,
        traits=traits,
    )


def _framed_type(attrs: Attrs, x: TensorType, value: TensorType) -> TensorType:
    return TensorType((*x.shape[:2], *(dim + 2 for dim in x.shape[2:])), x.dtype)


def frame(traits: Traits) -> Operator:
    """A frame of one value around images."""
    return Operator(
        "acme.frame",
        _framed_type,
        reference=lambda attrs, x, value: np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)), constant_values=value),
        compute=lambda attrs, x, value: ops.pad.compute(PadAttrs((0, 0, 1, 1, 0, 0, 1, 1)), x, value),
        fusion=FusionKind.INJECTIVE,
        arity=(2, 2),
        traits=traits,
    )


def by_element(name: str, reference: Any, traits: Traits = NO_TRAITS, operands: int = 1) -> Operator:
    return Operator(
        f"acme.{name}",
        lambda attrs, x, *operands_after: x,
        reference=lambda attrs, *xs: reference(*xs).astype(xs[0].dtype),
        compute=lambda attrs, x, *operands_after: te.compute(x.shape, lambda *i: x[i], name),
        fusion=FusionKind.INJECTIVE,
        elementwise=True,
        arity=(operands, operands),
        traits=traits,
    )


MOVES = Traits(moves=Moves())
MIRROR, OPAQUE_MIRROR = mirror(MOVES), mirror(NO_TRAITS)


def calls(expr: Expr, operator: Operator) -> list[Call]:
    return [node for node in post_order(expr) if isinstance(node, Call) and node.callee is operator]


def dtype_name(expr: Expr) -> str:
    assert isinstance(expr.type, TensorType)
    return expr.type.dtype.name


def convolved(x: Expr) -> Expr:
    return ops.conv(x, WEIGHTS, pads=(1, 1, 1, 1))


# --- lower precision --------------------------------------------------------------------------------------------------

IMAGE = var("x", TensorType((1, 4, 6, 6), "float32"))


@pytest.mark.parametrize(
    ("traits", "narrow"),
    [
        (MOVES, True),
        (Traits(errors=ErrorPropagation.PRESERVES), True),
        (Traits(moves=Moves(by=Choice.INDEX)), False),
        (NO_TRAITS, False),
    ],
)
def test_what_moves_data_moves_bfloat16(traits: Traits, narrow: bool) -> None:
    operator = mirror(traits)
    result = simplify(lower_precision(function([IMAGE], convolved(operator(convolved(IMAGE))))))
    verify(result)
    (call,) = calls(result, operator)
    assert dtype_name(call) == ("bfloat16" if narrow else "float32")


@pytest.mark.parametrize(("errors", "exact"), [(ErrorPropagation.AMPLIFIES, True), (ErrorPropagation.DAMPS, False), (None, False)])
def test_what_amplifies_errors_reads_exact_values(errors: ErrorPropagation | None, exact: bool) -> None:
    operator = by_element("sharpen", lambda x: x**9, Traits(errors=errors))
    total = ops.relu(convolved(IMAGE))
    result = simplify(lower_precision(function([IMAGE], ops.add(convolved(total), convolved(operator(total))))))
    (call,) = calls(result, operator)
    assert (call.args[0] in calls(result, ops.relu)) == exact, "not rounded on the way"


def test_what_damps_errors_reads_rounded_values() -> None:
    for errors, exact in ((ErrorPropagation.DAMPS, False), (None, True)):
        operator = replace(mirror(Traits(errors=errors)), name="acme.norm")
        total = ops.relu(convolved(IMAGE))
        result = simplify(lower_precision(function([IMAGE], ops.add(operator(total), convolved(total)))))
        (call,) = calls(result, operator)
        assert dtype_name(call) == "float32"
        assert (call.args[0] in calls(result, ops.relu)) == exact


# --- fusion and lowering ----------------------------------------------------------------------------------------------


def fused(body: Expr, frugal: bool) -> list[list[str]]:
    """The names of the operators of each group."""
    fused_function = fuse(function([IMAGE], body), frugal=frugal)
    groups = (e for e in post_order(fused_function) if isinstance(e, Function) and PRIMITIVE in e.attrs)
    return [
        [e.callee.name for e in post_order(group) if isinstance(e, Call) and isinstance(e.callee, Operator)] for group in groups
    ]


@pytest.mark.parametrize(("traits", "joins"), [(Traits(moves=Moves(fill=1)), True), (MOVES, False)])
def test_padding_is_left_to_convolutions_where_memory_is_scarce(traits: Traits, joins: bool) -> None:
    body = ops.conv(frame(traits)(IMAGE, constant(np.float32(0))), WEIGHTS)
    assert fused(body, frugal=True) == ([["acme.frame", "conv"]] if joins else [])
    assert fused(body, frugal=False) == []


def _flat_type(attrs: Attrs, x: TensorType) -> TensorType:
    return TensorType((int(np.prod(x.shape)),), x.dtype)  # type: ignore[arg-type]


def test_views_take_no_kernel() -> None:
    def flat(traits: Traits) -> Operator:
        return Operator(
            "acme.flat", _flat_type, reference=lambda attrs, x: x.reshape(-1), fusion=FusionKind.INJECTIVE, traits=traits
        )

    view = flat(Traits(moves=Moves(), view=True))
    unit = function([IMAGE], ops.exp(view(ops.neg(IMAGE))))
    region = lowered(unit)
    assert [region.kernels[call.kernel].name for call in region.calls] == ["neg", "exp"]
    data = np.random.default_rng(1).normal(size=(1, 4, 6, 6)).astype(np.float32)
    np.testing.assert_allclose(run(region, [data])[0], np.exp(-data).reshape(-1), rtol=1e-6)


# --- integers ---------------------------------------------------------------------------------------------------------

BYTES = var("x", TensorType((1, 2, 4, 4), "int8"))
LIMITED = ops.clip(BYTES, minimum=-5.0, maximum=9.0)


@pytest.mark.parametrize(
    ("expr", "expected"),
    [
        (MIRROR(LIMITED), (-5, 9)),
        (OPAQUE_MIRROR(LIMITED), (-128, 127)),
        (frame(Traits(moves=Moves(fill=1)))(LIMITED, constant(np.int8(40))), (-5, 40)),
        (ops.concat(LIMITED, ops.clip(BYTES, minimum=20.0, maximum=30.0), axis=1), (-5, 30)),
        (by_element("halve", lambda x: x // 2, Traits(monotone=True))(LIMITED), (-3, 4)),
        (by_element("halve", lambda x: x // 2)(LIMITED), (-128, 127)),
        (replace(by_element("halve", lambda x: x // 2, Traits(monotone=True)), reference=None)(LIMITED), (-128, 127)),
        (by_element("grow", lambda x, y: x + y, Traits(monotone=True), 2)(LIMITED, constant(np.int8(3))), (-2, 12)),
        (by_element("mean", lambda x: x, Traits(interval=lambda x: (x[0] - 1, x[1] + 1)))(LIMITED), (-6, 10)),
        (by_element("wrap", lambda x: x, Traits(interval=lambda x: (x[0] - 1, x[1] + 119)))(LIMITED), (-128, 127)),
        (by_element("mean", lambda x: x, Traits(interval=lambda x: None))(LIMITED), (-128, 127)),
    ],
)
def test_ranges_of_integers(expr: Expr, expected: tuple[int, int]) -> None:
    interval = integer_ranges(expr)[id(expr)]
    assert (interval.low.min(), interval.high.max()) == expected


def test_monotone_with_parameters_of_its_own_shape_is_not_followed() -> None:
    grow = by_element("grow", lambda x, y: x + y, Traits(monotone=True), 2)
    expr = grow(LIMITED, constant(np.ones((2, 1, 1), np.int8)))
    assert integer_ranges(expr)[id(expr)].low.min() == -128


def test_chains_with_what_is_expensive_become_tables() -> None:
    def chain(traits: Traits) -> Function:
        value = by_element("curve", lambda x: x * x, traits)(ops.dequantize(BYTES, constant(np.float32(0.1)), dtype="float32"))
        return function([BYTES], ops.quantize(value, constant(np.float32(0.2)), dtype="int8"))

    assert not calls(tabulate(chain(NO_TRAITS)), ops.take)
    unit = chain(Traits(expensive=True))
    changed = tabulate(unit)
    assert calls(changed, ops.take)
    data = np.random.default_rng(2).integers(-128, 128, (1, 2, 4, 4)).astype(np.int8)
    np.testing.assert_array_equal(evaluate(changed, [data]), evaluate(unit, [data]))


def requantized(moved: Expr) -> Expr:
    return ops.quantize(moved, constant(np.float32(0.5)), constant(np.int8(3)), dtype="int8")


@pytest.mark.parametrize(
    ("operator", "inside"),
    [
        (MIRROR, True),
        (OPAQUE_MIRROR, False),
        (mirror(Traits(moves=Moves(by=Choice.ORDER))), True),
        (ops.reduce_max, True),
        (ops.reduce_sum, False),
    ],
)
def test_moves_between_quantizations_are_of_integers(operator: Operator, inside: bool) -> None:
    dequantized_input = ops.dequantize(BYTES, constant(np.float32(0.5)), constant(np.int8(3)), dtype="float32")
    attrs = {"axes": (3,)} if operator in (ops.reduce_max, ops.reduce_sum) else {}
    unit = function([BYTES], requantized(operator(dequantized_input, **attrs)))
    changed = quantize_integers(unit)
    verify(changed)
    (call,) = calls(changed, operator)
    assert dtype_name(call) == ("int8" if inside else "float32")
    data = np.random.default_rng(3).integers(-128, 128, (1, 2, 4, 4)).astype(np.int8)
    np.testing.assert_array_equal(evaluate(changed, [data]), evaluate(unit, [data]))


def test_what_fills_does_not_commute_with_dequantization() -> None:
    operator = frame(Traits(moves=Moves(fill=1)))
    dequantized_input = ops.dequantize(BYTES, constant(np.float32(0.5)), constant(np.int8(3)), dtype="float32")
    changed = quantize_integers(function([BYTES], requantized(operator(dequantized_input, constant(np.float32(0))))))
    assert dtype_name(calls(changed, operator)[0]) == "float32"


@pytest.mark.parametrize(("operator", "follows"), [(MIRROR, True), (OPAQUE_MIRROR, False)])
def test_bytes_without_a_sign_are_moved(operator: Operator, follows: bool) -> None:
    dot = TensorIntrin("dot.uint8", dot_product("uint8", "int8", "int32", 16, 4))
    weights = constant(np.random.default_rng(4).integers(-9, 9, (4, 2, 1, 1)).astype(np.int8))
    unit = function([BYTES], ops.conv(operator(LIMITED), weights, out_dtype="int32"))
    changed = unsigned_data(unit, KernelContext(Capabilities((), vector_bits=512), 1, (dot,)))
    verify(changed)
    (call,) = calls(changed, operator)
    assert dtype_name(call) == ("uint8" if follows else "int8")
    data = np.random.default_rng(5).integers(-128, 128, (1, 2, 4, 4)).astype(np.int8)
    np.testing.assert_array_equal(evaluate(changed, [data]), evaluate(unit, [data]))


# --- quantization -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("operator", "moved"), [(MIRROR, True), (OPAQUE_MIRROR, False)])
def test_moves_are_quantized(operator: Operator, moved: bool) -> None:
    generator, x = np.random.default_rng(6), real("x", 1, 4, 6, 6)
    body = ops.conv(operator(ops.conv(x, exact_weights(generator, 4, 4, 3, 3))), exact_weights(generator, 4, 4, 3, 3))
    main = function([x], body)
    quantized_model = quantized(main, drawn(main))
    verify(quantized_model)
    (call,) = calls(quantized_model.main, operator)
    assert dtype_name(call) == ("int8" if moved else "float32")
    assert [layer.why for layer in quantized_model.report.floats] == ([] if moved else ["it has no integer implementation"])


def test_the_value_that_fills_is_quantized() -> None:
    generator = np.random.default_rng(7)
    x, operator = real("x", 1, 4, 6, 6), frame(Traits(moves=Moves(fill=1)))
    inner = operator(ops.conv(x, exact_weights(generator, 4, 4, 3, 3)), constant(np.float32(0.5)))
    main = function([x], ops.conv(inner, exact_weights(generator, 4, 4, 3, 3)))
    quantized_model = quantized(main, drawn(main))
    (call,) = calls(quantized_model.main, operator)
    assert [dtype_name(arg) for arg in call.args] == ["int8", "int8"]
    for sample in drawn(main, seed=8):
        expected = evaluate(main, sample)
        assert np.abs(evaluate(quantized_model, sample) - expected).max() < 0.1 * np.abs(expected).max()


# --- algebra ----------------------------------------------------------------------------------------------------------


def test_idempotent_operators_and_involutions() -> None:
    once, flip, plain = (
        by_element("once", np.abs, Traits(idempotent=True)),
        by_element("flip", np.negative, Traits(involution=True)),
        by_element("plain", np.abs),
    )
    either = by_element("either", np.maximum, Traits(idempotent=True), 2)
    x = IMAGE

    def simplified(body: Expr) -> Expr:
        return simplify(function([x], body)).body

    inner = once(x)
    assert simplified(once(once(inner))) is inner
    assert simplified(flip(flip(x))) is x
    assert simplified(either(x, x)) is x
    for body in (plain(plain(x)), once(plain(x)), once(flip(x)), either(x, inner), either(once(x), inner)):
        assert simplified(body) is body
