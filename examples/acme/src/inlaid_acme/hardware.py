"""Facts about the hardware, and how it stores tensors. The runtime imports this module, so it imports no compiler package."""

import math

from inlaid.plugins import Border
from inlaid_runtime.types import Layout

LANES = 16
"""Channels that the units compute at once."""
SCRATCH = 32 << 10
"""Bytes of on-chip memory."""
ALIGNMENT = 64
"""Alignment of a buffer in on-chip memory, in bytes."""
ACCUMULATOR_BITS = 24
FORMAT, FORMAT_VERSION = "acme-program", 1


def blocks(channels):
    """Return the number of blocks of LANES channels."""
    return -(-channels // LANES)


def form(type_):
    """Return how a tensor is stored: int8 images N C H W as N 1 H W C/16 16, int8 matrices N C as N C/16 16, others row-major."""
    if type_.dtype.name != "int8" or type_.rank not in (2, 4):
        return Border()
    all_channels = ((1, blocks(type_.shape[1]) * LANES),) if type_.rank == 4 else ()
    return Border(Layout((*all_channels, (1, LANES))))


def image(shape):
    """View a matrix N C, or an image N C H W, as an image: (N, rows, columns, blocks of channels). The rows of a matrix are rows of
    one image."""
    batch, channels, *space = shape
    return (batch, *space, blocks(channels)) if space else (1, batch, 1, blocks(channels))


def stored_bytes(shape):
    """Return the size in bytes of an image from `image`."""
    return math.prod(shape) * LANES
