"""Products of two element types that tensor cores sum."""

from __future__ import annotations

from dataclasses import dataclass

LANES_AXIS = "threadIdx.x"
"""The threads that an instruction is collective over: a warp, or a warpgroup."""


@dataclass(frozen=True)
class Product:
    """Products of two types: `shape` and `types` as PTX has them for factors of 32 bytes a row; `host` decodes an element of each
    factor."""

    left: str
    right: str
    total: str
    shape: str
    types: str
    host: str

    @property
    def name(self) -> str:
        """The name of the intrinsic."""
        return f"cuda.product.{self.left}.{self.right}"


_BYTES = {"int8": "s8", "uint8": "u8"}


def _halves(of: str, types: str) -> Product:
    """The products of a narrow float type, which the host widens."""
    return Product(of, of, "float32", "m16n8k16", types, ", ".join([f"uint16_t, inlaid_from_{of}"] * 2 + ["float"]))


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
