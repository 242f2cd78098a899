"""Reductions by rows: what is scheduled computes the same, in vectors, for any number of rows and columns."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inlaid import ops
from inlaid.graph import ir as graph
from inlaid.lowering.kernels.finish import finish
from inlaid.lowering.kernels.kernel import KernelSource, build
from inlaid.plugins import Capabilities
from inlaid.schedules.collapse import collapse
from inlaid.schedules.default import SHARED_RULES
from inlaid.schedules.rows import RowsRule
from inlaid.tensor import interp, ir
from inlaid.tensor.scheduling.rule import InputInfo, KernelContext
from inlaid_runtime import arith
from inlaid_runtime.types import ROW_MAJOR, Layout, TensorType

CAPABILITIES = Capabilities(dtypes=("float32",), vector_bits=128, vector_registers=16)
CHECKED = settings(max_examples=25, deadline=None)


def kernel(shape, body, dtype="float32"):
    x = graph.var("x", TensorType(shape, dtype))
    return build(KernelSource("kernel", (x,), body(x)))


def offered(program, threads=1, layout=ROW_MAJOR):
    facts = (InputInfo(layout),) * len(program.inputs)
    return RowsRule().offer(program, KernelContext(CAPABILITIES, threads), facts)


def check(program, sizes=None, threads=2, tolerance=1e-6):
    """The rule's offer computes what the kernel does, and all its innermost loops are vectors."""
    offer = offered(program, threads)
    assert offer is not None, "the rule declines"
    scheduled = finish(offer.schedule(program))
    sizes = sizes or {}
    generator = np.random.default_rng(3)

    def concrete(shape):
        return tuple(int(arith.evaluate(dim, sizes)) if isinstance(dim, arith.Expr) else dim for dim in shape)

    (source,) = program.inputs
    array = generator.integers(-4, 5, concrete(source.shape)).astype(source.dtype.numpy)
    (expected,) = interp.run(program, [array], sizes)
    actual = interp.run(scheduled, [array.reshape(concrete(scheduled.inputs[0].shape))], sizes)[0].reshape(expected.shape)
    assert np.allclose(np.asarray(actual, float), np.asarray(expected, float), rtol=tolerance, atol=tolerance)
    return scheduled


def kinds(program):
    return {stmt.kind for stmt in ir.walk_stmts(program.body) if isinstance(stmt, ir.For)}


COLUMNS = st.sampled_from([4, 5, 7, 8, 15, 16, 17, 31, 33, 100, 150])


@CHECKED
@given(st.integers(1, 5), COLUMNS, st.sampled_from(["sum", "prod", "max", "min"]), st.booleans(), st.booleans())
def test_reduces_rows(rows, columns, name, keepdims, full_reduction):
    operator = getattr(ops, f"reduce_{name}")
    axes = (0, 1) if full_reduction else (1,)
    program = kernel((rows, columns), lambda x: operator(x, axes=axes, keepdims=keepdims))
    if name == "prod":
        assert offered(program) is not None
    else:
        assert ir.ForKind.VECTORIZED in kinds(check(program))


@CHECKED
@given(st.integers(2, 5), COLUMNS, st.integers(1, 3), st.sampled_from(["sum", "max"]))
def test_reduces_across_rows(rows, columns, outer, name):
    operator = getattr(ops, f"reduce_{name}")
    scheduled = check(kernel((outer, rows, columns), lambda x: operator(x, axes=(1,), keepdims=True)))
    assert ir.ForKind.VECTORIZED in kinds(scheduled)


@pytest.mark.parametrize("axes", [(2, 3), (0, 2, 3), (0, 1, 2, 3), (1, 2, 3), (0, 1), (1,)])
def test_reduces_over_several_axes(axes):
    check(kernel((2, 3, 4, 5), lambda x: ops.reduce_sum(x, axes=axes, keepdims=True)))
    check(kernel((2, 3, 4, 5), lambda x: ops.reduce_sum(x, axes=axes, keepdims=False)))


@CHECKED
@given(st.integers(1, 4), COLUMNS, st.integers(0, 2), st.sampled_from(["softmax", "log_softmax"]))
def test_softmax_along_any_axis(rows, columns, axis, name):
    check(kernel((rows, 4, columns), lambda x: getattr(ops, name)(x, axis=axis)) if rows > 1 or axis else
          kernel((4, 4, columns), lambda x: getattr(ops, name)(x, axis=axis)))  # fmt: skip


@CHECKED
@given(st.integers(1, 40), st.integers(1, 70))
def test_one_kernel_serves_all_sizes(rows, columns):
    n, m = arith.SizeVar("n"), arith.SizeVar("m")
    sizes = {n: rows, m: columns}
    for axis in (0, 1):
        check(kernel((n, m), lambda x, axis=axis: ops.softmax(x, axis=axis)), sizes)
        check(kernel((n, m), lambda x, axis=axis: ops.reduce_sum(x, axes=(axis,), keepdims=False)), sizes)


def test_the_identity_where_nothing_is_reduced():
    n = arith.SizeVar("n")
    check(kernel((3, n), lambda x: ops.reduce_max(x, axes=(1,), keepdims=False)), {n: 0})
    check(kernel((3, n), lambda x: ops.reduce_sum(x, axes=(1,), keepdims=False)), {n: 0})


@CHECKED
@given(st.integers(1, 9), st.integers(2, 7), st.integers(2, 7), st.integers(1, 6))
def test_normalizes_across_channels(channels, height, width, size):
    check(kernel((2, channels, height, width), lambda x: ops.lrn(x, size=size)))


@pytest.mark.parametrize("dtype", ["float64", "float16", "int32", "int64", "uint8"])
def test_element_types(dtype):
    check(kernel((3, 21), lambda x: ops.reduce_sum(x, axes=(1,), keepdims=False), dtype), tolerance=1e-3)
    check(kernel((3, 21), lambda x: ops.reduce_max(x, axes=(0,), keepdims=False), dtype))


def test_softmax_keeps_its_exponentials_in_the_result():
    scheduled = check(kernel((8, 300), lambda x: ops.softmax(x, axis=1)))
    assert scheduled.outputs[1:] == ()
    buffers = [stmt.buffer for stmt in ir.walk_stmts(scheduled.body) if isinstance(stmt, ir.Alloc)]
    assert all(buffer.scope == "register" or buffer.shape == (4,) for buffer in buffers), "a value for each of four rows"


ROWS = arith.SizeVar("rows")


@pytest.mark.parametrize(("rows", "together"), [(8, 4), (9, 3), (10, 2), (7, 1), (ROWS, 4)])
def test_rows_are_reduced_several_at_a_time(rows, together):
    """So that one row's chain of dependent steps runs beside the next one's."""
    program = kernel((rows, 50), lambda x: ops.softmax(x, axis=1))
    scheduled = check(program) if isinstance(rows, int) else offered(program).schedule(program)
    (outer,) = [stmt for stmt in ir.walk_stmts(scheduled.body) if isinstance(stmt, ir.For)][:1]
    assert arith.simplify(outer.extent - arith.ceildiv(rows, together)) == arith.ZERO


def test_rows_run_in_parallel():
    program = kernel((64, 1024), lambda x: ops.softmax(x, axis=1))
    for threads, expected in ((1, False), (2, True)):
        offer = offered(program, threads)
        assert offer is not None
        assert (ir.ForKind.PARALLEL in kinds(offer.schedule(program))) is expected


@pytest.mark.parametrize(
    "body",
    [
        lambda x: ops.matmul(x, x),
        lambda x: ops.relu(x),
        lambda x: ops.cumsum(x, axis=1),
    ],
)
def test_declines_what_is_no_row(body):
    assert offered(kernel((32, 32), body)) is None


def test_declines_windows_and_blocked_data():
    pool = kernel((1, 4, 8, 8), lambda x: ops.max_pool(x, kernel=(3, 3), strides=(2, 2), pads=(1, 1, 1, 1), dilations=(1, 1)))
    assert offered(pool) is None
    mean = kernel((1, 16, 7, 7), lambda x: ops.reduce_sum(x, axes=(2, 3), keepdims=True))
    assert offered(mean, layout=Layout(((1, 4),))) is None


def test_sums_over_channels_in_blocks_are_worth_a_copy():
    """No other rule takes them: element by element they took five times as long."""
    lrn = kernel((1, 16, 7, 7), lambda x: ops.lrn(x, size=5))
    facts, context = (InputInfo(Layout(((1, 4),))),), KernelContext(CAPABILITIES)
    taking = next(rule for rule in SHARED_RULES if rule.offer(lrn, context, facts))
    assert taking == RowsRule(copies=True)
    offer = taking.offer(lrn, context, facts)
    assert offer.layouts == (ROW_MAJOR, ROW_MAJOR)
    assert ir.ForKind.VECTORIZED in kinds(offer.schedule(lrn))


def test_collapse_merges_what_is_walked_together():
    merged = collapse(kernel((2, 3, 4, 5), lambda x: ops.reduce_sum(x, axes=(2, 3), keepdims=False)))
    assert [buffer.shape for buffer in merged.params] == [(6, 20), (6,)]
    collapsed_kernel = collapse(kernel((2, 3, 4, 5), lambda x: ops.reduce_sum(x, axes=(1, 3), keepdims=False)))
    assert [buffer.shape for buffer in collapsed_kernel.params] == [(2, 3, 4, 5), (2, 4)]
