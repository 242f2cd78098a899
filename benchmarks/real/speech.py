"""Speech and other signals: front ends, voice activity, keywords, recognition, synthesis, forecasts."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import onnx
from onnx import TensorProto

from real.idioms import (
    arange,
    cast,
    const,
    conv,
    cut,
    gemm,
    norm,
    recurrent,
    reduce,
    reshape,
    silu,
    size,
    split,
    squeeze,
    unsqueeze,
)
from real.model import SCRIPT, Draw, Feeds, Model
from zoo.layers import linear
from zoo.net import Net


def stft_tagger() -> onnx.ModelProto:
    """Audio tagging on the STFT operator: power, mel bands, logarithm, a convolution, mean and maximum over time (opset 17)."""
    net = Net("stft_tagger", opset=17)
    samples = net.input("samples", ("batch", "samples"))
    window = net.initializer("window", np.hanning(64).astype(np.float32))
    spectrum = net.node(
        "STFT", unsqueeze(net, samples, 2), net.constant(32, "int64"), window, net.constant(64, "int64"), onesided=1
    )
    power = reduce(net, "ReduceSum", net.node("Mul", spectrum, spectrum), 3, keep=0)
    mel = net.node("MatMul", power, net.initializer("mel", np.abs(net.uniform((33, 12), 0.1))))
    x = net.node("Transpose", net.node("Log", net.node("Add", mel, net.constant(1e-4))), perm=[0, 2, 1])
    x = net.node("Relu", conv(net, x, 12, 16, "conv", (3,)))
    pooled = net.node("Concat", *(reduce(net, op, x, 2, keep=0) for op in ("ReduceMean", "ReduceMax")), axis=1)
    net.output(net.node("Sigmoid", gemm(net, pooled, 32, 6, "tags")), "tags_out", ("batch", 6))
    return net.build()


def vad_branches() -> onnx.ModelProto:
    """Voice activity with a branch for each sample rate, each with its own framing and LSTM, and state through both (opset 15)."""
    net = Net("vad_branches", opset=15)
    samples = net.input("samples", ("batch", "samples"))
    rate = net.input("rate", (), "int64")
    states = [net.input(name, (1, "batch", 16)) for name in ("h", "c")]
    branches = []
    for window in (64, 32):
        body = net.body(f"rate_of_{window}")
        edge = window // 2
        padded = body.node("Pad", unsqueeze(body, samples, 1), body.constant([0, 0, edge, 0, 0, edge], "int64"), mode="reflect")
        basis = body.weight("basis", (34, 1, window), 0.2)
        x = body.node("Conv", padded, basis, kernel_shape=[window], strides=[edge])
        real, imaginary = split(body, x, [17, 17], 1)
        x = body.node("Sqrt", body.node("Add", *(body.node("Mul", part, part) for part in (real, imaginary))))
        x = body.node("Transpose", body.node("Relu", conv(body, x, 17, 12, "encoder", (3,))), perm=[2, 0, 1])
        y, h, c = recurrent(body, "LSTM", x, 12, 16, "lstm", "", *states)
        probability = body.node("Sigmoid", linear(body, squeeze(body, y, 1), 16, 1, "head"))
        body.output(reduce(body, "ReduceMean", probability, 0, keep=0), f"probability_{window}", None)
        body.output(body.node("Identity", h), f"h_{window}", None)
        body.output(body.node("Identity", c), f"c_{window}", None)
        branches.append(body.graph())
    wide = net.node("Equal", rate, const(net, 16000))
    results = net.nodes("If", wide, results=3, then_branch=branches[0], else_branch=branches[1])
    for value, name, shape in zip(
        results, ("probability", "hn", "cn"), (("batch", 1), (1, "batch", 16), (1, "batch", 16)), strict=True
    ):
        net.output(value, name, shape)
    return net.build()


def dscnn() -> onnx.ModelProto:
    """Keyword spotting: a depthwise-separable network over MFCCs (opset 13)."""
    net = Net("dscnn", opset=13)
    x = net.input("mfcc", ("batch", 1, 49, 10))
    x = net.node("Relu", conv(net, x, 1, 16, "stem", (5, 5), stride=2))
    for level in range(2):
        x = net.node("Relu", conv(net, x, 16, 16, f"depth{level}", groups=16))
        x = net.node("Relu", conv(net, x, 16, 16, f"point{level}", (1, 1)))
    x = net.node("Flatten", net.node("GlobalAveragePool", x), axis=1)
    net.output(net.node("Softmax", gemm(net, x, 16, 12, "classifier"), axis=1), "keywords", ("batch", 12))
    return net.build()


def conformer() -> onnx.ModelProto:
    """A streaming Conformer block with a cache, a mask of Range and Less, a gated causal convolution (opset 14)."""
    net = Net("conformer", opset=14)
    width = 24
    x = net.input("chunk", (1, "frames", width))
    cache = net.input("cache", (1, "past", width))
    frame_count = net.input("seen", (1,), "int64")
    y = linear(net, norm(net, x, width, "norm0"), width, 48, "up")
    x = net.node("Add", x, net.node("Mul", linear(net, silu(net, y), 48, width, "down"), net.constant(0.5)))
    memory = net.node("Concat", cache, x, axis=1)
    frames, keys = size(net, x, 1), size(net, memory, 1)
    normed = norm(net, memory, width, "norm1")
    heads = []
    for name, value, count in (("q", norm(net, x, width, "norm1q"), frames), ("k", normed, keys), ("v", normed, keys)):
        heads.append(net.node("Transpose", reshape(net, linear(net, value, width, width, name), 1, count, 4, 6), perm=[0, 2, 1, 3]))
    q, k, v = heads
    scores = net.node("Div", net.node("MatMul", q, net.node("Transpose", k, perm=[0, 1, 3, 2])), net.constant(6**0.5))
    past = net.node("Sub", keys, frames)
    hidden = net.node("Less", arange(net, keys), net.node("Sub", past, frame_count))
    scores = net.node("Where", unsqueeze(net, hidden, 0, 1, 2), net.constant(-1e9), scores)
    y = net.node("Transpose", net.node("MatMul", net.node("Softmax", scores, axis=-1), v), perm=[0, 2, 1, 3])
    x = net.node("Add", x, linear(net, reshape(net, y, 1, frames, width), width, width, "attended"))
    y = net.node("Transpose", linear(net, norm(net, x, width, "norm2"), width, 2 * width, "gate"), perm=[0, 2, 1])
    value, gate = split(net, y, [width, width], 1)
    y = net.node("Mul", value, net.node("Sigmoid", gate))
    y = net.node("Pad", y, net.constant([0, 0, 4, 0, 0, 0], "int64"))
    y = silu(net, conv(net, y, width, width, "depthwise", (5,), groups=width, preserve_size=False))
    x = net.node("Add", x, net.node("Transpose", y, perm=[0, 2, 1]))
    net.output(x, "encoded", (1, "frames", width))
    net.output(cut(net, memory, -8, 2**31 - 1, 1), "next_cache", (1, "next", width))
    return net.build()


def transducer() -> onnx.ModelProto:
    """Greedy transducer decoding: a Loop over frames with an If that advances the predictor where no blank is found (opset 13)."""
    net = Net("transducer", opset=13)
    encoded = net.input("encoded", ("frames", 16))
    words = net.weight("words", (12, 16), 0.8)
    merge, head = net.weight("merge", (16, 16), 0.4), net.weight("head", (16, 12), 0.6)
    body = net.body("step")
    at = body.input("at", (), "int64")
    body.input("going", (), "bool")
    token, state = body.input("token", (1,), "int64"), body.input("state", (1, 16))
    frame = body.node("Gather", encoded, unsqueeze(body, at, 0), axis=0)
    logits = body.node("MatMul", body.node("Tanh", body.node("Add", frame, state)), head)
    best = squeeze(body, body.node("ArgMax", logits, axis=1, keepdims=0), 0)
    blank = body.node("Equal", best, const(body, 0))
    keep, move = body.body("keep"), body.body("move")
    keep.output(keep.node("Identity", token), "kept_token", (1,), "int64")
    keep.output(keep.node("Identity", state), "kept_state", (1, 16))
    new = unsqueeze(move, best, 0)
    move.output(move.node("Identity", new), "new_token", (1,), "int64")
    moved = move.node("MatMul", move.node("Add", state, move.node("Gather", words, new, axis=0)), merge)
    move.output(move.node("Tanh", moved), "new_state", (1, 16))
    token, state = body.nodes("If", blank, results=2, then_branch=keep.graph(), else_branch=move.graph())
    body.output(body.node("Identity", const(body, True, "bool")), "on", (), "bool")
    body.output(token, "token_out", (1,), "int64")
    body.output(state, "state_out", (1, 16))
    body.output(body.node("Identity", best), "emitted", (), "int64")
    start = [net.constant(np.zeros(1), "int64"), net.constant(np.zeros((1, 16)))]
    results = net.nodes("Loop", size(net, encoded, 0), "", *start, results=3, body=body.graph())
    net.output(results[1], "last_state", (1, 16))
    emissions = results[2]
    tokens = net.node("Compress", emissions, net.node("Greater", emissions, const(net, 0)), axis=0)
    net.output(tokens, "tokens", ("tokens",), "int64")
    return net.build()


def length_regulator() -> onnx.ModelProto:
    """Speech synthesis: phonemes repeated by predicted durations through CumSum and a comparison with Range up to their sum."""
    net = Net("length_regulator", opset=14)
    phonemes = net.input("phonemes", ("batch", "phonemes"), "int64")
    x = net.node("Gather", net.weight("table", (30, 16), 0.8), phonemes, axis=0)
    hidden = net.node("Relu", conv(net, net.node("Transpose", x, perm=[0, 2, 1]), 16, 16, "predict", (3,)))
    durations = net.node("Exp", net.node("Clip", conv(net, hidden, 16, 1, "duration", (1,)), net.constant(0.0), net.constant(2.0)))
    durations = net.node("Ceil", squeeze(net, durations, 1))
    ends = net.node("CumSum", durations, const(net, 1))
    totals = squeeze(net, cut(net, ends, -1, 2**31 - 1, 1), 1)
    longest = net.node("ReduceMax", cast(net, totals, TensorProto.INT64), keepdims=0)
    places = unsqueeze(net, cast(net, arange(net, longest)), 0, 2)
    starts = net.node("Sub", ends, durations)
    inside = net.node(
        "And", net.node("GreaterOrEqual", places, unsqueeze(net, starts, 1)), net.node("Less", places, unsqueeze(net, ends, 1))
    )
    frames = net.node("MatMul", cast(net, inside), x)
    mel = conv(net, net.node("Transpose", frames, perm=[0, 2, 1]), 16, 8, "mel", (5,))
    net.output(mel, "mel_out", ("batch", 8, "frames"))
    net.output(cast(net, totals, TensorProto.INT64), "frames_of", ("batch",), "int64")
    return net.build()


def gru_denoiser() -> onnx.ModelProto:
    """A recurrent noise filter of utterances of various lengths: two GRUs with sequence_lens, linear before reset (opset 14)."""
    net = Net("gru_denoiser", opset=14)
    features = net.input("features", ("batch", "frames", 20))
    lengths = net.input("lengths", ("batch",), "int64")
    counts = cast(net, lengths, TensorProto.INT32)
    x = net.node("Transpose", features, perm=[1, 0, 2])
    x = recurrent(net, "GRU", x, 20, 16, "gru0", counts, linear_before_reset=1, direction="bidirectional")[0]
    x = net.node("Reshape", net.node("Transpose", x, perm=[0, 2, 1, 3]), net.shape(0, 0, 32))
    x, last = recurrent(net, "GRU", x, 32, 16, "gru1", counts, linear_before_reset=0)
    gains = net.node("Sigmoid", linear(net, net.node("Transpose", squeeze(net, x, 1), perm=[1, 0, 2]), 16, 20, "gains"))
    net.output(net.node("Mul", features, gains), "clean", ("batch", "frames", 20))
    net.output(squeeze(net, last, 0), "state", ("batch", 16))
    return net.build()


def forecaster() -> onnx.ModelProto:
    """A temporal convolution with causal padding, then steps of a Loop that feed each forecast back (opset 16)."""
    net = Net("forecaster", opset=16)
    series = net.input("series", ("batch", "time", 3))
    steps = net.input("steps", (), "int64")
    x = net.node("Transpose", series, perm=[0, 2, 1])
    for level, dilation in enumerate((1, 2, 4)):
        y = net.node("Pad", x, net.constant([0, 0, 2 * dilation, 0, 0, 0], "int64"))
        y = net.node("Relu", conv(net, y, 3 if level == 0 else 12, 12, f"tcn{level}", (3,), dilation=dilation, preserve_size=False))
        x = y if level == 0 else net.node("Add", x, y)
    state = net.node("Gather", x, net.constant(-1, "int64"), axis=2)
    recur, read = net.weight("recur", (13, 12), 0.3), net.weight("read", (12, 1), 0.3)
    body = net.body("step")
    body.input("i", (), "int64")
    body.input("going", (), "bool")
    h, value = body.input("h", ("batch", 12)), body.input("value", ("batch", 1))
    h = body.node("Tanh", body.node("MatMul", body.node("Concat", h, value, axis=1), recur))
    value = body.node("Add", value, body.node("MatMul", h, read))
    body.output(body.node("Identity", const(body, True, "bool")), "on", (), "bool")
    body.output(body.node("Identity", h), "h_out", ("batch", 12))
    body.output(body.node("Identity", value), "value_out", ("batch", 1))
    body.output(squeeze(body, value, 1), "scan", ("batch",))
    last = net.node("Gather", series, net.constant(-1, "int64"), axis=1)
    results = net.nodes("Loop", steps, "", state, cut(net, last, 0, 1, 1), results=3, body=body.graph())
    net.output(net.node("Transpose", results[2], perm=[1, 0]), "forecast", ("batch", "steps"))
    return net.build()


def models() -> Iterable[Model]:
    """The entries of this file."""

    def vad(draw: Draw, rate: int, batch: int, count: int) -> Feeds:
        states = {name: draw.floats(1, batch, 16) for name in ("h", "c")}
        return {"samples": draw.floats(batch, count), "rate": np.array(rate), **states}

    def streamed(draw: Draw, frames: int, past: int) -> Feeds:
        return {"chunk": draw.floats(1, frames, 24), "cache": draw.floats(1, past, 24), "seen": np.array([past // 2])}

    yield Model(
        "stft_tagger",
        "audio tagging",
        SCRIPT,
        stft_tagger,
        lambda d, n, t: {"samples": d.floats(n, t)},
        ((1, 512), (2, 300), (1, 64)),
    )
    yield Model("vad_branches", "speech", SCRIPT, vad_branches, vad, ((16000, 1, 512), (8000, 2, 256), (8000, 1, 40)))
    yield Model("dscnn", "keyword spotting", SCRIPT, dscnn, lambda d, n: {"mfcc": d.floats(n, 1, 49, 10)}, ((1,), (3,)))
    yield Model("conformer", "speech", SCRIPT, conformer, streamed, ((4, 8), (7, 20), (1, 0)))
    yield Model("transducer", "speech", SCRIPT, transducer, lambda d, t: {"encoded": d.floats(t, 16)}, ((12,), (40,), (1,)))
    yield Model(
        "length_regulator",
        "speech synthesis",
        SCRIPT,
        length_regulator,
        lambda d, n, p: {"phonemes": d.tokens(30, n, p)},
        ((1, 9), (2, 20), (3, 1)),
    )
    yield Model(
        "gru_denoiser",
        "speech",
        SCRIPT,
        gru_denoiser,
        lambda d, n, t: {"features": d.floats(n, t, 20), "lengths": d.lengths(n, t)},
        ((1, 20), (3, 11), (2, 1)),
    )
    yield Model(
        "forecaster",
        "time series",
        SCRIPT,
        forecaster,
        lambda d, n, t, s: {"series": d.floats(n, t, 3), "steps": np.array(s)},
        ((1, 24, 6), (3, 10, 1), (2, 5, 12)),
    )
