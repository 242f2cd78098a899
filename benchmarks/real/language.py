"""Text: classification, tagging, translation, language models and preprocessing."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
import onnx
from onnx import TensorProto

from real.idioms import (
    arange,
    cast,
    const,
    cut,
    gemm,
    norm,
    recurrent,
    reduce,
    reshape,
    shape,
    silu,
    size,
    squeeze,
    unsqueeze,
)
from real.model import SCRIPT, Draw, Feeds, Model
from zoo.layers import gelu_erf, linear
from zoo.net import Net


def attention(net: Net, x: str, memory: str, width: int, heads: int, name: str, hidden: str = "") -> str:
    """Attention as torch traces it: views by shape chains, a mask that fills in with minus infinity."""
    with net.scope(name):
        parts = []
        for label, value in (("q", x), ("k", memory), ("v", memory)):
            y = reshape(
                net, linear(net, value, width, width, label), size(net, value, 0), size(net, value, 1), heads, width // heads
            )
            parts.append(net.node("Transpose", y, perm=[0, 2, 1, 3]))
        q, k, v = parts
        scores = net.node(
            "MatMul", net.node("Div", q, net.constant(math.sqrt(width // heads))), net.node("Transpose", k, perm=[0, 1, 3, 2])
        )
        if hidden:
            scores = net.node("Where", hidden, net.constant(-np.inf), scores)
        y = net.node("Transpose", net.node("MatMul", net.node("Softmax", scores, axis=3), v), perm=[0, 2, 1, 3])
        return linear(net, reshape(net, y, size(net, x, 0), size(net, x, 1), width), width, width, "o")


def classifier() -> onnx.ModelProto:
    """A BERT of opset 11: mask by Unsqueeze and Expand, positions by a Slice of a table, pooled by the mask's mean."""
    net = Net("text_classifier", opset=11)
    ids, mask = (net.input(name, ("batch", "sequence"), "int64") for name in ("input_ids", "attention_mask"))
    width = 32
    places = net.node(
        "Gather",
        net.weight("positions", (64, width), 0.3),
        cut(net, net.constant(np.arange(64)[None], "int64"), 0, unsqueeze(net, size(net, ids, 1), 0), 1),
        axis=0,
    )
    x = net.node("Add", net.node("Gather", net.weight("words", (100, width), 1.0), ids, axis=0), places)
    x = norm(net, x, width, "embedding_norm", 1e-12)
    wide = net.node("Expand", unsqueeze(net, mask, 1, 2), shape(net, size(net, ids, 0), 1, size(net, ids, 1), size(net, ids, 1)))
    hidden = net.node("Equal", wide, const(net, 0))
    for layer in range(2):
        x = norm(net, net.node("Add", x, attention(net, x, x, width, 4, f"attention{layer}", hidden)), width, f"norm{layer}")
        y = linear(net, gelu_erf(net, linear(net, x, width, 64, f"up{layer}")), 64, width, f"down{layer}")
        x = norm(net, net.node("Add", x, y), width, f"norm_out{layer}")
    float_mask = cast(net, unsqueeze(net, mask, 2))
    total = reduce(net, "ReduceSum", net.node("Mul", x, float_mask), 1, keep=0)
    count = net.node("Clip", reduce(net, "ReduceSum", float_mask, 1, keep=0), net.constant(1e-9))
    net.output(gemm(net, net.node("Div", total, count), width, 3, "classes"), "logits", ("batch", 3))
    return net.build()


def tagger() -> onnx.ModelProto:
    """Named entities: a bidirectional LSTM and Viterbi decoding by two Scans, the second one backwards (opset 12)."""
    net = Net("tagger", opset=12)
    ids = net.input("ids", ("words",), "int64")
    tags = 5
    x = unsqueeze(net, net.node("Gather", net.weight("table", (50, 16), 0.8), ids, axis=0), 1)
    states = recurrent(net, "LSTM", x, 16, 12, "lstm", direction="bidirectional")[0]
    emissions = linear(net, net.node("Reshape", states, net.shape(-1, 24)), 24, tags, "emit")
    moves = net.weight("transitions", (tags, tags), 0.7)
    forward = net.body("forward")
    score, emitted = forward.input("score", (tags,)), forward.input("emitted", (tags,))
    paths = forward.node("Add", unsqueeze(forward, score, 1), moves)
    best = reduce(forward, "ReduceMax", paths, 0, keep=0)
    forward.output(forward.node("Add", best, emitted), "score_out", (tags,))
    forward.output(forward.node("ArgMax", paths, axis=0, keepdims=0), "pointers", (tags,), "int64")
    first = squeeze(net, cut(net, emissions, 0, 1, 0), 0)
    rest = cut(net, emissions, 1, 2**31 - 1, 0)
    last, pointers = net.nodes("Scan", first, rest, results=2, num_scan_inputs=1, body=forward.graph())
    backward = net.body("backward")
    at, row = backward.input("at", (), "int64"), backward.input("row", (tags,), "int64")
    before = backward.node("Gather", row, at, axis=0)
    backward.output(before, "at_out", (), "int64")
    backward.output(backward.node("Identity", before), "emitted_tag", (), "int64")
    end = net.node("ArgMax", last, axis=0, keepdims=0)
    _, walked = net.nodes(
        "Scan",
        end,
        pointers,
        results=2,
        num_scan_inputs=1,
        scan_input_directions=[1],
        scan_output_directions=[1],
        body=backward.graph(),
    )
    net.output(net.node("Concat", walked, unsqueeze(net, end, 0), axis=0), "tags", ("words",), "int64")
    net.output(net.node("ReduceMax", last, keepdims=0), "score", ())
    return net.build()


def translator() -> onnx.ModelProto:
    """Encoder, and a decoder in a Loop that ends at a token: the tokens so far are a carried value that grows (opset 15)."""
    net = Net("translator", opset=15)
    source = net.input("source", (1, "source"), "int64")
    limit = net.input("limit", (), "int64")
    width = 16
    words = net.weight("words", (20, width), 1.0)
    x = net.node("Gather", words, source, axis=0)
    memory = norm(net, net.node("Add", x, attention(net, x, x, width, 2, "encoder")), width, "encoder_norm")
    body = net.body("step")
    body.input("i", (), "int64")
    body.input("going", (), "bool")
    tokens = body.input("tokens", (1, "length"), "int64")
    y = body.node("Gather", words, tokens, axis=0)
    length = size(body, tokens, 1)
    rows, columns = (unsqueeze(body, arange(body, length), axis) for axis in (1, 0))
    y = norm(body, body.node("Add", y, attention(body, y, y, width, 2, "own", body.node("Less", rows, columns))), width, "norm0")
    y = norm(body, body.node("Add", y, attention(body, y, memory, width, 2, "cross")), width, "norm1")
    last = body.node("Gather", y, const(body, -1), axis=1)
    best = body.node("ArgMax", linear(body, last, width, 20, "head"), axis=1, keepdims=1)
    body.output(body.node("Not", body.node("Equal", squeeze(body, best, 0, 1), const(body, 3))), "on", (), "bool")
    body.output(body.node("Concat", tokens, best, axis=1), "grown", (1, "longer"), "int64")
    start = net.constant([[1]], "int64")
    net.output(net.node("Loop", limit, const(net, True, "bool"), start, body=body.graph()), "translated", (1, "target"), "int64")
    return net.build()


def llama(half: bool) -> onnx.ModelProto:
    """A decoder block: RMS norm, rotary positions, grouped heads by Expand, a causal mask of Range, a cache (opset 18)."""
    net = Net("llama", opset=18)
    width, heads, groups, each = 32, 4, 2, 8
    ids = net.input("ids", ("batch", "new"), "int64")
    caches = [net.input(name, ("batch", groups, "past", each)) for name in ("keys", "values")]

    def rms(x: str, name: str) -> str:
        mean = reduce(net, "ReduceMean", net.node("Pow", x, net.constant(2.0)), -1)
        return net.node(
            "Mul",
            net.node("Div", x, net.node("Sqrt", net.node("Add", mean, net.constant(1e-5)))),
            net.weight(name, (width,), 0.1, 1.0),
        )

    x = net.node("Gather", net.weight("words", (100, width), 1.0), ids, axis=0)
    batch, new, past = size(net, ids, 0), size(net, ids, 1), size(net, caches[0], 2)
    total = net.node("Add", past, new)
    places = net.node("Range", past, total, const(net, 1))
    rates = net.constant((10000.0 ** (-np.arange(0, each, 2) / each)).astype(np.float32)[None])
    angles = net.node("MatMul", unsqueeze(net, cast(net, places), 1), rates)
    angles = net.node("Concat", angles, angles, axis=1)
    cosine, sine = net.node("Cos", angles), net.node("Sin", angles)

    def rotated(y: str) -> str:
        low, high = cut(net, y, 0, each // 2, 3), cut(net, y, each // 2, 2**31 - 1, 3)
        return net.node(
            "Add", net.node("Mul", y, cosine), net.node("Mul", net.node("Concat", net.node("Neg", high), low, axis=3), sine)
        )

    y = rms(x, "norm0")
    parts = []
    for name, count in (("q", heads), ("k", groups), ("v", groups)):
        z = net.node("MatMul", y, net.weight(name, (width, count * each), 0.3))
        parts.append(net.node("Transpose", reshape(net, z, batch, new, count, each), perm=[0, 2, 1, 3]))
    q, k, v = parts
    k, v = (net.node("Concat", old, part, axis=2) for old, part in zip(caches, (rotated(k), v), strict=True))
    repeated = []
    for value in (k, v):
        z = net.node("Expand", unsqueeze(net, value, 2), shape(net, batch, groups, heads // groups, total, each))
        repeated.append(reshape(net, z, batch, heads, total, each))
    scores = net.node("MatMul", rotated(q), net.node("Transpose", repeated[0], perm=[0, 1, 3, 2]))
    scores = net.node("Mul", scores, net.constant(each**-0.5))
    allowed = net.node(
        "LessOrEqual", unsqueeze(net, net.node("Range", const(net, 0), total, const(net, 1)), 0), unsqueeze(net, places, 1)
    )
    scores = net.node("Add", scores, net.node("Where", allowed, net.constant(0.0), net.constant(-6e4)))
    y = net.node("MatMul", net.node("Softmax", scores, axis=-1), repeated[1])
    y = reshape(net, net.node("Transpose", y, perm=[0, 2, 1, 3]), batch, new, width)
    x = net.node("Add", x, net.node("MatMul", y, net.weight("o", (width, width), 0.3)))
    y = rms(x, "norm1")
    y = net.node(
        "Mul",
        silu(net, net.node("MatMul", y, net.weight("gate", (width, 64), 0.3))),
        net.node("MatMul", y, net.weight("up", (width, 64), 0.3)),
    )
    x = net.node("Add", x, net.node("MatMul", y, net.weight("down", (64, width), 0.2)))
    last = cut(net, rms(x, "norm2"), -1, 2**31 - 1, 1)
    net.output(net.node("MatMul", last, net.weight("head", (width, 100), 0.3)), "logits", ("batch", 1, 100))
    for value, name in ((k, "keys_out"), (v, "values_out")):
        net.output(value, name, ("batch", groups, "total", each))
    model = net.build()
    if not half:
        return model
    from onnxruntime.transformers.float16 import convert_float_to_float16

    return convert_float_to_float16(model, keep_io_types=False, op_block_list=["Range"])


def newest() -> onnx.ModelProto:
    """A block with the operators that opset 23 and 24 brought: RMSNormalization, RotaryEmbedding, Attention with a cache, Swish."""
    net = Net("newest", opset=24)
    width, heads, each = 32, 4, 8
    x = net.input("x", ("batch", "new", width))
    caches = [net.input(name, ("batch", heads, "past", each)) for name in ("keys", "values")]
    places = net.input("places", ("batch", "new"), "int64")
    y = net.node("RMSNormalization", x, net.weight("norm", (width,), 0.1, 1.0), axis=-1, epsilon=1e-5)
    angles = np.arange(64)[:, None] * 10000.0 ** (-np.arange(0, each, 2) / each)[None]
    tables = [net.initializer(name, part.astype(np.float32)) for name, part in (("cos", np.cos(angles)), ("sin", np.sin(angles)))]
    q, k, v = (net.node("MatMul", y, net.weight(name, (width, width), 0.3)) for name in "qkv")
    q, k = (net.node("RotaryEmbedding", part, *tables, places, num_heads=heads) for part in (q, k))
    k, v = (net.node("Transpose", net.node("Reshape", part, net.shape(0, 0, heads, each)), perm=[0, 2, 1, 3]) for part in (k, v))
    q = net.node("Transpose", net.node("Reshape", q, net.shape(0, 0, heads, each)), perm=[0, 2, 1, 3])
    y, keys, values = net.nodes("Attention", q, k, v, "", *caches, results=3, is_causal=1)
    y = net.node("Reshape", net.node("Transpose", y, perm=[0, 2, 1, 3]), net.shape(0, 0, width))
    x = net.node("Add", x, net.node("MatMul", y, net.weight("o", (width, width), 0.3)))
    y = net.node("Gelu", net.node("MatMul", x, net.weight("up", (width, 64), 0.3)), approximate="tanh")
    net.output(net.node("Add", x, net.node("MatMul", y, net.weight("down", (64, width), 0.2))), "y", ("batch", "new", width))
    for value, name in ((keys, "keys_out"), (values, "values_out")):
        net.output(value, name, ("batch", heads, "total", each))
    return net.build()


def int8_decoder() -> onnx.ModelProto:
    """A feed-forward block in dynamic 8 bits: DynamicQuantizeLinear and MatMulInteger, as ONNX Runtime's quantizer writes it."""
    net = Net("int8_decoder", opset=13)
    x = net.input("x", ("batch", "sequence", 32))

    def dense(x: str, inputs: int, outputs: int, name: str) -> str:
        weight = np.clip(np.round(net.uniform((inputs, outputs), 60)), -64, 64).astype(np.int8)
        data, scale, zero = net.nodes("DynamicQuantizeLinear", x, results=3)
        total = net.node("MatMulInteger", data, net.initializer(name, weight), zero, net.constant(0, "int8"))
        scaled = net.node("Mul", cast(net, total), net.node("Mul", scale, net.constant(np.float32(0.4 / inputs))))
        return net.node("Add", scaled, net.weight(f"{name}.bias", (outputs,), 0.1))

    y = net.node("Relu", dense(x, 32, 64, "up"))
    net.output(norm(net, net.node("Add", x, dense(y, 64, 32, "down")), 32, "norm"), "y", ("batch", "sequence", 32))
    return net.build()


def experts() -> onnx.ModelProto:
    """A mixture of experts: TopK of a router, NonZero for each expert's tokens, GatherND, ScatterND that adds (opset 16)."""
    net = Net("experts", opset=16)
    x = net.input("x", ("tokens", 16))
    scores = net.node("Softmax", net.node("MatMul", x, net.weight("router", (16, 3), 0.8)), axis=1)
    weights, chosen = net.nodes("TopK", scores, net.constant([2], "int64"), results=2, axis=1)
    y = net.node("Mul", x, net.constant(0.0))
    for expert in range(3):
        mine = net.node("Mul", weights, cast(net, net.node("Equal", chosen, const(net, expert))))
        share = reduce(net, "ReduceSum", mine, 1, keep=0)
        rows = net.node("Transpose", net.node("NonZero", share), perm=[1, 0])
        part = net.node("Relu", net.node("MatMul", net.node("GatherND", x, rows), net.weight(f"expert{expert}", (16, 16), 0.5)))
        part = net.node("Mul", part, unsqueeze(net, net.node("GatherND", share, rows), 1))
        y = net.node("ScatterND", y, rows, part, reduction="add")
    net.output(y, "y", ("tokens", 16))
    return net.build()


def beam_step() -> onnx.ModelProto:
    """One step of beam search: LogSoftmax, scores over beams and words, TopK, Div and Mod, and the caches reordered (opset 13)."""
    net = Net("beam_step", opset=13)
    logits = net.input("logits", ("beams", 40))
    scores = net.input("scores", ("beams",))
    history = net.input("history", ("beams", "length"), "int64")
    total = net.node("Add", net.node("LogSoftmax", logits, axis=-1), unsqueeze(net, scores, 1))
    beams = unsqueeze(net, size(net, logits, 0), 0)
    best, at = net.nodes("TopK", net.node("Reshape", total, net.shape(-1)), beams, results=2)
    words = const(net, 40)
    parent, word = net.node("Div", at, words), net.node("Mod", at, words)
    grown = net.node("Concat", net.node("Gather", history, parent, axis=0), unsqueeze(net, word, 1), axis=1)
    net.output(best, "scores_out", ("beams",))
    net.output(grown, "history_out", ("beams", "longer"), "int64")
    return net.build()


def relative() -> onnx.ModelProto:
    """Attention with the bucketed relative positions of T5: Range, Abs, Log, Min, Where, and a Gather of biases (opset 12)."""
    net = Net("relative", opset=12)
    x = net.input("x", ("batch", "sequence", 16))
    length = size(net, x, 1)
    distance = net.node("Sub", unsqueeze(net, arange(net, length), 0), unsqueeze(net, arange(net, length), 1))
    ahead = net.node("Mul", cast(net, net.node("Greater", distance, const(net, 0)), TensorProto.INT64), const(net, 8))
    magnitude = net.node("Abs", distance)
    wide = net.node("Log", net.node("Div", net.node("Max", cast(net, magnitude), net.constant(1.0)), net.constant(4.0)))
    wide = net.node("Mul", net.node("Div", wide, net.constant(math.log(16 / 4))), net.constant(4.0))
    large = net.node("Min", net.node("Add", cast(net, wide, TensorProto.INT64), const(net, 4)), const(net, 7))
    bucket = net.node("Add", ahead, net.node("Where", net.node("Less", magnitude, const(net, 4)), magnitude, large))
    bias = net.node("Transpose", net.node("Gather", net.weight("bias", (16, 2), 0.8), bucket, axis=0), perm=[2, 0, 1])
    q, k, v = (net.node("MatMul", x, net.weight(name, (16, 16), 0.4)) for name in "qkv")
    parts = [net.node("Transpose", reshape(net, part, size(net, x, 0), length, 2, 8), perm=[0, 2, 1, 3]) for part in (q, k, v)]
    scores = net.node("MatMul", parts[0], net.node("Transpose", parts[1], perm=[0, 1, 3, 2]))
    weights = net.node("Softmax", net.node("Add", scores, bias), axis=-1)
    y = net.node("Transpose", net.node("MatMul", weights, parts[2]), perm=[0, 2, 1, 3])
    net.output(reshape(net, y, size(net, x, 0), length, 16), "y", ("batch", "sequence", 16))
    return net.build()


def preprocessing() -> onnx.ModelProto:
    """Strings in: StringNormalizer, TfIdfVectorizer over words, and a linear classifier (opset 14)."""
    net = Net("preprocessing", opset=14)
    words = net.input("words", ("words",), "string")
    normal = net.node("StringNormalizer", words, case_change_action="NONE", is_case_sensitive=1, stopwords=["the"])
    pool = ["good", "bad", "film", "plot", "good", "film", "bad", "plot"]
    counts = net.node(
        "TfIdfVectorizer",
        normal,
        mode="TFIDF",
        min_gram_length=1,
        max_gram_length=2,
        max_skip_count=0,
        ngram_counts=[0, 4],
        ngram_indexes=[0, 1, 2, 3, 4, 5],
        pool_strings=pool,
        weights=[1.0, 2.0, 0.5, 0.7, 3.0, 1.5],
    )
    logits = net.node(
        "Add", net.node("MatMul", unsqueeze(net, counts, 0), net.weight("head", (6, 2), 0.5)), net.weight("bias", (2,), 0.1)
    )
    net.output(net.node("Softmax", logits, axis=1), "probabilities", (1, 2))
    return net.build()


def models() -> Iterable[Model]:
    """The entries of this file."""

    def masked(draw: Draw, n: int, t: int) -> Feeds:
        return {"input_ids": draw.tokens(100, n, t), "attention_mask": draw.mask(n, t)}

    def step(half: bool) -> object:
        def feeds(draw: Draw, n: int, new: int, past: int) -> Feeds:
            caches = {name: (draw.halves if half else draw.floats)(n, 2, past, 8) for name in ("keys", "values")}
            return {"ids": draw.tokens(100, n, new), **caches}

        return feeds

    def cached(draw: Draw, n: int, new: int, past: int) -> Feeds:
        caches = {name: draw.floats(n, 4, past, 8) for name in ("keys", "values")}
        return {"x": draw.floats(n, new, 32), **caches, "places": np.tile(np.arange(past, past + new), (n, 1))}

    def beams(draw: Draw, n: int, t: int) -> Feeds:
        return {"logits": draw.floats(n, 40), "scores": draw.floats(n), "history": draw.tokens(40, n, t)}

    def rows(name: str, *fixed: int) -> object:
        return lambda draw, *sizes: {name: draw.floats(*sizes, *fixed)}

    steps = ((1, 6, 0), (2, 1, 9), (1, 3, 5))
    words = ("the", "good", "bad", "film", "plot", "other")
    for name, domain, load, feeds, sizes in (
        ("text_classifier", "text classification", classifier, masked, ((1, 12), (3, 30), (2, 1))),
        ("tagger", "named entities", tagger, lambda d, t: {"ids": d.tokens(50, t)}, ((9,), (25,), (2,))),
        (
            "translator",
            "translation",
            translator,
            lambda d, s, n: {"source": d.tokens(20, 1, s), "limit": np.array(n)},
            ((7, 6), (1, 12), (15, 1)),
        ),
        ("llama", "language model", lambda: llama(False), step(False), steps),
        ("llama_half", "language model", lambda: llama(True), step(True), steps),
        ("newest", "language model", newest, cached, ((1, 5, 3), (2, 1, 12))),
        ("int8_decoder", "language model", int8_decoder, rows("x", 32), ((1, 8), (3, 5), (2, 1))),
        ("experts", "language model", experts, rows("x", 16), ((12,), (40,), (1,))),
        ("beam_step", "language model", beam_step, beams, ((4, 5), (1, 9), (6, 0))),
        ("relative", "translation", relative, rows("x", 16), ((1, 20), (2, 7), (3, 1))),
        ("preprocessing", "text classification", preprocessing, lambda d, n: {"words": d.words(words, n)}, ((5,), (12,), (1,))),
    ):
        yield Model(name, domain, SCRIPT, load, feeds, sizes)
