"""Every pass keeps the interpreter's answer and leaves the module well formed, on random modules."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from tests.unit.graph.strategies import Program, assert_close, programs, run

from inlaid.graph.transform import map_functions
from inlaid.graph.verify import verify
from inlaid.passes.decompose import decompose
from inlaid.passes.fuse import fuse
from inlaid.passes.integer_products import integer_products
from inlaid.passes.manager import FunctionPass, PassManager, Verify
from inlaid.passes.pipeline import CANONICAL
from inlaid.passes.sink_transposes import sink_transposes

PASSES = {
    **{step.name: step for step in CANONICAL},
    "decompose": FunctionPass("decompose", lambda target: decompose(target, lambda call: False)),
    "integer_products": FunctionPass("integer_products", lambda target: integer_products(target, lambda product, integers: True)),
    "fuse": FunctionPass("fuse", fuse),
    "sink_transposes": FunctionPass("sink_transposes", sink_transposes),
    "fuse_small": FunctionPass("fuse_small", lambda target: fuse(target, limit=2)),
}


@pytest.mark.parametrize("name", PASSES)
def test_a_pass_keeps_the_answer(name: str) -> None:
    @settings(deadline=None, max_examples=25)
    @given(programs())
    def check(program: Program) -> None:
        expected = run(program.module, program.inputs)
        changed = PASSES[name].run(program.module)
        verify(changed)
        assert_close(run(changed, program.inputs), expected)
        again = PASSES[name].run(changed)
        if name in ("graph_form", "cse", "simplify", "decompose", "name_sizes"):
            assert again is changed, "a pass that has nothing left to do returns the same object"

    check()


@settings(deadline=None, max_examples=25)
@given(programs())
def test_all_passes_in_order(program: Program) -> None:
    expected = run(program.module, program.inputs)
    canonical = PassManager(CANONICAL, [Verify(verify)]).run(program.module)
    assert_close(run(canonical, program.inputs), expected)
    fused = map_functions(canonical, fuse)
    verify(fused)
    assert_close(run(fused, program.inputs), expected)
