"""Iteration over the first axis, for decompositions of recurrent operators."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from inlaid.graph.ir import Expr, constant, function, loop, tuple_, tuple_item, var
from inlaid.ops.compose import count, expand_dims, expr_type, join, reversed_axis, scalar, slice_axis, squeeze
from inlaid.ops.elementwise import sub
from inlaid_runtime.types import TensorType

UNROLLED = 16
"""Maximum number of steps that are unrolled."""

States = tuple[Expr, ...]
StepFunction = Callable[[Expr, States, States], tuple[Expr, States]]
"""A step function: (position: 0-d int64, slices at that position, states) -> (output, new states)."""


def item(x: Expr, index: int) -> Expr:
    """Return x[index] along the first axis."""
    return squeeze(slice_axis(x, 0, index, index + 1), 0)


def run_steps(
    step: StepFunction, scanned: Sequence[Expr], states: States, reverse: bool = False, unrolled: int = UNROLLED
) -> tuple[Expr, States]:
    """Run steps. Returns (outputs of all steps, stacked along a new first axis; the last states).

    Each of `scanned` is sliced along its first axis, one slice per step; `reverse` runs from the last slice to the first. The
    output at a position belongs to the slice at that position. A sequence of at most `unrolled` steps is unrolled, a longer one is
    a `Loop`.
    """
    steps = expr_type(scanned[0]).shape[0]
    if isinstance(steps, int) and 1 <= steps <= unrolled:
        outputs: list[Expr | None] = [None] * steps
        for number in reversed(range(steps)) if reverse else range(steps):
            output, states = step(scalar(number, "int64"), tuple(item(value, number) for value in scanned), states)
            outputs[number] = expand_dims(output, 0)
        return join([output for output in outputs if output is not None], 0), states

    iteration = var("step", TensorType((), "int64"))
    state_vars = tuple(var(f"state{index}", state.type) for index, state in enumerate(states))
    slices = tuple(
        var(f"slice{index}", TensorType(expr_type(value).shape[1:], expr_type(value).dtype)) for index, value in enumerate(scanned)
    )
    position = sub(count([steps - 1], "int64"), iteration) if reverse else iteration
    output, new_states = step(position, slices, state_vars)
    body = function((iteration, *state_vars, *slices), tuple_((constant(np.array(True)), *new_states, output)))
    result = loop(body, state=states, scanned=[reversed_axis(value, 0) if reverse else value for value in scanned])
    stacked = tuple_item(result, len(states))
    return reversed_axis(stacked, 0) if reverse else stacked, tuple(tuple_item(result, index) for index in range(len(states)))
