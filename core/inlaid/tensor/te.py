"""Tensor expressions: declare what to compute, independent of how.

    a = placeholder((n, k), "float32", "a")
    k_ = reduce_axis(k, "k")
    c = compute((n, m), lambda i, j: sum_(a[i, k_] * b[k_, j], k_), "c")
    print(text.show(program([a, b], [c], "matmul")))

Indexing a `Tensor` with integers, index expressions or `checked` values yields a value expression. Index expressions combine axes
and sizes with `+`, `-`, `*`, `//` and `%`; comparisons of them, combined with `&`, `|` and `~`, are conditions for `select`.
`compute` may read tensors anywhere in its body; a reduction must be at the root of the body.

| names | what they create |
|---|---|
| `placeholder` | an input tensor |
| `compute` | tensors defined element by element |
| `reduce_axis`, `sum_`, `prod`, `max_`, `min_` | a reduction axis, and reductions over it |
| `comm_reducer`, `Reducer` | a user-defined reduction |
| `scan` | the stacked states of a recurrence |
| `extern` | tensors computed by a loop program, if `compute` cannot express them |
| `const`, `cast`, `bitcast` | a literal; a value converted to another dtype; its bits reinterpreted as another dtype |
| `unary`, `math`, `minimum`, `maximum`, `fma`, `select` | functions of values; `unary` and `math` take the function's name |
| `checked` | a value as an index, with a run-time range check |
| `Tensor` | the type of all these tensors |
| `program` | the loop program for outputs, to pass to `inlaid.Schedule` |

Values also support Python's operators. Write `x.equal(y)` to compare values or index expressions; `x == y` compares objects.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from inlaid.tensor import ir
from inlaid.tensor.build import Builder
from inlaid.tensor.ir import (
    Expr,
    Operand,
    bitcast,
    cast,
    checked,
    const,
    fma,
    math,
    maximum,
    minimum,
    select,
    unary,
)
from inlaid_runtime import arith
from inlaid_runtime.arith import Dim
from inlaid_runtime.errors import ExpressionError, InlaidError
from inlaid_runtime.records import dataclass, field
from inlaid_runtime.types import DType
from inlaid_runtime.types import dtype as as_dtype

__all__ = [
    "Reducer", "Tensor", "bitcast", "cast", "checked", "comm_reducer", "compute", "const", "extern", "fma", "math", "max_",
    "maximum", "min_", "minimum", "placeholder", "prod", "program", "reduce_axis", "scan", "select", "sum_", "unary",
]  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Tensor:
    """A tensor expression: output number `index` of `op`. `buffer` holds its elements. Reading an element yields an `ir.Load`, or
    the element's value if all elements are one constant."""

    buffer: ir.Buffer
    op: Operation
    index: int = 0

    @property
    def shape(self) -> tuple[Dim, ...]:
        return self.buffer.shape

    @property
    def dtype(self) -> DType:
        return self.buffer.dtype

    @property
    def rank(self) -> int:
        return len(self.buffer.shape)

    def __getitem__(self, indices: Any) -> Expr:
        if isinstance(self.op, Compute) and isinstance(value := self.op.body[self.index], ir.Const):
            return value
        load = ir.load(self.buffer, indices if isinstance(indices, tuple) else (indices,))
        return Read(load.dtype, load.buffer, load.indices, self)

    def __repr__(self) -> str:
        return f"<te.Tensor {self.buffer.name}{list(self.shape)} {self.dtype}>"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Read(ir.Load):
    """A load that records the tensor that it reads."""

    tensor: Tensor


class Axis(arith.Var):
    """A reduction axis that ranges over [0, extent)."""

    __slots__ = ("extent",)

    def __init__(self, name: str, extent: Dim) -> None:
        super().__init__(name)
        self.extent = arith.wrap(extent)


@dataclass(frozen=True, slots=True, eq=False)
class Operation:
    """An operation that produces tensors. `inputs` are the tensors that it reads."""

    name: str
    inputs: tuple[Tensor, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Placeholder(Operation):
    """An input tensor."""


@dataclass(frozen=True, slots=True, eq=False)
class Compute(Operation):
    """An elementwise or reduced result. It has one value expression per output, over the iteration variables `axes`, which are in
    the order of the dimensions. `buffers` hold the outputs."""

    axes: tuple[ir.IterVar, ...]
    body: tuple[Expr, ...]
    buffers: tuple[ir.Buffer, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Extern(Operation):
    """A loop program as an operation. `body` reads `input_buffers` and writes `output_buffers` (both in order).

    `defines` is as in `ir.LoopProgram`.
    """

    body: ir.Stmt
    input_buffers: tuple[ir.Buffer, ...]
    output_buffers: tuple[ir.Buffer, ...]
    defines: tuple[tuple[arith.SizeVar, ir.Buffer], ...]


@dataclass(frozen=True, slots=True, eq=False)
class Scan(Operation):
    """A recurrence. `results` are the next states, as tensors over the placeholders `states` and the step number `time`. The
    outputs `buffers` hold the states after every step. `inputs` are the initial states, then other tensors that the steps read."""

    time: arith.Var
    length: arith.Expr
    states: tuple[Tensor, ...]
    results: tuple[Tensor, ...]
    buffers: tuple[ir.Buffer, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Reducer:
    """A commutative, associative reduction of tuples of values.

    `combine(accumulators, new values)` returns the new accumulators. `identity(dtypes)` returns the initial values of accumulators.
    """

    name: str
    combine: Callable[[tuple[Expr, ...], tuple[Expr, ...]], tuple[Expr, ...]]
    identity: Callable[[tuple[DType, ...]], tuple[Expr, ...]]

    def __call__(self, values: Operand | tuple[Operand, ...], axes: Axis | Sequence[Axis]) -> Any:
        """Reduce a value, or several values together as a tuple, over reduction axes."""
        reduce_axes = (axes,) if isinstance(axes, Axis) else tuple(axes)
        for axis in reduce_axes:
            if not isinstance(axis, Axis):
                raise ExpressionError(f"{self.name} reduces over axes made by reduce_axis, got {axis!r}")
        value_exprs = tuple(map(ir.as_expr, values if isinstance(values, tuple) else (values,)))
        reduction = Reduction(
            self, value_exprs, tuple(ir.IterVar(axis, axis.extent, ir.IterKind.REDUCTION) for axis in reduce_axes)
        )
        items = tuple(Reduce(value.dtype, reduction, index) for index, value in enumerate(value_exprs))
        return items if isinstance(values, tuple) else items[0]


@dataclass(frozen=True, slots=True, eq=False)
class Reduction:
    """A reducer applied to values over axes. The `Reduce` nodes of its components share it."""

    reducer: Reducer
    values: tuple[Expr, ...]
    axes: tuple[ir.IterVar, ...]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Reduce(Expr):
    """One component of a reduction. It may occur only at the root of a compute body."""

    reduction: Reduction
    component: int = field(default=0)


def placeholder(shape: Sequence[Dim], dtype: str | DType, name: str = "x") -> Tensor:
    """Create an input tensor. Raises `ExpressionError` for an invalid shape, and `ParseError` for an unknown dtype."""
    return Tensor(ir.Buffer(name, _shape(shape, name), as_dtype(dtype)), Placeholder(name, ()))


def reduce_axis(extent: Dim, name: str = "k") -> Axis:
    """Create a reduction axis over [0, extent), usable as an index. Raises `ExpressionError` for an invalid extent."""
    return Axis(name, *_shape((extent,), name))


def _shape(shape: Sequence[Dim], name: str) -> tuple[Dim, ...]:
    """Validate a shape given by a user. Raises `ExpressionError` if it is invalid."""
    if isinstance(shape, Sequence) and all(isinstance(dim, arith.Expr) or (isinstance(dim, int) and dim >= 0) for dim in shape):
        return tuple(shape)
    raise ExpressionError(f"the shape of {name} must be a sequence of integers >= 0 or inlaid.SizeVar, got {shape!r}")


def compute(shape: Sequence[Dim], body: Callable[..., Expr | tuple[Expr, ...]], name: str = "compute") -> Any:
    """Define a tensor, or several of one shape if the body returns a tuple, element by element.

    `body` receives one `arith.Var` per dimension, named after the parameter. Raises `ExpressionError` if a reduction is below the
    root of the body, if the outputs are not components of one reduction, or if the body raises.
    """
    shape = _shape(shape, name)
    axes = tuple(
        ir.IterVar(arith.Var(axis_name), arith.wrap(extent))
        for axis_name, extent in zip(_names(body, len(shape)), shape, strict=True)
    )
    try:
        result = body(*(axis.var for axis in axes))
        values = tuple(map(ir.as_expr, result if isinstance(result, tuple) else (result,)))
    except InlaidError:
        raise
    except Exception as error:
        raise ExpressionError(f"the body of {name} must return a value, but raised {type(error).__name__}: {error}") from error
    _check_reductions(name, values)
    buffers = tuple(
        ir.Buffer(name if len(values) == 1 else f"{name}_{index}", tuple(shape), value.dtype) for index, value in enumerate(values)
    )
    op = Compute(name, _tensors_read(values), axes, values, buffers)
    tensors = tuple(Tensor(buffer, op, index) for index, buffer in enumerate(buffers))
    return tensors if isinstance(result, tuple) else tensors[0]


def _names(body: Callable[..., Any], count: int) -> tuple[str, ...]:
    """Return the names of a function's first `count` parameters, or i0, i1, ... if it has fewer."""
    code = getattr(body, "__code__", None)
    names: tuple[str, ...] = () if code is None else code.co_varnames[: min(code.co_argcount, count)]
    return names if len(names) == count else tuple(f"i{number}" for number in range(count))


def _check_reductions(name: str, values: tuple[Expr, ...]) -> None:
    roots = [value for value in values if isinstance(value, Reduce)]
    if roots:
        if len(roots) < len(values) or any(root.reduction is not roots[0].reduction for root in roots):
            raise ExpressionError(f"the outputs of {name} must be components of one reduction: use a separate compute for each")
        if len({root.component for root in roots}) < len(roots):
            raise ExpressionError(f"{name} must return each component of its reduction once: drop the repeated one")
    operands = roots[0].reduction.values if roots else values
    if any(isinstance(node, Reduce) for node in ir.walk_exprs(*operands)):
        raise ExpressionError(f"a reduction must be at the root of {name}, found one below: make it a separate tensor")


def _tensors_read(values: tuple[Expr, ...]) -> tuple[Tensor, ...]:
    return tuple(dict.fromkeys(node.tensor for node in ir.walk_exprs(*_roots(values)) if isinstance(node, Read)))


def _roots(values: tuple[Expr, ...]) -> tuple[Expr, ...]:
    """Return the value expressions of a compute body: the operands of its reduction if it has one."""
    first = values[0]
    return first.reduction.values if isinstance(first, Reduce) else values


def extern(
    outputs: Sequence[tuple[Sequence[Dim], str | DType]],
    inputs: Sequence[Tensor],
    body: Callable[..., None],
    name: str = "extern",
    defines: Sequence[arith.SizeVar] = (),
) -> tuple[Tensor, ...]:
    """Define tensors by a loop program, for operations that `compute` cannot express (sorting, selection).

    `body(builder, input_buffers, output_buffers)` emits statements through the `Builder`. Each existential dimension in `defines`
    adds one 0-d int64 output buffer after the other outputs. The body stores the actual size in it.
    """
    in_buffers = tuple(tensor.buffer for tensor in inputs)
    out_buffers = tuple(ir.Buffer(f"{name}_{index}", tuple(shape), as_dtype(dtype)) for index, (shape, dtype) in enumerate(outputs))
    sizes = tuple(ir.Buffer(f"{name}_size{index}", (), as_dtype("int64")) for index in range(len(defines)))
    builder = Builder()
    body(builder, in_buffers, out_buffers + sizes)
    op = Extern(name, tuple(inputs), builder.finish(), in_buffers, out_buffers + sizes, tuple(zip(defines, sizes, strict=True)))
    return tuple(Tensor(buffer, op, index) for index, buffer in enumerate(out_buffers))


def scan(
    init: Sequence[Tensor],
    length: Dim,
    step: Callable[[arith.Var, tuple[Tensor, ...]], Sequence[Tensor]],
    name: str = "scan",
) -> tuple[Tensor, ...]:
    """Define the states of a recurrence after each of `length` steps, stacked along a new first dimension.

    `step(number, states)` gives the next states as tensors over the current states, other tensors, and the step number. It may use
    several computes and reductions. For example:

        (h,) = scan([h0], n, lambda t, s: [compute((m,), lambda i: math("tanh", s[0][i] * 0.5 + x[t, i]))])

    Parts of a step that depend neither on the states nor on the step number are computed once. Only computes may read the number.
    Raises `ExpressionError` if the next states differ from the initial states in shape or dtype.
    """
    time = arith.Var("t")
    states = tuple(placeholder(tensor.shape, tensor.dtype, f"{name}_state{index}") for index, tensor in enumerate(init))
    results = tuple(step(time, states))
    expected, actual = ([(tensor.shape, tensor.dtype) for tensor in side] for side in (init, results))
    if expected != actual:
        raise ExpressionError(f"a step of {name} must keep the shapes and dtypes of its states {expected}, got {actual}")
    buffers = tuple(
        ir.Buffer(f"{name}_{index}", (arith.unwrap(length), *tensor.shape), tensor.dtype) for index, tensor in enumerate(init)
    )
    outer_tensors = _read_by_steps(time, states, results)
    op = Scan(name, (*init, *outer_tensors), time, arith.wrap(length), states, results, buffers)
    return tuple(Tensor(buffer, op, index) for index, buffer in enumerate(buffers))


def _read_by_steps(time: arith.Var, states: tuple[Tensor, ...], results: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Return the tensors that the steps read and that depend neither on the states nor on the step number."""
    varies: dict[Operation, bool] = {state.op: True for state in states}
    stack = [tensor.op for tensor in reversed(results)]
    while stack:
        op = stack[-1]
        missing = [tensor.op for tensor in op.inputs if tensor.op not in varies]
        if op in varies or not missing:
            stack.pop()
            if op not in varies:
                varies[op] = any(varies[tensor.op] for tensor in op.inputs) or time in _free_in(op)
        else:
            stack.extend(reversed(missing))
    input_tensors = [tensor for op, op_varies in varies.items() if op_varies for tensor in op.inputs]
    return tuple(dict.fromkeys(tensor for tensor in (*input_tensors, *results) if not varies[tensor.op]))


def _free_in(op: Operation) -> frozenset[arith.Expr]:
    """Return the free index variables of a compute, or of the steps of a scan."""
    if isinstance(op, Scan):
        return frozenset().union(*(_free_in(tensor.op) for tensor in op.results))
    roots = _roots(op.body) if isinstance(op, Compute) else ()
    return frozenset().union(*map(ir.free_vars, roots))


def program(inputs: Sequence[Tensor], outputs: Sequence[Tensor], name: str = "main") -> ir.LoopProgram:
    """Build the unscheduled loop program that computes `outputs` from `inputs`: one block per compute, named after it, in loops
    named after its axes. Raises `ExpressionError` for a placeholder missing from `inputs`, or for two parameters with one name."""
    from inlaid.tensor.lower import lower

    for tensor in (*inputs, *outputs):
        if not isinstance(tensor, Tensor):
            raise ExpressionError(f"program {name} takes sequences of tensors, got {tensor!r}")
    loop_program = lower(outputs, inputs, name, named=True)
    for stmt in ir.walk_stmts(loop_program.body):
        if isinstance(stmt, ir.Block):
            _check_reads(name, stmt)
    names = [buffer.name for buffer in loop_program.params]
    for param_name in names:
        if names.count(param_name) > 1:
            raise ExpressionError(f"parameters of program {name} need distinct names, got {param_name} twice")
    return loop_program


def _check_reads(name: str, block: ir.Block) -> None:
    """Raise `ExpressionError` if an index that is linear in the axes of a block is out of bounds. A read that a select may guard is
    not checked."""
    analyzer = arith.Analyzer({item.var: (0, arith.unwrap(item.extent - 1)) for item in block.iters})
    axes = {item.var for item in block.iters}
    visited: set[Expr] = set()
    stack = [value for stmt in ir.walk_stmts(block.body) for value in ir.statement_operands(stmt)[0]]
    while stack:
        node = stack.pop()
        if node in visited or isinstance(node, ir.Select):
            continue
        visited.add(node)
        stack += ir.operands(node)
        if isinstance(node, ir.Load):
            for index, dim in zip(node.indices, node.buffer.shape, strict=True):
                low, high = analyzer.bounds(index)
                is_outside = (low is not None and low < 0) or (high is not None and isinstance(dim, int) and high >= dim)
                if is_outside and axes.issuperset(analyzer.linear(index).terms):
                    detail = f"{node.buffer} is read at {index!r}, from {low} to {high}"
                    raise ExpressionError(f"{block.name} of program {name}: an index must be in [0, {dim}), but {detail}")


def comm_reducer(
    combine: Callable[[tuple[Expr, ...], tuple[Expr, ...]], tuple[Expr, ...]],
    identity: Callable[[tuple[DType, ...]], tuple[Expr, ...]],
    name: str = "reducer",
) -> Reducer:
    """Create a user-defined reducer. An example is argmax, which combines (value, index) pairs."""
    return Reducer(name, combine, identity)


def lowest(dtype: DType) -> Expr:
    """Return the smallest value of a dtype: minus infinity for floats."""
    return const(-float("inf") if dtype.is_float else dtype.limits[0], dtype)


def highest(dtype: DType) -> Expr:
    """Return the largest value of a dtype: plus infinity for floats."""
    return const(float("inf") if dtype.is_float else dtype.limits[1], dtype)


sum_ = Reducer("sum", lambda acc, new: (acc[0] + new[0],), lambda types: (const(0, types[0]),))
prod = Reducer("prod", lambda acc, new: (acc[0] * new[0],), lambda types: (const(1, types[0]),))
max_ = Reducer("max", lambda acc, new: (maximum(acc[0], new[0]),), lambda types: (lowest(types[0]),))
min_ = Reducer("min", lambda acc, new: (minimum(acc[0], new[0]),), lambda types: (highest(types[0]),))
