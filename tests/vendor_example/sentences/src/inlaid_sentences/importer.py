"""Importer: converts lines of text to a graph module."""

import json
from pathlib import Path

import numpy as np

from inlaid.graph.ir import Module, Span, constant, function, tuple_, var
from inlaid.ops import TABLE
from inlaid_runtime.arith import SizeVar
from inlaid_runtime.errors import InlaidError, ModelImportError
from inlaid_runtime.types import TensorType


def load(source):
    """Import a model. Raises `ModelImportError` with the line number."""
    inputs, values, outputs = [], {}, []
    for number, line in enumerate(source.read().decode("utf-8").splitlines(), 1):
        span = Span(source.name, f"line {number}")
        try:
            match line.split():
                case ["input", name, dtype, *dims]:
                    shape = [int(dim) if dim.isdigit() else _size(dim, source) for dim in dims]
                    values[name] = var(name, TensorType(tuple(shape), dtype))
                    inputs.append(values[name])
                case ["constant", name, "from", file]:
                    values[name] = constant(_array(file, source))
                case ["output", *names]:
                    outputs += names
                case [name, "=", operator, *operands]:
                    values[name] = TABLE[operator](*(values[operand] for operand in operands), span=span)
                case [word, *_] if not word.startswith("#"):
                    raise ModelImportError(f"expected input, constant, output or NAME = ..., got {word!r}", node=str(span))
        except KeyError as error:
            raise ModelImportError(f"unknown name {error.args[0]!r}", node=str(span)) from error
        except InlaidError as error:
            raise ModelImportError(error.message, node=str(span)) from error
    body = values[outputs[0]] if len(outputs) == 1 else tuple_([values[name] for name in outputs])
    return Module({"main": function(inputs, body, (("outputs", json.dumps(outputs)),))})


def _size(name, source):
    """Return a symbolic dimension, fixed or bounded by the user's options."""
    bounds = source.dims.get(name, (1, None))
    return bounds if isinstance(bounds, int) else SizeVar(name, *bounds)


def _array(file, source):
    """Read an array from a file in the model's folder."""
    if not isinstance(source.model, Path) or Path(file).name != file:
        raise ModelImportError(f"expected an array file in the model's folder, got {file!r}")
    source.opened(file)
    return np.load(source.model.parent / file, allow_pickle=False)
