"""The loop IR: value expressions, statements and loop programs.

Indices, extents and conditions on them are integer expressions of `inlaid.arith`; what lies in buffers is a value expression of
this module. `Index` turns the former into the latter, `checked` the latter into the former.

Value semantics, the same on every target:
* integer arithmetic wraps at the width of its dtype; `div` and `mod` of integers truncate (as C does), x / 0 and x mod 0 are 0;
* a cast from float to integer truncates and saturates, NaN becomes 0; to a float it rounds to nearest even, once; to bool it tells
  whether the value is not zero. Arithmetic on floats narrower than float32 is that of float32, rounded after each node;
* `fma` rounds once. `min` and `max` of floats return NaN if either operand is NaN.
* both operands of a binary node have the same dtype; comparisons yield bool; `and`/`or` of bools evaluate both sides.
* `Select` may evaluate both sides, except that a load on the side not chosen is not performed out of bounds: code generators
  guard it (a branch, or a masked load).

Expressions compare by identity. Shared subexpressions are meant: every walk over them is memoised.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum, Flag
from operator import is_not
from typing import Any, Union

from inlaid import arith
from inlaid.arith import Dim
from inlaid.errors import ExpressionError
from inlaid.types import DType, dtype

Operand = Union["Expr", arith.Expr, int, float, bool]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Buffer:
    """Memory of a shape and dtype, row-major. `scope` "" lies in main memory; "register" is a register file: every index into it
    is constant once unrolled loops are expanded; "subgroup" are registers that neighbouring threads read of one another; other
    names are memory scopes that a plugin declares."""

    name: str
    shape: tuple[Dim, ...]
    dtype: DType
    scope: str = ""

    def __getitem__(self, indices: Any) -> Load:
        return load(self, indices if isinstance(indices, tuple) else (indices,))

    def __repr__(self) -> str:
        return self.name


# --- value expressions ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Expr:
    """Base of value expressions; `dtype` is the element type of the value."""

    dtype: DType

    def __add__(self, other: Operand) -> Expr:
        return binary("add", self, other)

    def __radd__(self, other: Operand) -> Expr:
        return binary("add", other, self)

    def __sub__(self, other: Operand) -> Expr:
        return binary("sub", self, other)

    def __rsub__(self, other: Operand) -> Expr:
        return binary("sub", other, self)

    def __mul__(self, other: Operand) -> Expr:
        return binary("mul", self, other)

    def __rmul__(self, other: Operand) -> Expr:
        return binary("mul", other, self)

    def __truediv__(self, other: Operand) -> Expr:
        return binary("div", self, other)

    def __rtruediv__(self, other: Operand) -> Expr:
        return binary("div", other, self)

    def __mod__(self, other: Operand) -> Expr:
        return binary("mod", self, other)

    def __and__(self, other: Operand) -> Expr:
        return binary("and", self, other)

    def __rand__(self, other: Operand) -> Expr:
        return binary("and", other, self)

    def __or__(self, other: Operand) -> Expr:
        return binary("or", self, other)

    def __ror__(self, other: Operand) -> Expr:
        return binary("or", other, self)

    def __xor__(self, other: Operand) -> Expr:
        return binary("xor", self, other)

    def __lshift__(self, other: Operand) -> Expr:
        return binary("shl", self, other)

    def __rshift__(self, other: Operand) -> Expr:
        return binary("shr", self, other)

    def __lt__(self, other: Operand) -> Expr:
        return binary("lt", self, other)

    def __le__(self, other: Operand) -> Expr:
        return binary("le", self, other)

    def __gt__(self, other: Operand) -> Expr:
        return binary("lt", other, self)

    def __ge__(self, other: Operand) -> Expr:
        return binary("le", other, self)

    def equal(self, other: Operand) -> Expr:
        """self == other, as a value (`==` itself compares identity)."""
        return binary("eq", self, other)

    def not_equal(self, other: Operand) -> Expr:
        """self != other, as a value."""
        return binary("ne", self, other)

    def __neg__(self) -> Expr:
        return unary("neg", self)

    def __invert__(self) -> Expr:
        return unary("not", self)

    def astype(self, to: str | DType) -> Expr:
        """The value converted to another dtype."""
        return cast(self, to)

    def substitute(self, mapping: Mapping[arith.Expr, arith.Expr]) -> Expr:
        """The expression with index variables replaced; the same object when nothing changes."""
        return substitute(self, mapping)

    def free_vars(self) -> frozenset[arith.Expr]:
        """The index variables that the expression reads."""
        return free_vars(self)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Const(Expr):
    """A constant; `value` is a Python int, float or bool."""

    value: int | float | bool


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Index(Expr):
    """An integer expression as a value of an integer dtype or bool."""

    index: arith.Expr


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Load(Expr):
    """One element of a buffer."""

    buffer: Buffer
    indices: tuple[arith.Expr, ...]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Unary(Expr):
    """`op` in UNARY applied to a value of the same dtype (isnan, isinf: to bool)."""

    op: str
    a: Expr


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Binary(Expr):
    """`op` in BINARY applied to two values of one dtype."""

    op: str
    a: Expr
    b: Expr


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Fma(Expr):
    """a * b + c with one rounding."""

    a: Expr
    b: Expr
    c: Expr


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Select(Expr):
    """`then` where the bool condition holds, else `otherwise`."""

    condition: Expr
    then: Expr
    otherwise: Expr


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Cast(Expr):
    """A value converted to this node's dtype."""

    a: Expr


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Bitcast(Expr):
    """The bits of a value read as this node's dtype, of the same width."""

    a: Expr


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class CallMath(Expr):
    """A mathematical function in MATH. `tensor.math` expands it into arithmetic; a target may print an intrinsic instead."""

    name: str
    args: tuple[Expr, ...]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class CallIntrinsic(Expr):
    """A target's own pure function of values, by a name that the target declares."""

    name: str
    args: tuple[Expr, ...]


UNARY = ("neg", "abs", "not", "sqrt", "floor", "ceil", "round", "trunc", "isnan", "isinf", "popcount", "clz")
"""`not` is bitwise on integers, logical on bool; `round` is to nearest even; `popcount` and `clz` take integers."""
ARITHMETIC = ("add", "sub", "mul", "div", "mod", "min", "max", "and", "or", "xor", "shl", "shr")
COMPARISONS = ("lt", "le", "eq", "ne")
BINARY = ARITHMETIC + COMPARISONS
"""`shr` is arithmetic on signed, logical on unsigned integers; a shift count outside [0, width) gives 0 (-1 for `shr` of a
negative number)."""
MATH = (
    "exp", "exp2", "expm1", "log", "log1p", "log2", "sin", "cos", "tan", "asin", "acos", "atan", "atan2", "sinh", "cosh", "tanh",
    "asinh", "acosh", "atanh", "erf", "sigmoid", "pow", "rsqrt", "scalb",
)  # fmt: skip
"""`scalb` of x and n is x * 2 ** n, rounded once, for |x| from 1/4 to 4 and an integral n with 2 ** (n / 2) a normal number."""


def const(value: float | int | bool, of: str | DType) -> Const:
    """A constant of a dtype."""
    of = dtype(of)
    return Const(of, bool(value) if of.kind == "bool" else float(value) if of.is_float else int(value))


def as_expr(value: Operand, like: DType | None = None) -> Expr:
    """A value expression from a Python number or an integer expression, of dtype `like` (integer expressions: int64 then cast)."""
    if isinstance(value, Expr):
        return value
    if isinstance(value, arith.Expr):
        if like is None or like.kind != "float":
            return Index(like or dtype("int64"), value)
        return Cast(like, Index(dtype("int64"), value))
    if like is None:
        like = dtype("bool" if isinstance(value, bool) else "int64" if isinstance(value, int) else "float32")
    return const(value, like)


def binary(op: str, a: Operand, b: Operand) -> Expr:
    """A binary node. Raises `ExpressionError` when the dtypes differ."""
    like = a.dtype if isinstance(a, Expr) else b.dtype if isinstance(b, Expr) else None
    a, b = as_expr(a, like), as_expr(b, like)
    if a.dtype is not b.dtype:
        raise ExpressionError(f"{op} of {a.dtype} and {b.dtype}: cast one of them")
    return Binary(dtype("bool") if op in COMPARISONS else a.dtype, op, a, b)


def unary(op: str, a: Operand) -> Expr:
    """A unary node."""
    a = as_expr(a)
    return Unary(dtype("bool") if op in ("isnan", "isinf") else a.dtype, op, a)


def math(name: str, *args: Operand) -> Expr:
    """A call of a mathematical function on floats of one dtype."""
    like = next(arg.dtype for arg in args if isinstance(arg, Expr))
    return CallMath(like, name, tuple(as_expr(arg, like) for arg in args))


def cast(a: Operand, to: str | DType) -> Expr:
    """A conversion; nothing when the dtype is the same already."""
    a, to = as_expr(a), dtype(to)
    if a.dtype is to:
        return a
    if isinstance(a, Index) and to.is_int and a.dtype.is_int:
        return Index(to, a.index)
    return Cast(to, a)


def bitcast(a: Expr, to: str | DType) -> Expr:
    """The bits of a value as another dtype of the same width."""
    to = dtype(to)
    if to.bytes != a.dtype.bytes:
        raise ExpressionError(f"bitcast of {a.dtype} to {to}: the widths differ")
    return a if a.dtype is to else Bitcast(to, a)


def select(condition: Operand, then: Operand, otherwise: Operand) -> Expr:
    """A choice between two values of one dtype."""
    like = then.dtype if isinstance(then, Expr) else otherwise.dtype if isinstance(otherwise, Expr) else None
    then, otherwise = as_expr(then, like), as_expr(otherwise, like)
    if then.dtype is not otherwise.dtype:
        raise ExpressionError(f"select between {then.dtype} and {otherwise.dtype}: cast one of them")
    return Select(then.dtype, as_expr(condition, dtype("bool")), then, otherwise)


def fma(a: Expr, b: Expr, c: Expr) -> Expr:
    """a * b + c, rounded once."""
    return Fma(a.dtype, a, b, c)


def minimum(a: Operand, b: Operand) -> Expr:
    """The lesser of two; NaN where one is."""
    return binary("min", a, b)


def maximum(a: Operand, b: Operand) -> Expr:
    """The greater of two; NaN where one is."""
    return binary("max", a, b)


def load(buffer: Buffer, indices: tuple[Any, ...]) -> Load:
    """An element of a buffer. An index may be an integer, an integer expression, or a `checked` value."""
    if len(indices) != len(buffer.shape):
        raise ExpressionError(f"{buffer.name} has {len(buffer.shape)} dimensions, got {len(indices)} indices")
    return Load(buffer.dtype, buffer, tuple(arith.wrap(index) for index in indices))


def checked(value: Expr, lower: Dim, upper: Dim) -> arith.Expr:
    """A value as an index, known to lie in [lower, upper] because generated code checks it: outside, the kernel reports an error
    code and never reads. The value's dtype is an integer. A constant in range needs no check."""
    if not value.dtype.is_int:
        raise ExpressionError(f"an index is an integer, not {value.dtype}")
    checked_index = arith.Opaque(value, lower, upper)
    if isinstance(value, (Index, Const)):
        known = value.index if isinstance(value, Index) else arith.wrap(int(value.value))
        if all(isinstance(item, arith.Const) for item in (known, checked_index.lower, checked_index.upper)):
            inside = arith.logical_and(arith.compare("<=", lower, known), arith.compare("<=", known, upper))
            return known if inside == arith.ONE else checked_index
    return checked_index


# --- statements -------------------------------------------------------------------------------------------------------


class ForKind(Enum):
    """How the iterations of a loop run.

    A vectorised loop has a constant extent and holds no other vectorised loop; the extents of loops in it do not vary with it. Its
    iterations run in lock step: code generators widen its body. Unrolled loops have a constant extent and are expanded once, after
    scheduling.
    """

    SERIAL = "serial"
    PARALLEL = "parallel"
    VECTORIZED = "vectorized"
    UNROLLED = "unrolled"
    VTHREAD = "vthread"
    THREAD = "thread"


class IterKind(Enum):
    """What a block's iteration variable ranges over."""

    SPATIAL = "spatial"
    REDUCTION = "reduction"
    OPAQUE = "opaque"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Stmt:
    """Base of statements."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class For(Stmt):
    """`body` for var in [0, extent). `thread` names the axis of a loop bound to threads, such as "threadIdx.x"."""

    var: arith.Var
    extent: arith.Expr
    body: Stmt
    kind: ForKind = ForKind.SERIAL
    thread: str = ""
    annotations: tuple[tuple[str, Any], ...] = ()

    @property
    def over_threads(self) -> bool:
        """Whether the iterations run on the threads of a block, not on blocks."""
        return self.kind is ForKind.THREAD and not self.thread.startswith("block")


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class While(Stmt):
    """`body` as long as the bool condition holds."""

    condition: Expr
    body: Stmt


@dataclass(frozen=True, slots=True, eq=False)
class IterVar:
    """An iteration variable of a block: `var` ranges over [0, extent)."""

    var: arith.Var
    extent: arith.Expr
    kind: IterKind = IterKind.SPATIAL


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Region:
    """A box of a buffer: per dimension the first index and the extent."""

    buffer: Buffer
    ranges: tuple[tuple[arith.Expr, arith.Expr], ...]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Block(Stmt):
    """One unit of computation, what schedules move about.

    `bindings` give the value of each iteration variable in terms of the loops around. The body computes where `predicate` holds.
    `init` runs first when every reduction variable is at 0. Reads and writes are in terms of the iteration variables; a read may
    reach outside its buffer where the load is guarded, and what an update reads of the buffers it writes is not among the reads.
    """

    name: str
    iters: tuple[IterVar, ...]
    bindings: tuple[arith.Expr, ...]
    reads: tuple[Region, ...]
    writes: tuple[Region, ...]
    body: Stmt
    init: Stmt | None = None
    predicate: arith.Expr = arith.ONE
    annotations: tuple[tuple[str, Any], ...] = ()


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Store(Stmt):
    """One element of a buffer takes a value."""

    buffer: Buffer
    indices: tuple[arith.Expr, ...]
    value: Expr


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class If(Stmt):
    """`then` where the bool condition holds, else `otherwise`."""

    condition: Expr
    then: Stmt
    otherwise: Stmt | None = None


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Let(Stmt):
    """`body` with an index variable that has the value of an integer expression over data, computed here, once.

    Where `bounds` is given, the value is checked to lie in it (inclusive); outside, the kernel reports an error code.
    """

    var: arith.Var
    value: Expr
    body: Stmt
    bounds: tuple[arith.Expr, arith.Expr] | None = None


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Alloc(Stmt):
    """A buffer that lives as long as `body` runs; its contents are undefined at first."""

    buffer: Buffer
    body: Stmt


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Seq(Stmt):
    """Statements in order. The empty sequence does nothing."""

    stmts: tuple[Stmt, ...]


class Access(Flag):
    """What an intrinsic does with a region. WRITE alone means all of it, so that nothing there before is of use; HINT neither reads
    nor writes."""

    HINT = 0
    READ = 1
    WRITE = 2
    UPDATE = 3


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Intrinsic(Stmt):
    """A target's tensor intrinsic applied to regions of buffers and to scalars; `name` is one that the target declares, whose
    semantic loop nest says what it does, `access` what it does with each region. One that is collective over thread axes acts once
    for all threads of a phase: it stands beside loops bound to these axes, or where a barrier may stand in a nest of them all."""

    name: str
    regions: tuple[Region, ...]
    access: tuple[Access, ...] = ()
    args: tuple[Expr, ...] = ()
    over: tuple[str, ...] = ()

    def touching(self, access: Access) -> Iterator[Region]:
        """The regions that are read, or written, or either."""
        return (region for region, found in zip(self.regions, self.access, strict=True) if found & access)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Barrier(Stmt):
    """All threads of a block arrive here before any goes on, and each then sees what the others wrote before. With `over`, only
    threads that differ along these axes alone meet, and see what was written to registers of their subgroup (scope "subgroup").

    It stands in one perfect nest of loops bound to threads, in serial loops and branches that all threads of the block run alike.
    """

    over: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class LoopProgram:
    """A kernel: reads `inputs`, writes every element of `outputs`.

    `updates` are pairs (output, input) of numbers: the output takes over the input's buffer, so it holds the input's elements at
    first and only some are written. The body accesses the output alone.

    `defines` pairs each existential dimension that the kernel works out with the 0-d int64 buffer where it stores it; these
    buffers stand in `outputs`, behind the others. A kernel of a program that is split into launches has such a buffer among its
    `inputs` where another one worked the dimension out. Outputs and `Alloc`ed buffers whose shape has such a dimension are
    allocated at its upper bound and filled row-major at the actual size: the dimension reads as what its buffer holds at that
    moment, so the kernel stores it before it touches them. `sizes` are the dimensions that the body reads and no parameter's shape
    mentions.
    """

    name: str
    inputs: tuple[Buffer, ...]
    outputs: tuple[Buffer, ...]
    body: Stmt
    defines: tuple[tuple[arith.SizeVar, Buffer], ...] = ()
    annotations: tuple[tuple[str, Any], ...] = field(default=())
    sizes: tuple[arith.SizeVar, ...] = ()
    updates: tuple[tuple[int, int], ...] = ()

    @property
    def params(self) -> tuple[Buffer, ...]:
        return self.inputs + self.outputs


# --- walks ------------------------------------------------------------------------------------------------------------


def operands(expr: Expr) -> tuple[Expr, ...]:
    """The value operands of an expression. The payloads of checked indices are not among them: see `index_operands`."""
    if type(expr) is Binary:  # these first two are nearly all there is, and matching is slow
        return (expr.a, expr.b)
    if type(expr) in _LEAVES:
        return ()
    match expr:
        case Unary(a=a) | Cast(a=a) | Bitcast(a=a):
            return (a,)
        case Fma(a=a, b=b, c=c):
            return (a, b, c)
        case Select(condition=condition, then=then, otherwise=otherwise):
            return (condition, then, otherwise)
        case CallMath(args=args) | CallIntrinsic(args=args):
            return args
    return ()


_LEAVES = (Load, Const, Index)


def index_operands(expr: Expr) -> tuple[arith.Expr, ...]:
    """The integer operands of an expression."""
    if isinstance(expr, Load):
        return expr.indices
    return (expr.index,) if type(expr) is Index else ()


def map_expr(
    expr: Expr,
    leaf: Callable[[Expr], Expr | None] | None,
    index: Callable[[arith.Expr], arith.Expr],
    memo: dict[Expr, Expr] | None = None,
) -> Expr:
    """Rebuild an expression bottom-up. `leaf(node)` may replace a node whose operands are rebuilt already (None: keep it);
    `index` maps integer operands. Sharing is kept; nothing is built where nothing changes."""
    memo = {} if memo is None else memo
    stack = [expr]
    while stack:
        node = stack[-1]
        if node in memo:
            stack.pop()
            continue
        new = node
        if isinstance(node, Load):
            indices = tuple(map(index, node.indices))
            if any(map(is_not, indices, node.indices)):
                new = Load(node.dtype, node.buffer, indices)
        elif type(node) is Index:
            mapped = index(node.index)
            if mapped is not node.index:
                new = Index(node.dtype, mapped)
        elif old := operands(node):
            missing = [arg for arg in old if arg not in memo]
            if missing:
                stack.extend(reversed(missing))
                continue
            args = tuple(map(memo.__getitem__, old))
            if any(map(is_not, args, old)):
                new = with_operands(node, args)
        stack.pop()
        memo[node] = (leaf(new) or new) if leaf else new
    return memo[expr]


def with_operands(expr: Expr, args: tuple[Expr, ...]) -> Expr:
    """The same node over other value operands."""
    match expr:
        case Binary(dtype=of, op=op):
            return Binary(of, op, *args)
        case Unary(dtype=of, op=op):
            return Unary(of, op, *args)
        case Cast(dtype=of):
            return Cast(of, *args)
        case Bitcast(dtype=of):
            return Bitcast(of, *args)
        case Fma(dtype=of):
            return Fma(of, *args)
        case Select(dtype=of):
            return Select(of, *args)
        case CallMath(dtype=of, name=name):
            return CallMath(of, name, args)
        case CallIntrinsic(dtype=of, name=name):
            return CallIntrinsic(of, name, args)
    assert not args, f"{type(expr).__name__} has no operands"
    return expr


def substitute(expr: Expr, mapping: Mapping[arith.Expr, arith.Expr]) -> Expr:
    """The expression with index variables replaced; the same object when nothing changes."""
    if not mapping:
        return expr
    return map_expr(expr, None, lambda index: arith.substitute(index, mapping))


def payloads(index: arith.Expr) -> Iterator[Expr]:
    """The values that an integer expression checks."""
    for part in arith.walk(index) if arith.reads_data(index) else ():
        if isinstance(part, arith.Opaque):
            assert isinstance(part.payload, Expr), "a checked index of a loop program wraps a value expression"
            yield part.payload


def parts(expr: Expr) -> tuple[Expr, ...]:
    """The value expressions directly below one: its operands, and the values that its indices check."""
    if type(expr) is Binary:
        return (expr.a, expr.b)
    indices = index_operands(expr)
    if any(map(arith.reads_data, indices)):
        return tuple(value for index in indices for value in payloads(index))
    return operands(expr)


def walk_exprs(*roots: Expr) -> Iterator[Expr]:
    """Every value expression below the roots once, from left to right, those inside checked indices included."""
    seen: set[Expr] = set()
    stack = list(reversed(roots))
    while stack:
        node = stack.pop()
        if node not in seen:
            seen.add(node)
            yield node
            if below := parts(node):
                stack.extend(reversed(below))


def free_vars(expr: Expr) -> frozenset[arith.Expr]:
    """The index variables that an expression reads."""
    found: set[arith.Expr] = set()
    for node in walk_exprs(expr):
        for index in index_operands(node):
            found |= arith.free_vars(index)
    return frozenset(found)


def statement_operands(stmt: Stmt) -> tuple[tuple[Expr, ...], tuple[Dim, ...]]:
    """The value expressions and the integer expressions that a statement holds itself, those of its substatements left out."""
    match stmt:
        case For(extent=extent):
            return (), (extent,)
        case While(condition=condition) | If(condition=condition):
            return (condition,), ()
        case Store(value=value, indices=indices):
            return (value,), indices
        case Let(value=value, bounds=bounds):
            return (value,), bounds or ()
        case Alloc(buffer=buffer):
            return (), buffer.shape
        case Block(iters=iters, bindings=bindings, reads=reads, writes=writes, predicate=predicate):
            return (), (*(item.extent for item in iters), *bindings, *_corners(reads + writes), predicate)
        case Intrinsic(regions=regions, args=args):
            return args, _corners(regions)
    return (), ()


def _corners(regions: tuple[Region, ...]) -> tuple[arith.Expr, ...]:
    return tuple(part for region in regions for span in region.ranges for part in span)


def substatements(stmt: Stmt) -> tuple[Stmt, ...]:
    """The direct substatements."""
    kind = type(stmt)  # schedules walk over programs again and again: a chain of matches takes twice as long
    if kind is Store or kind is Intrinsic or kind is Barrier:
        return ()
    if kind is Seq:
        return stmt.stmts  # type: ignore[attr-defined, no-any-return]
    if kind is If:
        return (stmt.then,) if stmt.otherwise is None else (stmt.then, stmt.otherwise)  # type: ignore[attr-defined]
    if kind is Block and stmt.init is not None:  # type: ignore[attr-defined]
        return (stmt.init, stmt.body)  # type: ignore[attr-defined]
    return (stmt.body,)  # type: ignore[attr-defined]


def threads_meet(stmt: Stmt, axes: Collection[str]) -> bool:
    """Whether threads meet in a statement: at a barrier, or in an intrinsic that is collective over one of the axes."""
    return any(
        isinstance(node, Barrier) or (isinstance(node, Intrinsic) and not frozenset(axes).isdisjoint(node.over))
        for node in walk_stmts(stmt)
    )


def values_in(stmt: Stmt) -> Iterator[Expr]:
    """Every value expression of a statement and those inside it once, those inside checked indices included."""
    roots: list[Expr] = []
    for node in walk_stmts(stmt):
        values, indices = statement_operands(node)
        roots += values
        roots += (value for index in indices if not isinstance(index, int) for value in payloads(index))
    return walk_exprs(*roots)


def walk_stmts(stmt: Stmt) -> Iterator[Stmt]:
    """Every statement, outer before inner, in order."""
    stack = [stmt]
    while stack:
        node = stack.pop()
        yield node
        stack.extend(reversed(substatements(node)))
