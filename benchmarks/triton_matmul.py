"""Matrix product in Triton: one output tile per program, accumulated over tiles of the reduction axis, with programs grouped so
that concurrent ones share operands in the L2 cache (Tillet et al., "Triton", MAPL 2019). gpu.py imports it if Triton is installed.
"""

# No `from __future__ import annotations`: Triton reads the annotation `tl.constexpr` as a value.

from typing import Any

import torch
import triton
import triton.language as tl

_TILES = (
    # rows, columns, depth, stages, warps
    (128, 256, 64, 3, 8),
    (256, 128, 64, 3, 8),
    (128, 128, 64, 4, 8),
    (128, 256, 32, 3, 8),
    (128, 128, 32, 4, 4),
    (64, 256, 32, 4, 4),
    (128, 64, 32, 4, 4),
    (64, 128, 32, 4, 4),
    (64, 64, 32, 5, 4),
)
_CONFIGS = [
    triton.Config({"ROWS": rows, "COLUMNS": columns, "DEPTH": depth, "GROUP": 8}, num_stages=stages, num_warps=warps)
    for rows, columns, depth, stages, warps in _TILES
]


@triton.autotune(configs=_CONFIGS, key=["m", "n", "k", "tf32"])
@triton.jit
def _product(  # type: ignore[no-untyped-def]
    a,
    b,
    c,
    m,
    n,
    k,
    tf32: tl.constexpr,
    ROWS: tl.constexpr,  # noqa: N803
    COLUMNS: tl.constexpr,  # noqa: N803
    DEPTH: tl.constexpr,  # noqa: N803
    GROUP: tl.constexpr,  # noqa: N803
):
    program = tl.program_id(0)
    down, across = tl.cdiv(m, ROWS), tl.cdiv(n, COLUMNS)
    first = program // (GROUP * across) * GROUP
    height = min(down - first, GROUP)
    row = first + program % (GROUP * across) % height
    column = program % (GROUP * across) // height
    rows = row * ROWS + tl.arange(0, ROWS)
    columns = column * COLUMNS + tl.arange(0, COLUMNS)
    depth = tl.arange(0, DEPTH)
    left = a + (rows % m)[:, None] * k + depth[None, :]
    right = b + depth[:, None] * n + (columns % n)[None, :]
    total = tl.zeros((ROWS, COLUMNS), dtype=tl.float32)
    for step in range(tl.cdiv(k, DEPTH)):
        inside = depth < k - step * DEPTH
        x = tl.load(left, mask=inside[None, :], other=0.0)
        y = tl.load(right, mask=inside[:, None], other=0.0)
        total = tl.dot(x, y, total, input_precision="tf32" if tf32 else "ieee")
        left += DEPTH
        right += DEPTH * n
    store_mask = (rows < m)[:, None] & (columns < n)[None, :]
    tl.store(c + rows[:, None] * n + columns[None, :], total.to(c.dtype.element_ty), mask=store_mask)


def matmul(a: Any, b: Any, tf32: bool) -> Any:
    """The product of two row-major matrices of one type on a CUDA device. `tf32`: float32 operands are rounded to tf32."""
    (m, k), n = a.shape, b.shape[1]
    c = torch.empty((m, n), device=a.device, dtype=a.dtype)

    def grid(chosen: Any) -> tuple[int]:
        return (triton.cdiv(m, chosen["ROWS"]) * triton.cdiv(n, chosen["COLUMNS"]),)

    _product[grid](a, b, c, m, n, k, tf32)
    return c
