"""Expansion of scheduled loop programs to tasks in program order.

A loop nest around one statement is one task: a copy, a product or an ALU operation. The loops around nests are unrolled. Each
iteration allocates separate tiles, so that only data dependences constrain the order of tasks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod

from inlaid.tensor import ir
from inlaid_runtime import arith
from inlaid_runtime.errors import ScheduleError
from inlaid_vta_fpga.compiler.affine import Affine, Loops, guards, scalar
from inlaid_vta_fpga.compiler.alu import build_chain
from inlaid_vta_fpga.compiler.dma import Transfer
from inlaid_vta_fpga.compiler.micro import OPERANDS, Operation
from inlaid_vta_fpga.compiler.tasks import SCOPES, Plan, Task, Tile
from inlaid_vta_fpga.isa.config import Config, Memory
from inlaid_vta_fpga.isa.instructions import AluOp

_Element = tuple[ir.Buffer, Sequence[arith.Expr]]


@dataclass(frozen=True)
class Scheduled:
    """A scheduled loop program without blocks and virtual threads. `addresses`: DRAM byte addresses of `program.params`. `source`:
    names of the source operators."""

    source: str
    program: ir.LoopProgram
    addresses: tuple[int, ...]


def expand(layer: Scheduled, config: Config) -> list[Task]:
    """Return the tasks of a layer. Raises `ScheduleError`, which names the buffer, for a statement that VTA cannot execute."""
    walk = _Walk(layer, config)
    walk.stmt(layer.program.body)
    return walk.tasks


class _Walk:
    def __init__(self, layer: Scheduled, config: Config) -> None:
        self.tasks: list[Task] = []
        self._source, self._config = layer.source, config
        self._address = dict(zip(layer.program.params, layer.addresses, strict=True))
        self._env: dict[arith.Expr, int] = {}
        self._tiles: dict[ir.Buffer, Tile] = {}
        self._plans: dict[ir.Stmt, list[Plan] | None] = {}

    def stmt(self, stmt: ir.Stmt) -> None:
        """Expand a statement for the current values of the loop variables."""
        if stmt not in self._plans:
            nest = _nest(stmt)
            self._plans[stmt] = None if nest is None else list(self._match(*nest))
        plans = self._plans[stmt]
        if plans is not None:
            for plan in plans:
                numbers = plan.bind(self._env)
                if numbers is not None:
                    self.tasks.append(Task(plan, numbers, tuple(map(self._tiles.__getitem__, plan.buffers)), self._source))
            return
        match stmt:
            case ir.Seq(stmts=stmts):
                for part in stmts:
                    self.stmt(part)
            case ir.For(var=var, extent=extent, body=body) if stmt.kind is not ir.ForKind.VTHREAD:
                for value in range(arith.evaluate(extent, self._env)):
                    self._env[var] = value
                    self.stmt(body)
            case ir.If(condition=ir.Index(index=condition), then=then, otherwise=otherwise):
                self.stmt(then if arith.evaluate(condition, self._env) else otherwise or ir.Seq(()))
            case ir.Alloc(buffer=buffer, body=body):
                if buffer.scope not in SCOPES:
                    raise self._error(f"a buffer in one of {', '.join(SCOPES)}", f"buffer {buffer} in {buffer.scope!r}")
                memory = SCOPES[buffer.scope]
                scalars = prod(arith.evaluate(dim, self._env) for dim in buffer.shape)
                self._tiles[buffer] = Tile(buffer, memory, -(-scalars // self._lanes(memory)))
                self.stmt(body)
            case _:
                raise self._error("loops, allocations, branches, stores and intrinsics", type(stmt).__name__)

    def _match(self, loops: Loops, conditions: tuple[arith.Expr, ...], stmt: ir.Store | ir.Intrinsic) -> Iterator[Plan]:
        """Yield the plans that implement a statement, in order."""
        if isinstance(stmt, ir.Intrinsic):
            yield self._product(loops, conditions, stmt)
            return
        target: _Element = stmt.buffer, stmt.indices
        match stmt.value:
            case ir.Cast(a=ir.Load(buffer=ir.Buffer(scope="vta.acc") as tile) as load) if stmt.buffer in self._address:
                yield self._transfer(Memory.OUT, loops, (tile, load.indices), target, conditions)
            case ir.Load(buffer=source, indices=indices) if source in self._address and stmt.buffer.scope in SCOPES:
                yield self._transfer(SCOPES[stmt.buffer.scope], loops, target, (source, indices), conditions)
            case ir.Select(condition=ir.Index(index=inside), then=ir.Load() as load, otherwise=ir.Const(value=0)) if (
                load.buffer in self._address and stmt.buffer.scope in SCOPES
            ):
                copied = load.buffer, load.indices
                yield self._transfer(SCOPES[stmt.buffer.scope], loops, target, copied, (*conditions, inside))
            case _ if stmt.buffer.scope == "vta.acc" and not conditions:
                yield from self._operations(loops, stmt)
            case _:
                expected = "a copy between DRAM and SRAM, or operations on whole tiles of vta.acc"
                raise self._error(expected, f"a store to {stmt.buffer} in {stmt.buffer.scope!r}")

    def _transfer(self, memory: Memory, loops: Loops, on_chip: _Element, dram: _Element, conditions: Sequence[arith.Expr]) -> Plan:
        what = f"{self._source}: copy of {dram[0]}"
        size, address = self._config.element_bytes(memory), self._address[dram[0]]
        if dram[0].dtype.bytes * self._lanes(memory) != size or address % size:
            raise self._error(f"aligned elements of {size} bytes", f"buffer {dram[0]} of {dram[0].dtype} at {address}")
        element_loops, (sram, dram_index) = self._elements(memory, loops, [on_chip, dram], what)
        bounds = tuple(guard for condition in conditions for guard in guards(condition, element_loops, what))
        return Transfer(what, self._config, memory, element_loops, sram, dram_index, address // size, bounds, (on_chip[0],))

    def _product(self, loops: Loops, conditions: tuple[arith.Expr, ...], stmt: ir.Intrinsic) -> Plan:
        regions = {SCOPES.get(region.buffer.scope): region for region in stmt.regions}
        if conditions or set(regions) not in ({Memory.ACC}, set(OPERANDS)) or len(regions) != len(stmt.regions):
            raise self._error("whole tiles of vta.acc, vta.inp and vta.wgt", f"intrinsic {stmt.name} on {stmt.regions}")
        places, buffers = [], []
        for memory in OPERANDS[: len(regions)]:
            region = regions[memory]
            flat = scalar(region.buffer, [first for first, _ in region.ranges], loops, f"{self._source}: {stmt.name}")
            places.append(flat.over(self._lanes(memory), range(len(loops)), f"{self._source}: {stmt.name}"))
            buffers.append(region.buffer)
        return Operation(self._config, loops, places, buffers)

    def _operations(self, loops: Loops, stmt: ir.Store) -> Iterator[Plan]:
        """Yield ALU operations in place on the stored buffer. A value of another buffer is first copied by a reset and an add."""
        what = f"{self._source}: store to {stmt.buffer}"
        first, operations = build_chain(stmt.value, what, stmt.buffer)

        def operation(op: AluOp | None, operand: int | ir.Load | None = None) -> Plan:
            loads = [operand] if isinstance(operand, ir.Load) else []
            elements = [(stmt.buffer, stmt.indices), *((load.buffer, load.indices) for load in loads)]
            element_loops, places = self._elements(Memory.ACC, loops, elements, what)
            buffers = [buffer for buffer, _ in elements]
            return Operation(self._config, element_loops, places, buffers, op, operand if isinstance(operand, int) else None)

        destination_loads = [
            load
            for load in (first, *(operand for _, operand in operations))
            if isinstance(load, ir.Load) and load.buffer is stmt.buffer
        ]
        index = scalar(stmt.buffer, stmt.indices, loops, what)
        in_place = first is not None and first.buffer is stmt.buffer
        if len(destination_loads) != int(in_place) or any(
            scalar(load.buffer, load.indices, loops, what) != index for load in destination_loads
        ):
            raise self._error("a store that reads only the stored element", f"a store to {stmt.buffer} that reads others")
        if (not in_place or len(operations) > 1) and any(
            extent > 1 and not step for (_, extent), step in zip(loops, index.inner, strict=True)
        ):
            raise self._error("one store to each element", f"a store to {stmt.buffer} in loops that its indices do not use")
        if not in_place:
            yield operation(None)
            if first is not None:
                yield operation(AluOp.ADD, first)
        for op, operand in operations:
            yield operation(op, operand)

    def _elements(self, memory: Memory, loops: Loops, elements: Sequence[_Element], what: str) -> tuple[Loops, list[Affine]]:
        """Return the loops that are not over the lanes of an element, and the element indices in terms of these loops."""
        indices = [scalar(*element, loops, what) for element in elements]
        size, lanes, lane_loops = 1, self._lanes(memory), set()
        while size < lanes:
            candidates = [
                n for n, (_, extent) in enumerate(loops) if extent > 1 and all(index.inner[n] == size for index in indices)
            ]
            if not candidates:
                raise self._error(f"{lanes} contiguous scalars innermost", f"steps {[index.inner for index in indices]} in {what}")
            lane_loops.add(candidates[0])
            size *= loops[candidates[0]][1]
        loop_numbers = [number for number in range(len(loops)) if number not in lane_loops]
        return tuple(loops[number] for number in loop_numbers), [index.over(size, loop_numbers, what) for index in indices]

    def _lanes(self, memory: Memory) -> int:
        return prod(self._config.shape(memory))

    def _error(self, expected: str, actual: str) -> ScheduleError:
        return ScheduleError(f"{self._source}: expected {expected}, found {actual}", remedy="change the layer's schedule")


def _nest(stmt: ir.Stmt) -> tuple[Loops, tuple[arith.Expr, ...], ir.Store | ir.Intrinsic] | None:
    """Return the loops and conditions around a single statement, and the statement; None for any other structure."""
    loops: list[tuple[arith.Var, int]] = []
    conditions: list[arith.Expr] = []
    while True:
        match stmt:
            case ir.For(var=var, extent=arith.Const(value=extent), body=body) if stmt.kind is not ir.ForKind.VTHREAD:
                loops.append((var, extent))
                stmt = body
            case ir.If(condition=ir.Index(index=condition), then=then, otherwise=None):
                conditions.append(condition)
                stmt = then
            case ir.Store() | ir.Intrinsic():
                return tuple(loops), tuple(conditions), stmt
            case _:
                return None
