"""Integer expressions, used both for symbolic dimensions and for loop indices.

An expression is immutable, compares by structure and hashes in constant time. Arithmetic operators build nodes and fold constants;
all other simplification is in `arith.analyzer.simplify`. Integers are unbounded here; code generators compute them in 64 bits. `//`
and `%` are floor division and its remainder, as in Python.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from operator import attrgetter, index
from typing import Protocol, SupportsIndex, Union

Dim = Union[int, "Expr"]
_HASH = attrgetter("_hash")


class Payload(Protocol):
    """The content of an `Opaque` leaf: a value that integer arithmetic cannot inspect, e.g. a loaded index."""

    def substitute(self, mapping: Mapping[Expr, Expr]) -> Payload: ...

    def free_vars(self) -> frozenset[Expr]: ...


class Expr:
    """Base of all integer expressions."""

    __slots__ = ("_hash", "_reads", "operands")
    _hash: int
    _reads: tuple[frozenset[Expr], bool]  # (free variables, reads data), computed lazily
    operands: tuple[Expr, ...]
    symbol = ""

    def __init__(self, *operands: Expr) -> None:
        self.operands = operands
        self._hash = hash((type(self), *map(_HASH, operands)))

    def rebuild(self, operands: tuple[Expr, ...]) -> Expr:
        """Copy the node with new operands, constant-folded."""
        raise AssertionError(f"{type(self).__name__} is a leaf")

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if type(other) is not type(self) or self._hash != other._hash:
            return False
        return self.operands == other.operands

    # Any other operand type gets to handle the operation itself: `i * a[i]` is a value expression.

    def __add__(self, other: Dim) -> Expr:
        return add(self, other) if isinstance(other, INTEGERS) else NotImplemented

    def __radd__(self, other: Dim) -> Expr:
        return add(other, self) if isinstance(other, INTEGERS) else NotImplemented

    def __sub__(self, other: Dim) -> Expr:
        negative = -other if type(other) is int else mul(other, -1) if isinstance(other, INTEGERS) else None
        return NotImplemented if negative is None else add(self, negative)

    def __rsub__(self, other: Dim) -> Expr:
        return add(other, mul(self, -1)) if isinstance(other, INTEGERS) else NotImplemented

    def __mul__(self, other: Dim) -> Expr:
        return mul(self, other) if isinstance(other, INTEGERS) else NotImplemented

    def __rmul__(self, other: Dim) -> Expr:
        return mul(other, self) if isinstance(other, INTEGERS) else NotImplemented

    def __neg__(self) -> Expr:
        return mul(self, -1)

    def __floordiv__(self, other: Dim) -> Expr:
        return floordiv(self, other) if isinstance(other, INTEGERS) else NotImplemented

    def __rfloordiv__(self, other: Dim) -> Expr:
        return floordiv(other, self) if isinstance(other, INTEGERS) else NotImplemented

    def __mod__(self, other: Dim) -> Expr:
        return floormod(self, other) if isinstance(other, INTEGERS) else NotImplemented

    def __rmod__(self, other: Dim) -> Expr:
        return floormod(other, self) if isinstance(other, INTEGERS) else NotImplemented

    def __lt__(self, other: Dim) -> Expr:
        return compare("<", self, other) if isinstance(other, INTEGERS) else NotImplemented

    def __le__(self, other: Dim) -> Expr:
        return compare("<=", self, other) if isinstance(other, INTEGERS) else NotImplemented

    def __gt__(self, other: Dim) -> Expr:
        return compare("<", other, self) if isinstance(other, INTEGERS) else NotImplemented

    def __ge__(self, other: Dim) -> Expr:
        return compare("<=", other, self) if isinstance(other, INTEGERS) else NotImplemented

    def equal(self, other: Dim) -> Expr:
        """Build the condition self == other (`==` itself compares structure)."""
        return compare("==", self, other)

    def not_equal(self, other: Dim) -> Expr:
        """Build the condition self != other."""
        return compare("!=", self, other)

    def __and__(self, other: Dim) -> Expr:
        return logical_and(self, other) if isinstance(other, INTEGERS) else NotImplemented

    def __or__(self, other: Dim) -> Expr:
        return logical_or(self, other) if isinstance(other, INTEGERS) else NotImplemented

    def __invert__(self) -> Expr:
        return logical_not(self)

    def __repr__(self) -> str:
        return f"({f' {self.symbol} '.join(map(repr, self.operands))})"


INTEGERS = (Expr, int, SupportsIndex)
"""Operand types of integer arithmetic: `Dim`, and numpy integers."""


class Const(Expr):
    """An integer constant. Raises TypeError for a non-integer."""

    __slots__ = ("value",)

    def __init__(self, value: int) -> None:
        self.value = +value if isinstance(value, int) else index(value)  # keeps a traced size (`inlaid.graph.traced`)
        self.operands = ()
        self._hash = hash((Const, self.value))

    __hash__ = Expr.__hash__

    def __eq__(self, other: object) -> bool:
        return type(other) is Const and other.value == self.value

    def __repr__(self) -> str:
        return str(self.value)


class Var(Expr):
    """A loop index. Variables compare by identity; the name is only for printing."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name
        self.operands = ()
        self._hash = id(self) >> 4

    __hash__ = Expr.__hash__

    def __eq__(self, other: object) -> bool:
        return self is other

    def __repr__(self) -> str:
        return self.name


class SizeVar(Expr):
    """A symbolic dimension. Dimensions of the same name are equal.

    `lower` and `upper` are inclusive bounds (`upper` None: unbounded). An *existential* dimension is defined by a kernel at run
    time. Its name starts with `?`, and `upper` gives the capacity of its buffers. `usual` is an expression of other dimensions
    whose representative size is that of this one; None: by its bounds.
    """

    __slots__ = ("lower", "name", "upper", "usual")

    def __init__(self, name: str, lower: int = 0, upper: Dim | None = None, usual: Expr | None = None) -> None:
        self.name = name
        self.lower = lower
        self.upper = upper
        self.usual = usual
        self.operands = ()
        self._hash = hash((SizeVar, name))

    __hash__ = Expr.__hash__

    def __eq__(self, other: object) -> bool:
        return type(other) is SizeVar and other.name == self.name

    @property
    def existential(self) -> bool:
        """Whether a kernel defines this size at run time."""
        return self.name.startswith("?")

    def __repr__(self) -> str:
        return self.name


class Opaque(Expr):
    """An integer read from data, declared to be in [lower, upper]. Generated code checks it before using it as an index."""

    __slots__ = ("lower", "payload", "upper")

    def __init__(self, payload: Payload, lower: Dim, upper: Dim) -> None:
        self.payload = payload
        self.lower = wrap(lower)
        self.upper = wrap(upper)
        self.operands = ()
        self._hash = hash((Opaque, payload))

    __hash__ = Expr.__hash__

    def __eq__(self, other: object) -> bool:
        return type(other) is Opaque and (other.payload, other.lower, other.upper) == (self.payload, self.lower, self.upper)

    def __repr__(self) -> str:
        return f"checked({self.payload!r}, {self.lower!r}, {self.upper!r})"


class Add(Expr):
    """a + b."""

    __slots__ = ()
    symbol = "+"

    def rebuild(self, operands: tuple[Expr, ...]) -> Expr:
        return add(*operands)


class Mul(Expr):
    """a * b."""

    __slots__ = ()
    symbol = "*"

    def rebuild(self, operands: tuple[Expr, ...]) -> Expr:
        return mul(*operands)


class FloorDiv(Expr):
    """a // b, rounded towards minus infinity; b must not be zero."""

    __slots__ = ()
    symbol = "//"

    def rebuild(self, operands: tuple[Expr, ...]) -> Expr:
        return floordiv(*operands)


class FloorMod(Expr):
    """a % b with the sign of b; b must not be zero."""

    __slots__ = ()
    symbol = "%"

    def rebuild(self, operands: tuple[Expr, ...]) -> Expr:
        return floormod(*operands)


class Min(Expr):
    """The smaller of two operands."""

    __slots__ = ()

    def rebuild(self, operands: tuple[Expr, ...]) -> Expr:
        return minimum(*operands)

    def __repr__(self) -> str:
        return f"min({self.operands[0]!r}, {self.operands[1]!r})"


class Max(Expr):
    """The larger of two operands."""

    __slots__ = ()

    def rebuild(self, operands: tuple[Expr, ...]) -> Expr:
        return maximum(*operands)

    def __repr__(self) -> str:
        return f"max({self.operands[0]!r}, {self.operands[1]!r})"


class Compare(Expr):
    """1 if `a op b` holds, else 0. `op` is one of `<`, `<=`, `==`, `!=`."""

    __slots__ = ("op",)

    def __init__(self, op: str, a: Expr, b: Expr) -> None:
        self.op = op
        self.operands = (a, b)
        self._hash = hash((Compare, op, a, b))

    __hash__ = Expr.__hash__

    def __eq__(self, other: object) -> bool:
        return type(other) is Compare and self.op == other.op and self.operands == other.operands

    def __bool__(self) -> bool:
        raise TypeError(
            f"expected a Python bool, got {self!r}, whose truth is known only at run time: use select, or inlaid.conditions in the "
            "type relation of an operator"
        )

    def rebuild(self, operands: tuple[Expr, ...]) -> Expr:
        return compare(self.op, *operands)

    def __repr__(self) -> str:
        return f"({self.operands[0]!r} {self.op} {self.operands[1]!r})"


class And(Expr):
    """1 if both operands are nonzero, else 0. The second operand is not evaluated if the first is 0."""

    __slots__ = ()
    symbol = "and"

    def rebuild(self, operands: tuple[Expr, ...]) -> Expr:
        return logical_and(*operands)


class Or(Expr):
    """1 if either operand is nonzero, else 0."""

    __slots__ = ()
    symbol = "or"

    def rebuild(self, operands: tuple[Expr, ...]) -> Expr:
        return logical_or(*operands)


class Not(Expr):
    """1 if the operand is 0, else 0."""

    __slots__ = ()

    def rebuild(self, operands: tuple[Expr, ...]) -> Expr:
        return logical_not(*operands)

    def __repr__(self) -> str:
        return f"not({self.operands[0]!r})"


class Select(Expr):
    """`then` if the condition is nonzero, else `otherwise`. The operand that is not selected may be undefined."""

    __slots__ = ()

    def rebuild(self, operands: tuple[Expr, ...]) -> Expr:
        return select(*operands)

    def __repr__(self) -> str:
        return "select({!r}, {!r}, {!r})".format(*self.operands)


_SMALL = {value: Const(value) for value in range(-16, 1024)}
ZERO = _SMALL[0]
ONE = _SMALL[1]


def wrap(value: Dim) -> Expr:
    """Convert an integer to an expression. Return an expression unchanged."""
    return value if isinstance(value, Expr) else _number(value)


def _number(value: int) -> Const:
    return _SMALL[value] if type(value) is int and -16 <= value < 1024 else Const(value)


def unwrap(value: Dim) -> Dim:
    """Convert a constant to a plain integer, as in shapes. Return any other expression unchanged."""
    return value.value if isinstance(value, Const) else value


def add(a: Dim, b: Dim) -> Expr:
    """Build a + b, constant-folded."""
    a, b = a if isinstance(a, Expr) else _number(a), b if isinstance(b, Expr) else _number(b)
    if type(a) is Const:
        if type(b) is Const:
            return _number(a.value + b.value)
        if a.value == 0:
            return b
    if type(b) is Const and b.value == 0:
        return a
    return Add(a, b)


def mul(a: Dim, b: Dim) -> Expr:
    """Build a * b, constant-folded, with a constant on the right."""
    a, b = a if isinstance(a, Expr) else _number(a), b if isinstance(b, Expr) else _number(b)
    if type(a) is Const:
        a, b = b, a
    if type(b) is Const:
        if type(a) is Const:
            return _number(a.value * b.value)
        if b.value == 0:
            return ZERO
        if b.value == 1:
            return a
    return Mul(a, b)


def floordiv(a: Dim, b: Dim) -> Expr:
    """Build a / b rounded towards minus infinity, constant-folded."""
    a, b = wrap(a), wrap(b)
    if isinstance(b, Const):
        if b.value == 1:
            return a
        if isinstance(a, Const) and b.value:
            return Const(a.value // b.value)
    return FloorDiv(a, b)


def floormod(a: Dim, b: Dim) -> Expr:
    """Build a - b * floordiv(a, b), constant-folded. It has the sign of b."""
    a, b = wrap(a), wrap(b)
    if isinstance(b, Const):
        if b.value == 1:
            return ZERO
        if isinstance(a, Const) and b.value:
            return Const(a.value % b.value)
    return FloorMod(a, b)


def minimum(a: Dim, b: Dim) -> Expr:
    """Build the smaller of two expressions."""
    a, b = wrap(a), wrap(b)
    if isinstance(a, Const) and isinstance(b, Const):
        return a if a.value <= b.value else b
    return a if a == b else Min(a, b)


def maximum(a: Dim, b: Dim) -> Expr:
    """Build the larger of two expressions."""
    a, b = wrap(a), wrap(b)
    if isinstance(a, Const) and isinstance(b, Const):
        return a if a.value >= b.value else b
    return a if a == b else Max(a, b)


_COMPARE = {
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
}


def compare(op: str, a: Dim, b: Dim) -> Expr:
    """Build `a op b`, which is 0 or 1. `>` and `>=` are normalised to `<` and `<=` with swapped operands."""
    a, b = wrap(a), wrap(b)
    if op in (">", ">="):
        return compare("<" if op == ">" else "<=", b, a)
    if isinstance(a, Const) and isinstance(b, Const):
        return Const(int(_COMPARE[op](a.value, b.value)))
    if a == b:
        return ONE if op in ("<=", "==") else ZERO
    return Compare(op, a, b)


def logical_and(a: Dim, b: Dim) -> Expr:
    """Build the condition that both conditions (each 0 or 1) hold."""
    a, b = wrap(a), wrap(b)
    if isinstance(a, Const):
        return b if a.value else ZERO
    if isinstance(b, Const):
        return a if b.value else ZERO
    return a if a == b else And(a, b)


def logical_or(a: Dim, b: Dim) -> Expr:
    """Build the condition that at least one of two conditions (each 0 or 1) holds."""
    a, b = wrap(a), wrap(b)
    if isinstance(a, Const):
        return ONE if a.value else b
    if isinstance(b, Const):
        return ONE if b.value else a
    return a if a == b else Or(a, b)


def logical_not(a: Dim) -> Expr:
    """Build the negation of a condition."""
    a = wrap(a)
    if isinstance(a, Const):
        return Const(int(not a.value))
    return a.operands[0] if isinstance(a, Not) else Not(a)


def select(condition: Dim, then: Dim, otherwise: Dim) -> Expr:
    """Build `then` if a condition holds, else `otherwise`."""
    condition, then, otherwise = wrap(condition), wrap(then), wrap(otherwise)
    if isinstance(condition, Const):
        return then if condition.value else otherwise
    return then if then == otherwise else Select(condition, then, otherwise)


def ceildiv(a: Dim, b: Dim) -> Expr:
    """Build a / b rounded up, for positive b."""
    return floordiv(add(a, add(b, -1)), b)


def product(dims: tuple[Dim, ...]) -> Dim:
    """Return the product of dimensions: the number of elements of a shape."""
    count = 1
    symbolic: Expr | None = None
    for dim in dims:
        if isinstance(dim, int):
            count *= dim
        else:
            symbolic = dim if symbolic is None else mul(symbolic, dim)
    return count if symbolic is None else unwrap(mul(symbolic, count))


def walk(expr: Expr) -> Iterator[Expr]:
    """Iterate over the nodes of an expression, once per occurrence. A node precedes its operands."""
    stack = [expr]
    while stack:
        node = stack.pop()
        yield node
        stack.extend(node.operands)


def free_vars(expr: Dim) -> frozenset[Expr]:
    """Return the `Var`s and `SizeVar`s that an expression reads, including those inside `Opaque` payloads."""
    try:
        return expr._reads[0]  # type: ignore[union-attr] # hot path: called millions of times, mostly cached
    except AttributeError:
        return _NOTHING if isinstance(expr, int) else _reads(expr)[0]


_NOTHING: frozenset[Expr] = frozenset()


def reads_data(expr: Expr) -> bool:
    """Test whether an expression depends on the contents of buffers."""
    try:
        return expr._reads[1]
    except AttributeError:
        return _reads(expr)[1]


def _reads(expr: Expr) -> tuple[frozenset[Expr], bool]:
    """Return the variables that an expression reads, and whether it reads data. Cached in each node."""
    stack = [expr]
    while stack:
        node = stack[-1]
        variables, data = _NOTHING, False
        try:
            for operand in node.operands:
                more, reads = operand._reads
                variables, data = variables | more if variables and more else variables or more, data or reads
        except AttributeError:
            stack.extend(node.operands)
            continue
        stack.pop()
        if not node.operands and isinstance(node, (Var, SizeVar)):
            variables = frozenset((node,))
        elif not node.operands and isinstance(node, Opaque):
            variables, data = node.payload.free_vars() | free_vars(node.lower) | free_vars(node.upper), True
        node._reads = variables, data
    return expr._reads


def substitute(expr: Expr, mapping: Mapping[Expr, Expr]) -> Expr:
    """Replace variables in an expression. Preserves sharing, and returns the same object if nothing changes."""
    return _substitute(expr, mapping, {}) if mapping else expr


def _substitute(expr: Expr, mapping: Mapping[Expr, Expr], known: dict[Expr, Expr]) -> Expr:
    """Replace variables as `substitute` does. Memoises maxima in `known`, since sums of sizes may share them."""
    if isinstance(expr, (Var, SizeVar)):
        return mapping.get(expr, expr)
    if isinstance(expr, Const):
        return expr
    if isinstance(expr, Opaque):
        payload = expr.payload.substitute(mapping)
        lower, upper = _substitute(expr.lower, mapping, known), _substitute(expr.upper, mapping, known)
        if payload is expr.payload and lower is expr.lower and upper is expr.upper:
            return expr
        return Opaque(payload, lower, upper)
    if expr in known:
        return known[expr]
    operands = tuple(_substitute(operand, mapping, known) for operand in expr.operands)
    same = all(new is old for new, old in zip(operands, expr.operands, strict=True))
    found = expr if same else expr.rebuild(operands)
    if isinstance(expr, Max):
        known[expr] = found
    return found


def evaluate(expr: Dim, values: Mapping[Expr, int]) -> int:
    """Evaluate an expression under values for its variables.

    Raises KeyError for a variable without a value, and TypeError for an `Opaque`, which only the tensor interpreter can evaluate.
    """
    return expr if isinstance(expr, int) else _evaluate(expr, values, {})


def _evaluate(expr: Expr, values: Mapping[Expr, int], known: dict[Expr, int]) -> int:
    """Evaluate as `evaluate` does. Memoises maxima in `known`, since sums of sizes may share them."""
    match expr:
        case Const(value=value):
            return value
        case Var() | SizeVar():
            return values[expr]
        case Add(operands=(a, b)):
            return _evaluate(a, values, known) + _evaluate(b, values, known)
        case Mul(operands=(a, b)):
            return _evaluate(a, values, known) * _evaluate(b, values, known)
        case FloorDiv(operands=(a, b)):
            return _evaluate(a, values, known) // _evaluate(b, values, known)
        case FloorMod(operands=(a, b)):
            return _evaluate(a, values, known) % _evaluate(b, values, known)
        case Min(operands=(a, b)):
            return min(_evaluate(a, values, known), _evaluate(b, values, known))
        case Max(operands=(a, b)):
            found = known.get(expr)
            if found is None:
                found = known[expr] = max(_evaluate(a, values, known), _evaluate(b, values, known))
            return found
        case Compare(operands=(a, b), op=op):
            return int(_COMPARE[op](_evaluate(a, values, known), _evaluate(b, values, known)))
        case And(operands=(a, b)):
            return int(bool(_evaluate(a, values, known)) and bool(_evaluate(b, values, known)))
        case Or(operands=(a, b)):
            return int(bool(_evaluate(a, values, known)) or bool(_evaluate(b, values, known)))
        case Not(operands=(a,)):
            return int(not _evaluate(a, values, known))
        case Select(operands=(condition, then, otherwise)):
            return _evaluate(then if _evaluate(condition, values, known) else otherwise, values, known)
    raise TypeError(f"expected an expression that reads only sizes, got {expr!r}, which reads data: run it in the interpreter")
