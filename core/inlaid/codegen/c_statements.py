"""Print the statements of a kernel as C."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from inlaid.codegen.c_expressions import Expressions
from inlaid.tensor import ir
from inlaid_runtime import arith
from inlaid_runtime.errors import CompileError, Unsupported
from inlaid_runtime.records import dataclass

_LOOPS = (ir.ForKind.SERIAL, ir.ForKind.PARALLEL, ir.ForKind.VECTORIZED, ir.ForKind.UNROLLED)


@dataclass(frozen=True)
class RegionPointer:
    """A buffer region that an intrinsic accesses, with a C pointer to its first element."""

    region: ir.BufferRegion
    pointer: str


Emitter = Callable[[Sequence[RegionPointer], Sequence[str]], Sequence[str]]
"""Prints an intrinsic as statements, given its regions in the order of its semantics' parameters and its scalar arguments."""


class Statements(Expressions):
    """Prints the statements of one kernel. Serial, parallel, vectorized and unrolled loops are printed as serial loops."""

    emitters: Mapping[str, Emitter] = {}

    def alloc(self, buffer: ir.Buffer) -> None:
        """Print the declaration of a local buffer."""
        raise NotImplementedError

    def statement(self, stmt: ir.Stmt) -> None:
        match stmt:
            case ir.Seq(stmts=stmts):
                for item in stmts:
                    if isinstance(item, ir.Alloc):
                        with self.block(""):  # a block, so that compilers can reuse the buffer's stack space
                            self.statement(item)
                    else:
                        self.statement(item)
            case ir.Store():
                self.texts = {}
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
                    self.texts = {}
                    self.line(f"if (!{self.value(condition).atom}) break;")
                    self.statement(body)
            case ir.Intrinsic(name="prefetch"):
                pass
            case ir.Intrinsic(name=name, regions=regions, args=args):
                emitter = self.emitters.get(name)
                if emitter is None:
                    raise Unsupported(f"kernel {self.program.name}: {self.language} has no tensor intrinsic {name!r}")
                self.texts = {}
                pointers = [RegionPointer(region, f"&{self.corner(region)}") for region in regions]
                for line in emitter(pointers, [*(self.value(arg).atom for arg in args), *self.further_arguments(stmt)]):
                    self.line(line)
            case _:
                raise CompileError(f"kernel {self.program.name} must be plain loops, found {type(stmt).__name__}: lower it first")

    def further_arguments(self, stmt: ir.Intrinsic) -> Sequence[str]:
        """Return additional arguments for the emitter of an intrinsic, which follow the intrinsic's arguments."""
        return ()

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

    def corner(self, region: ir.BufferRegion) -> str:
        return self.element(region.buffer, tuple(first for first, _ in region.ranges))

    def loop(self, loop: ir.For) -> None:
        if loop.kind not in _LOOPS:
            raise Unsupported(f"loop {loop.var.name}: {self.language} has no {loop.kind.value} loops")
        self.texts = {}
        extent = arith.simplify(loop.extent)
        name = self.unique(loop.var.name)
        kind = self.index_type
        if isinstance(extent, arith.Const):
            head = f"for ({kind} {name} = 0; {name} < {extent.value}; {name}++)"
        else:
            end = self.unique(f"{name}_end")
            head = f"for ({kind} {name} = 0, {end} = {self.index(extent)}; {name} < {end}; {name}++)"
        with self.block(head):
            self.names[loop.var] = name
            self.statement(loop.body)
        self.identifiers.discard(name)

    def choice(self, condition: ir.Expr, then: ir.Stmt, otherwise: ir.Stmt | None) -> None:
        self.texts = {}
        flag = self.value(condition).code
        with self.block(f"if ({flag})"):
            self.statement(then)
        if otherwise is not None:
            with self.block("else"):
                self.statement(otherwise)

    def let(self, stmt: ir.Let) -> None:
        self.texts = {}
        value = self.narrowed(stmt.value)
        name = self.unique(stmt.var.name)
        self.line(f"const {self.index_type} {name} = {value};")
        if stmt.bounds is not None and not self.inside(stmt.value, *stmt.bounds):
            self.check(name, *stmt.bounds)
        self.names[stmt.var] = name
        self.statement(stmt.body)
