"""The loop IR: value expressions, statements and loop programs.

Indices, extents and conditions on them are integer expressions of `inlaid_runtime.arith`; buffer elements are value expressions,
defined here. `Index` converts an integer expression to a value, `checked` a value to an integer expression.

Value semantics, the same on every target:
* Integer arithmetic wraps at the width of its dtype. Integer `div` and `mod` truncate (as in C); x / 0 and x mod 0 are 0.
* A cast from float to integer truncates and saturates; NaN becomes 0. A cast to a float rounds once, half to even. A cast to bool
  is true for nonzero values. Arithmetic on floats narrower than float32 is done in float32 and rounded after each node.
* `fma` rounds once. `min` and `max` of floats return NaN if either operand is NaN.
* Both operands of a binary node have the same dtype; comparisons yield bool; `and` and `or` of bools evaluate both operands.
* `Select` may evaluate both operands, but a load in the operand not selected never reads out of bounds: code generators guard it
  (a branch, or a masked load).

Expressions compare by identity and may share subexpressions; every walk over them is memoized.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from enum import Enum, Flag
from operator import is_not
from typing import Any, Union

from inlaid_runtime import arith
from inlaid_runtime.arith import Dim
from inlaid_runtime.errors import ExpressionError
from inlaid_runtime.records import dataclass, field
from inlaid_runtime.types import DType
from inlaid_runtime.types import dtype as as_dtype

Operand = Union["Expr", arith.Expr, int, float, bool]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Buffer:
    """Memory of a shape and dtype, in row-major order. `scope` is "" for main memory. In "register", a register file, every index
    is constant once unrolled loops are expanded. In "subgroup", the threads of a subgroup can read each other's registers. Any
    other scope is a memory scope that a plugin declares."""

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
        """Build the value of self == other (Python's `==` compares identity)."""
        return binary("eq", self, other)

    def not_equal(self, other: Operand) -> Expr:
        """Build the value of self != other."""
        return binary("ne", self, other)

    def __neg__(self) -> Expr:
        return unary("neg", self)

    def __invert__(self) -> Expr:
        return unary("not", self)

    def astype(self, dtype: str | DType) -> Expr:
        """Convert the value to another dtype."""
        return cast(self, dtype)

    def substitute(self, mapping: Mapping[arith.Expr, arith.Expr]) -> Expr:
        """Replace index variables. Returns the same object if nothing changes."""
        return substitute(self, mapping)

    def free_vars(self) -> frozenset[arith.Expr]:
        """Return the index variables that the expression reads."""
        return free_vars(self)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Const(Expr):
    """A constant; `value` is a Python int, float or bool."""

    value: int | float | bool


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Index(Expr):
    """An integer expression as a value of integer or bool dtype."""

    index: arith.Expr


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Load(Expr):
    """A load of one buffer element."""

    buffer: Buffer
    indices: tuple[arith.Expr, ...]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Unary(Expr):
    """A unary operation: `op` in UNARY. The result has the operand's dtype (isnan, isinf: bool)."""

    op: str
    a: Expr


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Binary(Expr):
    """A binary operation: `op` in BINARY. Both operands have one dtype."""

    op: str
    a: Expr
    b: Expr


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Fma(Expr):
    """Fused multiply-add: a * b + c with one rounding."""

    a: Expr
    b: Expr
    c: Expr


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Select(Expr):
    """A choice: `then` if the bool condition holds, else `otherwise`."""

    condition: Expr
    then: Expr
    otherwise: Expr


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Cast(Expr):
    """A conversion of a value to this node's dtype."""

    a: Expr


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Bitcast(Expr):
    """A reinterpretation of a value's bits as this node's dtype, which has the same width."""

    a: Expr


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class CallMath(Expr):
    """A call of a mathematical function in MATH. `tensor.math` expands it into arithmetic, unless the target has an intrinsic."""

    name: str
    args: tuple[Expr, ...]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class CallIntrinsic(Expr):
    """A call of a pure function of values that a target provides, by the name that the target declares."""

    name: str
    args: tuple[Expr, ...]


UNARY = ("neg", "abs", "not", "sqrt", "floor", "ceil", "round", "trunc", "isnan", "isinf", "popcount", "clz")
"""Names of unary operators. `not` is bitwise on integers. `round` rounds half to even. `popcount`, `clz` take integers."""
ARITHMETIC = ("add", "sub", "mul", "div", "mod", "min", "max", "and", "or", "xor", "shl", "shr")
COMPARISONS = ("lt", "le", "eq", "ne")
BINARY = ARITHMETIC + COMPARISONS
"""Names of binary operations. `shr` is arithmetic on signed and logical on unsigned integers. A shift count outside [0, width)
gives 0 (-1 for `shr` of a negative number)."""
MATH = (
    "exp", "exp2", "expm1", "log", "log1p", "log2", "sin", "cos", "tan", "asin", "acos", "atan", "atan2", "sinh", "cosh", "tanh",
    "asinh", "acosh", "atanh", "erf", "sigmoid", "pow", "rsqrt", "scalb", "flush",
)  # fmt: skip
"""Names of functions. `scalb(x, n)` is x * 2 ** n, rounded once, for |x| in [1/4, 4] and integral n with 2 ** (n / 2) normal.
`flush(x)` is x; a target may flush a denormal x to a zero of the same sign."""


def const(value: float | int | bool, dtype: str | DType) -> Const:
    """Make a constant of a dtype."""
    dtype = as_dtype(dtype)
    return Const(dtype, bool(value) if dtype.kind == "bool" else float(value) if dtype.is_float else int(value))


def as_expr(value: Operand, dtype: DType | None = None) -> Expr:
    """Convert a Python number or integer expression to a value of dtype `dtype`. Without a dtype, bools become bool, integers and
    integer expressions int64, floats float32. An integer expression becomes a float by way of int64. Values are returned
    unchanged."""
    if isinstance(value, Expr):
        return value
    if isinstance(value, arith.Expr):
        if dtype is None or dtype.kind != "float":
            return Index(dtype or as_dtype("int64"), value)
        return Cast(dtype, Index(as_dtype("int64"), value))
    if dtype is None:
        dtype = as_dtype("bool" if isinstance(value, bool) else "int64" if isinstance(value, int) else "float32")
    return const(value, dtype)


def binary(op: str, a: Operand, b: Operand) -> Expr:
    """Make a binary node. Raises `ExpressionError` if the dtypes differ."""
    dtype = a.dtype if isinstance(a, Expr) else b.dtype if isinstance(b, Expr) else None
    a, b = as_expr(a, dtype), as_expr(b, dtype)
    if a.dtype is not b.dtype:
        raise ExpressionError(f"operands of {op} must have one dtype, got {a.dtype} and {b.dtype}: cast one of them")
    return Binary(as_dtype("bool") if op in COMPARISONS else a.dtype, op, a, b)


def unary(op: str, a: Operand) -> Expr:
    """Make a unary node."""
    a = as_expr(a)
    return Unary(as_dtype("bool") if op in ("isnan", "isinf") else a.dtype, op, a)


def math(name: str, *args: Operand) -> Expr:
    """Call a mathematical function on floats of one dtype."""
    dtype = next(arg.dtype for arg in args if isinstance(arg, Expr))
    return CallMath(dtype, name, tuple(as_expr(arg, dtype) for arg in args))


def cast(a: Operand, dtype: str | DType) -> Expr:
    """Convert a value to a dtype. Returns the operand itself if it has that dtype."""
    a, dtype = as_expr(a), as_dtype(dtype)
    if a.dtype is dtype:
        return a
    if isinstance(a, Index) and dtype.is_int and a.dtype.is_int:
        return Index(dtype, a.index)
    return Cast(dtype, a)


def bitcast(a: Expr, dtype: str | DType) -> Expr:
    """Reinterpret the bits of a value as another dtype of the same width."""
    dtype = as_dtype(dtype)
    if dtype.bytes != a.dtype.bytes:
        raise ExpressionError(f"bitcast needs dtypes of one width, got {a.dtype} to {dtype}: use cast")
    return a if a.dtype is dtype else Bitcast(dtype, a)


def select(condition: Operand, then: Operand, otherwise: Operand) -> Expr:
    """Select between two values of one dtype."""
    dtype = then.dtype if isinstance(then, Expr) else otherwise.dtype if isinstance(otherwise, Expr) else None
    then, otherwise = as_expr(then, dtype), as_expr(otherwise, dtype)
    if then.dtype is not otherwise.dtype:
        raise ExpressionError(f"operands of select must have one dtype, got {then.dtype} and {otherwise.dtype}: cast one of them")
    return Select(then.dtype, as_expr(condition, as_dtype("bool")), then, otherwise)


def fma(a: Expr, b: Expr, c: Expr) -> Expr:
    """Make a fused multiply-add: a * b + c, rounded once."""
    return Fma(a.dtype, a, b, c)


def minimum(a: Operand, b: Operand) -> Expr:
    """Compute the smaller of two values; NaN if either is NaN."""
    return binary("min", a, b)


def maximum(a: Operand, b: Operand) -> Expr:
    """Compute the larger of two values; NaN if either is NaN."""
    return binary("max", a, b)


def load(buffer: Buffer, indices: tuple[Any, ...]) -> Load:
    """Load an element of a buffer. Each index is an integer, an integer expression, or a `checked` value."""
    if len(indices) != len(buffer.shape):
        raise ExpressionError(f"{buffer.name} has {len(buffer.shape)} dimensions, got {len(indices)} indices")
    return Load(buffer.dtype, buffer, tuple(arith.wrap(index) for index in indices))


def checked(value: Expr, lower: Dim, upper: Dim) -> arith.Expr:
    """Convert an integer value to an index in [lower, upper]. Generated code checks the range; if the index is outside, the kernel
    returns an error code instead of reading. A constant in range needs no check."""
    if not value.dtype.is_int:
        raise ExpressionError(f"an index must be an integer, got {value.dtype}: cast it")
    checked_index = arith.Opaque(value, lower, upper)
    if isinstance(value, (Index, Const)):
        index = value.index if isinstance(value, Index) else arith.wrap(int(value.value))
        if all(isinstance(item, arith.Const) for item in (index, checked_index.lower, checked_index.upper)):
            in_range = arith.logical_and(arith.compare("<=", lower, index), arith.compare("<=", index, upper))
            return index if in_range == arith.ONE else checked_index
    return checked_index


# --- statements -------------------------------------------------------------------------------------------------------


class ForKind(Enum):
    """Execution modes of a loop.

    A vectorized loop has a constant extent and contains no vectorized loop. Extents of loops inside it do not depend on it.
    Its iterations run in lockstep: code generators widen its body. An unrolled loop has a constant extent and is expanded once,
    after scheduling.
    """

    SERIAL = "serial"
    PARALLEL = "parallel"
    VECTORIZED = "vectorized"
    UNROLLED = "unrolled"
    VTHREAD = "vthread"
    THREAD = "thread"


class IterKind(Enum):
    """Kinds of block iteration variables."""

    SPATIAL = "spatial"
    REDUCTION = "reduction"
    OPAQUE = "opaque"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Stmt:
    """Base class of statements."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class For(Stmt):
    """A loop that runs `body` for var in [0, extent). `thread` names the axis of a loop bound to threads, e.g. "threadIdx.x"."""

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
    """A loop that runs `body` while the bool condition holds."""

    condition: Expr
    body: Stmt


@dataclass(frozen=True, slots=True, eq=False)
class IterVar:
    """An iteration variable of a block. `var` ranges over [0, extent)."""

    var: arith.Var
    extent: arith.Expr
    kind: IterKind = IterKind.SPATIAL


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class BufferRegion:
    """A box within a buffer: for each dimension, (first index, extent)."""

    buffer: Buffer
    ranges: tuple[tuple[arith.Expr, arith.Expr], ...]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Block(Stmt):
    """A unit of computation, which schedules move as a whole.

    `bindings` give the value of each iteration variable in terms of the enclosing loops. The body runs if `predicate` holds. `init`
    runs first if every reduction variable is 0. `reads` and `writes` are in terms of the iteration variables. A read region may
    extend outside its buffer if the load is guarded. A reduction's reads of its own output are not listed.
    """

    name: str
    iters: tuple[IterVar, ...]
    bindings: tuple[arith.Expr, ...]
    reads: tuple[BufferRegion, ...]
    writes: tuple[BufferRegion, ...]
    body: Stmt
    init: Stmt | None = None
    predicate: arith.Expr = arith.ONE
    annotations: tuple[tuple[str, Any], ...] = ()


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Store(Stmt):
    """A store of a value to one buffer element."""

    buffer: Buffer
    indices: tuple[arith.Expr, ...]
    value: Expr


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class If(Stmt):
    """A branch that runs `then` if the bool condition holds, else `otherwise`."""

    condition: Expr
    then: Stmt
    otherwise: Stmt | None = None


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Let(Stmt):
    """A binding of an index variable to an integer value during `body`. The value is evaluated once, when the statement runs.

    With `bounds` (inclusive), the value is checked to be in range; if it is not, the kernel returns an error code.
    """

    var: arith.Var
    value: Expr
    body: Stmt
    bounds: tuple[arith.Expr, arith.Expr] | None = None


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Alloc(Stmt):
    """An allocation of a buffer that is live during `body`. Its initial contents are undefined."""

    buffer: Buffer
    body: Stmt


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Seq(Stmt):
    """A sequence of statements. The empty sequence is a no-op."""

    stmts: tuple[Stmt, ...]


class AccessMode(Flag):
    """How an intrinsic accesses a region. WRITE alone overwrites the whole region, so that its previous contents are dead. HINT
    neither reads nor writes."""

    HINT = 0
    READ = 1
    WRITE = 2
    UPDATE = 3


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Intrinsic(Stmt):
    """A call of a target's tensor intrinsic on buffer regions and scalars. The target declares `name` with a semantic loop nest.
    `access` is the access to each region. An intrinsic that is collective `over` thread axes runs once for each group of threads
    that differ only along these axes. It is a sibling of loops bound to these axes, or inside a nest of all these loops, where a
    barrier is permitted."""

    name: str
    regions: tuple[BufferRegion, ...]
    access: tuple[AccessMode, ...] = ()
    args: tuple[Expr, ...] = ()
    over: tuple[str, ...] = ()

    def touching(self, access: AccessMode) -> Iterator[BufferRegion]:
        """Iterate over the regions with any of the given kinds of access."""
        return (region for region, region_access in zip(self.regions, self.access, strict=True) if region_access & access)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Barrier(Stmt):
    """A barrier for all threads of a block, which also makes their earlier writes visible to each other. With `over`, only threads
    that differ in these axes wait for each other, and only writes to registers of their subgroup (scope "subgroup") become visible.

    It is inside one perfect nest of thread loops. Enclosing serial loops and branches are uniform across the threads of the block.
    """

    over: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class LoopProgram:
    """A kernel that reads `inputs` and writes every element of `outputs`.

    `updates` are pairs of positions (output, input). Such an output reuses the input's buffer: it initially holds the input's
    elements, and the kernel may write only some of them. The body accesses only the output.

    `defines` pairs each existential dimension that the kernel computes with the 0-d int64 buffer that receives it. These buffers
    come last in `outputs`. If a program is split into launches, a kernel that uses such a dimension without computing it has the
    dimension's buffer among its `inputs`. Outputs and `Alloc`ed buffers with an existential dimension are allocated at its upper
    bound and filled row-major at the actual size. The kernel must store the dimension before it accesses them, since the dimension
    has the value that its buffer holds at that time. `sizes` are the dimensions that the body reads and that occur in no
    parameter's shape."""

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
    """Return the value operands of an expression, without the payloads of checked indices (see `index_operands`)."""
    if type(expr) is Binary:  # hot path: nearly all nodes, and `match` is slow
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


def post_order(root: Expr) -> Iterator[Expr]:
    """Iterate once over every node of an expression, operands first, without payloads of checked indices."""
    visited: set[Expr] = set()
    stack = [root]
    while stack:
        node = stack[-1]
        missing = () if node in visited else [arg for arg in operands(node) if arg not in visited]
        if missing:
            stack.extend(reversed(missing))
            continue
        stack.pop()
        if node not in visited:
            visited.add(node)
            yield node


def index_operands(expr: Expr) -> tuple[arith.Expr, ...]:
    """Return the integer expressions that are operands of an expression."""
    if isinstance(expr, Load):
        return expr.indices
    return (expr.index,) if type(expr) is Index else ()


def map_expr(
    expr: Expr,
    leaf: Callable[[Expr], Expr | None] | None,
    index: Callable[[arith.Expr], arith.Expr],
    memo: dict[Expr, Expr] | None = None,
) -> Expr:
    """Rebuild an expression bottom-up. `leaf(node)` may replace a node whose operands are already rebuilt (None: keep it). `index`
    maps integer operands. Preserves sharing, and returns the same object if nothing changes."""
    memo = {} if memo is None else memo
    stack = [expr]
    while stack:
        node = stack.pop()
        if node in memo:
            continue
        new = node
        if type(node) is Binary:  # hot path: nearly all inner nodes
            a, b = node.a, node.b
            if a not in memo or b not in memo:
                stack += (node, b, a)
                continue
            x, y = memo[a], memo[b]
            if x is not a or y is not b:
                new = Binary(node.dtype, node.op, x, y)
        elif isinstance(node, Load):
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
                stack.append(node)
                stack.extend(reversed(missing))
                continue
            args = tuple(map(memo.__getitem__, old))
            if any(map(is_not, args, old)):
                new = with_operands(node, args)
        memo[node] = (leaf(new) or new) if leaf else new
    return memo[expr]


def with_operands(expr: Expr, args: tuple[Expr, ...]) -> Expr:
    """Copy a node with new value operands."""
    match expr:
        case Binary(dtype=dtype, op=op):
            return Binary(dtype, op, *args)
        case Unary(dtype=dtype, op=op):
            return Unary(dtype, op, *args)
        case Cast(dtype=dtype):
            return Cast(dtype, *args)
        case Bitcast(dtype=dtype):
            return Bitcast(dtype, *args)
        case Fma(dtype=dtype):
            return Fma(dtype, *args)
        case Select(dtype=dtype):
            return Select(dtype, *args)
        case CallMath(dtype=dtype, name=name):
            return CallMath(dtype, name, args)
        case CallIntrinsic(dtype=dtype, name=name):
            return CallIntrinsic(dtype, name, args)
    assert not args, f"{type(expr).__name__} has no operands"
    return expr


def substitute(expr: Expr, mapping: Mapping[arith.Expr, arith.Expr]) -> Expr:
    """Replace index variables in an expression. Returns the same object if nothing changes."""
    if not mapping:
        return expr
    return map_expr(expr, None, lambda index: arith.substitute(index, mapping))


def payloads(index: arith.Expr) -> Iterator[Expr]:
    """Iterate over the values that an integer expression checks as indices."""
    for part in arith.walk(index) if arith.reads_data(index) else ():
        if isinstance(part, arith.Opaque):
            assert isinstance(part.payload, Expr), "a checked index of a loop program must wrap a value expression"
            yield part.payload


def parts(expr: Expr) -> tuple[Expr, ...]:
    """Return the value expressions directly below a node: its operands, and the payloads of its checked indices."""
    if type(expr) is Const:
        return ()
    if not isinstance(expr, (Load, Index)):
        return operands(expr)
    return tuple([value for index in index_operands(expr) if arith.reads_data(index) for value in payloads(index)])


def walk_exprs(*roots: Expr) -> Iterator[Expr]:
    """Iterate once over every value expression below the roots, left to right, including payloads of checked indices."""
    visited: set[Expr] = set()
    stack = list(reversed(roots))
    while stack:
        node = stack.pop()
        if node not in visited:
            visited.add(node)
            yield node
            if type(node) is Binary:  # hot path
                stack += (node.b, node.a)
            elif children := parts(node):
                stack.extend(reversed(children))


def free_vars(expr: Expr) -> frozenset[arith.Expr]:
    """Return the index variables that an expression reads."""
    variables: set[arith.Expr] = set()
    for node in walk_exprs(expr):
        for index in index_operands(node):
            variables |= arith.free_vars(index)
    return frozenset(variables)


def statement_operands(stmt: Stmt) -> tuple[tuple[Expr, ...], tuple[Dim, ...]]:
    """Return the value and integer expressions of a statement, without those of its substatements."""
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


def _corners(regions: tuple[BufferRegion, ...]) -> tuple[arith.Expr, ...]:
    return tuple(part for region in regions for span in region.ranges for part in span)


def substatements(stmt: Stmt) -> tuple[Stmt, ...]:
    """Return the direct substatements of a statement."""
    kind = type(stmt)  # hot path: a `match` statement takes twice as long
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
    """Test whether a statement contains a barrier, or an intrinsic that is collective over one of the axes."""
    return any(
        isinstance(node, Barrier) or (isinstance(node, Intrinsic) and not frozenset(axes).isdisjoint(node.over))
        for node in walk_stmts(stmt)
    )


def values_in(stmt: Stmt) -> Iterator[Expr]:
    """Iterate once over every value expression of a statement, including payloads of checked indices."""
    roots: list[Expr] = []
    for node in walk_stmts(stmt):
        values, indices = statement_operands(node)
        roots += values
        roots += [value for index in indices if not isinstance(index, int) and arith.reads_data(index) for value in payloads(index)]
    return walk_exprs(*roots)


def walk_stmts(stmt: Stmt) -> Iterator[Stmt]:
    """Iterate over all statements, outer before inner, in program order."""
    stack = [stmt]
    while stack:
        node = stack.pop()
        yield node
        stack.extend(reversed(substatements(node)))
