"""Prints loop programs in their text form.

    program matmul(a: float32[n, 4], b: float32[4, 8]) -> (c: float32[n, 8]):
      size n: 1..64
      for i in n, parallel:
        for j in 8:
          for k in 4:
            block c:
              iter vi = i in n
              iter vj = j in 8
              iter vk = k in 4, reduction
              reads a[vi +: 1, vk +: 1], b[vk +: 1, vj +: 1]
              writes c[vi +: 1, vj +: 1]
              init:
                c[vi, vj] = float32(0.0)
              c[vi, vj] = (c[vi, vj] + (a[vi, vk] * b[vk, vj]))

Nesting is by indentation. The scope of `alloc` and `let` is the rest of their block, or an indented body if they end in a colon. A
value used several times in a statement is printed first, as `%0 = ...`. A plain number next to an operator has the dtype of the
other operand. Names are made unique. `tensor.parse` reads the text back, equal up to names.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import zip_longest
from typing import Any

from inlaid.tensor import ir
from inlaid_runtime import arith
from inlaid_runtime.arith.text import quoted
from inlaid_runtime.names import unique
from inlaid_runtime.types import dtype

ACCESS_WORDS = {
    access: str(access.name).lower()
    for access in (ir.AccessMode.HINT, ir.AccessMode.READ, ir.AccessMode.WRITE, ir.AccessMode.UPDATE)
}
INFIX = {"add": "+", "sub": "-", "mul": "*", "lt": "<", "le": "<=", "eq": "==", "ne": "!="}
_NAME = re.compile(r"\??[A-Za-z_]\w*")
_MAX_DEPTH = 12
"""Maximum depth of a printed value. Deeper values are split off as `%n = ...`."""


def show(program: ir.LoopProgram, mark: ir.Stmt | None = None) -> str:
    """Print a program. A row of carets (a comment to the parser) marks the first line of the statement `mark`."""
    return "\n".join(_Printer(program, mark).lines())


def show_stmt(stmt: ir.Stmt) -> str:
    """Print a statement, for reading."""
    return show(ir.LoopProgram("", (), (), stmt)).partition("\n")[2]


def show_index(index: arith.Expr) -> str:
    """Print an integer expression over dimensions; `parse_expr` reads it back."""
    return _Printer(ir.LoopProgram("", (), (), ir.Seq(())), None).index(index)


def show_expr(expr: ir.Expr) -> str:
    """Print a value expression, for reading."""
    printer = _Printer(ir.LoopProgram("", (), (), ir.Seq(())), None)
    text = printer.value(expr)
    return "\n".join((*printer.before, text))


class _Printer:
    def __init__(self, program: ir.LoopProgram, mark: ir.Stmt | None) -> None:
        self.program = program
        self.mark = mark
        self.before: list[str] = []
        self._names_in_use: set[str] = {"", "checked", "min", "max", "not", "select"}
        self._names: dict[object, str] = {}
        self._temporaries: dict[ir.Expr, str] = {}
        self._count = 0

    # -- names --

    def name(self, item: ir.Buffer | arith.Var) -> str:
        """Return the unique name of a buffer or variable."""
        unique_name = self._names.get(item)
        if unique_name is None:
            base = re.sub(r"\W", "_", item.name)
            base = base if _NAME.fullmatch(base) else f"_{base}"
            unique_name = self._names[item] = unique(base, self._names_in_use)
        return unique_name

    # -- lines --

    def lines(self) -> Iterator[str]:
        program = self.program
        sizes = _sizes(program)
        self._names_in_use |= {size.name for size in sizes}
        inputs = ", ".join(map(self._declaration, program.inputs))
        update_texts = {output: f" over {self.name(program.inputs[operand])}" for output, operand in program.updates}
        outputs = ", ".join(
            f"{self._declaration(item)}{update_texts.get(number, '')}" for number, item in enumerate(program.outputs)
        )
        yield f"program {quoted_name(program.name)}({inputs}) -> ({outputs}):"
        defines = dict(program.defines)
        for size in sizes:
            upper = "" if size.upper is None else self.index(arith.wrap(size.upper))
            suffix = f" = {self.name(defines[size])}" if size in defines else ", argument" if size in program.sizes else ""
            yield f"  size {size_name(size)}: {size.lower}..{upper}{suffix}"
        for key, value in program.annotations:
            yield f"  note {quoted(key)} = {self._constant(value)}"
        yield from _indented(self._stmts(program.body))

    def _declaration(self, buffer: ir.Buffer) -> str:
        dims = ", ".join(self.index(arith.wrap(dim)) for dim in buffer.shape)
        scope = f" in {quoted(buffer.scope)}" if buffer.scope else ""
        return f"{self.name(buffer)}: {buffer.dtype}[{dims}]{scope}"

    def _constant(self, value: Any) -> str:
        match value:
            case str():
                return quoted(value)
            case ir.Buffer():
                return self.name(value)
            case tuple():
                return f"({''.join(f'{self._constant(item)}, ' for item in value)})"
            case bool() | None:
                return str(value).lower()
            case int() | float():
                return repr(value)
        raise AssertionError(f"an annotation must be a number, string, buffer or tuple of these, got {value!r}")

    def _stmts(self, stmt: ir.Stmt) -> Iterator[str]:
        """Yield the lines of a statement that extends to the end of its block."""
        flat = list(flattened(stmt))
        for position, item in enumerate(flat):
            is_last = position == len(flat) - 1
            if is_last and isinstance(item, (ir.Alloc, ir.Let)):
                yield from self._headed(item, self._head(item))
                yield from self._stmts(item.body)
            else:
                yield from self._stmt(item)
        if not flat:
            yield from self._headed(stmt, "pass")

    def _headed(self, stmt: ir.Stmt, head: str) -> Iterator[str]:
        """Yield the first line of a statement, preceded by the shared values that it uses and followed by the mark."""
        yield from self.before
        yield head
        if stmt is self.mark:
            yield "#" + "^" * max(len(head) - 1, 1)
        self.before = []
        self._temporaries = {}

    def _head(self, stmt: ir.Stmt) -> str:
        match stmt:
            case ir.For(var=var, extent=extent, kind=kind, thread=thread, annotations=annotations):
                marks = "" if kind is ir.ForKind.SERIAL else f", {kind.value}"
                marks += f", {quoted(thread)}" if thread else ""
                marks += "".join(f", {quoted(key)} = {self._constant(value)}" for key, value in annotations)
                return f"for {self.name(var)} in {self._shared_index(extent)}{marks}"
            case ir.While(condition=condition):
                return f"while {self._shared(condition)}"
            case ir.If(condition=condition):
                return f"if {self._shared(condition)}"
            case ir.Let(var=var, value=value, bounds=bounds):
                text = self._shared(value)
                bounds_text = "" if bounds is None else f" in {self.index(bounds[0])}..{self.index(bounds[1])}"
                return f"let {self.name(var)} = {text}{bounds_text}"
            case ir.Alloc(buffer=buffer):
                return f"alloc {self._declaration(buffer)}"
            case ir.Store(buffer=buffer, indices=indices, value=value):
                roots = (value, *(ir.Index(dtype("int64"), index) for index in indices))
                self._share(*roots)
                return f"{self.name(buffer)}[{', '.join(map(self.index, indices))}] = {self.value(value)}"
            case ir.Intrinsic(name=name, regions=regions, access=access, args=args, over=over):
                self._share(*args)
                words = map(ACCESS_WORDS.__getitem__, access)
                operands = zip_longest(words, map(self._region, regions), fillvalue="?")  # ill-formed programs must print too
                operand_texts = ", ".join(map(" ".join, operands))
                scalars = f" with {', '.join(map(self.value, args))}" if args else ""
                return f"intrinsic {quoted(name)}{_axes(over)}{' on ' if operand_texts else ''}{operand_texts}{scalars}"
        raise AssertionError(f"expected a statement with a header line, got {type(stmt).__name__}")

    def _stmt(self, stmt: ir.Stmt) -> Iterator[str]:
        match stmt:
            case ir.Store() | ir.Intrinsic():
                yield from self._headed(stmt, self._head(stmt))
            case ir.Barrier(over=over):
                yield from self._headed(stmt, f"barrier{_axes(over)}")
            case ir.Block():
                yield from self._block(stmt)
            case ir.If(then=then, otherwise=otherwise):
                yield from self._headed(stmt, f"{self._head(stmt)}:")
                yield from _indented(self._stmts(then))
                if otherwise is not None:
                    yield "else:"
                    yield from _indented(self._stmts(otherwise))
            case ir.For(body=body) | ir.While(body=body) | ir.Let(body=body) | ir.Alloc(body=body):
                yield from self._headed(stmt, f"{self._head(stmt)}:")
                yield from _indented(self._stmts(body))

    def _block(self, block: ir.Block) -> Iterator[str]:
        yield from self._headed(block, f"block {quoted_name(block.name)}:")
        for item, binding in zip(block.iters, block.bindings, strict=False):  # ill-formed programs must print too
            kind = "" if item.kind is ir.IterKind.SPATIAL else f", {item.kind.value}"
            binding_text, extent = self._shared_index(binding), self.index(item.extent)
            yield from _indented(self._headed(_NOTHING, f"iter {self.name(item.var)} = {binding_text} in {extent}{kind}"))
        for title, regions in (("reads", block.reads), ("writes", block.writes)):
            if regions:
                yield from _indented(self._headed(_NOTHING, f"{title} {', '.join(map(self._region, regions))}"))
        if block.predicate != arith.ONE:
            yield from _indented(self._headed(_NOTHING, f"where {self._shared_index(block.predicate)}"))
        for key, value in block.annotations:
            yield f"  note {quoted(key)} = {self._constant(value)}"
        if block.init is not None:
            yield "  init:"
            yield from _indented(_indented(self._stmts(block.init)))
        yield from _indented(self._stmts(block.body))

    def _region(self, region: ir.BufferRegion) -> str:
        ranges = (f"{self.index(first)} +: {self.index(extent)}" for first, extent in region.ranges)
        return f"{self.name(region.buffer)}[{', '.join(ranges)}]"

    # -- integer expressions --

    def index(self, expr: arith.Expr) -> str:
        """Print an integer expression."""
        return arith.format_expr(expr, self._leaf)

    def _leaf(self, expr: arith.Expr) -> str:
        match expr:
            case arith.Var():
                return self.name(expr)
            case arith.SizeVar():
                return size_name(expr)
            case arith.Opaque(payload=payload, lower=lower, upper=upper):
                assert isinstance(payload, ir.Expr)
                return f"checked({self.value(payload)}, {self.index(lower)}, {self.index(upper)})"
        return repr(expr)

    def _shared_index(self, expr: arith.Expr) -> str:
        self._share(ir.Index(dtype("int64"), expr))
        return self.index(expr)

    # -- value expressions --

    def _shared(self, expr: ir.Expr) -> str:
        self._share(expr)
        return self.value(expr)

    def _share(self, *roots: ir.Expr) -> None:
        """Split off values below the roots that are used several times, or are nested very deeply, as `%n = ...`."""
        uses: dict[ir.Expr, int] = {}
        order: list[ir.Expr] = []
        depth: dict[ir.Expr, int] = {}
        stack = [(root, False) for root in reversed(roots)]
        while stack:
            node, is_expanded = stack.pop()
            if is_expanded:
                order.append(node)
                continue
            uses[node] = uses.get(node, 0) + 1
            if uses[node] == 1:
                stack.append((node, True))
                stack.extend((part, False) for part in reversed(ir.parts(node)))
        for node in order:
            depth[node] = 1 + max((depth[part] for part in ir.parts(node)), default=0)
            is_split_off = (uses[node] > 1 and not isinstance(node, (ir.Const, ir.Index))) or depth[node] > _MAX_DEPTH
            if is_split_off and node not in self._temporaries:
                text = self.value(node)
                self._temporaries[node] = f"%{self._count}"
                self.before.append(f"%{self._count} = {text}")
                self._count += 1
                depth[node] = 0

    def value(self, expr: ir.Expr) -> str:
        """Print a value expression. The recursion is limited to the depth that `_share` leaves."""
        temporary = self._temporaries.get(expr)
        if temporary is not None:
            return temporary
        match expr:
            case ir.Const(value=value):
                return f"{expr.dtype}({str(value).lower() if isinstance(value, bool) else repr(value)})"
            case ir.Index(index=index):
                return f"index({expr.dtype}, {self.index(index)})"
            case ir.Load(buffer=buffer, indices=indices):
                return f"{self.name(buffer)}[{', '.join(map(self.index, indices))}]"
            case ir.Binary(op=op, a=a, b=b):
                texts = [self.value(a), self.value(b)]
                for position, (item, other) in enumerate(((a, b), (b, a))):
                    if isinstance(item, ir.Const) and not isinstance(other, ir.Const) and plain(item):
                        texts[position] = repr(item.value)
                return f"({texts[0]} {INFIX[op]} {texts[1]})" if op in INFIX else f"{op}({', '.join(texts)})"
            case ir.Cast():
                return f"cast({expr.dtype}, {self.value(expr.a)})"
            case ir.Bitcast():
                return f"bitcast({expr.dtype}, {self.value(expr.a)})"
        args = list(map(self.value, ir.operands(expr)))
        match expr:
            case ir.Unary(op=op):
                return f"{op}({args[0]})"
            case ir.Fma():
                return f"fma({', '.join(args)})"
            case ir.Select():
                return f"select({', '.join(args)})"
            case ir.CallMath(name=name):
                return f"{name}({', '.join(args)})"
            case ir.CallIntrinsic(name=name):
                return f"call({expr.dtype}, {', '.join((quoted(name), *args))})"
        raise AssertionError(f"expected an expression with a text form, got {type(expr).__name__}")


_NOTHING = ir.Seq(())


def flattened(stmt: ir.Stmt) -> Iterator[ir.Stmt]:
    """Iterate over the statements of nested sequences, in order."""
    stack = [stmt]
    while stack:
        node = stack.pop()
        if isinstance(node, ir.Seq):
            stack.extend(reversed(node.stmts))
        else:
            yield node


def plain(item: ir.Const) -> bool:
    """Test whether a constant next to an operator may be printed without its dtype."""
    value = item.value
    if isinstance(value, bool):
        return False
    return isinstance(value, float) == item.dtype.is_float and abs(value) < float("inf")


def _axes(over: Iterable[str]) -> str:
    """Print the thread axes of a barrier or collective intrinsic."""
    names = ", ".join(map(quoted, over))
    return f" over {names}" if names else ""


def quoted_name(name: str) -> str:
    """Return a name, quoted unless it is an identifier."""
    return name if _NAME.fullmatch(name) else quoted(name)


def size_name(size: arith.SizeVar) -> str:
    """Return the name of a dimension, in backticks unless it is an identifier."""
    return size.name if _NAME.fullmatch(size.name) else f"`{size.name}`"


def _indented(lines: Iterable[str]) -> Iterator[str]:
    return (f"  {line}" for line in lines)


def _sizes(program: ir.LoopProgram) -> list[arith.SizeVar]:
    """Return all dimensions in a program: first those that are neither arguments nor defined, then arguments, then defined ones."""
    sizes: dict[arith.SizeVar, None] = {}
    pending: list[arith.Expr] = [arith.wrap(dim) for buffer in program.params for dim in buffer.shape]
    pending += [*program.sizes, *(size for size, _ in program.defines)]
    for stmt in ir.walk_stmts(program.body):
        values, indices = ir.statement_operands(stmt)
        pending += map(arith.wrap, indices)
        checked = (value for index in indices for value in ir.payloads(arith.wrap(index)))
        for value in ir.walk_exprs(*values, *checked):
            pending += ir.index_operands(value)
    visited: set[arith.Expr] = set()
    queue = deque(pending)
    while queue:
        node = queue.popleft()
        if node in visited:
            continue
        visited.add(node)
        queue += node.operands
        if isinstance(node, arith.Opaque):
            queue += (node.lower, node.upper)
        elif isinstance(node, arith.SizeVar):
            sizes[node] = None
            if node.upper is not None:
                queue.append(arith.wrap(node.upper))
    last_sizes = (*program.sizes, *(size for size, _ in program.defines))
    return [*(size for size in sizes if size not in last_sizes), *last_sizes]
