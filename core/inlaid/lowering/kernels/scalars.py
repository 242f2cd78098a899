"""Choose the scalar constants that become parameters of a kernel instead of literals.

The layers of a quantized model often differ in scales and zero points only. With literals, every layer would have kernels of its
own, and the time to compile would grow with the number of layers. A parameter costs no more than a literal if its operator reads
one vector of equal elements either way; a divisor of integers, an exponent, or an index is worth more as a literal.
"""

from __future__ import annotations

from collections.abc import Iterable

from inlaid import ops
from inlaid.graph import ir as graph
from inlaid.graph.keys import structural_key
from inlaid.lowering.kernels.bodies import is_scalar, whole_body

MANY = 3
"""Number of kernels, equal except for scalars, from which one kernel with parameters replaces them."""

READERS = (ops.quantize, ops.dequantize, ops.requantize, ops.add, ops.sub, ops.mul, ops.minimum, ops.maximum)
"""Operators that read a parameter as fast as a literal."""


def varying_scalars(calls: Iterable[graph.Call]) -> dict[int, frozenset[int]]:
    """Return, by id of a call, the positions of the scalar constants among its arguments that its kernel takes as parameters."""
    groups: dict[object, list[tuple[graph.Call, dict[int, bytes]]]] = {}
    for call in calls:
        scalars = [(place, arg.data) for place, arg in enumerate(call.args) if is_scalar(arg)]
        if scalars:
            params, body = whole_body(call)
            inner = [expr for expr in graph.post_order(body) if isinstance(expr, graph.Call) and expr.callee not in READERS]
            other = {id(arg) for expr in inner for arg in expr.args}
            fit = {place: data.tobytes() for place, data in scalars if data.dtype.kind in "fiu" and id(params[place]) not in other}
            key = structural_key(graph.function(params, body)), tuple(place for place, _ in scalars), tuple(fit)
            groups.setdefault(key, []).append((call, fit))
    found: dict[int, frozenset[int]] = {}
    for members in groups.values():
        if len({tuple(values.values()) for _, values in members}) >= MANY:
            first = members[0][1]
            varying = frozenset(place for place in first if any(values[place] != first[place] for _, values in members))
            found.update((id(call), varying) for call, _ in members)
    return found
