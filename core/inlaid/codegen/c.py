"""Regions in C: what every code generator writes around the code of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from inlaid.errors import Unsupported
from inlaid.runtime.c_source import REGION_PARAMETERS, REGION_PRELUDE
from inlaid.types import DType

if TYPE_CHECKING:  # what runs packages prints C too, without the compiler
    from inlaid.tensor.region import RegionBuffer

C_TYPES = {
    "float64": "double",
    "float32": "float",
    "bool": "uint8_t",
    **{f"{sign}int{bits}": f"{sign}int{bits}_t" for sign in ("", "u") for bits in (8, 16, 32, 64)},
}
"""C types by element type: those that C computes with."""


def c_type(of: DType) -> str:
    """The C type of an element. Raises `Unsupported` for one that C does not compute with."""
    found = C_TYPES.get(of.name)
    if found is None:
        raise Unsupported(f"C has no type for {of}")
    return found


def spread(head: str, parts: Sequence[str], end: str, width: int) -> str:
    """A head, parts in parentheses and an end: a line, or as many as it takes, of about this width."""
    lines, line = [], f"{head}("
    for number, part in enumerate(parts):
        text = f"{part}{')' + end if number == len(parts) - 1 else ','}"
        if len(line) + len(text) + 1 > width and number:
            lines.append(line)
            line = f"{' ' * (len(head) - len(head.lstrip()) + 8)}{text}"
        else:
            line += f"{' ' * bool(number)}{text}"
    return "\n".join([*lines, line])


def address(buffer: RegionBuffer, offset: str = "") -> str:
    """An expression for the address of a region's buffer inside the region's function, of no type: it fits every pointer. `offset`:
    that of the buffer in C, where it is no number."""
    if buffer.storage == "arena":
        return f"(void *)((char *)workspace + {offset or buffer.offset})"
    return f"{buffer.storage}s[{buffer.index}]"


def pointer(buffer: RegionBuffer) -> str:
    """The address of a region's buffer of static place as a pointer to its elements."""
    const = "const " if buffer.storage in ("input", "constant") else ""
    return f"(({const}{c_type(buffer.dtype)} *)({address(buffer)}))"


def region_source(symbol: str, body: str, before: str = "") -> bytes:
    """The source of a region: `body` are the statements of its function, `before` what stands before it."""
    return f"{REGION_PRELUDE}{before}\nint32_t {symbol}({REGION_PARAMETERS}) {{\n{body}\n    return 0;\n}}\n".encode()
