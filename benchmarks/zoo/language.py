"""BERT, GPT-2, a sequence-to-sequence Transformer and an LSTM."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import onnx

from zoo.layers import (
    attend,
    attention,
    axis_size,
    first_rows,
    gelu_erf,
    gelu_tanh,
    layer_norm,
    linear,
    mask_bias,
    merge_heads,
    sinusoids,
    split_heads,
)
from zoo.net import Net, Size


@dataclass(frozen=True)
class Bert:
    """An encoder (Devlin et al., 2019): by default BERT-base."""

    layers: int = 12
    width: int = 768
    heads: int = 12
    inner: int = 3072
    vocabulary: int = 30522
    longest: int = 512


TINY_BERT = Bert(layers=2, width=32, heads=4, inner=64, vocabulary=128, longest=64)


def bert(config: Bert = Bert(), batch: Size = 1, sequence: Size = 128) -> onnx.ModelProto:
    """int64 tokens, types and mask, [batch, sequence] each → the last states [batch, sequence, width] and the pooled first one."""
    net = Net("bert")
    width = config.width
    ids, types, mask = (net.input(name, (batch, sequence), "int64") for name in ("input_ids", "token_type_ids", "attention_mask"))
    bias = mask_bias(net, mask)
    with net.scope("embeddings"):
        x = net.node("Gather", net.weight("words", (config.vocabulary, width), 1.0), ids)
        x = net.node("Add", x, net.node("Gather", net.weight("types", (2, width), 0.2), types))
        positions = first_rows(net, net.weight("positions", (config.longest, width), 0.2), axis_size(net, ids, 1))
        x = layer_norm(net, net.node("Add", x, positions), width, "norm", 1e-12)
    for layer in range(config.layers):
        with net.scope(f"layer{layer}"):
            x = net.node("Add", x, attention(net, x, x, width, config.heads, bias))
            x = layer_norm(net, x, width, "norm1", 1e-12)
            y = gelu_erf(net, linear(net, x, width, config.inner, "up"))
            x = layer_norm(net, net.node("Add", x, linear(net, y, config.inner, width, "down")), width, "norm2", 1e-12)
    net.output(x, "last_hidden_state", (batch, sequence, width))
    first = net.node("Gather", x, net.constant(0, "int64"), axis=1)
    net.output(net.node("Tanh", linear(net, first, width, width, "pooler")), "pooled", (batch, width))
    return net.build()


@dataclass(frozen=True)
class Gpt2:
    """A decoder (Radford et al., 2019): by default GPT-2 small."""

    layers: int = 12
    width: int = 768
    heads: int = 12
    vocabulary: int = 50257
    longest: int = 1024


TINY_GPT2 = Gpt2(layers=2, width=32, heads=4, vocabulary=128, longest=64)


def gpt2(config: Gpt2 = Gpt2(), batch: Size = 1, sequence: Size = 128, past: Size = 0) -> onnx.ModelProto:
    """int64 tokens [batch, sequence], and keys and values [batch, heads, past, size] of each layer unless `past` is 0 → logits
    [batch, sequence, vocabulary], and keys and values with the new ones.

    The embedding is the last weight too, as in the original.
    """
    net = Net("gpt2")
    width, heads, size = config.width, config.heads, config.width // config.heads
    ids = net.input("input_ids", (batch, sequence), "int64")
    caches = [
        tuple(net.input(f"past.{layer}.{side}", (batch, heads, past, size)) for side in ("key", "value"))
        for layer in range(config.layers if past else 0)
    ]
    begin = axis_size(net, caches[0][0], 2) if past else net.constant([0], "int64")
    end = net.node("Add", begin, axis_size(net, ids, 1))
    total = end_size(sequence, past)
    words = net.weight("words", (config.vocabulary, width), 1.0)
    rows = net.node("Slice", net.weight("positions", (config.longest, width), 0.2), begin, end, net.constant([0], "int64"))
    x = net.node("Add", net.node("Gather", words, ids), rows)
    bias = _causal_bias(net, config.longest, begin, end)
    for layer in range(config.layers):
        with net.scope(f"layer{layer}"):
            y = linear(net, layer_norm(net, x, width, "norm1"), width, 3 * width, "attention.qkv")
            parts = net.nodes("Split", y, net.constant([width] * 3, "int64"), results=3, axis=-1)
            q, k, v = (split_heads(net, part, heads, size) for part in parts)
            if past:
                k, v = (net.node("Concat", old, new, axis=2) for old, new in zip(caches[layer], (k, v), strict=True))
            net.output(k, f"present.{layer}.key", (batch, heads, total, size))
            net.output(v, f"present.{layer}.value", (batch, heads, total, size))
            y = merge_heads(net, attend(net, q, k, v, size, bias), width)
            x = net.node("Add", x, linear(net, y, width, width, "attention.output"))
            y = gelu_tanh(net, linear(net, layer_norm(net, x, width, "norm2"), width, 4 * width, "up"))
            x = net.node("Add", x, linear(net, y, 4 * width, width, "down"))
    x = layer_norm(net, x, width, "norm")
    logits = net.node("MatMul", x, net.node("Transpose", words, perm=[1, 0]), name="head")
    net.output(logits, "logits", (batch, sequence, config.vocabulary))
    return net.build()


def end_size(sequence: Size, past: Size) -> Size:
    """The number of keys: those of the past and the new ones."""
    if isinstance(sequence, int) and isinstance(past, int):
        return sequence + past
    return f"{past} + {sequence}" if past else sequence


def _causal_bias(net: Net, longest: int, begin: str, end: str) -> str:
    """[1, 1, new, all]: 0 for a token and those before it, -10000 for those after it; cut from a table, as GPT-2 does."""
    table = np.where(np.tri(longest, dtype=bool), np.float32(0), np.float32(-1e4))[None, None]
    rows = net.node("Slice", net.initializer("causal", table), begin, end, net.constant([2], "int64"))
    return net.node("Slice", rows, net.constant([0], "int64"), end, net.constant([3], "int64"), name="causal_bias")


@dataclass(frozen=True)
class Seq2Seq:
    """An encoder and a decoder (Vaswani et al., 2017), smaller than the original's base."""

    layers: int = 3
    width: int = 256
    heads: int = 4
    inner: int = 1024
    vocabulary: int = 8000
    longest: int = 256


TINY_SEQ2SEQ = Seq2Seq(layers=2, width=32, heads=4, inner=64, vocabulary=128, longest=64)


def seq2seq(config: Seq2Seq = Seq2Seq(), batch: Size = 1, source: Size = 64, target: Size = 32) -> onnx.ModelProto:
    """int64 tokens [batch, source] with their mask, and [batch, target] → logits [batch, target, vocabulary]."""
    net = Net("seq2seq")
    width = config.width
    ids, mask = net.input("source_ids", (batch, source), "int64"), net.input("source_mask", (batch, source), "int64")
    outputs = net.input("target_ids", (batch, target), "int64")
    words = net.weight("words", (config.vocabulary, width), math.sqrt(3 / width))
    positions = net.initializer("positions", sinusoids(config.longest, width))
    bias = mask_bias(net, mask)
    with net.scope("encoder"):
        memory = _embed(net, words, positions, ids, width)
        for layer in range(config.layers):
            with net.scope(f"layer{layer}"):
                y = attention(net, memory, memory, width, config.heads, bias)
                memory = layer_norm(net, net.node("Add", memory, y), width, "norm1")
                memory = layer_norm(net, net.node("Add", memory, _feed_forward(net, memory, config)), width, "norm2")
    with net.scope("decoder"):
        x = _embed(net, words, positions, outputs, width)
        causal = _causal_bias(net, config.longest, net.constant([0], "int64"), axis_size(net, outputs, 1))
        for layer in range(config.layers):
            with net.scope(f"layer{layer}"):
                x = layer_norm(net, net.node("Add", x, attention(net, x, x, width, config.heads, causal, "self")), width, "norm1")
                y = attention(net, x, memory, width, config.heads, bias, "cross")
                x = layer_norm(net, net.node("Add", x, y), width, "norm2")
                x = layer_norm(net, net.node("Add", x, _feed_forward(net, x, config)), width, "norm3")
    logits = net.node("MatMul", x, net.node("Transpose", words, perm=[1, 0]), name="head")
    net.output(logits, "logits", (batch, target, config.vocabulary))
    return net.build()


def _embed(net: Net, words: str, positions: str, ids: str, width: int) -> str:
    x = net.node("Mul", net.node("Gather", words, ids), net.constant(math.sqrt(width)))
    return net.node("Add", x, first_rows(net, positions, axis_size(net, ids, 1)))


def _feed_forward(net: Net, x: str, config: Seq2Seq) -> str:
    x = net.node("Relu", linear(net, x, config.width, config.inner, "up"))
    return linear(net, x, config.inner, config.width, "down")


@dataclass(frozen=True)
class Lstm:
    """A bidirectional LSTM layer, one that goes forward, and a classifier of the last state."""

    inputs: int = 256
    hidden: int = 512
    classes: int = 1000


TINY_LSTM = Lstm(inputs=12, hidden=16, classes=10)


def lstm(config: Lstm = Lstm(), batch: Size = 1, sequence: Size = 64) -> onnx.ModelProto:
    """float32 [sequence, batch, inputs] → [batch, classes]."""
    net = Net("lstm")
    x = net.input("features", (sequence, batch, config.inputs))
    states, _ = _lstm_layer(net, x, config.inputs, config.hidden, "bidirectional")
    x = net.node("Reshape", net.node("Transpose", states, perm=[0, 2, 1, 3]), net.shape(0, 0, 2 * config.hidden))
    _, last = _lstm_layer(net, x, 2 * config.hidden, config.hidden, "forward")
    x = net.node("Squeeze", last, net.constant([0], "int64"))
    net.output(linear(net, x, config.hidden, config.classes, "classifier"), "logits", (batch, config.classes))
    return net.build()


def _lstm_layer(net: Net, x: str, inputs: int, hidden: int, direction: str) -> tuple[str, str]:
    """All states [sequence, directions, batch, hidden], and the last [directions, batch, hidden]."""
    count = 2 if direction == "bidirectional" else 1
    with net.scope(f"lstm_{direction}"):
        w = net.weight("W", (count, 4 * hidden, inputs), math.sqrt(3 / inputs))
        r = net.weight("R", (count, 4 * hidden, hidden), math.sqrt(3 / hidden))
        b = net.weight("B", (count, 8 * hidden), 0.1)
        states, last = net.nodes("LSTM", x, w, r, b, results=2, hidden_size=hidden, direction=direction)
        return states, last
