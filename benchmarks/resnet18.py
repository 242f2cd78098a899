"""ResNet-18 (He et al., 2015) with seeded weights, batch normalization folded, and its int8 form for VTA."""

from __future__ import annotations

import numpy as np

import inlaid
from inlaid import ops
from inlaid.graph.ir import Expr, Module, constant, function, var
from inlaid_runtime.types import TensorType

STAGES = (64, 128, 256, 512)
"""Channels of the four stages, of two residual blocks each."""


def build(size: int = 224, classes: int = 1000, stages: tuple[int, ...] = STAGES, seed: int = 0) -> Module:
    """The float model: an image `x` (1, 3, size, size) to (1, classes). Weights are He-initialized, biases small."""
    random = np.random.default_rng(seed)

    def conv(x: Expr, inputs: int, outputs: int, kernel: int, stride: int) -> Expr:
        scale = np.sqrt(2 / (inputs * kernel * kernel))
        weights = random.normal(0, scale, (outputs, inputs, kernel, kernel)).astype(np.float32)
        bias = random.normal(0, 0.1, (1, outputs, 1, 1)).astype(np.float32)
        pads = (kernel // 2,) * 4
        return ops.add(ops.conv(x, constant(weights), strides=(stride, stride), pads=pads), constant(bias))

    x = var("x", TensorType((1, 3, size, size), "float32"))
    y = ops.relu(conv(x, 3, stages[0], 7, 2))
    y = ops.max_pool(y, kernel=(3, 3), strides=(2, 2), pads=(1, 1, 1, 1))
    inputs = stages[0]
    for stage, outputs in enumerate(stages):
        for block in range(2):
            stride = 2 if stage and not block else 1
            short = y if inputs == outputs else conv(y, inputs, outputs, 1, stride)
            y = ops.relu(conv(y, inputs, outputs, 3, stride))
            # Half of a residual branch, so that the sums of blocks do not grow.
            y = ops.relu(ops.add(conv(y, outputs, outputs, 3, 1), short))
            inputs = outputs
    y = ops.reshape(ops.avg_pool(y, kernel=y.type.shape[2:]), shape=(1, inputs))
    weights = random.normal(0, 1 / np.sqrt(inputs), (inputs, classes)).astype(np.float32)
    return Module({"main": function([x], ops.matmul(y, constant(weights)))})


def quantized(module: Module, samples: int = 2, seed: int = 1) -> inlaid.QuantizedModule:
    """The int8 form with power-of-two scales, calibrated on seeded noise. Activations are symmetric: LOAD pads with 0."""
    random = np.random.default_rng(seed)
    (param,) = module.main.params
    assert isinstance(param.type, TensorType)
    shape = tuple(int(dim) for dim in param.type.shape)
    data = [{param.name: random.normal(size=shape).astype(np.float32)} for _ in range(samples)]
    settings = inlaid.Quantization(activations="symmetric")
    return inlaid.quantize(module, data, settings, for_targets=["vta_fpga", "x86"])
