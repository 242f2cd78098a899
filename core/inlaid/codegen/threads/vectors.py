"""Print vector arithmetic with the semantics of `inlaid.tensor.ir`.

Every value is assigned to a variable, so that an expression may repeat its operands. A bool is a mask (see `ThreadDialect`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from inlaid.codegen import c_values
from inlaid.codegen.c_values import ATOM, Text
from inlaid.codegen.threads.dialect import ThreadDialect
from inlaid_runtime.execution.launches import BUFFER_ALIGNMENT
from inlaid_runtime.types import DType, dtype

_SYMBOLS = {"add": "+", "sub": "-", "mul": "*", "div": "/", "and": "&", "or": "|", "xor": "^"}
_COMPARED = {"lt": "<", "le": "<=", "eq": "==", "ne": "!="}
_BOOL_OPERATIONS = {
    **dict.fromkeys(("add", "or", "max"), "{a} | {b}"),
    **dict.fromkeys(("mul", "and", "min"), "{a} & {b}"),
    **dict.fromkeys(("sub", "xor", "ne"), "{a} ^ {b}"),
    "eq": "~({a} ^ {b})",
    "lt": "~{a} & {b}",
    "le": "~{a} | {b}",
}
_BOOL = dtype("bool")
VECTOR_BYTES = BUFFER_ALIGNMENT
"""Maximum bytes of one load or store, and the alignment of buffers."""


@dataclass(frozen=True)
class Wide(Text):
    """Text of a vector value. `mask`: lane width of a bool in bits, 0 for other dtypes."""

    lanes: int = 0
    mask: int = 0


def signed(bits: int) -> DType:
    """Return the signed integer dtype of a width in bits."""
    return dtype(f"int{bits}")


def unsigned(bits: int) -> DType:
    """Return the unsigned integer dtype of a width in bits."""
    return dtype(f"uint{bits}")


class Vectors:
    """Prints vector operations. `name(type, code)` assigns an expression to a new variable and returns its name."""

    def __init__(self, dialect: ThreadDialect, name: Callable[[str, str], str]) -> None:
        self.dialect = dialect
        self._name = name

    def value(self, code: str, dtype: DType, lanes: int) -> Wide:
        """Assign a non-bool vector expression to a variable."""
        return Wide(self._name(self.dialect.vector(dtype, lanes), code), ATOM, lanes=lanes)

    def mask(self, code: str, bits: int, lanes: int) -> Wide:
        """Assign a mask expression to a variable."""
        return Wide(self._name(self.dialect.vector(signed(bits), lanes), code), ATOM, lanes=lanes, mask=bits)

    def number(self, value: float, dtype: DType, lanes: int) -> str:
        """Print the broadcast of a constant."""
        return self.dialect.splat(c_values.literal(value, dtype), dtype, lanes)

    def widen(self, text: Text, dtype: DType, lanes: int) -> Wide:
        """Broadcast a scalar; vectors are returned unchanged."""
        if isinstance(text, Wide):
            return text
        if dtype is not _BOOL:
            return Wide(self.dialect.splat(text.code, dtype, lanes), ATOM, lanes=lanes)
        return self.mask(self.dialect.splat(f"-(int){text.atom}", signed(32), lanes), 32, lanes)

    def as_wide(self, mask: Wide, bits: int) -> Wide:
        """Convert a mask to another lane width."""
        if mask.mask == bits:
            return mask
        return self.mask(self.dialect.convert(mask.code, signed(mask.mask), signed(bits), mask.lanes), bits, mask.lanes)

    def choose(self, flag: Wide, a: Wide, b: Wide, dtype: DType) -> Wide:
        """Print a lane-wise select: `a` in lanes where `flag` is set, else `b`."""
        if dtype is _BOOL:
            bits = min(a.mask, b.mask)
            one, two, flag = (self.as_wide(item, bits) for item in (a, b, flag))
            return self.mask(self.dialect.choose(flag.code, one.code, two.code), bits, flag.lanes)
        return self.value(self.dialect.choose(self.as_wide(flag, dtype.bits).code, a.code, b.code), dtype, flag.lanes)

    def both(self, a: Wide, b: Wide) -> Wide:
        """Print the conjunction of two masks."""
        return self._bool_operation("and", a, b)

    def opposite(self, mask: Wide) -> Wide:
        """Print the negation of a mask."""
        return self.mask(f"~{mask.code}", mask.mask, mask.lanes)

    def any(self, mask: Wide) -> str:
        """Test whether any lane is set."""
        return self.dialect.any(self.as_wide(mask, 8).code, mask.lanes)

    def all(self, mask: Wide) -> str:
        """Test whether all lanes are set."""
        return self.dialect.all(self.as_wide(mask, 8).code, mask.lanes)

    def stored(self, value: Wide, dtype: DType) -> str:
        """Convert a value to its memory representation: a bool becomes a byte of 0 or 1."""
        if dtype is not _BOOL:
            return value.code
        mask = self.as_wide(value, 8)
        return f"{self.dialect.reinterpret(mask.code, unsigned(8), value.lanes)} & {self.number(1, unsigned(8), value.lanes)}"

    def loaded(self, code: str, dtype: DType, lanes: int) -> Wide:
        """Convert the memory representation of a value to the value: a bool becomes a mask."""
        if dtype is not _BOOL:
            return self.value(code, dtype, lanes)
        return self.mask(f"{code} != {self.number(0, unsigned(8), lanes)}", 8, lanes)

    # --- operations ---

    def binary(self, op: str, a: Wide, b: Wide, dtype: DType, shift: bool = False, divides: bool = False) -> Wide:
        """Print `op` of `ir.BINARY`. `shift`: the count is proved in [0, width); `divides`: the divisor is proved not 0 or -1."""
        if dtype is _BOOL:
            return self._bool_operation(op, a, b)
        lanes = a.lanes
        if op in _COMPARED:
            return self.mask(f"{a.code} {_COMPARED[op]} {b.code}", dtype.bits, lanes)
        if op in ("min", "max"):
            return self._extreme(op, a, b, dtype)
        if dtype.is_float:
            if op == "mod":
                return self.value(self.dialect.call("fmod", (a.code, b.code), dtype, lanes), dtype, lanes)
            return self.value(f"{a.code} {_SYMBOLS[op]} {b.code}", dtype, lanes)
        if op in ("div", "mod"):
            return self._divide(op, a, b, dtype, divides)
        if op in ("shl", "shr"):
            return self._shift(op, a, b, dtype, shift)
        if dtype.kind == "uint" or op in ("and", "or", "xor"):
            return self.value(f"{a.code} {_SYMBOLS[op]} {b.code}", dtype, lanes)
        return self.value(
            self._wrapping(f"{self._bits(a, dtype)} {_SYMBOLS[op]} {self._bits(b, dtype)}", dtype, lanes), dtype, lanes
        )

    def _bool_operation(self, op: str, a: Wide, b: Wide) -> Wide:
        bits = min(a.mask, b.mask)
        one, two = self.as_wide(a, bits), self.as_wide(b, bits)
        return self.mask(_BOOL_OPERATIONS[op].format(a=one.code, b=two.code), bits, a.lanes)

    def _bits(self, a: Wide, dtype: DType) -> str:
        return self.dialect.reinterpret(a.code, unsigned(dtype.bits), a.lanes)

    def _wrapping(self, code: str, dtype: DType, lanes: int) -> str:
        return self.dialect.reinterpret(code, dtype, lanes)

    def _extreme(self, op: str, a: Wide, b: Wide, dtype: DType) -> Wide:
        """Print min or max; NaN-propagating for floats."""
        if a.number:
            a, b = b, a
        symbol, choose = "<" if op == "min" else ">", self.dialect.choose
        if not dtype.is_float:
            return self.value(choose(f"{a.code} {symbol} {b.code}", a.code, b.code), dtype, a.lanes)
        if b.number:
            return self.value(choose(f"{b.code} {symbol} {a.code}", b.code, a.code), dtype, a.lanes)
        return self.value(choose(f"(({a.code} {symbol} {b.code}) | ({a.code} != {a.code}))", a.code, b.code), dtype, a.lanes)

    def _divide(self, op: str, a: Wide, b: Wide, dtype: DType, divides: bool) -> Wide:
        lanes, symbol, choose = a.lanes, "/" if op == "div" else "%", self.dialect.choose
        if divides:
            return self.value(f"{a.code} {symbol} {b.code}", dtype, lanes)
        zero, one = self.number(0, dtype, lanes), self.number(1, dtype, lanes)
        is_zero = self.mask(f"{b.code} == {zero}", dtype.bits, lanes)
        if dtype.kind == "uint":
            ratio = self.value(f"{a.code} {symbol} ({choose(is_zero.code, one, b.code)})", dtype, lanes)
            return self.value(choose(is_zero.code, zero, ratio.code), dtype, lanes)
        is_minus_one = self.mask(f"{b.code} == {self.number(-1, dtype, lanes)}", dtype.bits, lanes)
        ratio = self.value(f"{a.code} {symbol} ({choose(f'({is_zero.code} | {is_minus_one.code})', one, b.code)})", dtype, lanes)
        if op == "mod":
            return ratio
        signed_ratio = self.value(choose(is_minus_one.code, self.unary("neg", a, dtype).code, ratio.code), dtype, lanes)
        return self.value(choose(is_zero.code, zero, signed_ratio.code), dtype, lanes)

    def _shift(self, op: str, a: Wide, b: Wide, dtype: DType, inside: bool) -> Wide:
        lanes, symbol = a.lanes, "<<" if op == "shl" else ">>"
        if not inside:
            fits = self.mask(f"{self._bits(b, dtype)} < {self.number(dtype.bits, unsigned(dtype.bits), lanes)}", dtype.bits, lanes)
            beyond = self.number(dtype.bits - 1 if op == "shr" and dtype.kind == "int" else 0, dtype, lanes)
            b = self.value(self.dialect.choose(fits.code, b.code, beyond), dtype, lanes)
        if op == "shl" and dtype.kind == "int":
            shifted = self.value(self._wrapping(f"{self._bits(a, dtype)} << {self._bits(b, dtype)}", dtype, lanes), dtype, lanes)
        else:
            shifted = self.value(f"{a.code} {symbol} {b.code}", dtype, lanes)
        if inside or (op == "shr" and dtype.kind == "int"):
            return shifted
        return self.value(self.dialect.choose(fits.code, shifted.code, self.number(0, dtype, lanes)), dtype, lanes)

    def fused(self, form: str, args: Sequence[Wide], dtype: DType) -> Wide:
        """Print a sum with a product by the pattern `form`, such as `{a} * {b} + {c}`, which the compiler may contract to an
        FMA."""
        a, b, c = args
        return self.value(form.format(a=a.code, b=b.code, c=c.code), dtype, a.lanes)

    def fma(self, args: Sequence[Wide], dtype: DType) -> Wide:
        """Print a * b + c, rounded once."""
        a, b, c = args
        if not dtype.is_float:
            return self.binary("add", self.binary("mul", a, b, dtype), c, dtype)
        return self.value(self.dialect.call("fma", (a.code, b.code, c.code), dtype, a.lanes), dtype, a.lanes)

    def unary(self, op: str, a: Wide, dtype: DType) -> Wide:
        """Print `op` of `ir.UNARY`."""
        lanes = a.lanes
        match op:
            case "isnan":
                return self.mask(f"{a.code} != {a.code}", dtype.bits, lanes)
            case "isinf":
                return self.mask(f"{self._magnitude(a, dtype)} == {self.number(float('inf'), dtype, lanes)}", dtype.bits, lanes)
            case "not":
                return self.opposite(a) if dtype is _BOOL else self.value(f"~{a.code}", dtype, lanes)
            case "neg" if dtype.is_float:
                return self.value(f"-{a.code}", dtype, lanes)
            case "neg":
                zero = self.number(0, unsigned(dtype.bits), lanes)
                return self.value(self._wrapping(f"{zero} - {self._bits(a, dtype)}", dtype, lanes), dtype, lanes)
            case "abs" if dtype.is_float:
                return self.value(self._magnitude(a, dtype), dtype, lanes)
            case "abs" if dtype.kind == "int":
                negated = self.unary("neg", a, dtype)
                return self.value(
                    self.dialect.choose(f"{a.code} < {self.number(0, dtype, lanes)}", negated.code, a.code), dtype, lanes
                )
            case "popcount" | "clz":
                return self.value(self.dialect.call(op, (a.code,), dtype, lanes), dtype, lanes)
        return self.value(self.dialect.call(op, (a.code,), dtype, lanes), dtype, lanes) if dtype.is_float else a

    def _magnitude(self, a: Wide, dtype: DType) -> str:
        magnitude_bits = self.number((1 << (dtype.bits - 1)) - 1, unsigned(dtype.bits), a.lanes)
        return self._wrapping(f"({self._bits(a, dtype)} & {magnitude_bits})", dtype, a.lanes)

    def reinterpret(self, a: Wide, target: DType) -> Wide:
        """Print a bitcast to a dtype of the same width."""
        return self.value(self.dialect.reinterpret(a.code, target, a.lanes), target, a.lanes)

    def convert(self, a: Wide, source: DType, target: DType) -> Wide:
        """Convert between dtypes."""
        lanes = a.lanes
        if target is _BOOL:
            return a if source is _BOOL else self.mask(f"{a.code} != {self.number(0, source, lanes)}", source.bits, lanes)
        if source is _BOOL:
            kind = signed(32 if target.is_float else target.bits)
            return self._converted(self.value(f"-{self.as_wide(a, kind.bits).code}", kind, lanes), kind, target)
        if source.is_float and target.is_int:
            return self._saturated(a, source, target)
        return self._converted(a, source, target)

    def _converted(self, a: Wide, source: DType, target: DType) -> Wide:
        return a if source is target else self.value(self.dialect.convert(a.code, source, target, a.lanes), target, a.lanes)

    def _saturated(self, a: Wide, source: DType, target: DType) -> Wide:
        """Print a saturating float-to-integer conversion; NaN becomes 0."""
        lanes, (low, high), choose = a.lanes, target.limits, self.dialect.choose
        if target.kind == "int":
            a = self.value(choose(f"{a.code} == {a.code}", a.code, self.number(0.0, source, lanes)), source, lanes)
        bottom = self.number(float(low), source, lanes)
        a = self.value(choose(f"{a.code} > {bottom}", a.code, bottom), source, lanes)
        if target.bits < 32:
            top = self.number(float(high), source, lanes)
            a = self.value(choose(f"{a.code} < {top}", a.code, top), source, lanes)
            return self._converted(self._converted(a, source, signed(32)), signed(32), target)
        inside = self.mask(f"{a.code} < {self.number(float(high + 1), source, lanes)}", source.bits, lanes)
        a = self.value(choose(inside.code, a.code, bottom), source, lanes)
        integer = self._converted(a, source, target)
        flag = self.as_wide(inside, target.bits)
        return self.value(choose(flag.code, integer.code, self.number(int(high), target, lanes)), target, lanes)
