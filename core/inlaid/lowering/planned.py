"""The buffers of a region while its calls are emitted: which lie in which is not settled yet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from inlaid.arith import Dim
from inlaid.tensor.region import Predicate
from inlaid.types import ROW_MAJOR, DType, Layout

Storage = Literal["input", "output", "constant", "arena"]


@dataclass
class Planned:
    """A buffer before it has its place. `shape` is the tensor's, `layout` says how it lies; `copies` the numbers of copies of
    it in other layouts. It may lie in the buffer `view_of`, from byte `start` on; `part` tells that it is not all of that. It is
    written where the `predicates` hold."""

    name: str
    storage: Storage
    shape: tuple[Dim, ...]
    dtype: DType
    index: int = 0
    view_of: int | None = None
    start: int = 0
    part: bool = False
    layout: Layout = ROW_MAJOR
    copies: dict[Layout, int] = field(default_factory=dict)
    predicates: tuple[Predicate, ...] = ()


@dataclass(frozen=True)
class Emitted:
    """A buffer that calls read or write. It lies in the buffer number `root`, itself where it is in no other, from byte `start`."""

    name: str
    storage: Storage
    shape: tuple[Dim, ...]
    dtype: DType
    index: int
    layout: Layout
    root: int
    start: int


class Buffers:
    """Buffers by number. `predicates` are those under which what is added now is written."""

    def __init__(self) -> None:
        self._items: list[Planned] = []
        self.predicates: tuple[Predicate, ...] = ()

    def __getitem__(self, number: int) -> Planned:
        return self._items[number]

    @property
    def all(self) -> Sequence[Planned]:
        """Every buffer, in the order of their numbers."""
        return self._items

    def add(self, buffer: Planned) -> int:
        """The number of a buffer that is new."""
        buffer.predicates = self.predicates
        self._items.append(buffer)
        return len(self._items) - 1

    def alias(self, base: int, shape: tuple[Dim, ...], layout: Layout, start: int = 0, part: bool = False) -> int:
        """A buffer that lies in another, from a byte on."""
        buffer = self._items[base]
        return self.add(
            Planned(f"{buffer.name}_view", buffer.storage, shape, buffer.dtype, view_of=base, start=start, part=part, layout=layout)
        )

    def owner(self, number: int) -> tuple[int, int, bool]:
        """The buffer in which a buffer lies in the end, from which byte on, and whether it is only a part of that."""
        path = []
        while (root := self._items[number].view_of) is not None:
            path.append(number)
            number = root
        start, part = 0, False
        for item in reversed(path):
            # Ways are shortened as they are walked, so that long chains of concatenations are walked once.
            buffer = self._items[item]
            start, part = start + buffer.start, part or buffer.part
            buffer.view_of, buffer.start, buffer.part = number, start, part
        return number, start, part

    def written(self, number: int) -> bool:
        """Whether a buffer is written wherever the current predicates hold."""
        under = self._items[number].predicates
        return self.predicates[: len(under)] == under

    def movable(self, number: int) -> bool:
        """Whether a buffer can still be put into another: a kernel's own result, which is part of nothing else, of the same arm."""
        buffer = self._items[number]
        return buffer.storage == "arena" and buffer.view_of is None and buffer.predicates == self.predicates

    def settled(self) -> tuple[Emitted, ...]:
        """The buffers as they lie in one another. What lies in another is stored as that is."""
        found = []
        for number, buffer in enumerate(self._items):
            root, start, _ = self.owner(number)
            storage, index = self._items[root].storage, self._items[root].index
            found.append(Emitted(buffer.name, storage, buffer.shape, buffer.dtype, index, buffer.layout, root, start))
        return tuple(found)
