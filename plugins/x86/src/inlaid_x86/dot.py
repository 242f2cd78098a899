"""Dot product instructions as tensor intrinsics: VNNI, AVX512-BF16, and multiply-add of 16-bit pairs as the fallback.

VPDPBUSD multiplies unsigned by signed bytes and adds four products to each 32-bit lane; nothing saturates. VPDPBF16PS adds two
products of bfloat16 to each float32 lane; it treats denormals as zero, flushes denormal results, and rounds to nearest even after
each of its two additions regardless of MXCSR (Intel SDM, VDPBF16PS). VPMADDWD multiplies pairs of 16-bit lanes and adds the two
products exactly. Its byte operands are first extended to 16 bits, by the compiler (int16 operands) or in registers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from inlaid.tensor.primitives import TensorIntrin
from inlaid.tensor.scheduling.dot_products import dot_product
from inlaid_x86.llvm.function import FunctionPrinter
from inlaid_x86.llvm.intrinsics import Instruction, Operand
from inlaid_x86.llvm.values import Value, splat

_BYTES = ("uint8", "int8")


@dataclass(frozen=True)
class _Bytes:
    """Emitter of VPDPBUSD. `swapped`: the signed operand, not the unsigned operand, is broadcast to all lanes."""

    lanes: int
    swapped: bool
    name: str

    def __call__(self, p: FunctionPrinter, operands: tuple[Operand, ...]) -> None:
        shared, per_lane, total = operands
        a = p.widen(shared.load("i32"), self.lanes)
        b = per_lane.load("i32", self.lanes)
        acc = total.load("i32", self.lanes)
        wide = f"<{self.lanes} x i32>"
        p.declarations[self.name] = f"declare {wide} @{self.name}({wide}, {wide}, {wide})"
        first, second = (b, a) if self.swapped else (a, b)
        total.store(p.op(f"call {wide} @{self.name}({acc}, {first}, {second})", "i32", self.lanes))


@dataclass(frozen=True)
class _Bfloat:
    """Emitter of VDPBF16PS."""

    lanes: int
    name: str

    def __call__(self, p: FunctionPrinter, operands: tuple[Operand, ...]) -> None:
        shared, per_lane, total = operands
        wide = f"<{2 * self.lanes} x bfloat>"
        a = p.widen(shared.load("i32"), self.lanes)
        left = p.op(f"bitcast {a} to {wide}", "bfloat", 2 * self.lanes)
        right = per_lane.load("bfloat", 2 * self.lanes)
        acc = total.load("float", self.lanes)
        p.declarations[self.name] = f"declare {acc.type} @{self.name}({acc.type}, {wide}, {wide})"
        total.store(p.op(f"call {acc.type} @{self.name}({acc}, {left}, {right})", "float", self.lanes))


@dataclass(frozen=True)
class _Words:
    """Emitter of VPMADDWD on a number of 32-bit lanes."""

    lanes: int
    name: str

    def __call__(self, p: FunctionPrinter, operands: tuple[Operand, ...]) -> None:
        shared, per_lane, total = operands
        right, acc = per_lane.load("i16", 2 * self.lanes), total.load("i32", self.lanes)
        left = p.op(f"bitcast {p.widen(shared.load('i32'), self.lanes)} to {right.type}", "i16", right.lanes)
        p.declarations[self.name] = f"declare {acc.type} @{self.name}({right.type}, {right.type})"
        products = p.op(f"call {acc.type} @{self.name}({left}, {right})", "i32", self.lanes)
        total.store(p.op(f"add {acc}, {products.ref}", "i32", self.lanes))


@dataclass(frozen=True)
class _Pairs:
    """Emitter of two VPMADDWD on 32-bit lanes: one for even bytes and one for odd bytes. `signed`: sign-extend each operand. Masks
    and shifts extend bytes in place. Shuffles would be slower: many processors have only one unit for them."""

    lanes: int
    name: str
    signed: tuple[bool, bool]

    def __call__(self, p: FunctionPrinter, operands: tuple[Operand, ...]) -> None:
        shared, per_lane, total = operands
        right = per_lane.load("i16", 2 * self.lanes)
        left = self._once(p, f"bitcast {p.widen(shared.load('i32'), self.lanes)} to {right.type}", 2 * self.lanes)
        acc = total.load("i32", self.lanes)
        p.declarations[self.name] = f"declare {acc.type} @{self.name}({right.type}, {right.type})"
        for odd in (False, True):
            a, b = self._half(p, left, odd, self.signed[0]), self._half(p, right, odd, self.signed[1])
            products = p.op(f"call {acc.type} @{self.name}({a}, {b})", "i32", self.lanes)
            acc = p.op(f"add {acc}, {products.ref}", "i32", self.lanes)
        total.store(acc)

    def _half(self, p: FunctionPrinter, value: Value, odd: bool, signed: bool) -> Value:
        """Extend the even or odd bytes of `value` to 16-bit lanes."""
        if not odd and not signed:
            return self._once(p, f"and {value}, {splat('255', 'i16', value.lanes)}", value.lanes)
        shift = splat("8", "i16", value.lanes)
        value = value if odd else self._once(p, f"shl {value}, {shift}", value.lanes)
        return self._once(p, f"{'ashr' if signed else 'lshr'} {value}, {shift}", value.lanes)

    @staticmethod
    def _once(p: FunctionPrinter, text: str, lanes: int) -> Value:
        cached: Value | None = p.recall(text)
        return cached if cached is not None else p.remember(text, p.op(text, "i16", lanes), lasting=True)


def instructions(features: Sequence[str]) -> Iterator[Instruction]:
    """Yield the dot product instructions that a processor with `features` has, fastest first."""
    present = set(features)
    vnni = tuple(name for name in ("avx512vnni", "avxvnni") if name in present)[:1]
    if "avx512vnni" in present:
        yield from _vnni(16, vnni)
    if vnni:
        yield from _vnni(8, vnni)
    if "avx512bf16" in present:
        for lanes in (16, 8):
            emitter = _Bfloat(lanes, f"llvm.x86.avx512bf16.dpbf16ps.{32 * lanes}")
            semantics = dot_product("bfloat16", "bfloat16", "float32", lanes, 2)
            yield Instruction(TensorIntrin(f"dpbf16.{lanes}", semantics), emitter, ("avx512bf16",))
    madd = [(16, "llvm.x86.avx512.pmaddw.d.512")] if "avx512bw" in present else []
    madd += [(8, "llvm.x86.avx2.pmadd.wd")] if "avx2" in present else [(4, "llvm.x86.sse2.pmadd.wd")]
    for lanes, name in madd:
        # With VNNI, LLVM fuses the product and the addition to VPDPWSSD.
        words = TensorIntrin(f"madd.int16.{lanes}", dot_product("int16", "int16", "int32", lanes, 2), scratch=0 if vnni else 1)
        yield Instruction(words, _Words(lanes, name), vnni)
        for a in _BYTES:
            for b in _BYTES:
                semantics = dot_product(a, b, "int32", lanes, 4)
                emit = _Pairs(lanes, name, (a == "int8", b == "int8"))
                yield Instruction(TensorIntrin(f"madd.{a}.{b}.{lanes}", semantics, cost=3), emit, vnni)


def _vnni(lanes: int, extensions: tuple[str, ...]) -> Iterator[Instruction]:
    name = f"llvm.x86.avx512.vpdpbusd.{32 * lanes}"
    for swapped, (a, b) in enumerate((_BYTES, _BYTES[::-1])):
        semantics = dot_product(a, b, "int32", lanes, 4)
        yield Instruction(TensorIntrin(f"dot.{a}.{b}.{lanes}", semantics), _Bytes(lanes, bool(swapped), name), extensions)
