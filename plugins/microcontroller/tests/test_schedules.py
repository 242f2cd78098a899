"""Schedules of integer products against the graph's own arithmetic, run by the loop interpreter."""

from __future__ import annotations

import numpy as np
import pytest

from inlaid import ops
from inlaid.graph.interp import evaluate
from inlaid.graph.ir import Constant, Expr, constant, function, post_order, var
from inlaid.graph.transform import transform
from inlaid.lowering.kernels.finish import finish
from inlaid.lowering.kernels.kernel import KernelSource, build
from inlaid.plugins import Capabilities
from inlaid.tensor import ir
from inlaid.tensor.interp import run
from inlaid.tensor.scheduling.rule import InputInfo, KernelContext
from inlaid_microcontroller.intrinsics import emitters, intrinsics
from inlaid_microcontroller.options import CPUS
from inlaid_microcontroller.schedules.addition import AdditionRule
from inlaid_microcontroller.schedules.depthwise import DepthwiseRule
from inlaid_microcontroller.schedules.direct import DirectRule
from inlaid_microcontroller.schedules.scalar import channels_last
from inlaid_microcontroller.schedules.vector_depthwise import VectorDepthwiseRule, window_sums
from inlaid_microcontroller.schedules.vector_direct import VectorDirectRule
from inlaid_runtime import arith
from inlaid_runtime.types import ROW_MAJOR, TensorType

Rule = DirectRule | DepthwiseRule | VectorDirectRule | VectorDepthwiseRule


def _context(rule: Rule, cpu: str = "") -> KernelContext:
    name = cpu or ("cortex-m55" if isinstance(rule, VectorDirectRule | VectorDepthwiseRule) else "cortex-m4")
    return KernelContext(Capabilities(("int8", "int32")), 1, intrinsics(CPUS[name]))


def _semantics(kernel: ir.LoopProgram, context: KernelContext) -> dict[str, ir.LoopProgram]:
    """Those of a target's intrinsics, and of the windows of a kernel."""
    names = {stmt.name for stmt in ir.walk_stmts(kernel.body) if isinstance(stmt, ir.Intrinsic)}
    windows = [window.intrinsic() for name in names if (window := window_sums(name)) is not None]
    return {each.name: each.semantics for each in (*context.intrinsics, *windows)}


def _requantized(total: Expr, outputs: int, generator: np.random.Generator, rounding: str, channel: int, zero: int = -3) -> Expr:
    """Sums as TensorFlow Lite stores them."""
    shape = [1] * len(total.type.shape)
    shape[channel] = outputs
    bias = generator.integers(-1000, 1000, shape).astype(np.int32)
    multiplier = generator.integers(1 << 30, (1 << 31) - 1, outputs).astype(np.int32)
    shift = generator.integers(-10, -5, outputs).astype(np.int32)
    total = ops.add(total, constant(bias))
    total = ops.multiply_fixed(total, constant(multiplier), constant(shift), axis=channel, rounding=rounding)
    return ops.cast(ops.clip(ops.add(total, constant(np.int32(zero))), minimum=-128.0, maximum=127.0), dtype="int8")


def _kernel(x: Expr, result: Expr) -> tuple[ir.LoopProgram, list[Constant]]:
    """A result as one kernel, and the constants that are its parameters after the data."""
    constants = [expr for expr in post_order(result) if isinstance(expr, Constant) and expr.data.size > 1]
    params = [x, *(var(f"p{number}", expr.type) for number, expr in enumerate(constants))]
    replacements = {id(expr): param for expr, param in zip(constants, params[1:], strict=True)}
    body = transform(result, lambda old, new: replacements.get(id(old), new))
    return build(KernelSource("kernel", tuple(params), body)), constants


def _check(rule: Rule, x: Expr, result: Expr, generator: np.random.Generator, cpu: str = "") -> None:
    """Hold a rule's schedule of one kernel to the graph's meaning."""
    program, constants = _kernel(x, result)
    infos = (InputInfo(ROW_MAJOR), *(InputInfo(ROW_MAJOR, True) for _ in constants))
    context = _context(rule, cpu)
    offer = rule.offer(program, context, infos)
    assert offer is not None
    scheduled = finish(offer.schedule(program))
    data = generator.integers(-128, 128, x.type.shape).astype(np.int8)
    arrays = [data, *(expr.data for expr in constants)]
    packed = [
        layout.pack(array).reshape(buffer.shape)
        for layout, array, buffer in zip(offer.layouts, arrays, scheduled.inputs, strict=False)
    ]
    (actual, *_) = run(scheduled, packed, intrinsics=_semantics(scheduled, context))
    expected = evaluate(function((x,), result), [data])
    layout = offer.layouts[len(arrays)]
    np.testing.assert_array_equal(np.asarray(actual).reshape(-1), layout.pack(np.asarray(expected)).reshape(-1))


CASES = [
    # channels, outputs, size, window, stride, pads
    (4, 6, (5, 5), (1, 1), 1, (0, 0, 0, 0)),
    (8, 7, (4, 6), (3, 3), 1, (1, 1, 1, 1)),
    (13, 5, (5, 7), (3, 3), 2, (0, 1, 1, 1)),
    (3, 8, (7, 7), (3, 3), 2, (0, 0, 1, 1)),
    (1, 5, (12, 6), (10, 4), 2, (4, 1, 5, 1)),
    (16, 3, (1, 1), (1, 1), 1, (0, 0, 0, 0)),
    (5, 4, (3, 1), (3, 1), 1, (0, 0, 0, 0)),
    (4, 2, (6, 6), (1, 1), 2, (0, 0, 0, 0)),
    (32, 6, (3, 3), (3, 3), 1, (1, 1, 1, 1)),
    (36, 4, (3, 3), (1, 1), 1, (0, 0, 0, 0)),
]
VECTORS = [
    (3, 6, (5, 7), (3, 3), 2, (0, 0, 0, 0)),
    (20, 1, (3, 4), (2, 3), 1, (1, 0, 0, 1)),
    (2, 4, (9, 5), (5, 2), 1, (0, 0, 0, 0)),
    (1, 3, (4, 9), (1, 7), 1, (0, 3, 0, 3)),
    (8, 9, (3, 5), (1, 1), 1, (0, 0, 0, 0)),
    (17, 2, (4, 3), (1, 1), 2, (0, 0, 0, 0)),
]
"""Further ways to cut sums into chunks of 16: several rows, a row, or a pixel, with and without padding."""


@pytest.mark.parametrize(
    ("rule", "case"),
    [
        *((rule, case) for rule in (DirectRule(), VectorDirectRule()) for case in CASES),
        *((VectorDirectRule(), case) for case in VECTORS),
    ],
    ids=lambda value: value.name if isinstance(value, Rule) else "-".join(map(str, value)),
)
def test_a_convolution_sums_what_the_graph_does(
    rule: Rule, case: tuple[int, int, tuple[int, int], tuple[int, int], int, tuple[int, int, int, int]]
) -> None:
    channels, outputs, size, window, stride, pads = case
    generator = np.random.default_rng(0)
    x = var("x", TensorType((1, channels, *size), "int8"))
    weights = generator.integers(-127, 128, (outputs, channels, *window)).astype(np.int8)
    padded = ops.pad(x, constant(np.int8(-5)), pads=(0, 0, *pads[:2], 0, 0, *pads[2:])) if any(pads) else x
    total = ops.conv(padded, constant(weights), strides=(stride, stride), pads=(0,) * 4, dilations=(1, 1))
    _check(rule, x, _requantized(total, outputs, generator, "up", 1), generator)


@pytest.mark.parametrize("size", [(12, 1), (1, 7), (4, 3)])
def test_what_follows_a_sum_finds_what_there_is_by_channel_row_or_column(size: tuple[int, int]) -> None:
    generator = np.random.default_rng(0)
    x = var("x", TensorType((1, 3, *size), "int8"))
    total = ops.conv(x, constant(generator.integers(-127, 128, (6, 3, 1, 1)).astype(np.int8)))
    for shape in ((1, 6, 1, 1), (1, 1, size[0], 1), (1, 1, 1, size[1]), (1, 1, *size)):
        total = ops.add(total, constant(generator.integers(-5000, 5000, shape).astype(np.int32)))
    scaled = ops.multiply_fixed(total, constant(np.int32(1907793079)), constant(np.int32(-8)), rounding="away")
    result = ops.cast(ops.clip(scaled, minimum=-128.0, maximum=127.0), dtype="int8")
    _check(DirectRule(), x, result, generator)


@pytest.mark.parametrize("rounding", ["up", "away"])
@pytest.mark.parametrize(
    ("rule", "cpu"),
    [(VectorDepthwiseRule(), ""), (DepthwiseRule(), "cortex-m4"), (DepthwiseRule(), "cortex-m3")],
    ids=lambda value: value if isinstance(value, str) else value.name,
)
@pytest.mark.parametrize(("channels", "size", "window", "stride", "pads"), [
    (4, (5, 5), (3, 3), 1, (1, 1, 1, 1)),
    (7, (4, 6), (3, 3), 2, (0, 0, 1, 1)),
    (13, (6, 3), (3, 2), 1, (0, 0, 0, 0)),
    (8, (5, 3), (5, 3), 5, (0, 0, 0, 0)),
    (9, (3, 5), (1, 4), 1, (0, 1, 0, 2)),
    (3, (4, 19), (2, 2), 1, (0, 1, 0, 0)),
    (2, (3, 11), (2, 1), 3, (0, 0, 0, 0)),
    (2, (7, 8), (7, 7), 1, (3, 3, 3, 3)),
])  # fmt: skip
def test_a_convolution_of_single_channels_sums_what_the_graph_does(
    rule: Rule,
    cpu: str,
    rounding: str,
    channels: int,
    size: tuple[int, int],
    window: tuple[int, int],
    stride: int,
    pads: tuple[int, int, int, int],
) -> None:
    generator = np.random.default_rng(0)
    x = var("x", TensorType((1, channels, *size), "int8"))
    weights = generator.integers(-127, 128, (channels, 1, *window)).astype(np.int8)
    padded = ops.pad(x, constant(np.int8(-5)), pads=(0, 0, *pads[:2], 0, 0, *pads[2:])) if any(pads) else x
    total = ops.conv(padded, constant(weights), strides=(stride, stride), pads=(0,) * 4, dilations=(1, 1), groups=channels)
    _check(rule, x, _requantized(total, channels, generator, rounding, 1), generator, cpu)


def test_a_number_may_be_that_of_padding_and_of_what_follows_the_sums() -> None:
    generator, zero = np.random.default_rng(4), constant(np.int8(0))
    x = var("x", TensorType((1, 4, 5, 5), "int8"))
    weights = constant(generator.integers(-128, 128, (6, 4, 3, 3)).astype(np.int8))
    total = ops.conv(ops.pad(x, zero, pads=(0, 0, 1, 1, 0, 0, 1, 1)), weights)
    stored = ops.cast(ops.clip(ops.mul(ops.cast(total, dtype="float32"), constant(np.float32(0.01))), minimum=-128.0), dtype="int8")
    for rule in (DirectRule(), VectorDirectRule()):
        _check(rule, x, ops.maximum(stored, zero), generator)


def test_zero_points_beyond_16_bits_are_left_to_others() -> None:
    generator = np.random.default_rng(0)
    x = var("x", TensorType((1, 8, 4, 4), "int8"))
    weights = constant(generator.integers(-127, 128, (8, 1, 3, 3)).astype(np.int8))
    total = ops.conv(x, weights, strides=(1, 1), pads=(0,) * 4, dilations=(1, 1), groups=8)
    for zero, supported in ((1 << 14, True), ((1 << 14) + 1, False), (-(1 << 20), False)):
        program, constants = _kernel(x, _requantized(total, 8, generator, "up", 1, zero))
        infos = (InputInfo(ROW_MAJOR), *(InputInfo(ROW_MAJOR, True) for _ in constants))
        assert (VectorDepthwiseRule().offer(program, _context(VectorDepthwiseRule()), infos) is not None) == supported


def test_windows_whose_numbers_may_be_too_large_have_functions_of_their_own() -> None:
    window = window_sums("window8_up_3x3_70_8")
    assert window is not None and window_sums("window8_once_3x3_70_8") is None
    semantics = window.intrinsic().semantics
    regions = tuple(ir.BufferRegion(each, ((arith.ZERO, arith.wrap(each.shape[0])),)) for each in semantics.params if each.shape)
    kernel = ir.LoopProgram(
        "kernel", tuple(each.buffer for each in regions[:-1]), semantics.outputs, window.intrinsic().on(*regions)
    )
    good = {1: (-127, 127), 2: (-(1 << 29) + 1, 5), 4: (-30, 0)}
    for bounds, name in (
        (good, "window8_up"),
        ({**good, 1: (-128, 0)}, "exact_window8_up"),
        ({**good, 2: (0, 1 << 29)}, "exact_window8_up"),
        ({**good, 4: (-3, 1)}, "exact_window8_up"),
        ({}, "exact_window8_up"),
    ):
        assert emitters(kernel, bounds, CPUS["cortex-m55"])[window.name]([], ["0", "1", "2"]) == [
            f"inlaid_{name}(3, 3, 70, 8, 0, 1, 2);"
        ]


@pytest.mark.parametrize("rule", [DirectRule(), VectorDirectRule()], ids=lambda rule: rule.name)
@pytest.mark.parametrize(("rows", "depth", "columns"), [(1, 16, 10), (1, 13, 3), (3, 8, 5), (2, 33, 4)])
def test_a_matrix_product_sums_what_the_graph_does(rule: Rule, rows: int, depth: int, columns: int) -> None:
    generator = np.random.default_rng(0)
    x = var("x", TensorType((rows, depth), "int8"))
    weights = generator.integers(-127, 128, (depth, columns)).astype(np.int8)
    _check(rule, x, _requantized(ops.matmul(x, constant(weights)), columns, generator, "up", 1), generator)


def _sum(x: Expr, y: Expr, zeros: tuple[int, int, int], factors: tuple[tuple[int, int], ...]) -> Expr:
    """Two tensors added as TensorFlow Lite adds them."""

    def number(value: int) -> Expr:
        return constant(np.int32(value))

    def scaled(value: Expr, factor: tuple[int, int]) -> Expr:
        return ops.multiply_fixed(value, *map(number, factor), rounding="away")

    wide = [ops.cast(side, dtype="int32") for side in (x, y)]
    shifted = [ops.sub(side, number(zero)) if zero else side for side, zero in zip(wide, zeros, strict=False)]
    sides = [scaled(ops.shift_left(side, number(20)), factor) for side, factor in zip(shifted, factors, strict=False)]
    total = scaled(ops.add(*sides), factors[2])
    total = ops.add(total, number(zeros[2])) if zeros[2] else total
    return ops.cast(ops.clip(total, minimum=-128.0, maximum=127.0), dtype="int8")


HALF, INT32_MAX = 1 << 30, (1 << 31) - 1


@pytest.mark.parametrize(("shape", "zeros", "factors"), [
    ((1, 5, 3, 7), (-128, 4, -3), ((1623821475, -2), (HALF, 0), (1098017566, -17))),
    ((3, 4), (0, 0, 0), ((HALF, -1), (INT32_MAX, -3), (INT32_MAX, -18))),
    ((2,), (127, -128, 0), ((HALF + 1, 0), (HALF, 0), (HALF, -1))),
])  # fmt: skip
def test_sums_of_tensors_are_those_of_the_graph(
    shape: tuple[int, ...], zeros: tuple[int, int, int], factors: tuple[tuple[int, int], ...]
) -> None:
    x, y = (var(name, TensorType(shape, "int8")) for name in "xy")
    result = _sum(x, y, zeros, factors)
    program = build(KernelSource("kernel", (x, y), result))
    context = KernelContext(Capabilities(("int8", "int32")), 1, intrinsics(CPUS["cortex-m55"]))
    offers = AdditionRule().offer(program, context, (InputInfo(ROW_MAJOR), InputInfo(ROW_MAJOR)))
    assert offers and not AdditionRule().offer(program, _context(DirectRule()), (InputInfo(ROW_MAJOR), InputInfo(ROW_MAJOR)))
    generator = np.random.default_rng(0)
    data = [generator.integers(-128, 128, shape).astype(np.int8) for _ in range(2)]
    expected = evaluate(function((x, y), result), data)
    for offer in offers:
        scheduled = finish(offer.schedule(program))
        packed = [layout.pack(array).reshape(-1) for layout, array in zip(offer.layouts, data, strict=False)]
        (actual,) = run(scheduled, packed, intrinsics={each.name: each.semantics for each in context.intrinsics})
        np.testing.assert_array_equal(np.asarray(actual), offer.layouts[-1].pack(np.asarray(expected)).reshape(-1))


def test_sums_that_could_saturate_are_left_alone() -> None:
    x, y = (var(name, TensorType((4,), "int8")) for name in "xy")
    context = KernelContext(Capabilities(("int8", "int32")), 1, intrinsics(CPUS["cortex-m55"]))
    for factors in (((HALF, 1), (HALF, 0), (HALF, -1)), ((HALF, 0), (HALF, 0), (HALF, 0)), ((-HALF, 0), (HALF, 0), (HALF, -1))):
        program = build(KernelSource("kernel", (x, y), _sum(x, y, (1, 2, 3), factors)))
        assert AdditionRule().offer(program, context, (InputInfo(ROW_MAJOR), InputInfo(ROW_MAJOR))) is None


def test_constants_without_elements_have_channels_nowhere() -> None:
    x, nothing = var("x", TensorType((0, 5, 4, 1), "int32")), constant(np.zeros((0, 1, 4, 1), np.int32))
    program = build(KernelSource("kernel", (x, y := var("y", nothing.type)), ops.sub(x, y)))
    assert channels_last(program, (InputInfo(ROW_MAJOR), InputInfo(ROW_MAJOR, constant=True))) == {}
