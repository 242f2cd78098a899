"""Operators that gpu.py times: their definitions in Inlaid and PyTorch, operands, operation and byte counts."""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import ml_dtypes
import numpy as np

import inlaid
from inlaid import ops
from inlaid.graph.ir import Expr, Function

Array = np.ndarray[Any, Any]
Shape = tuple[int, ...]

DTYPES: Mapping[str, Any] = {"f32": np.float32, "tf32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16}
"""Element type of operands by precision. `tf32` rounds float32 operands to tf32."""
SIZES = (1024, 2048, 4096, 8192)
HEADS, DEPTH = 12, 64
"""Attention heads and head size of BERT-base and GPT-2."""
ELEMENTS = 1 << 26
"""Elements of memory-bound operands: more than a GPU's caches hold."""
WIDTHS = (1024, 4096)
TINY = 32
"""Divisor of sizes for the smoke test."""


@dataclass(frozen=True)
class Case:
    """An operator. `build` takes variables and returns the expression; `torch` takes PyTorch's module and tensors. `operations`:
    multiplications and additions; `moved`: bytes of operands and results."""

    group: str
    name: str
    precision: str
    shapes: tuple[Shape, ...]
    build: Callable[..., Expr]
    torch: Callable[..., Any]
    operations: int
    moved: int

    @property
    def dtype(self) -> np.dtype[Any]:
        """Element type of the operands."""
        numpy_dtype: np.dtype[Any] = np.dtype(DTYPES[self.precision])
        return numpy_dtype

    def function(self) -> Function:
        """The operator as a model."""
        variables = [inlaid.var(f"x{n}", inlaid.TensorType(shape, self.dtype.name)) for n, shape in enumerate(self.shapes)]
        return inlaid.function(variables, self.build(*variables))

    def operands(self) -> list[Array]:
        """Seeded operands in [-1, 1)."""
        generator = np.random.default_rng(zlib.crc32(self.name.encode()))
        return [(generator.random(shape, np.float32) * 2 - 1).astype(self.dtype) for shape in self.shapes]


def cases(group: str, tiny: bool = False) -> list[Case]:
    """Operators of a group. `tiny`: sizes small enough for the emulated device."""
    return {"gemm": _gemm, "attention": _attention, "memory": _memory}[group](TINY if tiny else 1)


def _gemm(divisor: int) -> list[Case]:
    return [
        Case(
            "gemm",
            f"{size} x {size} x {size}",
            precision,
            ((size, size), (size, size)),
            ops.matmul,
            lambda torch, a, b: a @ b,
            2 * size**3,
            3 * size**2 * np.dtype(DTYPES[precision]).itemsize,
        )
        for precision in ("f16", "bf16", "tf32", "f32")
        for size in (size // divisor for size in (SIZES if divisor == 1 else SIZES[:2]))
    ]


def _attention(divisor: int) -> list[Case]:
    attention_cases = []
    for precision in ("f16", "f32"):
        for model, batch, length, causal in (
            ("BERT-base", 1, 128, False),
            ("BERT-base", 16, 512, False),
            ("GPT-2", 1, 1024, True),
            ("GPT-2", 8, 1024, True),
        ):
            length //= divisor
            batch = min(batch, 2) if divisor > 1 else batch
            shape = (batch, HEADS, length, DEPTH)
            words = math.prod(shape)
            attention_cases.append(
                Case(
                    "attention",
                    f"{model}, batch {batch}, {length} positions{', causal' if causal else ''}",
                    precision,
                    (shape,) * 3,
                    partial(ops.attention, scale=DEPTH**-0.5, right=0 if causal else -1),
                    partial(_attend, causal),
                    4 * words * length // (2 if causal else 1),
                    4 * words * np.dtype(DTYPES[precision]).itemsize,
                )
            )
    return attention_cases


def _attend(causal: bool, torch: Any, q: Any, k: Any, v: Any) -> Any:
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)


def _memory(divisor: int) -> list[Case]:
    memory_cases: list[Case] = []

    def add(name: str, shapes: tuple[Shape, ...], result: Shape, build: Callable[..., Expr], torch: Callable[..., Any]) -> None:
        for precision in ("f32", "f16"):
            moved = sum(map(math.prod, (*shapes, result))) * np.dtype(DTYPES[precision]).itemsize
            memory_cases.append(Case("memory", name, precision, shapes, build, torch, 0, moved))

    elements = ELEMENTS // divisor**3
    for width in (width // divisor for width in WIDTHS):
        shape = (elements // width, width)
        text = f"{shape[0]} x {width}"
        rows: Shape = (width,)
        add(f"softmax, {text}", (shape,), shape, partial(ops.softmax, axis=1), lambda torch, x: torch.softmax(x, 1))
        add(
            f"layer norm, {text}",
            (shape, rows, rows),
            shape,
            partial(ops.layer_norm, axis=1),
            lambda torch, x, scale, bias: torch.nn.functional.layer_norm(x, x.shape[1:], scale, bias),
        )
        add(f"sum of rows, {text}", (shape,), (shape[0],), partial(ops.reduce_sum, axes=(1,)), lambda torch, x: x.sum(1))
        add(f"sum of columns, {text}", (shape,), (width,), partial(ops.reduce_sum, axes=(0,)), lambda torch, x: x.sum(0))
        add(
            f"transpose, {text}",
            (shape,),
            shape[::-1],
            partial(ops.transpose, perm=(1, 0)),
            lambda torch, x: x.t().contiguous(),
        )
    flat = (elements,)
    add(f"relu, {elements}", (flat,), flat, ops.relu, lambda torch, x: torch.relu(x))
    add(f"add, {elements}", (flat, flat), flat, ops.add, lambda torch, x, y: x + y)
    add(f"gelu, {elements}", (flat,), flat, ops.gelu, lambda torch, x: torch.nn.functional.gelu(x))
    return memory_cases
