"""Passes of a target over loop programs: before loops are peeled a padded copy is one nest, and afterwards it is not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from inlaid import ops
from inlaid.graph import ir as graph
from inlaid.lowering.kernels.finish import kernel_passes
from inlaid.lowering.kernels.kernel import KernelSource, build
from inlaid.passes.manager import Capture, UnitPass, Verify
from inlaid.plugins import Phase
from inlaid.tensor import interp, ir
from inlaid.tensor.analysis.footprint import full_region
from inlaid.tensor.analysis.keys import structurally_equal
from inlaid.tensor.analysis.verify import verify
from inlaid.tensor.primitives import TensorIntrin
from inlaid.tensor.scheduling.rule import InputInfo, KernelContext, Offer
from inlaid.tensor.transform.lower_blocks import flatten_blocks, simplify_program
from inlaid_runtime.errors import VerifyError
from inlaid_runtime.types import ROW_MAJOR, TensorType

from .loop_target import lowered, make_registry

TILE = graph.var("x", TensorType((6, 10), "float32"))
PADDED = ops.pad(TILE, graph.constant(np.float32(0)), pads=(1, 1, 1, 1))
DMA = TensorIntrin("dma_padded", simplify_program(flatten_blocks(build(KernelSource("dma_padded", (TILE,), PADDED)))))
"""A copy engine that puts a border of zeros around a tile."""


class Untouched:
    """Leaves kernels as they are: the engine does not want runs of memory, which the shared rules make of copies."""

    name = "untouched"

    def offer(self, program: ir.LoopProgram, context: KernelContext, inputs: Sequence[InputInfo]) -> Offer:
        return Offer((ROW_MAJOR,) * len(program.params), lambda scheduled: scheduled)


def by_engine(program: ir.LoopProgram) -> ir.LoopProgram:
    """A kernel that does what the engine does, by the engine."""
    if not structurally_equal(replace(program, name=DMA.name), DMA.semantics):
        return program
    return replace(program, body=DMA.on(*map(full_region, program.params)))


def kernel(phase: Phase, *instruments: Capture[ir.LoopProgram] | Verify[ir.LoopProgram]) -> ir.LoopProgram:
    """The padded copy as the code generator gets it, by a target whose pass looks for it in a phase."""
    registry = make_registry({phase: [UnitPass("use_dma", by_engine)]}, rules=[Untouched()], intrinsics=[DMA])
    module = graph.Module({"main": graph.function([TILE], PADDED)})
    (program,) = lowered(module, registry, kernel_instruments=instruments).kernels
    x = np.arange(60, dtype=np.float32).reshape(6, 10)
    np.testing.assert_array_equal(interp.run(program, [x], {}, {DMA.name: DMA.semantics})[0], np.pad(x, 1))
    return program


def stores(program: ir.LoopProgram) -> int:
    return sum(isinstance(stmt, ir.Store) for stmt in ir.walk_stmts(program.body))


def test_a_padded_copy_is_recognized_before_peeling_alone() -> None:
    early, late = kernel(Phase.BEFORE_PEELING), kernel(Phase.LOOP)
    assert isinstance(early.body, ir.Intrinsic)
    assert not any(isinstance(stmt, ir.Intrinsic) for stmt in ir.walk_stmts(late.body))
    assert stores(late) == 3  # the inside, the last column, and the last row


def test_passes_over_kernels_are_watched_by_name() -> None:
    kernels = Capture[ir.LoopProgram]("use_dma")
    kernel(Phase.BEFORE_PEELING, kernels)
    assert kernels.names == [item.name for item in kernel_passes(before_peeling=[UnitPass("use_dma", by_engine)])]
    assert [isinstance(program.body, ir.Intrinsic) for program in kernels.units] == [True]
    nest = Capture[ir.LoopProgram]("lower_vthreads")
    kernel(Phase.LOOP, nest)
    assert nest.names[-1] == "use_dma" and stores(nest.units[0]) == 1


def test_verification_names_the_pass_that_breaks_a_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    unknown = ir.Buffer("elsewhere", (6, 10), TILE.type.dtype)
    broken = UnitPass("broken", lambda program: replace(program, inputs=(unknown,)))
    registry = make_registry({Phase.BEFORE_PEELING: [broken]})
    module = graph.Module({"main": graph.function([TILE], ops.neg(TILE))})
    with pytest.raises(VerifyError) as caught:
        lowered(module, registry, kernel_instruments=[Verify(verify)])
    assert caught.value.__notes__[0] == "after pass broken"
