"""Bands of rows of a convolution: with all panels of weights inside a band, its data is fetched once and stays in the L2 cache."""

from __future__ import annotations

from inlaid.plugins.contract import Core
from inlaid.schedules.direct_conv import ConvTile, DirectConv, count_elements
from inlaid.schedules.shape import constant_extent
from inlaid_runtime import arith


def band_rows(conv: DirectConv, tile: ConvTile, core: Core, threads: int) -> int:
    """Return how many rows of tiles a band has, so that the fewest bytes are read from beyond the L2 cache; 0 for a single band.
    Only images of constant height have bands, which divide the rows of each thread evenly.

    One band reads all data again for each panel, if it does not stay in L2. Several bands read all weights again for each band, if
    they do not stay in L2. If data is used often enough after each fetch, computation hides the fetches, and a single band
    suffices.
    """
    if not conv.is_plane or not isinstance(conv.data.buffer.shape[-2], int):
        return 0
    anchor, limit = conv.anchor, core.costs.band_share * core.l2_bytes
    height, window = constant_extent(anchor.spatial[2]), constant_extent(anchor.reduced[1])
    step = arith.affine(conv.data.indices[2], anchor.spatial[2].var)
    rows, rest = divmod(height, tile.rows)
    stride = step[0].value if step is not None and isinstance(step[0], arith.Const) else 0
    if stride < 1 or rest or rows % max(threads, 1):
        return 0
    line = conv.data.dtype.bytes * conv.inputs * arith.size_hint(conv.data.buffer.shape[-1])
    halo = max(window - stride, 0)

    def data(count: int) -> float:
        """Return the bytes that `count` rows of tiles read."""
        return line * (min(window, stride) * count * tile.rows + halo)

    weights = conv.weights.dtype.bytes * count_elements(conv.weights.buffer)
    thread_rows = rows // max(threads, 1)
    band = max((count for count in range(1, thread_rows) if thread_rows % count == 0 and data(count) <= limit), default=0)
    width, products = constant_extent(anchor.spatial[3]), conv.inputs * conv.taps * tile.width
    if (
        data(thread_rows) <= limit
        or not band
        or thread_rows * tile.rows * width * products >= core.costs.band_reuse * data(thread_rows) / conv.data.dtype.bytes
    ):
        return 0
    bands = thread_rows // band
    weight_reads = bands if weights > core.l2_bytes - limit else 1
    return band if weight_reads * weights + bands * data(band) < weights + conv.outputs // tile.width * data(thread_rows) else 0
