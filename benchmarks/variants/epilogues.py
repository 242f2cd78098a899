"""What follows a product: activations as exporters write them with opset 17."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from zoo.layers import gelu_erf, gelu_tanh
from zoo.net import Net


def _silu(net: Net, x: str) -> str:
    return net.node("Mul", x, net.node("Sigmoid", x))


def _mish(net: Net, x: str) -> str:
    return net.node("Mul", x, net.node("Tanh", net.node("Softplus", x)))


def _clip(net: Net, x: str) -> str:
    return net.node("Clip", x, net.constant(0.0), net.constant(6.0))


ACTIVATIONS: Mapping[str, Callable[[Net, str], str]] = MappingProxyType(
    {
        "relu": lambda net, x: net.node("Relu", x),
        "clip": _clip,
        "leaky relu": lambda net, x: net.node("LeakyRelu", x, alpha=0.1),
        "hard swish": lambda net, x: net.node("HardSwish", x),
        "sigmoid": lambda net, x: net.node("Sigmoid", x),
        "tanh": lambda net, x: net.node("Tanh", x),
        "silu": _silu,
        "gelu": gelu_erf,
        "gelu by tanh": gelu_tanh,
        "mish": _mish,
    }
)
"""Activations of float32 values, by name."""
CHEAP = ("relu", "clip", "leaky relu", "hard swish")
"""Activations that may take no time beside a product."""
