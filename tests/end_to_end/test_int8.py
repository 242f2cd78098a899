"""Models in eight bits on x86, made by ONNX Runtime's quantizer: the integers that ONNX Runtime computes.

ONNX Runtime has two answers itself. Plain, it computes in float32 what stands between DequantizeLinear and QuantizeLinear;
optimized, it fuses them to integer operators of its own, some of which round elsewhere (the sum of two branches) or approximate (a
softmax from a table). Inlaid sums products in integers, as the optimized execution does, and computes all else as the plain one.
"""

from __future__ import annotations

import numpy as np
import pytest
from tests.onnx_runtime import answers

import inlaid
from inlaid.driver import after_step
from inlaid.graph.ir import Call, post_order
from inlaid.graph.operator import Operator
from inlaid.plugins.registry import default_registry
from zoo import GENERATED, feeds
from zoo.net import Net
from zoo.quantized import quantized

TARGET = "x86:threads=1"
INTEGER_ALONE = ("mobilenet_v2",)
"""Models in which nothing is computed in float between quantizations but sums of branches."""

pytestmark = pytest.mark.skipif(
    "x86" not in default_registry().kinds(), reason='the x86 plugin is not installed: pip install "inlaid[x86]"'
)


def in_eight_bits(model, signed=False, per_channel=True):
    return quantized(model, lambda seed: feeds(model, seed), signed, per_channel)


def scales(model):
    """The step from one integer to the next of each output that is dequantized last."""
    weights = {item.name: item for item in model.graph.initializer}
    import onnx

    return {
        node.output[0]: float(onnx.numpy_helper.to_array(weights[node.input[1]]))
        for node in model.graph.node
        if node.op_type == "DequantizeLinear" and node.output[0] in {item.name for item in model.graph.output}
    }


def assert_integers(model, outputs, expected, max_steps):
    """Outputs that are dequantized last differ by so many steps at most; others by what float32 may."""
    steps = scales(model)
    for name, other in expected.items():
        off = np.abs(outputs[name] - other).max()
        assert off <= (max_steps * steps[name] * 1.0001 if name in steps else 1e-3 * np.abs(other).max()), name


FORMS = {
    "uint8 by channel": (False, True),
    "int8 by tensor": (True, False),
    "int8 by channel": (True, True),
    "uint8 by tensor": (False, False),
}
"""Whether data are signed, and whether weights have a scale per channel."""
EVERY_FORM = ("mobilenet_v2", "bert_base")
"""Models that have all: one of convolutions and one of products of matrices. So has `a_network`."""
TWO_FORMS = ("detector", "text_finder", "crnn", "gpt2_prefill", "super_resolution")
"""Models that have the first two, which differ in both. With `EVERY_FORM` they hold every operator of the others, which have the
first alone."""


def model_forms(name):
    return list(FORMS)[: None if name in EVERY_FORM else 2 if name in TWO_FORMS else 1]


def operators(name):
    return {node.op_type for node in GENERATED[name].tiny().graph.node}


def test_every_operator_has_two_forms():
    assert set().union(*map(operators, GENERATED)) == set().union(*map(operators, EVERY_FORM + TWO_FORMS))


@pytest.mark.parametrize(("name", "form"), [(name, form) for name in GENERATED for form in model_forms(name)])
def test_tiny(name, form):
    signed, per_channel = FORMS[form]
    model = in_eight_bits(GENERATED[name].tiny(), signed, per_channel)
    executable = inlaid.compile(model, [TARGET])
    for seed in (7, 8):
        arrays = feeds(model, seed)
        outputs = executable.run(arrays)
        assert_integers(model, outputs, answers(model, arrays, optimized=False), 0)
        if name in INTEGER_ALONE:
            assert_integers(model, outputs, answers(model, arrays, optimized=True), 0)


def a_network():
    """What quantized networks are made of: strides, groups, pads, branches that are joined and added, pools, a product."""
    net = Net("parts")
    x = net.input("x", (2, 6, 13, 11))

    def conv(data, inputs, outputs, kernel, groups=1, **attrs):
        weight = net.weight("w", (outputs, inputs // groups, kernel, kernel), 0.4)
        return net.node("Conv", data, weight, net.weight("b", (outputs,), 0.2), group=groups, **attrs)

    stem = net.node("Relu", conv(x, 6, 16, 3, strides=[2, 2], pads=[1, 1, 1, 1]))
    left = net.node("Clip", conv(stem, 16, 16, 3, 16, pads=[1, 1, 1, 1]), net.constant(0.0), net.constant(6.0))
    right = net.node("MaxPool", stem, kernel_shape=[3, 3], pads=[1, 1, 1, 1])
    joined = net.node("Concat", left, right, net.node("Add", left, stem), axis=1)
    mixed = conv(joined, 48, 20, 1)
    gate = net.node("HardSigmoid", net.node("GlobalAveragePool", mixed))
    scaled = net.node("Sigmoid", net.node("Mul", mixed, gate))
    pooled = net.node("AveragePool", scaled, kernel_shape=[2, 2], strides=[2, 2])
    flat = net.node("Flatten", net.node("GlobalAveragePool", pooled))
    net.output(net.node("Gemm", flat, net.weight("fc", (10, 20), 0.4), net.weight("c", (10,), 0.2), transB=1), "y", (2, 10))
    return net.build()


@pytest.mark.parametrize("per_channel", [True, False], ids=["by channel", "by tensor"])
@pytest.mark.parametrize("signed", [False, True], ids=["uint8", "int8"])
@pytest.mark.parametrize("target", [TARGET, "x86:threads=2", "x86:threads=1,cpu=x86-64-v3", "x86:threads=1,cpu=x86-64-v2"])
def test_what_networks_are_made_of(target, signed, per_channel):
    model = in_eight_bits(a_network(), signed, per_channel)
    executable = inlaid.compile(model, [target])
    for seed in range(3):
        arrays = feeds(model, seed)
        assert_integers(model, executable.run(arrays), answers(model, arrays, optimized=False), 1)


def test_products_are_of_integers():
    """No product, mean over an image or concatenation is left in float, and right operands are int8."""
    for built in (a_network(), GENERATED["bert_base"].tiny(), GENERATED["vit_b16"].tiny()):
        main = after_step(inlaid.load(in_eight_bits(built)), [TARGET], "name_sizes").main
        for call in post_order(main):
            if isinstance(call, Call) and isinstance(call.callee, Operator):
                operands = [arg.type.dtype.name for arg in call.args]
                if call.callee.name in ("conv", "matmul"):
                    assert operands[0] in ("uint8", "int8")
                    assert operands[1] == "int8"
                elif call.callee.name in ("concat", "max_pool"):
                    assert set(operands) == {"uint8"}


def test_one_executable_for_all_sizes():
    from zoo.vision import TINY_MOBILENET, mobilenet

    model = mobilenet(TINY_MOBILENET, "batch")
    model = quantized(model, lambda seed: feeds(model, seed, {"batch": 2}))
    executable = inlaid.compile(model, [TARGET])
    for batch in (1, 3, 5):
        arrays = feeds(model, sizes={"batch": batch})
        assert_integers(model, executable.run(arrays), answers(model, arrays, optimized=False), 0)


def test_the_same_model_every_time():
    first, second = (in_eight_bits(GENERATED["bert_base"].tiny()).SerializeToString(deterministic=True) for _ in range(2))
    assert first == second
