"""How the elements of a tensor lie in a buffer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from inlaid import arith
from inlaid.arith import Dim


@dataclass(frozen=True)
class Layout:
    """Blocked row-major order: each pair (axis, factor) of `blocks` cuts an axis into blocks of `factor` elements.

    The buffer has one dimension per axis, then one per block, in the order of `blocks`: with blocks ((1, 16),) a tensor N C H W
    lies as N C/16 H W 16. An axis that comes again has its last block cut, into parts of a factor that divides it: with blocks
    ((0, 64), (1, 16), (0, 4)) a matrix K N lies as K/64 N/16 16 16 4. An axis whose extent is no multiple of its first factor is
    padded: with zeros by `pack` and by copies, with anything by kernels, none of which lets it reach an element. No blocks:
    row-major order.
    """

    blocks: tuple[tuple[int, int], ...] = ()

    def shape(self, shape: tuple[Dim, ...]) -> tuple[Dim, ...]:
        """The shape of the buffer for a tensor's shape."""
        outer = list(shape)
        inner: list[Dim] = []
        last: dict[int, int] = {}
        for axis, factor in self.blocks:
            if axis in last:
                cut = inner[last[axis]]
                assert isinstance(cut, int) and cut % factor == 0, f"blocks of {cut} have no parts of {factor}"
                inner[last[axis]] = cut // factor
            else:
                outer[axis] = arith.unwrap(arith.ceildiv(outer[axis], factor))
            last[axis] = len(inner)
            inner.append(factor)
        return (*outer, *inner)

    def indices(self, indices: tuple[arith.Expr, ...]) -> tuple[arith.Expr, ...]:
        """The indices into the buffer for a tensor's."""
        found = list(indices)
        last: dict[int, int] = {}
        for axis, factor in self.blocks:
            place = last.get(axis, axis)
            index = found[place]
            found[place] = arith.floordiv(index, factor)
            last[axis] = len(found)
            found.append(arith.floormod(index, factor))
        return tuple(found)

    def pads(self, shape: tuple[Dim, ...]) -> bool:
        """Whether the buffer holds elements that the tensor does not have, or may."""
        seen: set[int] = set()
        for axis, factor in self.blocks:
            extent = shape[axis]
            if axis not in seen and (not isinstance(extent, int) or extent % factor):
                return True
            seen.add(axis)
        return False

    def canonical(self, shape: tuple[Dim, ...]) -> Layout:
        """A layout in which a tensor of a shape lies in the same bytes: row-major order where that is one."""
        if not self.blocks or self.pads(shape):
            return self
        order = self.order(shape)
        if order is not None and order == sorted(order):
            return ROW_MAJOR
        outer = list(self.shape(shape))[: len(shape)]
        # Blocks change nothing where, from the blocked axis on, all that stands between the blocks and their elements is 1.
        if len({axis for axis, _ in self.blocks}) == len(self.blocks) == 1:
            axis = self.blocks[0][0]
            return ROW_MAJOR if all(dim == 1 for dim in outer[axis + 1 :]) else self
        return self

    def order(self, shape: tuple[Dim, ...]) -> list[int] | None:
        """The axes of more than one index, slowest first, of a tensor whose axes are not cut; None where one is, or is symbolic."""
        axes = [axis for axis, _ in self.blocks]
        if len(set(axes)) != len(axes) or any(shape[axis] != factor for axis, factor in self.blocks):
            return None
        if not all(isinstance(dim, int) for dim in shape):
            return None
        return [axis for axis in (*(a for a in range(len(shape)) if a not in axes), *axes) if shape[axis] != 1]

    def part(self, shape: tuple[Dim, ...], axis: int, start: int, extent: int) -> int | None:
        """Where the part of a tensor that holds indices from `start` on of an axis begins in the buffer, in elements, if that part
        is one run of memory and lies as a tensor of its own would; otherwise, and where dimensions are symbolic, None."""
        count = self.first_block(shape, axis, start, extent)
        dims = self.shape(shape)
        if count is None or any(dim != 1 for dim in dims[:axis]):
            return None
        for dim in dims[axis + 1 :]:
            if not isinstance(dim, int):
                return None
            count *= dim
        return count

    def first_block(self, shape: tuple[Dim, ...], axis: int, start: int, extent: int) -> int | None:
        """The index along a dimension of the buffer from which on the part of a tensor lies that holds indices from `start` on of
        that axis; None where the part does not fill whole blocks, apart from the last one, or the axis is symbolic."""
        factors = [factor for blocked, factor in self.blocks if blocked == axis]
        unit = factors[0] if factors else 1
        size = shape[axis]
        if len(factors) > 1 or not isinstance(size, int) or start % unit or (extent % unit and start + extent != size):
            return None
        return start // unit

    def pack(self, array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """An array laid out so: a new contiguous array of the buffer's shape (the array itself when there are no blocks)."""
        rank = array.ndim
        last: dict[int, int] = {}
        for axis, factor in self.blocks:
            place = last.get(axis, axis)
            padding = -array.shape[place] % factor
            if padding:
                array = np.pad(array, [(0, padding if other == place else 0) for other in range(array.ndim)])
            outer = array.shape[place] // factor
            array = array.reshape(*array.shape[:place], outer, factor, *array.shape[place + 1 :])
            array = np.moveaxis(array, place + 1, -1)
            last[axis] = array.ndim - 1
        assert array.ndim == rank + len(self.blocks)
        return np.ascontiguousarray(array)


ROW_MAJOR = Layout()
