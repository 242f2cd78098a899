"""How integer sums become stored integers: one description of requantisation, whichever operators say it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from inlaid.graph.ir import Call, Constant, Expr
from inlaid.ops.elementwise import shift_right
from inlaid.ops.fixed_point import FRACTION, fixed_points, multiply_fixed
from inlaid.ops.quantised import requantize
from inlaid.plugins.contract import HALF_EVEN, ONCE

Array = np.ndarray[Any, Any]
Parts = Mapping[str, Expr]
"""What the named parts of a pattern matched: `captures` of a `Match`, `parts` of a `Step`."""


@dataclass(frozen=True)
class Factor:
    """Real factors, `multipliers` * 2^(`shifts` - 31), exactly: int32, 1-d, one for each output channel or one for all. How x times
    a factor becomes an integer is its `rounding`:

    "half_even"
        float32(x) times the factor in float32, to nearest, halves to even, as in ONNX.
    "up", "away"
        floor((x * 2^max(shift, 0) * multiplier + 2^30) / 2^31), at most 2^31 - 1; then a shift to the right by -shift, if that is
        positive, to nearest, halves up or away from 0, as in TensorFlow Lite.
    "once"
        floor((x * multiplier + 2^(30 - shift)) / 2^(31 - shift)): rounded once, halves up. Shifts to the right that round are that,
        with multipliers of 2^30.

    x * 2^max(shift, 0) wraps in int32, and so does the result of "once", whose shifts are -31 to 30.
    """

    multipliers: Array
    shifts: Array
    rounding: str

    @property
    def scale(self) -> Array:
        """The factors as float64, exactly."""
        return np.ldexp(self.multipliers.astype(np.float64), self.shifts.astype(np.int64) - FRACTION)

    @property
    def per_channel(self) -> bool:
        """Whether the factors differ."""
        return len(np.unique(self.scale)) > 1


def factor(call: Expr | None) -> Factor | None:
    """The factors of a `requantize`, a `multiply_fixed` or a `shift_right`; None where they are no constants, and for others."""
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
