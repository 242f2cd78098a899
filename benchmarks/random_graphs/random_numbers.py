"""Checks of random number operators: by seed, equal numbers are repeated; by statistics, they have the expected distribution."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import onnx
from onnx import helper

import inlaid
from inlaid import ops
from inlaid.driver.compile import compile_module
from inlaid.graph import ir
from inlaid_runtime.types import TensorType, dtype

Array = np.ndarray[Any, Any]

COUNT = 20_000
"""Numbers of a sample."""
SIGMAS = 5.0
"""Allowed deviation of a sample's moment, in standard deviations of the moment."""
TARGET = "x86:threads=1"


def problems() -> list[str]:
    """Return what is wrong with the numbers of canonical and ONNX operators, as lines of text."""
    return [*_check_modules(), *_check_models()]


def _check_modules() -> Iterator[str]:
    for name, mean, deviation, fourth in (("random_uniform", 0.5, 12**-0.5, 1 / 180), ("random_normal", 0.0, 1.0, 2.0)):
        for element in ("float32", "float64", "float16", "bfloat16"):
            state = ir.var("state", TensorType((), "uint64"))
            module = ir.Module({"main": ir.function([state], ops.TABLE[name](state, shape=(COUNT,), dtype=element))})
            executable = compile_module(module, [TARGET])

            def draw(seed: int, executable: Any = executable) -> Array:
                values = list(executable.run({"state": np.array(seed, np.uint64)}).values())
                return next(value for value in values if value.size == COUNT)

            rounding = 2.0 ** -(2 if dtype(element).bits == 16 and element == "bfloat16" else 6)
            yield from _wrong(f"{name} {element}", [draw(seed) for seed in (3, 3, 4)], mean, deviation, fourth, rounding)


def _check_models() -> Iterator[str]:
    shape = {"shape": [COUNT]}
    zeros = np.zeros(COUNT, np.float32)
    cases: Mapping[str, tuple[dict[str, Any], Mapping[str, Array], float, float, float]] = {
        "RandomUniform": ({**shape, "low": -1.0, "high": 3.0}, {}, 1.0, 4 * 12**-0.5, 256 / 180),
        "RandomNormal": ({**shape, "mean": 2.0, "scale": 0.5}, {}, 2.0, 0.5, 2 * 0.5**4),
        "RandomUniformLike": ({"low": 0.0, "high": 1.0}, {"x": zeros}, 0.5, 12**-0.5, 1 / 180),
        "RandomNormalLike": ({}, {"x": zeros}, 0.0, 1.0, 2.0),
        "Bernoulli": ({}, {"x": zeros + np.float32(0.25)}, 0.25, math.sqrt(0.1875), 0.1875 * 0.25),
        "Multinomial": ({"sample_size": COUNT}, {"x": np.log(np.float32([[0.25, 0.75]]))}, 0.75, math.sqrt(0.1875), 0.1875 * 0.25),
    }
    for name, (attrs, feeds, mean, deviation, fourth) in cases.items():
        samples = []
        for seed in (3.0, 3.0, 4.0):
            node = helper.make_node(name, [*feeds], ["y"], seed=seed, **attrs)
            inputs = [helper.make_tensor_value_info(key, onnx.TensorProto.FLOAT, value.shape) for key, value in feeds.items()]
            graph = helper.make_graph([node], "random", inputs, [onnx.ValueInfoProto(name="y")])
            model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
            samples.append(next(iter(inlaid.compile(model, targets=[TARGET]).run(dict(feeds)).values())).reshape(-1))
        yield from _wrong(name, samples, mean, deviation, fourth, 2.0**-6)


def _wrong(name: str, samples: list[Array], mean: float, deviation: float, spread: float, rounding: float) -> Iterator[str]:
    """Compare samples: the first two have one seed. `spread` is the variance of the squared distance from the mean."""
    first, again, other = (sample.astype(np.float64) for sample in samples)
    if not np.array_equal(first, again):
        yield f"{name}: two runs with one seed differ"
    if np.array_equal(first, other):
        yield f"{name}: two seeds have the same numbers"
    for sample in (first, other):
        sample_mean = float(sample.mean())
        if abs(sample_mean - mean) > SIGMAS * deviation / math.sqrt(COUNT) + rounding * deviation / 8:
            yield f"{name}: expected mean {mean:.4f}, got {sample_mean:.4f}"
        square = float(((sample - mean) ** 2).mean())
        if abs(square - deviation**2) > SIGMAS * math.sqrt(spread / COUNT) + rounding * deviation**2:
            yield f"{name}: expected variance {deviation**2:.4f}, got {square:.4f}"
