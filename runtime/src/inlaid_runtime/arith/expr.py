"""Integer expressions, used both for symbolic dimensions and for loop indices.

An expression is immutable, compares by structure and hashes in constant time. Arithmetic operators build nodes and fold constants;
all other simplification is in `arith.analyzer.simplify`. Integers are unbounded here; code generators compute them in 64 bits. `//`
and `%` are floor division and its remainder, as in Python.

Subexpressions may be shared, and nested to any depth: all functions visit each distinct node once, and do not recurse.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import reduce
from operator import attrgetter, index
from typing import Any, Protocol, SupportsIndex, Union

Dim = Union[int, "Expr"]
_HASH = attrgetter("_hash")


class Payload(Protocol):
    """The content of an `Opaque` leaf: a value that integer arithmetic cannot inspect, e.g. a loaded index."""

    def substitute(self, mapping: Mapping[Expr, Expr]) -> Payload: ...

    def free_vars(self) -> frozenset[Expr]: ...


class Expr:
    """Base of all integer expressions."""

    __slots__ = ("_equals", "_hash", "_reads", "form", "interval", "operands")
    _equals: object  # shared by nodes that were found to be equal, set lazily
    _hash: int
    _reads: tuple[frozenset[Expr], bool, int]  # (free variables, reads data, levels), computed lazily
    form: object  # canonical form of a deep expression, which `arith.analyzer` sets
    interval: tuple[int | None, int | None]  # bounds of a deep atom of a canonical form, which `arith.analyzer` sets
    operands: tuple[Expr, ...]
    symbol = ""

    def __init__(self, *operands: Expr) -> None:
        self.operands = operands
        self._hash = hash((type(self), *map(_HASH, operands)))

    def rebuild(self, operands: tuple[Expr, ...]) -> Expr:
        """Copy the node with new operands, constant-folded."""
        raise AssertionError(f"{type(self).__name__} is a leaf")

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the constructor's arguments: hashes depend on the process."""
        return type(self), self.operands

    def __copy__(self) -> Expr:
        return self

    def __deepcopy__(self, memo: object) -> Expr:
        return self

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if type(other) is not type(self) or self._hash != other._hash:
            return False
        return self.operands is other.operands or _equal(self, other)

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

    def text(self, operands: Sequence[str]) -> str:
        """Format the node, given the texts of its operands."""
        return f"({f' {self.symbol} '.join(operands)})"

    def __repr__(self) -> str:
        return format_expr(self)


INTEGERS = (Expr, int, SupportsIndex)
"""Operand types of integer arithmetic: `Dim`, and numpy integers."""


class Const(Expr):
    """An integer constant. Raises TypeError for a non-integer."""

    __slots__ = ("value",)

    def __init__(self, value: int) -> None:
        self.value = +value if isinstance(value, int) else index(value)  # keeps a traced size (`inlaid.graph.traced`)
        self.operands = ()
        self._hash = hash((Const, self.value))

    def __reduce__(self) -> tuple[Any, ...]:
        return Const, (self.value,)

    __hash__ = Expr.__hash__

    def __eq__(self, other: object) -> bool:
        return type(other) is Const and other.value == self.value

    def text(self, operands: Sequence[str]) -> str:
        return str(self.value)


class Var(Expr):
    """A loop index. Variables compare by identity; the name is only for printing."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name
        self.operands = ()
        self._hash = id(self) >> 4

    def __reduce__(self) -> tuple[Any, ...]:
        return Var, (self.name,)

    __hash__ = Expr.__hash__

    def __eq__(self, other: object) -> bool:
        return self is other

    def text(self, operands: Sequence[str]) -> str:
        return self.name


class SizeVar(Expr):
    """A symbolic dimension. Dimensions of the same name are equal.

    `lower` and `upper` are inclusive bounds (`upper` None: unbounded). An *existential* dimension is defined by a kernel at run
    time. Its name starts with `?`, and `upper` gives the capacity of its buffers. `usual` is an expression over other dimensions,
    and its representative size is used for this one too; None: the representative size follows from the bounds.
    """

    __slots__ = ("lower", "name", "upper", "usual")

    def __init__(self, name: str, lower: int = 0, upper: Dim | None = None, usual: Expr | None = None) -> None:
        self.name = name
        self.lower = lower
        self.upper = upper
        self.usual = usual
        self.operands = ()
        self._hash = hash((SizeVar, name))

    def __reduce__(self) -> tuple[Any, ...]:
        return SizeVar, (self.name, self.lower, self.upper, self.usual)

    __hash__ = Expr.__hash__

    def __eq__(self, other: object) -> bool:
        return type(other) is SizeVar and other.name == self.name

    @property
    def existential(self) -> bool:
        """Whether a kernel defines this size at run time."""
        return self.name.startswith("?")

    def text(self, operands: Sequence[str]) -> str:
        """Return the name."""
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

    def __reduce__(self) -> tuple[Any, ...]:
        return Opaque, (self.payload, self.lower, self.upper)

    __hash__ = Expr.__hash__

    def __eq__(self, other: object) -> bool:
        return type(other) is Opaque and (other.payload, other.lower, other.upper) == (self.payload, self.lower, self.upper)

    def text(self, operands: Sequence[str]) -> str:
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

    def text(self, operands: Sequence[str]) -> str:
        return f"min({operands[0]}, {operands[1]})"


class Max(Expr):
    """The larger of two operands."""

    __slots__ = ()

    def rebuild(self, operands: tuple[Expr, ...]) -> Expr:
        return maximum(*operands)

    def text(self, operands: Sequence[str]) -> str:
        return f"max({operands[0]}, {operands[1]})"


class Compare(Expr):
    """1 if `a op b` holds, else 0. `op` is one of `<`, `<=`, `==`, `!=`."""

    __slots__ = ("op",)

    def __init__(self, op: str, a: Expr, b: Expr) -> None:
        self.op = op
        self.operands = (a, b)
        self._hash = hash((Compare, op, a, b))

    def __reduce__(self) -> tuple[Any, ...]:
        return Compare, (self.op, *self.operands)

    __hash__ = Expr.__hash__

    def __eq__(self, other: object) -> bool:
        return type(other) is Compare and self.op == other.op and super().__eq__(other)

    def __bool__(self) -> bool:
        raise TypeError(
            f"expected a Python bool, got {self!r}, whose truth is known only at run time: use select, or inlaid.conditions in the "
            "type relation of an operator"
        )

    def rebuild(self, operands: tuple[Expr, ...]) -> Expr:
        return compare(self.op, *operands)

    def text(self, operands: Sequence[str]) -> str:
        return f"({operands[0]} {self.op} {operands[1]})"


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

    def text(self, operands: Sequence[str]) -> str:
        return f"not({operands[0]})"


class Select(Expr):
    """`then` if the condition is nonzero, else `otherwise`. The operand that is not selected may be undefined."""

    __slots__ = ()

    def rebuild(self, operands: tuple[Expr, ...]) -> Expr:
        return select(*operands)

    def text(self, operands: Sequence[str]) -> str:
        return f"select({', '.join(operands)})"


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
    """Build `a op b`, which is 0 or 1. `>` and `>=` are normalized to `<` and `<=` with swapped operands."""
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


ARITHMETIC: Mapping[type[Expr], Callable[[int, int], int]] = {
    Add: operator.add,
    Mul: operator.mul,
    FloorDiv: operator.floordiv,
    FloorMod: operator.mod,
    Min: min,
    Max: max,
}
"""Operations of nodes that compute an integer from the values of two operands."""

LEVELS = 64
"""Depth to which functions recurse, which is nearly always enough. They visit deeper expressions by `post_order`."""

RUN = 16
"""Number of operands that `balanced` combines from left to right."""


def balanced(combine: Callable[[Expr, Expr], Expr], items: Sequence[Expr]) -> Expr:
    """Combine one or more operands of an associative operation in order, in a tree whose depth grows with the logarithm of their
    number. Runs of `RUN` operands are combined from left to right. Complete subtrees begin at multiples of their size, so that the
    trees of a sequence and of its prefixes share them."""
    subtrees: list[tuple[int, Expr]] = []  # complete subtrees of decreasing height, as in a binary counter
    for start in range(0, len(items), RUN):
        height, tree = 0, reduce(combine, items[start : start + RUN])
        while subtrees and subtrees[-1][0] == height:
            height, tree = height + 1, combine(subtrees.pop()[1], tree)
        subtrees.append((height, tree))
    return reduce(combine, [tree for _, tree in subtrees])


def product(dims: tuple[Dim, ...]) -> Dim:
    """Return the product of dimensions: the number of elements of a shape."""
    count = 1
    symbolic: list[Expr] = []
    for dim in dims:
        if isinstance(dim, int):
            count *= dim
        else:
            symbolic.append(dim)
    return unwrap(mul(balanced(mul, symbolic), count)) if symbolic else count


def walk(expr: Expr) -> Iterator[Expr]:
    """Iterate over the distinct nodes of an expression, depth first, in the order of their first occurrences."""
    visited: set[int] = set()
    stack = [expr]
    while stack:
        node = stack.pop()
        if id(node) not in visited:
            visited.add(id(node))
            yield node
            stack.extend(node.operands)


Below = Callable[[Expr], tuple[Expr, ...]]
"""Function that returns the expressions that a node contains."""


def post_order(*exprs: Expr, below: Below = attrgetter("operands")) -> list[Expr]:
    """List the distinct nodes of expressions, each after the nodes that `below` returns for it, which are its operands by default.
    The nodes that `below` returns are visited in their order."""
    order: dict[int, Expr] = {}
    contained: dict[int, tuple[Expr, ...]] = {}  # `below` may make new nodes, so it is called once for each node
    stack = list(reversed(exprs))
    while stack:
        node = stack[-1]
        if id(node) not in contained:
            contained[id(node)] = below(node)
        missing = [item for item in contained[id(node)] if id(item) not in order]
        if missing:
            missing.reverse()
            stack += missing
        else:
            order[id(node)] = stack.pop()
    return list(order.values())


def _equal(first: Expr, second: Expr) -> bool:
    """Compare nodes of one type, operation and hash by their operands. Equal nodes store the same object in `_equals`, so that
    equal expressions without common nodes are compared once."""
    pairs = [(first, second)]
    visited = {(id(first), id(second))}
    for a, b in pairs:  # grows in the loop
        for x, y in zip(a.operands, b.operands, strict=True):
            if x is y or (id(x), id(y)) in visited:
                continue
            if type(x) is not type(y) or x._hash != y._hash:
                return False
            if not x.operands:
                if x != y:
                    return False
            elif isinstance(x, Compare) and isinstance(y, Compare) and x.op != y.op:
                return False
            elif not _has_same_class(x, y):
                visited.add((id(x), id(y)))
                pairs.append((x, y))
    if len(pairs) > 1:
        for a, b in reversed(pairs):
            b._equals = a._equals = getattr(a, "_equals", None) or object()
    return True


def _has_same_class(a: Expr, b: Expr) -> bool:
    """Test whether `_equal` has found that two nodes are equal."""
    try:
        return a._equals is b._equals
    except AttributeError:
        return False


def named_parts(*exprs: Expr, depth: int, below: Below = attrgetter("operands")) -> tuple[list[Expr], dict[int, int]]:
    """Choose subexpressions to be written before the expressions, each under a number: those that occur several times, and as many
    others as keep all texts from being nested deeper than `depth`.

    Returns the parts, each after those that it contains, and the number of the part for the id of each node that is equal to it.
    `below` is as for `post_order`; a node without nodes below is never a part. Sizes with different bounds are different.
    """
    nodes = post_order(*exprs, below=below)
    classes: dict[Hashable, int] = {}
    class_numbers: dict[int, int] = {}
    distinct: list[Expr] = []
    for node in nodes:
        class_numbers[id(node)] = classes.setdefault(
            (_content(node), *[class_numbers[id(item)] for item in below(node)]), len(distinct)
        )
        if class_numbers[id(node)] == len(distinct):
            distinct.append(node)
    uses = [0] * len(distinct)
    for item in (*exprs, *(item for node in distinct for item in below(node))):
        uses[class_numbers[id(item)]] += 1
    heights: list[int] = []
    parts: dict[int, int] = {}
    for number, node in enumerate(distinct):
        inside = [class_numbers[id(item)] for item in below(node)]
        heights.append(1 + max([0 if item in parts else heights[item] for item in inside], default=0))
        if inside and (uses[number] > 1 or heights[number] >= depth):
            parts[number] = len(parts)
    return [distinct[number] for number in parts], {
        node: parts[number] for node, number in class_numbers.items() if number in parts
    }


def _content(node: Expr) -> Hashable:
    """Return what distinguishes a node from others with the same nodes below."""
    match node:
        case Const(value=value):
            return Const, value
        case SizeVar(name=name, lower=lower, upper=upper):
            return name, lower, upper if isinstance(upper, int) else upper is None
        case Compare(op=op):
            return Compare, op
        case Var() | Opaque():
            return Var, id(node)
    return (type(node),)


def is_long(expr: Expr, nodes: int, below: Below = attrgetter("operands")) -> bool:
    """Test whether an expression without names for common subexpressions has more than `nodes` nodes, or is nested deeper than
    `LEVELS`."""
    stack = [(expr, LEVELS)]
    for _ in range(nodes):
        if not stack:
            return False
        node, levels = stack.pop()
        if not levels:
            return True
        stack += [(item, levels - 1) for item in below(node)]
    return bool(stack)


_LONG = 1 << 10
"""Number of nodes above which the text of an expression has names for subexpressions that occur several times."""


class _Long(Exception):
    """Raised for an expression that is too long or too deep for a text without names."""


def format_expr(expr: Expr, leaf: Callable[[Expr], str] = lambda node: node.text(())) -> str:
    """Format an expression as text that `parse_expr` reads. `leaf` formats nodes without operands. A long or deep expression is
    written as `let($0 = ..., $1 = ..., ...)`: named subexpressions, then the expression that uses them."""
    try:
        return _plain(expr, leaf, LEVELS, [_LONG])
    except _Long:
        numbers = named_parts(expr, depth=LEVELS)[1]
    texts: dict[int, str] = {}
    bindings: list[str] = []
    for node in post_order(expr):
        number = numbers.get(id(node))
        if number is None or number == len(bindings):
            text = node.text([texts[id(item)] for item in node.operands]) if node.operands else leaf(node)
        if number is not None and number == len(bindings):
            bindings.append(f"${number} = {text}")
        texts[id(node)] = text if number is None else f"${number}"
    return f"let({', '.join([*bindings, texts[id(expr)]])})"


def _plain(node: Expr, leaf: Callable[[Expr], str], levels: int, room: list[int]) -> str:
    """Format an expression without names. `room` counts the nodes that the text may still have."""
    room[0] -= 1
    if not levels or room[0] < 0:
        raise _Long
    operands = node.operands
    return node.text([_plain(item, leaf, levels - 1, room) for item in operands]) if operands else leaf(node)


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


def levels(expr: Expr) -> int:
    """Return the number of levels of an expression. A leaf has 1."""
    try:
        return expr._reads[2]
    except AttributeError:
        return _reads(expr)[2]


def _reads(expr: Expr) -> tuple[frozenset[Expr], bool, int]:
    """Return the variables that an expression reads, whether it reads data, and its levels. Cached in each node."""
    stack = [expr]
    while stack:
        node = stack[-1]
        variables, data, height = _NOTHING, False, 0
        try:
            for operand in node.operands:
                inner, reads, depth = operand._reads
                variables, data = variables | inner if variables and inner else variables or inner, data or reads
                height = max(height, depth)
        except AttributeError:
            stack.extend(node.operands)
            continue
        stack.pop()
        if not node.operands and isinstance(node, (Var, SizeVar)):
            variables = frozenset((node,))
        elif not node.operands and isinstance(node, Opaque):
            variables, data = node.payload.free_vars() | free_vars(node.lower) | free_vars(node.upper), True
        node._reads = variables, data, height + 1
    return expr._reads


def substitute(expr: Expr, mapping: Mapping[Expr, Expr]) -> Expr:
    """Replace variables in an expression. Preserves sharing, and returns the same object if nothing changes."""
    variables = mapping.keys()
    if not mapping or variables.isdisjoint(free_vars(expr)):
        return expr
    replacements: dict[int, Expr] = {}
    stack = [expr]
    while stack:
        node = stack[-1]
        operands = node.operands
        if variables.isdisjoint(node._reads[0]):
            replacements[id(node)] = node
        elif not operands:
            replacements[id(node)] = _replaced(node, mapping)
        else:
            missing = [item for item in operands if id(item) not in replacements]
            if missing:
                stack += missing
                continue
            new = tuple([replacements[id(item)] for item in operands])
            replacements[id(node)] = node if all(map(operator.is_, new, operands)) else node.rebuild(new)
        stack.pop()
    return replacements[id(expr)]


def _replaced(leaf: Expr, mapping: Mapping[Expr, Expr]) -> Expr:
    """Replace the variables that a leaf reads."""
    if not isinstance(leaf, Opaque):
        return mapping[leaf]
    payload, lower, upper = leaf.payload.substitute(mapping), substitute(leaf.lower, mapping), substitute(leaf.upper, mapping)
    is_unchanged = payload is leaf.payload and lower is leaf.lower and upper is leaf.upper
    return leaf if is_unchanged else Opaque(payload, lower, upper)


def evaluate(expr: Dim, values: Mapping[Expr, int]) -> int:
    """Evaluate an expression under values for its variables, as `Evaluation` does."""
    return expr if isinstance(expr, int) else Evaluation(values)(expr)


class Evaluation:
    """Evaluates expressions under values for variables. Memoizes the values of all nodes, so that the cost is linear in the number
    of distinct nodes.

    Operands that a `Select`, an `And` or an `Or` does not need may be undefined. Otherwise raises KeyError for a variable without a
    value, ZeroDivisionError, and TypeError for an `Opaque`, which only the tensor interpreter can evaluate.
    """

    __slots__ = ("_cache", "_exprs", "_values")

    def __init__(self, values: Mapping[Expr, int]) -> None:
        self._values = values
        self._cache: dict[int, int | Exception] = {}
        self._exprs: list[Expr] = []  # keeps alive the nodes whose ids are keys of `_cache`

    def __call__(self, expr: Dim) -> int:
        """Return the value of an expression."""
        if isinstance(expr, int):
            return expr
        self._exprs.append(expr)
        return self._value(expr, LEVELS)

    def _value(self, node: Expr, levels: int) -> int:
        kind = type(node)
        if kind is Const:
            return node.value  # type: ignore[attr-defined, no-any-return]
        if kind is SizeVar or kind is Var:
            return self._values[node]
        cached = self._cache.get(id(node))
        if cached is None:
            if not levels:
                for item in post_order(node):
                    with suppress(KeyError, TypeError, ZeroDivisionError):
                        self._value(item, 1)
            try:
                cached = self._result(node, max(levels - 1, 0))
            except (KeyError, TypeError, ZeroDivisionError) as error:
                cached = error
            self._cache[id(node)] = cached
        if isinstance(cached, int):
            return cached
        raise cached

    def _result(self, node: Expr, levels: int) -> int:
        value = self._value
        operation = ARITHMETIC.get(type(node))
        if operation is not None:
            a, b = node.operands
            return operation(value(a, levels), value(b, levels))
        match node:
            case Compare(operands=(a, b), op=op):
                return int(_COMPARE[op](value(a, levels), value(b, levels)))
            case And(operands=(a, b)):
                return int(bool(value(a, levels)) and bool(value(b, levels)))
            case Or(operands=(a, b)):
                return int(bool(value(a, levels)) or bool(value(b, levels)))
            case Not(operands=(a,)):
                return int(not value(a, levels))
            case Select(operands=(condition, then, otherwise)):
                return value(then if value(condition, levels) else otherwise, levels)
        raise TypeError(f"expected an expression that reads only sizes, got {node!r}, which reads data: run it in the interpreter")
