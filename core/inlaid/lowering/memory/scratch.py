"""Scratch buffers of steps: checks what a code generator asks for, and places buffers in the memory scopes of the target."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from inlaid.lowering.signature import bounded
from inlaid.plugins.contract import Scratch
from inlaid_runtime import arith
from inlaid_runtime.arith import Dim
from inlaid_runtime.errors import PluginError, Unsupported
from inlaid_runtime.memory.planner import Lifetime, aligned, plan
from inlaid_runtime.types import MemoryScope


def scratch_bytes(item: Scratch, scopes: Mapping[str, MemoryScope], sizes: Collection[arith.Expr], name: str, node: str) -> Dim:
    """Return the bytes to plan for a scratch buffer of the step `name`: its size, or in a memory scope the upper bound of its size.

    `sizes` are the dimensions of the region. Raises `PluginError` for an invalid buffer, and `Unsupported` for a size without an
    upper bound in a memory scope."""
    size: object = item.size  # a code generator's value
    if not isinstance(size, int | arith.Expr) or not isinstance(item.early, int):
        problem = f"an integer or a dimension as size, and an integer as early, got {item!r}"
        raise PluginError(f"scratch of step {name} must have {problem}", operator=name, node=node or None)
    problem = ""
    scope = scopes.get(item.scope)
    unknown_sizes = sorted(arith.free_vars(item.size).difference(sizes), key=repr)
    lower = arith.bounds(item.size)[0]
    if item.scope and scope is None:
        problem = f"a scope that the target declares ({', '.join(map(repr, scopes)) or 'none'}), got {item.scope!r}"
    elif scope is not None and scope.count:
        problem = f"a scope that is addressed by bytes, but {item.scope!r} consists of registers"
    elif unknown_sizes:
        problem = f"a size over the dimensions of the region, got {item.size!r}"
    elif lower is None or lower < 0:
        problem = f"a size of at least 0 bytes, got {item.size!r}"
    elif item.early < 0:
        problem = f"early >= 0, got {item.early}"
    if problem:
        raise PluginError(f"scratch of step {name} must have {problem}", operator=name, node=node or None)
    if scope is None:
        return item.size
    upper = arith.bounds(bounded(item.size))[1]
    if upper is None:
        raise Unsupported(
            f"scratch in scope {item.scope!r} must have a size with an upper bound, got {item.size!r}",
            operator=name,
            node=node or None,
            remedy="bound the dimensions of the model, or ask for tiles of a fixed size",
        )
    return upper


def plan_scope(scope: MemoryScope, buffers: Sequence[Lifetime], steps: Sequence[tuple[str, str]]) -> tuple[tuple[int, ...], int]:
    """Place scratch buffers in a memory scope. Returns their byte offsets, and the bytes of the scope that they use. `steps` has
    the name and the source nodes of each step. Raises `Unsupported` if the buffers exceed the capacity, naming the step that needs
    the most."""
    offsets = tuple(arith.evaluate(offset, {}) for offset in plan(buffers, scope.alignment).offsets)
    sizes = [arith.evaluate(buffer.size, {}) for buffer in buffers]
    peak = max((offset + size for offset, size in zip(offsets, sizes, strict=True)), default=0)
    if peak > scope.capacity:
        live_sizes = [
            [size for size, buffer in zip(sizes, buffers, strict=True) if buffer.first <= step <= buffer.last]
            for step in range(len(steps))
        ]
        busiest = max(
            range(len(steps)), key=lambda step: sum(arith.evaluate(aligned(size, scope.alignment), {}) for size in live_sizes[step])
        )
        name, node = steps[busiest]
        raise Unsupported(
            f"expected scratch of at most {scope.capacity} bytes in scope {scope.name!r}, got {peak}: "
            f"step {busiest} needs buffers of {', '.join(map(str, live_sizes[busiest]))} bytes",
            operator=name,
            node=node or None,
            remedy="ask for smaller tiles, or reject the operator in its rule",
        )
    return offsets, peak
