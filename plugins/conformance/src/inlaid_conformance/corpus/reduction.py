"""Examples of reductions, argmin and argmax, cumulative sums, sorting and normalization."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from inlaid import ops
from inlaid_conformance.corpus.example import FLOATS, INTEGERS, MOVED, Choices, Entry, Example
from inlaid_runtime.types import dtype

_NUMBERS = (*FLOATS, "int32", "int8", "uint8", "int64")
_BY_EXTREMES = (*FLOATS, "float8e4m3fn", *INTEGERS, "bool")


def _reduce(name: str) -> Callable[[Choices, str], Example]:
    def make(choices: Choices, dtype_name: str) -> Example:
        shape = choices.shape()
        extreme = name in ("reduce_max", "reduce_min")
        x = choices.array(shape, dtype_name) if extreme else choices.ordinary(shape, dtype_name)
        return Example(ops.TABLE[name], (x,), {"axes": choices.axes(len(shape)), "keepdims": choices.flag()})

    return make


def _position(name: str) -> Callable[[Choices, str], Example]:
    def make(choices: Choices, dtype_name: str) -> Example:
        shape = choices.solid_shape()
        attrs = {"axis": choices.axis(len(shape)), "keepdims": choices.flag(), "last": choices.flag()}
        return Example(ops.TABLE[name], (choices.array(shape, dtype_name),), attrs)

    return make


def _cumulative(name: str) -> Callable[[Choices, str], Example]:
    def make(choices: Choices, dtype_name: str) -> Example:
        shape = choices.solid_shape(max_rank=3)
        attrs = {"axis": choices.axis(len(shape)), "exclusive": choices.flag(), "reverse": choices.flag()}
        return Example(ops.TABLE[name], (choices.ordinary(shape, dtype_name),), attrs)

    return make


def _softmax(name: str) -> Callable[[Choices, str], Example]:
    def make(choices: Choices, dtype_name: str) -> Example:
        shape = choices.solid_shape()
        return Example(ops.TABLE[name], (choices.summable(shape, dtype_name),), {"axis": choices.axis(len(shape))})

    return make


def _topk(choices: Choices, dtype_name: str) -> Example:
    shape = choices.solid_shape(max_rank=3)
    axis = choices.axis(len(shape))
    attrs = {"k": 1 + choices.below(shape[axis]), "axis": axis, "largest": not choices.flag()}
    return Example(ops.topk, (choices.array(shape, dtype_name),), attrs)


def _batch_norm(choices: Choices, dtype_name: str) -> Example:
    shape = choices.solid_shape(2)
    scale, bias, mean, spread = (choices.ordinary(shape[1:2], dtype_name) for _ in range(4))
    variance = (np.abs(spread.astype(np.float32)) + 0.5).astype(dtype(dtype_name).numpy)
    return Example(
        ops.batch_norm, (choices.ordinary(shape, dtype_name), scale, bias, mean, variance), {"epsilon": choices.pick(1e-5, 1e-3)}
    )


def _lrn(choices: Choices, dtype_name: str) -> Example:
    attrs = {"size": 1 + choices.pick(2, 0, 1, 4), "alpha": 0.1, "beta": choices.pick(0.75, 0.5), "bias": 1.5}
    return Example(ops.lrn, (choices.ordinary(choices.solid_shape(3), dtype_name),), attrs)


def _layer_norm(choices: Choices, dtype_name: str) -> Example:
    x, axis, scale = _normalized(choices, dtype_name)
    bias = (choices.ordinary(x.shape[-1:], dtype_name),) if choices.flag() else ()
    return Example(ops.layer_norm, (x, scale, *bias), {"axis": axis, "epsilon": choices.pick(1e-5, 1e-2)})


def _rms_norm(choices: Choices, dtype_name: str) -> Example:
    x, axis, scale = _normalized(choices, dtype_name)
    return Example(ops.rms_norm, (x, scale), {"axis": axis, "epsilon": choices.pick(1e-5, 1e-2)})


def _normalized(choices: Choices, dtype_name: str) -> tuple[Any, int, Any]:
    """Return data, the first normalized axis, and a scale."""
    shape = choices.solid_shape(max_rank=3)
    axis = choices.axis(len(shape))
    return choices.ordinary(shape, dtype_name), axis, choices.ordinary(shape[axis:], dtype_name)


ENTRIES = (
    Entry(ops.reduce_sum, _NUMBERS, _reduce("reduce_sum")),
    Entry(ops.reduce_prod, _NUMBERS, _reduce("reduce_prod")),
    Entry(ops.reduce_max, _BY_EXTREMES, _reduce("reduce_max"), exact=True),
    Entry(ops.reduce_min, _BY_EXTREMES, _reduce("reduce_min"), exact=True),
    Entry(ops.argmax, (*FLOATS, "int32", "int8", "uint8"), _position("argmax"), exact=True),
    Entry(ops.argmin, (*FLOATS, "int32", "int8", "uint8"), _position("argmin"), exact=True),
    Entry(ops.cumsum, _NUMBERS, _cumulative("cumsum")),
    Entry(ops.cumprod, _NUMBERS, _cumulative("cumprod")),
    Entry(ops.softmax, FLOATS, _softmax("softmax")),
    Entry(ops.log_softmax, FLOATS, _softmax("log_softmax")),
    Entry(ops.topk, MOVED, _topk, exact=True),
    Entry(ops.batch_norm, FLOATS, _batch_norm),
    Entry(ops.lrn, FLOATS, _lrn),
    Entry(ops.layer_norm, FLOATS, _layer_norm),
    Entry(ops.rms_norm, FLOATS, _rms_norm),
)
