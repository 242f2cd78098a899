"""Merge kernels of a region, so that only a rolling window of the intermediate buffers between them is stored."""

from __future__ import annotations

from collections.abc import Iterator

from inlaid.lowering.memory.calls import ByteRange, Calls
from inlaid.tensor import ir
from inlaid.tensor.region import KernelCall
from inlaid.tensor.transform.interleave import Interleaved, Member, interleave
from inlaid_runtime import arith
from inlaid_runtime.memory.order import memory_by_step
from inlaid_runtime.records import dataclass, replace

MAX_CALLS = 6
"""Maximum number of calls that are merged into one."""
ROUNDS = 8
"""Maximum number of merge steps, each of which reduces memory."""

_Groups = tuple[tuple[int, ...], ...]
_Key = tuple[tuple[tuple[int, tuple[int, ...]], ...], tuple[int, ...]]


def streamed(region: Calls, alignment: int) -> Iterator[Calls]:
    """Yield the region with increasingly many calls merged. Each step merges the smallest group around the call of peak memory that
    lowers the peak, or the number of calls at the peak. Calls are in execution order."""
    merges = _Merges(region)
    groups: _Groups = tuple((step,) for step in range(len(region.calls)))
    best = _measured(region, alignment)
    for _ in range(ROUNDS):
        candidate: tuple[_Measure, _Groups, Calls] | None = None
        for count in range(2, MAX_CALLS + 1):
            for start in range(max(0, best.peak - count + 1), min(best.peak, len(groups) - count) + 1):
                group = tuple(step for part in groups[start : start + count] for step in part)
                if len(group) > MAX_CALLS or merges.at_least(group) >= best.peak_bytes:
                    continue
                merged_groups = (*groups[:start], group, *groups[start + count :])
                merged_region = merges.region(merged_groups)
                if merged_region is not None:
                    measure = _measured(merged_region, alignment)
                    if measure.key < (candidate[0] if candidate else best).key:
                        candidate = measure, merged_groups, merged_region
            if candidate is not None:
                break
        if candidate is None:
            return
        best, groups, merged_region = candidate
        yield merged_region


def stack_bytes(region: Calls) -> int:
    """Return the maximum bytes of local buffers over the called kernels."""
    return max((_locals(region.kernels[call.kernel]) for call in region.calls), default=0)


def _locals(program: ir.LoopProgram) -> int:
    buffers = (stmt.buffer for stmt in ir.walk_stmts(program.body) if isinstance(stmt, ir.Alloc) and stmt.buffer.scope == "")
    sizes = (arith.unwrap(arith.mul(arith.product(buffer.shape), buffer.dtype.bytes)) for buffer in buffers)
    return sum(size for size in sizes if isinstance(size, int))


@dataclass(frozen=True)
class _Measure:
    """Memory use: `peak_bytes` bytes of live buffers at the peak, the number of calls at the peak (`count`), the first such call
    (`peak`), and `total`, the bytes including the stack."""

    total: int
    count: int
    peak: int
    peak_bytes: int

    @property
    def key(self) -> tuple[int, int]:
        return self.total, self.count


def _measured(region: Calls, alignment: int) -> _Measure:
    uses = memory_by_step(region.work(alignment), range(len(region.calls)))
    peak_bytes = max(uses, default=0)
    return _Measure(peak_bytes + stack_bytes(region), uses.count(peak_bytes), uses.index(peak_bytes) if uses else 0, peak_bytes)


class _Merges:
    """Merges calls of a region. A group is a tuple of consecutive call numbers."""

    def __init__(self, region: Calls) -> None:
        self._region = region
        self._users: dict[int, set[int]] = {}
        for step in range(len(region.calls)):
            for root in region.touched(step):
                self._users.setdefault(root, set()).add(step)
        self._lives = list(zip(region.owners, region.lives(region.owners), strict=True))
        self._interleavings: dict[_Key, Interleaved | None] = {}

    def at_least(self, group: tuple[int, ...]) -> int:
        """Return a lower bound on peak memory after merging a group: the bytes that are live on entry to or exit from the group."""
        sizes = [(life.first, life.last, life.size) for _, life in self._lives if isinstance(life.size, int)]
        entry_bytes = sum(size for first, last, size in sizes if first < group[0] <= last)
        return max(entry_bytes, sum(size for first, last, size in sizes if first <= group[-1] < last))

    def region(self, groups: _Groups) -> Calls | None:
        """Merge the calls of each group; None if some cannot be merged."""
        region = self._region
        kernels: dict[ir.LoopProgram, int] = {}
        calls: list[KernelCall] = []
        windows: dict[int, ir.Buffer] = {}
        for group in groups:
            members = [region.calls[step] for step in group]
            if len(group) == 1:
                program = region.kernels[members[0].kernel]
                calls.append(replace(members[0], kernel=kernels.setdefault(program, len(kernels))))
                continue
            merge = self._merged(group)
            if merge is None:
                return None
            program, inputs, outputs, passed = merge
            number = kernels.setdefault(program, len(kernels))
            nodes = tuple(dict.fromkeys(node for call in members for node in call.nodes))
            calls.append(KernelCall(number, inputs, outputs, nodes=nodes))
            windows.update(zip(outputs[-len(passed) :], program.outputs[-len(passed) :], strict=True))
        sizes = {root: arith.unwrap(arith.mul(arith.product(buffer.shape), buffer.dtype.bytes)) for root, buffer in windows.items()}
        ranges = tuple(replace(part, bytes=sizes[part.root]) if part.root in sizes else part for part in region.inside)
        roots = {number: replace(root, bytes=sizes.get(number, root.bytes)) for number, root in region.roots.items()}
        return Calls(tuple(kernels), tuple(calls), ranges, roots, region.head_start_cache, windows)

    def _merged(self, group: tuple[int, ...]) -> tuple[ir.LoopProgram, tuple[int, ...], tuple[int, ...], tuple[int, ...]] | None:
        """Merge a group into one kernel; returns it with the buffer numbers of its inputs, its outputs, and the roots stored as
        windows."""
        region = self._region
        calls = [region.calls[step] for step in group]
        passed = self._passed(group)
        if passed is None or any(call.sizes or call.defines for call in calls):
            return None
        # Number buffers in order of appearance, so that equal groups share a kernel.
        numbers: dict[int, int] = {}
        members = []
        for call in calls:
            operands = (self._number(number, passed) for number in (*call.inputs, *call.outputs))
            members.append((call.kernel, tuple(numbers.setdefault(number, len(numbers)) for number in operands)))
        key = tuple(members), tuple(numbers[root] for root in passed)
        if key not in self._interleavings:
            programs = [Member(region.kernels[kernel], operands) for kernel, operands in members]
            name = "_".join(member.program.name for member in programs)[:60]
            self._interleavings[key] = interleave(name, programs, key[1])
        interleaved = self._interleavings[key]
        if interleaved is None:
            return None
        buffer_numbers = list(numbers)
        inputs, outputs = (tuple(buffer_numbers[number] for number in side) for side in (interleaved.inputs, interleaved.outputs))
        return interleaved.program, inputs, outputs, passed

    def _number(self, number: int, passed: tuple[int, ...]) -> int:
        """Return a buffer's number, or the number of its root if the root is passed between calls of the group."""
        root = self._region.inside[number].root
        return root if root in passed else number

    def _passed(self, group: tuple[int, ...]) -> tuple[int, ...] | None:
        """Return the roots that calls of a group pass to later calls of the group. None if there are no such roots, or if an
        intermediate result is used outside of the group or is only a part of a buffer."""
        region = self._region
        roots = []
        for step in group[:-1]:
            for number in region.calls[step].outputs:
                part = region.inside[number]
                root = region.roots[part.root]
                users = self._users[part.root]
                if root.storage != "arena" or part != ByteRange(part.root, 0, root.bytes) or not users <= set(group):
                    return None
                parts = (
                    region.inside[item] for user in users for item in (*region.calls[user].inputs, *region.calls[user].outputs)
                )
                if any(other != part for other in parts if other.root == part.root):
                    return None
                if users != {step}:
                    roots.append(part.root)
        return tuple(roots) or None
