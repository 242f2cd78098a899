"""LLVM types and typed values."""

from __future__ import annotations

import functools
import struct

from inlaid_runtime.errors import Unsupported
from inlaid_runtime.types import DType

_SCALAR = {
    "float16": "half",
    "bfloat16": "bfloat",
    "float32": "float",
    "float64": "double",
    "bool": "i1",
    **{f"{sign}int{bits}": f"i{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)},
}
NATIVE = frozenset(_SCALAR) - {"float16", "bfloat16"}
"""Names of the element types that the printer supports. Other types are legalized to these before printing."""
CONVERTED = {"float16": "f16c"}
"""Element types that the printer can convert from and to float32, with the required processor feature."""
FLUSHED = {"bfloat16": "avx512bf16"}
"""Element types to which an instruction converts float32 with denormals as zeros (VCVTNEPS2BF16), with the required processor
feature."""


class Value:
    """An SSA value or constant: its text, scalar LLVM type and number of lanes (0: a scalar). `type` is its LLVM type, and `str` of
    it the type and the text. Immutable."""  # not a dataclass: a kernel has thousands, and frozen ones are slow to make

    __slots__ = ("_typed", "lanes", "ref", "scalar", "type")

    def __init__(self, ref: str, scalar: str, lanes: int = 0) -> None:
        self.ref = ref
        self.scalar = scalar
        self.lanes = lanes
        self.type = kind = vector_type(scalar, lanes)
        self._typed = f"{kind} {ref}"

    def __str__(self) -> str:
        return self._typed


def scalar_type(dtype: DType) -> str:
    """Return the LLVM type of a value of an element type. Raises `Unsupported` for an element type that must be legalized first."""
    llvm_type = _SCALAR.get(dtype.name)
    if llvm_type is None:
        raise Unsupported(f"expected an element type that LLVM code supports, found {dtype}", remedy="legalize the program first")
    return llvm_type


def memory_type(dtype: DType) -> str:
    """Return the LLVM type of an element in memory; bool takes a byte."""
    return "i8" if dtype.kind == "bool" else scalar_type(dtype)


def scalar_bits(scalar: str) -> int:
    """Return the bits of a scalar LLVM type."""
    return {"float": 32, "double": 64, "bfloat": 16, "half": 16}.get(scalar) or int(scalar[1:])


@functools.cache
def vector_type(scalar: str, lanes: int) -> str:
    """Return `<lanes x scalar>`, or the scalar type if lanes is 0."""
    return f"<{lanes} x {scalar}>" if lanes else scalar


def literal(value: float | int | bool, dtype: DType) -> str:
    """Format a constant in LLVM syntax. Floats are formatted as the bits of a double, which is exact."""
    if dtype.kind == "bool":
        return "true" if value else "false"
    if not dtype.is_float:
        return str(int(value))
    number = float(value)
    if dtype.name == "float32":
        number = struct.unpack("f", struct.pack("f", number))[0] if abs(number) <= 3.4028235677973366e38 else _overflow(number)
    return f"0x{struct.unpack('<Q', struct.pack('<d', number))[0]:016X}"


def _overflow(number: float) -> float:
    """Round a double outside the range of float32 to infinity; NaN is unchanged."""
    return number if number != number else float("inf") if number > 0 else -float("inf")


def splat(value: str, scalar: str, lanes: int) -> str:
    """Return a constant vector with equal lanes."""
    return f"splat ({scalar} {value})" if lanes else value
