"""Windows cut out of images."""

from __future__ import annotations

import numpy as np
import pytest

from inlaid.ops.unfold import unfold

from .harness import check, raises_for


@pytest.mark.parametrize(
    ("shape", "attrs"),
    [
        ((2, 3, 7), {"kernel": (3,)}),
        ((1, 2, 6, 5), {"kernel": (3, 2), "pads": (1, 0, 2, 1)}),
        ((1, 2, 9, 8), {"kernel": (2, 3), "strides": (2, 3), "dilations": (3, 1), "pads": (1, 1, 1, 1)}),
        ((1, 1, 4, 4, 4), {"kernel": (2, 2, 2), "pads": (1, 0, 0, 0, 0, 1)}),
    ],
)
def test_unfold(shape: tuple[int, ...], attrs: dict[str, tuple[int, ...]]) -> None:
    (windows,) = check(unfold, np.arange(1, 1 + np.prod(shape), dtype=np.float32).reshape(shape), **attrs)
    assert windows.shape[: 2 + len(attrs["kernel"])] == (*shape[:2], *attrs["kernel"])


def test_what_windows_see() -> None:
    (windows,) = check(unfold, np.float32([[[1, 2, 3]]]), kernel=(2,), pads=(1, 0))
    np.testing.assert_array_equal(windows, [[[[0, 1, 2], [1, 2, 3]]]])


def test_unfold_refuses() -> None:
    raises_for(unfold, "x must have rank 4 for the kernel", np.zeros((1, 2, 3), np.float32), kernel=(2, 2))
    raises_for(unfold, "must be >= 1, got 0", np.zeros((1, 2, 3), np.float32), kernel=(4,))
