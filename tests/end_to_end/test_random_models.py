"""Random modules, with branches, bindings, loops, closures, recursion and sizes that only a run knows, compiled for x86."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.graph.strategies import Program, assert_same, programs

from inlaid.driver.compile import compile_module
from inlaid.graph import ir
from inlaid.graph.interp import evaluate


def flat(value: Any) -> tuple[Any, ...]:
    """The arrays of a value with tuples taken apart, as executables return them."""
    return tuple(part for item in value for part in flat(item)) if isinstance(value, tuple) else (value,)


@settings(max_examples=15, deadline=None)
@given(programs(), st.sampled_from([1, 2]))
def test_random_models(program: Program, threads: int) -> None:
    calls = [e for f in program.module.functions.values() for e in ir.post_order(f) if isinstance(e, ir.Call)]
    if any(getattr(call.callee, "name", "").startswith("test.") for call in calls):
        return  # An operator of the test, which is no tensor expression.
    executable = compile_module(program.module, [f"x86:threads={threads}"])
    with np.errstate(all="ignore"):
        assert_same(tuple(executable.run(program.inputs).values()), flat(evaluate(program.module, program.inputs)))
