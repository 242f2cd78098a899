"""Scheduled loop programs expanded to tasks in program order.

A nest of loops around one statement is one task: a copy, a product, an operation of the ALU. The loops around nests are expanded,
and so are allocations: each iteration has tiles of its own, so that the order of tasks is bound by data alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod

from inlaid import arith
from inlaid.errors import ScheduleError
from inlaid.tensor import ir
from inlaid_vta_fpga.compiler.affine import Affine, Loop, element, guards
from inlaid_vta_fpga.compiler.aliases import aliases
from inlaid_vta_fpga.compiler.alu import Elementwise, chain_of
from inlaid_vta_fpga.compiler.dma import Transfer, copied, without_lanes
from inlaid_vta_fpga.compiler.gemm import OPERANDS, Nest, Product
from inlaid_vta_fpga.compiler.tasks import SCOPES, Plan, Task, Tile
from inlaid_vta_fpga.isa.config import Config, Memory
from inlaid_vta_fpga.isa.instructions import AluOp


@dataclass(frozen=True)
class Scheduled:
    """A scheduled loop program without blocks and virtual threads. `addresses` are the byte addresses in DRAM of `program.params`;
    `source` names the operators that it computes."""

    source: str
    program: ir.LoopProgram
    addresses: tuple[int, ...]


def expand(layer: Scheduled, config: Config) -> list[Task]:
    """The tasks of a layer. Raises `ScheduleError` for what VTA has no instruction for, which names the statement's buffer."""
    walk = _Walk(layer, config)
    walk.stmt(layer.program.body)
    return walk.tasks


class _Bound:
    """A plan whose numbers come from the loops around. `buffers` are those of its tiles."""

    def __init__(self, plan: Plan, bind: Nest | Transfer, buffers: Sequence[ir.Buffer]) -> None:
        self.plan, self.bind, self.buffers = plan, bind, tuple(buffers)


class _Walk:
    def __init__(self, layer: Scheduled, config: Config) -> None:
        self.tasks: list[Task] = []
        self._layer = layer
        self._config = config
        self._address = dict(zip(layer.program.params, layer.addresses, strict=True))
        self._aliases = aliases(layer.program)
        self._env: dict[arith.Expr, int] = {}
        self._tiles: dict[ir.Buffer, Tile] = {}
        self._plans: dict[ir.Stmt, list[_Bound] | None] = {}

    def stmt(self, stmt: ir.Stmt) -> None:
        """Expand a statement under the current values of loops."""
        if stmt not in self._plans:
            nest = _nest(stmt)
            self._plans[stmt] = None if nest is None else list(self._match(*nest))
        plans = self._plans[stmt]
        if plans is not None:
            for bound in plans:
                self._task(bound)
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
                if arith.evaluate(condition, self._env):
                    self.stmt(then)
                elif otherwise is not None:
                    self.stmt(otherwise)
            case ir.Alloc(buffer=buffer, body=body):
                whole = self._aliases.get(buffer, buffer)
                fresh = whole not in self._tiles
                if fresh:
                    self._tiles[whole] = self._tile(buffer)
                self._tiles[buffer] = self._tiles[whole]
                self.stmt(body)
                for name in {buffer, whole} if fresh else {buffer} - {whole}:
                    del self._tiles[name]
            case _:
                raise self._error(f"a {type(stmt).__name__} statement", "loops, allocations, branches, stores and intrinsics")

    def _task(self, bound: _Bound) -> None:
        numbers = bound.bind.bind(self._env)
        if numbers is None:
            return
        tiles = tuple(self._tiles[buffer] for buffer in bound.buffers)
        self.tasks.append(Task(bound.plan, numbers, tiles, self._layer.source))

    def _tile(self, buffer: ir.Buffer) -> Tile:
        if buffer.scope not in SCOPES:
            raise self._error(f"buffer {buffer} in scope {buffer.scope!r}", f"one of {', '.join(SCOPES)}")
        memory = SCOPES[buffer.scope]
        scalars = prod(arith.evaluate(dim, self._env) for dim in buffer.shape)
        return Tile(buffer, memory, -(-scalars // prod(self._config.shape(memory))))

    # --- statements -------------------------------------------------------------------------------------------------------

    def _match(self, loops: tuple[Loop, ...], conditions: tuple[arith.Expr, ...], stmt: ir.Stmt) -> Iterator[_Bound]:
        if isinstance(stmt, ir.Intrinsic):
            yield self._product(loops, conditions, stmt)
            return
        assert isinstance(stmt, ir.Store)
        what = f"{self._layer.source}: store to {stmt.buffer}"
        found = copied(stmt.value)
        if stmt.buffer.scope == "":
            if found is None or found[1] is not None or found[0].buffer.scope != "vta.acc":
                raise self._error(f"the value stored to {stmt.buffer} in DRAM", "an accumulator, converted to int8")
            yield self._transfer(
                Memory.OUT, loops, (found[0].buffer, found[0].indices), (stmt.buffer, stmt.indices), conditions, what
            )
        elif found is not None and found[0].buffer.scope == "":
            load, condition = found
            if condition is not None:
                if not isinstance(condition, ir.Index):
                    raise self._error(f"a condition on data of {load.buffer}", "a condition on loops")
                conditions = (*conditions, condition.index)
            target = stmt.buffer, stmt.indices
            yield self._transfer(SCOPES[stmt.buffer.scope], loops, target, (load.buffer, load.indices), conditions, what)
        elif stmt.buffer.scope == "vta.acc":
            if conditions:
                raise self._error(f"a condition on the store to {stmt.buffer}", "whole tiles in the ALU")
            yield from self._alu(loops, stmt, what)
        else:
            raise self._error(f"the value stored to {stmt.buffer} in {stmt.buffer.scope}", "an element of a buffer in DRAM")

    def _transfer(
        self,
        memory: Memory,
        loops: tuple[Loop, ...],
        chip: tuple[ir.Buffer, Sequence[arith.Expr]],
        dram: tuple[ir.Buffer, Sequence[arith.Expr]],
        conditions: Sequence[arith.Expr],
        what: str,
    ) -> _Bound:
        address = self._address.get(dram[0])
        if address is None:
            raise self._error(f"buffer {dram[0]} in DRAM without an address", "a parameter of the layer")
        size = self._config.element_bytes(memory)
        if dram[0].dtype.bytes * prod(self._config.shape(memory)) != size or address % size:
            raise self._error(f"buffer {dram[0]} of {dram[0].dtype} at {address}", f"elements of {size} bytes, aligned")
        places = [element(*item, loops, what) for item in (chip, dram)]
        kept, (sram, place) = without_lanes(what, loops, places, prod(self._config.shape(memory)))
        known = [guard for condition in conditions for guard in guards(condition, kept, what)]
        transfer = Transfer(what, self._config, memory, kept, sram, place, address, tuple(known))
        return _Bound(transfer, transfer, (chip[0],))

    def _product(self, loops: tuple[Loop, ...], conditions: tuple[arith.Expr, ...], stmt: ir.Intrinsic) -> _Bound:
        what = f"{self._layer.source}: intrinsic {stmt.name}"
        regions = {SCOPES.get(region.buffer.scope): region for region in stmt.regions}
        if conditions or len(regions) != len(stmt.regions) or set(regions) not in ({Memory.ACC}, set(OPERANDS)):
            raise self._error(
                f"intrinsic {stmt.name} on {len(stmt.regions)} regions", "whole tiles of vta.acc, vta.inp and vta.wgt"
            )
        places, buffers = [], []
        for memory in OPERANDS[: len(regions)]:
            region = regions[memory]
            flat = element(region.buffer, [first for first, _ in region.ranges], loops, what)
            places.append(_in_elements(flat, prod(self._config.shape(memory)), what))
            buffers.append(region.buffer)
        nest = Nest(self._config, loops, places, OPERANDS[: len(places)])
        return _Bound(Product(nest), nest, buffers)

    def _alu(self, loops: tuple[Loop, ...], stmt: ir.Store, what: str) -> Iterator[_Bound]:
        chain = chain_of(stmt.value, what, stmt.buffer)
        lanes = prod(self._config.shape(Memory.ACC))
        own = self._whole(stmt.buffer)
        target = element(stmt.buffer, stmt.indices, loops, what)

        def nest(*loads: ir.Load) -> tuple[Nest, tuple[ir.Buffer, ...]]:
            places = [target, *(element(load.buffer, load.indices, loops, what) for load in loads)]
            kept, found = without_lanes(what, loops, places, lanes)
            memories = (Memory.ACC,) * len(found)
            return Nest(self._config, kept, found, memories), (stmt.buffer, *(load.buffer for load in loads))

        first, operations = chain
        alone, buffers = nest()
        in_place = (
            isinstance(first, ir.Load)
            and self._whole(first.buffer) is own
            and element(first.buffer, first.indices, loops, what) == target
        )
        if (not in_place or len(operations) > 1) and alone.repeats:
            raise self._error(f"several operations on each element of {stmt.buffer}", "one store to each element")
        if not in_place:
            yield _Bound(Product(alone), alone, buffers)
            if isinstance(first, ir.Load):
                source, both = nest(first)
                yield _Bound(Elementwise(source, AluOp.ADD, None), source, both)
        for number, (op, operand) in enumerate(operations):
            if isinstance(operand, int):
                yield _Bound(Elementwise(alone, op, operand), alone, buffers)
                continue
            source, both = nest(operand)
            same = self._whole(operand.buffer) is own and (number or source.places[0] != source.places[1])
            if operand.buffer.scope != "vta.acc" or same:
                raise self._error(f"operand {operand.buffer} of {op.name}", "an accumulator of another buffer")
            yield _Bound(Elementwise(source, op, None), source, both)

    def _whole(self, buffer: ir.Buffer) -> ir.Buffer:
        return self._aliases.get(buffer, buffer)

    def _error(self, found: str, expected: str) -> ScheduleError:
        return ScheduleError(f"{self._layer.source}: expected {expected}, found {found}", remedy="change the layer's schedule")


def _in_elements(place: Affine, lanes: int, what: str) -> Affine:
    """A place in elements, from one in scalars."""
    factors = [place.constant, *(factor for _, factor in place.outer), *place.inner]
    if any(factor % lanes for factor in factors):
        raise ScheduleError(f"{what}: expected whole elements of {lanes} scalars, found steps {factors}", remedy="tensorize blocks")
    outer = tuple((term, factor // lanes) for term, factor in place.outer)
    return Affine(place.constant // lanes, outer, tuple(factor // lanes for factor in place.inner))


def _nest(stmt: ir.Stmt) -> tuple[tuple[Loop, ...], tuple[arith.Expr, ...], ir.Stmt] | None:
    """The loops and conditions around one statement, and the statement; None for what is no such nest."""
    loops: list[Loop] = []
    conditions: list[arith.Expr] = []
    while True:
        match stmt:
            case ir.For(var=var, extent=arith.Const(value=extent), body=body) if stmt.kind is not ir.ForKind.VTHREAD:
                loops.append(Loop(var, extent))
                stmt = body
            case ir.If(condition=ir.Index(index=condition), then=then, otherwise=None):
                conditions.append(condition)
                stmt = then
            case ir.Store() | ir.Intrinsic():
                return tuple(loops), tuple(conditions), stmt
            case _:
                return None
