"""A uniform description of requantization, independent of the operators that compute it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from inlaid.graph.ir import Call, Constant, Expr
from inlaid.ops.elementwise import shift_right
from inlaid.ops.fixed_point import FRACTION, fixed_points, multiply_fixed
from inlaid.ops.quantized import requantize
from inlaid.plugins.contract import HALF_EVEN, ONCE
from inlaid_runtime.records import dataclass

Array = np.ndarray[Any, Any]
Parts = Mapping[str, Expr]
"""Named parts of a match: `captures` of a `Match`, `parts` of a `Step`."""


@dataclass(frozen=True)
class Factor:
    """Exact real factors `multipliers` * 2^(`shifts` - 31): int32, 1-d, one per output channel or one for all. `rounding` defines
    how x times a factor is rounded:

    "half_even"
        float32(x) * factor in float32, rounded half to even, as in ONNX.
    "up", "away"
        floor((x * 2^max(shift, 0) * multiplier + 2^30) / 2^31), at most 2^31 - 1; then, for a negative shift, a right shift by
        -shift, rounded half up or half away from 0, as in TensorFlow Lite.
    "once"
        floor((x * multiplier + 2^(30 - shift)) / 2^(31 - shift)): rounded once, half up. A rounding right shift is the special case
        with a multiplier of 2^30.
    "once_away"
        the same, but rounded half away from 0: a negative product gets 2^(30 - shift) - 1.

    x * 2^max(shift, 0) wraps in int32. The results of "once" and "once_away" wrap too; their shifts are -31 to 30.
    """

    multipliers: Array
    shifts: Array
    rounding: str

    @property
    def scale(self) -> Array:
        """The factors as float64, which is exact."""
        return np.ldexp(self.multipliers.astype(np.float64), self.shifts.astype(np.int64) - FRACTION)

    @property
    def per_channel(self) -> bool:
        """Whether the factors differ between channels."""
        return len(np.unique(self.scale)) > 1


def factor(call: Expr | None) -> Factor | None:
    """Return the factors of a `requantize`, `multiply_fixed` or `shift_right`; None if they are not constant, and for other
    calls."""
    if not isinstance(call, Call) or not all(isinstance(arg, Constant) for arg in call.args[1:]):
        return None
    values = [arg.data.reshape(-1) for arg in call.args[1:] if isinstance(arg, Constant)]
    if call.callee is requantize:
        scale = values[0].astype(np.float64)
        return Factor(*fixed_points(scale.tolist()), HALF_EVEN) if np.isfinite(scale).all() else None
    if call.callee is multiply_fixed:
        multipliers, shifts = np.broadcast_arrays(*values)
        return Factor(multipliers.copy(), shifts.copy(), call.attrs.rounding)
    if call.callee is shift_right:
        shifts = (1 - values[0].astype(np.int64)).astype(np.int32)
        return Factor(np.full(shifts.shape, 1 << (FRACTION - 1), np.int32), shifts, ONCE)
    return None
