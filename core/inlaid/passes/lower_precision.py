"""Lower a float32 model to mixed precision: multiply in bfloat16, accumulate in float32, store activations in bfloat16.

`lower_precision` rounds the operands of convolutions and matrix products to bfloat16; weights are rounded at compile time, since
casts of constants fold. If a product, or an operator that only moves elements (concatenation, pooling), reads a value, the value is
rounded for all readers, so that it is stored once, in half the bytes:

    conv -> add -> relu -> conv          conv -> add -> relu -> cast bfloat16 -> conv
                    |               =>                                |
                    +----> add                                        +-> cast float32 -> add

The casts are element-wise and fuse into the kernels on either side. All other operators compute in float32. Division by a constant
becomes multiplication, and `erf`, the main cost of a GELU, becomes a polynomial. These values stay float32:
* inputs and results of the model and of loops;
* values read only by element-wise operators and reductions, such as residual sums before a normalization;
* operands of an exponential (softmax scores), which amplifies an error in proportion to its argument;
* values that are compared, sorted or rounded to integers.

Tolerance. Rounding to bfloat16 has a relative error of at most u = 2^-8, and of at most u / sqrt(3) in root mean square. In a sum
of products both factors are rounded and the errors are nearly independent: the relative error is sqrt(2/3) u of the root mean
square of the sum, and sqrt(2/3 k) u after k consecutive products. The tolerance of an output element, relative to the greatest
element, is three times that: 3 sqrt(2/3 k) 2^-8, 1 % for one product, 7 % for fifty. A convolution by Winograd tiles in bfloat16
(`schedules.choose_convolution`) rounds transformed operands again: its error is 1.8 times that of a direct one, which
the factor of three covers.

The bfloat16 instructions of processors flush denormals (below 2^-126) to zero, so values rounded to bfloat16 may be flushed. NaN
and infinities are preserved, except that a Winograd tile that reads one may have NaN in all its outputs.

Depthwise convolutions stay in float32: with one input channel per group there is nothing for a dot-product instruction to sum.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from functools import partial

import numpy as np

from inlaid import ops
from inlaid.graph.ir import Call, Constant, Expr, Function, call, children, constant, operator_traits, post_order
from inlaid.graph.operator import Choice, ErrorPropagation, Operator
from inlaid.graph.transform import transform_function
from inlaid.ops.compose import cast_to, scalar
from inlaid.ops.elementwise import add, clip, mul
from inlaid_runtime.types import TensorType

NARROW, WIDE = "bfloat16", "float32"

_narrowed = partial(ops.cast, dtype=NARROW, denormals=False)
_PRODUCTS = (ops.conv, ops.conv_transpose, ops.matmul)
ERF_LIMIT = 3.0
ERF = (
    1.1278634071350098,
    -0.37307363748550415,
    0.10750048607587814,
    -0.022556142881512642,
    0.0032795618753880262,
    -0.00030833607888780534,
    1.6654868886689655e-05,
    -3.893660220910533e-07,
)
"""Coefficients of erf(x) / x as a polynomial in x^2 for |x| <= `ERF_LIMIT`. The absolute error of erf is 2^-13.4; the value at the
limit is at least 1, so that clipping gives 1 beyond it. Fitted by weighted least squares (Lawson's algorithm)."""


def lower_precision(target: Function) -> Function:
    """Rewrite float32 products to bfloat16, as the module's docstring describes. The function's type is unchanged."""
    plan = _PrecisionPlan(target)

    def visit(old: Expr, new: Expr) -> Expr:
        if _is_product(old):
            assert isinstance(new, Call)
            new = _with_narrow_operands(new, dataclasses.replace(new.attrs, out_dtype=WIDE))
        elif isinstance(new, Call) and new.callee is ops.div and _is_wide(new):
            new = _times_reciprocal(new)
        elif isinstance(new, Call) and new.callee is ops.erf and plan.may_be_rounded(old):
            new = _rough_erf(new)
        elif plan.computes_narrow(old):
            assert isinstance(new, Call)
            return cast_to(_with_narrow_operands(new, new.attrs), WIDE)
        return cast_to(_narrowed(new), WIDE) if plan.stored_narrow(old) else new

    return transform_function(target, visit)


def _times_reciprocal(new: Call) -> Expr:
    """Rewrite a division by a constant to a multiplication if that adds at most one float32 rounding."""
    divisor = new.args[1]
    if not isinstance(divisor, Constant):
        return new
    with np.errstate(divide="ignore", over="ignore"):
        reciprocal = 1 / divisor.data
    if not np.all(np.isfinite(reciprocal) & (np.abs(reciprocal) >= np.finfo(np.float32).tiny)):
        return new
    return mul(new.args[0], constant(reciprocal, span=divisor.span), span=new.span)


def _rough_erf(new: Call) -> Expr:
    """Approximate erf with an absolute error of 2^-13; exact at infinities."""
    x = clip(new.args[0], minimum=-ERF_LIMIT, maximum=ERF_LIMIT, span=new.span)
    square = mul(x, x, span=new.span)
    total: Expr = scalar(ERF[-1], WIDE)
    for coefficient in ERF[-2::-1]:
        total = add(mul(total, square, span=new.span), scalar(coefficient, WIDE), span=new.span)
    return clip(mul(total, x, span=new.span), minimum=-1.0, maximum=1.0, span=new.span)


def _with_narrow_operands(new: Call, attrs: object) -> Expr:
    """Cast the float32 operands of a call to bfloat16. Simplification removes pairs of casts."""
    return call(new.callee, [_narrowed(arg) if _is_wide(arg) else arg for arg in new.args], attrs, new.span)  # type: ignore[arg-type]


class _PrecisionPlan:
    """Decides the storage dtype of each value of a function, from results to inputs."""

    def __init__(self, target: Function) -> None:
        order = list(post_order(target))
        readers: dict[int, list[Expr]] = {id(expr): [] for expr in order}
        for expr in order:
            for child in children(expr):
                readers[id(child)].append(expr)
        self._steep: set[int] = set()
        self._exact: set[int] = set()
        self._narrow: set[int] = set()
        for expr in reversed(order):
            if _is_wide(expr):
                self._judge(expr, readers[id(expr)])

    def stored_narrow(self, expr: Expr) -> bool:
        """Test whether a value is rounded to bfloat16 for all readers."""
        return id(expr) in self._narrow

    def may_be_rounded(self, expr: Expr) -> bool:
        """Test whether no reader of a float32 value needs the exact value."""
        return _is_wide(expr) and id(expr) not in self._exact

    def computes_narrow(self, expr: Expr) -> bool:
        """Test whether an operator that moves or averages elements reads and stores bfloat16."""
        return _takes_narrow(expr) and self.may_be_rounded(expr)

    def _judge(self, expr: Expr, readers: Sequence[Expr]) -> None:
        """Decide the storage dtype of a value; the dtypes of its readers are already decided."""
        if any(_amplifies(reader) or (_passes(reader) and id(reader) in self._steep) for reader in readers):
            self._steep.add(id(expr))
        if id(expr) in self._steep or any(self._needs_exact(reader) for reader in readers):
            self._exact.add(id(expr))
        elif not isinstance(expr, Constant) and any(_is_product(reader) or self.computes_narrow(reader) for reader in readers):
            self._narrow.add(id(expr))

    def _needs_exact(self, reader: Expr) -> bool:
        """Test whether an expression needs exact operands."""
        if _is_product(reader) or operator_traits(reader).errors is ErrorPropagation.DAMPS:
            return False
        return id(reader) in self._exact if _takes_narrow(reader) else not _passes(reader)


def _passes(reader: Expr) -> bool:
    """Test whether an operator does not amplify the relative error of its float32 operands."""
    return _is_wide(reader) and (_takes_narrow(reader) or _is_elementwise(reader))


def _takes_narrow(expr: Expr) -> bool:
    """Test whether an operator moves elements by position or averages small windows. Element-wise operators are excluded."""
    traits = operator_traits(expr)
    moves = traits.moves is not None and traits.moves.by is Choice.POSITION
    return (moves or traits.errors is ErrorPropagation.PRESERVES) and not _is_elementwise(expr)


def _amplifies(expr: Expr) -> bool:
    return operator_traits(expr).errors is ErrorPropagation.AMPLIFIES


def _is_elementwise(expr: Expr) -> bool:
    return isinstance(expr, Call) and isinstance(expr.callee, Operator) and expr.callee.elementwise


def _is_wide(expr: Expr) -> bool:
    return isinstance(expr.type, TensorType) and expr.type.dtype.name == WIDE


def _is_product(expr: Expr) -> bool:
    """Test whether an expression is a float32 product to multiply in bfloat16."""
    if not isinstance(expr, Call) or expr.callee not in _PRODUCTS or not all(map(_is_wide, (expr, *expr.args))):
        return False
    return expr.callee is ops.matmul or not _is_depthwise(expr)


def _is_depthwise(conv: Call) -> bool:
    """Test whether a convolution, transposed or not, has one input channel per group."""
    data = conv.args[0].type
    assert isinstance(data, TensorType)
    return bool(conv.attrs.groups > 1 and data.shape[1] == conv.attrs.groups)
