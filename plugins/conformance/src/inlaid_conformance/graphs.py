"""Random graphs of the corpus's operators, whose operands are results of earlier operators, constants and inputs."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from inlaid.graph import ir
from inlaid_conformance.corpus import Choices, Entry, Unfit
from inlaid_runtime.errors import InlaidError
from inlaid_runtime.types import TensorType, from_numpy

STEPS = 8
"""Greatest number of operators in a graph."""
ATTEMPTS = 4 * STEPS
"""Greatest number of operators tried for a graph. Some operators fit no available value."""
MAX_ELEMENTS = 1 << 12
"""Greatest number of elements of a value that other operators read."""


@dataclass(frozen=True)
class Graph:
    """A function and its inputs. It returns all values that no operator reads, as a tuple."""

    function: ir.Function
    inputs: tuple[Any, ...]


def grown(choose: Callable[[int], int], entries: Sequence[Entry], takes: Callable[[ir.Call], bool]) -> Graph | None:
    """Generate a graph of the operators of `entries`, with calls that `takes` accepts. `choose(n)` returns a number below n.
    Returns None if no choice fits."""
    params: list[ir.Var] = []
    inputs: list[Any] = []
    values: list[ir.Expr] = []
    read: set[int] = set()

    def operand(value: Any, first: bool) -> ir.Expr:
        type_ = TensorType(value.shape, from_numpy(value.dtype))
        candidates = [expr for expr in values if expr.type == type_]
        source = choose(3)
        if candidates and source == 0:
            return candidates[choose(len(candidates))]
        if source == 1 and not first:
            return ir.constant(value)
        params.append(ir.var(f"x{len(params)}", type_))
        inputs.append(value)
        return params[-1]

    length = 2 + choose(STEPS - 1)
    for _ in range(ATTEMPTS):
        if len(values) == length:
            break
        data = values[choose(len(values))] if values and choose(4) else None
        candidate_entries = entries if data is None else [entry for entry in entries if _dtype(data) in entry.dtypes]
        if not candidate_entries:
            continue
        entry = candidate_entries[choose(len(candidate_entries))]
        element = _dtype(data) if data is not None else entry.dtypes[choose(len(entry.dtypes))]
        fixed_shapes = {} if data is None else {0: _shape(data)}
        with contextlib.suppress(Unfit, InlaidError):
            example = entry.example(Choices(choose, "plain", fixed_shapes=fixed_shapes, edges=False, binary=True), element)
            if example.types or not all(0 < value.size <= MAX_ELEMENTS for value in example.inputs):
                continue
            count = len(params)
            args = [operand(value, number == 0) for number, value in enumerate(example.inputs)]
            if data is not None and args and args[0].type == data.type:
                args[0] = data
            call = example.operator(*args, **example.attrs)
            fits = isinstance(call.type, TensorType) and call.type.is_static and 0 not in _shape(call)
            if not fits or not isinstance(call, ir.Call) or not takes(call):
                del params[count:], inputs[count:]
                continue
            read.update(map(id, args))
            values.append(call)
    results = [value for value in values if id(value) not in read]
    param_indices = [number for number, param in enumerate(params) if id(param) in read]
    if not results:
        return None
    return Graph(
        ir.function([params[number] for number in param_indices], ir.tuple_(results)),
        tuple(inputs[number] for number in param_indices),
    )


def _dtype(expr: ir.Expr) -> str:
    assert isinstance(expr.type, TensorType)
    return expr.type.dtype.name


def _shape(expr: ir.Expr) -> tuple[int, ...]:
    assert isinstance(expr.type, TensorType)
    return tuple(dim for dim in expr.type.shape if isinstance(dim, int))
