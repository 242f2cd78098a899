"""Storage layouts of the accelerator."""

import math

import numpy as np

from inlaid.plugins import Border
from inlaid.types import Layout

FORMAT, VERSION = "lanes-program", 1
LANES = 16
CHIP, ON_CHIP = "lanes.chip", 256 << 10


def whole(channels):
    """Round channels up to full lanes."""
    return -(-channels // LANES) * LANES


def form(type_):
    """Choose the layout: N C H W as N 1 H W C/16 16, a matrix N C as N C/16 16, row-major for anything else."""
    if type_.dtype.name != "int8" or type_.rank not in (2, 4):
        return Border()
    cut = ((1, whole(type_.shape[1])),) if type_.rank == 4 else ()
    return Border(Layout((*cut, (1, LANES))))


def stored_bytes(type_):
    """Return the bytes of a stored int8 tensor."""
    return math.prod(form(type_).layout.shape(type_.shape))


def pack_weights(taps, depthwise=False):
    """Zero-pad weights H W I O to full lanes of inputs and outputs; depthwise weights are H W 1 O."""
    inputs, outputs = (whole(extent) - extent for extent in taps.shape[2:])
    return np.pad(taps, ((0, 0), (0, 0), (0, 0 if depthwise else inputs), (0, outputs)))
