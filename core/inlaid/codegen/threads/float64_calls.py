"""Replace float64 arithmetic in kernels by calls of functions on its bits, for targets whose float64 is slow or missing."""

from __future__ import annotations

import numpy as np

from inlaid.tensor import ir
from inlaid.tensor.ir import Expr, bitcast, cast, const, select
from inlaid.tensor.transform.rewrite import Rewriter
from inlaid_runtime.types import DType, dtype

FLOAT64_CALL = "float64"
"""Prefix of the calls' names in kernels; a dot and the name of a function in `float64_functions` follow."""
FLOAT64, FLOAT32, BOOL = dtype("float64"), dtype("float32"), dtype("bool")
BITS, UINT32, INT64, INT32 = dtype("uint64"), dtype("uint32"), dtype("int64"), dtype("int32")
_SIGN, _INFINITY = 1 << 63, 0x7FF << 52
_INTEGRAL = {"round": 0, "floor": 1, "ceil": 2, "trunc": 3}
"""Second argument of the function `integral`, by operator."""


def float64_calls(program: ir.LoopProgram) -> ir.LoopProgram:
    """Represent the float64 values of a legalized kernel by their bits in uint64, also in buffers, and replace operations on them
    by calls. The results are bit-exact, except for NaNs. Returns the same object if nothing changes."""
    local = [stmt.buffer for stmt in ir.walk_stmts(program.body) if isinstance(stmt, ir.Alloc)]
    bits_buffers = {
        buffer: ir.Buffer(buffer.name, buffer.shape, BITS, buffer.scope)
        for buffer in (*program.params, *local)
        if buffer.dtype is FLOAT64
    }
    if not bits_buffers and not any(node.dtype is FLOAT64 for node in ir.values_in(program.body)):
        return program
    return _Rewriter(bits_buffers).program(program)


def _call(name: str, *args: Expr, dtype: DType = BITS) -> Expr:
    return ir.CallIntrinsic(dtype, f"{FLOAT64_CALL}.{name}", args)


class _Rewriter(Rewriter):
    """Rebuilds programs with float64 values represented by their bits."""

    def __init__(self, buffers: dict[ir.Buffer, ir.Buffer]) -> None:
        super().__init__(buffers=buffers)
        self._bits = buffers
        self._rewritten: dict[Expr, Expr] = {}

    def expr(self, expr: Expr) -> Expr:
        """Rebuild a value expression."""
        if expr not in self._rewritten:
            for node in ir.post_order(expr):  # operands first, so that no recursion is deep
                if node not in self._rewritten:
                    self._rewritten[node] = self._rebuilt(node)
        return self._rewritten[expr]

    def _rebuilt(self, expr: Expr) -> Expr:
        dtype = expr.dtype
        match expr:
            case ir.Load(buffer=buffer, indices=indices):
                return ir.load(self._bits.get(buffer, buffer), tuple(map(self.index, indices)))
            case ir.Const(value=value):
                return const(int(np.float64(value).view(np.uint64)), BITS) if dtype is FLOAT64 else expr
            case ir.Index(index=index):
                if dtype is FLOAT64:
                    return _call("from_int64", ir.Index(INT64, self.index(index)))
                return ir.Index(dtype, self.index(index))
            case ir.Select(condition=condition, then=then, otherwise=otherwise):
                return select(self.expr(condition), self.expr(then), self.expr(otherwise))
        old = ir.operands(expr)
        args = tuple(map(self.expr, old))
        if dtype is not FLOAT64 and not any(arg.dtype is FLOAT64 for arg in old):
            return expr if all(new is arg for new, arg in zip(args, old, strict=True)) else ir.with_operands(expr, args)
        match expr:
            case ir.Cast():
                return _to(args[0], dtype) if old[0].dtype is FLOAT64 else _from(args[0])
            case ir.Bitcast():
                to = BITS if dtype is FLOAT64 else dtype
                return args[0] if args[0].dtype is to else bitcast(args[0], to)
            case ir.Fma():
                return _call("fma", *args)
            case ir.Unary(op=op):
                return _unary(op, args[0])
            case ir.Binary(op=op):
                return _binary(op, *args)
            case ir.CallIntrinsic(name=name):
                return ir.CallIntrinsic(BITS if dtype is FLOAT64 else dtype, name, args)
        raise AssertionError(f"{type(expr).__name__} of float64 must be expanded before float64_calls")


def _unary(op: str, a: Expr) -> Expr:
    match op:
        case "neg":
            return a ^ _SIGN
        case "abs":
            return a & (_SIGN - 1)
        case "isnan":
            return _call("nan", a, dtype=BOOL)
        case "isinf":
            return (a & (_SIGN - 1)).equal(_INFINITY)
        case "sqrt":
            return _call("sqrt", a)
    return _call("integral", a, const(_INTEGRAL[op], INT32))


def _binary(op: str, a: Expr, b: Expr) -> Expr:
    match op:
        case "sub":
            return _call("add", a, b ^ _SIGN)
        case "lt" | "le" | "eq" | "ne":
            return _call(op, a, b, dtype=BOOL)
        case "min" | "max":
            first = _call("lt", *((a, b) if op == "min" else (b, a)), dtype=BOOL)
            chosen = select(_unary("isnan", b), b, select(first, a, b))
            return select(_unary("isnan", a), a, chosen)
    return _call(op, a, b)


def _from(a: Expr) -> Expr:
    """Convert a value of a C type to float64."""
    if a.dtype is FLOAT32:
        return _call("from_bits", bitcast(a, UINT32))
    if a.dtype is BITS:
        return _call("from_uint64", a)
    return _call("from_int64", cast(a, INT64))


def _to(a: Expr, dtype: DType) -> Expr:
    """Convert float64 to a C type. Integers saturate, NaN becomes 0."""
    if dtype is FLOAT64:
        return a
    if dtype is FLOAT32:
        return bitcast(_call("to_bits", a, dtype=UINT32), FLOAT32)
    if dtype is BOOL:
        return (a & (_SIGN - 1)).not_equal(0)
    if dtype is BITS:
        return _call("to_uint64", a)
    integer = _call("to_int64", a, dtype=INT64)
    if dtype is INT64:
        return integer
    low, high = dtype.limits
    return cast(ir.minimum(ir.maximum(integer, const(int(low), INT64)), const(int(high), INT64)), dtype)
