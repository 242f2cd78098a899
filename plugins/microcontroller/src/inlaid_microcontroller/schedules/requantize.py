"""Requantization, the epilogue of most integer kernels: int8(clamp((sum + bias) * fixed-point factor + zero point))."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from inlaid.ops.fixed_point import fixed_value
from inlaid.tensor import ir
from inlaid.tensor.analysis.keys import structurally_equal
from inlaid.tensor.primitives import TensorIntrin
from inlaid.tensor.scheduling.rule import KernelContext
from inlaid_runtime import arith
from inlaid_runtime.arith import Var
from inlaid_runtime.types import dtype

INT8, INT32 = dtype("int8"), dtype("int32")
ROUNDINGS = ("up", "away")


@dataclass(frozen=True)
class Requantized:
    """A matched requantization. bias, multiplier, shift: buffers with one number per output channel. rounding: see
    `inlaid.ops.fixed_point`. zero, low, high: zero point and limits of the result."""

    bias: ir.Buffer
    multiplier: ir.Buffer
    shift: ir.Buffer
    rounding: str
    zero: int
    low: int
    high: int


@cache
def requantization(lanes: int, rounding: str) -> ir.LoopProgram:
    """Return the semantics of the intrinsic that requantizes `lanes` sums."""
    total, bias, multiplier, shift = (ir.Buffer(name, (lanes,), INT32) for name in ("total", "bias", "multiplier", "shift"))
    zero, low, high = (ir.Buffer(name, (), INT32) for name in ("zero", "low", "high"))
    out, i = ir.Buffer("out", (lanes,), INT8), Var("i")
    loads = (ir.load(buffer, (i,)) for buffer in (total, bias, multiplier, shift))
    value = requantized_value(*loads, *(ir.load(scalar, ()) for scalar in (zero, low, high)), rounding=rounding)
    body = ir.For(i, arith.wrap(lanes), ir.Store(out, (i,), value))
    return ir.LoopProgram("requantize", (total, bias, multiplier, shift, zero, low, high), (out,), body)


@cache
def rescaling(rows: int, lanes: int, rounding: str) -> ir.LoopProgram:
    """Return the semantics of the intrinsic that requantizes `rows` (pixels) of `lanes` sums, initialized with their biases."""
    total = ir.Buffer("total", (rows, lanes), INT32)
    multiplier, shift = (ir.Buffer(name, (lanes,), INT32) for name in ("multiplier", "shift"))
    zero, low, high = (ir.Buffer(name, (), INT32) for name in ("zero", "low", "high"))
    outs, i = tuple(ir.Buffer(f"out{row}", (lanes,), INT8) for row in range(rows)), Var("i")
    stores = []
    for row, out in enumerate(outs):
        sum_ = ir.load(total, (arith.wrap(row), i))
        value = fixed_value(sum_, ir.load(multiplier, (i,)), ir.load(shift, (i,)), rounding)
        stores.append(ir.Store(out, (i,), _limited(value, *(ir.load(scalar, ()) for scalar in (zero, low, high)))))
    body = ir.For(i, arith.wrap(lanes), ir.Seq(tuple(stores)))
    return ir.LoopProgram("rescale", (total, multiplier, shift, zero, low, high), outs, body)


def requantized_value(
    total: ir.Expr, bias: ir.Expr, multiplier: ir.Expr, shift: ir.Expr, zero: ir.Expr, low: ir.Expr, high: ir.Expr, *, rounding: str
) -> ir.Expr:
    """Return the expression that requantizes a sum."""
    return _limited(_value(total, bias, multiplier, shift, rounding=rounding), zero, low, high)


def _limited(value: ir.Expr, zero: ir.Expr, low: ir.Expr, high: ir.Expr) -> ir.Expr:
    return ir.cast(ir.minimum(ir.maximum(value + zero, low), high), INT8)


def _value(total: ir.Expr, bias: ir.Expr, multiplier: ir.Expr, shift: ir.Expr, *, rounding: str) -> ir.Expr:
    return fixed_value(total + bias, multiplier, shift, rounding)


def requantized(value: ir.Expr, total: ir.Buffer) -> Requantized | None:
    """Match a value that requantizes a sum. Returns None for any other value."""
    match value:
        case ir.Cast(
            dtype=target_dtype,
            a=ir.Binary(op="min", a=ir.Binary(op="max", a=inner, b=ir.Const(value=low)), b=ir.Const(value=high)),
        ) if target_dtype is INT8:
            pass
        case _:
            return None
    zero: int | float | bool = 0
    match inner:
        case ir.Binary(op="add", a=ir.Cast() as scaled, b=ir.Const(value=zero)):
            inner = scaled
    loads = [node for node in ir.walk_exprs(inner) if isinstance(node, ir.Load)]
    factors = [node.a for node in ir.walk_exprs(inner) if isinstance(node, ir.Cast) and isinstance(node.a, ir.Load)]
    sums = [node for node in loads if node.buffer.name == total.name]
    biases = [node.b for node in ir.walk_exprs(inner) if isinstance(node, ir.Binary) and node.op == "add" and node.a in sums]
    if len(loads) != 4 or len(factors) != 1 or len(sums) != 1 or len(biases) != 1 or not isinstance(biases[0], ir.Load):
        return None
    bias, multiplier = biases[0], factors[0]
    assert isinstance(multiplier, ir.Load)
    shift = next(node for node in loads if node not in (sums[0], bias, multiplier))
    for rounding in ROUNDINGS:
        if structurally_equal(
            _storing_program(inner), _storing_program(_value(sums[0], bias, multiplier, shift, rounding=rounding))
        ):
            return Requantized(bias.buffer, multiplier.buffer, shift.buffer, rounding, int(zero), int(low), int(high))
    return None


def _storing_program(value: ir.Expr) -> ir.LoopProgram:
    """Return a program that only stores `value`."""
    return ir.LoopProgram("", (), (), ir.Store(ir.Buffer("value", (), value.dtype), (), value))


def intrinsic_for(semantics: ir.LoopProgram, context: KernelContext) -> TensorIntrin | None:
    """Find the target's intrinsic with the semantics `semantics`; None if the target has none."""
    return next((each for each in context.intrinsics if structurally_equal(each.semantics, semantics)), None)
