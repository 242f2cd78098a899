"""Layouts and scales at the borders of regions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.graph.strategies import Program, assert_close

from inlaid import ops
from inlaid.driver.build import at_borders
from inlaid.driver.compile import compile_module, cut
from inlaid.graph import ir
from inlaid.graph.interp import evaluate
from inlaid.graph.pattern import is_op, wildcard
from inlaid.graph.verify import verify
from inlaid.partitioning.borders import decode, encode, stored_function
from inlaid.partitioning.outline import region_operators
from inlaid.plugins import Accept, Border, Borders, OpRule, Reject
from inlaid_runtime.arith import SizeVar
from inlaid_runtime.errors import PluginError
from inlaid_runtime.types import Layout, TensorType, TupleType, Type

from .fakes import Form, FormsCodegen, Judge, make_registry, taking
from .test_random import plan_programs, random_judges, targets

IMAGE = TensorType((1, 5, 4, 3), "float32")
BLOCKED = Border(Layout(((1, 4),)))
LAST = Border(Layout(((1, 5),)))
STORED = Border(dtype="int8", scale=0.5, zero_point=-3)
EIGHTHS = Border(dtype="int16", scale=0.125)


def images(**facts: Border) -> dict[str, Form]:
    """A form for tensors of four axes by target; others stay as they are."""
    return {
        kind: lambda type_, b=border: b if len(getattr(type_, "shape", ())) == 4 else Border() for kind, border in facts.items()
    }


@st.composite
def bordered(draw: Callable[..., Any]) -> tuple[np.ndarray[Any, Any], Border]:
    """An array and a layout for it, blocks within blocks included."""
    shape = draw(st.lists(st.integers(1, 7), min_size=1, max_size=4))
    blocks: list[tuple[int, int]] = []
    left: dict[int, int] = {}
    for _ in range(draw(st.integers(0, 3))):
        axis = draw(st.integers(0, len(shape) - 1))
        factors = [f for f in range(1, 9) if left.get(axis, f) % f == 0]
        left[axis] = draw(st.sampled_from(factors))
        blocks.append((axis, left[axis]))
    array = np.random.default_rng(draw(st.integers(0, 9))).normal(size=shape).astype(np.float32)
    return array, Border(Layout(tuple(blocks)))


@settings(max_examples=60, deadline=None)
@given(bordered())
def test_encoding_is_what_a_layout_says_and_decoding_its_inverse(drawn: tuple[np.ndarray[Any, Any], Border]) -> None:
    array, border = drawn
    x = ir.var("x", TensorType(array.shape, "float32"))
    encoded_value = encode(x, border)
    packed_array, back = evaluate(ir.function([x], ir.tuple_([encoded_value, decode(encoded_value, x.type, border)])), {"x": array})
    assert np.array_equal(packed_array, border.layout.pack(array))
    assert np.array_equal(back, array)


def test_blocks_may_stand_between_rows_and_columns() -> None:
    """NHCWB16, as Arm's NPUs have it: N H C/16 W 16."""
    layout = Layout(((1, 32), (3, 5), (1, 16)))
    image = np.arange(2 * 20 * 3 * 5).reshape(2, 20, 3, 5)
    packed_image = layout.pack(image)
    assert packed_image.shape == (2, 1, 3, 1, 2, 5, 16)
    assert np.array_equal(packed_image[1, 0, 2, 0, 1, :, 3], image[1, 19, 2]) and not packed_image[..., 1, :, 4:].any()


def test_scales_are_kept_and_padding_holds_the_zero_point() -> None:
    x = ir.var("x", TensorType((3,), "float32"))
    border = Border(Layout(((0, 2),)), STORED.dtype, STORED.scale, STORED.zero_point)
    encoded_value = encode(x, border)
    values = np.array([0.5, -1, 100], np.float32)
    packed_array, back = evaluate(
        ir.function([x], ir.tuple_([encoded_value, decode(encoded_value, x.type, border)])), {"x": values}
    )
    assert packed_array.dtype == np.int8 and packed_array.tolist() == [[-2, -5], [127, -3]]
    assert back.tolist() == [0.5, -1, 65]


def compiled(function: ir.Function, judges: dict[str, Judge], forms: dict[str, Form], inputs: dict[str, Any]) -> list[str]:
    """The regions of a model, whose results must be the reference's."""
    module = ir.Module({"main": function})
    executable = compile_module(module, list(judges), make_registry(judges, (*DTYPES,), forms))
    expected = evaluate(function, inputs)
    assert_close(tuple(executable.run(inputs).values()), expected if isinstance(expected, tuple) else (expected,))
    return [region.symbol for region in executable.regions]


DTYPES = ("float32", "int8", "int16", "int32")
X = ir.var("x", IMAGE)
INPUTS = {"x": np.random.default_rng(0).integers(-20, 20, (1, 5, 4, 3)).astype(np.float32) / 8}
CHAIN = ir.function([X], ops.relu(ops.neg(ops.abs(X))))
APART: dict[str, Judge] = {"a": taking("abs", "relu"), "b": taking("neg"), "c": taking("pad", "reshape", "transpose")}


def conversions(symbols: list[str]) -> int:
    return sum(symbol.startswith("border") for symbol in symbols)


def test_regions_that_agree_need_no_conversion_between_them() -> None:
    assert conversions(compiled(CHAIN, APART, images(a=BLOCKED, b=BLOCKED), INPUTS)) == 2  # into the first and out of the last
    assert conversions(compiled(CHAIN, APART, images(a=BLOCKED), INPUTS)) == 4
    assert conversions(compiled(CHAIN, APART, images(), INPUTS)) == 0


def test_regions_that_differ_are_converted_between_in_one_step() -> None:
    assert conversions(compiled(CHAIN, APART, images(a=BLOCKED, b=LAST), INPUTS)) == 4


def test_a_value_is_converted_once_for_all_that_read_it() -> None:
    shared = ir.function([X], ir.tuple_([ops.neg(X), ops.relu(ops.neg(ops.abs(X)))]))
    judges: dict[str, Judge] = {"a": taking("abs"), "b": taking("neg"), "d": taking("relu"), "c": APART["c"]}
    names = compiled(shared, judges, images(a=BLOCKED, b=BLOCKED), INPUTS)
    assert conversions(names) == 1 + 2  # x once, and two results


def test_scales_at_borders_are_exact_where_values_are() -> None:
    judges: dict[str, Judge] = {"a": taking("abs", "relu"), "b": taking("neg"), "c": taking("quantize", "dequantize")}
    names = compiled(CHAIN, judges, images(a=EIGHTHS, b=EIGHTHS), INPUTS)
    assert any(name.startswith("border") for name in names)


def test_composites_keep_their_shape_behind_borders() -> None:
    pair = OpRule(is_op("neg")(is_op("abs")(wildcard())), "pair")
    judges: dict[str, Judge] = {"a": (pair, OpRule("relu", "relu", lambda call: Accept()))}
    assert "border0_reference" in compiled(CHAIN, judges, images(a=BLOCKED), INPUTS)


def test_branches_convert_what_their_regions_read() -> None:
    flag = ir.var("flag", TensorType((), "bool"))
    body = ir.if_(flag, ops.neg(ops.relu(X)), ops.abs(X))
    function = ir.function([flag, X], body)
    judges: dict[str, Judge] = {"a": taking("relu", "abs"), "b": taking("neg")}
    for value in (True, False):
        registry = make_registry(judges, (*DTYPES, "bool"), images(a=BLOCKED, b=LAST))
        executable = compile_module(ir.Module({"main": function}), ["a", "b"], registry)
        inputs = {"flag": np.array(value), **INPUTS}
        assert_close(tuple(executable.run(inputs).values()), (evaluate(function, inputs),))


def test_sizes_that_are_not_cut_may_be_symbolic() -> None:
    x = ir.var("x", TensorType((SizeVar("n", 1, 9), 5, 4, 3), "float32"))
    compiled(ir.function([x], ops.neg(x)), {"a": taking("neg")}, images(a=BLOCKED), INPUTS)


HOST: Judge = taking("pad", "reshape", "transpose", "relu")
CHANNELS_LAST = Border(Layout(((1, 8),)))
"""N C H W as N 1 H W C, for up to 8 channels."""


def last(x: ir.Expr) -> ir.Expr:
    return ops.transpose(x, perm=(0, 2, 3, 1))


def first(x: ir.Expr) -> ir.Expr:
    return ops.transpose(x, perm=(0, 3, 1, 2))


def pooled(x: ir.Expr) -> ir.Expr:
    return ops.max_pool(x, kernel=(2, 2))


def stored_regions(function: ir.Function, border: Border) -> dict[str, list[str]]:
    """The operators of each region of a vendor's target for `max_pool`, with a host, behind `border`. The results of the model
    must be the reference's."""
    judges: dict[str, Judge] = {"a": taking("max_pool"), "host": HOST}
    registry = make_registry(judges, (*DTYPES, "bool", "int64"), images(a=border))
    partitioned, candidates = cut(ir.Module({"main": function}), list(judges), registry)
    stored = at_borders(partitioned, candidates, registry).partitioned
    assert verify(stored.module) is None
    return {name: [call.callee.name for call in region_operators(stored.module[name])] for name in stored.regions}  # type: ignore[attr-defined]


@pytest.mark.parametrize("channels", [8, 5])
def test_conversions_are_merged_and_transposes_cancel(channels: int) -> None:
    """The host's regions before and after a vendor's region take over the conversions; the batch is symbolic."""
    n = SizeVar("n", 1, 9)
    x = ir.var("x", TensorType((n, 4, 3, channels), "float32"))
    function = ir.function([x], last(pooled(first(x))))
    before, _, after = stored_regions(function, CHANNELS_LAST).values()
    pads = ["pad"] if channels < 8 else []
    assert (before, after) == ([*pads, "reshape"], ["reshape", *pads])
    inputs = {"x": np.random.default_rng(0).normal(size=(3, 4, 3, channels)).astype(np.float32)}
    judges: dict[str, Judge] = {"a": taking("max_pool"), "host": HOST}
    assert conversions(compiled(function, judges, images(a=CHANNELS_LAST), inputs)) == 0


def test_values_that_others_read_stay() -> None:
    """A value that the host needs as it is stays a result beside the stored one. A stored value with several readers is decoded
    once, by a conversion of its own."""
    x = ir.var("x", TensorType((2, 4, 3, 8), "float32"))
    entering = ops.relu(first(x))
    leaving = pooled(entering)
    function = ir.function([x], ir.tuple_([entering, last(leaving), ops.relu(leaving), leaving]))
    regions = stored_regions(function, CHANNELS_LAST)
    assert [name for name in regions if name.startswith("border")] == ["border1_host"]
    assert conversions(compiled(function, {"a": taking("max_pool"), "host": HOST}, images(a=CHANNELS_LAST), {
        "x": np.random.default_rng(0).normal(size=(2, 4, 3, 8)).astype(np.float32)
    })) == 1  # fmt: skip


def test_conversions_stay_in_their_branch() -> None:
    """The value is converted only if the branch is taken, although a region before the branch could convert it."""
    flag = ir.var("flag", TensorType((), "bool"))
    x = ir.var("x", TensorType((2, 4, 3, 8), "float32"))
    entering = ops.relu(first(x))
    function = ir.function([flag, x], ir.if_(flag, pooled(entering), entering))
    regions = stored_regions(function, CHANNELS_LAST)
    assert sum(name.startswith("border") for name in regions) == 2
    judges: dict[str, Judge] = {"a": taking("max_pool"), "host": HOST}
    for value in (True, False):
        registry = make_registry(judges, (*DTYPES, "bool"), images(a=CHANNELS_LAST))
        executable = compile_module(ir.Module({"main": function}), ["a", "host"], registry)
        inputs = {"flag": np.array(value), "x": np.random.default_rng(0).normal(size=(2, 4, 3, 8)).astype(np.float32)}
        assert_close(tuple(executable.run(inputs).values()), (evaluate(function, inputs),))


def test_hosts_that_reject_composed_moves_stay_as_they_are() -> None:
    """Conversions need the host's consent, in the shapes that they have after composing."""
    x = ir.var("x", TensorType((2, 4, 3, 5), "float32"))
    function = ir.function([x], pooled(first(x)))

    def judge(call: ir.Call) -> Accept | Reject:
        padded = isinstance(call.type, TensorType) and call.type.shape == (2, 4, 3, 8)
        return Reject("no pads of the last axis") if padded else HOST(call)  # type: ignore[operator, no-any-return]

    inputs = {"x": np.random.default_rng(0).normal(size=(2, 4, 3, 5)).astype(np.float32)}
    assert conversions(compiled(function, {"a": taking("max_pool"), "host": judge}, images(a=CHANNELS_LAST), inputs)) == 2


def test_a_loop_level_target_computes_on_what_is_stored() -> None:
    pytest.importorskip("inlaid_x86", reason='needs the x86 plugin: pip install "inlaid[x86]"')
    results = TupleType((IMAGE,))
    function = ir.function([X], ir.tuple_([ops.neg(X)]), (("target", "x86"),))
    stored = stored_function(function, Borders((BLOCKED,), (LAST,)))
    executable = compile_module(ir.Module({"main": stored}), ["x86:threads=1"])
    (actual,) = executable.run({"x": BLOCKED.layout.pack(INPUTS["x"])}).values()
    assert function.body.type == results and np.array_equal(actual, LAST.layout.pack(-INPUTS["x"]))


@pytest.mark.parametrize(
    ("form", "message"),
    [
        (lambda type_: Border(Layout(((7, 4),))), "blocks along axis 7"),
        (lambda type_: Border(dtype="int8", scale=1.0), "a border with a scale needs a float tensor"),
    ],
)
def test_borders_that_do_not_fit_are_the_plugins_fault(form: Callable[[Type], Border], message: str) -> None:
    x = ir.var("x", TensorType((2,), "int32"))
    judges: dict[str, Judge] = {"a": taking("neg")}
    with pytest.raises(PluginError, match=message) as caught:
        compile_module(ir.Module({"main": ir.function([x], ops.neg(x))}), ["a"], make_registry(judges, DTYPES, {"a": form}))
    assert caught.value.plugin is not None


def test_every_tensor_has_a_border(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FormsCodegen, "borders", lambda self, region: Borders((), (BLOCKED,)))
    with pytest.raises(PluginError, match="expected borders of 1 inputs and 1 outputs, got 0 inputs and 1 outputs"):
        compiled(CHAIN, APART, images(a=BLOCKED), INPUTS)


def any_form(seed: int) -> Form:
    """A layout by chance, but always the same of one type."""

    def form(type_: Type) -> Border:
        shape = type_.shape if isinstance(type_, TensorType) else ()
        generator = np.random.default_rng(list(f"{seed} {type_!r}".encode()))
        sized = [axis for axis, dim in enumerate(shape) if isinstance(dim, int)]
        if not sized or generator.random() < 0.3:
            return Border()
        return Border(Layout(((int(generator.choice(sized)), int(generator.integers(1, 5))),)))

    return form


@settings(max_examples=40, deadline=None)
@given(plan_programs(), targets, st.integers(0, 99))
def test_models_with_borders_give_the_same(program: Program, drawn: list[tuple[int, float]], seed: int) -> None:
    judges = random_judges(drawn)
    # One target may have no form: conversions that it accepts become parts of its regions.
    forms = {kind: any_form(seed + number // 2) for number, kind in enumerate(judges) if number != seed % 4}
    executable = compile_module(program.module, list(judges), make_registry(judges, forms=forms))
    results = executable.run(program.inputs)
    expected = evaluate(program.module, program.inputs)
    assert_close(tuple(results.values()), expected if isinstance(expected, tuple) else (expected,))
