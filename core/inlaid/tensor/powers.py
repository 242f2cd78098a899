"""Powers of floats as C's `pow`, for the references of operators and the interpreter."""

from __future__ import annotations

from typing import Any

import numpy as np


def power(base: Any, exponent: Any) -> Any:
    """Raise arrays or numpy scalars of floats to powers. numpy computes a power of one half as a square root, which differs for
    -inf and -0.0."""
    root_differs = (exponent == 0.5) & ((base == 0) | (base == -np.inf))
    return np.where(root_differs, np.abs(base), np.power(base, exponent))[()]
