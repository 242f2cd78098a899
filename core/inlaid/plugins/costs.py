"""Cost constants of the shared schedule rules and rewrites for cores with vectors."""

from __future__ import annotations

from inlaid_runtime.records import dataclass


@dataclass(frozen=True)
class CostConstants:
    """Thresholds and costs at which the shared rules and rewrites choose between two forms of code that compute the same.

    Each default was fitted to one machine: a core with 2 FMA units, 1 MiB of L2 cache, and 16 vector registers of 256 bits or 32 of
    512 bits. Its docstring has the unit and the measurement, or what it expresses if none is recorded. "Static time" is
    the time of the same kernel compiled for constant sizes. A target whose processor differs declares others in `Core.costs`. Any
    positive value gives correct code.
    """

    # Matrix products.

    panel_share: float = 900 / 1024
    """Fraction of the L2 cache that a panel may fill to stay there between row tiles."""
    row_vectors: int = 8
    """Maximum vectors of columns in a tile of a single row: long contiguous reads, and additions in flight to hide their
    latency."""
    unpacked_row_vectors: int = 16
    """The same where the right operand is not packed, so that the rows of a panel lie apart: a cache line at the edge of two panels
    is read twice. The sums and two operands must fit in registers."""
    strip_registers: int = 32
    """Vector registers from which strips of whole rows are as fast as code for each number of rows (ADR 98)."""
    packed_rows: int = 64
    """Minimum rows of a product for which panels of a right operand that is not constant are copied. The copy costs about four
    cycles per vector of the panel."""
    packed_share: float = 1
    """Fraction of the L2 cache above which such an operand is copied: its distant rows would be evicted and fetched again. With 1
    MiB of L2, products of size 512 and 1024 run at 95 % and 49 % of peak without copies, at 90 % and 94 % with."""
    prefetch_tiles: int = 4
    """Row tiles over which the next panel is prefetched if the number of rows is symbolic. One tile is shorter than the memory
    latency (57 to 197 rows take 1.04 to 1.10 of the static time; with four tiles 1.01 to 1.04). With more tiles the panel is late
    for few rows."""
    prefetch_steps: int = 8
    """Steps of the inner dimension per prefetch. The address of a prefetch takes 15 instructions: one prefetch per step of a tile
    of 4 x 3 vectors in 16 registers takes 1.15 of the time of one per 8 steps (128 rows, 768 x 3072)."""
    prefetch_burst: int = 4
    """Maximum prefetches at once. With 8, Winograd convolutions of few tiles take 1.1 of the time (256 channels of 14 x 14
    pixels)."""
    small_rows: int = 8
    """If the number of rows is a single symbolic dimension, such as a batch, tiles are chosen for every row count up to this one.
    With remainder code for every row count of a tile of 8, 5 to 7 rows take 1.05 of the static time; in tiles of 4 they took
    1.2."""
    product_panels: int = 4
    """Minimum panels per thread to distribute columns over threads: the imbalance of one panel is then at most a quarter. Threads
    over rows would read all panels once per row tile: 1.7 times ONNX Runtime's time for size 1024 on 2 threads."""
    packing_instructions: float = 4
    """Instructions to pack one vector of data of an integer product over pixels. Such products replace merged groups if their
    predicted instructions are fewer. ShuffleNet in int8, with 256-bit vectors: 1.43 of float32 with merged groups, 0.88 as
    products."""
    widened_rows: int = 4
    """Minimum rows of data for which products of bytes are computed in int16. Fewer rows are bound by reading weights, which have
    twice the bytes in int16 (ADR 82)."""

    summed_products: int = 1024
    """Minimum number of multiplications for which a product of a matrix and few vectors is computed as sums along the matrix's
    rows: each sum is a kernel."""
    copied_channel: float = 1
    """Instructions per channel of a pixel to copy the data of a grouped convolution of integers to groups of more channels, or the
    result back. 3x3 windows, 8 groups of 29 channels, 14 x 14 pixels: 0.21 of the time of merged groups; 4 groups of 10: 0.67."""

    # Direct convolutions.

    read_share: float = 0.8
    """A convolution is computed in bands of positions if less than this fraction of its products read data instead of padding. 3x3
    windows over 28 x 28 pixels: 0.80 of the time with a dilation of 6 (a fraction of 0.73), 0.57 with 12 (0.51)."""
    shortest_band: int = 4
    """Minimum positions of such a band along an axis. Shorter ones do not fill tiles of pixels."""
    banded_products: int = 1 << 22
    """Minimum products of such a convolution: slices and the concatenation cost a few microseconds."""

    tile_vectors: int = 4
    """Maximum vectors of output channels per tile: with more, too few pixels reuse a weight."""
    spare_registers: int = 1
    """Registers that tiles of dot-product instructions leave free for the epilogue. A tile of 28 accumulators is as fast as one of
    30, and avoids spills."""
    streamed_share: float = 1 / 2
    """Fraction of the L1 cache above which weights are prefetched panel by panel. Smaller weights stay in the cache."""
    packed_run: int = 4
    """Minimum input channels of a run for which float32 weights are packed. Shorter runs are no faster than single channels."""
    unrolled_groups: int = 2
    """Maximum groups of input channels in a run that is unrolled inside the window loops: in a loop, LLVM spilled the
    accumulators."""
    conv_panels: int = 8
    """Minimum panels per thread for which an imbalance of one panel is negligible."""
    band_share: float = 1 / 2
    """Fraction of the L2 cache that the data of a band of rows may fill. The rest is left to weights and results."""
    band_reuse: float = 32
    """Products per fetched element of data above which fetches from beyond L2 cost nothing. Measured with 1 MiB of L2: with tiles
    of 16 output channels, 1x1 convolutions of 256 and 512 channels take 0.80 to 0.87 of the time in bands; with tiles of 32 output
    channels or 3x3 windows of stride 2 they take 1.00 to 1.03."""
    subsampled_outputs: int = 64
    """Minimum output channels per group of a strided 1x1 convolution whose pixels are copied first. The three of ResNet-50, with
    vectors of 256 bits and copies included, take 0.88 of the time in int8 (0.47 of 43 ms), 0.93 in float32."""

    # Convolutions over flattened images.

    deep: int = 512
    """Minimum length of a reduction that amortizes the divisions of short lines. 64 to 128 channels of 4 x 4 pixels with stride 2
    are as fast as ONNX Runtime with 512, and took 10.7 microseconds more with 1024."""
    flat_line: int = 8
    """Minimum pixels of a line, to which shorter lines are padded: padding to more is wasteful for small images."""
    deep_flat_line: int = 4
    """`flat_line` of reductions of length `deep` or more."""
    flat_pixels: int = 16
    """Maximum pixels per tile: a tile then spans at most two ends of lines of `flat_line` pixels. A tile of one vector and 8 pixels
    waits for its loads: grouped 3x3 convolutions take 1.15 of the static time with 8, 1.09 with 16."""
    wide_tile_pixels: int = 6
    """Maximum pixels of a tile of `tile_vectors` vectors over flat images of symbolic size. It computes less beyond the end of an
    image than a tile of 14 pixels and two vectors: with stride 2, an image of 4 x 4 pixels takes 0.6 of the time. It is as fast
    otherwise, if its weights leave room in the L2 cache: 128 channels of 28 x 28 pixels take 1.08 of the time."""
    wide_tile_share: float = 1 / 4
    """Fraction of the L2 cache that the weights of such a tile may fill."""
    whole_tile_depth: int = 512
    """Maximum reduction length for which tiles inside the image have a store loop without conditions. The conditions took a third
    of the time of short reductions: 3 to 64 channels with stride 2 take 1.17 of the static time instead of 1.55 (1.25 with vectors
    of 256 bits)."""

    # Choice of a convolution algorithm.

    required_ratio: float = 0.85
    """Maximum ratio of the predicted time of another algorithm to the direct one's to choose it. A smaller gain does not justify
    the prediction error, memory, and rounding errors of transforms."""
    exposed: float = 0.25
    """Fraction of the shorter of compute time and weight fetch time that does not overlap with the longer. Measured on 14 x 14 by
    256 and 7 x 7 by 512 channels, with weights in no cache."""
    unfold_cycles: float = 2
    """Cycles per vector to copy unfolded windows. With a stride, copies take one cycle per element."""
    flat_line_cycles: float = 4
    """Cycles per vector to copy a data channel to flat lines, or to store sums in such lines and read them again."""
    unaligned_load: float = 2
    """Loads of which an unaligned one takes the time: vectors of 512 bits cross a cache line each time. With 29 channels per group,
    whose tiles have one channel, convolutions run at half the speed of those with 4."""
    strided_factor: float = 2
    """Factor by which the shuffles that gather strided data slow down a convolution of channels that are computed one by one."""
    remainder_vectors: float = 3
    """Cost of the remainder pixels of a line, in vectors. Measured with lines of 28 and 56 pixels, 1 to 4 channels."""
    chain_rate: float = 1 / 6
    """Fraction of one lane's peak (two multiply-adds per cycle) for channels computed one by one: additions form a chain."""

    # Winograd convolutions.

    transform_in_cycles: float = 4
    """Cycles per vector of one tile element to transform data: arithmetic, loads and stores. Measured on 56 x 56 by 64 channels,
    without product."""
    transform_out_cycles: float = 3
    """Cycles per vector of one tile element to transform results, measured as `transform_in_cycles`."""
    symbolic_stripe: int = 36
    """Tiles per stripe if their number is symbolic and weights fill the L2 cache. With fewer tiles, weights are refetched too often
    (256 channels, 12 tiles: 1.25 times the time); twice as many tiles gain nothing. Weights that fit in L2 use stripes of two
    register tiles, which leaves more of L2 to the weights."""
    small_tile_rows: int = 6
    """Rows of register tiles if weights fit in L2 and the number of tiles is symbolic: remainders and intermediate data are smaller
    (64 channels: 3 to 9 % less time than 12 rows). Weights in L3 are read again per tile; 12 rows take 12 % less time."""
    transformed_tiles: int = 16
    """Maximum consecutive tiles of a channel block that one thread transforms."""

    # Recurrent layers.

    shortened_products: int = 1 << 21
    """Minimum multiply-adds of a recurrent layer that ends with its longest sequence. In a smaller one, finding the number of
    steps, and copies of the operand and the result, take longer than steps."""
    usual_steps: int = 32
    """Steps assumed for a recurrent layer whose number of steps is symbolic."""

    # Rows, windows and element-wise kernels.

    row_accumulators: int = 8
    """Independent vector accumulators of a long row: additions have a latency of 3 to 4 cycles, and two start per cycle."""
    rows_together: tuple[int, ...] = (4, 3, 2)
    """Candidate numbers of rows to process together. The first that divides the number of rows is used; the first of all if that
    number is symbolic. The per-row scalars of one row are then computed while the next row is read. Softmax of rows of 128 takes 42
    instead of 50 microseconds."""
    long_row: int = 2048
    """Minimum columns of rows that are processed one at a time. Several such rows of results would not stay in the L1 cache."""
    window_pixels: int = 8
    """Maximum pixels of a row that a window accumulates together, one vector each: half of 16 registers."""
    column_chunk: int = 256
    """Columns per chunk if columns are the only parallel loop of a reduction."""
    parallel_work: int = 1 << 15
    """Minimum iterations of a block, or reduced elements of a kernel, that runs on several threads. Less does not amortize the
    fork."""
    call_seconds: float = 2e-7
    """Fixed time of a kernel call in seconds. Source: `inlaid run --profile` of copies of a few hundred bytes."""
