"""Programs that are equal up to integers: the one that takes these computes what each of them does."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from inlaid.lowering.kernels.finish import finish
from inlaid.tensor import interp, ir, te
from inlaid.tensor.lower import lower
from inlaid.tensor.transform.generalize import generalize

OPERATIONS = ("add", "sub", "mul", "min", "max", "shl", "shr", "and", "or", "xor")
INPUT = np.arange(-8, 8, dtype=np.int32) * 12_345


def program(operations, numbers, extent=16, dtype="int32"):
    x = te.placeholder((extent,), "int32", "x")

    def body(i):
        value = te.cast(x[i], dtype)
        for operation, number in zip(operations, numbers, strict=True):
            value = ir.binary(operation, value, ir.const(number, dtype))
        return te.cast(te.select(value < numbers[0], value, ir.const(numbers[-1], dtype)), "int32")

    return finish(lower([te.compute((extent,), body, "y")], [x], "program"))


NUMBERS = st.one_of(st.integers(-2, 3), st.integers(-(1 << 31), (1 << 31) - 1))


@settings(max_examples=50, deadline=None)
@given(st.lists(st.sampled_from(OPERATIONS), min_size=1, max_size=3), st.data(), st.sampled_from(["int32", "int64"]))
def test_members_of_a_group_are_what_they_were(operations, data, dtype):
    number_lists = [data.draw(st.lists(NUMBERS, min_size=len(operations), max_size=len(operations))) for _ in range(3)]
    programs = [program(operations, numbers, dtype=dtype) for numbers in number_lists]
    groups = generalize(programs, 8)
    assert sorted(number for general in groups for number in general.members) == [0, 1, 2]
    for general in groups:
        for number, values in general.members.items():
            sizes = dict(zip(general.program.sizes, values, strict=True))
            (actual,), (expected,) = interp.run(general.program, [INPUT], sizes), interp.run(programs[number], [INPUT])
            np.testing.assert_array_equal(actual, expected)


def test_integers_that_always_go_together_are_one():
    (general,) = generalize([program(("add", "max"), (number, number)) for number in (7, -5, 7)], 1)
    assert general.members == {0: (7,), 1: (-5,), 2: (7,)}
    assert [(size.lower, size.upper) for size in general.program.sizes] == [(-5, 7)]


def test_shapes_divisors_and_too_many_integers_keep_programs_apart():
    for one, two, limit in (
        (program(("add",), (1,), 16), program(("add",), (2,), 17), 8),
        (program(("div",), (3,)), program(("div",), (5,)), 1),
        (program(("add",), (1,)), program(("sub",), (2,)), 8),
        (program(("add", "mul"), (1, 2)), program(("add", "mul"), (3, 4)), 1),
    ):
        first, second = generalize([one, two], limit)
        assert (first.program, second.program) == (one, two)
        assert (first.members, second.members) == ({0: ()}, {1: ()})
