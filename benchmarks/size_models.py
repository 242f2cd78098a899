"""Models of many symbolic sizes, each of any number of them, with inputs and the values that they must compute.

`FAMILIES` has, by name, models whose sizes are many (`dims`, `caches`, `rows`), whose expressions are deep (`shapes`, `strides`),
whose layers repeat expressions of three symbols (`decoder`), and whose sizes data decides within a bound of several levels (`ctc`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx

from zoo.language import TINY_GPT2, gpt2
from zoo.net import Net

Array = np.ndarray[Any, Any]
Arrays = dict[str, Array]


@dataclass(frozen=True)
class Family:
    """Models of one kind, each of a number of sizes.

    `model` returns the model, `inputs` returns its inputs at sizes that a seed determines, and `outputs` computes the expected
    outputs; None: ONNX Runtime computes them. `counts` are the numbers to measure, each twice the one before.
    """

    counts: tuple[int, ...]
    model: Callable[[int], onnx.ModelProto]
    inputs: Callable[[int, np.random.Generator], Arrays]
    outputs: Callable[[int, Arrays], Arrays] | None = None


def _floats(draw: np.random.Generator, *shape: int) -> Array:
    """Small integers as float32, whose sums and products are exact."""
    return draw.integers(-4, 5, shape).astype(np.float32)


def _dims(count: int) -> onnx.ModelProto:
    """One tensor of `count` symbolic dimensions, transposed and squared."""
    net = Net("dims")
    names = [f"d{number}" for number in range(count)]
    x = net.input("x", names)
    y = net.node("Transpose", net.node("Mul", x, x), perm=[*reversed(range(count))])
    net.output(net.node("Relu", net.node("Add", y, net.constant(-3.0))), "y", names[::-1])
    return net.build()


def _dims_inputs(count: int, draw: np.random.Generator) -> Arrays:
    shape = np.ones(count, np.int64)
    shape[draw.permutation(count)[:6]] = draw.integers(1, 5, min(count, 6))
    return {"x": _floats(draw, *shape.tolist())}


def _dims_outputs(_: int, inputs: Mapping[str, Array]) -> Arrays:
    return {"y": np.maximum((inputs["x"] * inputs["x"]).T - 3, 0)}


def _caches(count: int) -> onnx.ModelProto:
    """A new row is appended to each of `count` caches of lengths of their own."""
    net = Net("caches")
    new = net.node("Mul", net.input("new", (1, 4)), net.constant(2.0))
    for number in range(count):
        past = net.input(f"past{number}", (f"n{number}", 4))
        net.output(net.node("Concat", past, new, axis=0), f"present{number}", (None, 4))
    return net.build()


def _caches_inputs(count: int, draw: np.random.Generator) -> Arrays:
    pasts = {f"past{number}": _floats(draw, int(draw.integers(0, 6)), 4) for number in range(count)}
    return {"new": _floats(draw, 1, 4), **pasts}


def _caches_outputs(count: int, inputs: Mapping[str, Array]) -> Arrays:
    return {f"present{number}": np.concatenate([inputs[f"past{number}"], 2 * inputs["new"]]) for number in range(count)}


def _rows(count: int) -> onnx.ModelProto:
    """`count` inputs of n_i by m_i rows, concatenated."""
    net = Net("rows")
    parts = [
        net.node("Reshape", net.input(f"x{number}", (f"n{number}", f"m{number}", 2)), net.shape(-1, 2)) for number in range(count)
    ]
    net.output(net.node("Concat", *parts, axis=0), "y", (None, 2))
    return net.build()


def _rows_inputs(count: int, draw: np.random.Generator) -> Arrays:
    return {f"x{number}": _floats(draw, *draw.integers(0, 4, 2).tolist(), 2) for number in range(count)}


def _rows_outputs(count: int, inputs: Mapping[str, Array]) -> Arrays:
    return {"y": np.concatenate([inputs[f"x{number}"].reshape(-1, 2) for number in range(count)])}


def _shapes(count: int) -> onnx.ModelProto:
    """A chain of about `count` nodes: each step reshapes to sizes of the one before, of which one is inferred."""
    net = Net("shapes")
    x = net.input("x", ("n", "m", 2))
    for step in range(max(count // 4, 1)):
        size = net.node("Gather", net.node("Shape", x), net.constant([step % 2], "int64"), axis=0)
        x = net.node("Reshape", x, net.node("Concat", net.shape(-1), size, net.shape(2), axis=0))
    net.output(net.node("Mul", x, x), "y", (None, None, 2))
    return net.build()


def _shapes_inputs(_: int, draw: np.random.Generator) -> Arrays:
    return {"x": _floats(draw, *draw.integers(1, 6, 2).tolist(), 2)}


def _shapes_outputs(count: int, inputs: Mapping[str, Array]) -> Arrays:
    x = inputs["x"]
    for step in range(max(count // 4, 1)):
        x = x.reshape(-1, x.shape[step % 2], 2)
    return {"y": x * x}


def _strides(count: int) -> onnx.ModelProto:
    """A chain of `count` steps which each take every second or third row twice or three times: the expression of the size grows."""
    net = Net("strides")
    x = net.input("x", ("n", 4))
    for step in range(count):
        stride = 2 + step % 2
        part = net.node("Slice", x, *(net.constant([item], "int64") for item in (0, np.iinfo(np.int64).max, 0, stride)))
        x = net.node("Concat", *([part] * stride), axis=0)
    net.output(x, "y", (None, 4))
    return net.build()


def _strides_inputs(_: int, draw: np.random.Generator) -> Arrays:
    return {"x": _floats(draw, int(draw.integers(1, 9)), 4)}


def _strides_outputs(count: int, inputs: Mapping[str, Array]) -> Arrays:
    x = inputs["x"]
    for step in range(count):
        x = np.concatenate([x[:: 2 + step % 2]] * (2 + step % 2))
    return {"y": x}


def _decoder(count: int) -> onnx.ModelProto:
    """GPT-2 of `count` layers, of symbolic batch, sequence and past."""
    return gpt2(replace(TINY_GPT2, layers=count), batch="batch", sequence="sequence", past="past")


def _decoder_inputs(count: int, draw: np.random.Generator) -> Arrays:
    batch, sequence, past = draw.integers(1, 5, 3).tolist()
    cache = batch, TINY_GPT2.heads, past, TINY_GPT2.width // TINY_GPT2.heads
    names = [f"past.{layer}.{side}" for layer in range(count) for side in ("key", "value")]
    return {
        "input_ids": draw.integers(0, TINY_GPT2.vocabulary, (batch, sequence)),
        **{name: draw.standard_normal(cache).astype(np.float32) for name in names},
    }


CLASSES = 5
"""Number of classes of `ctc`, of which the first is blank."""


def _ctc(count: int) -> onnx.ModelProto:
    """Greedy decoding of CTC: the best class of each position of an image, of which repetitions and blanks are dropped. The number
    of positions is the width after `count` pools."""
    net = Net("ctc")
    x = net.input("x", (1, CLASSES, 1, "width"))
    for _ in range(count):
        x = net.node("MaxPool", x, kernel_shape=[1, 3], strides=[1, 2], pads=[0, 1, 0, 1])
    best = net.node("ArgMax", net.node("Reshape", x, net.shape(CLASSES, -1)), axis=0, keepdims=0)
    last = net.node("Slice", best, *(net.constant([item], "int64") for item in (0, -1, 0)))
    before = net.node("Concat", net.constant([-1], "int64"), last, axis=0)
    changed = net.node("Not", net.node("Equal", best, before))
    letter_mask = net.node("And", changed, net.node("Not", net.node("Equal", best, net.constant(0, "int64"))))
    places = net.node("Reshape", net.node("NonZero", letter_mask), net.shape(-1))
    net.output(places, "places", (None,), "int64")
    net.output(net.node("Gather", best, places, axis=0), "text", (None,), "int64")
    return net.build()


def _ctc_inputs(count: int, draw: np.random.Generator) -> Arrays:
    return {"x": draw.standard_normal((1, CLASSES, 1, int(draw.integers(1, 40)) << count)).astype(np.float32)}


def _ctc_outputs(count: int, inputs: Mapping[str, Array]) -> Arrays:
    x = inputs["x"][0, :, 0]
    for _ in range(count):
        padded = np.pad(x, ((0, 0), (1, 1)), constant_values=-np.inf)
        x = np.stack([padded[:, start : start + 3].max(1) for start in range(0, x.shape[1], 2)], axis=1)
    best = x.argmax(0)
    places = np.flatnonzero((best != np.append(-1, best[:-1])) & (best != 0))
    return {"places": places, "text": best[places]}


FAMILIES: Mapping[str, Family] = {
    "dims": Family((3, 6, 12, 24), _dims, _dims_inputs, _dims_outputs),
    "caches": Family((75, 150, 300), _caches, _caches_inputs, _caches_outputs),
    "rows": Family((75, 150, 300), _rows, _rows_inputs, _rows_outputs),
    "shapes": Family((1250, 2500, 5000), _shapes, _shapes_inputs, _shapes_outputs),
    "strides": Family((50, 100, 200), _strides, _strides_inputs, _strides_outputs),
    "decoder": Family((3, 6, 12), _decoder, _decoder_inputs),
    "ctc": Family((3, 6, 12), _ctc, _ctc_inputs, _ctc_outputs),
}
