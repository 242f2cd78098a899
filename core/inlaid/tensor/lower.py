"""Lowers tensor expressions to unscheduled loop programs, one block per compute."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from inlaid.tensor import ir, te
from inlaid.tensor.analysis.footprint import full_region, reads, writes
from inlaid.tensor.transform.rewrite import Rewriter
from inlaid_runtime import arith
from inlaid_runtime.errors import ExpressionError
from inlaid_runtime.names import unique
from inlaid_runtime.types import dtype


def lower(outputs: Sequence[te.Tensor], inputs: Sequence[te.Tensor], name: str, named: bool = False) -> ir.LoopProgram:
    """Lower the computation of `outputs` from `inputs`. Spatial loops are called like their axes if `named`, else i0, i1 and so on.

    A compute becomes a perfect loop nest around one block. An extern becomes a block without iteration variables around its body;
    the sizes it defines become additional outputs (see `ir.LoopProgram`). Intermediate tensors are allocated around the whole body.
    An output that is also an input, or repeated, becomes a copy. If a reduction axis may be empty, a separate, conditional nest
    first stores the identity. A scan becomes a loop over its steps around the nests of one step; the step number is an opaque
    iteration variable of their blocks.

    Raises `ExpressionError` if a required placeholder is not among the inputs.
    """
    lowering = _Lowering(tuple(outputs), tuple(inputs), set(), (), named)
    params, results = lowering.run(name)
    sizes = tuple(buffer for _, buffer in lowering.defines)
    program = ir.LoopProgram(name, params, results + sizes, lowering.body(), tuple(lowering.defines))
    return replace(program, sizes=free_sizes(program))


class _Lowering:
    """The lowering of some outputs. `names` are the block names in use in the program. `steps` are the step numbers of enclosing
    scans."""

    def __init__(
        self,
        outputs: tuple[te.Tensor, ...],
        inputs: tuple[te.Tensor, ...],
        names: set[str],
        steps: tuple[ir.IterVar, ...],
        named: bool,
    ) -> None:
        self.defines: list[tuple[arith.SizeVar, ir.Buffer]] = []
        self._outputs = outputs
        self._inputs = inputs
        self._names = names
        self._steps = steps
        self._named = named
        self._stmts: list[ir.Stmt] = []
        self._allocs: list[ir.Buffer] = []

    def run(self, name: str) -> tuple[tuple[ir.Buffer, ...], tuple[ir.Buffer, ...]]:
        """Emit all statements. Returns the buffers of the inputs and the buffers of the outputs."""
        inputs: dict[ir.Buffer, None] = {}
        params = []
        for tensor in self._inputs:
            repeated = tensor.buffer in inputs
            params.append(ir.Buffer(tensor.buffer.name, tensor.shape, tensor.dtype) if repeated else tensor.buffer)
            inputs[tensor.buffer] = None

        results: dict[ir.Buffer, None] = {}
        copies: list[tuple[te.Tensor, ir.Buffer]] = []
        for tensor in self._outputs:
            if tensor.buffer in inputs or tensor.buffer in results:
                copy = ir.Buffer(f"{tensor.buffer.name}_copy", tensor.shape, tensor.dtype)
                copies.append((tensor, copy))
                results[copy] = None
            else:
                results[tensor.buffer] = None

        external = inputs | results
        for op in self._in_order(inputs):
            match op:
                case te.Compute():
                    op_buffers = self._compute(op)
                case te.Extern():
                    op_buffers = self._extern(op)
                case te.Scan():
                    op_buffers = self._scan(op)
                case _:
                    raise ExpressionError(f"{name} reads {op.name}, which is not among its inputs: add it to them")
            self._allocs += [buffer for buffer in op_buffers if buffer not in external]
        for tensor, copy in copies:
            self._copy(tensor.buffer, copy)
        return tuple(params), tuple(results)

    def body(self) -> ir.Stmt:
        """Return the emitted statements, inside the allocations of intermediate buffers."""
        body: ir.Stmt = self._stmts[0] if len(self._stmts) == 1 else ir.Seq(tuple(self._stmts))
        for buffer in reversed(self._allocs):
            body = ir.Alloc(buffer, body)
        return body

    def _in_order(self, inputs: dict[ir.Buffer, None]) -> list[te.Operation]:
        """Return the operations that the outputs need, in topological order."""
        order: dict[te.Operation, None] = {}
        stack: list[tuple[te.Operation, bool]] = [(t.op, False) for t in reversed(self._outputs) if t.buffer not in inputs]
        while stack:
            op, is_expanded = stack.pop()
            if is_expanded:
                order[op] = None
            elif op not in order:
                stack.append((op, True))
                stack.extend((t.op, False) for t in reversed(op.inputs) if t.buffer not in inputs and t.op not in order)
        return list(order)

    def _extern(self, op: te.Extern) -> tuple[ir.Buffer, ...]:
        if op.defines and self._steps:
            raise ExpressionError(f"an extern in a scan must not define a size, got {op.name}: compute the size outside the scan")
        self.defines += op.defines
        input_regions, output_regions = (tuple(map(full_region, side)) for side in (op.input_buffers, op.output_buffers))
        self._stmts.append(ir.Block(unique(op.name, self._names), (), (), input_regions, output_regions, op.body))
        defined = {buffer for _, buffer in op.defines}
        return tuple(buffer for buffer in op.output_buffers if buffer not in defined)

    def _scan(self, op: te.Scan) -> tuple[ir.Buffer, ...]:
        states = tuple(state.buffer for state in op.states)
        for tensor, state in zip(op.inputs, states, strict=False):
            self._copy(tensor.buffer, state)
        step = ir.IterVar(op.time, op.length, ir.IterKind.OPAQUE)
        inputs = (*op.states, *op.inputs[len(states) :])
        inner = _Lowering(op.results, inputs, self._names, (*self._steps, step), self._named)
        _, results = inner.run(op.name)
        # The current states may be overwritten only after all next states are computed.
        for result, state in zip(results, states, strict=True):
            inner._copy(result, state)
        for result, stacked in zip(results, op.buffers, strict=True):
            inner._copy(result, stacked, (op.time,))
        inner._allocs += results
        self._stmts.append(ir.For(op.time, op.length, inner.body()))
        return states + op.buffers

    def _copy(self, source: ir.Buffer, target: ir.Buffer, step_indices: tuple[arith.Expr, ...] = ()) -> None:
        """Emit loops that store all of `source` in `target`, at leading indices `step_indices`."""
        axes = tuple(self._iter(f"i{n}", arith.wrap(extent)) for n, extent in enumerate(source.shape))
        indices = tuple(axis.var for axis in axes)
        steps, rename = self._step_iters()
        prefix = tuple(rename.get(index, index) for index in step_indices)
        store = ir.Store(target, (*prefix, *indices), ir.load(source, indices))
        self._stmts.append(self._nest(unique(target.name, self._names), axes, store, None, steps))

    def _step_iters(self) -> tuple[tuple[ir.IterVar, ...], dict[arith.Expr, arith.Expr]]:
        """Make new iteration variables of a block for the step numbers of enclosing scans. Also returns the map from step numbers
        to these variables."""
        iters = tuple(self._iter(step.var.name, step.extent, step.kind) for step in self._steps)
        return iters, {step.var: item.var for step, item in zip(self._steps, iters, strict=True)}

    def _iter(self, name: str, extent: arith.Expr, kind: ir.IterKind = ir.IterKind.SPATIAL) -> ir.IterVar:
        """Make an iteration variable for the loop called `name`. If loops are named, the variable has the prefix "v"."""
        return ir.IterVar(arith.Var(f"v{name}" if self._named else name), extent, kind)

    def _nest(
        self, name: str, axes: tuple[ir.IterVar, ...], body: ir.Stmt, init: ir.Stmt | None, steps: tuple[ir.IterVar, ...]
    ) -> ir.Stmt:
        """Build loops over the axes around a block. The block also iterates over the step numbers of enclosing scans."""
        loops = tuple(arith.Var(axis.var.name[1:] if self._named else axis.var.name) for axis in axes)
        bindings = (*(step.var for step in self._steps), *loops)
        stmt: ir.Stmt = ir.Block(name, steps + axes, bindings, reads(body), writes(body), body, init)
        for loop, axis in zip(reversed(loops), reversed(axes), strict=True):
            stmt = ir.For(loop, axis.extent, stmt)
        return stmt

    def _compute(self, op: te.Compute) -> tuple[ir.Buffer, ...]:
        first = op.body[0]
        reduction = first.reduction if isinstance(first, te.Reduce) else None
        axes = op.axes + (reduction.axes if reduction else ())
        names = [axis.var.name if self._named or number >= len(op.axes) else f"i{number}" for number, axis in enumerate(axes)]
        # Each block gets fresh iteration variables: two computes may share a reduction axis.
        iters = tuple(self._iter(name, axis.extent, axis.kind) for name, axis in zip(names, axes, strict=True))
        steps, rename = self._step_iters()
        rename |= {old.var: new.var for old, new in zip(axes, iters, strict=True)}
        rewriter = Rewriter(rename, expr=_forget_tensor)
        indices = tuple(axis.var for axis in iters[: len(op.axes)])
        if reduction is None:
            values = tuple(map(rewriter.expr, op.body))
            stores = _simultaneous_stores(op.buffers, indices, values)
            self._stmts.append(self._nest(unique(op.name, self._names), iters, stores, None, steps))
            return op.buffers

        buffers = _accumulators(op, reduction)
        types = tuple(value.dtype for value in reduction.values)
        new = tuple(map(rewriter.expr, reduction.values))
        old = tuple(ir.load(buffer, indices) for buffer in buffers)
        update = _simultaneous_stores(buffers, indices, reduction.reducer.combine(old, new))
        identity = reduction.reducer.identity(types)
        name = unique(op.name, self._names)
        empty = _may_be_empty(reduction.axes)
        if empty != arith.ZERO:
            fill_axes = tuple(ir.IterVar(arith.Var(axis.var.name), axis.extent) for axis in iters[: len(op.axes)])
            fill = _simultaneous_stores(buffers, tuple(axis.var for axis in fill_axes), identity)
            nest = self._nest(unique(f"{op.name}_empty", self._names), fill_axes, fill, None, self._step_iters()[0])
            self._stmts.append(nest if empty == arith.ONE else ir.If(ir.Index(dtype("bool"), empty), nest))
        if empty != arith.ONE:
            self._stmts.append(self._nest(name, iters, update, _simultaneous_stores(buffers, indices, identity), steps))
        return buffers


def _accumulators(op: te.Compute, reduction: te.Reduction) -> tuple[ir.Buffer, ...]:
    """Return one buffer per component of a reduction: a buffer of the compute, or a new one if the compute omits the component."""
    buffer_by_component = {
        value.component: buffer for value, buffer in zip(op.body, op.buffers, strict=True) if isinstance(value, te.Reduce)
    }
    shape = op.buffers[0].shape
    return tuple(
        buffer_by_component.get(component) or ir.Buffer(f"{op.name}_part{component}", shape, value.dtype)
        for component, value in enumerate(reduction.values)
    )


def _forget_tensor(node: ir.Expr) -> ir.Expr | None:
    return ir.Load(node.dtype, node.buffer, node.indices) if isinstance(node, te.Read) else None


def _may_be_empty(axes: tuple[ir.IterVar, ...]) -> arith.Expr:
    """Return the condition under which the axes have no iteration; constant 0 if they always have one."""
    empty: arith.Expr = arith.ZERO
    for axis in axes:
        if not arith.prove(arith.compare("<", 0, axis.extent)):
            empty = arith.logical_or(empty, arith.compare("<=", axis.extent, 0))
    return empty


def _simultaneous_stores(buffers: tuple[ir.Buffer, ...], indices: tuple[arith.Expr, ...], values: tuple[ir.Expr, ...]) -> ir.Stmt:
    """Emit stores that assign all `values` at once: a new value that would overwrite an element that a later value loads is held in
    a register and stored last."""
    stores: list[ir.Stmt] = []
    late: list[ir.Stmt] = []
    temporaries = []
    for position, (buffer, value) in enumerate(zip(buffers, values, strict=True)):
        later_exprs = ir.walk_exprs(*values[position + 1 :])
        if any(isinstance(node, ir.Load) and node.buffer is buffer for node in later_exprs):
            temporary = ir.Buffer(f"{buffer.name}_new", (), buffer.dtype, "register")
            temporaries.append(temporary)
            stores.append(ir.Store(temporary, (), value))
            late.append(ir.Store(buffer, indices, ir.load(temporary, ())))
        else:
            stores.append(ir.Store(buffer, indices, value))
    stores += late
    body: ir.Stmt = stores[0] if len(stores) == 1 else ir.Seq(tuple(stores))
    for temporary in reversed(temporaries):
        body = ir.Alloc(temporary, body)
    return body


def free_sizes(program: ir.LoopProgram) -> tuple[arith.SizeVar, ...]:
    """Return the dimensions that the body reads and that occur in no parameter's shape, sorted by name."""
    parameter_sizes = {size for size, _ in program.defines}.union(
        *(arith.free_vars(dim) for item in program.params for dim in item.shape)
    )
    variables: set[arith.Expr] = set()
    for stmt in ir.walk_stmts(program.body):
        values, indices = ir.statement_operands(stmt)
        variables.update(*map(ir.free_vars, values), *map(arith.free_vars, indices))
    return tuple(sorted((var for var in variables - parameter_sizes if isinstance(var, arith.SizeVar)), key=lambda var: var.name))
