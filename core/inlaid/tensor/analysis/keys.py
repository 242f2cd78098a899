"""Structural keys of loop programs: hashes that are equal for structurally equal programs."""

from __future__ import annotations

import functools
import hashlib
from typing import Any

from inlaid.tensor import ir
from inlaid.tensor.text import flattened
from inlaid_runtime import arith


@functools.lru_cache(maxsize=256)  # the semantics of intrinsics are compared again and again
def structural_key(program: ir.LoopProgram) -> str:
    """Hash a program to a hexadecimal key, ignoring the names of the program, its blocks, its buffers and its loop variables.

    Dimensions are hashed by name and bounds. Sharing of values and nesting of sequences do not affect the hash. Takes time linear
    in the size of the program.
    """
    return _Walk().program(program)


def structurally_equal(a: ir.LoopProgram, b: ir.LoopProgram) -> bool:
    """Test whether two programs have equal structural keys. Compares the parameters first, and computes keys only if they match."""
    return a is b or (parameter_types(a) == parameter_types(b) and structural_key(a) == structural_key(b))


@functools.lru_cache(maxsize=256)
def parameter_types(program: ir.LoopProgram) -> tuple[tuple[Any, ...], ...]:
    """Return the dtype and shape of each input and each output, with None for each symbolic dimension."""
    return tuple(
        tuple(
            (buffer.dtype.name, *(dim if isinstance(dim := arith.unwrap(extent), int) else None for extent in buffer.shape))
            for buffer in side
        )
        for side in (program.inputs, program.outputs)
    )


class _Walk:
    """Computes one key. Maps every node to a tuple of the numbers of its parts, and gives equal tuples equal numbers. The tuples,
    in the order of their numbers, determine the program."""

    def __init__(self) -> None:
        self._digest = hashlib.sha256()
        self._numbers: dict[tuple[Any, ...], int] = {}
        self._exprs: dict[ir.Expr, int] = {}
        self._indices: dict[arith.Expr, int] = {}
        self._buffers: dict[ir.Buffer, int] = {}
        self._variables: dict[arith.Expr, int] = {}

    def program(self, program: ir.LoopProgram) -> str:
        inputs, outputs = (tuple(map(self._buffer, side)) for side in (program.inputs, program.outputs))
        defines = tuple((self._index(size), self._buffer(buffer)) for size, buffer in program.defines)
        sizes = tuple(map(self._index, program.sizes))
        notes = self._notes(program.annotations)
        self._number("program", inputs, outputs, defines, sizes, program.updates, notes, self._stmt(program.body))
        return self._digest.hexdigest()

    def _number(self, *fields: Any) -> int:
        number = self._numbers.get(fields)
        if number is None:
            number = self._numbers[fields] = len(self._numbers)
            self._digest.update(repr(fields).encode())
        return number

    def _buffer(self, buffer: ir.Buffer) -> int:
        number = self._buffers.get(buffer)
        if number is None:
            shape = tuple(self._index(arith.wrap(dim)) for dim in buffer.shape)
            number = self._buffers[buffer] = self._number("buffer", len(self._buffers), shape, buffer.dtype.name, buffer.scope)
        return number

    def _variable(self, variable: arith.Var) -> int:
        number = self._variables.get(variable)
        if number is None:
            number = self._variables[variable] = self._number("var", len(self._variables))
        return number

    def _notes(self, annotations: tuple[tuple[str, Any], ...]) -> tuple[Any, ...]:
        return tuple((key, self._note(value)) for key, value in annotations)

    def _note(self, value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(map(self._note, value))
        return ("buffer", self._buffer(value)) if isinstance(value, ir.Buffer) else value

    def _index(self, expr: arith.Expr) -> int:
        number = self._indices.get(expr)
        if number is None:
            number = self._indices[expr] = self._index_anew(expr)
        return number

    def _index_anew(self, expr: arith.Expr) -> int:
        match expr:
            case arith.Const(value=value):
                return self._number("int", value)
            case arith.Var():
                return self._variable(expr)
            case arith.SizeVar():
                upper = None if expr.upper is None else self._index(arith.wrap(expr.upper))
                return self._number("size", expr.name, expr.lower, upper)
            case arith.Opaque(payload=payload, lower=lower, upper=upper):
                assert isinstance(payload, ir.Expr)
                return self._number("checked", self._expr(payload), self._index(lower), self._index(upper))
        op = expr.op if isinstance(expr, arith.Compare) else type(expr).__name__
        return self._number(op, *map(self._index, expr.operands))

    def _expr(self, root: ir.Expr) -> int:
        stack = [root]
        while stack:
            node = stack[-1]
            missing = [part for part in ir.parts(node) if part not in self._exprs]
            if node not in self._exprs and missing:
                stack.extend(reversed(missing))
                continue
            stack.pop()
            if node not in self._exprs:
                self._exprs[node] = self._expr_anew(node)
        return self._exprs[root]

    def _expr_anew(self, node: ir.Expr) -> int:
        dtype_name = node.dtype.name
        match node:
            case ir.Const(value=value):
                return self._number("const", dtype_name, repr(value))
            case ir.Index(index=index):
                return self._number("index", dtype_name, self._index(index))
            case ir.Load(buffer=buffer, indices=indices):
                return self._number("load", self._buffer(buffer), *map(self._index, indices))
            case ir.Unary(op=name) | ir.Binary(op=name) | ir.CallMath(name=name) | ir.CallIntrinsic(name=name):
                pass
            case _:
                name = ""
        return self._number(type(node).__name__, dtype_name, name, *(self._exprs[part] for part in ir.operands(node)))

    def _region(self, region: ir.BufferRegion) -> tuple[Any, ...]:
        return self._buffer(region.buffer), *((self._index(first), self._index(extent)) for first, extent in region.ranges)

    def _stmt(self, stmt: ir.Stmt) -> int:
        items = list(flattened(stmt))
        return self._one(items[0]) if len(items) == 1 else self._number("seq", *map(self._one, items))

    def _one(self, stmt: ir.Stmt) -> int:
        match stmt:
            case ir.For(var=var, extent=extent, body=body):
                head = (self._variable(var), self._index(extent), stmt.kind.value, stmt.thread, self._notes(stmt.annotations))
                return self._number("for", *head, self._stmt(body))
            case ir.While(condition=condition, body=body):
                return self._number("while", self._expr(condition), self._stmt(body))
            case ir.Block():
                return self._block(stmt)
            case ir.Store(buffer=buffer, indices=indices, value=value):
                return self._number("store", self._buffer(buffer), tuple(map(self._index, indices)), self._expr(value))
            case ir.If(condition=condition, then=then, otherwise=otherwise):
                otherwise_number = None if otherwise is None else self._stmt(otherwise)
                return self._number("if", self._expr(condition), self._stmt(then), otherwise_number)
            case ir.Let(var=var, value=value, body=body, bounds=bounds):
                bound_numbers = bounds and tuple(map(self._index, bounds))
                return self._number("let", self._variable(var), self._expr(value), bound_numbers, self._stmt(body))
            case ir.Alloc(buffer=buffer, body=body):
                return self._number("alloc", self._buffer(buffer), self._stmt(body))
            case ir.Intrinsic(name=name, regions=regions, access=access, args=args, over=over):
                return self._number(
                    "intrinsic", name, tuple(map(self._region, regions)), access, tuple(map(self._expr, args)), over
                )
            case ir.Barrier(over=over):
                return self._number("barrier", over)
        raise AssertionError(f"expected a statement, got {type(stmt).__name__}")

    def _block(self, block: ir.Block) -> int:
        iters = tuple((self._variable(item.var), self._index(item.extent), item.kind.value) for item in block.iters)
        reads, writes = (tuple(map(self._region, side)) for side in (block.reads, block.writes))
        init = None if block.init is None else self._stmt(block.init)
        head = (tuple(map(self._index, block.bindings)), self._index(block.predicate), self._notes(block.annotations))
        return self._number("block", iters, *head, reads, writes, init, self._stmt(block.body))
