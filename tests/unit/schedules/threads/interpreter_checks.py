"""What every schedule for threads is held to: the interpreter, the detector of races, and its own trace."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from tests.race_free import check_race_free

from inlaid.graph import ir as graph
from inlaid.lowering.kernels.finish import finish
from inlaid.lowering.kernels.kernel import KernelSource, build
from inlaid.plugins import Capabilities, MemoryScope, Threads
from inlaid.schedules.default import SHARED_TRANSFORMS
from inlaid.schedules.threads.default import THREAD_RULES, THREAD_TRANSFORMS
from inlaid.tensor import interp, ir
from inlaid.tensor.analysis.races import check_races
from inlaid.tensor.analysis.verify import verify
from inlaid.tensor.primitives import SEMANTICS, TensorIntrin
from inlaid.tensor.schedule import replay
from inlaid.tensor.scheduling.rule import InputInfo, KernelContext, Offer, ScheduleRule, Traced
from inlaid.tensor.text import show
from inlaid.tensor.transform.launches import SplitProgram, split_launches
from inlaid.tensor.transform.lower_blocks import guarded
from inlaid.tensor.transform.peel import REMAINDERS
from inlaid.tensor.transform.rewrite import Rewriter
from inlaid_runtime import arith
from inlaid_runtime.errors import ScheduleError
from inlaid_runtime.types import ROW_MAJOR, TensorType

Array = np.ndarray[Any, Any]
Sizes = Mapping[arith.SizeVar, int]

THREADS = Threads(block=32, subgroup=8, resident=256)
"""Small blocks, so that the interpreter is quick and grids are soon full."""
SHARED = MemoryScope("shared", "block", 32 << 10, 16)
DTYPES = ("float32", "int32", "int64", "bool")
"""Element types of the tests' operands, and of positions and masks inside kernels. Without float64, sums of blocks are float32."""
GPU = Capabilities(DTYPES, (SHARED,), threads=THREADS, stack_bytes=0)
EMBEDDED = Capabilities(DTYPES, threads=THREADS, stack_bytes=0)
SHUFFLES = replace(GPU, threads=replace(THREADS, shuffles=True))
"""A device whose threads read registers of their subgroup."""
CLASSES = {"gpu": GPU, "embedded": EMBEDDED}
"""Devices with memory that the threads of a block share, and without."""


def kernel(body: Any, *types: tuple[Sequence[arith.Dim], str]) -> ir.LoopProgram:
    """The unscheduled kernel of a graph over parameters of shapes and dtypes."""
    params = tuple(graph.var(f"x{number}", TensorType(tuple(shape), dtype)) for number, (shape, dtype) in enumerate(types))
    return build(KernelSource("kernel", params, body(*params)))


def first_offer(
    program: ir.LoopProgram,
    capabilities: Capabilities,
    rule: ScheduleRule | None = None,
    intrinsics: Sequence[TensorIntrin] = (),
    **decided: Any,
) -> tuple[str, Offer]:
    """The name of the first of the rules for threads (or of `rule`) that takes a kernel, and its first offer."""
    context = KernelContext(capabilities, 0, tuple(intrinsics), tuple(decided.items()))
    facts = (InputInfo(ROW_MAJOR),) * len(program.inputs)
    for item in THREAD_RULES if rule is None else (rule,):
        if offers := item.offer(program, context, facts):
            return item.name, offers[0] if isinstance(offers, tuple) else offers
    raise AssertionError(f"expected that {'a rule' if rule is None else rule.name} takes the kernel")


def subgroup_size(capabilities: Capabilities) -> int:
    """Threads of a subgroup that read one another's registers; 0 where none do."""
    threads = capabilities.threads
    return threads.subgroup if threads is not None and threads.shuffles else 0


def make_launches(
    program: ir.LoopProgram,
    capabilities: Capabilities,
    rule: ScheduleRule | None = None,
    intrinsics: Sequence[TensorIntrin] = (),
    **decided: Any,
) -> SplitProgram:
    """Host and SPMD kernels of a kernel as it is scheduled."""
    _, offer = first_offer(program, capabilities, rule, intrinsics, **decided)
    return split_launches(finish(offer.schedule(program), able=capabilities), capabilities.scopes, subgroup_size(capabilities))


def check_against_interpreter(
    program: ir.LoopProgram,
    capabilities: Capabilities,
    sizes: Sizes | Sequence[Sizes] = (),
    rule: ScheduleRule | None = None,
    arrays: Sequence[Array] | None = None,
    tolerance: float = 0.0,
    intrinsics: Sequence[TensorIntrin] = (),
    **decided: Any,
) -> SplitProgram:
    """Check what a rule makes of a kernel at all the given sizes, and return its launches.

    Scheduled, finished and split into launches, the kernel computes what it does unscheduled (exactly, but for a relative
    `tolerance`), with the threads of each phase in a random order; no thread of it races with another; no block has more threads
    than the capabilities say; its trace, replayed, gives the same program. Inputs are small integers where no `arrays` are given.
    """
    _, offer = first_offer(program, capabilities, rule, intrinsics, **decided)
    scheduled = offer.schedule(program)
    _replays(program, offer, scheduled, intrinsics)
    semantics = {**SEMANTICS, **{item.name: item.semantics for item in intrinsics}}
    finished = finish(scheduled, able=capabilities)
    split = split_launches(finished, capabilities.scopes, subgroup_size(capabilities))
    threads = capabilities.threads
    assert threads is not None
    for item in split.kernels.values():
        if not program.defines:  # one thread runs those that work out sizes, as they are
            verify(item.program, semantics)
        check_race_free(item.program, item.offsets)
    cases = [sizes] if isinstance(sizes, Mapping) else list(sizes) or [{}]
    for seed, named in enumerate(cases):
        inputs = inputs_for(program, named, seed) if arrays is None else list(arrays)
        sizes_by_variable = interp.bind_sizes(program, inputs, named)
        for item in split.kernels.values():
            _fits(item.threads, sizes_by_variable, threads.block)
        _agree(program, finished, split, semantics, inputs, sizes_by_variable, seed, tolerance)
    return split


def inputs_for(program: ir.LoopProgram, sizes: Sizes, seed: int = 0) -> list[Array]:
    """Small integers of each input's dtype; those without a sign from 0 on."""
    random = np.random.default_rng(seed)
    arrays = []
    for buffer in program.inputs:
        low, high = (0, 2) if buffer.dtype.kind == "bool" else (-4, 5) if buffer.dtype.name[0] != "u" else (0, 9)
        arrays.append(random.integers(low, high, _shape(buffer, sizes)).astype(buffer.dtype.numpy))
    return arrays


def _shape(buffer: ir.Buffer, sizes: Sizes) -> tuple[int, ...]:
    return tuple(arith.evaluate(arith.wrap(dim), dict(sizes)) for dim in buffer.shape)


def _agree(
    program: ir.LoopProgram,
    finished: ir.LoopProgram,
    split: SplitProgram,
    semantics: Mapping[str, ir.LoopProgram],
    inputs: list[Array],
    sizes: Sizes,
    seed: int,
    tolerance: float,
) -> None:
    """Neighboring dimensions of parameters may have become one. What the launches compute shows of the finished kernel that it is
    right, but for sizes that it works out: these the host does not know."""
    expected = interp.run(program, inputs, sizes)
    packed = [array.reshape(_shape(buffer, sizes)) for array, buffer in zip(inputs, finished.inputs, strict=True)]
    meaning = {**semantics, **{name: item.program for name, item in split.kernels.items()}}
    actual = interp.run(finished if program.defines else split.host, packed, sizes, meaning, seed)
    sizes_from = len(program.outputs) - len(program.defines)
    scratch = len(actual) - len(expected)  # between the results and the sizes
    for left, right in zip(expected, actual[:sizes_from] + actual[sizes_from + scratch :], strict=True):
        if tolerance and left.dtype.kind not in "biu":
            close = np.asarray(left, float), np.asarray(right, float).reshape(left.shape)
            np.testing.assert_allclose(*close, rtol=tolerance, atol=tolerance)
        else:
            np.testing.assert_array_equal(left, right.reshape(left.shape))


def _fits(threads: Mapping[str, arith.Expr], sizes: Sizes, limit: int) -> None:
    extents = [arith.evaluate(extent, dict(sizes)) for extent in threads.values()]
    assert int(np.prod(extents)) <= limit, f"{extents} threads of a block, at most {limit} expected"


def _replays(program: ir.LoopProgram, offer: Offer, scheduled: ir.LoopProgram, intrinsics: Sequence[TensorIntrin]) -> None:
    if isinstance(offer.schedule, Traced):
        trace = offer.schedule.make().trace
        transforms = (*SHARED_TRANSFORMS, *THREAD_TRANSFORMS)
        assert show(replay(program, str(trace), tuple(intrinsics), (REMAINDERS,), transforms).program) == show(scheduled)


def planted_races(split: SplitProgram) -> list[str]:
    """Drop each barrier of each kernel once. The names of the kernels in which that goes unseen: none, where each is needed."""
    return _unseen(split, lambda barrier, threads: ir.Seq(()))


def planted_divergence(split: SplitProgram) -> list[str]:
    """Let only some threads reach each barrier. The names of the kernels in which that goes unseen."""
    return _unseen(split, lambda barrier, threads: guarded(barrier, arith.compare("<", threads[0].var, threads[0].extent - 1)))


def _unseen(split: SplitProgram, changed: Callable[[ir.Stmt, list[ir.For]], ir.Stmt]) -> list[str]:
    """The names of the kernels in which a change of one barrier goes unseen."""
    unseen = []
    for name, item in split.kernels.items():
        threads = [stmt for stmt in ir.walk_stmts(item.program.body) if isinstance(stmt, ir.For) and stmt.over_threads]
        for barrier in [stmt for stmt in ir.walk_stmts(item.program.body) if isinstance(stmt, ir.Barrier)]:

            def planted(stmt: ir.Stmt, target: ir.Stmt = barrier, threads: list[ir.For] = threads) -> ir.Stmt | None:
                return changed(stmt, threads) if stmt is target else None

            try:
                check_races(Rewriter(stmt=planted).program(item.program), item.offsets)
            except ScheduleError:
                continue
            unseen.append(name)
    return unseen


def barriers_in(split: SplitProgram) -> int:
    """Barriers of all kernels."""
    return sum(isinstance(stmt, ir.Barrier) for item in split.kernels.values() for stmt in ir.walk_stmts(item.program.body))
