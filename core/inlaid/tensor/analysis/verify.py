"""Verifies the invariants of loop programs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from inlaid.tensor import ir
from inlaid.tensor.analysis.footprint import semantic_access
from inlaid.tensor.text import ACCESS_WORDS, show
from inlaid_runtime import arith
from inlaid_runtime.errors import VerifyError

NONE: Mapping[str, object] = MappingProxyType({})
_FLOAT_ONLY = ("sqrt", "floor", "ceil", "round", "trunc", "isnan", "isinf")
_INTEGER_ONLY = ("popcount", "clz")
_BITWISE = ("and", "or", "xor")
_NO_BOOL = ("add", "sub", "mul", "div", "mod", "shl", "shr")


def verify(program: ir.LoopProgram, intrinsics: Mapping[str, object] = NONE) -> None:
    """Check that a loop program is valid. Buffers must be declared before use, indices must match the rank, variables must be in
    scope, dtypes must agree, vectorized and unrolled loops must have constant extents, and each output but no input must be
    written. Intrinsics in `intrinsics` must access regions as their semantics say. Collective intrinsics must be outside the loops
    over their axes.

    Raises `VerifyError`, which shows the program and marks the offending statement."""
    _Verifier(program, intrinsics).run()


class _Verifier:
    def __init__(self, program: ir.LoopProgram, intrinsics: Mapping[str, object]) -> None:
        self._program = program
        self._intrinsics = intrinsics
        self._at: ir.Stmt = program.body
        self._buffers: set[ir.Buffer] = set()
        self._scope: set[arith.Expr] = set()
        self._blocks: set[str] = set()
        self._written: set[ir.Buffer] = set()
        self._well_typed: set[ir.Expr] = set()
        self._enclosing_stmts: list[ir.Stmt] = []

    def run(self) -> None:
        program = self._program
        self._scope = {size for size, _ in program.defines} | set(program.sizes)
        for buffer in program.params:
            if buffer in self._buffers:
                self._fail(f"parameters must be distinct, found {buffer} twice")
            self._buffers.add(buffer)
            for dim in buffer.shape:
                self._scope |= {node for node in arith.walk(arith.wrap(dim)) if isinstance(node, arith.SizeVar)}
        for _, buffer in program.defines:
            if buffer not in program.params or buffer.shape or buffer.dtype.name != "int64":
                self._fail(f"{buffer} defines a size and must be a 0-d int64 parameter")
        for output, operand in program.updates:
            output_buffer, input_buffer = program.outputs[output], program.inputs[operand]
            if output_buffer.dtype is not input_buffer.dtype or arith.product(output_buffer.shape) != arith.product(
                input_buffer.shape
            ):
                self._fail(f"{output_buffer} updates {input_buffer}, so both must have the same dtype and number of elements")
        self._stmt(program.body)
        for buffer in program.outputs:
            if buffer not in self._written and not any(arith.bounds(dim)[1] == 0 for dim in buffer.shape):
                self._fail(f"output {buffer} must be written, found no store to it")

    def _fail(self, problem: str) -> None:
        raise VerifyError(f"{self._program.name}: {problem}\n{show(self._program, mark=self._at)}")

    def _bind(self, variables: Iterable[arith.Var]) -> list[arith.Var]:
        new_variables = list(variables)
        for var in new_variables:
            if var in self._scope:
                self._fail(f"{var} must be bound once, found a binding inside its scope")
            self._scope.add(var)
        return new_variables

    def _stmt(self, stmt: ir.Stmt) -> None:
        self._at = stmt
        self._enclosing_stmts.append(stmt)
        match stmt:
            case ir.For(var=var, extent=extent, body=body):
                self._indices(extent)
                self._loop(stmt)
                self._inside([var], body)
            case ir.While(condition=condition, body=body):
                self._condition(condition)
                self._stmt(body)
            case ir.Block():
                self._block(stmt)
            case ir.Store(buffer=buffer, indices=indices, value=value):
                self._check_indexing(buffer, len(indices))
                self._indices(*indices)
                self._values(value)
                if value.dtype is not buffer.dtype:
                    self._fail(f"a value stored into {buffer} must be {buffer.dtype}, got {value.dtype}")
                self._write(buffer)
            case ir.If(condition=condition, then=then, otherwise=otherwise):
                self._condition(condition)
                self._stmt(then)
                if otherwise is not None:
                    self._stmt(otherwise)
            case ir.Let(var=var, value=value, body=body, bounds=bounds):
                self._values(value)
                self._indices(*(bounds or ()))
                if not value.dtype.is_int:
                    self._fail(f"the value of index {var} must be an integer, got {value.dtype}")
                self._inside([var], body)
            case ir.Alloc(buffer=buffer, body=body):
                if buffer in self._buffers:
                    self._fail(f"{buffer} must be declared once, found a declaration in its scope")
                self._indices(*(arith.wrap(dim) for dim in buffer.shape))
                self._buffers.add(buffer)
                self._stmt(body)
                self._buffers.discard(buffer)
            case ir.Seq(stmts=stmts):
                for item in stmts:
                    self._stmt(item)
            case ir.Intrinsic(regions=regions, args=args):
                self._regions(regions)
                self._values(*args)
                self._access(stmt)
            case ir.Barrier(over=over):
                self._check_synchronization("a barrier")
                thread_axes = [loop.thread for loop in self._enclosing_stmts if isinstance(loop, ir.For)]
                if missing := [axis for axis in over if axis not in thread_axes]:
                    self._fail(f"a barrier over {', '.join(over)}: expected loops over all around it, found none over {missing[0]}")
        self._enclosing_stmts.pop()

    def _access(self, stmt: ir.Intrinsic) -> None:
        name = stmt.name
        if len(stmt.access) != len(stmt.regions):
            self._fail(f"intrinsic {name}: expected marks of access for {len(stmt.regions)} regions, found {len(stmt.access)}")
        semantics = self._intrinsics.get(name)
        if isinstance(semantics, ir.LoopProgram):
            scalars = range(len(semantics.inputs) - len(stmt.args), len(semantics.inputs))
            required_access = tuple(access for position, access in enumerate(semantic_access(semantics)) if position not in scalars)
            if required_access != stmt.access:
                expected, actual = (
                    ", ".join(map(ACCESS_WORDS.__getitem__, side)) or "none" for side in (required_access, stmt.access)
                )
                self._fail(f"intrinsic {name}: expected regions marked {expected} as its semantics say, found {actual}")
        thread_axes = {loop.thread for loop in self._enclosing_stmts if isinstance(loop, ir.For)}
        if not thread_axes.isdisjoint(stmt.over):
            if not thread_axes.issuperset(stmt.over):
                self._fail(
                    f"intrinsic {name} is collective over {', '.join(stmt.over)}: expected loops over all around it, or none"
                )
            self._check_synchronization(f"collective intrinsic {name}")
        for region in stmt.touching(ir.AccessMode.WRITE):
            self._write(region.buffer)

    def _check_synchronization(self, subject: str) -> None:
        """Check the loops around a barrier or collective intrinsic."""
        threads = [
            position for position, stmt in enumerate(self._enclosing_stmts) if isinstance(stmt, ir.For) and stmt.over_threads
        ]
        if not threads or threads[-1] - threads[0] != len(threads) - 1:
            self._fail(f"{subject}: expected one perfect nest of loops bound to threads around it")
        for stmt in self._enclosing_stmts[threads[-1] + 1 :]:
            if isinstance(stmt, ir.For) and stmt.kind not in (ir.ForKind.SERIAL, ir.ForKind.UNROLLED):
                self._fail(f"{subject}: expected serial loops around it, found loop {stmt.var}, which is {stmt.kind.value}")

    def _inside(self, variables: list[arith.Var], body: ir.Stmt) -> None:
        for var in self._bind(variables):
            self._stmt(body)
            self._scope.discard(var)

    def _loop(self, loop: ir.For) -> None:
        if loop.kind in (ir.ForKind.VECTORIZED, ir.ForKind.UNROLLED) and not isinstance(loop.extent, arith.Const):
            self._fail(f"the extent of {loop.kind.value} loop {loop.var} must be constant, got {loop.extent}")
        if bool(loop.thread) != (loop.kind is ir.ForKind.THREAD):
            self._fail(f"loop {loop.var} must name a thread axis if and only if its kind is thread")
        if loop.kind is ir.ForKind.VECTORIZED:
            for inner in ir.walk_stmts(loop.body):
                if isinstance(inner, ir.For) and (inner.kind is loop.kind or loop.var in arith.free_vars(inner.extent)):
                    self._fail(f"loop {inner.var} inside vectorized loop {loop.var} must not be vectorized or depend on it")

    def _block(self, block: ir.Block) -> None:
        if block.name in self._blocks:
            self._fail(f"block names must be unique, found two blocks named {block.name}")
        self._blocks.add(block.name)
        if len(block.iters) != len(block.bindings):
            self._fail(f"block {block.name} needs {len(block.iters)} bindings, one per variable, got {len(block.bindings)}")
        self._indices(*block.bindings, *(item.extent for item in block.iters))
        variables = self._bind(item.var for item in block.iters)
        self._indices(block.predicate)
        self._regions(block.reads + block.writes)
        for part in ir.substatements(block):
            self._stmt(part)
        self._scope -= set(variables)

    def _check_indexing(self, buffer: ir.Buffer, count: int) -> None:
        if buffer not in self._buffers:
            self._fail(f"{buffer} must be declared before use")
        if count != len(buffer.shape):
            self._fail(f"{buffer} needs {len(buffer.shape)} indices, got {count}")

    def _regions(self, regions: tuple[ir.BufferRegion, ...]) -> None:
        for region in regions:
            self._check_indexing(region.buffer, len(region.ranges))
            self._indices(*(end for pair in region.ranges for end in pair))

    def _write(self, buffer: ir.Buffer) -> None:
        if buffer in self._program.inputs:
            self._fail(f"input {buffer} must not be written")
        self._written.add(buffer)

    def _condition(self, condition: ir.Expr) -> None:
        self._values(condition)
        if condition.dtype.kind != "bool":
            self._fail(f"a condition must be a bool, got {condition.dtype}")

    def _indices(self, *indices: arith.Expr) -> None:
        pending = list(indices)
        while pending:
            node = pending.pop()
            pending += node.operands
            if isinstance(node, (arith.Var, arith.SizeVar)) and node not in self._scope:
                self._fail(f"variable {node} must be bound before use")
            if isinstance(node, arith.Opaque):
                assert isinstance(node.payload, ir.Expr)
                if not node.payload.dtype.is_int:
                    self._fail(f"a checked index must be an integer, got {node.payload.dtype}")
                pending += (node.lower, node.upper)
                self._values(node.payload)

    def _values(self, *roots: ir.Expr) -> None:
        visited: set[ir.Expr] = set()
        pending = list(roots)
        while pending:
            node = pending.pop()
            if node in visited:
                continue
            visited.add(node)
            pending += ir.parts(node)
            if isinstance(node, ir.Load):
                self._check_indexing(node.buffer, len(node.indices))
            for index in ir.index_operands(node):
                self._check_variables(index)
            if node not in self._well_typed:
                problem = _type_error(node)
                if problem:
                    self._fail(problem)
                self._well_typed.add(node)

    def _check_variables(self, index: arith.Expr) -> None:
        """Check an index used inside a value. Payloads of its checked indices are checked as operands of the value."""
        for var in arith.free_vars(index):
            if var not in self._scope:
                self._fail(f"variable {var} must be bound before use")


def _type_error(node: ir.Expr) -> str:
    """Return a description of a type error of one node; "" if the node is valid."""
    dtype = node.dtype
    match node:
        case ir.Const(value=value):
            return _const_error(node, value)
        case ir.Index():
            return "" if dtype.is_int or dtype.kind == "bool" else f"an index must be an integer or bool, got {dtype}"
        case ir.Load(buffer=buffer):
            return "" if dtype is buffer.dtype else f"a load from {buffer} must be {buffer.dtype}, got {dtype}"
        case ir.Unary(op=op, a=a):
            return _unary_error(op, a, node)
        case ir.Binary(op=op, a=a, b=b):
            return _binary_error(op, a, b, node)
        case ir.Fma(a=a, b=b, c=c):
            fits = dtype.kind != "bool" and a.dtype is b.dtype is c.dtype is dtype
            return "" if fits else f"fma needs one numeric dtype, got {a.dtype}, {b.dtype} and {c.dtype}"
        case ir.Select(condition=condition, then=then, otherwise=otherwise):
            if condition.dtype.kind != "bool":
                return f"a condition must be a bool, got {condition.dtype}"
            return (
                ""
                if then.dtype is otherwise.dtype is dtype
                else f"select needs {dtype} operands, got {then.dtype}, {otherwise.dtype}"
            )
        case ir.Bitcast(a=a):
            return "" if a.dtype.bytes == dtype.bytes else f"bitcast needs dtypes of one width, got {a.dtype} to {dtype}"
        case ir.CallMath(name=name, args=args):
            if name not in ir.MATH:
                return f"unknown mathematical function {name}"
            fits = dtype.is_float and all(arg.dtype is dtype for arg in args)
            return "" if fits else f"{name} needs {dtype} operands, got {', '.join(str(arg.dtype) for arg in args)}"
    return ""


def _const_error(node: ir.Const, value: float | int | bool) -> str:
    dtype = node.dtype
    if dtype.is_float:
        return "" if isinstance(value, float) else f"a {dtype} constant needs a float, got {value!r}"
    if dtype.kind == "bool":
        return "" if isinstance(value, bool) else f"a bool constant needs True or False, got {value!r}"
    low, high = dtype.limits
    fits = isinstance(value, int) and not isinstance(value, bool) and low <= value <= high
    return "" if fits else f"a {dtype} constant needs an integer in range, got {value!r}"


def _unary_error(op: str, a: ir.Expr, node: ir.Unary) -> str:
    if op not in ir.UNARY:
        return f"unknown unary operation {op}"
    result_dtype = "bool" if op in ("isnan", "isinf") else a.dtype.name
    fits = a.dtype.is_float if op in _FLOAT_ONLY else a.dtype.is_int if op in _INTEGER_ONLY else True
    if op == "not":
        fits = not a.dtype.is_float
    if op in ("neg", "abs"):
        fits = a.dtype.kind != "bool"
    return "" if fits and node.dtype.name == result_dtype else f"{op} does not accept {a.dtype} with result {node.dtype}"


def _binary_error(op: str, a: ir.Expr, b: ir.Expr, node: ir.Binary) -> str:
    if op not in ir.BINARY:
        return f"unknown binary operation {op}"
    result_dtype = "bool" if op in ir.COMPARISONS else a.dtype.name
    fits = a.dtype is b.dtype and node.dtype.name == result_dtype
    if op in _BITWISE or op in ("shl", "shr"):
        fits = fits and not a.dtype.is_float
    if op in _NO_BOOL:
        fits = fits and a.dtype.kind != "bool"
    return "" if fits else f"{op} does not accept {a.dtype} and {b.dtype} with result {node.dtype}"
