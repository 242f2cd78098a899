"""Tensor expressions: what to compute, not how.

    a = placeholder((n, k), "float32", "a")
    k_ = reduce_axis(k, "k")
    c = compute((n, m), lambda i, j: sum_(a[i, k_] * b[k_, j], k_), "c")
    print(text.show(program([a, b], [c], "matmul")))

A `Tensor` is indexed with integers, index expressions or `checked` values, and yields a value expression. Index expressions are
made of axes and sizes with `+`, `-`, `*`, `//` and `%`; comparisons of them, with `&`, `|` and `~`, are conditions of `select`.
`compute` may read tensors anywhere in its body; a reduction stands only at the root of the body.

| names | what they make |
|---|---|
| `placeholder` | an input tensor |
| `compute` | tensors given element by element |
| `reduce_axis`, `sum_`, `prod`, `max_`, `min_` | an axis to reduce over, and reductions over it |
| `comm_reducer`, `Reducer` | a reduction of one's own |
| `scan` | the states of a recurrence, stacked |
| `extern` | tensors given by a loop program, for what `compute` cannot say |
| `const`, `cast`, `bitcast` | a literal; a value in another dtype; its bits as another dtype |
| `unary`, `math`, `minimum`, `maximum`, `fma`, `select` | functions of values, by name where they are many |
| `checked` | a value as an index that faults out of range |
| `Tensor` | what all of these give and read |
| `program` | the loop program of outputs, for `inlaid.Schedule` |

Values also have Python's operators. `x.equal(y)` is a comparison, of values and of index expressions; `x == y` is not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from inlaid import arith
from inlaid.arith import Dim
from inlaid.errors import ExpressionError, InlaidError
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
from inlaid.types import DType, dtype

__all__ = [
    "Reducer", "Tensor", "bitcast", "cast", "checked", "comm_reducer", "compute", "const", "extern", "fma", "math", "max_",
    "maximum", "min_", "minimum", "placeholder", "prod", "program", "reduce_axis", "scan", "select", "sum_", "unary",
]  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Tensor:
    """A tensor expression: one output of an operation. `buffer` stands for its elements; reading it yields an `ir.Load`, or the
    value itself where all elements are one constant."""

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
        plain = ir.load(self.buffer, indices if isinstance(indices, tuple) else (indices,))
        return Read(plain.dtype, plain.buffer, plain.indices, self)

    def __repr__(self) -> str:
        return f"<te.Tensor {self.buffer.name}{list(self.shape)} {self.dtype}>"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Read(ir.Load):
    """A load that remembers which tensor it reads."""

    tensor: Tensor


class Axis(arith.Var):
    """An axis to reduce over: [0, extent)."""

    __slots__ = ("extent",)

    def __init__(self, name: str, extent: Dim) -> None:
        super().__init__(name)
        self.extent = arith.wrap(extent)


@dataclass(frozen=True, slots=True, eq=False)
class Operation:
    """What produces tensors; `inputs` are the tensors that it reads."""

    name: str
    inputs: tuple[Tensor, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Placeholder(Operation):
    """An input."""


@dataclass(frozen=True, slots=True, eq=False)
class Compute(Operation):
    """One value expression per output over the iteration variables `axes`, in the order of the output's dimensions; `buffers` are
    those of the outputs."""

    axes: tuple[ir.IterVar, ...]
    body: tuple[Expr, ...]
    buffers: tuple[ir.Buffer, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Extern(Operation):
    """A loop program given directly: `body` reads `input_buffers` and writes `output_buffers` (both in order).

    `defines`: see `ir.LoopProgram`.
    """

    body: ir.Stmt
    input_buffers: tuple[ir.Buffer, ...]
    output_buffers: tuple[ir.Buffer, ...]
    defines: tuple[tuple[arith.SizeVar, ir.Buffer], ...]


@dataclass(frozen=True, slots=True, eq=False)
class Scan(Operation):
    """States carried through steps: `results` are tensors over the `states` (placeholders) and the step number `time`; the outputs,
    `buffers`, hold the states after every step. `inputs` are the initial states, then whatever else the steps read."""

    time: arith.Var
    length: arith.Expr
    states: tuple[Tensor, ...]
    results: tuple[Tensor, ...]
    buffers: tuple[ir.Buffer, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Reducer:
    """A commutative, associative combination of tuples of values.

    `combine(accumulator values, new values)` gives the new accumulator values, `identity(dtypes)` what it starts from.
    """

    name: str
    combine: Callable[[tuple[Expr, ...], tuple[Expr, ...]], tuple[Expr, ...]]
    identity: Callable[[tuple[DType, ...]], tuple[Expr, ...]]

    def __call__(self, values: Operand | tuple[Operand, ...], axes: Axis | Sequence[Axis]) -> Any:
        """The reduction of a value, or of several together, over reduction axes."""
        over = (axes,) if isinstance(axes, Axis) else tuple(axes)
        for axis in over:
            if not isinstance(axis, Axis):
                raise ExpressionError(f"{self.name} reduces over axes of reduce_axis, got {axis!r}")
        several = tuple(map(ir.as_expr, values if isinstance(values, tuple) else (values,)))
        shared = Reduction(self, several, tuple(ir.IterVar(axis, axis.extent, ir.IterKind.REDUCTION) for axis in over))
        items = tuple(Reduce(value.dtype, shared, index) for index, value in enumerate(several))
        return items if isinstance(values, tuple) else items[0]


@dataclass(frozen=True, slots=True, eq=False)
class Reduction:
    """A reducer applied to values over axes; shared by the `Reduce` nodes of its components."""

    reducer: Reducer
    values: tuple[Expr, ...]
    axes: tuple[ir.IterVar, ...]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Reduce(Expr):
    """One component of a reduction; only at the root of a compute body."""

    reduction: Reduction
    component: int = field(default=0)


def placeholder(shape: Sequence[Dim], of: str | DType, name: str = "x") -> Tensor:
    """An input tensor. Raises `ExpressionError` for what is no shape, and what `inlaid.types.dtype` raises."""
    return Tensor(ir.Buffer(name, _shape(shape, name), dtype(of)), Placeholder(name, ()))


def reduce_axis(extent: Dim, name: str = "k") -> Axis:
    """An axis to reduce over: [0, extent). Usable as an index. Raises `ExpressionError` for what is no extent."""
    return Axis(name, *_shape((extent,), name))


def _shape(shape: Sequence[Dim], name: str) -> tuple[Dim, ...]:
    """A shape that a user gives. Raises `ExpressionError`."""
    if isinstance(shape, Sequence) and all(isinstance(dim, arith.Expr) or (isinstance(dim, int) and dim >= 0) for dim in shape):
        return tuple(shape)
    raise ExpressionError(f"the shape of {name} must be a sequence of integers >= 0 or inlaid.SizeVar, got {shape!r}")


def compute(shape: Sequence[Dim], body: Callable[..., Expr | tuple[Expr, ...]], name: str = "compute") -> Any:
    """A tensor (or several of one shape, when the body returns a tuple) given element by element.

    `body` gets one `arith.Var` per dimension, of the name of the parameter that takes it. Raises `ExpressionError` when a reduction
    stands below the root of the body, when the outputs are not components of one reduction, or when the body fails.
    """
    shape = _shape(shape, name)
    axes = tuple(ir.IterVar(arith.Var(of), arith.wrap(extent)) for of, extent in zip(_names(body, len(shape)), shape, strict=True))
    try:
        result = body(*(axis.var for axis in axes))
        values = tuple(map(ir.as_expr, result if isinstance(result, tuple) else (result,)))
    except InlaidError:
        raise
    except Exception as error:
        raise ExpressionError(f"the body of {name} raised {type(error).__name__}: {error}") from error
    _check_reductions(name, values)
    buffers = tuple(
        ir.Buffer(name if len(values) == 1 else f"{name}_{index}", tuple(shape), value.dtype) for index, value in enumerate(values)
    )
    op = Compute(name, _tensors_read(values), axes, values, buffers)
    tensors = tuple(Tensor(buffer, op, index) for index, buffer in enumerate(buffers))
    return tensors if isinstance(result, tuple) else tensors[0]


def _names(body: Callable[..., Any], count: int) -> tuple[str, ...]:
    """The names of the first parameters of a function, or i0, i1 and so on where it has not so many."""
    code = getattr(body, "__code__", None)
    names: tuple[str, ...] = () if code is None else code.co_varnames[: min(code.co_argcount, count)]
    return names if len(names) == count else tuple(f"i{place}" for place in range(count))


def _check_reductions(name: str, values: tuple[Expr, ...]) -> None:
    roots = [value for value in values if isinstance(value, Reduce)]
    if roots:
        if len(roots) < len(values) or any(root.reduction is not roots[0].reduction for root in roots):
            raise ExpressionError(f"the outputs of {name} are not components of one reduction: give each its own compute")
        if len({root.component for root in roots}) < len(roots):
            raise ExpressionError(f"{name} returns a component of its reduction twice")
    below = roots[0].reduction.values if roots else values
    if any(isinstance(node, Reduce) for node in ir.walk_exprs(*below)):
        raise ExpressionError(f"a reduction stands below the root of {name}: compute it as a tensor of its own, then read that")


def _tensors_read(values: tuple[Expr, ...]) -> tuple[Tensor, ...]:
    return tuple(dict.fromkeys(node.tensor for node in ir.walk_exprs(*_roots(values)) if isinstance(node, Read)))


def _roots(values: tuple[Expr, ...]) -> tuple[Expr, ...]:
    """The value expressions of a compute's body: below its reduction where it has one."""
    first = values[0]
    return first.reduction.values if isinstance(first, Reduce) else values


def extern(
    outputs: Sequence[tuple[Sequence[Dim], str | DType]],
    inputs: Sequence[Tensor],
    body: Callable[..., None],
    name: str = "extern",
    defines: Sequence[arith.SizeVar] = (),
) -> tuple[Tensor, ...]:
    """Tensors computed by a loop program, for what `compute` cannot say (sorting, selection).

    `body(builder, input_buffers, output_buffers)` emits statements through the `Builder`. For each existential dimension in
    `defines` there is one more output buffer, 0-d int64, behind the others, where the body stores the actual size.
    """
    in_buffers = tuple(tensor.buffer for tensor in inputs)
    out_buffers = tuple(ir.Buffer(f"{name}_{index}", tuple(shape), dtype(of)) for index, (shape, of) in enumerate(outputs))
    sizes = tuple(ir.Buffer(f"{name}_size{index}", (), dtype("int64")) for index in range(len(defines)))
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
    """The states after each of `length` steps, stacked along a new first dimension.

    `step(number, states)` gives the next states as tensors computed from the present ones, from other tensors and from the number
    of the step; it may take several computes, and reductions:

        (h,) = scan([h0], n, lambda t, s: [compute((m,), lambda i: math("tanh", s[0][i] * 0.5 + x[t, i]))])

    What a step computes from neither states nor its number is computed once. Only computes read the number. Raises
    `ExpressionError` when the next states do not have the shapes and dtypes of the initial ones.
    """
    time = arith.Var("t")
    states = tuple(placeholder(tensor.shape, tensor.dtype, f"{name}_state{index}") for index, tensor in enumerate(init))
    results = tuple(step(time, states))
    wanted, found = ([(tensor.shape, tensor.dtype) for tensor in side] for side in (init, results))
    if wanted != found:
        raise ExpressionError(f"a step of {name} turns states {wanted} into {found}")
    buffers = tuple(
        ir.Buffer(f"{name}_{index}", (arith.unwrap(length), *tensor.shape), tensor.dtype) for index, tensor in enumerate(init)
    )
    outside = _read_by_steps(time, states, results)
    op = Scan(name, (*init, *outside), time, arith.wrap(length), states, results, buffers)
    return tuple(Tensor(buffer, op, index) for index, buffer in enumerate(buffers))


def _read_by_steps(time: arith.Var, states: tuple[Tensor, ...], results: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """The tensors, none of which changes from step to step, that steps read."""
    moves: dict[Operation, bool] = {state.op: True for state in states}
    stack = [tensor.op for tensor in reversed(results)]
    while stack:
        op = stack[-1]
        missing = [tensor.op for tensor in op.inputs if tensor.op not in moves]
        if op in moves or not missing:
            stack.pop()
            if op not in moves:
                moves[op] = any(moves[tensor.op] for tensor in op.inputs) or time in _free_in(op)
        else:
            stack.extend(reversed(missing))
    read = [tensor for op, moving in moves.items() if moving for tensor in op.inputs]
    return tuple(dict.fromkeys(tensor for tensor in (*read, *results) if not moves[tensor.op]))


def _free_in(op: Operation) -> frozenset[arith.Expr]:
    """The index variables that a compute, or the steps of a scan, read from outside."""
    if isinstance(op, Scan):
        return frozenset().union(*(_free_in(tensor.op) for tensor in op.results))
    roots = _roots(op.body) if isinstance(op, Compute) else ()
    return frozenset().union(*map(ir.free_vars, roots))


def program(inputs: Sequence[Tensor], outputs: Sequence[Tensor], name: str = "main") -> ir.LoopProgram:
    """The loop program that computes `outputs` from `inputs`, unscheduled: one block per compute, named after it, in loops named
    after its axes. Raises `ExpressionError` for a placeholder that is not among the inputs, or a name that two parameters share."""
    from inlaid.tensor.lower import lower

    for tensor in (*inputs, *outputs):
        if not isinstance(tensor, Tensor):
            raise ExpressionError(f"program {name} is made of sequences of tensors, got {tensor!r}")
    made = lower(outputs, inputs, name, named=True)
    for stmt in ir.walk_stmts(made.body):
        if isinstance(stmt, ir.Block):
            _check_reads(name, stmt)
    names = [buffer.name for buffer in made.params]
    for taken in names:
        if names.count(taken) > 1:
            raise ExpressionError(f"parameters of program {name} need names of their own, got {taken} twice")
    return made


def _check_reads(name: str, block: ir.Block) -> None:
    """Raise `ExpressionError` for an index that is linear in the axes of a block and leaves its buffer, unless a select may keep it
    from being read."""
    inside = arith.Analyzer({item.var: (0, arith.unwrap(item.extent - 1)) for item in block.iters})
    axes = {item.var for item in block.iters}
    seen: set[Expr] = set()
    stack = [value for stmt in ir.walk_stmts(block.body) for value in ir.statement_operands(stmt)[0]]
    while stack:
        node = stack.pop()
        if node in seen or isinstance(node, ir.Select):
            continue
        seen.add(node)
        stack += ir.operands(node)
        if isinstance(node, ir.Load):
            for index, dim in zip(node.indices, node.buffer.shape, strict=True):
                low, high = inside.bounds(index)
                out = (low is not None and low < 0) or (high is not None and isinstance(dim, int) and high >= dim)
                if out and axes.issuperset(inside.linear(index).terms):
                    found = f"{node.buffer} is read at {index!r}, from {low} to {high}"
                    raise ExpressionError(f"{block.name} of program {name}: {found}, but its extent there is {dim}")


def comm_reducer(
    combine: Callable[[tuple[Expr, ...], tuple[Expr, ...]], tuple[Expr, ...]],
    identity: Callable[[tuple[DType, ...]], tuple[Expr, ...]],
    name: str = "reducer",
) -> Reducer:
    """A reducer of one's own; argmax, for one, combines (value, index) pairs."""
    return Reducer(name, combine, identity)


def lowest(of: DType) -> Expr:
    """The least value of a dtype: minus infinity for floats."""
    return const(-float("inf") if of.is_float else of.limits[0], of)


def highest(of: DType) -> Expr:
    """The greatest value of a dtype: plus infinity for floats."""
    return const(float("inf") if of.is_float else of.limits[1], of)


sum_ = Reducer("sum", lambda acc, new: (acc[0] + new[0],), lambda types: (const(0, types[0]),))
prod = Reducer("prod", lambda acc, new: (acc[0] * new[0],), lambda types: (const(1, types[0]),))
max_ = Reducer("max", lambda acc, new: (maximum(acc[0], new[0]),), lambda types: (lowest(types[0]),))
min_ = Reducer("min", lambda acc, new: (minimum(acc[0], new[0]),), lambda types: (highest(types[0]),))
