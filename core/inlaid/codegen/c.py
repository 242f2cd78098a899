"""Regions in C: helpers that all C code generators share."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from inlaid_runtime.errors import Unsupported
from inlaid_runtime.execution.c_source import REGION_PARAMETERS, REGION_PRELUDE
from inlaid_runtime.types import DType

if TYPE_CHECKING:
    from inlaid.tensor.region import RegionBuffer

C_TYPES = {
    "float64": "double",
    "float32": "float",
    "bool": "uint8_t",
    **{f"{sign}int{bits}": f"{sign}int{bits}_t" for sign in ("", "u") for bits in (8, 16, 32, 64)},
}
"""C type by name of the element type, for element types with C arithmetic."""


def c_type(dtype: DType) -> str:
    """Return the C type of an element type. Raises `Unsupported` for a type that C lacks."""
    name = C_TYPES.get(dtype.name)
    if name is None:
        raise Unsupported(f"C has no type for {dtype}, expected one of {', '.join(C_TYPES)}")
    return name


def address(buffer: RegionBuffer, offset: str = "") -> str:
    """Print a C expression of type `void *` for the address of a buffer inside the region's function. `offset` is the buffer's
    arena offset as C text if it is symbolic."""
    if buffer.storage == "arena":
        return f"(void *)((char *)workspace + {offset or buffer.offset})"
    return f"{buffer.storage}s[{buffer.index}]"


def pointer(buffer: RegionBuffer) -> str:
    """Print a C expression for a typed pointer to a buffer with a static offset."""
    const = "const " if buffer.storage in ("input", "constant") else ""
    return f"(({const}{c_type(buffer.dtype)} *)({address(buffer)}))"


def region_source(symbol: str, body: str, before: str = "") -> bytes:
    """Print the C source of a region: `body` is the text of its function's statements, `before` the text before the function."""
    names = [parameter.split()[-1].lstrip("*") for parameter in REGION_PARAMETERS.split(",")]
    unused = "".join(f"    (void){name};\n" for name in names if not re.search(rf"\b{name}\b", body))
    head = f'{REGION_PRELUDE}{before}\n#ifdef __cplusplus\nextern "C"\n#endif\n'
    return f"{head}int32_t {symbol}({REGION_PARAMETERS}) {{\n{unused}{body}\n    return 0;\n}}\n".encode()
