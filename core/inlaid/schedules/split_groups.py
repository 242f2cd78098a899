"""Split the channels of a grouped 1x1 convolution into groups and channels of a group, so that it is a matrix product per group."""

from __future__ import annotations

from inlaid.schedules.collapse import accesses
from inlaid.schedules.dot import narrow_product
from inlaid.schedules.shape import find_anchor
from inlaid.tensor import ir
from inlaid.tensor.analysis.blocks import collect_blocks
from inlaid.tensor.analysis.footprint import reads, writes
from inlaid.tensor.schedule import Transform
from inlaid.tensor.transform.paths import nest
from inlaid.tensor.transform.rewrite import Rewriter
from inlaid_runtime import arith
from inlaid_runtime.arith import Const, Var
from inlaid_runtime.records import dataclass, replace


def split_groups(program: ir.LoopProgram, lanes: int, size: int) -> ir.LoopProgram:
    """Split the channels of a grouped 1x1 convolution if the output channels of a group do not fill vectors of `lanes`, or its
    input channels do not fill dot products of `size` elements. The bytes in memory are unchanged.

        for o in 6, y, x, c in 2: sum[o, y, x] += data[o // 3 * 2 + c, y, x] * w[o, c]
    becomes
        for g in 2, o in 3, y, x, c in 2: sum[g, o, y, x] += w[g, o, c] * data[g, c, y, x]

    Any other program is returned unchanged.
    """
    anchor = find_anchor(program)
    product = None if anchor is None else narrow_product(anchor)
    if anchor is None or product is None or anchor.before or program.defines or len(anchor.spatial) < 3:
        return program
    data, weights = product
    inputs, outputs = anchor.reduced[0].extent, anchor.spatial[1].extent
    channels = data.buffer.shape[1] if len(data.indices) > 1 else 1
    if not isinstance(inputs, Const) or not isinstance(outputs, Const) or not isinstance(channels, int):
        return program
    groups = channels // inputs.value if inputs.value else 1
    if groups < 2 or any(item.extent != arith.ONE for item in anchor.reduced[1:]):
        return program
    split = _Split(anchor.block, anchor.reduced[0].var, data.buffer, weights.buffer, groups, outputs.value // groups, inputs.value)
    if split.outputs % lanes == 0 and split.inputs % size == 0:
        return program
    axes = split.axes(program)
    return program if axes is None else split.program(program, axes)


SPLIT_GROUPS = Transform("split_groups", split_groups)

Axes = frozenset[tuple[ir.Buffer, int]]
"""Axes of buffers that are split."""


@dataclass(frozen=True)
class _Split:
    """A grouped convolution: its block, the variable `inner` of its input channels, and the buffers of its operands. `outputs` and
    `inputs` are channels per group."""

    block: ir.Block
    inner: Var
    data: ir.Buffer
    weights: ir.Buffer
    groups: int
    outputs: int
    inputs: int

    def axes(self, program: ir.LoopProgram) -> Axes | None:
        """Find the axes of buffers that output channels index. None if a block uses its output channel other than as an index by
        itself; only the convolution may also derive the group of its data from it."""
        split_axes, other_axes = set(), set()
        for block in collect_blocks(program):
            has_single_stores = isinstance(block.body, ir.Store) and (block.init is None or isinstance(block.init, ir.Store))
            if (
                not has_single_stores
                or block.predicate != arith.ONE
                or not all(isinstance(binding, Var) for binding in block.bindings)
            ):
                return None
            assert isinstance(block.body, ir.Store)
            channel = self._channel(block)
            if any(
                isinstance(node, ir.Index) and channel in arith.free_vars(node.index) for node in ir.walk_exprs(block.body.value)
            ):
                return None
            for buffer, indices in accesses(block):
                for axis, index in enumerate(indices):
                    if self._reads_group(block, buffer, axis):
                        if (
                            channel is None
                            or arith.simplify(index - channel // self.outputs * self.inputs - self.inner) != arith.ZERO
                        ):
                            return None
                    elif index == channel and buffer.shape[axis] == self.groups * self.outputs:
                        split_axes.add((buffer, axis))
                    elif channel in arith.free_vars(index):
                        return None
                    else:
                        other_axes.add((buffer, axis))
        return None if split_axes & other_axes else frozenset(split_axes)

    def _reads_group(self, block: ir.Block, buffer: ir.Buffer, axis: int) -> bool:
        """Test whether an axis is that of the input channels in the convolution's access to its data."""
        return block.name == self.block.name and buffer is self.data and axis == 1

    def _channel(self, block: ir.Block) -> Var | None:
        """Return the iteration variable of a block's output channels; None if it has none."""
        item = block.iters[min(1, len(block.iters) - 1)] if block.iters else None
        return item.var if item is not None and item.extent == Const(self.groups * self.outputs) else None

    def program(self, program: ir.LoopProgram, axes: Axes) -> ir.LoopProgram:
        """Rebuild the program over split axes, without the window axes of the weights, whose extents are 1."""
        local_buffers = [stmt.buffer for stmt in ir.walk_stmts(program.body) if isinstance(stmt, ir.Alloc)]
        buffers = {buffer: self._buffer(buffer, axes) for buffer in (*program.params, *local_buffers)}
        body: ir.Stmt = ir.Seq(tuple(self._nest(block, buffers, axes) for block in collect_blocks(program)))
        for buffer in reversed(local_buffers):
            body = ir.Alloc(buffers[buffer], body)
        inputs, outputs = (tuple(buffers[buffer] for buffer in side) for side in (program.inputs, program.outputs))
        return replace(program, inputs=inputs, outputs=outputs, body=body)

    def _buffer(self, buffer: ir.Buffer, axes: Axes) -> ir.Buffer:
        shape: list[arith.Dim] = []
        for axis, extent in enumerate(buffer.shape):
            if (buffer, axis) in axes or (buffer is self.data and axis == 1):
                shape += [self.groups, self.inputs if buffer is self.data else self.outputs]
            elif buffer is not self.weights or axis < 2:
                shape.append(extent)
        return ir.Buffer(buffer.name, tuple(shape), buffer.dtype, buffer.scope)

    def _nest(self, block: ir.Block, buffers: dict[ir.Buffer, ir.Buffer], axes: Axes) -> ir.Stmt:
        """Rebuild a block and its loops."""
        channel, group, inner_channel = self._channel(block), Var("group"), Var("channel")
        iters: list[ir.IterVar] = []
        zeros: dict[arith.Expr, arith.Expr] = {}
        for item in block.iters:
            if item.var is channel:
                iters += [
                    ir.IterVar(group, Const(self.groups), item.kind),
                    ir.IterVar(inner_channel, Const(self.outputs), item.kind),
                ]
            elif item.kind is ir.IterKind.REDUCTION and item.var is not self.inner:
                zeros[item.var] = arith.ZERO
            else:
                iters.append(item)

        def indices_after(buffer: ir.Buffer, indices: tuple[arith.Expr, ...]) -> tuple[arith.Expr, ...]:
            split_indices: list[arith.Expr] = []
            for axis, index in enumerate(indices):
                if self._reads_group(block, buffer, axis):
                    split_indices += [group, self.inner]
                elif (buffer, axis) in axes:
                    split_indices += [group, inner_channel]
                elif buffer is not self.weights or axis < 2:
                    split_indices.append(arith.simplify(arith.substitute(index, zeros)) if zeros else index)
            return tuple(split_indices)

        def change(node: ir.Expr) -> ir.Expr | None:
            if isinstance(node, ir.Binary) and node.op == "mul" and block.name == self.block.name:
                return ir.Binary(node.dtype, node.op, node.b, node.a)
            return ir.load(buffers[node.buffer], indices_after(node.buffer, node.indices)) if isinstance(node, ir.Load) else None

        def store(stmt: ir.Stmt) -> ir.Stmt | None:
            return (
                ir.Store(buffers[stmt.buffer], indices_after(stmt.buffer, stmt.indices), stmt.value)
                if isinstance(stmt, ir.Store)
                else None
            )

        rewriter = Rewriter(expr=change, stmt=store)
        body, init = rewriter.stmt(block.body), None if block.init is None else rewriter.stmt(block.init)
        loops = [(Var(item.var.name), item.extent) for item in iters]
        bindings = tuple(var for var, _ in loops)
        return nest(loops, ir.Block(block.name, tuple(iters), bindings, reads(body), writes(body), body, init))
