"""Floating-point formats for mathematical functions, and operations that several functions share."""

from __future__ import annotations

from collections.abc import Sequence

from inlaid.tensor import ir
from inlaid.tensor.ir import Expr, bitcast, const, fma, select
from inlaid_runtime.records import dataclass
from inlaid_runtime.types import DType, dtype


@dataclass(frozen=True)
class Format:
    """A binary format: float32 or float64.

    digits
        Number of stored significand bits.
    bias
        Exponent bias.
    ln2
        ln(2) as a number of the format, and the rounding error of that number.
    ln2_short
        Like `ln2`, but the first has enough trailing zero bits that its product with an exponent is exact.
    """

    dtype: DType
    integer: DType
    digits: int
    bias: int
    ln2: tuple[float, float]
    ln2_short: tuple[float, float]

    @property
    def magic(self) -> float:
        """The number 1.5 times the power of two above which the format represents only integers. Adding it rounds a number to an
        integer, which is then in the low bits of the sum."""
        return 1.5 * 2.0**self.digits

    @property
    def magic_bits(self) -> int:
        """The bit pattern of `magic`."""
        return ((self.bias + self.digits) << self.digits) | (1 << (self.digits - 1))

    @property
    def unsigned(self) -> DType:
        """The unsigned integer type of the format's width."""
        return dtype(f"u{self.integer.name}")

    @property
    def falling(self) -> int:
        """An offset such that 2 ** (n + offset) is normal for every n <= 0 with 2 ** n nonzero."""
        return (self.bias + 1) // 2

    @property
    def least_normal(self) -> float:
        """The smallest positive normal number."""
        return 2.0 ** (1 - self.bias)

    @property
    def tiny(self) -> float:
        """The limit below which x and x + x^2 / 2 agree to within half a unit in the last place."""
        return 2.0 ** -(self.digits + 2)


FLOAT32 = Format(
    dtype("float32"),
    dtype("int32"),
    23,
    127,
    (0.693147182464599609375, -1.9046542121259336e-09),
    (0.693145751953125, 1.428606765330187e-06),
)
FLOAT64 = Format(
    dtype("float64"),
    dtype("int64"),
    52,
    1023,
    (0.6931471805599453, 2.3190468138462996e-17),
    (0.693147180559663, 2.8235290563031577e-13),
)
INFINITY = float("inf")
NAN = float("nan")


def horner(x: Expr, coefficients: Sequence[float]) -> Expr:
    """Evaluate a polynomial by Horner's rule. `coefficients` are ordered from the lowest power."""
    value: Expr = const(coefficients[-1], x.dtype)
    for coefficient in reversed(coefficients[:-1]):
        value = fma(value, x, const(coefficient, x.dtype))
    return value


def nearest(x: Expr, form: Format) -> tuple[Expr, Expr]:
    """Round x to an integer. |x| must be below a quarter of `magic`. Returns the result as a float, and as an integer."""
    shifted = x + form.magic
    return shifted - form.magic, bitcast(shifted, form.integer) - form.magic_bits


def to_float(n: Expr, form: Format) -> Expr:
    """Convert a small integer of the format's width to a float."""
    return bitcast(n + form.magic_bits, form.dtype) - form.magic


def exponent(x: Expr, form: Format, ahead: int = 0) -> tuple[Expr, Expr]:
    """Round x to an integer n. |x| must be below a quarter of `magic`. Returns n as a float, and 2 ** (n + ahead), normal."""
    shifted = x + (form.magic + form.bias + ahead)
    return shifted - (form.magic + form.bias + ahead), _power(bitcast(shifted, form.integer), form)


def _power(bits: Expr, form: Format) -> Expr:
    """Return the power of two whose biased exponent is in the low bits of an integer."""
    return bitcast(bits << form.digits, form.dtype)


def scale(x: Expr, n: Expr, form: Format) -> Expr:
    """Compute x * 2 ** n for x near 1 and an integral float n, rounded once even if the result is infinite or denormal. Saves a
    multiplication if n comes from `exponent` with `ahead` = `falling`, since then n <= 0."""
    match n:
        case ir.Binary(op="sub", a=shifted, b=ir.Const(value=value)) if value == form.magic + form.bias + form.falling:
            return x * _power(bitcast(shifted, form.integer), form) * 2.0**-form.falling
        case ir.Binary(op="sub", a=shifted, b=ir.Const(value=value)) if value == form.magic + 2 * form.bias:
            pass
        case _:
            shifted = n + (form.magic + 2 * form.bias)
    # The low bits hold the sum of two biased exponents. The bits of `magic` above them are shifted out to the left.
    exponent_sum = bitcast(shifted, form.unsigned)
    half = exponent_sum >> 1
    return x * _power(half, form) * _power(exponent_sum - half, form)


def magnitude(x: Expr) -> Expr:
    """Compute |x|."""
    return ir.unary("abs", x)


def copysign(x: Expr, sign: Expr, form: Format) -> Expr:
    """Copy the sign of `sign` to a non-negative x."""
    return bitcast(bitcast(x, form.integer) | _sign(sign, form), form.dtype)


def xor_sign(x: Expr, sign: Expr, form: Format) -> Expr:
    """Negate x if `sign` is negative (including -0)."""
    return bitcast(bitcast(x, form.integer) ^ _sign(sign, form), form.dtype)


def _sign(x: Expr, form: Format) -> Expr:
    """Return the sign bit of a number."""
    return bitcast(x, form.integer) & const(-1 << (form.dtype.bits - 1), form.integer)


def clamp_max(x: Expr, limit: float) -> Expr:
    """Return the smaller of x and `limit`; NaN if x is NaN."""
    return select(const(limit, x.dtype) < x, const(limit, x.dtype), x)


def clamp_min(x: Expr, limit: float) -> Expr:
    """Return the larger of x and `limit`; NaN if x is NaN."""
    return select(x < const(limit, x.dtype), const(limit, x.dtype), x)


def where_tiny(x: Expr, form: Format, otherwise: Expr) -> Expr:
    """Return x if |x| < `form.tiny` (including zeros and denormals), else `otherwise`: for a function with f(x) = x + O(x^2), such
    an x is its own result."""
    return select(magnitude(x) < form.tiny, x, otherwise)


def two_sum(a: Expr, b: Expr) -> tuple[Expr, Expr]:
    """Compute a + b and its rounding error (Knuth, The Art of Computer Programming, volume 2, 4.2.2)."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


def quick_two_sum(a: Expr, b: Expr) -> tuple[Expr, Expr]:
    """Compute a + b and its rounding error, for |a| >= |b| (Dekker, 1971)."""
    total = a + b
    return total, b - (total - a)


def two_product(a: Expr, b: Expr) -> tuple[Expr, Expr]:
    """Compute a * b and its rounding error."""
    product = a * b
    return product, fma(a, b, -product)
