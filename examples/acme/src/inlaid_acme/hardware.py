"""Facts about the hardware, and the sizes of what it stores. Both halves import this module, so it imports no compiler package."""

import math

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


def image(shape):
    """View a matrix N C, or an image N C H W, as an image: (N, rows, columns, blocks of channels). The rows of a matrix are rows of
    one image."""
    batch, channels, *space = shape
    return (batch, *space, blocks(channels)) if space else (1, batch, 1, blocks(channels))


def stored_bytes(shape):
    """Return the size in bytes of an image from `image`."""
    return math.prod(shape) * LANES
