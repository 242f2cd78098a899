"""From a TensorFlow Lite model to a graph module."""

from __future__ import annotations

import json
from collections.abc import Mapping

from inlay.errors import InlayError, ModelImportError
from inlay.frontends.tflite.model import Graph, read_model
from inlay.frontends.tflite.node import Converter, Node
from inlay.graph.ir import Expr, Function, Module, Span, Var, children, constant, function, tuple_, var
from inlay.types import TensorType


def import_model(data: bytes, file: str, converters: Mapping[str, Converter]) -> Module:
    """The module of a model: `main` takes its inputs under their names. Raises `ModelImportError`."""
    return Module({"main": _function(read_model(data, file)[0], file, converters)})


def _function(graph: Graph, file: str, converters: Mapping[str, Converter]) -> Function:
    values: dict[int, Expr] = {}
    names = _distinct([graph.tensors[number].name for number in graph.inputs])
    params = []
    for number, name in zip(graph.inputs, names, strict=True):
        tensor = graph.tensors[number]
        params.append(var(name, TensorType(tensor.shape, tensor.dtype)))
        values[number] = params[-1]
    for index, tensor in enumerate(graph.tensors):
        if tensor.data is not None and index not in values:
            values[index] = constant(tensor.data)
    for number, operation in enumerate(graph.operations):
        results = tuple(graph.tensors[output] for output in operation.outputs)
        where = results[0].name if results and results[0].name else f"{operation.name}{number}"
        span = Span(file, where)
        missing = [given for given in operation.inputs if given >= 0 and given not in values]
        if missing:
            name = graph.tensors[missing[0]].name
            raise ModelImportError(f"it reads {name}, which is not computed before", operator=operation.name, node=str(span))
        node = Node(
            operation.name,
            operation.options,
            tuple(values.get(given) for given in operation.inputs),
            tuple(graph.tensors[given] if given >= 0 else None for given in operation.inputs),
            results,
            span,
        )
        values[operation.outputs[0]] = _convert(node, converters)
    try:
        results_ = tuple(values[number] for number in graph.outputs)
    except KeyError as error:
        raise ModelImportError(f"output {graph.tensors[error.args[0]].name} is not computed", node=file) from None
    names = _distinct([graph.tensors[number].name for number in graph.outputs])
    body = results_[0] if len(results_) == 1 else tuple_(results_)
    return function(params, body, (("outputs", json.dumps(names)),))


def _convert(node: Node, converters: Mapping[str, Converter]) -> Expr:
    converter = converters.get(node.name)
    if converter is None:
        raise node.error(f"{node.name} is not supported")
    if len(node.results) != 1:
        raise node.error(f"{len(node.results)} results are not supported")
    try:
        found = converter(node)
    except ModelImportError:
        raise
    except (InlayError, ValueError, TypeError, LookupError, AttributeError, ArithmeticError, AssertionError) as error:
        raise node.error(f"its inputs or options do not fit: {error}") from error
    wanted = TensorType(node.result.shape, node.result.dtype)
    if found.type != wanted:
        raise node.error(f"it gives {found.type!r}, where the model says {wanted!r}")
    _mark(found, node.span)
    return found


def _mark(root: Expr, span: Span) -> None:
    """Put the span on all under an expression that has none: it was made a moment ago, and nobody else has seen it."""
    stack = [root]
    while stack:
        expr = stack.pop()
        if expr.span is None and not isinstance(expr, Var):
            object.__setattr__(expr, "span", span)
            stack.extend(children(expr))


def _distinct(names: list[str]) -> list[str]:
    """Names that no two share: those that come again get a number."""
    seen: dict[str, int] = {}
    found = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        found.append(name if seen[name] == 1 else f"{name}_{seen[name]}")
    return found
