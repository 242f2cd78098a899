"""Loop programs as C functions.

A kernel is `int32_t (buffers..., sizes...)`: 0, or 1 where an index is out of range. Loops of every kind that a processor has
run one iteration after another; what compilers make of them is theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from inlay import arith
from inlay.codegen import c_values
from inlay.codegen.c import c_type
from inlay.errors import CompileError, Unsupported
from inlay.tensor import ir
from inlay.tensor.legalise import legalise
from inlay.tensor.math import expand_program
from inlay.tensor.region import size_vars

STACK_LIMIT = 1 << 16
"""Bytes of one local buffer."""
HELPERS = """
static inline int64_t inlay_floordiv(int64_t a, int64_t b) {
    int64_t q = b == 0 ? 0 : a / b;
    return b != 0 && a % b != 0 && (a % b < 0) != (b < 0) ? q - 1 : q;
}
static inline int64_t inlay_floormod(int64_t a, int64_t b) { return b == 0 ? 0 : a - b * inlay_floordiv(a, b); }
static inline int64_t inlay_min(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t inlay_max(int64_t a, int64_t b) { return a > b ? a : b; }
"""
"""The functions that printed integer expressions call."""

_CALLS = {arith.FloorDiv: "inlay_floordiv", arith.FloorMod: "inlay_floormod", arith.Min: "inlay_min", arith.Max: "inlay_max"}
_OPERATORS = {arith.Add: "+", arith.Mul: "*", arith.And: "&&", arith.Or: "||"}
_LOOPS = (ir.ForKind.SERIAL, ir.ForKind.PARALLEL, ir.ForKind.VECTORIZED, ir.ForKind.UNROLLED)


def print_kernel(program: ir.LoopProgram, name: str) -> str:
    """A kernel as a static function of that name. Raises `Unsupported` for loops and intrinsics that C has not."""
    return _Kernel(legalise(expand_program(program), c_values.NATIVE), name).print()


def index_text(expr: arith.Expr, leaf: Callable[[arith.Expr], str | None]) -> str:
    """An integer expression as C of type int64_t. `leaf` gives what variables and values stand for, None for all else."""
    found = leaf(expr)
    if found is not None:
        return found
    if isinstance(expr, arith.Const):
        return str(expr.value) if expr.value >= 0 else f"({expr.value})"
    parts = [index_text(operand, leaf) for operand in expr.operands]
    match expr:
        case arith.Compare(op=op):
            return f"({parts[0]} {op} {parts[1]})"
        case arith.Not():
            return f"(!{parts[0]})"
        case arith.Select():
            return f"({parts[0]} ? {parts[1]} : {parts[2]})"
    if type(expr) in _CALLS:
        return f"{_CALLS[type(expr)]}({', '.join(parts)})"
    if type(expr) in _OPERATORS:
        return f"({f' {_OPERATORS[type(expr)]} '.join(parts)})"
    raise CompileError(f"{expr!r} is not in scope")


class _Kernel:
    """Prints one kernel. `known` are the values that stand in variables at this point; `names` those of index variables."""

    def __init__(self, program: ir.LoopProgram, name: str) -> None:
        self.program = program
        self.name = name
        self.lines: list[str] = []
        self.depth = 1
        self.count = 0
        self.buffers: dict[ir.Buffer, str] = {}
        self.names: dict[arith.Expr, str] = {}
        self.known: dict[ir.Expr, str] = {}

    def print(self) -> str:
        params = []
        for number, buffer in enumerate(self.program.params):
            self.buffers[buffer] = f"b{number}"
            const = "const " if number < len(self.program.inputs) else ""
            params.append(f"{const}{c_type(buffer.dtype)} *restrict b{number}")
        for size, buffer in self.program.defines:
            self.names[size] = f"(*{self.buffers[buffer]})"
        for number, size in enumerate(size_vars(self.program)):
            self.names[size] = f"n{number}"
            params.append(f"int64_t n{number}")
        self.statement(self.program.body)
        body = "\n".join(self.lines)
        return f"static int32_t {self.name}({', '.join(params)}) {{\n{body}\n    return 0;\n}}\n"

    def line(self, text: str) -> None:
        self.lines.append("    " * self.depth + text)

    def fresh(self, letter: str) -> str:
        self.count += 1
        return f"{letter}{self.count}"

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """Lines in braces; what stands in variables there is forgotten after it."""
        outer = self.known
        self.known = dict(outer)
        self.line(f"{head} {{")
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
                    self.statement(item)
            case ir.Store(buffer=buffer, indices=indices, value=value):
                with self.block(""):
                    self.known = {}
                    text = self.value(value)
                    self.line(f"{self.element(buffer, indices)} = {text};")
            case ir.For():
                self.loop(stmt)
            case ir.If(condition=condition, then=then, otherwise=otherwise):
                self.choice(condition, then, otherwise)
            case ir.Let():
                self.let(stmt)
            case ir.Alloc(buffer=buffer, body=body):
                with self.block(""):
                    self.alloc(buffer)
                    self.statement(body)
            case ir.While(condition=condition, body=body):
                with self.block("for (;;)"):
                    self.known = {}
                    self.line(f"if (!{self.value(condition)}) break;")
                    self.statement(body)
            case ir.Intrinsic(name="prefetch"):
                pass
            case ir.Intrinsic(name=name):
                raise Unsupported(f"kernel {self.program.name} uses tensor intrinsic {name!r}, which C has not")
            case _:
                raise CompileError(f"kernel {self.program.name} holds a {type(stmt).__name__}, which must be lowered first")

    def loop(self, loop: ir.For) -> None:
        if loop.kind not in _LOOPS:
            raise Unsupported(f"loop {loop.var.name} is {loop.kind.value}, which C has not")
        name = self.fresh("i")
        with self.block(""):
            self.known = {}
            end = self.index(loop.extent)
            with self.block(f"for (int64_t {name} = 0, end = {end}; {name} < end; {name}++)"):
                self.names[loop.var] = name
                self.known = {}
                self.statement(loop.body)

    def choice(self, condition: ir.Expr, then: ir.Stmt, otherwise: ir.Stmt | None) -> None:
        with self.block(""):
            self.known = {}
            flag = self.value(condition)
            with self.block(f"if ({flag})"):
                self.statement(then)
            if otherwise is not None:
                with self.block("else"):
                    self.statement(otherwise)

    def let(self, stmt: ir.Let) -> None:
        with self.block(""):
            self.known = {}
            name = self.fresh("i")
            self.line(f"const int64_t {name} = {self.value(stmt.value)};")
            if stmt.bounds is not None:
                self.check(name, *stmt.bounds)
            self.names[stmt.var] = name
            self.statement(stmt.body)

    def alloc(self, buffer: ir.Buffer) -> None:
        size = arith.product(buffer.shape)
        if not isinstance(size, int) or size * buffer.dtype.bytes > STACK_LIMIT:
            raise Unsupported(f"local buffer {buffer.name} of shape {buffer.shape} is too large for the stack")
        self.buffers[buffer] = self.fresh("m")
        self.line(f"{c_type(buffer.dtype)} {self.buffers[buffer]}[{max(size, 1)}];")

    def check(self, name: str, low: arith.Dim, high: arith.Dim) -> None:
        inside = f"{name} >= {self.index(arith.wrap(low))} && {name} <= {self.index(arith.wrap(high))}"
        self.line(f"if (!({inside})) return 1;")

    # --- indices ---

    def index(self, expr: arith.Expr) -> str:
        """An integer expression. What it reads of buffers is read before, in lines of its own."""
        return index_text(expr, self.leaf)

    def leaf(self, expr: arith.Expr) -> str | None:
        if expr in self.names:
            return self.names[expr]
        match expr:
            case arith.Opaque(payload=payload):
                assert isinstance(payload, ir.Expr)
                name = self.fresh("i")
                self.line(f"const int64_t {name} = {self.value(payload)};")
                self.check(name, expr.lower, expr.upper)
                return name
            case arith.And(operands=(a, b)) if arith.reads_data(b):
                return self.chosen("int64_t", self.index(a), lambda: self.index(b), lambda: "0")
            case arith.Or(operands=(a, b)) if arith.reads_data(b):
                return self.chosen("int64_t", self.index(a), lambda: "1", lambda: self.index(b))
            case arith.Select(operands=(condition, a, b)) if arith.reads_data(a) or arith.reads_data(b):
                return self.chosen("int64_t", self.index(condition), lambda: self.index(a), lambda: self.index(b))
        return None

    def element(self, buffer: ir.Buffer, indices: tuple[arith.Expr, ...]) -> str:
        flat: arith.Expr = arith.ZERO
        for extent, index in zip(buffer.shape, indices, strict=True):
            flat = arith.add(arith.mul(flat, extent), index)
        return f"{self.buffers[buffer]}[{self.index(flat)}]"

    # --- values ---

    def value(self, expr: ir.Expr) -> str:
        """A value: a name or a constant. It is computed in lines of its own, once."""
        if isinstance(expr, ir.Const):
            return c_values.literal(expr.value, expr.dtype)
        stack = [expr]
        while stack:
            node = stack[-1]
            operands = (node.condition,) if isinstance(node, ir.Select) else ir.operands(node)
            waiting = [item for item in operands if item not in self.known and not isinstance(item, ir.Const)]
            if waiting:
                stack.extend(reversed(waiting))
                continue
            stack.pop()
            if node not in self.known:
                self.known[node] = self.computed(node)
        return self.known[expr]

    def computed(self, expr: ir.Expr) -> str:
        kind = c_values.value_type(expr.dtype)
        if isinstance(expr, ir.Select):
            flag = self.value(expr.condition)
            return self.chosen(kind, flag, lambda: self.value(expr.then), lambda: self.value(expr.otherwise))
        text = self.expression(expr)
        name = self.fresh("v")
        self.line(f"const {kind} {name} = {text};")
        return name

    def chosen(self, kind: str, flag: str, then: Callable[[], str], otherwise: Callable[[], str]) -> str:
        """One of two values, each evaluated only where it is chosen."""
        name = self.fresh("v")
        self.line(f"{kind} {name};")
        for head, side in ((f"if ({flag})", then), ("else", otherwise)):
            with self.block(head):
                text = side()
                self.line(f"{name} = {text};")
        return name

    def expression(self, expr: ir.Expr) -> str:
        match expr:
            case ir.Load(buffer=buffer, indices=indices):
                return self.element(buffer, indices) + (" != 0" if expr.dtype.kind == "bool" else "")
            case ir.Index(index=index, dtype=of):
                return f"{self.index(index)} != 0" if of.kind == "bool" else f"({c_type(of)}){self.index(index)}"
            case ir.Binary(op=op, a=a, b=b):
                return c_values.binary(op, self.value(a), self.value(b), a.dtype)
            case ir.Unary(op=op, a=a):
                return c_values.unary(op, self.value(a), a.dtype)
            case ir.Cast(a=a, dtype=of):
                return c_values.convert(self.value(a), a.dtype, of)
            case ir.Bitcast(a=a, dtype=of):
                return c_values.reinterpret(self.value(a), a.dtype, of)
            case ir.Fma(a=a, b=b, c=c):
                return c_values.fma(self.value(a), self.value(b), self.value(c), expr.dtype)
        raise Unsupported(f"kernel {self.program.name} holds a {type(expr).__name__}, which C has not")
