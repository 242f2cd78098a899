"""The generated rows: products of named axes, thinned by a hash of the row's name.

Whether a row stays depends on its name alone, so a further value of an axis leaves the other rows as they are. A name states the
value of each axis. Combinations that are no model, or that ONNX Runtime cannot run, are `impossible`, with the reason.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence

from variants.row import Row, Sibling

Point = Mapping[str, str]
"""A value of each axis, by the axis' name."""
Axes = Mapping[str, Sequence[str]]

STATIC, SYMBOLIC = "static", "symbolic"
SHAPES = (STATIC, SYMBOLIC)
BATCHES = ("batch 1", "batch 8")

SYMBOLIC_LIMIT, HALF_LIMIT = 1.15, 1.2
"""Greatest ratios of times: symbolic by static, float16 by float32."""


def points(axes: Axes) -> Iterator[dict[str, str]]:
    """Yield the product of axes."""
    for values in itertools.product(*axes.values()):
        yield dict(zip(axes, values, strict=True))


def name_of(point: Point) -> str:
    """Join the values of a point."""
    return ", ".join(point.values())


def batch_of(point: Point) -> int:
    """Return the batch of a point as a number."""
    return int(point["batch"].removeprefix("batch "))


def share_of(name: str) -> float:
    """Return a number in [0, 1) that depends on the name alone, and not on the process."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:6], "big") / 2**48


def stays(name: str, one_of: int) -> bool:
    """Test whether the hash of a row's name keeps it: one row of `one_of`."""
    return share_of(name) * one_of < 1


def chosen_sibling(name: str, siblings: Sequence[Sibling]) -> Sibling | None:
    """Choose one of the siblings by the row's name."""
    return siblings[int(share_of(f"sibling of {name}") * len(siblings))] if siblings else None


def siblings(point: Point, is_possible: Callable[[Point], bool]) -> list[Sibling]:
    """List the siblings of a point by its axes `shape` and `type`."""
    changes = []
    if point["shape"] == SYMBOLIC:
        changes.append(({**point, "shape": STATIC}, "symbolic by static", SYMBOLIC_LIMIT))
    if point["type"] == "float16":
        changes.append(({**point, "type": "float32"}, "float16 by float32", HALF_LIMIT))
    return [Sibling(name_of(changed), rule, limit) for changed, rule, limit in changes if is_possible(changed)]


def generated(axes: Axes, is_possible: Callable[[Point], bool], make: Callable[[Point], Row]) -> Iterator[Row]:
    """Yield the rows of all possible points."""
    return (make(point) for point in points(axes) if is_possible(point))
