"""Algebraic simplification. Every rule preserves all values, including NaN, infinities and the sign of zero."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from inlaid.graph.ir import Call, Constant, Expr, Function, If, call, constant, operator_traits, post_order
from inlaid.graph.pattern import Match, Pattern, is_const, is_op, is_scalar, wildcard
from inlaid.graph.rewrite import RewriteRule, rewrite_expr
from inlaid.graph.scope_conditions import with_added
from inlaid.graph.scopes import Scope, analyse
from inlaid.graph.transform import transform_function
from inlaid.ops.compose import cast_to, expr_type, widened
from inlaid.ops.conversion import cast
from inlaid.ops.elementwise import add, div, exp, minimum, mul
from inlaid.ops.shape import reshape, transpose
from inlaid_runtime.arith import Constraint
from inlaid_runtime.types import DType, TensorType


def simplify(function: Function) -> Function:
    """Remove operators that are no-ops or that cancel each other."""
    simpler = rewrite_expr(function, RULES)
    assert isinstance(simpler, Function)
    return transform_function(simpler, _BranchSimplifier(simpler).visit)


class _BranchSimplifier:
    """Replaces an `If` by its branch if the condition is constant or both branches are the same expression. The constraints of a
    branch that replaces its `If` must then hold in the scope of the `If`."""

    def __init__(self, function: Function) -> None:
        constrained = any(isinstance(expr, If) and any(expr.constraints) for expr in post_order(function))
        self._scopes = analyse(function) if constrained else None
        self._added: dict[Scope, tuple[Constraint, ...]] = {}

    def visit(self, old: Expr, new: Expr) -> Expr:
        """Return the replacement of `old`. `new` is `old` with its children already replaced."""
        if self._scopes is not None:
            new = with_added(old, new, self._scopes, self._added)
        if isinstance(new, If):
            if isinstance(new.condition, Constant):
                branch = 0 if new.condition.data else 1
                if self._scopes is not None:
                    scope = self._scopes.expr_scopes[id(old)]
                    self._added[scope] = (*self._added.get(scope, ()), *new.constraints[branch])
                return (new.then, new.otherwise)[branch]
            if new.then is new.otherwise:
                return new.then
        return new


def _drop_constant(match: Match) -> Expr | None:
    """Return the captured `x` if it has the type of the root; None if the dropped constant changed the type by broadcasting."""
    x = match["x"]
    return x if x.type == match.root.type else None


def _applied_twice(match: Match) -> Expr | None:
    """Rewrite f(f(x)) to f(x) and f(x, x) to x if f is idempotent, f(f(x)) to x if f is an involution."""
    outer = match.root
    assert isinstance(outer, Call)
    idempotent, x = operator_traits(outer).idempotent, outer.args[0]
    if len(outer.args) == 2:
        return x if idempotent and outer.args[1] is x and x.type == outer.type else None
    if len(outer.args) != 1 or not isinstance(x, Call) or x.callee is not outer.callee or x.attrs != outer.attrs:
        return None
    replacement = x if idempotent else x.args[0]
    return replacement if replacement.type == outer.type else None


# --- conversions ------------------------------------------------------------------------------------------------------


def _contains(wide: DType, narrow: DType) -> bool:
    """Test whether every value of dtype `narrow` is a value of dtype `wide`, so that a cast through `wide` is lossless.

    Integer to float is excluded: casting a float back to a narrower integer saturates, casting an integer wraps.
    """
    if wide.kind == "float" and narrow.kind == "float":
        return narrow.name in {"float32": ("float16", "bfloat16"), "float64": ("float16", "bfloat16", "float32")}.get(wide.name, ())
    if wide.kind == "int":
        return narrow.kind in ("int", "uint") and narrow.bits < wide.bits + (narrow.kind == "int")
    return wide.kind == narrow.kind == "uint" and narrow.bits <= wide.bits


def _identity_cast(match: Match) -> Expr | None:
    return match["x"] if match["x"].type == match.root.type else None


def _cast_of_cast(match: Match) -> Expr | None:
    x, through = match["x"], match["inner"].type
    assert isinstance(x.type, TensorType) and isinstance(through, TensorType)
    if not _contains(through.dtype, x.type.dtype):
        return None
    return call(cast, [x], match.attrs("outer"))


# --- shapes -----------------------------------------------------------------------------------------------------------


def _transpose_of_single(match: Match) -> Expr | None:
    """Replace a transpose that moves no axis, or only axes of extent 1, by a reshape, which needs no kernel."""
    x, perm = match["x"], match.attrs("outer").perm
    assert isinstance(x.type, TensorType) and isinstance(match.root.type, TensorType)
    nontrivial_axes = [axis for axis in perm if x.type.shape[axis] != 1]
    return reshape(x, shape=match.root.type.shape) if nontrivial_axes == sorted(nontrivial_axes) else None


def _transpose_of_transpose(match: Match) -> Expr:
    outer, inner = match.attrs("outer").perm, match.attrs("inner").perm
    return transpose(match["x"], perm=tuple(inner[axis] for axis in outer))


def _full_slice(match: Match) -> Expr | None:
    x, attrs = match["x"], match.attrs("outer")
    assert isinstance(x.type, TensorType)
    is_full = all(begin == 0 for begin in attrs.begin) and attrs.end == x.type.shape and all(step == 1 for step in attrs.strides)
    return x if is_full else None


def _no_padding(match: Match) -> Expr | None:
    assert isinstance(match.root, Call)
    return match.root.args[0] if all(pad == 0 for pad in match.root.attrs.pads) else None


def _no_repeats(match: Match) -> Expr | None:
    return match["x"] if all(times == 1 for times in match.attrs("outer").repeats) else None


# --- arithmetic -------------------------------------------------------------------------------------------------------


def _divide_by_power_of_two(match: Match) -> Expr | None:
    """Rewrite x / c to x * (1 / c), which is bit-exact if 1 / c is exact and neither constant is denormal."""
    divisor = match.constant("c")
    type_ = match.root.type
    assert isinstance(type_, TensorType)
    if type_.dtype.name not in ("float32", "float64") or divisor.size == 0:
        return None
    mantissa, exponent = np.frexp(divisor)
    limit = 100 if type_.dtype.name == "float32" else 1000
    if not bool(np.all((np.abs(mantissa) == 0.5) & (np.abs(exponent) < limit))):
        return None
    return mul(match["x"], constant((1 / divisor).astype(type_.dtype.numpy), span=match["c"].span))


def _square(match: Match) -> Expr | None:
    x = match["x"]
    return mul(x, x) if x.type == match.root.type else None


def _cube(match: Match) -> Expr | None:
    """Rewrite pow(x, 3) to x * x * x, whose two roundings err less than a general power."""
    x = match["x"]
    if x.type != match.root.type:
        return None
    return _rounded_once(x, lambda wide: mul(mul(wide, wide), wide))


def _rounded_once(x: Expr, compute: Callable[[Expr], Expr]) -> Expr | None:
    """Compute a function by several operators. Narrow floats are computed in float32 and rounded once, as by a single operator.
    None for integers."""
    dtype = expr_type(x).dtype
    return cast_to(compute(widened(x)), dtype) if dtype.is_float else None


_SATURATED = 20.0
"""Argument beyond which tanh(softplus(x)) rounds to 1 in float32 and float64; the square of its exponential does not overflow."""


def _tanh_of_softplus(match: Match) -> Expr | None:
    """Rewrite tanh(log(1 + e)) to e (e + 2) / (e (e + 2) + 2) for e = exp(x), as in Mish: of three functions one is left, and the
    roundings err less."""
    return _rounded_once(match["x"], _tanh_of_softplus_of)


def _tanh_of_softplus_of(x: Expr) -> Expr:
    name = expr_type(x).dtype.name
    e, two = exp(minimum(x, constant(_SATURATED, name))), constant(2.0, name)
    scaled = mul(e, add(e, two))
    return div(scaled, add(scaled, two))


def _softplus() -> Pattern:
    """Match log(1 + exp(x)), plain or in the form that does not overflow, max(x, 0) + log(1 + exp(-|x|))."""
    x = wildcard().named("x")

    def logarithm(power: Pattern) -> Pattern:
        return is_op("log1p")(power) | is_op("log")(is_op("add")(power, is_scalar(1)))

    size = is_op("neg")(is_op("abs")(x))
    positive = is_op("maximum")(x, is_scalar(0)) | is_op("relu")(x)
    return is_op("add")(positive, logarithm(is_op("exp")(size))) | logarithm(is_op("exp")(x))


def _is_int(expr: Expr) -> bool:
    return isinstance(expr.type, TensorType) and expr.type.dtype.is_int


def _rules() -> tuple[RewriteRule, ...]:
    x = wildcard().named("x")

    def outer(name: str) -> Pattern:
        return is_op(name)(x).named("outer")

    def twice(name: str) -> Pattern:
        return is_op(name)(is_op(name)(x).named("inner")).named("outer")

    def rule(name: str, pattern: Pattern, build: Callable[[Match], Expr | None] = _drop_constant) -> RewriteRule:
        return RewriteRule(name, pattern, build)

    return (
        RewriteRule("the same twice", wildcard(), _applied_twice, lambda traits: traits.idempotent or traits.involution),
        rule("times one", is_op("mul")(x, is_scalar(1))),
        rule("to the power of one", is_op("pow")(x, is_scalar(1))),
        rule("squared", is_op("pow")(x, is_scalar(2)), _square),
        rule("cubed", is_op("pow")(x, is_scalar(3)), _cube),
        rule("tanh of softplus", is_op("tanh")(_softplus()), _tanh_of_softplus),
        rule("plus zero", is_op("add")(x, is_scalar(0)).where(_is_int)),
        rule("minus zero", is_op("sub")(x, is_scalar(0))),
        rule("divided by a power of two", is_op("div")(x, is_const().named("c")), _divide_by_power_of_two),
        rule("cast to the same type", outer("cast"), _identity_cast),
        rule("cast of cast", twice("cast"), _cast_of_cast),
        rule("transpose of single elements", outer("transpose"), _transpose_of_single),
        rule("transpose of transpose", twice("transpose"), _transpose_of_transpose),
        rule("reshape to the same shape", is_op("reshape")(x)),
        rule("reshape of reshape", twice("reshape"), lambda match: reshape(match["x"], shape=match.attrs("outer").shape)),
        rule("broadcast to the same shape", is_op("broadcast_to")(x)),
        rule("slice of all", outer("strided_slice"), _full_slice),
        rule("pad by nothing", is_op("pad"), _no_padding),
        rule("tile once", outer("tile"), _no_repeats),
    )


RULES = _rules()
"""Every rule of the pass, in order."""
