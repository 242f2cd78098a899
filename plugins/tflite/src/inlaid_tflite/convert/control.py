"""Control flow (branches, loops, calls of other graphs) and variables."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from inlaid import ops
from inlaid.graph.ir import Expr, constant, function, if_, loop, tuple_, tuple_item, var
from inlaid_runtime.types import TensorType
from inlaid_tflite.node import Converter, Node


def _flag(value: Expr) -> Expr:
    """Reshape a condition, which may have shape (1,), to 0-d."""
    return ops.reshape(value, shape=())


def _if(node: Node) -> tuple[Expr, ...]:
    operands = [node.input(index) for index in range(1, len(node.values))]
    graphs = (node.option("ThenSubgraphIndex"), node.option("ElseSubgraphIndex"))
    condition = node.scope.static(node.input(0))
    if condition is not None:
        return node.scope.call(graphs[0] if condition.reshape(()) else graphs[1], operands)
    (then, then_constraints), (otherwise, else_constraints) = (
        node.scope.guarded(partial(node.scope.call, graph, operands)) for graph in graphs
    )
    result = if_(_flag(node.input(0)), tuple_(then), tuple_(otherwise), constraints=(then_constraints, else_constraints))
    return tuple(tuple_item(result, index) for index in range(len(node.results)))


def _while(node: Node) -> tuple[Expr, ...]:
    """Convert WHILE. The condition is evaluated before each iteration."""
    states = [node.input(index) for index in range(len(node.values))]
    condition, body = node.option("CondSubgraphIndex"), node.option("BodySubgraphIndex")

    def evaluate_condition(values: list[Expr]) -> Expr:
        (outcome,) = node.scope.call(condition, values)
        return _flag(outcome)

    def step() -> tuple[Expr, ...]:
        new_values = list(node.scope.call(body, old_values))
        return (evaluate_condition(new_values), *new_values)

    old_values = [var(f"{node.span.node}.{index}", state.type) for index, state in enumerate(states)]
    (condition_result, *new_values), constraints = node.scope.guarded(step)
    for index, (old, new) in enumerate(zip(old_values, new_values, strict=True)):
        if old.type != new.type:
            raise node.error(f"value {index} must keep the type {old.type!r} in each iteration, got {new.type!r}")
    iteration = var(f"{node.span.node}.iteration", TensorType((), "int64"))
    loop_body = function((iteration, *old_values), tuple_((condition_result, *new_values)), constraints=constraints)
    result = loop(loop_body, state=states, condition=evaluate_condition(states))
    return tuple(tuple_item(result, index) for index in range(len(states)))


def _call(node: Node) -> tuple[Expr, ...]:
    operands = [node.input(index) for index in range(len(node.values))]
    return node.scope.call(node.option("Subgraph"), operands)


def _call_once(node: Node) -> tuple[Expr, ...]:
    node.scope.initialize(node.option("InitSubgraphIndex"))
    return ()


# --- variables --------------------------------------------------------------------------------------------------------


def _var_handle(node: Node) -> Expr:
    parts = (node.option("Container", None) or b"", node.option("SharedName", None) or b"")
    name = "/".join(part.decode("utf-8", "replace") for part in parts if part)
    return constant(node.scope.handle(name))


def _variable(node: Node) -> int:
    return int(node.array(0).item())


def _read_variable(node: Node) -> Expr:
    return node.scope.read(_variable(node))


def _assign_variable(node: Node) -> tuple[Expr, ...]:
    node.scope.assign(_variable(node), node.input(1))
    return ()


CONVERTERS: Mapping[str, Converter] = {
    "ASSIGN_VARIABLE": _assign_variable,
    "CALL": _call,
    "CALL_ONCE": _call_once,
    "IF": _if,
    "READ_VARIABLE": _read_variable,
    "VAR_HANDLE": _var_handle,
    "WHILE": _while,
}
