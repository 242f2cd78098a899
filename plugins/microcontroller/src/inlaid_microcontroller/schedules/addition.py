"""Addition of two quantized tensors as in TensorFlow Lite: rescale both to a common scale, add, rescale to the result's scale."""

from __future__ import annotations

from functools import cache
from math import prod

from inlaid.ops.fixed_point import fixed_value
from inlaid.schedules.shape import is_static, merge_chains
from inlaid.tensor import ir
from inlaid.tensor.analysis.blocks import collect_blocks
from inlaid.tensor.analysis.keys import structurally_equal
from inlaid.tensor.primitives import TensorIntrin
from inlaid.tensor.schedule import Schedule
from inlaid.tensor.scheduling.rule import InputInfo, KernelContext, Offer
from inlaid_microcontroller.schedules.scalar import channels_last
from inlaid_runtime import arith
from inlaid_runtime.arith import Var
from inlaid_runtime.types import ROW_MAJOR, dtype

INT8, INT32 = dtype("int8"), dtype("int32")
RAISED = 20
"""Fractional bits of the common scale."""
LANES = 4
ZEROS = ("zero_a", "zero_b", "zero")
"""Names of the optional scalars, which are 0 if absent."""
SCALARS = (
    *("zero_a", "multiplier_a", "shift_a", "zero_b", "multiplier_b", "shift_b"),
    *("multiplier", "shift", "zero", "low", "high"),
)  # fmt: skip


@cache
def addition(lanes: int) -> ir.LoopProgram:
    """Return the semantics of the intrinsic that adds `lanes` elements."""
    a, b, out = (ir.Buffer(name, (lanes,), INT8) for name in ("a", "b", "out"))
    scalars = {name: ir.Buffer(name, (), INT32) for name in SCALARS}
    i = Var("i")

    def scalar(name: str) -> ir.Expr:
        return ir.load(scalars[name], ())

    def scaled(value: ir.Expr, suffix: str) -> ir.Expr:
        return fixed_value(value, scalar(f"multiplier{suffix}"), scalar(f"shift{suffix}"), "away")

    def raised(side: ir.Buffer, suffix: str) -> ir.Expr:
        return scaled((ir.cast(ir.load(side, (i,)), INT32) - scalar(f"zero{suffix}")) << RAISED, suffix)

    value = scaled(raised(a, "_a") + raised(b, "_b"), "") + scalar("zero")
    value = ir.minimum(ir.maximum(value, scalar("low")), scalar("high"))
    body = ir.For(i, arith.wrap(lanes), ir.Store(out, (i,), ir.cast(value, INT8)))
    return ir.LoopProgram("addition", (a, b, *scalars.values()), (out,), body)


class AdditionRule:
    """Schedule rule for the addition of two int8 tensors of equal shape by an intrinsic."""

    name = "addition"

    def offer(self, program: ir.LoopProgram, context: KernelContext, inputs: tuple[InputInfo, ...]) -> tuple[Offer, ...] | None:
        """Offer schedules for an addition. Declines scales and limits that TensorFlow Lite never produces, and all other
        kernels."""
        if not is_static(program) or len(program.inputs) != 2 or len(program.outputs) != 1:
            return None
        if {(buffer.shape, buffer.dtype) for buffer in program.params} != {(program.outputs[0].shape, INT8)}:
            return None
        intrinsics = _intrinsics(context)
        match = _addition(program) if intrinsics else None
        if match is None:
            return None
        sides, scalars = match
        last = channels_last(program, inputs)
        layouts = [(ROW_MAJOR,) * 3, *([tuple(last.get(buffer, ROW_MAJOR) for buffer in program.params)] if last else [])]
        uniform_layouts = [each for each in layouts if len(set(each)) == 1]
        return tuple(
            Offer(each, lambda source: _scheduled(source, sides, scalars, intrinsics)) for each in reversed(uniform_layouts)
        )


def _intrinsics(context: KernelContext) -> dict[int, TensorIntrin]:
    """Return the target's addition intrinsics, keyed by the number of lanes."""
    semantics = {lanes: addition(lanes) for lanes in range(1, LANES + 1)}
    return {
        lanes: each
        for each in context.intrinsics
        for lanes, program in semantics.items()
        if structurally_equal(each.semantics, program)
    }


def _addition(program: ir.LoopProgram) -> tuple[tuple[int, ...], tuple[ir.Expr, ...]] | None:
    """Match an addition. Returns the numbers of its two inputs and its scalars; None for any other kernel."""
    s = Schedule(program)
    merge_chains(s)
    blocks = collect_blocks(s.program)
    if len(blocks) != 1 or not isinstance((block := blocks[0]).body, ir.Store):
        return None
    semantics = addition(1)
    *_, store = ir.walk_stmts(semantics.body)
    assert isinstance(store, ir.Store)
    bound: dict[ir.Buffer, ir.Expr] = {}
    if block.body.indices != tuple(item.var for item in block.iters) or not _bind(store.value, block.body.value, bound):
        return None
    loads, scalars = ([bound[buffer] for buffer in part] for part in (semantics.inputs[:2], semantics.inputs[2:]))
    if any(not isinstance(load, ir.Load) or load.indices != block.body.indices for load in loads):
        return None
    numbers = [number.value for number in scalars if isinstance(number, ir.Const)]
    lower_bounds, upper_bounds = zip(*map(_limits, SCALARS), strict=True)
    if any(not low <= number <= high for low, number, high in zip(lower_bounds, numbers, upper_bounds, strict=True)):
        return None
    return tuple(program.inputs.index(load.buffer) for load in loads if isinstance(load, ir.Load)), tuple(scalars)


def _limits(scalar: str) -> tuple[int, int]:
    """Return the range of a scalar in which no step of the addition overflows or saturates."""
    if scalar.startswith("multiplier"):
        return 0, (1 << 31) - 1
    if scalar.startswith("shift"):
        return -30, 0 if scalar != "shift" else -1
    return -128, 127


def _bind(pattern: ir.Expr, value: ir.Expr, bound: dict[ir.Buffer, ir.Expr]) -> bool:
    """Match a value against a pattern. Scalars of the pattern match constants. Stores the match of each buffer in `bound`."""
    match pattern, value:
        case ir.Load(buffer=buffer), ir.Load() | ir.Const():
            if isinstance(value, ir.Const) is not (buffer.shape == ()) or buffer.dtype is not value.dtype:
                return False
            return _is_equal(bound.setdefault(buffer, value), value)
        case ir.Const(value=pattern_value), ir.Const(value=constant):
            return pattern.dtype is value.dtype and pattern_value == constant
        case ir.Binary(op=op, a=a, b=ir.Load(buffer=buffer)), _ if buffer.name in ZEROS and not (
            isinstance(value, ir.Binary) and value.op == op and isinstance(value.b, ir.Const)
        ):
            zero = ir.const(0, INT32)
            return _is_equal(bound.setdefault(buffer, zero), zero) and _bind(a, value, bound)
    if (
        type(pattern) is not type(value)
        or pattern.dtype is not value.dtype
        or getattr(pattern, "op", "") != getattr(value, "op", "")
    ):
        return False
    return all(_bind(part, other, bound) for part, other in zip(ir.operands(pattern), ir.operands(value), strict=True))


def _is_equal(a: ir.Expr, b: ir.Expr) -> bool:
    match a, b:
        case ir.Const(), ir.Const():
            return a.value == b.value
        case ir.Load(), ir.Load():
            return a.buffer is b.buffer and a.indices == b.indices
    return False


def _scheduled(
    program: ir.LoopProgram, sides: tuple[int, ...], scalars: tuple[ir.Expr, ...], intrinsics: dict[int, TensorIntrin]
) -> ir.LoopProgram:
    """Build the loop nest:

    for i: out[4 i .. + 4] = addition(a[4 i .. + 4], b[4 i .. + 4])
    """
    size = prod(dim for dim in program.outputs[0].shape if isinstance(dim, int))
    flat = [ir.Buffer(buffer.name, (size,), buffer.dtype) for buffer in program.params]
    lanes = max(intrinsics)
    vectors, rest = divmod(size, lanes)
    i = Var("i")

    def added(start: arith.Expr, count: int) -> ir.Stmt:
        operands = (flat[sides[0]], flat[sides[1]], flat[-1])
        regions = tuple(ir.BufferRegion(buffer, ((start, arith.wrap(count)),)) for buffer in operands)
        return intrinsics[count].on(*regions, args=scalars)

    parts: list[ir.Stmt] = [ir.For(i, arith.wrap(vectors), added(arith.simplify(i * lanes), lanes))] if vectors else []
    parts += [added(arith.wrap(vectors * lanes), rest)] if rest else []
    return ir.LoopProgram(program.name, tuple(flat[:2]), (flat[-1],), ir.Seq(tuple(parts)))
