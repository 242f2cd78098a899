"""How tensors are stored, the shapes of a layer, and its division into tiles, for rules and the code generator."""

from dataclasses import dataclass, replace

from inlaid.ops.composites import Window, decode_average_pool, window
from inlaid.plugins import Border
from inlaid_acme.hardware import ALIGNMENT, LANES, SCRATCH, blocks, image, stored_bytes
from inlaid_runtime.types import Layout

POINT = Window((1, 1), (1, 1), (1, 1), (0, 0), (0, 0), 0)
"""The window of element-wise layers and matrix products."""


def form(type_):
    """Return how a tensor is stored: int8 images N C H W as N 1 H W C/16 16, int8 matrices N C as N C/16 16, others row-major."""
    if type_.dtype.name != "int8" or type_.rank not in (2, 4):
        return Border()
    channel_split = ((1, blocks(type_.shape[1]) * LANES),) if type_.rank == 4 else ()
    return Border(Layout((*channel_split, (1, LANES))))


@dataclass(frozen=True)
class Tile:
    """A part of a layer's result: full rows of one image, and adjacent blocks of channels.

    `sizes` are bytes of on-chip memory: of each data operand, of the weights, and of the result.
    """

    rows: int
    blocks: int
    sizes: tuple[int, ...]

    @property
    def scratch(self):
        """Bytes of on-chip memory: data has two buffers, since the next tile is loaded during the computation. Each buffer is
        aligned."""
        *data, weights, result = (-(-size // ALIGNMENT) * ALIGNMENT for size in self.sizes)
        return 2 * sum(data) + weights + result


@dataclass(frozen=True)
class Layer:
    """Shapes of a layer: data operands and result as images (N, rows, columns, blocks), and the window.

    `dense` layers sum over all channels; others compute each channel by itself. `weights` is the size in bytes of the weights of
    one block of the result.
    """

    data: tuple[tuple[int, ...], ...]
    result: tuple[int, ...]
    window: Window
    dense: bool
    weights: int

    def tile(self):
        """Return the tile that fits into on-chip memory with the least traffic to main memory; None if none fits."""
        _, height, _, block_count = self.result
        tiles = [self._tile(rows, width) for rows in _halves(height) for width in _halves(block_count)]
        return min((tile for tile in tiles if tile.scratch <= SCRATCH), key=self._traffic, default=None)

    def _tile(self, rows, width):
        _, _, columns, _ = self.result
        (kernel, _), (stride, _), (dilation, _) = self.window.kernel, self.window.strides, self.window.dilations
        read = (rows - 1) * stride + (kernel - 1) * dilation + 1
        data = [stored_bytes((min(read, each[1]), each[2], each[3] if self.dense else width)) for each in self.data]
        return Tile(rows, width, (*data, self.weights * width, stored_bytes((rows, columns, width))))

    def _traffic(self, tile):
        batch, height, _, block_count = self.result
        groups = -(-block_count // tile.blocks)
        *data, weights, _ = tile.sizes
        return batch * groups * (-(-height // tile.rows) * sum(data) + weights)


def make_layer(name, parts):
    """Return the shapes of a layer from the name of its rule and the parts of its pattern, where "y" is the result."""
    result, data = parts["y"].type.shape, [parts[part].type.shape for part in "abx" if part in parts]
    geometry, dense, weights = POINT, name == "matmul", 0
    if name == "mean":
        geometry = replace(POINT, kernel=data[0][2:])
    elif name == "average_pool":
        geometry = decode_average_pool(parts).window
    elif name in ("conv", "max_pool"):
        geometry = window(parts)
    if name == "conv":
        dense = parts["conv"].attrs.groups == 1
    if name in ("conv", "matmul"):
        taps = geometry.kernel[0] * geometry.kernel[1]
        weights = taps * LANES * (blocks(data[0][1]) * LANES if dense else 1)
    images = (image(result),) if name == "flatten" else tuple(map(image, data))
    return Layer(images, image(result), geometry, dense, weights)


def _halves(number):
    """Return a number and its halves, rounded up, down to 1."""
    numbers = [number]
    while numbers[-1] > 1:
        numbers.append(-(-numbers[-1] // 2))
    return numbers
