"""What schedule rules ask of an unscheduled kernel: its anchor, what comes before it and after it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from inlay.arith import Var
from inlay.tensor import ir
from inlay.tensor.schedule import Schedule


@dataclass(frozen=True)
class Anchor:
    """The one reduction of a kernel.

    `buffer` is what it accumulates into; `product` the two loads whose products it sums, None where it is no sum of products;
    `before` the blocks that it needs, `after` the blocks that follow.
    """

    block: ir.Block
    buffer: ir.Buffer
    spatial: tuple[ir.IterVar, ...]
    reduced: tuple[ir.IterVar, ...]
    product: tuple[ir.Load, ir.Load] | None
    before: tuple[ir.Block, ...]
    after: tuple[ir.Block, ...]


def blocks_of(program: ir.LoopProgram) -> list[ir.Block]:
    """The blocks of a program, in order."""
    return [stmt for stmt in ir.walk_stmts(program.body) if isinstance(stmt, ir.Block)]


def is_static(program: ir.LoopProgram) -> bool:
    """Whether every dimension of the parameters is an integer."""
    return all(isinstance(dim, int) for buffer in program.params for dim in buffer.shape)


def find_anchor(program: ir.LoopProgram) -> Anchor | None:
    """The anchor of a kernel; None where it has no reduction or several, or blocks that are loop programs of their own."""
    blocks = blocks_of(program)
    reductions = [place for place, block in enumerate(blocks) if block.init is not None]
    if len(reductions) != 1 or any(not isinstance(block.body, ir.Store) for block in blocks):
        return None
    place = reductions[0]
    block = blocks[place]
    assert isinstance(block.body, ir.Store)
    spatial = tuple(item for item in block.iters if item.kind is ir.IterKind.SPATIAL)
    reduced = tuple(item for item in block.iters if item.kind is ir.IterKind.REDUCTION)
    if block.body.indices != tuple(item.var for item in spatial):
        return None
    return Anchor(
        block, block.body.buffer, spatial, reduced, _product(block.body), tuple(blocks[:place]), tuple(blocks[place + 1 :])
    )


def _product(store: ir.Store) -> tuple[ir.Load, ir.Load] | None:
    """The factors of acc = acc + a * b."""
    match store.value:
        case ir.Binary(op="add", a=ir.Load(buffer=buffer), b=ir.Binary(op="mul", a=ir.Load() as a, b=ir.Load() as b)):
            return (a, b) if buffer is store.buffer else None
    return None


def last_of(anchor: Anchor) -> str | None:
    """The name of the last block after the anchor, into which all others can go; None where there are none."""
    return anchor.after[-1].name if anchor.after else None


def inline_all(schedule: Schedule, blocks: Iterable[str]) -> None:
    """Put element-wise blocks into their readers."""
    for block in blocks:
        schedule.compute_inline(block)


def axis_loops(schedule: Schedule, block: str) -> list[Var | None]:
    """The loop that each iteration variable of a block follows, None for one that has no loop of its own: its extent is 1."""
    found = next(item for item in blocks_of(schedule.program) if item.name == block)
    loops = schedule.loops(block)
    return [binding if binding in loops else None for binding in found.bindings]  # type: ignore[misc]


def present(*loops: Var | None) -> list[Var]:
    """The loops that there are."""
    return [loop for loop in loops if loop is not None]
