"""Layouts: the order of a tensor's elements in its buffer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from inlaid_runtime import arith
from inlaid_runtime.arith import Dim
from inlaid_runtime.records import dataclass

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True)
class Layout:
    """A blocked row-major order. Each pair (axis, factor) of `blocks` splits an axis into blocks of `factor` elements.

    The buffer has one dimension per axis, then one per block, in the order of `blocks`. With blocks ((1, 16),), a tensor N C H W is
    stored as N C/16 H W 16. A repeated axis splits its previous block again; the factor must divide that block. With blocks ((0,
    64), (1, 16), (0, 4)), a matrix K N is stored as K/64 N/16 16 16 4. If the extent of an axis is not a multiple of the axis's
    first factor, the axis is padded: with zeros by `pack` and by copies, with what `Border` says by regions, and with arbitrary
    values by kernels inside a region, which never use padding in a result. Empty `blocks` mean row-major order.
    """

    blocks: tuple[tuple[int, int], ...] = ()

    def shape(self, shape: tuple[Dim, ...]) -> tuple[Dim, ...]:
        """Return the shape of the buffer for a tensor of shape `shape`."""
        outer = list(shape)
        inner: list[Dim] = []
        last_block: dict[int, int] = {}
        for axis, factor in self.blocks:
            if axis in last_block:
                block = inner[last_block[axis]]
                assert isinstance(block, int) and block % factor == 0, f"factor {factor} must divide the previous block {block}"
                inner[last_block[axis]] = block // factor
            else:
                outer[axis] = arith.unwrap(arith.ceildiv(outer[axis], factor))
            last_block[axis] = len(inner)
            inner.append(factor)
        return (*outer, *inner)

    def indices(self, indices: tuple[arith.Expr, ...]) -> tuple[arith.Expr, ...]:
        """Map indices into the tensor to indices into the buffer."""
        buffer_indices = list(indices)
        last_block: dict[int, int] = {}
        for axis, factor in self.blocks:
            dimension = last_block.get(axis, axis)
            index = buffer_indices[dimension]
            buffer_indices[dimension] = arith.floordiv(index, factor)
            last_block[axis] = len(buffer_indices)
            buffer_indices.append(arith.floormod(index, factor))
        return tuple(buffer_indices)

    def pads(self, shape: tuple[Dim, ...]) -> bool:
        """Test whether the buffer has, or may have, padding elements for a tensor of this shape."""
        blocked_axes: set[int] = set()
        for axis, factor in self.blocks:
            extent = shape[axis]
            if axis not in blocked_axes and (not isinstance(extent, int) or extent % factor):
                return True
            blocked_axes.add(axis)
        return False

    def canonical(self, shape: tuple[Dim, ...]) -> Layout:
        """Return an equivalent layout: row-major order if it stores the same bytes for this shape, else the layout itself."""
        if not self.blocks or self.pads(shape):
            return self
        order = self.order(shape)
        if order is not None and order == sorted(order):
            return ROW_MAJOR
        outer = list(self.shape(shape))[: len(shape)]
        # A single block changes nothing if all dimensions between that of its axis and that of the block are 1.
        if len({axis for axis, _ in self.blocks}) == len(self.blocks) == 1:
            axis = self.blocks[0][0]
            return ROW_MAJOR if all(dim == 1 for dim in outer[axis + 1 :]) else self
        return self

    def order(self, shape: tuple[Dim, ...]) -> list[int] | None:
        """Return the axes of extent other than 1, slowest first. None if a block splits an axis, or a dimension is symbolic."""
        axes = [axis for axis, _ in self.blocks]
        if len(set(axes)) != len(axes) or any(shape[axis] != factor for axis, factor in self.blocks):
            return None
        if not all(isinstance(dim, int) for dim in shape):
            return None
        return [axis for axis in (*(a for a in range(len(shape)) if a not in axes), *axes) if shape[axis] != 1]

    def part(self, shape: tuple[Dim, ...], axis: int, start: int, extent: int) -> int | None:
        """Return the offset, in elements, of the slice `start : start + extent` of an axis. None if the slice is not contiguous in
        the buffer, the slice is not itself stored in this layout, or a dimension is symbolic."""
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
        """Return the first block of the slice `start : start + extent` of an axis, as an index along the axis's dimension in the
        buffer. None if the slice does not consist of whole blocks (except the last block), or the axis is symbolic."""
        factors = [factor for blocked, factor in self.blocks if blocked == axis]
        unit = factors[0] if factors else 1
        size = shape[axis]
        if len(factors) > 1 or not isinstance(size, int) or start % unit or (extent % unit and start + extent != size):
            return None
        return start // unit

    def pack(self, array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Copy an array into this layout, as a contiguous array of the buffer's shape. If the layout has no blocks and the array is
        contiguous, return the array itself."""
        import numpy as np

        from inlaid_runtime.copying import contiguous

        last_block: dict[int, int] = {}
        for axis, factor in self.blocks:
            dimension = last_block.get(axis, axis)
            padding = -array.shape[dimension] % factor
            if padding:
                array = np.pad(array, [(0, padding if other == dimension else 0) for other in range(array.ndim)])
            outer = array.shape[dimension] // factor
            array = array.reshape(*array.shape[:dimension], outer, factor, *array.shape[dimension + 1 :])
            array = np.moveaxis(array, dimension + 1, -1)
            last_block[axis] = array.ndim - 1
        return contiguous(array)


ROW_MAJOR = Layout()
