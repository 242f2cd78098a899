"""The choice of layouts over a region, and the assignment that it reduces to, against trying everything."""

from __future__ import annotations

import random
from itertools import product

from hypothesis import given, settings
from hypothesis import strategies as st

from inlaid.lowering.selection.assignment import Assignment
from inlaid.lowering.selection.layouts import LayoutChoice, Option
from inlaid_runtime.types import ROW_MAJOR, Layout, dtype

F32 = dtype("float32")
BY_8, BY_16 = Layout(((1, 8),)), Layout(((1, 16),))
LAYOUTS = (ROW_MAJOR, BY_8, BY_16)
SHAPE = (1, 32, 5, 7)
BANDWIDTH, CALL = 1e9, 2e-7
COPY = CALL + 2 * 4 * 32 * 35 / BANDWIDTH


def total(costs, edges, chosen):
    return sum(cost[option] for cost, option in zip(costs, chosen, strict=True)) + sum(
        matrix[chosen[a]][chosen[b]] for (a, b), matrix in edges.items()
    )


def problem(generator, count, links):
    """Random costs; `links` are the pairs of nodes with costs of their own."""
    costs = [[generator.randint(0, 9) for _ in range(generator.randint(1, 3))] for _ in range(count)]
    edges = {(a, b): tuple(tuple(generator.choice([0, 1, 5, 9]) for _ in costs[b]) for _ in costs[a]) for a, b in links}
    return costs, edges


def solved(costs, edges):
    assignment = Assignment()
    for cost in costs:
        assignment.node(cost)
    for (a, b), matrix in edges.items():
        assignment.edge(a, b, matrix)
    return assignment.solve()


def least(costs, edges):
    return min(total(costs, edges, chosen) for chosen in product(*(range(len(cost)) for cost in costs)))


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 7))
def test_trees_are_solved_exactly(seed, count):
    generator = random.Random(seed)
    links = [(generator.randrange(number), number) for number in range(1, count)]
    costs, edges = problem(generator, count, links)
    assert total(costs, edges, solved(costs, edges)) == least(costs, edges)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 3))
def test_what_branches_and_joins_again_is_solved_exactly(seed, diamonds):
    generator = random.Random(seed)
    links = [link for at in range(0, 3 * diamonds, 3) for link in ((at, at + 1), (at, at + 2), (at + 1, at + 3), (at + 2, at + 3))]
    costs, edges = problem(generator, 3 * diamonds + 1, links)
    assert total(costs, edges, solved(costs, edges)) == least(costs, edges)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6))
def test_other_graphs_get_a_choice_that_is_near(seed):
    generator = random.Random(seed)
    links = [(a, b) for a in range(6) for b in range(a + 1, 6)]
    costs, edges = problem(generator, 6, links)
    chosen = solved(costs, edges)
    assert all(0 <= option < len(cost) for option, cost in zip(chosen, costs, strict=True))
    assert total(costs, edges, chosen) <= 2 * least(costs, edges) + 10


def test_long_chains_take_linear_time():
    count = 20000
    assignment = Assignment()
    for _ in range(count):
        assignment.node([1.0, 0.0])
    for number in range(1, count):
        assignment.edge(number - 1, number, ((0.0, 9.0), (9.0, 0.0)))
    assert assignment.solve() == [1] * count


class Recorded:
    """A choice, and the same again to be charged by trying every combination."""

    def __init__(self):
        self.choice = LayoutChoice(BANDWIDTH, CALL)
        self.steps = []
        self.written = {}

    def step(self, inputs, outputs, options):
        values = self.choice.step(inputs, [(SHAPE, F32)] * outputs, options)
        for output_index, value in enumerate(values):
            self.written[value] = (len(self.steps), len(inputs) + output_index)
        self.steps.append((inputs, options))
        return values

    def charge(self, chosen):
        """Seconds of kernels and of copies, each made once."""
        seconds = sum(options[option].cost for (_, options), option in zip(self.steps, chosen, strict=True))
        copies = set()
        for (inputs, options), option in zip(self.steps, chosen, strict=True):
            for value, layout in zip(inputs, options[option].layouts, strict=False):
                writer, output_index = self.written[value]
                if self.steps[writer][1][chosen[writer]].layouts[output_index] != layout:
                    copies.add((value, layout))
        return seconds + COPY * len(copies)


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 5), st.booleans())
def test_the_choice_equals_trying_everything(seed, count, chain):
    generator = random.Random(seed)
    recorded = Recorded()
    values = list(recorded.step((), 1, (Option((ROW_MAJOR,)),)))
    for _ in range(count):
        inputs = (values[-1],) if chain else tuple(generator.sample(values, min(len(values), generator.randint(1, 2))))
        options = tuple(
            Option(tuple(generator.choice(LAYOUTS) for _ in range(len(inputs) + 1)), generator.choice([0.0, 0.5, 3.0]) * COPY)
            for _ in range(generator.randint(1, 3))
        )
        values += recorded.step(inputs, 1, options)
    recorded.step((values[-1],), 0, (Option((ROW_MAJOR,)),))
    chosen = recorded.choice.solve()
    least = min(recorded.charge(each) for each in product(*(range(len(options)) for _, options in recorded.steps)))
    cost = recorded.charge(chosen)
    assert cost >= least * 0.999999
    # Chains are solved exactly, and so are most graphs as small as these; none is far off.
    assert cost <= least * 1.000001 if chain else cost <= least + 1.5 * COPY


def test_copies_that_readers_share_are_charged_once():
    recorded = Recorded()
    (x,) = recorded.step((), 1, (Option((ROW_MAJOR,)),))
    both = (Option((ROW_MAJOR,), 0.6 * COPY), Option((BY_8,), 0.0))
    recorded.step((x,), 0, both)
    recorded.step((x,), 0, both)
    assert recorded.choice.solve() == [0, 1, 1]


def test_layouts_that_are_the_same_bytes_need_no_copy():
    choice = LayoutChoice(BANDWIDTH, CALL)
    (x,) = choice.step((), [((1, 32, 1, 1), F32)], (Option((BY_16,)),))
    choice.step((x,), (), (Option((ROW_MAJOR,), 1e-12), Option((BY_16,), 1e-9)))
    assert choice.solve() == [0, 0]
