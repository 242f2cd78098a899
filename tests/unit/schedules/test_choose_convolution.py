"""Which algorithm a convolution takes, and that all give the same values."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from inlaid import ops
from inlaid.graph.interp import evaluate
from inlaid.graph.ir import Call, Function, constant, function, post_order, var
from inlaid.graph.verify import verify
from inlaid.lowering.kernels.kernel import KernelSource, build, tensor_type
from inlaid.ops.unfold import unfold
from inlaid.ops.winograd import winograd_conv
from inlaid.plugins import Capabilities, Core
from inlaid.schedules.choose_convolution import choose_convolution, match_convolution
from inlaid.schedules.conv import ConvRule
from inlaid.schedules.register_tile import seconds
from inlaid.tensor import ir
from inlaid.tensor.primitives import TensorIntrin
from inlaid.tensor.scheduling.dot_products import dot_product
from inlaid.tensor.scheduling.rule import InputInfo, KernelContext
from inlaid.tensor.transform.paths import nest
from inlaid_runtime import arith, types
from inlaid_runtime.arith import Dim, SizeVar
from inlaid_runtime.types import ROW_MAJOR, TensorType

VECTORS = Capabilities(("float32",), vector_bits=512, vector_registers=32, peak=2.5e11, bandwidth=3e10)
SLOW = Capabilities(("float32",), vector_bits=512, vector_registers=32, peak=2.5e11, bandwidth=3e9)
RNG = np.random.default_rng(0)


def model(
    inputs: int, outputs: int, *image: Dim, batch: Dim = 1, window: int = 3, groups: int = 1, dtype: str = "float32", **attrs: Any
) -> Function:
    x = var("x", TensorType((batch, inputs, *image), dtype))
    weights = RNG.integers(-2, 3, (outputs, inputs // groups, *(window for _ in image))).astype(types.dtype(dtype).numpy)
    pads = (window // 2,) * 2 * len(image)
    return function([x], ops.relu(ops.conv(x, constant(weights), **{"pads": pads, "groups": groups, **attrs})))


def part(divisor: int) -> tuple[Dim, Dim]:
    """An image of so small a part of symbolic sides."""
    height, width = (arith.unwrap(arith.ceildiv(SizeVar(name), divisor)) for name in "hw")
    return height, width


def changed(unit: Function, capabilities: Capabilities = VECTORS, intrinsics: tuple[TensorIntrin, ...] = ()) -> Function:
    rewritten_function = choose_convolution(unit, KernelContext(capabilities, intrinsics=intrinsics))
    verify(rewritten_function)
    return rewritten_function


def way(unit: Function, capabilities: Capabilities = VECTORS, intrinsics: tuple[TensorIntrin, ...] = ()) -> str:
    """The algorithm, by its operator, and the size of tiles."""
    rewritten_function = changed(unit, capabilities, intrinsics)
    for call in post_order(rewritten_function):
        if isinstance(call, Call) and call.callee in (unfold, winograd_conv):
            return f"tiles of {call.attrs.tile}" if call.callee is winograd_conv else "product"  # type: ignore[union-attr]
    assert rewritten_function is unit
    return "direct"


@pytest.mark.parametrize(
    ("unit", "algorithm"),
    [
        (model(64, 64, 56, 56), "tiles of 4"),
        (model(512, 512, 28, 28), "tiles of 4"),
        # Small tiles have fewer weights, which are most of what is read here.
        (model(512, 512, 7, 7), "tiles of 2"),
        (model(512, 512, 2, 2), "direct"),
        (model(13, 64, 14, 14), "direct"),
        (model(64, 13, 14, 14), "direct"),
        (model(3, 64, 112, 112, window=7, strides=(2, 2)), "direct"),
        (model(64, 64, 14, 14, strides=(2, 2)), "direct"),
        (model(64, 64, 14, 14, dilations=(2, 2)), "direct"),
        (model(64, 64, 14, 14, groups=2), "direct"),
        (model(64, 64, 14, 14, window=1), "direct"),
        (model(64, 64, 14, 14, groups=64), "direct"),
        (model(64, 64, 56, 56, dtype="float64"), "direct"),
        # Channels that fill no vectors.
        (model(64, 3, 28, 28), "product"),
        # Their windows would come from memory.
        (model(32, 1, 112, 112, batch=8), "direct"),
        (model(64, 1, 56, 56, strides=(2, 2)), "direct"),
        (model(1, 32, 28, 28), "product"),
        (model(24, 12, 28, 28, groups=2), "product"),
        (model(16, 32, 300), "direct"),
        (model(3, 16, 8, 8, 8), "direct"),
        # Symbolic sizes: windows are not unfolded, which might take any amount of memory.
        (model(64, 64, SizeVar("h"), SizeVar("w"), batch=SizeVar("n")), "tiles of 4"),
        (model(64, 64, 28, 28, batch=SizeVar("n")), "tiles of 4"),
        (model(256, 256, *part(16), batch=SizeVar("n")), "tiles of 4"),
        (model(512, 512, *part(32)), "tiles of 2"),
        (model(512, 512, *part(64)), "direct"),
        (model(64, 64, SizeVar("h"), SizeVar("w"), strides=(2, 2)), "direct"),
        (model(64, 3, SizeVar("h"), SizeVar("w")), "direct"),
        # Windows that would take too much memory.
        (model(64, 3, 512, 512, window=9), "direct"),
    ],
)
def test_the_choice(unit: Function, algorithm: str) -> None:
    assert way(unit) == algorithm


BF16 = "bfloat16"


def dots(*lanes: int) -> tuple[TensorIntrin, ...]:
    return tuple(TensorIntrin(f"dot{n}", dot_product(BF16, BF16, "float32", n, 2)) for n in lanes)


def matrix_unit() -> TensorIntrin:
    """A product of two matrices that lie in a memory scope."""
    a, b, total = (
        ir.Buffer(name, (4, 4), types.dtype(dtype_name), "unit")
        for name, dtype_name in (("a", BF16), ("b", BF16), ("t", "float32"))
    )
    i, j, k = arith.Var("i"), arith.Var("j"), arith.Var("k")
    product = ir.cast(ir.load(a, (i, k)), "float32") * ir.cast(ir.load(b, (k, j)), "float32")
    store = ir.Store(total, (i, j), ir.load(total, (i, j)) + product)
    return TensorIntrin("unit", ir.LoopProgram("unit", (a, b), (total,), nest([(var, arith.wrap(4)) for var in (i, j, k)], store)))


def narrow(inputs: int, outputs: int, *image: int) -> Function:
    """A convolution of bfloat16 with sums in float32."""
    return model(inputs, outputs, *image, dtype=BF16, out_dtype="float32")


@pytest.mark.parametrize(
    ("unit", "intrinsics", "algorithm"),
    [
        (narrow(64, 64, 56, 56), dots(16), "tiles of 4"),
        # Transformed data in bfloat16: twice the products a cycle, and 2/9 of the weights of tiles of 4 in float32.
        (narrow(256, 256, 14, 14), dots(16), "tiles of 2"),
        (narrow(512, 512, 7, 7), dots(16), "tiles of 2"),
        (narrow(512, 512, 3, 3), dots(16), "direct"),
        (narrow(64, 64, 56, 56), (), "direct"),
        (narrow(64, 64, 56, 56), (*dots(16), matrix_unit()), "direct"),
        (narrow(3, 16, 8, 8, 8), dots(16), "direct"),
    ],
)
def test_the_choice_in_bfloat16(unit: Function, intrinsics: tuple[TensorIntrin, ...], algorithm: str) -> None:
    assert way(unit, intrinsics=intrinsics) == algorithm


def test_tiles_of_bfloat16_give_the_same_values() -> None:
    """The products of bfloat16 numbers are exact in float32: all that differs is in what order they are summed."""
    unit = narrow(32, 32, 13, 13)
    data = RNG.standard_normal((1, 32, 13, 13)).astype(types.dtype(BF16).numpy)
    expected = evaluate(unit, [data])
    actual = evaluate(changed(unit, intrinsics=dots(4)), [data])
    assert way(unit, intrinsics=dots(4)) == "tiles of 4"
    np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-4 * np.abs(expected).max() + 1e-5)


def test_rounded_tiles_have_twice_the_error() -> None:
    """Transformed data and weights are rounded once more than those of direct sums."""
    unit = narrow(256, 64, 14, 14)
    (tiles,) = (
        expr for expr in post_order(changed(unit, intrinsics=dots(16))) if isinstance(expr, Call) and expr.callee is winograd_conv
    )
    assert [tensor_type(arg.type).dtype.name for arg in tiles.args] == [BF16, BF16]
    exact = np.maximum(RNG.standard_normal((1, 256, 14, 14)), 0).astype(np.float32)
    weights = RNG.standard_normal((64, 256, 3, 3)).astype(np.float32)

    def convolve(*arrays: Any, is_tiled: bool = False) -> Any:
        x = var("x", TensorType(exact.shape, arrays[0].dtype.name))
        conv = function([x], ops.conv(x, constant(arrays[1]), pads=(1,) * 4, out_dtype="float32"))
        return evaluate(changed(conv, intrinsics=dots(16)) if is_tiled else conv, [arrays[0]])

    expected = convolve(exact, weights)
    rounded = [array.astype(types.dtype(BF16).numpy) for array in (exact, weights)]
    direct, tiled = (np.sqrt(np.mean((convolve(*rounded, is_tiled=is_tiled) - expected) ** 2)) for is_tiled in (False, True))
    assert direct < tiled < 2.2 * direct


BYTES = TensorIntrin("bytes", dot_product("uint8", "int8", "int32", 16, 4))
WORDS = TensorIntrin("words", dot_product("int16", "int16", "int32", 16, 2))


def quantized(channels: int, *image: int, magnitude: int = 127) -> Function:
    """A convolution of bytes with sums in int32, by weights of one magnitude and both signs."""
    x = var("x", TensorType((1, channels, *image), "uint8"))
    weights = magnitude * RNG.choice(np.array([-1, 1], np.int8), (channels, channels, 3, 3))
    return function([x], ops.conv(x, constant(weights.astype(np.int8)), pads=(1,) * 4, out_dtype="int32"))


@pytest.mark.parametrize(
    ("unit", "intrinsics", "algorithm"),
    [
        (quantized(64, 56, 56), (BYTES, WORDS), "tiles of 4"),
        (quantized(64, 56, 56), (BYTES,), "direct"),
        # A quarter of the products, at half the rate: weights of eight times the bytes decide.
        (quantized(512, 7, 7), (BYTES, WORDS), "direct"),
    ],
)
def test_the_choice_in_bytes(unit: Function, intrinsics: tuple[TensorIntrin, ...], algorithm: str) -> None:
    assert way(unit, intrinsics=intrinsics) == algorithm


@pytest.mark.parametrize(("magnitude", "halves"), [(50, False), (127, True)])
def test_large_sums_take_other_transforms(magnitude: int, halves: bool) -> None:
    unit = quantized(448, 16, 16, magnitude=magnitude)
    rewritten_function = changed(unit, replace(VECTORS, bandwidth=1e13), (BYTES, WORDS))
    (tiles,) = (expr for expr in post_order(rewritten_function) if isinstance(expr, Call) and expr.callee is winograd_conv)
    assert tiles.attrs.halves == halves  # type: ignore[union-attr]
    data = RNG.choice(np.array([0, 255], np.uint8), (1, 448, 16, 16))
    assert np.array_equal(evaluate(rewritten_function, [data]), evaluate(unit, [data]))


def test_slow_memory_asks_for_fewer_weights() -> None:
    assert [way(model(256, 256, 14, 14), capabilities) for capabilities in (VECTORS, SLOW)] == ["tiles of 4", "direct"]


def test_targets_without_vectors_stay_direct() -> None:
    assert way(model(64, 64, 56, 56), Capabilities(("float32",))) == "direct"


def test_weights_that_are_computed_stay_direct() -> None:
    x, w = var("x", TensorType((1, 64, 56, 56), "float32")), var("w", TensorType((64, 64, 3, 3), "float32"))
    unit = function([x, w], ops.conv(x, w, pads=(1,) * 4))
    assert way(unit) == "direct"


def test_tiles_give_the_same_values() -> None:
    unit = model(32, 32, 13, 13)
    data = RNG.standard_normal((1, 32, 13, 13)).astype(np.float32)
    expected = evaluate(unit, [data])
    actual = evaluate(changed(unit), [data])
    np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-4 * np.abs(expected).max() + 1e-5)


@settings(max_examples=20, deadline=None)
@given(st.data())
def test_products_give_the_same_values(data: st.DataObject) -> None:
    rank, groups = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 2))
    each = st.tuples(*[st.integers(1, 2)] * rank)
    image = tuple(data.draw(st.integers(6, 11)) for _ in range(rank))
    attrs = {
        "strides": data.draw(each),
        "dilations": data.draw(each),
        "pads": data.draw(st.tuples(*[st.integers(0, 2)] * 2 * rank)),
    }
    unit = model(groups * 2, groups * 3, *image, groups=groups, **attrs)
    x = RNG.integers(-3, 4, (1, groups * 2, *image)).astype(np.float32)
    assume(way(unit) == "product")
    np.testing.assert_array_equal(evaluate(changed(unit), [x]), evaluate(unit, [x]))


def test_small_caches_ask_for_fewer_weights() -> None:
    small = replace(VECTORS, core=Core(l2_bytes=1 << 14, llc_rate=0.1))
    assert [way(model(64, 64, 28, 28), capabilities) for capabilities in (VECTORS, small)] == ["tiles of 4", "direct"]


@pytest.mark.parametrize(
    ("inputs", "outputs", "image", "attrs", "intrinsics"),
    [
        (64, 64, (28, 28), {}, ()),
        (13, 24, (9, 31), {"strides": (2, 2)}, ()),
        (32, 64, (14, 14), {"groups": 2, "batch": 3}, ()),
        (64, 40, (14, 17), {"dtype": BF16, "out_dtype": "float32"}, dots(16, 8)),
        (30, 40, (7, 7), {"dtype": BF16, "out_dtype": "float32"}, dots(16)),
    ],
)
def test_estimates_are_the_costs_of_offers(
    inputs: int, outputs: int, image: tuple[int, int], attrs: dict[str, Any], intrinsics: tuple[TensorIntrin, ...]
) -> None:
    unit = model(inputs, outputs, *image, **attrs)
    conv = next(call for call in post_order(unit) if isinstance(call, Call) and call.callee is ops.conv)
    params = tuple(var(name, arg.type) for name, arg in zip("xw", conv.args, strict=True))
    program = build(KernelSource("kernel", params, Call(conv.type, conv.span, conv.callee, params, conv.attrs)))
    context, rule = KernelContext(VECTORS, intrinsics=intrinsics), ConvRule()
    offer, *_ = rule.offer(program, context, (InputInfo(ROW_MAJOR), InputInfo(ROW_MAJOR, True)))
    problem = match_convolution(conv)
    assert problem is not None
    cycles = rule.estimate(problem.sizes, context)
    assert cycles is not None and offer.cost == pytest.approx(seconds(cycles, VECTORS))


def test_rules_have_no_estimate_of_what_they_decline() -> None:
    cases = [(model(64, 3, 9, 9), ()), (narrow(64, 64, 9, 9), ()), (narrow(64, 64, 9, 9), (*dots(16), matrix_unit()))]
    for unit, intrinsics in cases:
        problem = next(filter(None, map(match_convolution, post_order(unit))))
        assert ConvRule().estimate(problem.sizes, KernelContext(VECTORS, intrinsics=intrinsics)) is None
