"""Loop programs as functions in C99 that people can read.

A kernel is a function of its buffers and sizes. One that checks indices returns int32_t: 0, or 1 where one is out of range; all
others return nothing. Loops of every kind that a processor has run one iteration after another; what compilers make of them is
theirs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from inlaid import arith
from inlaid.codegen import c_values
from inlaid.codegen.c import c_type, spread
from inlaid.codegen.c_values import ATOM, Text
from inlaid.errors import CompileError, Unsupported
from inlaid.names import unique
from inlaid.tensor import ir
from inlaid.tensor.analysis.ranges import Range, Ranges, narrow
from inlaid.tensor.math import expand_program
from inlaid.tensor.region import size_vars
from inlaid.tensor.transform.legalise import legalise
from inlaid.types import dtype

STACK_LIMIT = 1 << 16
"""Bytes of one local buffer."""
WIDTH = 110
"""Characters of an expression beyond which a part of it gets a line of its own."""
_WORDS = """
    auto break case char const continue default do double else enum extern float for goto if inline int long register restrict
    return short signed sizeof static struct switch typedef union unsigned void volatile while asm
    ceil ceilf fabs fabsf floor floorf fma fmaf fmod fmodf rint rintf sqrt sqrtf trunc truncf memcpy
"""
"""Words that C keeps for itself, and functions that kernels call."""
_CALLS = {arith.FloorDiv: "floordiv", arith.FloorMod: "floormod", arith.Min: "min", arith.Max: "max"}
_OPERATORS = {arith.Add: ("+", c_values.SUM), arith.Mul: ("*", c_values.PRODUCT), arith.And: ("&&", ATOM), arith.Or: ("||", ATOM)}
_LOOPS = (ir.ForKind.SERIAL, ir.ForKind.PARALLEL, ir.ForKind.VECTORIZED, ir.ForKind.UNROLLED)
HELPERS = {
    "floordiv": """\
static inline INDEX inlaid_floordiv(INDEX a, INDEX b) {
    INDEX q = b == 0 ? 0 : a / b;
    return b != 0 && a % b != 0 && (a % b < 0) != (b < 0) ? q - 1 : q;
}""",
    "floormod": "static inline INDEX inlaid_floormod(INDEX a, INDEX b) { return b == 0 ? 0 : a - b * inlaid_floordiv(a, b); }",
    "min": "static inline INDEX inlaid_min(INDEX a, INDEX b) { return a < b ? a : b; }",
    "max": "static inline INDEX inlaid_max(INDEX a, INDEX b) { return a > b ? a : b; }",
    # From 2^23 on numbers have no fraction; -0 stays what it is.
    "floorf": """\
static inline float inlaid_floorf(float x) {
    const float whole = x > -8388608.0f && x < 8388608.0f ? (float)(int32_t)x : x;
    return whole > x ? whole - 1.0f : x == 0.0f ? x : whole;
}""",
}
"""Functions that printed kernels call, by name."""


@dataclass(frozen=True)
class Place:
    """Where a region that an intrinsic works on begins: a pointer to its first element, as C."""

    region: ir.Region
    pointer: str


Emitter = Callable[[Sequence[Place], Sequence[str]], Sequence[str]]
"""Prints an intrinsic as statements on regions, in the order of the parameters of its semantics."""


@dataclass(frozen=True)
class Dialect:
    """How C is written: the type of indices, the tensor intrinsics that there are, by name, and whether what stored bytes need of
    floats (`floor`) does without <math.h>."""

    index: str = "int64_t"
    emitters: Mapping[str, Emitter] = field(default_factory=dict)
    freestanding: bool = False


PLAIN = Dialect()


@dataclass(frozen=True)
class KernelText:
    """A kernel in C. `checks`: it returns int32_t, whether an index was out of range."""

    text: str
    checks: bool


def helpers(text: str, index: str = PLAIN.index) -> str:
    """The functions that printed integer expressions call, those that a text has a use for."""
    wanted = [name for name in HELPERS if f"inlaid_{name}(" in text]
    if "floormod" in wanted and "floordiv" not in wanted:
        wanted.insert(0, "floordiv")
    return "".join(f"{HELPERS[name].replace('INDEX', index)}\n" for name in wanted)


def print_kernel(
    program: ir.LoopProgram,
    name: str,
    dialect: Dialect = PLAIN,
    known: Mapping[int, Range] | None = None,
    shared: Collection[int] = (),
    names: Sequence[str] = (),
) -> KernelText:
    """A kernel as a static function of that name. `known` are the ranges of what parameters hold, by number; `shared` the numbers
    of those that may share memory with others, `names` what to call them if not as the program does. Raises `Unsupported` for
    loops and intrinsics that C has not."""
    program = prepared(program, known)
    return _Kernel(program, name, dialect, _of_params(program, known)).print(
        shared, names or [item.name for item in program.params]
    )


def prepared(program: ir.LoopProgram, known: Mapping[int, Range] | None = None) -> ir.LoopProgram:
    """A kernel as it is printed: over C's types, without what `known` makes idle (see `print_kernel`)."""
    program = legalise(expand_program(program), c_values.NATIVE)
    return narrow(program, _of_params(program, known))


def _of_params(program: ir.LoopProgram, known: Mapping[int, Range] | None) -> dict[ir.Buffer, Range]:
    return {program.params[number]: range_ for number, range_ in (known or {}).items()}


def index_text(expr: arith.Expr, leaf: Callable[[arith.Expr], str | None], indices: arith.Analyzer | None = None) -> str:
    """An integer expression as C. `leaf` gives what variables and values stand for, None for all else; `indices` knows what values
    variables have."""
    return _index(expr, leaf, indices or arith.Analyzer()).code


def _index(expr: arith.Expr, leaf: Callable[[arith.Expr], str | None], indices: arith.Analyzer) -> Text:
    found = leaf(expr)
    if found is not None:
        return Text(found, ATOM)
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
        # C reads a * b / c from the left, and the quotient is rounded.
        others = ATOM if isinstance(expr, arith.Mul) else level
        texts = [part.within(others if number else level) for number, part in enumerate(parts)]
        return Text(f" {symbol} ".join(texts), level or c_values.OTHER)
    raise CompileError(f"{expr!r} is not in scope")


class _Kernel:
    """Prints one kernel. `known` are the values that stand in variables at this point; `names` those of index variables."""

    def __init__(self, program: ir.LoopProgram, name: str, dialect: Dialect, known: Mapping[ir.Buffer, Range]) -> None:
        self.program = program
        self.name = name
        self.dialect = dialect
        self.ranges = Ranges(program, known)
        self.lines: list[str] = []
        self.depth = 1
        self.count = 0
        self.checks = False
        self.taken: set[str] = set(_WORDS.split())
        self.buffers: dict[ir.Buffer, str] = {}
        self.names: dict[arith.Expr, str] = {}
        self.known: dict[ir.Expr, Text] = {}

    def print(self, shared: Collection[int], names: Sequence[str]) -> KernelText:
        params = []
        for number, buffer in enumerate(self.program.params):
            self.buffers[buffer] = self.unique(names[number])
            const = "const " if number < len(self.program.inputs) else ""
            params.append(f"{const}{c_type(buffer.dtype)} *{'restrict ' if number not in shared else ''}{self.buffers[buffer]}")
        for size, buffer in self.program.defines:
            self.names[size] = f"(*{self.buffers[buffer]})"
        for size in size_vars(self.program):
            self.names[size] = self.unique(size.name)
            params.append(f"{self.dialect.index} {self.names[size]}")
        self.statement(self.program.body)
        body = "\n".join(self.lines)
        unused = [name for name in (param.split()[-1].lstrip("*") for param in params) if not re.search(rf"\b{name}\b", body)]
        body = "\n".join([*(f"    (void){name};" for name in unused), *([body] if body else [])])
        end = "    return 0;\n" if self.checks else ""
        kind = "int32_t" if self.checks else "void"
        head = spread(f"static {kind} {self.name}", params or ["void"], " {", WIDTH)
        return KernelText(f"{head}\n{body}\n{end}}}\n", self.checks)

    def line(self, text: str) -> None:
        self.lines.append("    " * self.depth + text)

    def fresh(self, letter: str) -> str:
        self.count += 1
        return self.unique(f"{letter}{self.count}")

    def unique(self, wanted: str) -> str:
        """A name that nothing else in the function has."""
        clean = re.sub(r"[^A-Za-z0-9_]", "_", wanted) or "x"
        clean = clean if clean[0].isalpha() else f"x{clean}"
        return unique(clean, self.taken)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """Lines in braces; what stands in variables there is forgotten after it."""
        outer = self.known
        self.known = dict(outer)
        self.line(f"{head} {{".lstrip())
        self.depth += 1
        yield
        self.depth -= 1
        self.line("}")
        self.known = outer

    # --- statements ---

    def statement(self, stmt: ir.Stmt) -> None:
        match stmt:
            case ir.Seq(stmts=stmts):
                for item in stmts:
                    if isinstance(item, ir.Alloc):
                        with self.block(""):  # so that compilers let buffers share the stack
                            self.statement(item)
                    else:
                        self.statement(item)
            case ir.Store():
                self.known = {}
                self.store(stmt)
            case ir.For():
                self.loop(stmt)
            case ir.If(condition=condition, then=then, otherwise=otherwise):
                self.choice(condition, then, otherwise)
            case ir.Let():
                self.let(stmt)
            case ir.Alloc(buffer=buffer, body=body):
                self.alloc(buffer)
                self.statement(body)
            case ir.While(condition=condition, body=body):
                with self.block("for (;;)"):
                    self.known = {}
                    self.line(f"if (!{self.value(condition).atom}) break;")
                    self.statement(body)
            case ir.Intrinsic(name="prefetch"):
                pass
            case ir.Intrinsic(name=name, regions=regions, args=args):
                emitter = self.dialect.emitters.get(name)
                if emitter is None:
                    raise Unsupported(f"kernel {self.program.name} uses tensor intrinsic {name!r}, which C has not")
                self.known = {}
                places = [Place(region, f"&{self.corner(region)}") for region in regions]
                for line in emitter(places, [self.value(arg).atom for arg in args]):
                    self.line(line)
            case _:
                raise CompileError(f"kernel {self.program.name} holds a {type(stmt).__name__}, which must be lowered first")

    def store(self, stmt: ir.Store) -> None:
        self.share(stmt.value)
        target = self.element(stmt.buffer, stmt.indices)
        value = stmt.value
        match value:
            case ir.Binary(op="add", a=ir.Load(buffer=buffer, indices=indices), b=added) if (
                buffer is stmt.buffer and indices == stmt.indices and value.dtype.bits >= 32
            ):
                if value.dtype.is_float or value.dtype.kind == "uint" or self.ranges.exact(value):
                    self.line(f"{target} += {self.value(added).code};")
                    return
        self.line(f"{target} = {self.value(value).code};")

    def corner(self, region: ir.Region) -> str:
        return self.element(region.buffer, tuple(first for first, _ in region.ranges))

    def loop(self, loop: ir.For) -> None:
        if loop.kind not in _LOOPS:
            raise Unsupported(f"loop {loop.var.name} is {loop.kind.value}, which C has not")
        self.known = {}
        extent = arith.simplify(loop.extent)
        name = self.unique(loop.var.name)
        kind = self.dialect.index
        if isinstance(extent, arith.Const):
            head = f"for ({kind} {name} = 0; {name} < {extent.value}; {name}++)"
        else:
            end = self.unique(f"{name}_end")
            head = f"for ({kind} {name} = 0, {end} = {self.index(extent)}; {name} < {end}; {name}++)"
        with self.block(head):
            self.names[loop.var] = name
            self.statement(loop.body)
        self.taken.discard(name)

    def choice(self, condition: ir.Expr, then: ir.Stmt, otherwise: ir.Stmt | None) -> None:
        self.known = {}
        flag = self.value(condition).code
        with self.block(f"if ({flag})"):
            self.statement(then)
        if otherwise is not None:
            with self.block("else"):
                self.statement(otherwise)

    def let(self, stmt: ir.Let) -> None:
        self.known = {}
        value = self.narrowed(stmt.value)
        name = self.unique(stmt.var.name)
        self.line(f"const {self.dialect.index} {name} = {value};")
        if stmt.bounds is not None and not self.inside(stmt.value, *stmt.bounds):
            self.check(name, *stmt.bounds)
        self.names[stmt.var] = name
        self.statement(stmt.body)

    def alloc(self, buffer: ir.Buffer) -> None:
        size = arith.product(buffer.shape)
        if not isinstance(size, int) or size * buffer.dtype.bytes > STACK_LIMIT:
            raise Unsupported(f"local buffer {buffer.name} of shape {buffer.shape} is too large for the stack")
        self.buffers[buffer] = self.unique(buffer.name)
        self.line(f"{c_type(buffer.dtype)} {self.buffers[buffer]}[{max(size, 1)}];")

    def inside(self, value: ir.Expr, low: arith.Dim, high: arith.Dim) -> bool:
        """Whether an integer is known to be within limits."""
        match self.ranges.of(value), arith.wrap(low), arith.wrap(high):
            case (least, greatest), arith.Const(value=first), arith.Const(value=last):
                return first <= least and greatest <= last
        return False

    def check(self, name: str, low: arith.Dim, high: arith.Dim) -> None:
        self.checks = True
        self.line(f"if ({name} < {self.index(arith.wrap(low))} || {name} > {self.index(arith.wrap(high))}) return 1;")

    # --- indices ---

    def index(self, expr: arith.Expr) -> str:
        """An integer expression. What it reads of buffers is read before, in lines of its own."""
        return index_text(expr, self.leaf, self.ranges.indices)

    def leaf(self, expr: arith.Expr) -> str | None:
        if expr in self.names:
            return self.names[expr]
        match expr:
            case arith.Opaque(payload=payload):
                assert isinstance(payload, ir.Expr)
                if self.inside(payload, expr.lower, expr.upper):
                    return self.value(payload).atom
                name = self.fresh("i")
                self.line(f"const {self.dialect.index} {name} = {self.narrowed(payload)};")
                self.check(name, expr.lower, expr.upper)
                return name
            case arith.And(operands=(a, b)) if arith.reads_data(b):
                return self.chosen("int32_t", self.index(a), lambda: Text(self.index(b)), lambda: Text("0", ATOM)).code
            case arith.Or(operands=(a, b)) if arith.reads_data(b):
                return self.chosen("int32_t", self.index(a), lambda: Text("1", ATOM), lambda: Text(self.index(b))).code
            case arith.Select(operands=(condition, a, b)) if arith.reads_data(a) or arith.reads_data(b):
                kind = self.dialect.index
                return self.chosen(kind, self.index(condition), lambda: Text(self.index(a)), lambda: Text(self.index(b))).code
        return None

    def narrowed(self, expr: ir.Expr) -> str:
        """A value as an index. Of more bits than an index has, it goes to the nearest end of what an index can be."""
        text, width, kind = self.value(expr), dtype(self.dialect.index.removesuffix("_t")), self.dialect.index
        if expr.dtype.bits < width.bits or expr.dtype is width:
            return text.code
        if self.inside(expr, *map(int, width.limits)):
            return f"({kind}){text.atom}"
        if not _is_name(text.code):
            self.name_value(expr, text)
            text = self.known[expr]
        low, high = (f"INT{width.bits}_{end}" for end in ("MIN", "MAX"))
        least = f"{text.code} < {low} ? {low} : " if expr.dtype.kind == "int" else ""
        return f"{least}{text.code} > {high} ? {high} : ({kind}){text.code}"

    def element(self, buffer: ir.Buffer, indices: tuple[arith.Expr, ...]) -> str:
        flat: arith.Expr = arith.ZERO
        for extent, index in zip(buffer.shape, indices, strict=True):
            flat = arith.add(arith.mul(flat, extent), index)
        return f"{self.buffers[buffer]}[{self.index(self.ranges.indices.simplify(flat))}]"

    # --- values ---

    def share(self, root: ir.Expr) -> None:
        """Give what a value has a use for several times lines of its own, what of it is evaluated in any case."""
        uses: dict[ir.Expr, int] = {}
        order: list[ir.Expr] = []
        stack: list[tuple[ir.Expr, bool]] = [(root, False)]
        seen: set[ir.Expr] = set()
        while stack:
            node, ready = stack.pop()
            if ready:
                order.append(node)
                continue
            if node in seen:
                continue
            seen.add(node)
            stack.append((node, True))
            for item in always(node):
                uses[item] = uses.get(item, 0) + (2 if self.repeats(node) else 1)
                stack.append((item, False))
        for node in order:
            if node is not root and node not in self.known and not isinstance(node, ir.Const):
                text = self.expression(node)
                if (
                    (uses[node] > 1 and text.level != ATOM)
                    or (uses[node] > 1 and not _is_name(text.code))
                    or len(text.code) > WIDTH
                ):
                    self.name_value(node, text)
                else:
                    self.known[node] = text

    def name_value(self, node: ir.Expr, text: Text) -> None:
        name = self.fresh("v")
        self.line(f"const {c_values.value_type(node.dtype)} {name} = {text.code};")
        self.known[node] = Text(name, ATOM)

    def repeats(self, node: ir.Expr) -> bool:
        """Whether the text of a node has its operands more than once."""
        of = ir.operands(node)[0].dtype if ir.operands(node) else node.dtype
        match node:
            case ir.Binary(op="div" | "mod"):
                return not of.is_float and not self.divides(node)
            case ir.Binary(op="shl" | "shr"):
                return not self.shifts(node)
            case ir.Binary(op=op):
                return op in c_values.REPEATS
            case ir.Unary(op=op):
                return op in ("abs", "clz", *c_values.REPEATS) and not (of.is_float and op == "abs")
            case ir.Cast():
                return of.is_float and node.dtype.is_int
        return False

    def value(self, expr: ir.Expr) -> Text:
        """A value, as an expression over what stands in variables."""
        if isinstance(expr, ir.Const):
            return c_values.constant(expr.value, expr.dtype)
        if expr not in self.known:
            self.share(expr)
            self.known[expr] = self.expression(expr)
        return self.known[expr]

    def chosen(self, kind: str, flag: str, then: Callable[[], Text], otherwise: Callable[[], Text]) -> Text:
        """One of two values, each evaluated only where it is chosen."""
        sides = []
        for side in (then, otherwise):
            lines, known = self.lines, self.known
            self.lines, self.known = [], dict(known)
            self.depth += 1
            text = side()
            self.depth -= 1
            sides.append((self.lines, text))
            self.lines, self.known = lines, known
        if not any(lines for lines, _ in sides):
            return Text(f"{Text(flag, ATOM if _is_name(flag) else c_values.OTHER).atom} ? {sides[0][1].atom} : {sides[1][1].atom}")
        name = self.fresh("v")
        self.line(f"{kind} {name};")
        for head, (lines, text) in zip((f"if ({flag})", "else"), sides, strict=True):
            self.line(f"{head} {{")
            self.lines += [*lines, "    " * (self.depth + 1) + f"{name} = {text.code};"]
            self.line("}")
        return Text(name, ATOM)

    def shifts(self, expr: ir.Binary) -> bool:
        """Whether the count of a shift is known to be less than the width."""
        count = self.ranges.of(expr.b)
        return count is not None and count[0] >= 0 and count[1] < expr.dtype.bits

    def divides(self, expr: ir.Binary) -> bool:
        """Whether a divisor is known to be neither 0 nor -1."""
        of = self.ranges.of(expr.b)
        return of is not None and (of[0] > 0 or of[1] < -1)

    def expression(self, expr: ir.Expr) -> Text:
        match expr:
            case ir.Select():
                kind, flag = c_values.value_type(expr.dtype), self.value(expr.condition).code
                return self.chosen(kind, flag, lambda: self.value(expr.then), lambda: self.value(expr.otherwise))
            case ir.Load(buffer=buffer, indices=indices):
                text = self.element(buffer, indices)
                return Text(f"{text} != 0") if expr.dtype.kind == "bool" else Text(text, ATOM)
            case ir.Index(index=index, dtype=of):
                text = self.index(index)
                if of.kind == "bool":
                    return (
                        Text(text) if isinstance(index, (arith.Compare, arith.And, arith.Or, arith.Not)) else Text(f"({text}) != 0")
                    )
                if not _is_name(text):
                    return Text(f"({c_type(of)})({text})", ATOM)
                return Text(text if c_type(of) == self.dialect.index else f"({c_type(of)}){text}", ATOM)
            case ir.Binary(op=op, a=a, b=b):
                exact = op in ("add", "sub", "mul") and a.dtype.is_int and self.ranges.exact(expr)
                exact = exact or (op in ("div", "mod") and a.dtype.is_int and self.divides(expr))
                shift = op in ("shl", "shr") and self.shifts(expr)
                return c_values.binary(op, self.value(a), self.value(b), a.dtype, exact, shift)
            case ir.Unary(op="floor", a=a, dtype=of) if self.dialect.freestanding and of.bits == 32:
                return Text(f"inlaid_floorf({self.value(a).code})", ATOM)
            case ir.Unary(op=op, a=a):
                return c_values.unary(op, self.value(a), a.dtype)
            case ir.Cast(a=a, dtype=of):
                return c_values.convert(self.value(a), a.dtype, of)
            case ir.Bitcast(a=a, dtype=of):
                return c_values.reinterpret(self.value(a), a.dtype, of)
            case ir.Fma(a=a, b=b, c=c):
                return c_values.fma(self.value(a), self.value(b), self.value(c), expr.dtype)
        raise Unsupported(f"kernel {self.program.name} holds a {type(expr).__name__}, which C has not")


def always(expr: ir.Expr) -> tuple[ir.Expr, ...]:
    """The value operands that are evaluated whenever a value is."""
    return (expr.condition,) if isinstance(expr, ir.Select) else ir.operands(expr)


def _is_name(text: str) -> bool:
    return re.fullmatch(r"\w+", text) is not None
