"""Element types, including sub-byte and float8 types.

A sub-byte element occupies one byte of storage, as in `ml_dtypes`. Packing several elements into a byte is left to file formats.
"""

from __future__ import annotations

from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, Literal

from inlaid_runtime.errors import ParseError
from inlaid_runtime.records import dataclass

if TYPE_CHECKING:
    import numpy as np

Kind = Literal["float", "int", "uint", "bool", "string"]


@dataclass(frozen=True, eq=False)
class DType:
    """An element type: `name`, `kind`, value width in `bits`, and storage size in `bytes`. Each name has exactly one object."""

    name: str
    kind: Kind
    bits: int
    bytes: int

    def __repr__(self) -> str:
        return self.name

    def __reduce__(self) -> tuple[Any, ...]:
        return dtype, (self.name,)

    @property
    def is_float(self) -> bool:
        return self.kind == "float"

    @property
    def is_int(self) -> bool:
        """Whether the type is a signed or unsigned integer; bool is not one."""
        return self.kind in ("int", "uint")

    @cached_property
    def numpy(self) -> np.dtype[Any]:
        """The numpy dtype with the same values: from `ml_dtypes` if numpy lacks the type, `object` for strings."""
        import numpy as np  # on use, so that targets are declared without it

        if self.kind == "string":
            return np.dtype(object)
        if self.name in _ML_DTYPES:
            import ml_dtypes

            numpy_dtype: np.dtype[Any] = np.dtype(getattr(ml_dtypes, _ML_DTYPES[self.name]))
            return numpy_dtype
        return np.dtype(self.name)

    @property
    def limits(self) -> tuple[int, int]:
        """The smallest and largest value of an integer type; (0, 1) for bool."""
        if self.kind == "int":
            return -(1 << (self.bits - 1)), (1 << (self.bits - 1)) - 1
        assert self.kind in ("uint", "bool"), f"{self.name} has no integer limits"
        return 0, (1 << self.bits) - 1


_FLOATS = {
    "float64": 64,
    "float32": 32,
    "float16": 16,
    "bfloat16": 16,
    "float8e4m3fn": 8,
    "float8e4m3fnuz": 8,
    "float8e5m2": 8,
    "float8e5m2fnuz": 8,
    "float8e8m0": 8,
    "float4e2m1": 4,
}
_ML_DTYPES = {
    "bfloat16": "bfloat16",
    "float8e4m3fn": "float8_e4m3fn",
    "float8e4m3fnuz": "float8_e4m3fnuz",
    "float8e5m2": "float8_e5m2",
    "float8e5m2fnuz": "float8_e5m2fnuz",
    "float8e8m0": "float8_e8m0fnu",
    "float4e2m1": "float4_e2m1fn",
    "int4": "int4",
    "int2": "int2",
    "uint4": "uint4",
    "uint2": "uint2",
}
DTYPES: dict[str, DType] = {
    **{name: DType(name, "float", bits, max(bits // 8, 1)) for name, bits in _FLOATS.items()},
    **{f"int{bits}": DType(f"int{bits}", "int", bits, max(bits // 8, 1)) for bits in (2, 4, 8, 16, 32, 64)},
    **{f"uint{bits}": DType(f"uint{bits}", "uint", bits, max(bits // 8, 1)) for bits in (2, 4, 8, 16, 32, 64)},
    "bool": DType("bool", "bool", 1, 1),
    "string": DType("string", "string", 0, 0),
}


def dtype(name: str | DType) -> DType:
    """Look up an element type by name. Raises `ParseError` for an unknown name."""
    if isinstance(name, DType):
        return name
    match = DTYPES.get(name)
    if match is None:
        raise ParseError(f"expected an element type, got {name!r}", remedy=f"use one of {', '.join(DTYPES)}")
    return match


_FROM_NUMPY: dict[str, str] = {ml_name: name for name, ml_name in _ML_DTYPES.items()}


@lru_cache(256)  # numpy has a dtype for every length of strings
def from_numpy(numpy_dtype: np.dtype[Any]) -> DType:
    """Convert a numpy dtype to an element type. Raises `ParseError` for a dtype without a counterpart (complex, dates)."""
    if numpy_dtype.kind in "OUST":
        return DTYPES["string"]
    name = numpy_dtype.name
    return dtype(_FROM_NUMPY.get(name, name))
