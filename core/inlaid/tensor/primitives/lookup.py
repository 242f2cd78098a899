"""Lookup of blocks, loops and buffers in a program, and errors that mark them."""

from __future__ import annotations

from inlaid.tensor import ir, text
from inlaid.tensor.transform.paths import Path, Site, find, sites
from inlaid_runtime import arith
from inlaid_runtime.errors import ScheduleError


def failed(program: ir.LoopProgram, problem: str, stmt: ir.Stmt | None = None, remedy: str = "") -> ScheduleError:
    """Make a `ScheduleError` whose message prints the program with the statement `stmt` marked."""
    advice = f"; {remedy}" if remedy else ""
    return ScheduleError(f"{program.name}: {problem}{advice}\n{text.show(program, mark=stmt)}")


def block_path(program: ir.LoopProgram, name: str) -> Path:
    """Return the path to the block called `name`. Raises `ScheduleError` if no block has the name."""
    path = find(program.body, ir.Block, lambda stmt: stmt.name == name)
    if path is None:
        raise failed(program, f"unknown block {name}")
    return path


def outer_block(program: ir.LoopProgram, name: str) -> Path:
    """Return the path to a block. Raises `ScheduleError` if the block is nested in another block."""
    path = block_path(program, name)
    _check_outer(program, path)
    return path


def outer_loop(program: ir.LoopProgram, var: arith.Var) -> Path:
    """Return the path to a loop. Raises `ScheduleError` if the loop is inside a block."""
    path = loop_path(program, var)
    _check_outer(program, path)
    return path


def _check_outer(program: ir.LoopProgram, path: Path) -> None:
    for stmt in path[:-1]:
        if isinstance(stmt, ir.Block):
            raise failed(program, f"the target must not be inside block {stmt.name}", path[-1], "apply this before blockize")


def check_not_tensorized(program: ir.LoopProgram, block: ir.Block) -> None:
    """Check that the body of a block is not tensorized and can be rewritten. Raises `ScheduleError`."""
    if any(isinstance(stmt, ir.Intrinsic) for stmt in ir.walk_stmts(block.body)):
        raise failed(program, f"block {block.name} is already tensorized", block, "apply this before tensorize")


def check_not_overwritten(program: ir.LoopProgram, block: ir.Block) -> None:
    """Check that the operands of a block are never overwritten, so that the block may read them at another time. Raises
    `ScheduleError` for rolling buffers."""
    operands = {region.buffer for region in block.reads}
    for site in sites(program.body):
        if any(item.kind is ir.IterKind.OPAQUE for item in site.block.iters):
            for region in site.block.writes:
                if region.buffer in operands:
                    problem = f"{region.buffer}, which {block.name} reads, is a rolling buffer, overwritten by {site.block.name}"
                    raise failed(program, problem, block)


def last_block(path: Path) -> ir.Block:
    """Return the block at the end of a path."""
    block = path[-1]
    assert isinstance(block, ir.Block)
    return block


def loop_path(program: ir.LoopProgram, var: arith.Var) -> Path:
    """Return the path to the loop of a variable. Raises `ScheduleError` if no loop has the variable."""
    path = find(program.body, ir.For, lambda stmt: stmt.var is var)
    if path is None:
        raise failed(program, f"unknown loop {var}", remedy="an earlier primitive may have replaced it")
    return path


def last_loop(path: Path) -> ir.For:
    """Return the loop at the end of a path."""
    loop = path[-1]
    assert isinstance(loop, ir.For)
    return loop


def written_buffer(program: ir.LoopProgram, block: ir.Block) -> ir.Buffer:
    """Return the single buffer that a block writes. Raises `ScheduleError` if the block writes several buffers."""
    buffers = dict.fromkeys(region.buffer for region in block.writes)
    if len(buffers) != 1:
        raise failed(program, f"block {block.name} must write one buffer, but writes {len(buffers)}", block)
    return next(iter(buffers))


def named_buffer(program: ir.LoopProgram, name: str) -> ir.Buffer:
    """Find a buffer by name. Raises `ScheduleError` unless exactly one buffer has the name."""
    matches = {buffer for buffer in program.params if buffer.name == name}
    matches |= {stmt.buffer for stmt in ir.walk_stmts(program.body) if isinstance(stmt, ir.Alloc) and stmt.buffer.name == name}
    if len(matches) != 1:
        raise failed(program, f"expected one buffer named {name}, found {'several' if matches else 'none'}")
    return matches.pop()


def writers(program: ir.LoopProgram, buffer: ir.Buffer) -> list[Site]:
    """Return the blocks that write a buffer."""
    return [site for site in sites(program.body) if site.writes(buffer)]


def readers(program: ir.LoopProgram, buffer: ir.Buffer) -> list[Site]:
    """Return the blocks that read a buffer."""
    return [site for site in sites(program.body) if site.reads(buffer)]
