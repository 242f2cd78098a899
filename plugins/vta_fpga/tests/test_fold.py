"""Nests of loops folded into registers and micro-ops do what the loops do."""

from __future__ import annotations

from collections import Counter
from itertools import product

from hypothesis import given, settings
from hypothesis import strategies as st

from inlaid_vta_fpga.compiler.fold import Dim, fold

STEPS = st.tuples(st.sampled_from([0, 0, 1, 2, 5, 12]), st.sampled_from([0, 1, 3, 8]), st.sampled_from([-3, 0, 1, 9]))
DIMS = st.lists(st.builds(Dim, st.integers(1, 6), STEPS), max_size=4)


@settings(deadline=None, max_examples=150)
@given(DIMS, st.sampled_from([1, 8, 1024]))
def test_every_iteration_runs_once_and_no_destination_repeats_early(dims: list[Dim], limit: int) -> None:
    limits = (2047, 2047, 1023)
    folded = fold(dims, limits, limit)
    assert len(folded.offsets) <= limit
    assert all(0 <= step <= limit for loop in (folded.out, folded.inner) for step, limit in zip(loop.steps, limits, strict=True))
    actual: Counter[tuple[int, ...]] = Counter()
    for start in folded.starts:
        run = [
            tuple(start[n] + offset[n] + i * folded.out.steps[n] + j * folded.inner.steps[n] for n in range(3))
            for i in range(folded.out.extent)
            for j in range(folded.inner.extent)
            for offset in folded.offsets
        ]
        actual.update(run)
        assert all(run[n][0] != run[n - back][0] for back in (1, 2) for n in range(back, len(run)))
    expected = Counter(
        tuple(sum(dim.steps[n] * at for dim, at in zip(dims, ats, strict=True)) for n in range(3))
        for ats in product(*(range(dim.extent) for dim in dims))
    )
    assert actual == expected


def test_a_convolution_takes_two_loops_and_few_micro_ops() -> None:
    """4 output blocks, 14 x 28 outputs, 3 x 3: the columns and the rows go to the registers."""
    dims = [Dim(4, (392, 0, 9)), Dim(3, (0, 30, 3)), Dim(3, (0, 1, 1)), Dim(14, (28, 30, 0)), Dim(28, (1, 1, 0))]
    folded = fold(dims, (2047, 2047, 1023), 1024)
    assert {folded.out.extent, folded.inner.extent} == {14, 28}
    assert len(folded.offsets) == 36
    assert len(folded.starts) == 1


def test_contiguous_loops_are_one() -> None:
    folded = fold([Dim(4, (56, 56)), Dim(7, (8, 8)), Dim(8, (1, 1))], (2047, 2047), 1024)
    assert (folded.out.extent * folded.inner.extent, len(folded.offsets)) == (224, 1)


def test_one_accumulator_takes_an_instruction_for_each_product() -> None:
    assert len(fold([Dim(6, (0, 1, 1))], (2047, 2047, 1023), 1024).starts) == 6
