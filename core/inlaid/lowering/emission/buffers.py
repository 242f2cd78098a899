"""The buffers of a region during emission, when buffers may still become views of other buffers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from inlaid.tensor.region import Predicate
from inlaid_runtime.arith import Dim
from inlaid_runtime.records import dataclass, field
from inlaid_runtime.types import ROW_MAJOR, DType, Layout

Storage = Literal["input", "output", "constant", "arena"]


@dataclass
class Planned:
    """A buffer before placement, of the tensor's `shape`. `copies` maps layouts to the numbers of the buffer's copies. If
    `base_buffer` is set, this buffer is a view of that one from byte `start` on; `part`: the view does not cover all of it. The
    buffer is written only if the `predicates` hold."""

    name: str
    storage: Storage
    shape: tuple[Dim, ...]
    dtype: DType
    index: int = 0
    base_buffer: int | None = None
    start: int = 0
    part: bool = False
    layout: Layout = ROW_MAJOR
    copies: dict[Layout, int] = field(default_factory=dict)
    predicates: tuple[Predicate, ...] = ()


@dataclass(frozen=True)
class Emitted:
    """A buffer that calls read or write. It starts at byte `start` of the buffer number `root`. A buffer that is not a view is its
    own root."""

    name: str
    storage: Storage
    shape: tuple[Dim, ...]
    dtype: DType
    index: int
    layout: Layout
    root: int
    start: int


class Buffers:
    """Buffers by number. New buffers are written under the current `predicates`."""

    def __init__(self) -> None:
        self._items: list[Planned] = []
        self.predicates: tuple[Predicate, ...] = ()

    def __getitem__(self, number: int) -> Planned:
        return self._items[number]

    @property
    def planned(self) -> Sequence[Planned]:
        """All buffers by number."""
        return self._items

    def add(self, buffer: Planned) -> int:
        """Add a buffer; returns its number."""
        buffer.predicates = self.predicates
        self._items.append(buffer)
        return len(self._items) - 1

    def alias(self, base: int, shape: tuple[Dim, ...], layout: Layout, start: int = 0, part: bool = False) -> int:
        """Add a view of a buffer, from byte `start` on."""
        buffer = self._items[base]
        return self.add(
            Planned(
                f"{buffer.name}_view", buffer.storage, shape, buffer.dtype, base_buffer=base, start=start, part=part, layout=layout
            )
        )

    def owner(self, number: int) -> tuple[int, int, bool]:
        """Resolve views: returns (root buffer, byte offset in it, whether the buffer covers only a part of it)."""
        path = []
        while (root := self._items[number].base_buffer) is not None:
            path.append(number)
            number = root
        start, part = 0, False
        for item in reversed(path):
            # Path compression: long chains of concatenations are walked once.
            buffer = self._items[item]
            start, part = start + buffer.start, part or buffer.part
            buffer.base_buffer, buffer.start, buffer.part = number, start, part
        return number, start, part

    def written(self, number: int) -> bool:
        """Test whether a buffer is written wherever the current predicates hold."""
        writer_predicates = self._items[number].predicates
        return self.predicates[: len(writer_predicates)] == writer_predicates

    def movable(self, number: int) -> bool:
        """Test whether a buffer can become a view: it is a kernel result in the arena, not a view, written in the current arm."""
        buffer = self._items[number]
        return buffer.storage == "arena" and buffer.base_buffer is None and buffer.predicates == self.predicates

    def settled(self) -> tuple[Emitted, ...]:
        """Resolve all views. A view has the storage of its root."""
        buffers = []
        for number, buffer in enumerate(self._items):
            root, start, _ = self.owner(number)
            storage, index = self._items[root].storage, self._items[root].index
            buffers.append(Emitted(buffer.name, storage, buffer.shape, buffer.dtype, index, buffer.layout, root, start))
        return tuple(buffers)
