"""Matrix products: every schedule computes the same, whatever the sizes, operands and threads."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inlaid import ops
from inlaid.graph import ir as graph
from inlaid.lowering.kernels.finish import finish
from inlaid.lowering.kernels.kernel import KernelSource, build
from inlaid.plugins import Capabilities, Core, CostConstants
from inlaid.schedules.matmul import MatmulRule
from inlaid.schedules.register_tile import Tile, choose_tile, cycles, fits
from inlaid.tensor import interp, ir
from inlaid.tensor.primitives import PREFETCH, SEMANTICS
from inlaid.tensor.scheduling.rule import InputInfo, KernelContext
from inlaid_runtime import arith
from inlaid_runtime.arith import SizeVar
from inlaid_runtime.types import ROW_MAJOR, TensorType

CORE = Core()
CAPABILITIES = Capabilities(dtypes=("float32",), vector_bits=128, vector_registers=16)
CHECKED = settings(max_examples=25, deadline=None)


def product(a, b, bias=False):
    left, right = graph.var("a", TensorType(a, "float32")), graph.var("b", TensorType(b, "float32"))
    y = ops.matmul(left, right)
    params = [left, right]
    if bias:
        params.append(graph.var("bias", TensorType(b[-1:], "float32")))
        y = ops.relu(ops.add(y, params[-1]))
    return build(KernelSource("kernel", tuple(params), y))


def check(program, threads=1, constant=False, shapes=None, capabilities=CAPABILITIES):
    """The scheduled kernel must equal the unscheduled one on small integers, where sums are exact."""
    facts = tuple(InputInfo(ROW_MAJOR, constant and number == 1) for number in range(len(program.inputs)))
    offer = MatmulRule().offer(program, KernelContext(capabilities, threads), facts)
    assert offer is not None, "the rule declines"
    scheduled = finish(offer.schedule(program))
    generator = np.random.default_rng(3)
    shapes = shapes or [buffer.shape for buffer in program.inputs]
    arrays = [generator.integers(-4, 5, shape).astype(np.float32) for shape in shapes]
    expected = interp.run(program, arrays)[0]
    packed = [layout.pack(array) for layout, array in zip(offer.layouts, arrays, strict=False)]
    sizes = {}
    for array, old, new in zip(packed, program.inputs, scheduled.inputs, strict=True):
        sizes.update((a, b) for a, b in zip(old.shape, array.shape, strict=False) if isinstance(a, SizeVar))
        assert array.ndim >= len(new.shape)
    flat = [
        array.reshape([dim if isinstance(dim, int) else -1 for dim in new.shape]) if array.ndim > len(new.shape) else array
        for array, new in zip(packed, scheduled.inputs, strict=True)
    ]
    actual = interp.run(scheduled, flat, sizes, SEMANTICS)[0]
    assert np.array_equal(actual.reshape(expected.shape), expected)
    return scheduled


def kinds(program):
    return {stmt.kind for stmt in ir.walk_stmts(program.body) if isinstance(stmt, ir.For)}


@CHECKED
@given(st.integers(1, 40), st.integers(2, 9), st.integers(4, 70), st.booleans(), st.booleans(), st.integers(1, 2))
def test_products_compute_the_same(m, k, n, bias, constant, threads):
    check(product((m, k), (k, n), bias), threads, constant)


def test_products_of_no_rows_are_declined():
    assert MatmulRule().offer(product((0, 5), (5, 16)), KernelContext(CAPABILITIES, 1), (InputInfo(ROW_MAJOR, False),) * 2) is None


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(("m", "k", "n"), [(64, 3, 40), (65, 5, 33), (67, 2, 19)])
def test_right_operands_are_packed_before_use(m, k, n, threads):
    packing = replace(CAPABILITIES, core=replace(CORE, costs=CostConstants(packed_share=0)))
    scheduled = check(product((m, k), (k, n), True), threads, capabilities=packing)
    copies = [s for s in ir.walk_stmts(scheduled.body) if isinstance(s, ir.Store) and s.buffer not in scheduled.outputs[:1]]
    assert any(isinstance(copy.value, ir.Load) and copy.value.buffer is scheduled.inputs[1] for copy in copies)


@pytest.mark.parametrize("shapes", [((3, 5, 6), (3, 6, 8)), ((2, 3, 5, 6), (6, 8)), ((6,), (6, 8)), ((2, 1, 5, 6), (3, 6, 8))])
@pytest.mark.parametrize("threads", [1, 2])
def test_batches_compute_the_same(shapes, threads):
    check(product(*shapes), threads)


def test_rows_of_all_leading_dimensions_are_one():
    scheduled = check(product((9, 1, 4), (4, 8), True), constant=True)
    assert scheduled.outputs[0].shape == (9, 8)


@CHECKED
@given(st.integers(1, 30), st.integers(1, 2), st.booleans(), st.sampled_from([None, 30, 31, 64]))
def test_rows_need_not_be_known(rows, threads, constant, upper_bound):
    length = SizeVar("length", 1, upper_bound)
    program = product((length, 5), (5, 24), True)
    check(program, threads, constant, [(rows, 5), (5, 24), (24,)])


@CHECKED
@given(st.integers(1, 9), st.integers(1, 40), st.sampled_from([None, 40, 64]))
def test_columns_need_not_be_known(rows, columns, upper_bound):
    check(product((rows, 5), (5, SizeVar("width", 1, upper_bound))), 1, False, [(rows, 5), (5, columns)])


@pytest.mark.parametrize("columns", [19, SizeVar("width", 1)])
def test_sums_of_last_columns_are_not_masked(columns):
    scheduled = check(product((9, 5), (5, columns)), shapes=[(9, 5), (5, 19)])
    vectors = [s for s in ir.walk_stmts(scheduled.body) if isinstance(s, ir.For) and s.kind is ir.ForKind.VECTORIZED]
    cut = [loop.body.then for loop in vectors if isinstance(loop.body, ir.If)]
    assert cut and all(isinstance(store, ir.Store) and store.buffer in scheduled.outputs for store in cut)


@CHECKED
@given(st.integers(1, 9), st.integers(1, 9), st.integers(1, 2))
def test_nothing_need_be_known(rows, depth, threads):
    m, k, n = (SizeVar(name, 1) for name in "mkn")
    check(product((m, k), (k, n)), threads, False, [(rows, depth), (depth, 11)])


def test_constant_panels_are_fetched_ahead():
    scheduled = check(product((16, 8), (8, 48)), constant=True)
    assert any(isinstance(stmt, ir.Intrinsic) and stmt.name == PREFETCH for stmt in ir.walk_stmts(scheduled.body))


@pytest.mark.parametrize(("upper_bound", "spread"), [(None, True), (6, False)])
def test_panels_for_many_rows_are_fetched_bit_by_bit(upper_bound, spread):
    """What is asked for of the next panel depends on the tile of rows, unless one or two tiles are expected."""
    scheduled = check(product((SizeVar("rows", 1, upper_bound), 8), (8, 96)), 1, True, [(5, 8), (8, 96)])
    asking = [stmt for stmt in ir.walk_stmts(scheduled.body) if isinstance(stmt, ir.Intrinsic) and stmt.name == PREFETCH]
    columns_rows_depth = frozenset().union(*(arith.free_vars(first) for first, _ in asking[0].regions[0].ranges))
    assert len(columns_rows_depth) == (3 if spread else 2)


def test_products_of_few_columns_are_declined():
    program = product((4, 4), (4, 1))
    assert MatmulRule().offer(program, KernelContext(CAPABILITIES), (InputInfo(ROW_MAJOR),) * 2) is None


@CHECKED
@given(st.integers(1, 400), st.integers(1, 400), st.sampled_from([(16, 32), (8, 16), (4, 16)]))
def test_tiles_fit_registers(m, n, machine):
    lanes, registers = machine
    tile = choose_tile(m, n, 64, lanes, registers, CORE)
    assert tile.rows == 1 or fits(tile.rows, tile.vectors, registers)


def test_tiles_leave_no_single_row():
    tile = choose_tile(197, 768, 768, 16, 32, CORE)
    assert cycles(197, 768, 768, tile, CORE) < cycles(197, 768, 768, Tile(16, 2, 14), CORE)
    assert choose_tile(1, 768, 768, 16, 32, CORE) == Tile(16, 8, 1)


def test_panels_that_rows_share_stay_in_cache():
    tile = choose_tile(128, 768, 3072, 16, 32, CORE)
    assert 4 * 3072 * tile.width <= CORE.costs.panel_share * CORE.l2_bytes
    assert choose_tile(1, 768, 3072, 16, 32, CORE).vectors == 8, "one row reads each panel once"
    assert choose_tile(1, 1024, 3072, 16, 32, CORE, unpacked=True).vectors == 16, "long pieces of rows that lie far apart"
    assert choose_tile(1, 1024, 3072, 8, 16, CORE, unpacked=True).vectors <= 14, "sums stay in registers"
    assert choose_tile(1, 96, 3072, 16, 32, CORE, unpacked=True).vectors == 6
    assert choose_tile(128, 768, 768, 16, 32, CORE, unpacked=True) == choose_tile(128, 768, 768, 16, 32, CORE)


def test_the_core_decides():
    """A tile has as many rows as its first-level cache has ways, and panels that stay in its second-level cache."""
    assert choose_tile(197, 768, 768, 16, 32, replace(CORE, l1_ways=4)).rows <= 4
    small_l2 = replace(CORE, l2_bytes=1 << 18, l3_load=20)
    assert 4 * 3072 * choose_tile(128, 768, 3072, 16, 32, small_l2).width <= CORE.costs.panel_share * small_l2.l2_bytes
    assert 4 * 3072 * choose_tile(128, 768, 3072, 16, 32, CORE).width > CORE.costs.panel_share * small_l2.l2_bytes


def test_rows_in_the_same_sets_make_tiles_lower():
    assert choose_tile(1024, 1024, 1024, 16, 32, CORE).rows < choose_tile(1024, 1040, 1040, 16, 32, CORE).rows


@CHECKED
@given(st.integers(1, 9), st.integers(0, 20), st.integers(4, 40))
def test_depth_need_not_be_known(rows, depth, columns):
    length, keys = SizeVar("length", 0), SizeVar("keys", 0)
    check(product((2, length, keys), (2, keys, columns)), 1, False, [(2, rows, depth), (2, depth, columns)])


@pytest.mark.parametrize("columns", [24, 70])
def test_one_row_of_a_symbolic_number_has_a_version(columns):
    program = product((SizeVar("length", 0), 5), (5, columns), True)
    offer = MatmulRule().offer(
        program, KernelContext(CAPABILITIES, 1), tuple(InputInfo(ROW_MAJOR, number == 1) for number in range(3))
    )
    (version,) = offer.versions
    generator = np.random.default_rng(0)
    for rows in (0, 1, 3):
        assert arith.evaluate(version.condition, {program.inputs[0].shape[0]: rows}) == (rows == 1)
        arrays = [generator.integers(-4, 5, shape).astype(np.float32) for shape in ((rows, 5), (5, columns), (columns,))]
        packed = [layout.pack(array) for layout, array in zip(offer.layouts, arrays, strict=False)]
        for schedule in (offer.schedule, version.schedule):
            actual = interp.run(finish(schedule(program)), packed, {}, SEMANTICS)[0]
            assert np.array_equal(actual, interp.run(program, arrays)[0])


def test_rows_of_symbolic_number_are_tiled_for_several():
    assert choose_tile((2, 4, 8, 16, 32, 64, 128), 768, 768, 8, 16, CORE).rows == 4
