"""Examples of composites are made from patterns: every part of a pattern, with types that fit and scales that are sound."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from inlaid import ops
from inlaid.graph import ir
from inlaid.graph.interp import evaluate
from inlaid.graph.operator import Operator
from inlaid.graph.pattern import (
    Pattern,
    dominates,
    is_const,
    is_op,
    is_scalar,
    is_var,
    match,
    tuple_item,
    wildcard,
)
from inlaid.ops.composites import (
    biased,
    padded_conv,
    quantized_average_pool,
    quantized_binary,
    quantized_conv,
    quantized_mean,
)
from inlaid.partitioning.accumulate import magnitudes
from inlaid.plugins import Accept, Conformance, ExpectedFailure, OpRule, Region, Reject, Tolerance, Verdict
from inlaid.reference.codegen import ReferenceCodegen
from inlaid_conformance.accumulators import fitted_weights, greatest_bias
from inlaid_conformance.case import Failed
from inlaid_conformance.corpus import CORPUS
from inlaid_conformance.levels import composites
from inlaid_conformance.pattern_examples import Draw, NoExampleError, PatternExample, generate_example
from inlaid_conformance.pattern_examples.constants import NarrowSums
from inlaid_conformance.suite import expects_what_there_is
from inlaid_conformance.values import Mix
from inlaid_conformance.variants import variants
from inlaid_runtime.types import TensorType

from .played import DTYPES, under_test


def rectified(x: Pattern) -> Pattern:
    return is_op("relu")(x)


def gelu() -> Pattern:
    x = wildcard()
    inner = is_op("add")(is_op("erf")(is_op("div")(x, is_scalar(1.5))), is_scalar(1.0))
    return is_op("mul")(is_op("mul")(x, inner), is_scalar(0.5))


def centered() -> Pattern:
    x = wildcard()
    total = is_op("reduce_sum")(x).has_attr(keepdims=True)
    return is_op("sub")(x, is_op("div")(total, is_const().has_rank(0)))


def stored_conv() -> Pattern:
    x, w = (is_op("dequantize")(part, is_const().has_rank(0)) for part in (wildcard(), is_const()))
    bias = is_op("dequantize")(is_const(), is_const().has_rank(0))
    return is_op("quantize")(is_op("add")(is_op("conv")(x, w).named("conv"), bias.named("bias")), is_const())


PATTERNS: dict[str, Callable[[], Pattern]] = {
    "a chain": lambda: is_op("sigmoid")(rectified(is_op("add")(wildcard(), is_const()))),
    "a layer": lambda: is_op("max_pool")(rectified(is_op("add")(is_op("conv")(wildcard(), is_const()), is_const()))),
    "a convolution of what is padded": lambda: is_op("conv")(is_op("pad")(wildcard(), wildcard()), wildcard()),
    "a product of a product": lambda: is_op("matmul")(is_op("softmax")(is_op("matmul")(wildcard(), wildcard())), wildcard()),
    "a product from the right": lambda: is_op("matmul")(wildcard(), is_op("exp")(wildcard())),
    "one thing twice": gelu,
    "a mean": centered,
    "both sides": lambda: is_op("concat")(rectified(wildcard()), is_op("sigmoid")(wildcard())),
    "a choice": lambda: is_op("where")(is_op("less")(wildcard(), wildcard()), rectified(wildcard()), wildcard()),
    "a result of several": lambda: rectified(tuple_item(is_op("topk")(wildcard()), 0)),
    "what dominates": lambda: dominates(is_op("matmul"), is_op("relu", "neg"), is_op("add")(wildcard(), is_var())),
    "a shape and a type": lambda: rectified(wildcard().has_type(TensorType((2, 1, 4), "float32"))),
    "one of five dimensions": lambda: rectified(is_op("neg")(wildcard().has_rank(5))),
    "indices": lambda: rectified(is_op("take")(is_const().has_rank(2), wildcard())),
    "computed indices": lambda: is_op("take")(wildcard(), is_op("neg")(wildcard().has_dtype("int32"))),
    "integers": lambda: is_op("add")(is_op("mul")(wildcard().has_dtype("int8"), wildcard()), wildcard()),
    "a quantized layer": quantized_conv,
    "two quantized tensors": lambda: quantized_binary("add"),
    "a layer stored": stored_conv,
    "an average pool": quantized_average_pool,
    "an operator of a vendor's own": lambda: rectified(is_op(Operator("acme.twin", lambda attrs, a, b: a, arity=(2, 2)))),
}


def first(pattern: Pattern, start: int = 0, **facts: Any) -> PatternExample:
    """The first example that can be generated from a pattern without alternatives, from number `start` on."""
    reason = ""
    for number in range(start, start + 60):
        for element in DTYPES:
            try:
                return generate_example(pattern, Draw(number, element, DTYPES, **facts))
            except NoExampleError as error:
                reason = str(error)
    raise AssertionError(reason)


@pytest.mark.parametrize("name", PATTERNS)
def test_every_variant_of_a_pattern_has_examples(name: str) -> None:
    pattern = PATTERNS[name]()
    for variant in variants(pattern):
        for constant in (False, True):
            example = first(variant.pattern, constant_operands=constant)
            assert match(variant.pattern, example.function.body) is not None
            assert match(pattern, example.function.body) is not None
            if "vendor" not in name:
                evaluate(example.function, example.inputs)


@pytest.mark.parametrize("operator", [entry.operator.name for entry in CORPUS if entry.operator.arity[1] != 1])
def test_every_argument_may_be_computed(operator: str) -> None:
    """Patterns have examples, or the reason why not, whatever the shape of a computed argument."""
    least = ops.TABLE[operator].arity[0]
    for computed in range(least):
        parts = [is_op("cast")(wildcard()) if number == computed else wildcard() for number in range(least)]
        for number in range(4):
            with contextlib.suppress(NoExampleError):
                generate_example(is_op(operator)(*parts), Draw(number, "float32", DTYPES, constant_operands=number % 2 == 1))


def test_an_example_with_an_index_out_of_range_does_not_count() -> None:
    composites.agrees(under_test(OpRule(PATTERNS["computed indices"](), "rows")), "rows")
    pattern = is_op("take")(wildcard(), is_op("add")(wildcard().has_dtype("int32"), is_scalar(1e6)))
    composites.agrees(under_test(OpRule(pattern, "rows")), "rows")  # on empty indices alone


def test_bounds_of_one_type_beside_data_of_another_are_drawn_again() -> None:
    target = under_test(OpRule(quantized_mean(), "mean"), dtypes=("int8", "uint8"))
    assert not composites.agrees(target, "mean")


@pytest.mark.parametrize("bits", [12, 16, 20, 24])
@pytest.mark.parametrize("operator", [ops.conv, ops.matmul])
def test_weights_fill_a_narrow_accumulator(operator: Operator, bits: int) -> None:
    rng, images = np.random.default_rng(bits), operator is ops.conv
    x = ir.var("x", TensorType((1, 120, 5, 5) if images else (3, 1080), "uint8"))
    weights = ir.constant(rng.integers(-128, 128, (4, 120, 3, 3) if images else (1080, 4)).astype(np.int8))
    call = operator(x, weights)
    fitted = fitted_weights(call, bits)
    bound = magnitudes(operator(x, fitted))
    assert bound is not None
    max_value = (1 << (bits - 1)) - 1
    assert np.all(bound + 2 * greatest_bias(bits) <= max_value) and np.all(bound >= 0.8 * max_value)
    assert np.all(fitted.data * weights.data.astype(np.int32) >= 0) and np.all(
        abs(fitted.data) <= abs(weights.data.astype(np.int32))
    )
    assert np.array_equal(fitted_weights(call, 31).data, weights.data)


def test_only_biases_of_narrow_sums_are_clipped() -> None:
    """A call that is created where a rejected sum was freed is no sum."""
    sums, x = NarrowSums(16), ir.var("x", TensorType((3, 5), "int8"))
    weights = ir.constant(np.full((5, 2), 100, np.int8))
    for _ in range(50):
        sums.fit(ops.matmul(x, weights, out_dtype="int32"))
    shifted = [ops.shift_right(ops.cast(x, dtype="int32"), np.int32(3)) for _ in range(50)]
    for value in shifted:
        call = ops.add(value, np.int32(1 << 20))
        assert sums.fit(call) is call
    total = sums.fit(ops.add(sums.fit(ops.matmul(x, weights, out_dtype="int32")), np.int32(1 << 20)))
    assert total.args[1].data == greatest_bias(16)  # type: ignore[attr-defined]


def test_a_rule_for_aligned_convolutions_padded_with_zeros_is_exercised() -> None:
    """An accelerator sums blocks of channels and pads with 0 alone."""

    def judge(pattern_match: Any) -> Verdict:
        x, w, pad = pattern_match["x"].type, pattern_match.constant("w"), pattern_match["pad"]
        if x.rank != 4 or x.dtype.name != "int8" or 0 in x.shape or pattern_match.attrs("conv").groups != 1:
            return Reject("expected one group of an int8 image")
        if w.shape[1] < 8:
            return Reject("expected at least 8 channels")
        return Reject("expected a padding of 0") if pad.args[1].data.any() else Accept()

    rule = OpRule(biased(padded_conv(), 1), "conv", judge)
    assert not composites.agrees(under_test(rule), "conv")


@pytest.mark.parametrize("wrap", [rectified, lambda x: is_op("cast")(is_op("clip")(x))])
def test_an_example_is_drawn_like_another_of_its_operators(wrap: Callable[[Pattern], Pattern]) -> None:
    """The shape that a consumer asks for is that of the result, not of the data of a convolution."""
    product = is_op("conv")(is_op("pad")(wildcard(), is_const().has_rank(0)), is_const())
    for number in range(5):
        reference_example = first(product, start=number)
        again = first(
            wrap(product), start=number + 60, recipes={**first(wrap(wildcard()), start=number).recipes, **reference_example.recipes}
        )
        assert again.function.params[0].type == reference_example.function.params[0].type


def test_the_same_example_has_other_values() -> None:
    mixes: tuple[Mix, ...] = ("plain", "special", "edge")
    examples = [generate_example(PATTERNS["a chain"](), Draw(5, "float32", DTYPES, mix=mix)) for mix in mixes]
    assert len({str(each) for each in examples}) == 1
    assert [bool(np.isnan(each.inputs[0]).any()) for each in examples] == [False, True, False]


def test_a_bias_has_the_scale_of_the_product() -> None:
    pattern_match = match(stored_conv(), first(stored_conv()).function.body)
    assert pattern_match is not None
    scales = [arg.args[1].data for arg in (*pattern_match.call("conv").args, pattern_match["bias"])]  # type: ignore[attr-defined]
    assert scales[0] * scales[1] == scales[2]
    assert all(np.log2(float(scale)) % 1 == 0 for scale in scales)


def test_variants_have_each_part_once() -> None:
    product = is_op("matmul", "mul")(wildcard().named("a"), is_const())
    biased = product.optional(lambda it: is_op("add")(it, wildcard()))
    variant_texts = [str(variant) for variant in variants(biased.optional(rectified))]
    assert variant_texts[0] == "relu(add(matmul(a, const), *))"
    assert {*variant_texts} >= {
        "relu(matmul(a, const))",
        "add(matmul(a, const), *)",
        "mul(a, const)",
        "relu(add(mul(a, const), *))",
    }
    assert len(variant_texts) == len({*variant_texts}) == 8


class Careless(ReferenceCodegen):
    """Forgets that there are negative numbers of one row."""

    def compile(self, unit: Region, context: Any) -> Any:
        params = unit.function.params
        (field,) = unit.function.body.fields  # type: ignore[attr-defined]
        if isinstance(field.type, TensorType) and field.type.rank == 1:
            unit = Region(unit.symbol, ir.function(params, ir.tuple_([ops.abs(field)]), unit.function.attrs), unit.target)
        return super().compile(unit, context)


def test_each_composite_is_a_case() -> None:
    one, other = rectified(is_op("neg")(wildcard())), rectified(is_op("exp")(wildcard()))
    failure = ExpectedFailure("operators/composite[two]", "it is hard")
    target = under_test(
        OpRule(one, "one"), OpRule(other, "two"), OpRule("add"), declaration=Conformance(expected_failures=(failure,))
    )
    assert [case.id for case in composites.cases(target)] == ["operators/composite[one]", "operators/composite[two]"]
    expects_what_there_is(target)
    for case in composites.cases(target):
        case.check(target)


def test_what_is_wrong_in_one_shape_is_found() -> None:
    rule = OpRule(is_op("sub")(is_op("reduce_sum")(wildcard()), wildcard()), "less")
    composites.agrees(under_test(rule), "less")
    with pytest.raises(Failed, match=r"sub\(reduce_sum.* it differs from the reference: "):
        composites.agrees(under_test(rule, codegen=Careless), "less")


def test_what_the_suite_cannot_make_a_plugin_gives() -> None:
    def odd(expr: ir.Expr) -> bool:
        return isinstance(expr.type, TensorType) and expr.type.shape == (11, 13, 17)

    rule = OpRule(rectified(is_op("neg")(wildcard().where(odd, "it has another shape"))), "odd")
    with pytest.raises(Failed, match=r"found no example that the rule accepts: neg of .* does not match; declare one"):
        composites.agrees(under_test(rule), "odd")
    x = ir.var("x", TensorType((11, 13, 17), "float32"))
    composites.agrees(under_test(rule, declaration=Conformance(examples=(ir.function((x,), ops.relu(ops.neg(x))),))), "odd")


def test_a_part_without_examples_is_named() -> None:
    never = is_op("exp")(wildcard()).where(lambda expr: False)
    rule = OpRule(rectified(is_op("neg")(wildcard()) | never), "either")
    with pytest.raises(Failed, match=r"found no example of relu\(exp\(\*\)\): exp of .* does not match"):
        composites.agrees(under_test(rule), "either")


class LastBit(ReferenceCodegen):
    """Turns over the last bit of every result."""

    def compile(self, unit: Region, context: Any) -> Any:
        body = unit.function.body
        (result,) = body.fields if isinstance(body, ir.Tuple) else (body,)
        assert isinstance(result.type, TensorType)
        turned = ops.bitwise_xor(result, ir.constant(np.ones((), result.type.dtype.numpy)))
        return super().compile(replace(unit, function=ir.function(unit.function.params, ir.tuple_([turned]))), context)


def test_integers_may_differ_by_the_steps_that_a_plugin_declares() -> None:
    rule = OpRule(is_op("neg")(is_op("neg")(wildcard().has_dtype("int32"))), "twice")
    with pytest.raises(Failed, match=r"elements, by up to 1 steps"):
        composites.agrees(under_test(rule, codegen=LastBit), "twice")
    declaration = Conformance(tolerances=(Tolerance("int32", steps=1, operator="twice"),))
    composites.agrees(under_test(rule, codegen=LastBit, declaration=declaration), "twice")
