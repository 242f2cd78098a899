"""Small float models for these tests, and their quantization with the interpreter as the target."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from inlaid import ops
from inlaid.graph.interp import evaluate
from inlaid.graph.ir import Expr, Function, Module, Span, Var, constant, function, var
from inlaid_quantization.calibrate import Run
from inlaid_quantization.quantize import QuantizedModule, quantize_module
from inlaid_quantization.settings import Quantization
from inlaid_runtime.types import TensorType

Array = np.ndarray[Any, Any]
Sample = Mapping[str, Array]


def interpreted(module: Module) -> Run:
    def run(sample: Mapping[str, Any]) -> Sequence[Array]:
        outputs = evaluate(module, dict(sample))
        return outputs if isinstance(outputs, tuple) else (outputs,)

    return run


def quantized(main: Function, samples: Sequence[Sample], settings: Quantization | None = None) -> QuantizedModule:
    return quantize_module(Module({"main": main}), samples, samples, settings or Quantization(), interpreted)


def drawn(main: Function, seed: int = 0, count: int = 4) -> list[dict[str, Array]]:
    generator = np.random.default_rng(seed)
    return [{param.name: random_array(generator, param) for param in main.params} for _ in range(count)]


def random_array(generator: np.random.Generator, param: Var) -> Array:
    assert isinstance(param.type, TensorType)
    shape = tuple(int(dim) for dim in param.type.shape)  # type: ignore[arg-type]
    return generator.normal(size=shape).astype(np.float32)


def real(name: str, *shape: int) -> Var:
    return var(name, TensorType(shape, "float32"))


def named(name: str) -> Span:
    return Span("net", name)


def exact_weights(generator: np.random.Generator, *shape: int, axis: int = 0) -> Expr:
    """Weights that int8 holds exactly: whole numbers up to 127, at least one of them 127 for each index of the axis, times a power
    of two."""
    stored = generator.integers(-127, 128, shape)
    np.moveaxis(stored, axis, 0)[(slice(None), *(0,) * (len(shape) - 1))] = 127
    return constant((stored / 1024).astype(np.float32))


def through_product(x: Expr) -> Expr:
    """x through a product that changes nothing, so that what follows has integers to read."""
    assert isinstance(x.type, TensorType)
    width = int(x.type.shape[-1])  # type: ignore[arg-type]
    return ops.matmul(x, constant(np.eye(width, dtype=np.float32)), span=named("same"))


def a_function(build: Callable[..., Expr], *shapes: tuple[int, ...]) -> Function:
    """What `build` makes of inputs of some shapes, each through a product."""
    params = [real(f"x{number}", *shape) for number, shape in enumerate(shapes)]
    return function(params, build(*map(through_product, params)))
