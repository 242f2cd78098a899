"""Layered drawings of graphs."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from inlaid.partitioning.layered import LONGEST, _spread, draw


@st.composite
def graphs(pick: st.DrawFn) -> list[list[int]]:
    """What each node reads of the nodes before it."""
    count = pick(st.integers(0, 40))
    return [pick(st.lists(st.integers(0, node - 1), max_size=3)) if node else [] for node in range(count)]


@given(graphs())
@settings(max_examples=50, deadline=None)
def test_every_node_is_below_what_it_reads_and_beside_its_neighbors(reads: list[list[int]]) -> None:
    drawing = draw(reads)
    assert len(drawing.columns) == len(drawing.layers) == len(reads)
    assert {(source, reader) for source, reader, _ in drawing.edges} == {(s, r) for r, sources in enumerate(reads) for s in sources}
    columns_by_layer: dict[int, list[float]] = {}
    for column, layer in zip(drawing.columns, drawing.layers, strict=True):
        columns_by_layer.setdefault(layer, []).append(column)
    for source, reader, path in drawing.edges:
        between = drawing.layers[reader] - drawing.layers[source] - 1
        assert between >= 0 and len(path) == (between if between <= LONGEST else 0)
        for step, column in enumerate(path):
            columns_by_layer.setdefault(drawing.layers[source] + 1 + step, []).append(column)
    for columns in columns_by_layer.values():
        assert np.all(np.diff(sorted(columns)) >= 1 - 1e-6)


def test_what_reads_nothing_is_right_above_its_reader() -> None:
    assert draw([[], [0], [1], [], [2, 3]]).layers == (0, 1, 2, 2, 3)


def test_a_chain_is_a_straight_line() -> None:
    assert len(set(draw([[], [0], [1], [2]]).columns)) == 1


def test_branches_do_not_cross() -> None:
    left, right = 1, 2
    drawing = draw([[], [0], [0], [right], [left], [3, 4]])
    assert (drawing.columns[left] < drawing.columns[right]) == (drawing.columns[4] < drawing.columns[3])


@given(st.lists(st.floats(-20, 20, width=32), min_size=1, max_size=8))
@settings(max_examples=50, deadline=None)
def test_places_are_the_nearest_that_keep_the_order(targets: list[float]) -> None:
    positions = np.array(_spread(targets))
    assert np.all(np.diff(positions) >= 1 - 1e-6)
    best = float(np.sum((positions - targets) ** 2))
    generator = np.random.default_rng(0)
    for _ in range(20):
        other = np.sort(positions + generator.normal(0, 0.5, len(targets)) - np.arange(len(targets))) + np.arange(len(targets))
        assert best <= float(np.sum((other - targets) ** 2)) + 1e-6
