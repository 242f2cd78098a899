"""What is said to be supported: the page, loop programs of every operator, and native code."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import inlaid
import tflite_operators
from inlaid.graph.ir import Call, children
from inlaid.graph.operator import Operator
from inlaid_tflite import load
from inlaid_tflite.convert import CONVERTERS

from .build import Options, Tensor, agree, drawn, litert, single

PAGE = Path(__file__).parents[3] / "docs" / "tflite.md"


def test_the_page_has_the_table_of_today() -> None:
    text = PAGE.read_text()
    assert tflite_operators.renewed(text) == text, "run: python benchmarks/tflite_operators.py --write docs/tflite.md"
    assert len(CONVERTERS) >= 110


A, B = ({"scale": 0.05, "zero_point": 3}, {"scale": 0.11, "zero_point": -9})
AXES = Tensor((1,), "int32", np.array([1], np.int32))
WEIGHTS = np.arange(-60, 60).astype(np.int8)
SAMPLES: dict[str, tuple[list[Tensor], Tensor, Options | None]] = {
    "HARD_SWISH": ([Tensor((4, 65), "int8", **A)], Tensor((4, 65), "int8", **B), None),
    "EXP": ([Tensor((4, 65), "int16", scale=1e-4)], Tensor((4, 65), "int16", scale=1e-3), None),
    "TANH": ([Tensor((4, 65), "int16", scale=2e-4)], Tensor((4, 65), "int16", scale=1 / 32768), None),
    "LEAKY_RELU": (
        [Tensor((4, 65), "int16", scale=0.01)],
        Tensor((4, 65), "int16", scale=0.02),
        ("LeakyReluOptions", {"alpha": 0.3}),
    ),
    "SUB": ([Tensor((4, 65), "int8", **A), Tensor((65,), "int8", **B)], Tensor((4, 65), "int8", **B), ("SubOptions", {})),
    "MUL": ([Tensor((4, 65), "uint8", scale=0.1), Tensor((4, 65), "uint8", scale=0.1)], Tensor((4, 65), "uint8", scale=3.0), None),
    "LESS": ([Tensor((4, 65), "int8", **A), Tensor((4, 65), "int8", **B)], Tensor((4, 65), "bool"), None),
    "MEAN": ([Tensor((4, 65), "int8", **A), AXES], Tensor((4,), "int8", **B), ("ReducerOptions", {})),
    "REDUCE_PROD": (
        [Tensor((4, 5), "int8", scale=0.02), AXES],
        Tensor((4,), "int8", scale=0.02),
        ("ReducerOptions", {}),
    ),
    "QUANTIZE": ([Tensor((4, 65), "int8", **A)], Tensor((4, 65), "int8", **B), None),
    "SOFTMAX": (
        [Tensor((4, 17), "int16", scale=5e-4)],
        Tensor((4, 17), "int16", scale=1 / 32768),
        ("SoftmaxOptions", {"beta": 1.0}),
    ),
    "L2_NORMALIZATION": ([Tensor((4, 17), "int8", **A)], Tensor((4, 17), "int8", scale=1 / 128), ("L2NormOptions", {})),
    "FULLY_CONNECTED": (
        [
            Tensor((3, 10), "int16", scale=0.001),
            Tensor((12, 10), "int4", WEIGHTS.reshape(12, 10) % 8, 0.02),
            Tensor((12,), "int64", np.arange(12), 0.00002),
        ],
        Tensor((3, 12), "int16", scale=0.005),
        ("FullyConnectedOptions", {}),
    ),
    "DEPTHWISE_CONV_2D": (
        [
            Tensor((1, 6, 6, 10), "int8", **A),
            Tensor((1, 2, 3, 10), "int8", WEIGHTS[:60].reshape(1, 2, 3, 10), [0.02] * 10, 0, 3),
            Tensor((10,), "int32", np.arange(10), [0.001] * 10),
        ],
        Tensor((1, 6, 6, 10), "int8", scale=0.9),
        ("DepthwiseConv2DOptions", {"strideH": 1, "strideW": 1, "depthMultiplier": 1}),
    ),
    "CONCATENATION": (
        [Tensor((4, 65), "uint8", scale=0.1, zero_point=7), Tensor((4, 3), "uint8", scale=0.03)],
        Tensor((4, 68), "uint8", scale=0.07, zero_point=100),
        ("ConcatenationOptions", {"axis": 1}),
    ),
    "RESIZE_BILINEAR": (
        [Tensor((1, 5, 4, 3), "int8", **A), Tensor((2,), "int32", np.array([7, 9], np.int32))],
        Tensor((1, 7, 9, 3), "int8", **A),
        ("ResizeBilinearOptions", {"halfPixelCenters": True}),
    ),
    "TRANSPOSE_CONV": (
        [
            Tensor((4,), "int32", np.array([1, 8, 8, 4], np.int32)),
            Tensor((4, 2, 2, 5), "int8", WEIGHTS[:80].reshape(4, 2, 2, 5), [0.02] * 4),
            Tensor((1, 4, 4, 5), "int8", **A),
        ],
        Tensor((1, 8, 8, 4), "int8", scale=0.2),
        ("TransposeConvOptions", {"strideH": 2, "strideW": 2}),
    ),
}


@pytest.mark.parametrize("name", sorted(SAMPLES))
def test_integers_of_native_code_are_equal(name: str) -> None:
    pytest.importorskip("inlaid_x86", reason='needs the x86 plugin: pip install "inlaid[x86]"')
    tensors, result, options = SAMPLES[name]
    data = single(name, tensors, result, options)
    generator = np.random.default_rng(5)
    inputs = [drawn(each.dtype, each.shape, generator) for each in tensors if each.data is None]
    module = load(data)
    operators = _operators(module)
    assert all(each.compute is not None or each.decompose is not None for each in operators), "an operator has no loop program"
    executable = inlaid.compile(module, ["x86:threads=1"])
    outputs = executable.run({param.name: value for param, value in zip(module.main.params, inputs, strict=True)})
    agree(next(iter(outputs.values())), litert(data, inputs)[0])
    assert {region.target for region in executable.regions} == {"x86:threads=1"}


def _operators(module: inlaid.Module) -> set[Operator]:
    exprs: dict[int, Any] = {}
    stack: list[Any] = [module.main.body]
    while stack:
        expr = stack.pop()
        if id(expr) not in exprs:
            exprs[id(expr)] = expr
            stack.extend(children(expr))
    return {expr.callee for expr in exprs.values() if isinstance(expr, Call) and isinstance(expr.callee, Operator)}
