"""Reductions and conversions of elements beside LiteRT."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inlaid_runtime.errors import ModelImportError
from inlaid_runtime.types import dtype
from inlaid_tflite import load
from inlaid_tflite.convert.reduce import CONVERTERS as REDUCE

from .build import Options, Tensor, check_litert, drawn, single
from .test_elements import STORED, cases, seeds, stands_for

QUICK = settings(max_examples=8, deadline=None, derandomize=True)


@pytest.mark.parametrize(("name", "dtype_name"), cases(REDUCE))
@QUICK
@given(seeds)
def test_reductions(name: str, dtype_name: str, seed: int) -> None:
    generator = np.random.default_rng(seed)
    shape = tuple(map(int, generator.integers(1, 7, int(generator.integers(1, 5)))))
    rank = len(shape)
    keep = bool(generator.integers(2))
    a = stands_for(dtype_name, generator, -1)
    if name in ("SUM", "MEAN") and generator.integers(2) and dtype_name != "int16":
        shape, rank, keep = (2, 5, 3, 7), 4, True
    count = 1 if name.startswith("ARG") or name == "CUMSUM" else int(generator.integers(1, rank + 1))
    axes = sorted(map(int, generator.choice(rank, count, replace=False)))
    if rank == 4 and keep and count == 2:
        axes = [1, 2]
    axes = axes[:2] if name == "REDUCE_PROD" else axes
    count = len(axes)
    left = tuple(1 if axis in axes else dim for axis, dim in enumerate(shape) if keep or axis not in axes)
    b = a if name in ("REDUCE_MAX", "REDUCE_MIN") else stands_for(dtype_name, generator, 0)
    result, options = Tensor(left, dtype_name, **b), ("ReducerOptions", {"keepDims": keep})
    negative = [axis - rank if generator.integers(2) else axis for axis in axes]
    axes_tensor = Tensor((count,), "int32", np.array(negative, np.int32))
    if name == "CUMSUM":
        flags = {"exclusive": bool(generator.integers(2)), "reverse": bool(generator.integers(2))}
        result, options = Tensor(shape, dtype_name), ("CumsumOptions", flags)
        axes_tensor = Tensor((), "int32", np.array(axes[0], np.int32))
    if name.startswith("ARG"):
        left = tuple(dim for axis, dim in enumerate(shape) if axis not in axes)
        wide = bool(generator.integers(2))
        kind = "ArgMaxOptions" if name == "ARG_MAX" else "ArgMinOptions"
        result, options = Tensor(left, "int64" if wide else "int32"), (kind, {"outputType": 4 if wide else 2})
    x = drawn(dtype_name, shape, generator, 1.0)
    if name == "REDUCE_PROD" and dtype_name not in STORED:
        x = (x % 5 - 2).astype(x.dtype)
    check_litert(single(name, [Tensor(shape, dtype_name, **a), axes_tensor], result, options), [x], 1e-4)


@QUICK
@given(seeds, st.sampled_from(["float32", "int8", "uint8", "int16", "int32"]), st.sampled_from(list(STORED)))
def test_quantization(seed: int, dtype_name: str, to: str) -> None:
    if (dtype_name, to) in (("int16", "uint8"), ("int32", "uint8")):
        return
    generator = np.random.default_rng(seed)
    a, b = stands_for(dtype_name, generator), stands_for(to, generator)
    if dtype_name == "int32":
        a = {"scale": float(np.exp2(generator.uniform(-12, -4))), "zero_point": 0}
    x = drawn(dtype_name, (3, 49), generator)
    if dtype_name == "float32":
        x[0] = ((generator.integers(-100, 100, 49) + 0.5) * b["scale"]).astype(np.float32)
    check_litert(single("QUANTIZE", [Tensor((3, 49), dtype_name, **a)], Tensor((3, 49), to, **b)), [x])


@QUICK
@given(seeds, st.sampled_from(["float16", *STORED]))
def test_dequantization(seed: int, dtype_name: str) -> None:
    generator = np.random.default_rng(seed)
    outputs = check_litert(
        single("DEQUANTIZE", [Tensor((3, 50), dtype_name, **stands_for(dtype_name, generator))], Tensor((3, 50))),
        [drawn(dtype_name, (3, 50), generator)],
    )
    assert outputs[0].dtype == np.float32


def test_dequantization_by_channel() -> None:
    generator = np.random.default_rng(0)
    tensor = Tensor((2, 3), "int8", None, (0.5, 0.25, 0.125), (0, 0, 0), 1)
    check_litert(single("DEQUANTIZE", [tensor], Tensor((2, 3))), [drawn("int8", (2, 3), generator)])


@pytest.mark.parametrize("to", ["float32", "float16", "int8", "uint8", "int16", "int32", "int64", "bool"])
@pytest.mark.parametrize("dtype_name", ["float32", "int8", "uint8", "int16", "int32", "uint32", "int64", "bool"])
def test_casts(dtype_name: str, to: str) -> None:
    x = drawn(dtype_name, (40,), np.random.default_rng(1))
    if dtype(dtype_name).is_float:
        x = np.abs(x) if to.startswith("u") else x
    check_litert(single("CAST", [Tensor((40,), dtype_name)], Tensor((40,), to), ("CastOptions", {})), [x])


@QUICK
@given(seeds, st.integers(2, 16))
def test_fake_quantization(seed: int, bits: int) -> None:
    generator = np.random.default_rng(seed)
    options: Options = (
        "FakeQuantOptions",
        {"min": -float(generator.uniform(0, 4)), "max": float(generator.uniform(0.1, 4)), "numBits": bits},
    )
    check_litert(single("FAKE_QUANT", [Tensor((3, 50))], Tensor((3, 50)), options), [drawn("float32", (3, 50), generator)])


def refused(message: str, *arguments: Any) -> None:
    with pytest.raises(ModelImportError, match=message):
        load(single(*arguments))


def test_what_is_not_supported_is_named() -> None:
    axes = Tensor((1,), "int32", np.array([0], np.int32))
    options = ("ReducerOptions", {"keepDims": False})
    a, b = (Tensor((4,), "int8", scale=scale) for scale in (1.0, 0.5))
    refused("requantize the result with QUANTIZE", "REDUCE_MAX", [a, axes], Tensor((), "int8", scale=0.5), options)
    long = Tensor((300,), "int8", scale=1.0)
    refused(
        "a product of stored integers must have at most 256 factors, got 300:",
        "REDUCE_PROD",
        [long, axes],
        Tensor((), "int8", scale=1.0),
        options,
    )
    refused(
        "axis must be >= -1 and < 1, got 3",
        "SUM",
        [b, Tensor((1,), "int32", np.array([3], np.int32))],
        Tensor((), "int8", scale=1.0),
        options,
    )
    narrow = ("FakeQuantOptions", {"min": -1.0, "max": 1.0, "numBits": 8, "narrowRange": True})
    refused("narrow_range must be False: LiteRT does not support it", "FAKE_QUANT", [Tensor((4,))], Tensor((4,)), narrow)
    refused("the dtype of the result must be one of float32, got float16", "DEQUANTIZE", [a], Tensor((4,), "float16"))
