"""Optimizer steps. Inputs: learning rate R, step T, then groups of n tensors: parameters X, gradients G, optimizer states."""

from __future__ import annotations

from collections.abc import Mapping

from inlaid.graph.conditions import require_shape
from inlaid.graph.ir import Expr
from inlaid.ops.compose import cast_to, expr_type, scalar
from inlaid.ops.elementwise import add, div, less, mul, pow, sqrt, sub, where
from inlaid_onnx.node import Converter, Node


def _groups(node: Node, count: int) -> list[tuple[Expr, ...]]:
    """Regroup the tensors to one tuple (X, G, state...) per X."""
    tensors = [node.input(index) for index in range(2, len(node.inputs))]
    if not tensors or len(tensors) % count:
        raise node.error(f"the number of tensors must be a multiple of {count}, got {len(tensors)}")
    size = len(tensors) // count
    with node.relations():
        for position, tensor in enumerate(tensors):
            require_shape(expr_type(tensor).shape, expr_type(tensors[position % size]).shape, f"input {position + 2}")
    return [tuple(tensors[start::size]) for start in range(size)]


def _flat(steps: list[tuple[Expr, ...]]) -> tuple[Expr, ...]:
    """Reorder outputs from one tuple per X to groups: all new X, then all of each state."""
    return tuple(item for group in zip(*steps, strict=True) for item in group)


def _scaled(x: Expr, factor: float) -> Expr:
    return mul(x, scalar(factor, expr_type(x).dtype))


def _gradient(node: Node, x: Expr, gradient: Expr) -> Expr:
    """Add the gradient of the regularization norm."""
    norm = node.attrs.get("norm_coefficient", 0.0)
    return gradient if norm == 0 else add(_scaled(x, norm), gradient)


def _rate(node: Node, parameter: Expr) -> Expr:
    return cast_to(node.input(0), expr_type(parameter).dtype)


def _step(node: Node, parameter: Expr) -> Expr:
    return cast_to(node.input(1), expr_type(parameter).dtype)


def _adagrad(node: Node) -> tuple[Expr, ...]:
    """Convert Adagrad (Duchi, Hazan and Singer, "Adaptive subgradient methods", 2011). State: the sum of squared gradients."""
    decay, epsilon = node.real("decay_factor", 0.0), node.real("epsilon", 1e-6)

    def step(x: Expr, gradient: Expr, squares: Expr) -> tuple[Expr, ...]:
        dtype = expr_type(x).dtype
        rate = div(_rate(node, x), add(_scaled(_step(node, x), decay), scalar(1, dtype)))
        gradient = _gradient(node, x, gradient)
        new = add(squares, mul(gradient, gradient))
        return sub(x, div(mul(rate, gradient), add(sqrt(new), scalar(epsilon, dtype)))), new

    return _flat([step(*group) for group in _groups(node, 3)])


def _momentum(node: Node) -> tuple[Expr, ...]:
    """Convert Momentum: gradient descent with standard or Nesterov momentum. State: the momentum."""
    alpha, beta, mode = (node.attrs.get(name) for name in ("alpha", "beta", "mode"))
    if alpha is None or beta is None or mode not in ("standard", "nesterov"):
        raise node.error("expected the attributes alpha, beta and mode (standard or nesterov)")

    def step(x: Expr, gradient: Expr, momentum: Expr) -> tuple[Expr, ...]:
        dtype = expr_type(x).dtype
        gradient = _gradient(node, x, gradient)
        # The first step uses the whole gradient.
        weight = where(less(scalar(0, dtype), _step(node, x)), scalar(beta, dtype), scalar(1, dtype))
        new = add(_scaled(momentum, alpha), mul(weight, gradient))
        direction = new if mode == "standard" else add(gradient, _scaled(new, alpha))
        return sub(x, mul(_rate(node, x), direction)), new

    return _flat([step(*group) for group in _groups(node, 3)])


def _adam(node: Node) -> tuple[Expr, ...]:
    """Convert Adam (Kingma and Ba, ICLR 2015). State: running averages of the gradient and of its square."""
    alpha, beta, epsilon = node.real("alpha", 0.9), node.real("beta", 0.999), node.real("epsilon", 1e-6)
    shrink = 1 - node.real("norm_coefficient_post", 0.0)

    def step(x: Expr, gradient: Expr, first: Expr, second: Expr) -> tuple[Expr, ...]:
        dtype = expr_type(x).dtype
        one, count = scalar(1, dtype), _step(node, x)
        gradient = _gradient(node, x, gradient)
        new_first = add(_scaled(first, alpha), _scaled(gradient, 1 - alpha))
        new_second = add(_scaled(second, beta), _scaled(mul(gradient, gradient), 1 - beta))
        unbiased = div(sqrt(sub(one, pow(scalar(beta, dtype), count))), sub(one, pow(scalar(alpha, dtype), count)))
        rate = mul(_rate(node, x), where(less(scalar(0, dtype), count), unbiased, one))
        new = sub(x, mul(rate, div(new_first, add(sqrt(new_second), scalar(epsilon, dtype)))))
        return (new if shrink == 1 else _scaled(new, shrink)), new_first, new_second

    return _flat([step(*group) for group in _groups(node, 4)])


CONVERTERS: Mapping[str, Converter] = {
    "ai.onnx.preview.training:Adagrad": _adagrad,
    "ai.onnx.preview.training:Adam": _adam,
    "ai.onnx.preview.training:Momentum": _momentum,
}
