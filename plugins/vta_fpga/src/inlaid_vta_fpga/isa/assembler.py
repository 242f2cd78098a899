"""Parser and printer for VTA assembler text.

One instruction, micro-op or directive per line; `#` starts a comment; numbers are decimal or hexadecimal. For example:

    .uops 0x400                                     # a table of micro-ops at DRAM element 0x400: dst src wgt
      3 8 7
      4 9 7
    .code                                           # instructions follow; the text starts in this section
      load.uop sram=9 dram=0x400 size=1x2 stride=2
      load.inp sram=5 dram=0x1234 size=3x4 stride=10 y_pad=1,1 x_pad=1,2 push_next
      gemm.reset uops=9:11 loops=5x1 dst=7,0
      gemm uops=9:11 loops=2x4 dst=0,1 src=1,2 wgt=1,0 pop_prev push_prev
      alu.shr uops=9:11 dst=5,0 src=5,0 imm=6       # without imm, the second operand is ACC[src]
      store sram=0 dram=0x77 size=2x3 stride=56 pop_prev push_prev
      finish

| mnemonic | operands |
|---|---|
| `load.uop`, `load.wgt`, `load.inp`, `load.acc`, `load.acc_8bit` | as `store`; y_pad, x_pad (before, after) |
| `store` | sram, dram, size (rows x elements), stride |
| `gemm`, `gemm.reset` | uops (begin:end), loops (outer x inner), dst, src, wgt: factors (outer, inner) |
| `alu.min`, `alu.max`, `alu.add`, `alu.shr`, `alu.mul` | uops, loops, dst, src, imm |
| `finish` | |

Operands come in any order, each at most once. Only `uops` is required. The default of `loops` is 1x1, of all other operands 0. The
token flags `pop_prev`, `pop_next`, `push_prev` and `push_next` may follow every mnemonic.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from inlaid_runtime.errors import ParseError, suggestion
from inlaid_vta_fpga.isa.config import UOP_BYTES, Config, Memory
from inlaid_vta_fpga.isa.encoding import Encoding, EncodingError
from inlaid_vta_fpga.isa.instructions import Alu, AluOp, Finish, Flags, Gemm, Instruction, Load, Store, Uop


@dataclass(frozen=True)
class Program:
    """Instructions and tables of micro-ops. A table is keyed by the DRAM element index of its first entry."""

    instructions: tuple[Instruction, ...]
    uops: Mapping[int, tuple[Uop, ...]]

    def write_uops(self, dram: npt.NDArray[np.uint8], config: Config) -> None:
        """Write the tables to physical memory."""
        for base, table in self.uops.items():
            words = Encoding(config).encode_uops(table).astype("<u4").view(np.uint8)
            dram[base * UOP_BYTES : base * UOP_BYTES + len(words)] = words


_NUMBER = r"-?(?:0[xX][0-9a-fA-F]{1,16}|[0-9]{1,16})"
_FLAGS = tuple(field.name for field in fields(Flags))


@dataclass(frozen=True)
class _Operand:
    """Syntax of an operand: the instruction attributes that it sets, and the separator if it has two numbers."""

    attributes: tuple[str, ...]
    separator: str = ""

    def parse(self, name: str, text: str) -> dict[str, Any]:
        """Parse the text of an operand to attribute values. Raises `ParseError`."""
        match = re.fullmatch(self.separator.join([f"({_NUMBER})"] * (2 if self.separator else 1)), text)
        if match is None:
            form = self.separator.join("NN" if self.separator else "N")
            raise ParseError(f"expected {name}={form}, found {name}={text}", remedy="write numbers as 12 or 0xc")
        numbers = tuple(map(_integer, match.groups()))
        return dict(zip(self.attributes, numbers if len(self.attributes) == len(numbers) else (numbers,), strict=True))

    def print(self, instruction: Instruction) -> str:
        """Print the operand's value; "" for the default."""
        values = [getattr(instruction, name) for name in self.attributes]
        if values == [_DEFAULTS.get((type(instruction), name)) for name in self.attributes]:
            return ""
        numbers = values[0] if isinstance(values[0], tuple) else values
        return self.separator.join(map(hex if self.attributes == ("dram_base",) else str, numbers))


_OPERANDS = {
    "sram": _Operand(("sram_base",)),
    "dram": _Operand(("dram_base",)),
    "size": _Operand(("y_size", "x_size"), "x"),
    "stride": _Operand(("x_stride",)),
    "y_pad": _Operand(("y_pad_0", "y_pad_1"), ","),
    "x_pad": _Operand(("x_pad_0", "x_pad_1"), ","),
    "uops": _Operand(("uop_begin", "uop_end"), ":"),
    "loops": _Operand(("iter_out", "iter_in"), "x"),
    "dst": _Operand(("dst_factors",), ","),
    "src": _Operand(("src_factors",), ","),
    "wgt": _Operand(("wgt_factors",), ","),
    "imm": _Operand(("imm",)),
}
_OPERAND_NAMES: dict[type[Instruction], tuple[str, ...]] = {
    Load: ("sram", "dram", "size", "stride", "y_pad", "x_pad"),
    Store: ("sram", "dram", "size", "stride"),
    Gemm: ("uops", "loops", "dst", "src", "wgt"),
    Alu: ("uops", "loops", "dst", "src", "imm"),
    Finish: (),
}
_DEFAULTS = {(kind, field.name): field.default for kind in _OPERAND_NAMES for field in fields(kind)}
_MNEMONICS: dict[str, tuple[type[Instruction], dict[str, Any]]] = {
    **{f"load.{memory.name.lower()}": (Load, {"memory": memory}) for memory in Memory if memory is not Memory.OUT},
    "store": (Store, {}),
    "gemm": (Gemm, {"reset": False}),
    "gemm.reset": (Gemm, {"reset": True}),
    **{f"alu.{op.name.lower()}": (Alu, {"op": op}) for op in AluOp},
    "finish": (Finish, {}),
}


def print_instruction(instruction: Instruction) -> str:
    """Print one instruction; operands with default values are omitted."""
    attributes = {name: getattr(instruction, name) for name in ("memory", "reset", "op") if hasattr(instruction, name)}
    words = [name for name, meaning in _MNEMONICS.items() if meaning == (type(instruction), attributes)]
    for name in _OPERAND_NAMES[type(instruction)]:
        if text := _OPERANDS[name].print(instruction):
            words.append(f"{name}={text}")
    return " ".join(words + [name for name in _FLAGS if getattr(instruction.flags, name)])


def print_program(program: Program, sources: Sequence[str] = ()) -> str:
    """Print a program. `sources[i]`, the operator of instruction i, is printed as a comment where it changes."""
    lines = []
    for base, table in program.uops.items():
        lines += [f".uops {base:#x}", *(f"  {uop.dst} {uop.src} {uop.wgt}" for uop in table)]
    lines.append(".code")
    last = ""
    for number, instruction in enumerate(program.instructions):
        source = sources[number] if number < len(sources) else ""
        if source != last:
            lines.append("  # " + " ".join(source.split()))
        last = source
        lines.append("  " + print_instruction(instruction))
    return "\n".join(lines) + "\n"


def parse_program(text: str, config: Config) -> Program:
    """Parse assembler text. Raises `ParseError` with the line number for malformed text, a value that exceeds its field, and
    overlapping tables of micro-ops."""
    encoding = Encoding(config)
    instructions: list[Instruction] = []
    uops: dict[int, list[Uop]] = {}
    base: int | None = None  # of the open table
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split("#")[0].split()
        try:
            match words:
                case []:
                    continue
                case [".code"]:
                    base = None
                case [".uops", start] if re.fullmatch(_NUMBER, start):
                    base = _integer(start)
                    if base < 0 or any(first <= base < first + max(1, len(table)) for first, table in uops.items()):
                        raise ParseError(f"expected an unused DRAM index >= 0, found {start}", remedy="move or join the tables")
                    uops[base] = []
                case [str(directive), *_] if directive.startswith("."):
                    raise ParseError(f"expected .code or .uops N, found {' '.join(words)!r}", remedy="write .uops 0x400")
                case _ if base is None:
                    instructions.append(_parse_instruction(words))
                    encoding.encode(instructions[-1])
                case _:
                    encoding.encode_uops([uop := _parse_uop(words)])
                    if uops[base] and (end := base + len(uops[base])) in uops:
                        raise ParseError(
                            f"expected tables that do not overlap, found a micro-op at {end:#x}", remedy="move or join the tables"
                        )
                    uops[base].append(uop)
        except (ParseError, EncodingError) as error:
            raise ParseError(f"line {number}: {error.message}", remedy=error.remedy) from error
    return Program(tuple(instructions), {base: tuple(uop_words) for base, uop_words in uops.items()})


def _integer(text: str) -> int:
    return int(text, 16 if "x" in text.lower() else 10)


def _parse_instruction(words: Sequence[str]) -> Instruction:
    mnemonic, *rest = words
    if mnemonic not in _MNEMONICS:
        text = f"expected a mnemonic, found {mnemonic!r}{suggestion(mnemonic, _MNEMONICS)}"
        raise ParseError(text, remedy=f"use one of {', '.join(_MNEMONICS)}")
    kind, fixed = _MNEMONICS[mnemonic]
    values = dict(fixed)
    names: set[str] = set()
    for word in rest:
        name, equals, value = word.partition("=")
        if name not in (_OPERAND_NAMES[kind] if equals else _FLAGS):
            choices = ", ".join((*(f"{operand}=" for operand in _OPERAND_NAMES[kind]), *_FLAGS))
            raise ParseError(f"expected an operand or a flag of {mnemonic}, found {word!r}", remedy=f"use {choices}")
        if name in names:
            raise ParseError(f"expected {name} at most once, found it twice", remedy="remove one of the two")
        names.add(name)
        if equals:
            values |= _OPERANDS[name].parse(name, value)
    if "uops" in _OPERAND_NAMES[kind] and "uops" not in names:
        raise ParseError(f"expected uops=N:N, found {mnemonic} without it", remedy="give the range of micro-ops")
    construct: Callable[..., Instruction] = kind
    return construct(**values, flags=Flags(*(name in names for name in _FLAGS)))


def _parse_uop(words: Sequence[str]) -> Uop:
    if len(words) != 3 or not all(re.fullmatch(_NUMBER, word) for word in words):
        raise ParseError(
            f"expected a micro-op as three numbers, dst src wgt, found {' '.join(words)!r}", remedy="start instructions with .code"
        )
    return Uop(*map(_integer, words))
