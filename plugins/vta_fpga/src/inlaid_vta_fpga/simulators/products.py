"""Execution of GEMM instructions by few BLAS matrix products.

Micro-ops of an instruction are grouped. Accumulators that sum over the same sequence of weight blocks become rows of one product;
the sequence is its reduction axis. Sums are exact in float32: |int8 * int8| <= 2^14, and the reduction has at most 2^10 lanes, so
no partial sum exceeds 2^24 in any order.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from inlaid_vta_fpga.simulators.loops import Indices, expand

DEPTH = 1 << 10
"""Maximum lanes of an exact float32 sum of int8 products."""
CALL = 1 << 18
"""Maximum multiply-accumulates of one BLAS call. For larger calls, OpenBLAS starts threads, which is slower for products with 16
columns."""
PLANS = 1 << 22
"""Capacity of the plan cache in micro-ops."""


@dataclass(frozen=True)
class Product:
    """Products of `groups`: acc[dst[g, d]] += sum over r of inp[src[g, d, r]] @ wgt[g, r]. dst has no repeats.

    Shapes: dst [groups, rows], src [groups, calls, rows of a call, depth], wgt [groups, depth]. The last call is padded with
    copies of a row.
    """

    dst: Indices
    src: Indices
    wgt: Indices


@dataclass(frozen=True)
class Plan:
    """Products that together execute a list of micro-ops.

    touched: distinct indices of dst, src and wgt. repeats_closely: an index of dst repeats at distance 1 or 2. size: number of
    micro-ops.
    """

    products: list[Product]
    touched: tuple[Indices, ...]
    repeats_closely: bool
    size: int

    @staticmethod
    def build(dst: Indices, src: Indices, wgt: Indices, block: int, batch: int) -> Plan:
        """Create the plan of micro-ops, which are given in execution order."""
        order = np.lexsort((wgt, dst))
        starts = np.flatnonzero(np.diff(dst[order], prepend=dst.min() - 1))
        counts = np.diff(starts, append=len(order))
        products = []
        for count in np.unique(counts):
            rows = order[starts[counts == count][:, None] + np.arange(count)]
            for first in range(0, int(count), DEPTH // block):
                part = rows[:, first : first + DEPTH // block]
                products += _products(dst[part[:, 0]], src[part], wgt[part], batch * block * block)
        repeats_closely = bool((dst[1:] == dst[:-1]).any() or (dst[2:] == dst[:-2]).any())
        return Plan(products, (np.unique(dst), np.unique(src), np.unique(wgt)), repeats_closely, len(dst))


def _products(dst: Indices, src: Indices, wgt: Indices, macs: int) -> list[Product]:
    """Group rows by weight blocks, and batch groups of equal size. macs: multiply-accumulates of a micro-op."""
    blocks, member = np.unique(wgt, axis=0, return_inverse=True)
    member = member.reshape(-1)
    sizes = np.bincount(member)
    order = np.argsort(member, kind="stable")
    starts = np.cumsum(sizes) - sizes
    rows = max(1, CALL // (macs * wgt.shape[1]))
    products = []
    for size in np.unique(sizes):
        groups = np.flatnonzero(sizes == size)
        members = order[starts[groups][:, None] + np.arange(size)]
        filled = np.arange(-(-size // min(rows, size)) * min(rows, size))
        padded = members[:, np.minimum(filled, size - 1)].reshape(len(groups), -1, min(rows, size))
        products.append(Product(dst[members], src[padded], blocks[groups]))
    return products


class Plans:
    """LRU cache of plans, keyed by micro-ops and loops. Indices in plans are relative, so tiles share plans."""

    def __init__(self, block: int, batch: int) -> None:
        self._block, self._batch = block, batch
        self._plans: OrderedDict[tuple[object, ...], Plan] = OrderedDict()
        self._size = 0

    def get(self, columns: tuple[Indices, Indices, Indices], factors: tuple[tuple[int, int], ...], loops: tuple[int, int]) -> Plan:
        """Return the plan for micro-op columns (dst, src, wgt) and two loops (outer, inner)."""
        key = (factors, loops, *(column.tobytes() for column in columns))
        plan = self._plans.pop(key, None)
        if plan is None:
            dst, src, wgt = (expand(column, factor, *loops) for column, factor in zip(columns, factors, strict=True))
            plan = Plan.build(dst, src, wgt, self._block, self._batch)
            self._size += plan.size
        self._plans[key] = plan
        while self._size > PLANS and len(self._plans) > 1:
            self._size -= self._plans.popitem(last=False)[1].size
        return plan


def accumulate(
    product: Product,
    base: tuple[int, int, int],
    acc: npt.NDArray[np.int32],
    inp: npt.NDArray[np.float32],
    wgt: npt.NDArray[np.float32],
) -> None:
    """Execute a product in place on acc. base: offsets of dst, src and wgt. Shapes: acc and inp [depth, batch, block], wgt
    [depth, in, out]; inp and wgt hold int8 values. Sums wrap at 32 bits."""
    batch, block = acc.shape[1:]
    groups, calls, rows, depth = product.src.shape
    left = inp.take(product.src + base[1], axis=0)
    if batch > 1:
        left = left.swapaxes(-3, -2)
    left = left.reshape(groups, calls, rows * batch, depth * block)
    right = wgt.take(product.wgt + base[2], axis=0).reshape(groups, 1, depth * block, block)
    sums = np.matmul(left, right).astype(np.int32).reshape(groups, calls * rows, batch, block)
    acc[product.dst + base[0]] += sums[:, : product.dst.shape[1]]
