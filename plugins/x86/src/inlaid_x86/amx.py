"""AMX: matrix tiles of Intel Xeons since 2023 as a memory scope and tensor intrinsics (Intel SDM, volume 1, chapter 18).

There are eight tiles of up to 16 rows of 64 bytes. Tile shapes are configured once, at the start of a function that uses them.
TDPBF16PS treats denormals as zero, flushes denormal results and rounds to nearest even regardless of MXCSR, like VDPBF16PS.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from inlaid.tensor import ir
from inlaid.tensor.primitives import TensorIntrin
from inlaid_runtime import arith
from inlaid_x86.capabilities import TILES
from inlaid_x86.llvm.function import FunctionPrinter
from inlaid_x86.llvm.intrinsics import Emitter, Instruction, Operand, RegisterFile
from inlaid_x86.llvm.values import Value
from inlaid_x86.tiles.unit import tile_groups, tile_product, tile_rows, tile_sums, tile_zero
from inlaid_x86_runtime.cpu import TILE

STEPS = (1, 2)
"""Supported row strides of left operands in tile loads. A convolution of stride s loads rows with stride s."""
_BYTES = {"uint8": "u", "int8": "s"}
_CONFIGURATION = struct.Struct("<BB14x16H16B")
"""Layout of the operand of LDTILECFG: palette, start row, bytes per row of each tile, number of rows of each tile."""
_FIRST_ROWS = struct.calcsize("<BB14x16H")
"""Byte offset of the row counts in the operand of LDTILECFG."""


def _row_bytes(buffer: ir.Buffer) -> int:
    """Return the number of bytes per row of a tile that holds a buffer."""
    return math.prod(dim for dim in buffer.shape[1:] if isinstance(dim, int)) * buffer.dtype.bytes


def _call(p: FunctionPrinter, name: str, arguments: Sequence[str], kinds: Sequence[str]) -> None:
    name = f"llvm.x86.{name}"
    p.declarations[name] = f"declare void @{name}({', '.join(kinds)})"
    plain = (kind.removesuffix(" immarg") for kind in kinds)
    p.emit(f"call void @{name}({', '.join(f'{kind} {text}' for kind, text in zip(plain, arguments, strict=True))})")


_TILE = "i8 immarg"


def _zero(p: FunctionPrinter, operands: tuple[Operand, ...]) -> None:
    _call(p, "tilezero", [str(operands[0].register)], [_TILE])


def _product(name: str) -> Emitter:
    def emit(p: FunctionPrinter, operands: tuple[Operand, ...]) -> None:
        a, b, total = (str(operand.register) for operand in operands)
        _call(p, name, [total, a, b], [_TILE] * 3)

    return emit


def _load(rank: int, step: int = 1) -> Emitter:
    """Create the emitter of a tile load from a region of `rank` dimensions. Axis 0 numbers the rows; `step` is the row stride."""

    def emit(p: FunctionPrinter, operands: tuple[Operand, ...]) -> None:
        source, tile = operands
        _call(p, "tileloadd64", [str(tile.register), source.address(), str(step * source.pitch(-rank))], [_TILE, "ptr", "i64"])

    return emit


def _store(p: FunctionPrinter, operands: tuple[Operand, ...]) -> None:
    tile, target = operands
    _call(p, "tilestored64", [str(tile.register), target.address(), str(target.pitch(-2))], [_TILE, "ptr", "i64"])
    target.changed()


@dataclass(frozen=True)
class _Tiles:
    """The tile registers of a function; implements `RegisterFile`."""

    scope = TILES

    def open(self, p: FunctionPrinter, buffers: Mapping[int, ir.Buffer], count: Callable[[arith.Expr], Value]) -> None:
        """Configure each tile for the shape of its buffer. `buffers` is keyed by register number."""
        shapes: list[tuple[arith.Dim, int]] = [(0, 0)] * 16
        for number, buffer in buffers.items():
            shapes[number] = buffer.shape[0], _row_bytes(buffer)
        row_counts = [rows if isinstance(rows, int) else 0 for rows, _ in shapes]
        content = _CONFIGURATION.pack(1, 0, *(width for _, width in shapes), *row_counts)
        name = f"tiles.{content.hex().rstrip('0')}"
        text = "".join(f"\\{byte:02X}" for byte in content)
        p.declarations[name] = f'@{name} = private unnamed_addr constant [64 x i8] c"{text}", align 64'
        address = f"@{name}"
        symbolic_rows = [(number, rows) for number, (rows, _) in enumerate(shapes) if not isinstance(rows, int)]
        if symbolic_rows:
            address = p.alloca("i8", _CONFIGURATION.size)
            config_type = "<64 x i8>"
            p.emit(f"store {p.op(f'load {config_type}, ptr @{name}, align 64', 'i8', 64)}, ptr {address}, align 64")
        for number, rows in symbolic_rows:
            value = p.op(f"trunc {count(rows)} to i8", "i8")
            slot = p.op(f"getelementptr inbounds i8, ptr {address}, i64 {_FIRST_ROWS + number}", "ptr")
            p.emit(f"store {value}, {slot}, align 1")
        _call(p, "ldtilecfg", [address], ["ptr"])

    def close(self, p: FunctionPrinter) -> None:
        """Release the tiles, so that a context switch need not save them."""
        _call(p, "tilerelease", [], [])


def instructions(features: Sequence[str]) -> Iterator[Instruction]:
    """Yield the tile instructions that a processor with `features` has."""
    present, scope = set(features), TILES.name
    if TILE not in present:
        return
    if "amx-bf16" in present:
        needs = (TILE, "amx-bf16")
        yield from _moves("float32", {"bfloat16": 2}, needs)
        semantics = tile_product("bfloat16", "bfloat16", "float32", 2, scope)
        yield Instruction(TensorIntrin("amx.product.bfloat16", semantics), _product("tdpbf16ps"), needs)
    if "amx-int8" in present:
        needs = (TILE, "amx-int8")
        yield from _moves("int32", dict.fromkeys(_BYTES, 4), needs)
        for a, first in _BYTES.items():
            for b, second in _BYTES.items():
                semantics = tile_product(a, b, "int32", 4, scope)
                yield Instruction(TensorIntrin(f"amx.product.{a}.{b}", semantics), _product(f"tdpb{first}{second}d"), needs)


def _moves(total: str, factors: Mapping[str, int], needs: tuple[str, ...]) -> Iterator[Instruction]:
    scope = TILES.name
    yield Instruction(TensorIntrin(f"amx.zero.{total}", tile_zero(total, scope)), _zero, needs)
    yield Instruction(TensorIntrin(f"amx.store.{total}", tile_sums(total, scope)), _store, needs)
    for dtype_name, group in factors.items():
        for step in STEPS:
            yield Instruction(
                TensorIntrin(f"amx.rows{step}.{dtype_name}", tile_rows(dtype_name, step, scope)), _load(2, step), needs
            )
        yield Instruction(TensorIntrin(f"amx.groups.{dtype_name}", tile_groups(dtype_name, group, scope)), _load(3), needs)


def register_files(features: Sequence[str]) -> Mapping[str, RegisterFile]:
    """Return the tile register file keyed by the name of its memory scope; empty without AMX in `features`."""
    return {TILES.name: _Tiles()} if TILE in features else {}
