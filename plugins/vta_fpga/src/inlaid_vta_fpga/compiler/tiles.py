"""Choice of a layer's tile sizes by an analytical cycle model. No candidate runs on hardware or in a simulator.

Rates are those of VTA's pipelined RTL (apache/tvm-vta): a GEMM micro-op, a reset or an ALU operation with an immediate takes one
cycle, the DRAM port moves one bus word per cycle, and each instruction has start-up and drain cycles. Loads overlap with compute:
the time of a tile is the maximum of both. A layer starts with the loads of its first step and ends with its last store.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from math import prod, sqrt

from inlaid_runtime.errors import Unsupported
from inlaid_vta_fpga.compiler.legalize import AluStage, BiasStage, Layer, ProductStage
from inlaid_vta_fpga.compiler.schedule import TileSizes
from inlaid_vta_fpga.isa.config import UOP_BYTES, Config, Memory

START = 8
"""Start-up and drain cycles of a GEMM or ALU instruction, in addition to one cycle per micro-op."""
TRANSFER = 16
"""Fixed cycles of a LOAD or STORE, for DRAM latency and handshake."""
ROW = 1
"""Fixed cycles per row of a LOAD."""
STORED = 3
"""Cycles of a STORE per element."""


@dataclass(frozen=True)
class Extents:
    """Inputs of the cycle model. shape: shape of the result (n, channel blocks, rows, columns). inputs, height, width: shape of the
    data in blocks of channels. kernel, strides: window of the main product. biases, further, alus, stores: numbers of bias blocks,
    other products, ALU operations and stores."""

    shape: tuple[int, int, int, int]
    inputs: int
    height: int
    width: int
    kernel: tuple[int, int]
    strides: tuple[int, int]
    elementwise: bool
    biases: int
    further: int
    alus: int
    stores: int


def choose_tile(layer: Layer, data: tuple[int, ...], config: Config, threads: int) -> TileSizes:
    """Return the tile sizes with the fewest predicted cycles. data: DRAM shape of the main product's data. Raises `Unsupported` if
    no tile fits the buffers."""
    return _best(_extents(layer, data), config, threads)[1]


def _extents(layer: Layer, data: tuple[int, ...]) -> Extents:
    products = [stage for stage in layer.stages if isinstance(stage, ProductStage)]
    main = max(products, key=lambda stage: stage.weights.size)
    _, inputs, rows, columns = (int(size) for size in main.weights.shape[:4])
    height, width = (1, data[0]) if layer.matrix else (data[2], data[3])
    alus = sum(isinstance(stage, AluStage) for stage in layer.stages)
    biases = sum(stage.blocks.shape[1] for stage in layer.stages if isinstance(stage, BiasStage))
    return Extents(
        layer.shape, inputs, height, width, (rows, columns), main.strides, main.elementwise,
        biases, len(products) - 1, alus + (3 if layer.wide else 0), 4 if layer.wide else 1,
    )  # fmt: skip


@lru_cache(64)  # a key has sizes of a model, so that the number of keys has no bound
def _best(extents: Extents, config: Config, threads: int) -> tuple[float, TileSizes]:
    best: tuple[float, TileSizes] | None = None
    _, channels, rows, columns = extents.shape
    inputs = [1] if extents.elementwise else _divisors(extents.inputs)
    for c, i, j, steps in product(_divisors(channels), _divisors(rows), _divisors(columns), inputs):
        axis = next((n for n, tiles in enumerate((channels // c, rows // i, columns // j), 1) if tiles % threads == 0), 0)
        # With one thread, stores overlap with the next tile. Chunks help only threads, whose tiles end together.
        for chunks in () if not axis else _divisors(c) if threads > 1 else (1,):
            tile = TileSizes(c, i, j, steps, chunks, axis, threads)
            cost = _cycles(extents, tile, config)
            if cost is not None and (best is None or cost < best[0]):
                best = cost, tile
    if best is None and threads > 1:
        return _best(extents, config, 1)
    if best is None:
        raise Unsupported(f"expected a tile that fits the buffers, found none for {extents}", remedy="raise log_*_buff options")
    return best


def _divisors(extent: int) -> list[int]:
    return [size for size in range(1, extent + 1) if extent % size == 0]


def _cycles(e: Extents, tile: TileSizes, config: Config) -> float | None:
    """Predict the cycles of a layer; None if its double-buffered tiles do not fit."""
    beats = {memory: config.element_bytes(memory) / config.bus_bytes for memory in (Memory.INP, Memory.WGT)}
    accumulators = tile.channels * tile.rows * tile.columns
    row_stride = 1 if e.kernel[0] == 1 else e.strides[0]
    data_rows, data_columns = (tile.rows - 1) * row_stride + e.kernel[0], (tile.columns - 1) * e.strides[1] + e.kernel[1]
    depth = tile.channels if e.elementwise else e.inputs // tile.steps
    window = depth * data_rows * data_columns
    weights = 1 if e.elementwise else tile.channels * depth * prod(e.kernel)
    side = accumulators * e.further
    biases = tile.channels * e.biases
    if 2 * accumulators > config.depth(Memory.ACC) or 2 * (window + side) + 1 > config.depth(Memory.INP):
        return None
    if 2 * (weights + biases + e.further) > config.depth(Memory.WGT):
        return None
    rows = window // data_columns if data_columns < e.width else depth
    load = window * beats[Memory.INP] + weights * beats[Memory.WGT] + rows * ROW + 2 * TRANSFER
    gemm = accumulators * (1 if e.elementwise else depth * prod(e.kernel)) + START
    once = biases * beats[Memory.WGT] + side * beats[Memory.INP] + TRANSFER * (2 + tile.chunks * e.further)
    after = accumulators * (1 + e.biases + e.further + e.alus) + START * (1 + e.biases + e.further + e.alus) * tile.chunks
    store = e.stores * accumulators * STORED + tile.chunks * e.stores * TRANSFER
    tiles = prod(e.shape) / accumulators
    # `compiler.drain` splits the end of the stream into chunks that balance stores and start-up cycles.
    tail = 2 * sqrt(STORED * accumulators / tile.chunks * START * max(1, e.alus))
    # Loads run two steps ahead during the prologue and epilogue of a tile.
    slack = max(0, load - gemm)
    steady = max(tile.steps * gemm + after + max(0, tile.steps - 2) * slack, tile.steps * load + once, store)
    fill = max(0, load + once - tile.threads * accumulators * (1 + e.biases))
    # The loop registers hold the two longest loops; micro-ops for the other loops are loaded before the first product.
    loops = sorted((tile.channels, tile.rows, tile.columns, *e.kernel, 1 if e.elementwise else depth))
    fill += prod(loops[:-2]) * tile.threads * UOP_BYTES / config.bus_bytes
    # With several threads and one chunk, the next reset waits for the store of the whole tile.
    steady += store if tile.chunks == 1 and tile.threads > 1 else 0
    return fill + tiles * steady + tail
