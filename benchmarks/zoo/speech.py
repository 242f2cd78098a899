"""Speech recognition piece by piece: each call takes the states that the last one gave."""

from __future__ import annotations

import math
from dataclasses import dataclass

import onnx

from zoo.layers import layer_norm, linear
from zoo.net import Net, Size


@dataclass(frozen=True)
class Speech:
    """The encoder of a streaming recognizer (after He et al., 2019): causal convolutions over time, then LSTM layers with
    projections, and the log-probabilities of characters."""

    features: int = 80
    width: int = 256
    convolutions: int = 2
    layers: int = 3
    hidden: int = 512
    classes: int = 64


TINY_SPEECH = Speech(features=6, width=8, layers=2, hidden=8, classes=5)
KERNEL = 5
"""Frames that a convolution sees: the new one and those before it."""


def speech(config: Speech = Speech(), batch: Size = 1, frames: Size = 16) -> onnx.ModelProto:
    """float32 [batch, frames, features], the last frames that each convolution saw [batch, channels, 4], and states and cells of
    each LSTM layer [1, batch, hidden] → log-probabilities [batch, frames, classes], and frames, states and cells for the next
    call."""
    net = Net("speech")
    x = net.node("Transpose", net.input("features", (batch, frames, config.features)), perm=[0, 2, 1])
    channels = config.features
    for layer in range(config.convolutions):
        history = net.input(f"seen.{layer}", (batch, channels, KERNEL - 1))
        with net.scope(f"conv{layer}"):
            window = net.node("Concat", history, x, axis=2)
            bounds = (net.constant([-(KERNEL - 1)], "int64"), net.constant([2**31 - 1], "int64"), net.constant([2], "int64"))
            net.output(net.node("Slice", window, *bounds), f"seen.{layer}.next", (batch, channels, KERNEL - 1))
            weight = net.weight("weight", (config.width, channels, KERNEL), math.sqrt(6 / (channels * KERNEL)))
            x = net.node("Relu", net.node("Conv", window, weight, net.weight("bias", (config.width,), 0.1)))
        channels = config.width
    x = net.node("Transpose", x, perm=[2, 0, 1])
    for layer in range(config.layers):
        state, cell = (net.input(f"{name}.{layer}", (1, batch, config.hidden)) for name in ("state", "cell"))
        with net.scope(f"lstm{layer}"):
            w = net.weight("W", (1, 4 * config.hidden, channels), math.sqrt(3 / channels))
            r = net.weight("R", (1, 4 * config.hidden, config.hidden), math.sqrt(3 / config.hidden))
            b = net.weight("B", (1, 8 * config.hidden), 0.1)
            states, last, cells = net.nodes("LSTM", x, w, r, b, "", state, cell, results=3, hidden_size=config.hidden)
            y = linear(net, net.node("Squeeze", states, net.constant([1], "int64")), config.hidden, config.width, "projection")
            x = layer_norm(net, net.node("Add", x, y), config.width, "norm")
        net.output(last, f"state.{layer}.next", (1, batch, config.hidden))
        net.output(cells, f"cell.{layer}.next", (1, batch, config.hidden))
    x = net.node("LogSoftmax", linear(net, x, config.width, config.classes, "classes"), axis=2)
    net.output(net.node("Transpose", x, perm=[1, 0, 2]), "characters", (batch, frames, config.classes))
    return net.build()
