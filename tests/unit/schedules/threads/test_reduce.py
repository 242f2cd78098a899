"""Windows and other reductions, a thread for each element: one kernel, in registers, whatever is padded."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inlaid import ops
from inlaid.schedules.threads.reduce import ReduceRule
from inlaid.tensor import ir
from inlaid_runtime import arith

from .interpreter_checks import CLASSES, GPU, barriers_in, check_against_interpreter, first_offer, kernel

RULE = ReduceRule()
N = arith.SizeVar("n", 1, 16)
CHECKED = settings(max_examples=20, deadline=None)


def pooled(kind, k, stride, pad, dilation=1):
    window = {"kernel": (k, k), "strides": (stride, stride), "pads": (pad,) * 4, "dilations": (dilation, dilation)}
    if kind == "average":
        return lambda x: ops.avg_pool(x, count_include_pad=False, **window)
    return lambda x: (ops.max_pool if kind == "max" else ops.max_pool_indices)(x, **window)


def scopes(split):
    allocs = (stmt for item in split.kernels.values() for stmt in ir.walk_stmts(item.program.body) if isinstance(stmt, ir.Alloc))
    return {stmt.buffer.scope for stmt in allocs}


@CHECKED
@given(
    st.sampled_from(["max", "average", "indices"]), st.integers(2, 4), st.integers(1, 3), st.integers(0, 1), st.integers(1, 2),
    st.integers(5, 11),
)  # fmt: skip
def test_pooling(kind, k, stride, pad, dilation, width):
    program = kernel(pooled(kind, k, stride, pad, dilation), ((2, 3, dilation * k + 2, dilation * k + width), "float32"))
    split = check_against_interpreter(program, GPU, rule=RULE, tolerance=1e-6)
    assert len(split.kernels) == (2 if kind == "indices" else 1)
    assert scopes(split) == {"register"} and barriers_in(split) == 0


@pytest.mark.parametrize("able", CLASSES.values(), ids=CLASSES)
@pytest.mark.parametrize("kind", ["max", "average", "indices"])
def test_pooling_of_any_size(kind, able):
    program = kernel(pooled(kind, 3, 2, 1), ((N, 2, N, 7), "float32"))
    check_against_interpreter(program, able, [{N: n} for n in (3, 6)], RULE, tolerance=1e-6)


@pytest.mark.parametrize("groups", [1, 2, 6])
@pytest.mark.parametrize("rule", [RULE, None])
def test_convolutions(groups, rule):
    """Depthwise ones, and any other that no better rule takes, with what follows."""

    def body(x, w, b):
        convolution = ops.conv(x, w, strides=(1, 1), pads=(1,) * 4, dilations=(1, 1), groups=groups)
        return ops.relu(ops.add(convolution, b))

    program = kernel(body, ((2, 6, 5, 7), "float32"), ((6, 6 // groups, 3, 3), "float32"), ((6, 1, 1), "float32"))
    assert len(check_against_interpreter(program, GPU, rule=rule).kernels) == 1


def test_windows_are_written_out():
    split = check_against_interpreter(kernel(pooled("max", 3, 1, 0), ((1, 2, 6, 6), "float32")), GPU, rule=RULE)
    (launch,) = split.kernels.values()
    assert not any(isinstance(stmt, ir.For) and stmt.kind is ir.ForKind.SERIAL for stmt in ir.walk_stmts(launch.program.body))


def test_sums_over_neighbors():
    check_against_interpreter(kernel(lambda x: ops.lrn(x, size=3), ((2, 5, 4, 3), "float32")), GPU, rule=RULE, tolerance=1e-5)


def test_declines_results_that_several_elements_read():
    program = kernel(lambda x: ops.sub(x, ops.reduce_max(x, axes=(0, 2), keepdims=True)), ((3, 4, 5), "float32"))
    with pytest.raises(AssertionError, match="reduce takes the kernel"):
        first_offer(program, GPU, RULE)
