"""Random tensor expressions and random loop programs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st

from inlaid.tensor import ir, te
from inlaid_runtime import arith
from inlaid_runtime.types import dtype

Array = np.ndarray[Any, Any]

NATIVE = ("float32", "float64", "int8", "int32", "int64", "uint8", "uint32", "bool")
NARROW = ("float16", "bfloat16", "float8e4m3fn", "float8e5m2", "float4e2m1", "int4", "uint4", "int2", "uint2")
_NAMES = ("x", "i", "i_1", "if", "select", "a.b", "2nd", "for", "checked", "n")


def array(draw: st.DrawFn, shape: tuple[int, ...], dtype_name: str) -> Array:
    """Small whole numbers, so that sums are exact, and a few that are not."""
    low = 0 if dtype_name in ("bool", "uint8", "uint32", "uint4", "uint2") else -2 if dtype_name == "int2" else -3
    high = 1 if dtype_name in ("bool", "int2") else 3
    rng = np.random.default_rng(draw(st.integers(0, 1000)))
    numbers = rng.integers(low, high + 1, shape).astype(np.float32)
    if dtype(dtype_name).is_float:
        numbers = numbers + rng.integers(0, 2, shape).astype(np.float32) * 0.5
    return np.asarray(numbers, dtype(dtype_name).numpy)


# --- tensor expressions with their numpy meaning ----------------------------------------------------------------------


@dataclass(frozen=True)
class Both:
    """A value twice: as an expression, and as what numpy makes of arrays over all index values."""

    expr: ir.Expr
    value: Array


Operation = Callable[[Both, Both], Both]


def _binary(op: str, compute: Callable[[Array, Array], Array]) -> Operation:
    return lambda a, b: Both(ir.binary(op, a.expr, b.expr), np.asarray(compute(a.value, b.value)).astype(a.value.dtype))


_ARITHMETIC: dict[str, Operation] = {
    "add": _binary("add", np.add),
    "sub": _binary("sub", np.subtract),
    "mul": _binary("mul", np.multiply),
    "min": _binary("min", np.minimum),
    "max": _binary("max", np.maximum),
    "select": lambda a, b: Both(
        te.select(a.expr < b.expr, a.expr, b.expr + a.expr), np.where(a.value < b.value, a.value, b.value + a.value)
    ),
    "mod": lambda a, b: Both(a.expr % b.expr, _remainder(a.value, b.value)),
    "div": lambda a, b: Both(a.expr / b.expr, _quotient(a.value, b.value)),
    "cast": lambda a, b: Both(
        te.cast(te.cast(a.expr, "float64") * 0.75, a.expr.dtype) + b.expr,
        (np.trunc(a.value * 0.75) if a.value.dtype.kind in "iu" else a.value.astype(np.float64) * 0.75).astype(a.value.dtype)
        + b.value,
    ),
}


def _remainder(a: Array, b: Array) -> Array:
    result = np.fmod(a, b)
    return result if a.dtype.kind == "f" else np.where(b == 0, a.dtype.type(0), result)


def _quotient(a: Array, b: Array) -> Array:
    if a.dtype.kind == "f":
        return a / b
    with np.errstate(all="ignore"):
        return np.where(b == 0, a.dtype.type(0), np.trunc(a.astype(np.float64) / b)).astype(a.dtype)


@dataclass(frozen=True)
class Example:
    """A compute, its inputs and what it should give."""

    outputs: list[te.Tensor]
    inputs: list[te.Tensor]
    arrays: list[Array]
    expected: list[Array]


@st.composite
def computes(draw: st.DrawFn) -> Example:
    """One to three computes of one dtype that read one another, with or without reductions."""
    dtype_name = draw(st.sampled_from(["float32", "float64", "int32", "uint8", "int64"]))
    inputs, arrays = [], []
    for name in ("a", "b"):
        shape = tuple(draw(st.lists(st.integers(1, 4), max_size=3)))
        inputs.append(te.placeholder(shape, dtype_name, name))
        arrays.append(array(draw, shape, dtype_name))
    tensors: list[tuple[te.Tensor, Array]] = list(zip(inputs, arrays, strict=True))
    symbolic = draw(st.booleans())
    for number in range(draw(st.integers(1, 3))):
        with np.errstate(all="ignore"):
            tensors.append(_compute(draw, tensors, dtype_name, f"t{number}", symbolic))
    chosen = draw(st.sets(st.integers(2, len(tensors) - 1), min_size=1))
    return Example([tensors[k][0] for k in sorted(chosen)], inputs, arrays, [tensors[k][1] for k in sorted(chosen)])


def _compute(
    draw: st.DrawFn, tensors: list[tuple[te.Tensor, Array]], dtype_name: str, name: str, symbolic: bool
) -> tuple[te.Tensor, Array]:
    # Some extents are large enough for whole loops to run at once in the interpreter.
    shape = tuple(draw(st.lists(st.integers(0, 6), max_size=3)))
    reducer = draw(st.sampled_from(["", "", "sum", "max", "min"]))
    axis = te.reduce_axis(draw(st.integers(1, 5)))
    extents = shape + ((int(arith.evaluate(axis.extent, {})),) if reducer else ())
    grids = [np.arange(extent).reshape([-1 if k == d else 1 for k in range(len(extents))]) for d, extent in enumerate(extents)]
    result: list[Array] = []

    def body(*indices: arith.Var) -> ir.Expr:
        variables = [*indices, axis] if reducer else list(indices)
        both = _value(draw, tensors, dtype_name, list(zip(variables, grids, extents, strict=True)), 3)
        full = np.broadcast_to(both.value, extents)
        if not reducer:
            result.append(np.array(full))
            return both.expr
        if reducer == "sum":
            # In order, as the loop nest adds.
            total = np.zeros(shape, full.dtype)
            for k in range(extents[-1]):
                total = total + full[..., k]
            result.append(total)
        else:
            result.append(full.max(-1) if reducer == "max" else full.min(-1))
        reduced: ir.Expr = {"sum": te.sum_, "max": te.max_, "min": te.min_}[reducer](both.expr, axis)
        return reduced

    return te.compute(shape, body, name), np.asarray(result[0])


def _value(
    draw: st.DrawFn,
    tensors: list[tuple[te.Tensor, Array]],
    dtype_name: str,
    variables: list[tuple[arith.Var, Array, int]],
    depth: int,
) -> Both:
    if depth and draw(st.booleans()):
        op = _ARITHMETIC[draw(st.sampled_from(sorted(_ARITHMETIC)))]
        return op(_value(draw, tensors, dtype_name, variables, depth - 1), _value(draw, tensors, dtype_name, variables, depth - 1))
    if draw(st.integers(0, 3)) == 0:
        number = draw(st.integers(0, 3))
        return Both(te.const(number, dtype_name), np.array(number, dtype(dtype_name).numpy))
    tensor, values = draw(st.sampled_from([item for item in tensors if 0 not in item[1].shape]))
    pairs = [_index(draw, variables, extent) for extent in values.shape]
    return Both(tensor[tuple(index for index, _ in pairs)], values[tuple(value for _, value in pairs)])


def _index(draw: st.DrawFn, variables: list[tuple[arith.Var, Array, int]], extent: int) -> tuple[arith.Expr, Array]:
    """An index below an extent, and its values."""
    if not variables or draw(st.integers(0, 4)) == 0:
        index = draw(st.integers(0, extent - 1))
        return arith.Const(index), np.array(index)
    var, values, reach = draw(st.sampled_from(variables))
    if reach <= extent and draw(st.booleans()):
        return var, values
    kind = draw(st.sampled_from(["mod", "min", "mirror", "div", "checked"]))
    if kind == "mod":
        return arith.floormod(var + 1, extent), (values + 1) % extent
    if kind == "min":
        return arith.minimum(var, extent - 1), np.minimum(values, extent - 1)
    if kind == "mirror":
        return arith.maximum(extent - 1 - var, 0), np.maximum(extent - 1 - values, 0)
    if kind == "div":
        return arith.floormod(arith.floordiv(var, 2), extent), values // 2 % extent
    value = ir.minimum(ir.as_expr(arith.wrap(var)), te.const(extent - 1, "int64"))
    return te.checked(value, 0, extent - 1), np.minimum(values, extent - 1)


# --- loop programs of every kind of node ------------------------------------------------------------------------------


@st.composite
def programs(draw: st.DrawFn, dtypes: tuple[str, ...] = NATIVE + NARROW) -> ir.LoopProgram:
    """A program over buffers of many dtypes that may be run: every store lies inside, every load too."""
    return _Programs(draw, dtypes).program()


class _Programs:
    def __init__(self, draw: st.DrawFn, dtypes: tuple[str, ...]) -> None:
        self.draw = draw
        self.dtypes = dtypes
        self.size = arith.SizeVar("n", 1, 4)
        self.buffers: list[ir.Buffer] = []
        self.written: list[ir.Buffer] = []
        self.scope: list[tuple[arith.Expr, int]] = []
        self.blocks = 0

    def program(self) -> ir.LoopProgram:
        draw = self.draw
        inputs = tuple(self.buffer() for _ in range(draw(st.integers(1, 2)))) + (
            ir.Buffer("sized", (self.size,), dtype(draw(st.sampled_from(self.dtypes)))),
        )
        outputs = tuple(self.buffer() for _ in range(draw(st.integers(1, 2))))
        self.buffers = [*inputs[:-1]]
        body = [self.fill(output) for output in outputs]
        self.buffers += outputs
        self.written += outputs
        body.append(self.stmt(3))
        notes = draw(st.sampled_from([(), (("pipeline", 2), ("of", (outputs[0], "name", 0.5, True, None)))]))
        return ir.LoopProgram(draw(st.sampled_from(_NAMES)), inputs, outputs, ir.Seq(tuple(body)), (), notes)

    def buffer(self, scope: str = "") -> ir.Buffer:
        shape = tuple(self.draw(st.lists(st.integers(1, 3), max_size=2)))
        return ir.Buffer(self.draw(st.sampled_from(_NAMES)), shape, dtype(self.draw(st.sampled_from(self.dtypes))), scope)

    def fill(self, buffer: ir.Buffer) -> ir.Stmt:
        """Every element of a buffer set."""
        loops = [arith.Var(self.draw(st.sampled_from(_NAMES))) for _ in buffer.shape]
        iters = tuple(ir.IterVar(arith.Var("v"), arith.wrap(extent)) for extent in buffer.shape)
        self.scope += [(item.var, int(arith.evaluate(item.extent, {}))) for item in iters]
        places = tuple(item.var for item in iters)
        store = ir.Store(buffer, places, self.value(buffer.dtype.name, 2))
        del self.scope[len(self.scope) - len(iters) :]
        self.blocks += 1
        region = ir.BufferRegion(buffer, tuple((index, arith.ONE) for index in places))
        stmt: ir.Stmt = ir.Block(f"fill{self.blocks}", iters, tuple(loops), (), (region,), store)
        for loop, extent in zip(reversed(loops), reversed(buffer.shape), strict=True):
            stmt = ir.For(loop, arith.wrap(extent), stmt, self.draw(st.sampled_from([ir.ForKind.SERIAL, ir.ForKind.UNROLLED])))
        return stmt

    def stmt(self, depth: int) -> ir.Stmt:
        kind = self.draw(st.sampled_from(["store", "for", "if", "let", "alloc", "seq", "block", "pass"] if depth else ["store"]))
        match kind:
            case "for":
                var = arith.Var(self.draw(st.sampled_from(_NAMES)))
                extent = self.draw(st.integers(1, 3))
                notes = self.draw(st.sampled_from([(), (("pipeline", 2),)]))
                sized = extent >= 2 and self.draw(st.booleans())
                return ir.For(var, self.size if sized else arith.Const(extent), self.inside(var, extent, depth), annotations=notes)
            case "if":
                otherwise = self.stmt(depth - 1) if self.draw(st.booleans()) else None
                return ir.If(self.value("bool", 2), self.stmt(depth - 1), otherwise)
            case "let":
                var = arith.Var(self.draw(st.sampled_from(_NAMES)))
                value = ir.minimum(ir.maximum(self.value("int32", 1), te.const(0, "int32")), te.const(2, "int32"))
                bounds = self.draw(st.sampled_from([None, (arith.ZERO, arith.Const(2))]))
                return ir.Let(var, value, self.inside(var, 3, depth), bounds)
            case "alloc":
                buffer = self.buffer(self.draw(st.sampled_from(["", "register", "vta.inp"])))
                fill = self.fill(buffer)
                self.buffers.append(buffer)
                self.written.append(buffer)
                body = ir.Seq((fill, self.stmt(depth - 1)))
                self.buffers.remove(buffer)
                self.written.remove(buffer)
                return ir.Alloc(buffer, body)
            case "seq":
                return ir.Seq(tuple(self.stmt(depth - 1) for _ in range(self.draw(st.integers(0, 3)))))
            case "block":
                return self.block(depth)
            case "pass":
                return ir.Seq(())
        buffer = self.draw(st.sampled_from(self.written))
        return ir.Store(buffer, self.draw_indices(buffer), self.value(buffer.dtype.name, 3))

    def inside(self, var: arith.Var, reach: int, depth: int) -> ir.Stmt:
        self.scope.append((var, reach))
        body = self.stmt(depth - 1)
        self.scope.pop()
        return body

    def block(self, depth: int) -> ir.Stmt:
        item = ir.IterVar(arith.Var("v"), arith.Const(3), self.draw(st.sampled_from(ir.IterKind)))
        self.blocks += 1
        name = f"{self.draw(st.sampled_from(_NAMES))}{self.blocks}"
        binding = self.index(3)
        init = self.stmt(0) if self.draw(st.booleans()) else None
        body = self.inside(item.var, 3, depth)
        predicate = self.draw(st.sampled_from([arith.ONE, arith.compare("<", item.var, 2)]))
        return ir.Block(name, (item,), (binding,), (), (), body, init, predicate, self.draw(st.sampled_from([(), (("k", "v"),)])))

    def draw_indices(self, buffer: ir.Buffer) -> tuple[arith.Expr, ...]:
        return tuple(self.index(int(arith.evaluate(extent, {}))) for extent in buffer.shape)

    def index(self, extent: int) -> arith.Expr:
        """An index below an extent."""
        usable = [item for item in self.scope if item[1] <= extent]
        kind = self.draw(st.sampled_from(["var", "const", "mod", "select", "checked"]))
        if kind == "var" and usable:
            return self.draw(st.sampled_from(usable))[0]
        if kind == "mod" and self.scope:
            return arith.floormod(self.draw(st.sampled_from(self.scope))[0] * 3 + self.size, extent)
        if kind == "select" and self.scope:
            condition = arith.logical_or(arith.compare("==", self.scope[0][0], 1), arith.logical_not(self.size))
            return arith.select(condition, extent - 1, arith.maximum(arith.minimum(self.scope[0][0], extent - 1), 0))
        if kind == "checked" and self.buffers:
            data = self.value("int64", 1)
            return te.checked(ir.minimum(ir.maximum(data, te.const(0, "int64")), te.const(extent - 1, "int64")), 0, extent - 1)
        return arith.Const(self.draw(st.integers(0, extent - 1)))

    def value(self, dtype_name: str, depth: int) -> ir.Expr:
        draw, kind = self.draw, dtype(dtype_name).kind
        choice = draw(
            st.sampled_from(["const", "load", "binary", "unary", "select", "cast", "index"] if depth else ["const", "load"])
        )
        match choice:
            case "load" if loadable := [buffer for buffer in self.buffers if buffer.dtype.name == dtype_name]:
                buffer = draw(st.sampled_from(loadable))
                return ir.load(buffer, self.draw_indices(buffer) if depth else tuple(arith.ZERO for _ in buffer.shape))
            case "binary" if kind == "bool":
                compared = draw(st.sampled_from(self.dtypes))
                if draw(st.booleans()):
                    op = draw(st.sampled_from(ir.COMPARISONS))
                    return ir.binary(op, self.value(compared, depth - 1), self.value(compared, depth - 1))
                return ir.binary(
                    draw(st.sampled_from(["and", "or", "xor"])),
                    self.value(dtype_name, depth - 1),
                    self.value(dtype_name, depth - 1),
                )
            case "binary":
                ops = ["add", "sub", "mul", "min", "max"] + (["div", "and", "shr"] if kind != "float" else [])
                return ir.binary(draw(st.sampled_from(ops)), self.value(dtype_name, depth - 1), self.value(dtype_name, depth - 1))
            case "unary" if kind == "float":
                return ir.unary(draw(st.sampled_from(["neg", "abs", "floor", "sqrt", "round"])), self.value(dtype_name, depth - 1))
            case "unary" if kind in ("int", "bool"):
                return ir.unary("not", self.value(dtype_name, depth - 1))
            case "select":
                # The condition and both sides share a value.
                shared = self.value(dtype_name, depth - 1)
                return ir.select(
                    ir.binary("lt", shared, self.value(dtype_name, depth - 1)), shared, self.value(dtype_name, depth - 1)
                )
            case "cast":
                return ir.cast(self.value(draw(st.sampled_from(self.dtypes)), depth - 1), dtype_name)
            case "index" if kind in ("int", "uint", "bool") and self.scope:
                return ir.Index(dtype(dtype_name), draw(st.sampled_from(self.scope))[0])
        if kind == "float":
            numbers = [0.0, -0.0, 1.5, -2.0, 0.1, 448.0]
            return te.const(draw(st.sampled_from(numbers)), dtype_name)
        low, high = dtype(dtype_name).limits
        return te.const(draw(st.integers(max(low, -5), min(high, 5))), dtype_name)


def make_inputs(draw: st.DrawFn, program: ir.LoopProgram) -> list[Array]:
    """Arrays for a program's inputs."""
    return [
        array(
            draw,
            tuple(2 if isinstance(dim, arith.SizeVar) else int(arith.evaluate(dim, {})) for dim in buffer.shape),
            buffer.dtype.name,
        )
        for buffer in program.inputs
    ]
