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
_OF_BOOLS = {
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

    def value(self, code: str, of: DType, lanes: int) -> Wide:
        """Assign a non-bool vector expression to a variable."""
        return Wide(self._name(self.dialect.vector(of, lanes), code), ATOM, lanes=lanes)

    def mask(self, code: str, bits: int, lanes: int) -> Wide:
        """Assign a mask expression to a variable."""
        return Wide(self._name(self.dialect.vector(signed(bits), lanes), code), ATOM, lanes=lanes, mask=bits)

    def number(self, value: float, of: DType, lanes: int) -> str:
        """Print the broadcast of a constant."""
        return self.dialect.splat(c_values.literal(value, of), of, lanes)

    def widen(self, text: Text, of: DType, lanes: int) -> Wide:
        """Broadcast a scalar; vectors are returned unchanged."""
        if isinstance(text, Wide):
            return text
        if of is not _BOOL:
            return Wide(self.dialect.splat(text.code, of, lanes), ATOM, lanes=lanes)
        return self.mask(self.dialect.splat(f"-(int){text.atom}", signed(32), lanes), 32, lanes)

    def as_wide(self, mask: Wide, bits: int) -> Wide:
        """Convert a mask to another lane width."""
        if mask.mask == bits:
            return mask
        return self.mask(self.dialect.convert(mask.code, signed(mask.mask), signed(bits), mask.lanes), bits, mask.lanes)

    def choose(self, flag: Wide, a: Wide, b: Wide, of: DType) -> Wide:
        """Print a lane-wise select: `a` in lanes where `flag` is set, else `b`."""
        if of is _BOOL:
            bits = min(a.mask, b.mask)
            one, two, flag = (self.as_wide(item, bits) for item in (a, b, flag))
            return self.mask(self.dialect.choose(flag.code, one.code, two.code), bits, flag.lanes)
        return self.value(self.dialect.choose(self.as_wide(flag, of.bits).code, a.code, b.code), of, flag.lanes)

    def both(self, a: Wide, b: Wide) -> Wide:
        """Print the conjunction of two masks."""
        return self._of_bools("and", a, b)

    def opposite(self, mask: Wide) -> Wide:
        """Print the negation of a mask."""
        return self.mask(f"~{mask.code}", mask.mask, mask.lanes)

    def any(self, mask: Wide) -> str:
        """Test whether any lane is set."""
        return self.dialect.any(self.as_wide(mask, 8).code, mask.lanes)

    def all(self, mask: Wide) -> str:
        """Test whether all lanes are set."""
        return self.dialect.all(self.as_wide(mask, 8).code, mask.lanes)

    def stored(self, value: Wide, of: DType) -> str:
        """Convert a value to its memory representation: a bool becomes a byte of 0 or 1."""
        if of is not _BOOL:
            return value.code
        mask = self.as_wide(value, 8)
        return f"{self.dialect.reinterpret(mask.code, unsigned(8), value.lanes)} & {self.number(1, unsigned(8), value.lanes)}"

    def loaded(self, code: str, of: DType, lanes: int) -> Wide:
        """Convert the memory representation of a value to the value: a bool becomes a mask."""
        if of is not _BOOL:
            return self.value(code, of, lanes)
        return self.mask(f"{code} != {self.number(0, unsigned(8), lanes)}", 8, lanes)

    # --- operations ---

    def binary(self, op: str, a: Wide, b: Wide, of: DType, shift: bool = False, divides: bool = False) -> Wide:
        """Print `op` of `ir.BINARY`. `shift`: the count is proved in [0, width); `divides`: the divisor is proved not 0 or -1."""
        if of is _BOOL:
            return self._of_bools(op, a, b)
        lanes = a.lanes
        if op in _COMPARED:
            return self.mask(f"{a.code} {_COMPARED[op]} {b.code}", of.bits, lanes)
        if op in ("min", "max"):
            return self._extreme(op, a, b, of)
        if of.is_float:
            if op == "mod":
                return self.value(self.dialect.call("fmod", (a.code, b.code), of, lanes), of, lanes)
            return self.value(f"{a.code} {_SYMBOLS[op]} {b.code}", of, lanes)
        if op in ("div", "mod"):
            return self._divide(op, a, b, of, divides)
        if op in ("shl", "shr"):
            return self._shift(op, a, b, of, shift)
        if of.kind == "uint" or op in ("and", "or", "xor"):
            return self.value(f"{a.code} {_SYMBOLS[op]} {b.code}", of, lanes)
        return self.value(self._wrapping(f"{self._bits(a, of)} {_SYMBOLS[op]} {self._bits(b, of)}", of, lanes), of, lanes)

    def _of_bools(self, op: str, a: Wide, b: Wide) -> Wide:
        bits = min(a.mask, b.mask)
        one, two = self.as_wide(a, bits), self.as_wide(b, bits)
        return self.mask(_OF_BOOLS[op].format(a=one.code, b=two.code), bits, a.lanes)

    def _bits(self, a: Wide, of: DType) -> str:
        return self.dialect.reinterpret(a.code, unsigned(of.bits), a.lanes)

    def _wrapping(self, code: str, of: DType, lanes: int) -> str:
        return self.dialect.reinterpret(code, of, lanes)

    def _extreme(self, op: str, a: Wide, b: Wide, of: DType) -> Wide:
        """Print min or max; NaN-propagating for floats."""
        if a.number:
            a, b = b, a
        symbol, choose = "<" if op == "min" else ">", self.dialect.choose
        if not of.is_float:
            return self.value(choose(f"{a.code} {symbol} {b.code}", a.code, b.code), of, a.lanes)
        if b.number:
            return self.value(choose(f"{b.code} {symbol} {a.code}", b.code, a.code), of, a.lanes)
        return self.value(choose(f"(({a.code} {symbol} {b.code}) | ({a.code} != {a.code}))", a.code, b.code), of, a.lanes)

    def _divide(self, op: str, a: Wide, b: Wide, of: DType, divides: bool) -> Wide:
        lanes, symbol, choose = a.lanes, "/" if op == "div" else "%", self.dialect.choose
        if divides:
            return self.value(f"{a.code} {symbol} {b.code}", of, lanes)
        zero, one = self.number(0, of, lanes), self.number(1, of, lanes)
        none = self.mask(f"{b.code} == {zero}", of.bits, lanes)
        if of.kind == "uint":
            ratio = self.value(f"{a.code} {symbol} ({choose(none.code, one, b.code)})", of, lanes)
            return self.value(choose(none.code, zero, ratio.code), of, lanes)
        negates = self.mask(f"{b.code} == {self.number(-1, of, lanes)}", of.bits, lanes)
        ratio = self.value(f"{a.code} {symbol} ({choose(f'({none.code} | {negates.code})', one, b.code)})", of, lanes)
        if op == "mod":
            return ratio
        signed_ratio = self.value(choose(negates.code, self.unary("neg", a, of).code, ratio.code), of, lanes)
        return self.value(choose(none.code, zero, signed_ratio.code), of, lanes)

    def _shift(self, op: str, a: Wide, b: Wide, of: DType, inside: bool) -> Wide:
        lanes, symbol = a.lanes, "<<" if op == "shl" else ">>"
        if not inside:
            fits = self.mask(f"{self._bits(b, of)} < {self.number(of.bits, unsigned(of.bits), lanes)}", of.bits, lanes)
            beyond = self.number(of.bits - 1 if op == "shr" and of.kind == "int" else 0, of, lanes)
            b = self.value(self.dialect.choose(fits.code, b.code, beyond), of, lanes)
        if op == "shl" and of.kind == "int":
            shifted = self.value(self._wrapping(f"{self._bits(a, of)} << {self._bits(b, of)}", of, lanes), of, lanes)
        else:
            shifted = self.value(f"{a.code} {symbol} {b.code}", of, lanes)
        if inside or (op == "shr" and of.kind == "int"):
            return shifted
        return self.value(self.dialect.choose(fits.code, shifted.code, self.number(0, of, lanes)), of, lanes)

    def fused(self, form: str, args: Sequence[Wide], of: DType) -> Wide:
        """Print a * b + c in a `form` of `_FUSED`, which the compiler may contract to an FMA."""
        a, b, c = args
        return self.value(form.format(a=a.code, b=b.code, c=c.code), of, a.lanes)

    def fma(self, args: Sequence[Wide], of: DType) -> Wide:
        """Print a * b + c, rounded once."""
        a, b, c = args
        if not of.is_float:
            return self.binary("add", self.binary("mul", a, b, of), c, of)
        return self.value(self.dialect.call("fma", (a.code, b.code, c.code), of, a.lanes), of, a.lanes)

    def unary(self, op: str, a: Wide, of: DType) -> Wide:
        """Print `op` of `ir.UNARY`."""
        lanes = a.lanes
        match op:
            case "isnan":
                return self.mask(f"{a.code} != {a.code}", of.bits, lanes)
            case "isinf":
                return self.mask(f"{self._magnitude(a, of)} == {self.number(float('inf'), of, lanes)}", of.bits, lanes)
            case "not":
                return self.opposite(a) if of is _BOOL else self.value(f"~{a.code}", of, lanes)
            case "neg" if of.is_float:
                return self.value(f"-{a.code}", of, lanes)
            case "neg":
                zero = self.number(0, unsigned(of.bits), lanes)
                return self.value(self._wrapping(f"{zero} - {self._bits(a, of)}", of, lanes), of, lanes)
            case "abs" if of.is_float:
                return self.value(self._magnitude(a, of), of, lanes)
            case "abs" if of.kind == "int":
                negated = self.unary("neg", a, of)
                return self.value(self.dialect.choose(f"{a.code} < {self.number(0, of, lanes)}", negated.code, a.code), of, lanes)
            case "popcount" | "clz":
                return self.value(self.dialect.call(op, (a.code,), of, lanes), of, lanes)
        return self.value(self.dialect.call(op, (a.code,), of, lanes), of, lanes) if of.is_float else a

    def _magnitude(self, a: Wide, of: DType) -> str:
        rest = self.number((1 << (of.bits - 1)) - 1, unsigned(of.bits), a.lanes)
        return self._wrapping(f"({self._bits(a, of)} & {rest})", of, a.lanes)

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
        whole = self._converted(a, source, target)
        flag = self.as_wide(inside, target.bits)
        return self.value(choose(flag.code, whole.code, self.number(int(high), target, lanes)), target, lanes)
