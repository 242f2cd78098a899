"""Split the channels of a grouped 1x1 convolution into groups and channels of a group, so that it is a matrix product per group."""

from __future__ import annotations

from dataclasses import replace

from inlaid import arith
from inlaid.arith import Const, Var
from inlaid.schedules.collapse import accesses
from inlaid.schedules.dot import narrow_product
from inlaid.schedules.shape import Anchor, blocks_of, find_anchor
from inlaid.tensor import ir
from inlaid.tensor.analysis.footprint import reads, writes
from inlaid.tensor.schedule import Transform
from inlaid.tensor.transform.paths import nest
from inlaid.tensor.transform.rewrite import Rewriter

Place = tuple[ir.Buffer, int]
"""An axis of a buffer."""


def split_groups(program: ir.LoopProgram, lanes: int) -> ir.LoopProgram:
    """Split the output channels of a grouped convolution by 1x1 windows if those of a group do not fill vectors of `lanes`; the bytes
    in memory are unchanged.

        for o in 6, y, x, c in 2: sum[o, y, x] += data[o // 3 * 2 + c, y, x] * w[o, c]
    becomes
        for g in 2, o in 3, y, x, c in 2: sum[g, o, y, x] += data[g, c, y, x] * w[g, o, c]

    Any other program is returned unchanged.
    """
    anchor = find_anchor(program)
    product = None if anchor is None else narrow_product(anchor)
    if anchor is None or product is None or anchor.before or len(anchor.spatial) < 3:
        return program
    data, weights = product
    output, inner = anchor.spatial[1], anchor.reduced[0]
    sizes = output.extent, inner.extent, arith.wrap(data.buffer.shape[min(1, len(data.buffer.shape) - 1)])
    if not all(isinstance(size, Const) for size in sizes) or any(item.extent != arith.ONE for item in anchor.reduced[1:]):
        return program
    outputs, inputs, channels = (size.value for size in sizes if isinstance(size, Const))
    groups = channels // inputs if inputs else 1
    if groups < 2 or channels % inputs or outputs % groups or outputs // groups % lanes == 0:
        return program
    split = _Split(anchor, data, weights, groups, outputs, inputs)
    return split.program(program) if split.applies(program) else program


SPLIT_GROUPS = Transform("split_groups", split_groups)


class _Split:
    """Splits axes of a program. `axes` are those of output channels."""

    def __init__(self, anchor: Anchor, data: ir.Load, weights: ir.Load, groups: int, outputs: int, inputs: int) -> None:
        self._data, self._weights = data, weights
        self._groups, self._outputs, self._inputs = groups, outputs, inputs
        self._axes: set[Place] = set()
        self._inner = anchor.reduced[0].var
        self._anchor = anchor.block

    def applies(self, program: ir.LoopProgram) -> bool:
        """Find the axes of output channels. False if a block uses its channel in any way except as a separate index."""
        blocks = blocks_of(program)
        for block in blocks:
            plain = isinstance(block.body, ir.Store) and (block.init is None or isinstance(block.init, ir.Store))
            if not plain or block.predicate != arith.ONE or not all(isinstance(at, Var) for at in block.bindings):
                return False
            channel = self._channel(block)
            for buffer, indices in accesses(block):
                for axis, index in enumerate(indices):
                    if channel not in arith.free_vars(index):
                        continue
                    if buffer is self._data.buffer and block.name == self._anchor.name:
                        expected = channel // (self._outputs // self._groups) * self._inputs + self._inner
                        if axis != 1 or arith.simplify(index - expected) != arith.ZERO:
                            return False
                    elif index != channel or buffer.shape[axis] != self._outputs:
                        return False
                    else:
                        self._axes.add((buffer, axis))
            assert isinstance(block.body, ir.Store)
            loose = (node.index for node in ir.walk_exprs(block.body.value) if isinstance(node, ir.Index))
            if any(channel in arith.free_vars(index) for index in loose):
                return False
        used = [(block, *access) for block in blocks for access in accesses(block)]
        return not any(
            (buffer, axis) in self._axes and index != self._channel(block)
            for block, buffer, indices in used
            for axis, index in enumerate(indices)
        ) and all(buffer is not self._data.buffer or block.name == self._anchor.name for block, buffer, _ in used)

    def _channel(self, block: ir.Block) -> Var:
        """Return the iteration variable of a block's output channels; a new variable if it has none."""
        place = 1 if len(block.iters) > 1 else 0
        if block.iters and block.iters[place].extent == Const(self._outputs):
            return block.iters[place].var
        return Var("none")

    def program(self, program: ir.LoopProgram) -> ir.LoopProgram:
        """Rebuild the program over split axes."""
        local = [stmt.buffer for stmt in ir.walk_stmts(program.body) if isinstance(stmt, ir.Alloc)]
        buffers = {buffer: self._buffer(buffer) for buffer in (*program.params, *local)}
        body: ir.Stmt = ir.Seq(tuple(self._block(block, buffers) for block in blocks_of(program)))
        for buffer in reversed(local):
            body = ir.Alloc(buffers[buffer], body)
        inputs, outputs = (tuple(buffers[buffer] for buffer in side) for side in (program.inputs, program.outputs))
        return replace(program, inputs=inputs, outputs=outputs, body=body)

    def _buffer(self, buffer: ir.Buffer) -> ir.Buffer:
        shape: list[arith.Dim] = []
        for axis, extent in enumerate(buffer.shape):
            if (buffer, axis) in self._axes:
                shape += [self._groups, self._outputs // self._groups]
            elif buffer is self._data.buffer and axis == 1:
                shape += [self._groups, self._inputs]
            elif buffer is not self._weights.buffer or axis < 2:
                shape.append(extent)
        return buffer if tuple(shape) == buffer.shape else ir.Buffer(buffer.name, tuple(shape), buffer.dtype, buffer.scope)

    def _block(self, block: ir.Block, buffers: dict[ir.Buffer, ir.Buffer]) -> ir.Stmt:
        """Rebuild a block and its loops."""
        channel, group, rest = self._channel(block), Var("group"), Var("channel")
        iters: list[ir.IterVar] = []
        for item in block.iters:
            if item.var is channel:
                iters.append(ir.IterVar(group, Const(self._groups), item.kind))
                iters.append(ir.IterVar(rest, Const(self._outputs // self._groups), item.kind))
            elif item.extent != arith.ONE or item.kind is ir.IterKind.SPATIAL:
                iters.append(item)
        gone = {item.var: arith.ZERO for item in block.iters if item.extent == arith.ONE and item.kind is not ir.IterKind.SPATIAL}

        def moved(buffer: ir.Buffer, indices: tuple[arith.Expr, ...]) -> tuple[arith.Expr, ...]:
            found: list[arith.Expr] = []
            for axis, index in enumerate(indices):
                if (buffer, axis) in self._axes:
                    found += [group, rest]
                elif buffer is self._data.buffer and axis == 1:
                    found += [group, self._inner]
                elif buffer is not self._weights.buffer or axis < 2:
                    found.append(arith.simplify(arith.substitute(index, gone)) if gone else index)
            return tuple(found)

        def load(node: ir.Expr) -> ir.Expr | None:
            if isinstance(node, ir.Binary) and node.op == "mul" and block.name == self._anchor.name:
                return ir.Binary(node.dtype, node.op, node.b, node.a)
            return ir.load(buffers[node.buffer], moved(node.buffer, node.indices)) if isinstance(node, ir.Load) else None

        def store(stmt: ir.Stmt) -> ir.Stmt | None:
            return ir.Store(buffers[stmt.buffer], moved(stmt.buffer, stmt.indices), stmt.value) if isinstance(stmt, ir.Store) else None

        rewriter = Rewriter(expr=load, stmt=store)
        body = rewriter.stmt(block.body)
        init = None if block.init is None else rewriter.stmt(block.init)
        loops = [(Var(item.var.name), item.extent) for item in iters]
        bindings = tuple(var for var, _ in loops)
        return nest(loops, ir.Block(block.name, tuple(iters), bindings, reads(body), writes(body), body, init))
