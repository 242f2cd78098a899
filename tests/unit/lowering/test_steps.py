"""Regions as steps over numbered buffers."""

from __future__ import annotations

import numpy as np
import pytest

from inlaid import ops
from inlaid.graph import ir
from inlaid.graph.pattern import is_const, is_op, match, wildcard
from inlaid.lowering.steps import StepProgram, convert_to_steps
from inlaid.ops.composites import quantized_binary, quantized_conv, quantized_matmul, quantized_mean
from inlaid.partitioning import partition
from inlaid.partitioning.annotate import Candidate
from inlaid.plugins import OpRule, Target
from inlaid_runtime.arith import SizeVar
from inlaid_runtime.artifact import ALIGNMENT
from inlaid_runtime.errors import CompileError
from inlaid_runtime.types import TensorType

DTYPES = frozenset(("int8", "uint8", "int32", "int64", "float32", "bool"))


def steps(body: ir.Expr, params: tuple[ir.Var, ...], *rules: OpRule) -> StepProgram:
    """The steps of the only region that a target with these rules makes of a function."""
    cut = partition(ir.Module({"main": ir.function(params, body)}), [Candidate(Target("a"), rules, DTYPES)])
    (name,) = cut.regions
    return convert_to_steps(name, cut.module[name], rules)


def scalar(value, dtype):
    return ir.constant(np.asarray(value, dtype))


def number(shape, dtype="int8"):
    return ir.constant(np.arange(np.prod(shape)).reshape(shape).astype(dtype))


X = ir.var("x", TensorType((1, 4, 6, 6), "int8"))


def test_operators_and_their_places():
    relu = ops.relu(X, span=ir.Span("m", "r"))
    total = ops.add(relu, number((1, 4, 1, 1)))
    program = steps(ir.tuple_([ops.mul(total, relu), ops.abs(total)]), (X,), OpRule("*"))
    assert [step.name for step in program.steps] == ["relu", "add", "mul", "abs"]
    first, second, third, fourth = program.steps
    assert first.nodes == ("r",)
    storages = [program.buffers[step.outputs[0]].storage for step in program.steps]
    assert storages == ["arena", "arena", "output", "output"]
    assert [program.buffers[step.outputs[0]].index for step in (third, fourth)] == [0, 1]
    assert program.buffers[first.inputs[0]].storage == "input"
    (constant,) = [program.buffers[n] for n in second.inputs if program.buffers[n].storage == "constant"]
    assert list(program.constants.values())[constant.index].shape == (1, 4, 1, 1)
    offsets = {program.buffers[step.outputs[0]].offset for step in (first, second)}  # both live at once
    assert len(offsets) == 2 and all(offset % ALIGNMENT == 0 for offset in offsets)
    assert program.workspace >= 2 * 144
    artifact = program.artifact("f", 3, b"code")
    assert (artifact.symbol, artifact.format_version, artifact.workspace) == (program.name, 3, {"": program.workspace})
    assert [spec.shape for spec in artifact.signature.outputs] == [X.type.shape] * 2


def test_buffers_that_do_not_live_at_once_share_memory():
    expr = X
    for _ in range(6):
        expr = ops.relu(expr)
    program = steps(expr, (X,), OpRule("*"))
    assert program.workspace == 2 * 192  # 144 bytes each, aligned


def test_several_results_and_symbolic_sizes():
    x = ir.var("x", TensorType((SizeVar("n", 1), 8), "float32"))
    best = ops.topk(x, k=2, axis=1)
    program = steps(ir.tuple_([ir.tuple_item(best, 1), ops.relu(ir.tuple_item(best, 0))]), (x,), OpRule("*"))
    topk = program.steps[0]
    assert [program.buffers[n].storage for n in topk.outputs] == ["arena", "output"]
    assert [(dim.name, dim.input, dim.axis) for dim in program.signature.dims if dim.input is not None] == [("n", 0, 0)]


def conv(x, bias=True, least=None):
    padded = ops.pad(x, scalar(-3, "int8"), pads=(0, 0, 1, 1, 0, 0, 1, 1))
    total = ops.conv(padded, number((8, 4, 3, 3)), out_dtype="int32")
    if bias:
        total = ops.add(number((8, 1, 1), "int32"), total)
    result = ops.requantize(total, ir.constant(np.linspace(0.1, 0.8, 8, dtype=np.float32)), scalar(5, "int8"), dtype="int8", axis=1)
    return result if least is None else ops.maximum(result, scalar(least, "int8"))


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("least", [None, 2])
def test_a_convolution_in_integers(bias, least):
    program = steps(conv(X, bias, least), (X,), OpRule(quantized_conv(), "conv2d"))
    (step,) = program.steps
    assert step.name == "conv2d"
    assert program.buffers[step.buffer("x")].storage == "input" and step.inputs == (step.buffer("x"),)
    assert step.array("w").shape == (8, 4, 3, 3)
    assert program.buffers[step.buffer("w")].storage == "constant"
    assert step.attrs("pad").pads == (0, 0, 1, 1, 0, 0, 1, 1)
    assert step.attrs("conv").out_dtype == "int32"
    assert ("bias" in step, "least" in step, "greatest" in step) == (bias, least is not None, False)
    quantization = step.quantized("y")
    assert (quantization.scale.shape, quantization.zero_point.item(), quantization.axis, quantization.dtype.name) == (
        (8,),
        5,
        1,
        "int8",
    )
    with pytest.raises(CompileError, match="unknown part 'z' of conv2d"):
        step.buffer("z")
    with pytest.raises(CompileError, match="must be an operand or a constant"):
        step.buffer("conv")
    with pytest.raises(CompileError, match="part 'x' of conv2d must be a constant"):
        step.array("x")
    with pytest.raises(CompileError, match="part 'x' of conv2d must be an operator call"):
        step.attrs("x")
    with pytest.raises(CompileError, match="must have a constant scale"):
        step.quantized("conv")


def test_a_bias_that_is_none():
    odd = ops.add(ops.conv(X, number((4, 4, 1, 1)), out_dtype="int32"), number((6,), "int32"))
    stored = ops.requantize(odd, scalar(1, "float32"), scalar(0, "int8"), dtype="int8", axis=1)
    assert match(quantized_conv(), stored) is None


def test_a_product_a_mean_and_a_sum():
    wide = ops.sub(ops.cast(X, dtype="int32"), scalar(4, "int32"))
    mean = ops.requantize(
        ops.reduce_sum(wide, axes=(2, 3), keepdims=True), scalar(0.02, "float32"), scalar(-1, "int8"), dtype="int8", axis=1
    )
    flat = ops.reshape(mean, shape=(1, 4))
    product = ops.add(ops.matmul(flat, number((4, 5)), out_dtype="int32"), number((5,), "int32"))
    stored = ops.requantize(product, scalar(0.5, "float32"), scalar(7, "int8"), dtype="int8", axis=1)
    one = ops.dequantize(stored, scalar(0.25, "float32"), scalar(7, "int8"), dtype="float32")
    other = ops.dequantize(stored, scalar(0.5, "float32"), dtype="float32")
    result = ops.quantize(ops.relu(ops.add(one, other)), scalar(0.75, "float32"), scalar(1, "int8"), dtype="int8")
    rules = (
        OpRule(quantized_mean(), "mean"),
        OpRule(quantized_matmul(), "matmul"),
        OpRule(quantized_binary("add", "mul"), "binary"),
        OpRule("reshape"),
    )
    program = steps(result, (X,), *rules)
    mean, reshape, matmul, add = program.steps
    assert [step.name for step in program.steps] == ["mean", "reshape", "matmul", "binary"]
    assert mean.array("center") == 4 and mean.attrs("sum").axes == (2, 3)
    assert reshape.attrs().shape == (1, 4)
    assert matmul.array("w").shape == (4, 5) and matmul.array("bias").tolist() == [0, 1, 2, 3, 4]
    assert add.buffer("a") == add.buffer("b") == matmul.outputs[0] and "relu" in add
    assert [(add.quantized(part).scale.item(), add.quantized(part).zero_point.item()) for part in ("real_a", "real_b", "y")] == [
        (0.25, 7), (0.5, 0), (0.75, 1),
    ]  # fmt: skip


def test_constants_are_kept_once():
    pattern = is_op("add")(wildcard().named("x"), is_const().named("c"))
    program = steps(ops.add(ops.add(X, number((1, 4, 1, 1))), number((1, 4, 1, 1))), (X,), OpRule(pattern, "sum"))
    assert not program.constants  # nobody has asked for one
    (buffer_index,) = {step.buffer("c") for step in program.steps}
    assert program.buffers[buffer_index].storage == "constant" and program.buffers[buffer_index].shape == (1, 4, 1, 1)
    packed = np.arange(3, dtype=np.int32)
    assert program.constant(packed) == program.constant(packed.copy()) == buffer_index + 1
    assert [array.dtype.name for array in program.artifact("f", 1, b"").constants.values()] == ["int8", "int32"]


def test_rules_that_changed():
    cut = partition(
        ir.Module({"main": ir.function([X], conv(X))}), [Candidate(Target("a"), (OpRule(quantized_conv(), "c"),), DTYPES)]
    )
    (name,) = cut.regions
    with pytest.raises(CompileError, match="no rule 'c' of the target matches"):
        convert_to_steps(name, cut.module[name], ())
