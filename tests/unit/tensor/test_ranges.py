"""What values integers can have: never less than they do have, and programs that are narrowed by it compute the same."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from inlaid.tensor import interp, ir, te
from inlaid.tensor.analysis.ranges import Ranges, narrow
from inlaid.tensor.build import Builder
from inlaid.tensor.lower import lower
from inlaid_runtime import arith
from inlaid_runtime.types import dtype

OPERATIONS = ("add", "sub", "mul", "min", "max", "div", "mod", "shl", "shr", "and", "or", "xor")


def find_store(program):
    return next(stmt for stmt in ir.walk_stmts(program.body) if isinstance(stmt, ir.Store))


def pointwise(body, *types):
    tensors = [te.placeholder((16,), dtype_name, f"x{number}") for number, dtype_name in enumerate(types)]
    program = lower([te.compute((16,), lambda i: body(*(x[i] for x in tensors)), "y")], tensors, "program")
    # As code generators see it: plain loops.
    from inlaid.lowering.kernels.finish import finish

    return finish(program)


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.sampled_from(OPERATIONS), min_size=1, max_size=4), st.integers(0, 1000), st.sampled_from(["int8", "uint8", "int32"])
)
def test_ranges_hold_and_narrowing_changes_nothing(operations, seed, dtype_name):
    rng = np.random.default_rng(seed)
    low, high = sorted(int(value) for value in rng.integers(-9, 40, 2))
    bounds = (low, high)

    def body(a, b):
        value, other = te.cast(a, "int64"), te.cast(b, "int64")
        for operation in operations:
            value = ir.binary(operation, value, other)
        return te.cast(te.minimum(te.maximum(value, -(1 << 20)), 1 << 20), "int32")

    program = pointwise(body, dtype_name, "int32")
    first = rng.integers(*dtype(dtype_name).limits, 16, dtype=dtype(dtype_name).numpy, endpoint=True)
    second = rng.integers(low, high, 16, np.int32, endpoint=True)
    (expected,) = interp.run(program, [first, second])
    ranges = {program.inputs[1]: bounds}
    least, greatest = Ranges(program, ranges).infer(find_store(program).value)
    assert least <= expected.min() and expected.max() <= greatest
    (actual,) = interp.run(narrow(program, ranges), [first, second])
    np.testing.assert_array_equal(actual, expected)


def test_requantization_is_left_with_what_it_needs():
    """Shifts that only go to the right need none to the left, clips that cannot clip go, and what 32 bits hold is in 32 bits."""

    def body(total, shift):
        high = te.cast(total, "int64") >> 3
        clipped = te.minimum(te.maximum(high, -(1 << 31)), (1 << 31) - 1)
        return te.cast(clipped, "int32") << te.maximum(shift, 0)

    program = pointwise(body, "int32", "int32")
    value = find_store(narrow(program, {program.inputs[1]: (-9, -2)})).value
    nodes = list(ir.walk_exprs(value))
    assert not any(isinstance(node, ir.Binary) and node.op in ("shl", "min", "max") for node in nodes)


def summing(buffer_dtype, times):
    """A local sum of `times` products of bytes, in each of four rounds."""
    b = Builder()
    x, y = ir.Buffer("x", (times,), dtype("int8")), ir.Buffer("y", (4,), dtype(buffer_dtype))
    with b.loop(4, "i") as i:
        total = b.alloc((1,), buffer_dtype, "total")
        b.store(total, (0,), te.const(0, buffer_dtype))
        with b.loop(times, "k") as k:
            b.store(total, (0,), total[0] + te.cast(x[k], buffer_dtype) * te.cast(x[k], buffer_dtype))
        b.store(y, (i,), total[0])
    return ir.LoopProgram("summing", (x,), (y,), b.finish())


def test_sums_are_as_large_as_their_loops_make_them():
    program = summing("int32", 100)
    last = [stmt for stmt in ir.walk_stmts(program.body) if isinstance(stmt, ir.Store)][-1]
    assert Ranges(program).infer(last.value) == (-100 * 128 * 127, 100 * 128 * 128)
    adding = [stmt for stmt in ir.walk_stmts(program.body) if isinstance(stmt, ir.Store)][1]
    assert Ranges(program).exact(adding.value)
    # 16 bits do not hold them: nothing is known of the sum then.
    short = summing("int16", 100)
    adding = [stmt for stmt in ir.walk_stmts(short.body) if isinstance(stmt, ir.Store)][1]
    assert not Ranges(short).exact(adding.value)


def test_comparisons_of_one_element_are_folded():
    """Compilers warn about `x[0] < x[0]`, which index simplification makes of two elements whose indices are clamped."""
    results = ("smaller", "not_smaller", "equal", "greatest", "nan")
    x, y = ir.Buffer("x", (4,), dtype("int32")), ir.Buffer("y", (4,), dtype("float32"))
    outputs = [ir.Buffer(name, (4,), dtype("int32" if name == "greatest" else "bool")) for name in results]
    b = Builder()
    with b.loop(4, "i") as i:
        other = arith.minimum(i, 3)
        compared = (x[i] < x[other], x[i] <= x[other], x[i].equal(x[other]), te.maximum(x[i], x[other]), y[i].equal(y[other]))
        for output, value in zip(outputs, compared, strict=True):
            b.store(output, (i,), value)
    program = narrow(ir.LoopProgram("same", (x, y), tuple(outputs), b.finish()))
    values = [stmt.value for stmt in ir.walk_stmts(program.body) if isinstance(stmt, ir.Store)]
    assert [value.value for value in values[:3] if isinstance(value, ir.Const)] == [False, True, True]
    assert isinstance(values[3], ir.Load)
    assert isinstance(values[4], ir.Binary)  # false for NaN
