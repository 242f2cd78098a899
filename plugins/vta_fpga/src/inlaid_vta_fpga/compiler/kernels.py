"""Layers as tensor expressions over blocked DRAM buffers: one loop program for each layer, one block for each stage.

DRAM holds activations as int8 [n, channels / block, rows, columns, block], matrices as [rows, channels / block, block], weights and
biases as `compiler.legalize` packs them. Each stage of a kernel writes a separate buffer. `accumulate_in_place` later merges the
buffers into one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from inlaid.tensor import ir, te
from inlaid.tensor.analysis.footprint import reads
from inlaid.tensor.lower import lower
from inlaid.tensor.transform.rewrite import Rewriter
from inlaid_runtime import arith
from inlaid_vta_fpga.compiler.legalize import AluStage, BiasStage, Layer, ProductStage
from inlaid_vta_fpga.isa.instructions import AluOp

PLANES = 4
"""Number of byte planes of an int32 result. Each STORE writes one byte of every accumulator."""


@dataclass(frozen=True, eq=False)
class Source:
    """Operands of a GEMM stage. `data`, `weights`: names of buffers. `staged`: a block of the kernel computes the data, by padding
    or selecting rows. `parts`: number of weight blocks that encode a bias."""

    block: str
    data: str
    weights: str
    staged: bool = False
    parts: int = 1


@dataclass(frozen=True, eq=False)
class Kernel:
    """The unscheduled loop program of a layer. `chain`: blocks of the stages that compute accumulators, in order. `gemms`: operands
    of the GEMM stages. `stores`: pairs of a block that stores a byte plane and the stage that it reads. `main`: block of the
    largest product."""

    layer: Layer
    program: ir.LoopProgram
    chain: tuple[str, ...]
    gemms: tuple[Source, ...]
    stores: tuple[tuple[str, str], ...]
    main: str


def kernel(layer: Layer, shapes: Sequence[tuple[int, ...]], block: int, name: str) -> Kernel:
    """Build the kernel of a layer. `shapes`: DRAM shapes of the data of each product. The program's parameters are the constant
    vector, then data, weights and biases in stage order, then the stored planes as results."""
    return _Writer(layer, tuple(shapes), block).write(name)


class _Writer:
    def __init__(self, layer: Layer, shapes: tuple[tuple[int, ...], ...], block: int) -> None:
        self.layer, self.block = layer, block
        self.shapes = list(shapes)
        self.ones = te.placeholder((block,), "int8", "ones")
        self.inputs = [self.ones]
        self.chain: list[te.Tensor] = []
        self.gemms: list[Source] = []

    def write(self, name: str) -> Kernel:
        for number, stage in enumerate(self.layer.stages):
            match stage:
                case BiasStage():
                    self._bias(number, stage)
                case ProductStage():
                    self._product(number, stage)
                case AluStage():
                    self._alu(f"{stage.op.name.lower()}{number}", stage)
        stores = []
        for plane in range(PLANES if self.layer.wide else 1):
            if plane:
                self._alu(f"byte{plane}", AluStage(AluOp.SHR, 8))
            stores.append((self._store(plane), self.chain[-1].buffer.name))
        products = {gemm.block for gemm in self.gemms}
        pairs = zip(self.chain, self.chain[1:], strict=False)
        before = {tensor.buffer.name: previous for previous, tensor in pairs if tensor.buffer.name in products}
        # No expression reads the initial value of a reduction, so these stages are kept alive as results until
        # `_initialize_reductions`.
        program = lower([*before.values(), *(tensor for tensor, _ in stores)], self.inputs, name)
        program = _initialize_reductions(program, {block: tensor.buffer for block, tensor in before.items()})
        sizes = {f"product{n}": stage.weights.size for n, stage in enumerate(self.layer.stages) if isinstance(stage, ProductStage)}
        main = max(sizes, key=lambda key: sizes[key])
        chain = tuple(tensor.buffer.name for tensor in self.chain)
        return Kernel(
            self.layer, program, chain, tuple(self.gemms), tuple((t.buffer.name, producer) for t, producer in stores), main
        )

    def _input(self, shape: tuple[int, ...], name: str) -> te.Tensor:
        self.inputs.append(te.placeholder(shape, "int8", name))
        return self.inputs[-1]

    def _bias(self, number: int, stage: BiasStage) -> None:
        weights = self._input(stage.blocks.shape, f"bias{number}")
        axes = part, lane = te.reduce_axis(weights.shape[1], "part"), te.reduce_axis(self.block, "lane")
        self._gemm(
            Source(f"add_bias{number}", "ones", weights.buffer.name, parts=stage.blocks.shape[1]),
            lambda n, c, i, j, o: te.sum_(_product(self.ones[lane], weights[c, part, o, lane]), axes),
        )

    def _product(self, number: int, stage: ProductStage) -> None:
        shape = self.shapes.pop(0)
        data, weights = self._input(shape, f"data{number}"), self._input(stage.weights.shape, f"weights{number}")
        _, inputs, rows, columns, *_ = stage.weights.shape
        row_stride, column_stride = stage.strides
        window, staged = self._window(number, stage, data, shape)
        axes = ci, ky, kx, k = tuple(
            te.reduce_axis(extent, axis) for extent, axis in ((inputs, "ci"), (rows, "ky"), (columns, "kx"), (self.block, "k"))
        )
        step = 1 if rows == 1 else row_stride

        def element(n: arith.Var, c: arith.Var, i: arith.Var, j: arith.Var, o: arith.Var) -> ir.Expr:
            if stage.elementwise:
                return te.sum_(_product(window(n, c, i, j, k), weights[0, 0, 0, 0, o, k]), (k,))  # type: ignore[no-any-return]
            read = window(n, ci, i * step + ky, j * column_stride + kx, k)
            return te.sum_(_product(read, weights[c, ci, ky, kx, o, k]), axes)  # type: ignore[no-any-return]

        self._gemm(Source(f"product{number}", staged or data.buffer.name, weights.buffer.name, bool(staged)), element)

    def _window(
        self, number: int, stage: ProductStage, data: te.Tensor, shape: tuple[int, ...]
    ) -> tuple[Callable[..., ir.Expr], str]:
        """Return a function that maps (n, input block, row, column, lane) to an element of the data of a product. Also returns the
        name of the stage that pads the data or selects rows; "" if the data are read directly."""
        if self.layer.matrix:
            return (lambda n, c, i, j, k: data[j, c, k]), ""
        count, inputs, height, width, block = shape
        rows, columns = stage.weights.shape[2:4]
        (row_stride, column_stride), (top, left) = stage.strides, stage.before
        _, _, out_rows, out_columns = self.layer.shape
        step = 1 if rows == 1 else row_stride
        window_rows, window_columns = (out_rows - 1) * step + rows, (out_columns - 1) * column_stride + columns
        bottom_padding, right_padding = (out_rows - 1) * row_stride + rows - top - height, window_columns - left - width
        if step == row_stride and max(top, left, bottom_padding, right_padding) <= 0:
            return (lambda n, c, i, j, k: data[n, c, i, j, k]), ""
        row_step = row_stride // step

        def element(n: arith.Var, c: arith.Var, i: arith.Var, j: arith.Var, k: arith.Var) -> ir.Expr:
            row, column = i * row_step - top, j - left
            guards = [
                (top > 0, row >= 0),
                (bottom_padding > 0, row < height),
                (left > 0, column >= 0),
                (right_padding > 0, column < width),
            ]
            conditions = [condition for is_padded, condition in guards if is_padded]
            read = data[n, c, row, column, k]
            if not conditions:
                return read
            inside = conditions[0]
            for condition in conditions[1:]:
                inside = arith.logical_and(inside, condition)
            return te.select(inside, read, te.const(0, "int8"))

        padded: te.Tensor = te.compute((count, inputs, window_rows, window_columns, block), element, f"window{number}")
        return (lambda n, c, i, j, k: padded[n, c, i, j, k]), padded.buffer.name

    def _gemm(self, source: Source, element: Callable[..., ir.Expr]) -> None:
        self.chain.append(te.compute((*self.layer.shape, self.block), element, source.block))
        self.gemms.append(source)

    def _alu(self, name: str, stage: AluStage) -> None:
        before, imm = self.chain[-1], te.const(abs(stage.imm) if stage.op is AluOp.SHR else stage.imm, "int32")

        def element(*at: arith.Var) -> ir.Expr:
            value = before[at]
            match stage.op:
                case AluOp.MIN:
                    return te.minimum(value, imm)
                case AluOp.MAX:
                    return te.maximum(value, imm)
                case AluOp.ADD:
                    return value + imm
            return value << imm if stage.imm < 0 else value >> imm

        self.chain.append(te.compute((*self.layer.shape, self.block), element, name))

    def _store(self, plane: int) -> te.Tensor:
        last = self.chain[-1]
        count, channels, rows, columns = self.layer.shape
        if self.layer.matrix:
            shape: tuple[int, ...] = (columns, channels, self.block)
            return te.compute(shape, lambda j, c, o: te.cast(last[0, c, 0, j, o], "int8"), f"result{plane}")  # type: ignore[no-any-return]
        shape = (count, channels, rows, columns, self.block)
        return te.compute(shape, lambda *at: te.cast(last[at], "int8"), f"result{plane}")  # type: ignore[no-any-return]


def _product(a: ir.Expr, b: ir.Expr) -> ir.Expr:
    return te.cast(a, "int32") * te.cast(b, "int32")


def _initialize_reductions(program: ir.LoopProgram, before: dict[str, ir.Buffer]) -> ir.LoopProgram:
    """Initialize the reduction of each block in `before` from a buffer. The buffer becomes an allocation instead of a result."""

    def change(stmt: ir.Stmt) -> ir.Stmt | None:
        if not isinstance(stmt, ir.Block) or stmt.name not in before or not isinstance(stmt.init, ir.Store):
            return None
        start = replace(stmt.init, value=ir.load(before[stmt.name], stmt.init.indices))
        block = replace(stmt, init=start)
        return replace(block, reads=(*stmt.reads, *(region for region in reads(start) if region.buffer is before[stmt.name])))

    body = Rewriter(stmt=change).stmt(program.body)
    for buffer in before.values():
        body = ir.Alloc(buffer, body)
    outputs = tuple(buffer for buffer in program.outputs if buffer not in before.values())
    return replace(program, outputs=outputs, body=body)
