"""End recurrent layers after the last step of the longest sequence."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from inlaid.graph.ir import Call, Expr, Function, call, constant, tuple_, tuple_item
from inlaid.graph.pattern import Match, wildcard
from inlaid.graph.rewrite import RewriteRule, rewrite_expr
from inlaid.ops.compose import cast_to, expr_type, join, scalar, slice_axis
from inlaid.ops.elementwise import less
from inlaid.ops.recurrent import RecurrentAttrs, gru, lstm, rnn
from inlaid.ops.reduce import reduce_max
from inlaid.ops.select import nonzero
from inlaid.ops.shape import after, iota, pad
from inlaid.plugins import CostConstants
from inlaid_runtime.arith import Dim, SizeVar
from inlaid_runtime.types import TupleType


def shorten_sequences(function: Function, accepts: Callable[[Call], bool], costs: CostConstants) -> Function:
    """Cut off the steps of recurrent layers after the end of the longest sequence, in which outputs are 0 and states do not change.
    `accepts` tests whether the layer's target computes the number of elements that `nonzero` returns. `costs` tell which layers are
    too small. Returns the same object if nothing changes."""

    def is_long_layer(expr: Expr) -> bool:
        return (
            isinstance(expr, Call)
            and expr.callee in (gru, lstm, rnn)
            and isinstance(expr.attrs, RecurrentAttrs)
            and expr.attrs.masked
            and not _is_computed(expr_type(expr.args[0]).shape[0])
            and _work(expr, costs.usual_steps) >= costs.shortened_products
            and accepts(_active_steps(expr))
        )

    shortened = rewrite_expr(function, [RewriteRule("shorten_sequences", wildcard().where(is_long_layer), _shortened)])
    assert isinstance(shortened, Function)
    return shortened


def _is_computed(size: Dim) -> bool:
    """Test whether the run computes a size, as that of a layer which has been shortened."""
    return isinstance(size, SizeVar) and size.existential


def _work(layer: Call, usual_steps: int) -> int:
    """Return the number of multiply-adds of a layer. A symbolic number of steps counts as `usual_steps`, a symbolic batch as 1
    sequence, other symbolic sizes as 0."""
    (steps, batch, inputs), (directions, rows, _), (*_, hidden) = (expr_type(arg).shape for arg in layer.args[:3])
    sizes = (directions, rows, inputs, hidden)
    directions, rows, inputs, hidden = (size if isinstance(size, int) else 0 for size in sizes)
    steps = steps if isinstance(steps, int) else usual_steps
    return math.prod((steps, batch if isinstance(batch, int) else 1, directions, rows, inputs + hidden))


def _active_steps(layer: Call) -> Call:
    """Build the steps in which a sequence has not ended, as a matrix of one row."""
    lengths = join([cast_to(layer.args[-1], "int64"), constant(np.zeros(1, np.int64))], 0)
    longest = reduce_max(lengths, axes=(0,), keepdims=True)
    steps = nonzero(less(iota(shape=expr_type(layer.args[0]).shape[:1]), longest))
    assert isinstance(steps, Call)
    return steps


def _shortened(match: Match) -> Expr:
    layer = match.root
    assert isinstance(layer, Call) and isinstance(layer.type, TupleType)
    x, *rest = layer.args
    active = _active_steps(layer)
    total, steps = expr_type(x).shape[0], expr_type(active).shape[1]
    short = call(layer.callee, (slice_axis(after(x, active), 0, 0, steps), *rest), layer.attrs)
    outputs, *states = (tuple_item(short, index) for index in range(len(layer.type.fields)))
    type_ = expr_type(outputs)
    pads = (*(0,) * type_.rank, total - steps, *(0,) * (type_.rank - 1))
    return tuple_([pad(outputs, scalar(0, type_.dtype), pads=pads), *states])
