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
from inlaid.lowering.kernels.bodies import call_body, is_scalar

MIN_KERNELS = 3
"""Number of kernels, equal except for scalars, from which one kernel with parameters replaces them."""

READERS = (ops.quantize, ops.dequantize, ops.requantize, ops.add, ops.sub, ops.mul, ops.minimum, ops.maximum)
"""Operators that read a parameter as fast as a literal."""


def varying_scalars(calls: Iterable[graph.Call]) -> dict[int, frozenset[int]]:
    """Return, by id of a call, the positions of the scalar constants among its arguments that its kernel takes as parameters."""
    groups: dict[object, list[tuple[graph.Call, dict[int, bytes]]]] = {}
    for call in calls:
        scalars = [(index, arg.data) for index, arg in enumerate(call.args) if is_scalar(arg)]
        if scalars:
            params, body = call_body(call)
            inner = [expr for expr in graph.post_order(body) if isinstance(expr, graph.Call) and expr.callee not in READERS]
            literal_params = {id(arg) for expr in inner for arg in expr.args}
            candidates = {
                index: data.tobytes()
                for index, data in scalars
                if data.dtype.kind in "fiu" and id(params[index]) not in literal_params
            }
            key = structural_key(graph.function(params, body)), tuple(index for index, _ in scalars), tuple(candidates)
            groups.setdefault(key, []).append((call, candidates))
    positions: dict[int, frozenset[int]] = {}
    for members in groups.values():
        if len({tuple(values.values()) for _, values in members}) >= MIN_KERNELS:
            first = members[0][1]
            varying_positions = frozenset(index for index in first if any(values[index] != first[index] for _, values in members))
            positions.update((id(call), varying_positions) for call, _ in members)
    return positions
