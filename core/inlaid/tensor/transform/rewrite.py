"""Rewriter of loop programs: replaces variables, buffers and nodes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from operator import is_not

from inlaid.tensor import ir
from inlaid_runtime import arith


class Rewriter:
    """Rebuilds expressions and statements with one memo, so that sharing is preserved. Unchanged parts stay the same object.

    `variables` maps index variables and dimensions to integer expressions, `buffers` maps buffers to buffers. `expr(node)` and
    `stmt(node)` may replace a value node or a statement whose parts are already rebuilt (None: keep it). Payloads of checked
    indices are rebuilt too.
    """

    def __init__(
        self,
        variables: Mapping[arith.Expr, arith.Expr] | None = None,
        buffers: Mapping[ir.Buffer, ir.Buffer] | None = None,
        expr: Callable[[ir.Expr], ir.Expr | None] | None = None,
        stmt: Callable[[ir.Stmt], ir.Stmt | None] | None = None,
    ) -> None:
        self._variables = variables or {}
        self._mapped = self._variables.keys()
        self._buffers = buffers or {}
        self._replace_expr = expr
        self._replace_stmt = stmt
        self._exprs: dict[ir.Expr, ir.Expr] = {}
        self._indices: dict[arith.Expr, arith.Expr] = {}

    def index(self, index: arith.Expr) -> arith.Expr:
        """Rebuild an integer expression."""
        if type(index) is arith.Const or (self._mapped.isdisjoint(arith.free_vars(index)) and not arith.reads_data(index)):
            return index
        return self._rebuilt_index(index)

    def _rebuilt_index(self, index: arith.Expr) -> arith.Expr:
        """Rebuild an integer expression whose operands `index` may change."""
        cached = self._indices.get(index)
        if cached is not None:
            return index if cached == index else cached
        if arith.levels(index) > arith.LEVELS:
            for node in arith.post_order(index, below=self._new_operands):
                if node is not index:
                    self._indices.setdefault(node, self.index(node))
        new = index
        if isinstance(index, (arith.Var, arith.SizeVar)):
            new = self._variables.get(index, index)
        elif isinstance(index, arith.Opaque):
            assert isinstance(index.payload, ir.Expr), "a checked index of a loop program must wrap a value expression"
            payload, lower, upper = self.expr(index.payload), self.index(index.lower), self.index(index.upper)
            if payload is not index.payload or lower is not index.lower or upper is not index.upper:
                new = ir.checked(payload, lower, upper)
        elif index.operands:
            operands = self._rebuilt_indices(index.operands)
            if operands is not index.operands:
                new = index.rebuild(operands)
        self._indices[index] = new
        return new

    def _new_operands(self, index: arith.Expr) -> tuple[arith.Expr, ...]:
        """Return the operands of an integer expression that are not rebuilt yet."""
        return tuple(operand for operand in index.operands if operand not in self._indices)

    def expr(self, expr: ir.Expr) -> ir.Expr:
        """Rebuild a value expression."""
        return ir.map_expr(expr, self._leaf if self._buffers else self._replace_expr, self.index, self._exprs)

    def region(self, region: ir.BufferRegion) -> ir.BufferRegion:
        """Rebuild a region."""
        buffer = self._buffers.get(region.buffer, region.buffer)
        ranges = tuple((self.index(first), self.index(extent)) for first, extent in region.ranges)
        is_unchanged = buffer is region.buffer and all(
            new is old
            for pair, old_pair in zip(ranges, region.ranges, strict=True)
            for new, old in zip(pair, old_pair, strict=True)
        )
        return region if is_unchanged else ir.BufferRegion(buffer, ranges)

    def stmt(self, stmt: ir.Stmt) -> ir.Stmt:
        """Rebuild a statement. Recursive in the nesting depth of statements."""
        new = self._stmt(stmt)
        return (self._replace_stmt(new) or new) if self._replace_stmt else new

    def program(self, program: ir.LoopProgram) -> ir.LoopProgram:
        """Rebuild a program, including its parameters."""
        inputs, outputs = (tuple(self._buffers.get(item, item) for item in side) for side in (program.inputs, program.outputs))
        defines = tuple((size, self._buffers.get(buffer, buffer)) for size, buffer in program.defines)
        body = self.stmt(program.body)
        if body is program.body and inputs == program.inputs and outputs == program.outputs:
            return program
        return replace(program, inputs=inputs, outputs=outputs, defines=defines, body=body)

    def _leaf(self, node: ir.Expr) -> ir.Expr | None:
        if isinstance(node, ir.Load) and node.buffer in self._buffers:
            buffer = self._buffers[node.buffer]
            node = ir.Load(buffer.dtype, buffer, node.indices)
        return (self._replace_expr(node) or node) if self._replace_expr else node

    def _rebuilt_indices(self, indices: tuple[arith.Expr, ...]) -> tuple[arith.Expr, ...]:
        new = tuple(map(self.index, indices))
        return new if any(map(is_not, new, indices)) else indices

    def _regions(self, regions: tuple[ir.BufferRegion, ...]) -> tuple[ir.BufferRegion, ...]:
        new = tuple(map(self.region, regions))
        return new if any(map(is_not, new, regions)) else regions

    def _stmt(self, stmt: ir.Stmt) -> ir.Stmt:
        match stmt:  # the most frequent statements first
            case ir.Store(buffer=buffer, indices=indices, value=value):
                new_buffer, new_indices, new_value = (
                    self._buffers.get(buffer, buffer),
                    self._rebuilt_indices(indices),
                    self.expr(value),
                )
                if new_buffer is buffer and new_indices is indices and new_value is value:
                    return stmt
                return ir.Store(new_buffer, new_indices, new_value)
            case ir.For(extent=extent, body=body):
                new_extent, new_body = self.index(extent), self.stmt(body)
                if new_extent is extent and new_body is body:
                    return stmt
                return ir.For(stmt.var, new_extent, new_body, stmt.kind, stmt.thread, stmt.annotations)
            case ir.While(condition=condition, body=body):
                new_condition, new_body = self.expr(condition), self.stmt(body)
                return stmt if new_condition is condition and new_body is body else ir.While(new_condition, new_body)
            case ir.Block():
                return self._block(stmt)
            case ir.If(condition=condition, then=then, otherwise=otherwise):
                new_condition, new_then = self.expr(condition), self.stmt(then)
                new_otherwise = None if otherwise is None else self.stmt(otherwise)
                if new_condition is condition and new_then is then and new_otherwise is otherwise:
                    return stmt
                return ir.If(new_condition, new_then, new_otherwise)
            case ir.Let(value=value, body=body, bounds=bounds):
                new_value, new_body = self.expr(value), self.stmt(body)
                new_bounds = None if bounds is None else (self.index(bounds[0]), self.index(bounds[1]))
                if new_value is value and new_body is body and (bounds is None or new_bounds == bounds):
                    return stmt
                return ir.Let(stmt.var, new_value, new_body, new_bounds)
            case ir.Alloc(buffer=buffer, body=body):
                new_buffer, new_body = self._buffers.get(buffer, buffer), self.stmt(body)
                return stmt if new_buffer is buffer and new_body is body else ir.Alloc(new_buffer, new_body)
            case ir.Seq(stmts=stmts):
                new_stmts = tuple(map(self.stmt, stmts))
                return ir.Seq(new_stmts) if any(map(is_not, new_stmts, stmts)) else stmt
            case ir.Intrinsic(regions=regions, args=args):
                new_regions, new_args = self._regions(regions), tuple(map(self.expr, args))
                if new_regions is regions and not any(map(is_not, new_args, args)):
                    return stmt
                return replace(stmt, regions=new_regions, args=new_args)
            case ir.Barrier():
                return stmt
        raise AssertionError(f"expected a statement, got {type(stmt).__name__}")

    def _block(self, block: ir.Block) -> ir.Block:
        iters = tuple(
            item if (extent := self.index(item.extent)) is item.extent else ir.IterVar(item.var, extent, item.kind)
            for item in block.iters
        )
        new = ir.Block(
            block.name,
            iters,
            self._rebuilt_indices(block.bindings),
            self._regions(block.reads),
            self._regions(block.writes),
            self.stmt(block.body),
            None if block.init is None else self.stmt(block.init),
            self.index(block.predicate),
            block.annotations,
        )
        is_unchanged = (
            all(a is b for a, b in zip(iters, block.iters, strict=True))
            and new.bindings is block.bindings
            and new.reads is block.reads
            and new.writes is block.writes
            and new.body is block.body
            and new.init is block.init
            and new.predicate is block.predicate
        )
        return block if is_unchanged else new
