"""Print index expressions as C, with the helper functions that they call."""

from __future__ import annotations

from collections.abc import Callable, Container

from inlaid.codegen import c_values
from inlaid.codegen.c_values import ATOM, Text
from inlaid_runtime import arith
from inlaid_runtime.errors import CompileError

_CALLS = {arith.FloorDiv: "floordiv", arith.FloorMod: "floormod", arith.Min: "min", arith.Max: "max"}
_OPERATORS = {arith.Add: ("+", c_values.SUM), arith.Mul: ("*", c_values.PRODUCT), arith.And: ("&&", ATOM), arith.Or: ("||", ATOM)}
HELPERS = {
    "floordiv": """\
static inline INDEX inlaid_floordiv(INDEX a, INDEX b) {
    INDEX q = b == 0 ? 0 : a / b;
    return b != 0 && a % b != 0 && (a % b < 0) != (b < 0) ? q - 1 : q;
}""",
    "floormod": "static inline INDEX inlaid_floormod(INDEX a, INDEX b) { return b == 0 ? 0 : a - b * inlaid_floordiv(a, b); }",
    "min": "static inline INDEX inlaid_min(INDEX a, INDEX b) { return a < b ? a : b; }",
    "max": "static inline INDEX inlaid_max(INDEX a, INDEX b) { return a > b ? a : b; }",
    # Floats from 2^23 on are integers; -0.0 is preserved.
    "floorf": """\
static inline float inlaid_floorf(float x) {
    const float whole = x > -8388608.0f && x < 8388608.0f ? (float)(int32_t)x : x;
    return whole > x ? whole - 1.0f : x == 0.0f ? x : whole;
}""",
}
"""C definitions of helper functions that printed kernels call, by name."""


def helpers(text: str, index: str = "int64_t") -> str:
    """Print the helper functions that `text` calls, with index type `index`."""
    helper_names = [name for name in HELPERS if f"inlaid_{name}(" in text]
    if "floormod" in helper_names and "floordiv" not in helper_names:
        helper_names.insert(0, "floordiv")
    return "".join(f"{HELPERS[name].replace('INDEX', index)}\n" for name in helper_names)


LONGEST = 256
"""Number of nodes above which the common subexpressions of an index expression are printed once."""


def index_text(
    expr: arith.Expr,
    leaf: Callable[[arith.Expr], str | None],
    assign: Callable[[str], str],
    indices: arith.Analyzer | None = None,
    leaves: Container[arith.Expr] = (),
) -> str:
    """Print an index expression as C. `leaf` returns the text of variables, loads and `leaves`, None for other nodes; `indices`
    knows the bounds of variables. `assign(text)` prints an assignment of `text` to a new variable and returns the variable's name;
    it is called for the common subexpressions of an expression of more than `LONGEST` nodes, and for further ones where the
    expression is deep."""
    indices = indices or arith.Analyzer()

    def below(node: arith.Expr) -> tuple[arith.Expr, ...]:
        return () if node in leaves else _unconditional(node)

    if not arith.is_long(expr, LONGEST, below):
        return _index(expr, leaf, indices).code
    parts, numbers = arith.named_parts(expr, depth=arith.LEVELS, below=below)
    names: list[str] = []

    def named(node: arith.Expr) -> str | None:
        number = numbers.get(id(node), len(names))
        return names[number] if number < len(names) else leaf(node)

    for part in parts:
        names.append(assign(_index(part, named, indices).code))
    return _index(expr, named, indices).code


def _unconditional(expr: arith.Expr) -> tuple[arith.Expr, ...]:
    """Return the operands of a node; none for a choice that reads data, since a load is checked only if it is chosen."""
    return () if isinstance(expr, (arith.And, arith.Or, arith.Select)) and arith.reads_data(expr) else expr.operands


def _index(expr: arith.Expr, leaf: Callable[[arith.Expr], str | None], indices: arith.Analyzer) -> Text:
    leaf_text = leaf(expr)
    if leaf_text is not None:
        return Text(leaf_text, ATOM)
    if isinstance(expr, arith.Const):
        return Text(str(expr.value) if expr.value >= 0 else f"({expr.value})", ATOM)
    parts = [_index(operand, leaf, indices) for operand in expr.operands]
    match expr:
        case arith.Compare(op=op):
            return Text(f"{parts[0].within(c_values.SUM)} {op} {parts[1].within(c_values.SUM)}")
        case arith.Not():
            return Text(f"!{parts[0].atom}", ATOM)
        case arith.Select():
            return Text(f"{parts[0].atom} ? {parts[1].atom} : {parts[2].atom}")
        case arith.FloorDiv(operands=(a, arith.Const(value=b))) | arith.FloorMod(operands=(a, arith.Const(value=b))) if b > 0:
            low = indices.bounds(a)[0]
            if low is not None and low >= 0:
                symbol = "/" if isinstance(expr, arith.FloorDiv) else "%"
                return Text(f"{parts[0].within(c_values.PRODUCT)} {symbol} {b}", c_values.PRODUCT)
    if type(expr) in _CALLS:
        return Text(f"inlaid_{_CALLS[type(expr)]}({', '.join(part.code for part in parts)})", ATOM)
    if isinstance(expr, arith.Add) and isinstance(expr.operands[-1], arith.Const) and expr.operands[-1].value < 0:
        return Text(f"{parts[0].within(c_values.SUM)} - {-expr.operands[-1].value}", c_values.SUM)
    if type(expr) in _OPERATORS:
        symbol, level = _OPERATORS[type(expr)]
        # C evaluates a * b / c left to right, and the division rounds.
        operand_level = ATOM if isinstance(expr, arith.Mul) else level
        texts = [part.within(operand_level if number else level) for number, part in enumerate(parts)]
        return Text(f" {symbol} ".join(texts), level or c_values.OTHER)
    raise CompileError(f"index variable {expr!r} is not in scope")
