"""Combinations of operand types that tensor cores support."""

from __future__ import annotations

from dataclasses import dataclass

LANES_AXIS = "threadIdx.x"
"""Thread axis of the threads that execute an instruction collectively. They are a warp or a warpgroup."""


@dataclass(frozen=True)
class Product:
    """A product of two operand types. `shape`, `types`: PTX's names of the instruction for operands with 32 bytes per row. `host`:
    C++ code that decodes an element of each operand."""

    left: str
    right: str
    total: str
    shape: str
    types: str
    host: str

    @property
    def name(self) -> str:
        """Name of the intrinsic."""
        return f"cuda.product.{self.left}.{self.right}"


_BYTES = {"int8": "s8", "uint8": "u8"}


def _halves(element: str, types: str) -> Product:
    """Return the product of a 16-bit float type. The host widens its elements to float32."""
    return Product(element, element, "float32", "m16n8k16", types, ", ".join([f"uint16_t, inlaid_from_{element}"] * 2 + ["float"]))


def _integers(a: str, b: str) -> Product:
    return Product(
        a, b, "int32", "m16n8k32", f"s32.{_BYTES[a]}.{_BYTES[b]}.s32", f"{a}_t, inlaid_cast, {b}_t, inlaid_cast, int32_t"
    )


PRODUCTS = (
    _halves("float16", "f32.f16.f16.f32"),
    _halves("bfloat16", "f32.bf16.bf16.f32"),
    Product("float32", "float32", "float32", "m16n8k8", "f32.tf32.tf32.f32", "float, inlaid_cast, float, inlaid_cast, float"),
    *(_integers(a, b) for a in _BYTES for b in _BYTES),
)
