"""LLVM text of the C library functions that LLVM's code generator calls, so that linked code needs no library.

LLVM calls `memcpy`, `memmove` and `memset` for copies and fills, `fmod` for the remainder of floats, `fma` on processors without
fused multiply-add, and `__udivti3` and its like for quotients of more than 64 bits: it computes the number of a loop's iterations
in 65 bits, where checked accesses may end the loop early. The functions in this module return the same bits as those of the C
library and of the compiler's runtime library. `inlaid_x86.remainder` calls vector forms of `fmod`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

from inlaid_x86.llvm.values import splat, vector_type

_INFINITY = 0x7FF << 52
_MAGNITUDE = (1 << 63) - 1
_HIDDEN = 1 << 52
_BLOCK = 64
"""Bytes per iteration of the copy and fill loops."""


def helper(symbol: str) -> str | None:
    """Return the text of the LLVM functions that define `symbol`; None for an unknown symbol."""
    match symbol:
        case "memcpy" | "memmove":
            return _copy(symbol, overlapping=symbol == "memmove")
        case "memset":
            return _MEMSET
        case "fmod":
            return _FMOD
        case "fmodf":
            return _FMODF
        case "fma":
            return _FMA
        case "fmaf":
            return _FMAF
        case "__udivti3" | "__umodti3":
            return f"{_DIVISION}{_UNSIGNED.format(symbol=symbol, part=int(symbol == '__umodti3'))}"
        case "__divti3" | "__modti3":
            return f"{_DIVISION}{_SIGNED.format(symbol=symbol, part=int(symbol == '__modti3'))}"
    if match := _VECTOR_REMAINDER.fullmatch(symbol):
        return _vector_remainder(_SCALAR_OF[match[1]], int(match[2]))
    return None


def _ends(kind: str, size: int) -> str:
    """Return code that copies n bytes, size <= n <= 2 * size, as the first and the last `size` bytes, which may overlap. All loads
    precede all stores, so source and target may overlap as well."""
    return f"""\
both{size}:
  %rest{size} = sub i64 %n, {size}
  %last.from{size} = getelementptr i8, ptr %from, i64 %rest{size}
  %last.to{size} = getelementptr i8, ptr %to, i64 %rest{size}
  %head{size} = load {kind}, ptr %from, align 1
  %tail{size} = load {kind}, ptr %last.from{size}, align 1
  store {kind} %head{size}, ptr %to, align 1
  store {kind} %tail{size}, ptr %last.to{size}, align 1
  ret ptr %to
"""


def _choice(large: str) -> str:
    """Return code that branches by the size n: to `none` for 0, to `both1` ... `both32` up to `_BLOCK`, else to `large`."""
    lines = ["entry:", f"  %is.large = icmp ugt i64 %n, {_BLOCK}", f"  br i1 %is.large, label %{large}, label %try32"]
    for size in (32, 16, 8, 4, 2, 1):
        following = f"try{size // 2}" if size > 1 else "none"
        lines += [
            f"try{size}:",
            f"  %is{size} = icmp uge i64 %n, {size}",
            f"  br i1 %is{size}, label %both{size}, label %{following}",
        ]
    return "\n".join([*lines, "none:", "  ret ptr %to", ""])


_SCALARS = {1: "i8", 2: "i16", 4: "i32", 8: "i64", 16: "<16 x i8>", 32: "<32 x i8>"}
_COPY_FORWARD = f"""\
forward:
  %f.rest = sub i64 %n, {_BLOCK}
  %f.last.from = getelementptr i8, ptr %from, i64 %f.rest
  %f.tail = load <{_BLOCK} x i8>, ptr %f.last.from, align 1
  br label %f.loop
f.loop:
  %i = phi i64 [ 0, %forward ], [ %i.next, %f.loop ]
  %f.source = getelementptr i8, ptr %from, i64 %i
  %f.block = load <{_BLOCK} x i8>, ptr %f.source, align 1
  %f.target = getelementptr i8, ptr %to, i64 %i
  store <{_BLOCK} x i8> %f.block, ptr %f.target, align 1
  %i.next = add i64 %i, {_BLOCK}
  %f.more = icmp ult i64 %i.next, %f.rest
  br i1 %f.more, label %f.loop, label %f.end
f.end:
  %f.last.to = getelementptr i8, ptr %to, i64 %f.rest
  store <{_BLOCK} x i8> %f.tail, ptr %f.last.to, align 1
  ret ptr %to
"""
_COPY_BACKWARD = f"""\
large:
  %to.address = ptrtoint ptr %to to i64
  %from.address = ptrtoint ptr %from to i64
  %distance = sub i64 %to.address, %from.address
  %is.clear = icmp uge i64 %distance, %n
  br i1 %is.clear, label %forward, label %backward
backward:
  %b.head = load <{_BLOCK} x i8>, ptr %from, align 1
  br label %b.loop
b.loop:
  %j = phi i64 [ %n, %backward ], [ %j.next, %b.loop ]
  %j.next = sub i64 %j, {_BLOCK}
  %b.source = getelementptr i8, ptr %from, i64 %j.next
  %b.block = load <{_BLOCK} x i8>, ptr %b.source, align 1
  %b.target = getelementptr i8, ptr %to, i64 %j.next
  store <{_BLOCK} x i8> %b.block, ptr %b.target, align 1
  %b.more = icmp ugt i64 %j.next, {_BLOCK}
  br i1 %b.more, label %b.loop, label %b.end
b.end:
  store <{_BLOCK} x i8> %b.head, ptr %to, align 1
  ret ptr %to
"""


def _copy(symbol: str, overlapping: bool) -> str:
    ends = "".join(_ends(kind, size) for size, kind in _SCALARS.items())
    loops = _COPY_BACKWARD + _COPY_FORWARD if overlapping else _COPY_FORWARD
    choice = _choice("large" if overlapping else "forward")
    return f"define hidden ptr @{symbol}(ptr %to, ptr %from, i64 %n) #1 {{\n{choice}{ends}{loops}}}"


def _fill_ends(kind: str, size: int) -> str:
    if size <= 8:
        value = f"  %value{size} = trunc i64 %word to {kind}\n" if size < 8 else f"  %value{size} = or i64 %word, 0\n"
    else:
        order = ", ".join(f"i32 {lane}" for lane in range(size))
        value = f"  %value{size} = shufflevector <{_BLOCK} x i8> %block, <{_BLOCK} x i8> poison, <{size} x i32> <{order}>\n"
    return f"""\
both{size}:
{value}  %rest{size} = sub i64 %n, {size}
  %last{size} = getelementptr i8, ptr %to, i64 %rest{size}
  store {kind} %value{size}, ptr %to, align 1
  store {kind} %value{size}, ptr %last{size}, align 1
  ret ptr %to
"""


_MEMSET = f"""\
define hidden ptr @memset(ptr %to, i32 %value, i64 %n) #1 {{
start:
  %byte = trunc i32 %value to i8
  %wide = zext i8 %byte to i64
  %word = mul i64 %wide, {0x0101010101010101}
  %lane = insertelement <{_BLOCK} x i8> poison, i8 %byte, i64 0
  %block = shufflevector <{_BLOCK} x i8> %lane, <{_BLOCK} x i8> poison, <{_BLOCK} x i32> zeroinitializer
  br label %entry
{_choice("large")}{"".join(_fill_ends(kind, size) for size, kind in _SCALARS.items())}large:
  %rest = sub i64 %n, {_BLOCK}
  br label %loop
loop:
  %i = phi i64 [ 0, %large ], [ %i.next, %loop ]
  %target = getelementptr i8, ptr %to, i64 %i
  store <{_BLOCK} x i8> %block, ptr %target, align 1
  %i.next = add i64 %i, {_BLOCK}
  %more = icmp ult i64 %i.next, %rest
  br i1 %more, label %loop, label %end
end:
  %last = getelementptr i8, ptr %to, i64 %rest
  store <{_BLOCK} x i8> %block, ptr %last, align 1
  ret ptr %to
}}"""

_FMOD = f"""\
declare i64 @llvm.ctlz.i64(i64, i1)
declare i64 @llvm.umin.i64(i64, i64)
declare i64 @llvm.umax.i64(i64, i64)

; Long division of the significands, 11 bits of the exponent difference per step.
define hidden double @fmod(double %x, double %y) #1 {{
entry:
  %x.bits = bitcast double %x to i64
  %y.bits = bitcast double %y to i64
  %x.size = and i64 %x.bits, {_MAGNITUDE}
  %y.size = and i64 %y.bits, {_MAGNITUDE}
  %sign = and i64 %x.bits, {-1 << 63}
  %y.zero = icmp eq i64 %y.size, 0
  %y.nan = icmp ugt i64 %y.size, {_INFINITY}
  %x.special = icmp uge i64 %x.size, {_INFINITY}
  %y.bad = or i1 %y.zero, %y.nan
  %bad = or i1 %y.bad, %x.special
  br i1 %bad, label %invalid, label %valid
invalid:
  %product = fmul double %x, %y
  %nan = fdiv double %product, %product
  ret double %nan
valid:
  %less = icmp ult i64 %x.size, %y.size
  br i1 %less, label %small, label %divide
small:
  ret double %x
divide:
  %x.field = lshr i64 %x.size, 52
  %y.field = lshr i64 %y.size, 52
  %x.exponent = call i64 @llvm.umax.i64(i64 %x.field, i64 1)
  %y.exponent = call i64 @llvm.umax.i64(i64 %y.field, i64 1)
  %x.subnormal = icmp eq i64 %x.field, 0
  %y.subnormal = icmp eq i64 %y.field, 0
  %x.low = and i64 %x.size, {_HIDDEN - 1}
  %y.low = and i64 %y.size, {_HIDDEN - 1}
  %x.hidden = select i1 %x.subnormal, i64 0, i64 {_HIDDEN}
  %y.hidden = select i1 %y.subnormal, i64 0, i64 {_HIDDEN}
  %x.significand = or i64 %x.low, %x.hidden
  %y.significand = or i64 %y.low, %y.hidden
  %first = urem i64 %x.significand, %y.significand
  %difference = sub i64 %x.exponent, %y.exponent
  br label %test
test:
  %rest = phi i64 [ %first, %divide ], [ %rest.next, %step ]
  %left = phi i64 [ %difference, %divide ], [ %left.next, %step ]
  %through = icmp eq i64 %left, 0
  br i1 %through, label %pack, label %step
step:
  %count = call i64 @llvm.umin.i64(i64 %left, i64 11)
  %shifted = shl i64 %rest, %count
  %rest.next = urem i64 %shifted, %y.significand
  %left.next = sub i64 %left, %count
  br label %test
pack:
  %nothing = icmp eq i64 %rest, 0
  br i1 %nothing, label %zero, label %normalize
zero:
  %signed.zero = bitcast i64 %sign to double
  ret double %signed.zero
normalize:
  %leading = call i64 @llvm.ctlz.i64(i64 %rest, i1 false)
  %room = sub i64 %leading, 11
  %lowest = sub i64 %y.exponent, 1
  %shift = call i64 @llvm.umin.i64(i64 %room, i64 %lowest)
  %significand = shl i64 %rest, %shift
  %field = sub i64 %lowest, %shift
  %high = shl i64 %field, 52
  %size = add i64 %high, %significand
  %bits = or i64 %size, %sign
  %result = bitcast i64 %bits to double
  ret double %result
}}"""

_FMODF = """\
declare double @llvm.fabs.f64(double)
declare double @llvm.copysign.f64(double, double)
declare hidden double @fmod(double, double)

; The remainder of two floats is exactly representable as a float, so double arithmetic does not round. A quotient below 2^29 times
; a divisor of 24 bits is exact as well. The rounded quotient may be the next integer: then the remainder has the other sign.
define hidden float @fmodf(float %x, float %y) #1 {
  %wide.x = fpext float %x to double
  %wide.y = fpext float %y to double
  %quotient = fdiv double %wide.x, %wide.y
  %size = call double @llvm.fabs.f64(double %quotient)
  %divisor = call double @llvm.fabs.f64(double %wide.y)
  %short = fcmp olt double %size, 0x41C0000000000000
  %finite = fcmp olt double %divisor, 0x7FF0000000000000
  %fast = and i1 %short, %finite
  br i1 %fast, label %divide, label %general
general:
  %wide = call double @fmod(double %wide.x, double %wide.y)
  %exact = fptrunc double %wide to float
  ret float %exact
divide:
  %whole = fptosi double %quotient to i32
  %times = sitofp i32 %whole to double
  %multiple = fmul double %times, %wide.y
  %rest = fsub double %wide.x, %multiple
  %agreement = fmul double %rest, %wide.x
  %past = fcmp olt double %agreement, 0.0
  %step = call double @llvm.copysign.f64(double %divisor, double %wide.x)
  %back = fadd double %rest, %step
  %remainder = select i1 %past, double %back, double %rest
  %signed = call double @llvm.copysign.f64(double %remainder, double %wide.x)
  %result = fptrunc double %signed to float
  ret float %result
}"""

REMAINDERS: Mapping[str, str] = MappingProxyType({"float": "fmodf", "double": "fmod"})
"""Functions of the remainder, by LLVM type."""
_SCALAR_OF = {name: scalar for scalar, name in REMAINDERS.items()}
_VECTOR_REMAINDER = re.compile(r"inlaid_(fmodf?)_(\d+)")
_PRECISION = {"float": 24, "double": 53}
"""Bits of the significand."""


def remainder_name(scalar: str, lanes: int) -> str:
    """Return the name of the function that computes remainders of scalars (`lanes` 0), as in the C library, or of vectors."""
    return f"inlaid_{REMAINDERS[scalar]}_{lanes}" if lanes else REMAINDERS[scalar]


def _vector_remainder(scalar: str, lanes: int) -> str:
    """Return the remainder of vectors, for processors with fused multiply-add.

    Let a and b be the sizes of the operands, p the bits of a significand, q the rounded quotient. Below 2^p, its integer part is
    that of the exact quotient or the next integer. Then a - trunc(q) * b is a itself or a multiple of the unit of b, and in size at
    most b: it is representable, so that a fused multiply-add computes it without rounding. If it is negative, b is added once. A
    longer q is first reduced by multiples of 2^(p-1) * b, whose quotient is 2^(1-p) * q. If any quotient is longer still, or any
    operand is special, all lanes are computed one by one.
    """
    kind, flags, precision = vector_type(scalar, lanes), vector_type("i1", lanes), _PRECISION[scalar]
    suffix = f"v{lanes}f{32 if scalar == 'float' else 64}"
    powers = (splat(f"0x{1023 + exponent << 52:016X}", scalar, lanes) for exponent in (precision, precision - 1, 1 - precision))
    limit, scale, inverse = powers
    infinity = splat(f"0x{_INFINITY:016X}", scalar, lanes)
    zero = "zeroinitializer"

    def divide(rest: str, quotient: str, divisor: str, result: str) -> str:
        return f"""\
  %{result}.times = call {kind} @llvm.trunc.{suffix}({kind} {quotient})
  %{result}.minus = fneg {kind} %{result}.times
  %{result}.rest = call {kind} @llvm.fma.{suffix}({kind} %{result}.minus, {kind} {divisor}, {kind} {rest})
  %{result}.back = fadd {kind} %{result}.rest, {divisor}
  %{result}.past = fcmp olt {kind} %{result}.rest, {zero}
  %{result} = select {flags} %{result}.past, {kind} %{result}.back, {kind} %{result}.rest
"""

    def branch(flag: str, yes: str, no: str) -> str:
        return f"""\
  %{flag}.bits = bitcast {flags} %{flag} to i{lanes}
  %{flag}.all = icmp eq i{lanes} %{flag}.bits, -1
  br i1 %{flag}.all, label %{yes}, label %{no}
"""

    one_by_one = "".join(
        f"""\
  %x{lane} = extractelement {kind} %x, i64 {lane}
  %y{lane} = extractelement {kind} %y, i64 {lane}
  %r{lane} = call {scalar} @{REMAINDERS[scalar]}({scalar} %x{lane}, {scalar} %y{lane})
  %v{lane} = insertelement {kind} {f"%v{lane - 1}" if lane else "poison"}, {scalar} %r{lane}, i64 {lane}
"""
        for lane in range(lanes)
    )
    return f"""\
declare {kind} @llvm.fabs.{suffix}({kind})
declare {kind} @llvm.trunc.{suffix}({kind})
declare {kind} @llvm.fma.{suffix}({kind}, {kind}, {kind})
declare {kind} @llvm.copysign.{suffix}({kind}, {kind})
declare hidden {scalar} @{REMAINDERS[scalar]}({scalar}, {scalar})

define hidden {kind} @{remainder_name(scalar, lanes)}({kind} %x, {kind} %y) #1 {{
entry:
  %a = call {kind} @llvm.fabs.{suffix}({kind} %x)
  %b = call {kind} @llvm.fabs.{suffix}({kind} %y)
  %quotient = fdiv {kind} %a, %b
  %short = fcmp olt {kind} %quotient, {limit}
  %finite = fcmp olt {kind} %b, {infinity}
  %near = and {flags} %short, %finite
{branch("near", "last", "twice")}twice:
  %multiple = fmul {kind} %b, {scale}
  %first.quotient = fmul {kind} %quotient, {inverse}
  %first.short = fcmp olt {kind} %first.quotient, {limit}
  %far = and {flags} %first.short, %finite
{branch("far", "first", "general")}first:
{divide("%a", "%first.quotient", "%multiple", "reduced")}\
  %dividend = select {flags} %short, {kind} %a, {kind} %reduced
  %next.quotient = fdiv {kind} %dividend, %b
  br label %last
last:
  %from = phi {kind} [ %a, %entry ], [ %dividend, %first ]
  %count = phi {kind} [ %quotient, %entry ], [ %next.quotient, %first ]
{divide("%from", "%count", "%b", "size")}\
  %result = call {kind} @llvm.copysign.{suffix}({kind} %size, {kind} %x)
  ret {kind} %result
general:
{one_by_one}  ret {kind} %v{lanes - 1}
}}"""


_FMAF = """\
; The product is exact in double. The sum is rounded to odd, so that rounding it again rounds the exact result
; (Boldo, Melquiond: Emulation of FMA, 2008).
define hidden float @fmaf(float %x, float %y, float %z) #1 {
  %wide.x = fpext float %x to double
  %wide.y = fpext float %y to double
  %wide.z = fpext float %z to double
  %product = fmul double %wide.x, %wide.y
  %sum = fadd double %product, %wide.z
  %virtual = fsub double %sum, %product
  %kept = fsub double %sum, %virtual
  %product.error = fsub double %product, %kept
  %z.error = fsub double %wide.z, %virtual
  %error = fadd double %product.error, %z.error
  %inexact = fcmp one double %error, 0.0
  %bits = bitcast double %sum to i64
  %last = and i64 %bits, 1
  %even = icmp eq i64 %last, 0
  %adjust = and i1 %inexact, %even
  %error.bits = bitcast double %error to i64
  %signs = xor i64 %bits, %error.bits
  %toward.zero = ashr i64 %signs, 63
  %direction = or i64 %toward.zero, 1
  %step = select i1 %adjust, i64 %direction, i64 0
  %odd.bits = add i64 %bits, %step
  %odd = bitcast i64 %odd.bits to double
  %result = fptrunc double %odd to float
  ret float %result
}"""

_FMA = f"""\
declare i64 @llvm.ctlz.i64(i64, i1)
declare i64 @llvm.umin.i64(i64, i64)
declare i64 @llvm.smax.i64(i64, i64)
declare i128 @llvm.ctlz.i128(i128, i1)

; Significand, with its leading bit at 52, and exponent of a finite number that is not 0.
define internal {{ i64, i64 }} @split(double %x) #1 {{
  %bits = bitcast double %x to i64
  %size = and i64 %bits, {_MAGNITUDE}
  %field = lshr i64 %size, 52
  %low = and i64 %size, {_HIDDEN - 1}
  %normal = or i64 %low, {_HIDDEN}
  %leading = call i64 @llvm.ctlz.i64(i64 %low, i1 false)
  %shift = sub i64 %leading, 11
  %raised = shl i64 %low, %shift
  %lowered = sub i64 1, %shift
  %is.subnormal = icmp eq i64 %field, 0
  %significand = select i1 %is.subnormal, i64 %raised, i64 %normal
  %biased = select i1 %is.subnormal, i64 %lowered, i64 %field
  %exponent = sub i64 %biased, 1075
  %partial = insertvalue {{ i64, i64 }} poison, i64 %significand, 0
  %both = insertvalue {{ i64, i64 }} %partial, i64 %exponent, 1
  ret {{ i64, i64 }} %both
}}

; Shift right with a sticky bit: the last bit is set if any set bit was shifted out.
define internal i128 @jam(i128 %value, i64 %wanted) #1 {{
  %count = call i64 @llvm.umin.i64(i64 %wanted, i64 127)
  %wide = zext i64 %count to i128
  %shifted = lshr i128 %value, %wide
  %back = shl i128 %shifted, %wide
  %lost = icmp ne i128 %back, %value
  %sticky = zext i1 %lost to i128
  %result = or i128 %shifted, %sticky
  ret i128 %result
}}

; Exact product and sum in 128 bits, rounded once.
define hidden double @fma(double %x, double %y, double %z) #1 {{
entry:
  %x.bits = bitcast double %x to i64
  %y.bits = bitcast double %y to i64
  %z.bits = bitcast double %z to i64
  %x.size = and i64 %x.bits, {_MAGNITUDE}
  %y.size = and i64 %y.bits, {_MAGNITUDE}
  %z.size = and i64 %z.bits, {_MAGNITUDE}
  %x.special = icmp uge i64 %x.size, {_INFINITY}
  %y.special = icmp uge i64 %y.size, {_INFINITY}
  %z.special = icmp uge i64 %z.size, {_INFINITY}
  %x.zero = icmp eq i64 %x.size, 0
  %y.zero = icmp eq i64 %y.size, 0
  %z.zero = icmp eq i64 %z.size, 0
  %plain.x = or i1 %x.special, %x.zero
  %plain.y = or i1 %y.special, %y.zero
  %plain = or i1 %plain.x, %plain.y
  br i1 %plain, label %unfused, label %finite
unfused:
  %u.product = fmul double %x, %y
  %u.sum = fadd double %u.product, %z
  ret double %u.sum
finite:
  br i1 %z.special, label %third, label %third.finite
third:
  %quiet = fadd double %z, %z
  ret double %quiet
third.finite:
  br i1 %z.zero, label %product.alone, label %exact
product.alone:
  %p.alone = fmul double %x, %y
  ret double %p.alone
exact:
  %x.parts = call {{ i64, i64 }} @split(double %x)
  %y.parts = call {{ i64, i64 }} @split(double %y)
  %z.parts = call {{ i64, i64 }} @split(double %z)
  %x.significand = extractvalue {{ i64, i64 }} %x.parts, 0
  %y.significand = extractvalue {{ i64, i64 }} %y.parts, 0
  %z.significand = extractvalue {{ i64, i64 }} %z.parts, 0
  %x.exponent = extractvalue {{ i64, i64 }} %x.parts, 1
  %y.exponent = extractvalue {{ i64, i64 }} %y.parts, 1
  %z.exponent = extractvalue {{ i64, i64 }} %z.parts, 1
  %x.wide = zext i64 %x.significand to i128
  %y.wide = zext i64 %y.significand to i128
  %z.wide = zext i64 %z.significand to i128
  %p.significand = mul i128 %x.wide, %y.wide
  ; Align both leading bits at 124 or 125, so that only bits far below the other operand are lost.
  %p.high = shl i128 %p.significand, 20
  %z.high = shl i128 %z.wide, 73
  %p.sum = add i64 %x.exponent, %y.exponent
  %p.exponent = sub i64 %p.sum, 20
  %z.low.exponent = sub i64 %z.exponent, 73
  %exponent = call i64 @llvm.smax.i64(i64 %p.exponent, i64 %z.low.exponent)
  %p.shift = sub i64 %exponent, %p.exponent
  %z.shift = sub i64 %exponent, %z.low.exponent
  %p = call i128 @jam(i128 %p.high, i64 %p.shift)
  %z.aligned = call i128 @jam(i128 %z.high, i64 %z.shift)
  %p.sign = xor i64 %x.bits, %y.bits
  %signs = xor i64 %p.sign, %z.bits
  %differ = icmp slt i64 %signs, 0
  %z.negative = sub i128 0, %z.aligned
  %addend = select i1 %differ, i128 %z.negative, i128 %z.aligned
  %total = add i128 %p, %addend
  %cancelled = icmp eq i128 %total, 0
  br i1 %cancelled, label %zero, label %round
zero:
  ret double 0.0
round:
  %flip = icmp slt i128 %total, 0
  %opposite = sub i128 0, %total
  %size = select i1 %flip, i128 %opposite, i128 %total
  %flip.bits = select i1 %flip, i64 {-1 << 63}, i64 0
  %sign.mixed = xor i64 %p.sign, %flip.bits
  %sign = and i64 %sign.mixed, {-1 << 63}
  %leading.wide = call i128 @llvm.ctlz.i128(i128 %size, i1 false)
  %leading = trunc i128 %leading.wide to i64
  %top = sub i64 127, %leading
  %magnitude = add i64 %exponent, %top
  %normal.unit = sub i64 %magnitude, 52
  %unit = call i64 @llvm.smax.i64(i64 %normal.unit, i64 -1074)
  ; Keep two bits more than the result: a guard bit and a sticky bit.
  %drop.unit = sub i64 %unit, %exponent
  %drop = sub i64 %drop.unit, 2
  %is.left = icmp slt i64 %drop, 0
  br i1 %is.left, label %left, label %right
left:
  %left.count = sub i64 0, %drop
  %left.wide = zext i64 %left.count to i128
  %left.shifted = shl i128 %size, %left.wide
  br label %rounded
right:
  %right.shifted = call i128 @jam(i128 %size, i64 %drop)
  br label %rounded
rounded:
  %extended.wide = phi i128 [ %left.shifted, %left ], [ %right.shifted, %right ]
  %extended = trunc i128 %extended.wide to i64
  %kept = lshr i64 %extended, 2
  %below = and i64 %extended, 3
  %odd = and i64 %kept, 1
  %tie.break = or i64 %below, %odd
  %above.half = icmp ugt i64 %tie.break, 2
  %at.least.half = icmp uge i64 %below, 2
  %up.bit = and i1 %above.half, %at.least.half
  %up = zext i1 %up.bit to i64
  %significand = add i64 %kept, %up
  %field = add i64 %unit, 1074
  %high = shl i64 %field, 52
  %raw = add i64 %high, %significand
  %bounded = call i64 @llvm.umin.i64(i64 %raw, i64 {_INFINITY})
  %bits = or i64 %bounded, %sign
  %result = bitcast i64 %bits to double
  ret double %result
}}"""

_DIVISION = """\
declare i128 @llvm.ctlz.i128(i128, i1)
declare i128 @llvm.abs.i128(i128, i1)

; Quotient and remainder by long division in base two: the divisor moves down from the highest bit of the dividend.
define internal { i128, i128 } @divide(i128 %x, i128 %y) #1 {
entry:
  %less = icmp ult i128 %x, %y
  br i1 %less, label %none, label %start
none:
  %zero = insertvalue { i128, i128 } zeroinitializer, i128 %x, 1
  ret { i128, i128 } %zero
start:
  %x.zeros = call i128 @llvm.ctlz.i128(i128 %x, i1 false)
  %y.zeros = call i128 @llvm.ctlz.i128(i128 %y, i1 false)
  %shift = sub i128 %y.zeros, %x.zeros
  %highest = shl i128 %y, %shift
  br label %step
step:
  %count = phi i128 [ %shift, %start ], [ %count.next, %step ]
  %divisor = phi i128 [ %highest, %start ], [ %divisor.next, %step ]
  %rest = phi i128 [ %x, %start ], [ %rest.next, %step ]
  %quotient = phi i128 [ 0, %start ], [ %quotient.next, %step ]
  %fits = icmp uge i128 %rest, %divisor
  %less.rest = sub i128 %rest, %divisor
  %rest.next = select i1 %fits, i128 %less.rest, i128 %rest
  %doubled = shl i128 %quotient, 1
  %bit = zext i1 %fits to i128
  %quotient.next = or i128 %doubled, %bit
  %divisor.next = lshr i128 %divisor, 1
  %count.next = sub i128 %count, 1
  %more = icmp sgt i128 %count, 0
  br i1 %more, label %step, label %done
done:
  %first = insertvalue { i128, i128 } zeroinitializer, i128 %quotient.next, 0
  %both = insertvalue { i128, i128 } %first, i128 %rest.next, 1
  ret { i128, i128 } %both
}
"""
_UNSIGNED = """
define hidden i128 @{symbol}(i128 %x, i128 %y) #1 {{
  %both = call {{ i128, i128 }} @divide(i128 %x, i128 %y)
  %result = extractvalue {{ i128, i128 }} %both, {part}
  ret i128 %result
}}"""
_SIGNED = """
; Rounds towards zero: the remainder has the sign of the dividend.
define hidden i128 @{symbol}(i128 %x, i128 %y) #1 {{
  %x.size = call i128 @llvm.abs.i128(i128 %x, i1 false)
  %y.size = call i128 @llvm.abs.i128(i128 %y, i1 false)
  %both = call {{ i128, i128 }} @divide(i128 %x.size, i128 %y.size)
  %size = extractvalue {{ i128, i128 }} %both, {part}
  %signs = xor i128 %x, %y
  %remainder = icmp eq i32 {part}, 1
  %sign = select i1 %remainder, i128 %x, i128 %signs
  %negative = icmp slt i128 %sign, 0
  %opposite = sub i128 0, %size
  %result = select i1 %negative, i128 %opposite, i128 %size
  ret i128 %result
}}"""
