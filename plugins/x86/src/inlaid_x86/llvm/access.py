"""Bounds checks of every access of a kernel, for `x86:check=true`: return an error code instead of accessing out of bounds."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from inlaid.tensor import ir
from inlaid.tensor.region import KernelCall, RegionBuffer, RegionProgram, size_vars
from inlaid_runtime import arith
from inlaid_runtime.arith import substitute
from inlaid_x86.llvm.function import FunctionPrinter
from inlaid_x86.llvm.indices import INDEX
from inlaid_x86.llvm.values import Value, splat

ACCESS_ERROR = 2
"""Error code of an out-of-bounds access to the first of `accessed_buffers`; buffer i has code ACCESS_ERROR + i."""


def accessed_buffers(kernel: ir.LoopProgram) -> tuple[ir.Buffer, ...]:
    """Return the buffers of a kernel in the order of their error codes: the kernel's parameters, then its allocations."""
    local = (stmt.buffer for stmt in ir.walk_stmts(kernel.body) if isinstance(stmt, ir.Alloc))
    return tuple(dict.fromkeys((*kernel.params, *local)))


def elements(kernel: ir.LoopProgram, buffer: ir.Buffer) -> arith.Expr | None:
    """Return the capacity of a buffer in elements, with upper bounds for sizes that the kernel computes. Returns None if it depends
    on sizes that the kernel does not have, such as those in the bound of an input's size that another kernel computes."""
    upper_bounds: dict[arith.Expr, arith.Expr] = {
        size: arith.wrap(size.upper) for size, _ in kernel.defines if size.upper is not None
    }
    count = substitute(arith.wrap(arith.product(buffer.shape)), upper_bounds)
    return count if arith.free_vars(count) <= {*size_vars(kernel)} else None


class AccessGuard:
    """Prints the bounds checks of one kernel."""

    def __init__(self, kernel: ir.LoopProgram) -> None:
        self._limits: dict[ir.Buffer, arith.Expr | None] = {buffer: elements(kernel, buffer) for buffer in kernel.params}
        self._codes = {buffer: ACCESS_ERROR + number for number, buffer in enumerate(accessed_buffers(kernel))}

    def allocate(self, buffer: ir.Buffer, count: int) -> None:
        """Record the number of elements of a local buffer."""
        self._limits[buffer] = arith.Const(count)

    def check(
        self,
        p: FunctionPrinter,
        size: Callable[[arith.Expr], Value],
        buffer: ir.Buffer,
        index: Value,
        count: int,
        mask: Value | None,
    ) -> None:
        """Print code that returns an error code unless [`index`, `index` + `count`) is inside a buffer. `index` may be a vector.
        Under a mask, lane k accesses element `index` + k, and only active lanes are checked. A buffer of unknown capacity is not
        checked."""
        capacity = self._limits[buffer]
        if capacity is None:
            return
        limit = size(capacity)
        if index.ref.isdecimal() and limit.ref.isdecimal() and mask is None and int(index.ref) + count <= int(limit.ref):
            return
        if mask is not None and not index.lanes:
            lanes = mask.lanes
            steps = "<" + ", ".join(f"i64 {lane if count > 1 else 0}" for lane in range(lanes)) + ">"
            index, count = p.op(f"add {p.widen(index, lanes)}, {steps}", INDEX, lanes), 1
        end = p.op(f"add {index}, {splat(str(count), INDEX, index.lanes)}", INDEX, index.lanes)
        below = p.op(f"icmp slt {index}, {splat('0', INDEX, index.lanes)}", "i1", index.lanes)
        above = p.op(f"icmp sgt {end}, {p.widen(limit, index.lanes).ref if index.lanes else limit.ref}", "i1", index.lanes)
        bad = p.op(f"or {below}, {above.ref}", "i1", index.lanes)
        if index.lanes:
            if mask is not None:
                bad = p.op(f"and {bad}, {mask.ref}", "i1", index.lanes)
            name = f"llvm.vector.reduce.or.v{index.lanes}i1"
            p.declarations[name] = f"declare i1 @{name}({bad.type})"
            bad = p.op(f"call i1 @{name}({bad})", "i1")
        fine, failed = p.fresh("within"), p.fresh("beyond")
        p.branch_if(bad, failed, fine)
        p.label(failed)
        p.emit(f"ret i32 {self._codes[buffer]}")
        p.label(fine)


def messages(kernel: ir.LoopProgram, where: str) -> list[str]:
    """Return the messages of a kernel's error codes, starting at `ACCESS_ERROR`."""
    buffers = accessed_buffers(kernel)
    return [f"kernel {kernel.name}{where} accesses buffer {item.name} of shape {item.shape} out of bounds" for item in buffers]


def size_checks(region: RegionProgram, call: KernelCall, bounds: dict[arith.Expr, arith.Expr]) -> list[tuple[arith.Expr, ...]]:
    """Return pairs (size, limit) in bytes that must satisfy size <= limit. Each buffer of a call gives two: the size that the
    kernel assumes, if it is known, with the buffer's size, and the buffer's end offset with the size of the memory that contains
    it. bounds: upper bounds of sizes that the region computes."""
    kernel = region.kernels[call.kernel]
    names: dict[arith.Expr, arith.Expr] = dict(zip(size_vars(kernel), call.sizes, strict=True))
    names |= {size: bounds.get(name, name) for (size, _), name in zip(kernel.defines, call.defines, strict=True)}
    pairs: list[tuple[arith.Expr, ...]] = []
    for param, number in zip(kernel.params, (*call.inputs, *call.outputs), strict=False):
        buffer = region.buffers[number]
        buffer_bytes = _greatest_bytes(buffer.shape, buffer.dtype.bytes, bounds)
        count = elements(kernel, param)
        if count is not None:
            pairs.append((substitute(arith.mul(count, param.dtype.bytes), names), buffer_bytes))
        pairs.append((arith.add(buffer.offset, buffer_bytes), _owner_bytes(region, buffer, bounds)))
    return pairs


def _owner_bytes(region: RegionProgram, buffer: RegionBuffer, bounds: Mapping[arith.Expr, arith.Expr]) -> arith.Expr:
    """Return the greatest bytes of the memory that contains a buffer."""
    match buffer.storage:
        case "arena":
            return _upper_bound(region.workspace, bounds)
        case "constant":
            return arith.Const(list(region.constants.values())[buffer.index].nbytes)
    specs = region.signature.inputs if buffer.storage == "input" else region.signature.outputs
    spec = specs[buffer.index]
    return _greatest_bytes(spec.shape, 1 if spec.dtype is None else spec.dtype.bytes, bounds)


def _greatest_bytes(shape: tuple[arith.Dim, ...], width: int, bounds: Mapping[arith.Expr, arith.Expr]) -> arith.Expr:
    """Return the greatest bytes of a buffer. Its extents are bounded one by one: each is at least 0, which does not show in their
    product."""
    return arith.mul(arith.product(tuple(_upper_bound(dim, bounds) for dim in shape)), width)


def _upper_bound(size: arith.Dim, bounds: Mapping[arith.Expr, arith.Expr]) -> arith.Expr:
    """Return the upper bound of a size."""
    if bounds.keys().isdisjoint(arith.free_vars(size)):
        return arith.wrap(size)
    limits = arith.limits(size, {name: (arith.ZERO, bound) for name, bound in bounds.items()})
    assert limits is not None, size
    return limits[1]
