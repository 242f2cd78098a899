"""Sorting."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inlaid import ops
from inlaid.ops.sort import TopkAttrs
from inlaid.tensor import ir, te
from inlaid.tensor.lower import lower
from inlaid_runtime import arith
from inlaid_runtime.arith import SizeVar
from inlaid_runtime.types import dtype

from .harness import check, raises_for

N, M = SizeVar("n"), SizeVar("m")
DTYPES = ("float32", "float16", "bfloat16", "float8e5m2", "float64", "int8", "uint64", "int4", "bool")


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.sampled_from((0.0, -0.0, 1.0, 2.0, -3.0, np.nan, np.inf, -np.inf)), max_size=17),
    st.sampled_from(DTYPES),
    st.booleans(),
    st.data(),
)
def test_topk_of_a_row(values: list[float], dtype_name: str, largest: bool, data: st.DataObject) -> None:
    x = np.array(values, np.float32)
    if not dtype(dtype_name).is_float:
        x = np.nan_to_num(np.abs(x), posinf=5)
    x = x.astype(dtype(dtype_name).numpy)
    k = data.draw(st.integers(0, len(x)))
    top_values, places = check(ops.topk, x, k=k, axis=0, largest=largest)

    def key(index: int) -> tuple[float, int]:
        """NaN counts as greater than infinity; of equal elements the one of lower index comes first."""
        value = float(x[index])
        order = 1e9 if np.isnan(value) else min(max(value, -1e6), 1e6)
        return (-order if largest else order), index

    assert places.tolist() == sorted(range(len(x)), key=key)[:k]
    assert top_values.tobytes() == x[places].tobytes()


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("largest", [True, False])
def test_topk_along_any_axis(axis: int, largest: bool) -> None:
    x = np.random.default_rng(0).integers(0, 5, (3, 4, 5)).astype(np.int32)
    top_values, places = check(ops.topk, x, k=2, axis=axis, largest=largest)
    assert np.array_equal(top_values, np.take_along_axis(x, places, axis))
    assert np.array_equal(top_values, np.take((np.flip(np.sort(x, axis), axis) if largest else np.sort(x, axis)), range(2), axis))


def test_topk_of_empty_tensors() -> None:
    check(ops.topk, np.zeros((0, 3), np.float32), k=2, axis=1)
    check(ops.topk, np.zeros((3, 0), np.float32), k=0, axis=1)


def test_topk_symbolic() -> None:
    x = np.random.default_rng(0).normal(size=(3, 7)).astype(np.float32)
    check(ops.topk, x, shapes=((N, M),), k=N, axis=0)
    check(ops.topk, x, shapes=((N, M),), k=5, axis=1)


def test_more_than_there_are() -> None:
    raises_for(ops.topk, "k must be 0 to 3, got 4", np.zeros(3), k=4, axis=0)


@pytest.mark.parametrize("dtype_name", DTYPES)
def test_many_elements(dtype_name: str) -> None:
    """Enough for a heap and for a radix sort, with ties, and -0.0 and NaN where there are."""
    rng = np.random.default_rng(1)
    x = rng.integers(0, 99, 150).astype(np.float64) if dtype_name == "uint64" else rng.standard_normal(150).round(1) * 5
    if dtype(dtype_name).is_float:
        x[::7], x[1::9], x[2::11] = -0.0, np.nan, 0.0
    elif dtype(dtype_name).kind in ("uint", "bool"):
        x = np.abs(x)
    values = np.clip(x, -8, 7).astype(dtype(dtype_name).numpy) if dtype_name == "int4" else x.astype(dtype(dtype_name).numpy)
    if dtype_name == "uint64":
        values[::5] += np.uint64(1 << 63)
    for k, largest in ((0, True), (3, False), (9, True), (150, True), (150, False)):
        check(ops.topk, values, k=k, axis=0, largest=largest)
    n = SizeVar("n")
    for count in (1, 16, 80, 150):
        check(ops.topk, values[:count], shapes=((n,),), k=min(count, 5), axis=0)


@pytest.mark.parametrize(
    ("shape", "k", "axis"),
    [((150, 37), 5, 0), ((67, 3, 16), 4, 0), ((2, 130, 19), 8, 1), ((2600, 17), 130, 0), ((90, 18), 40, 0), ((40, 20), 0, 0)],
)
def test_columns_side_by_side(shape: tuple[int, ...], k: int, axis: int) -> None:
    """More columns than are searched together, with rows and columns left over, few and many wanted; ties and NaN."""
    x = np.random.default_rng(2).integers(-9, 9, shape).astype(np.float32)
    x[x == 8] = np.nan
    free = tuple(SizeVar(f"d{axis_index}") if axis_index != axis else dim for axis_index, dim in enumerate(shape))
    for shapes in (None, (free,)):
        for largest in (True, False):
            top_values, places = check(ops.topk, x, k=k, axis=axis, largest=largest, shapes=shapes)
            np.testing.assert_array_equal(top_values, np.take_along_axis(x, places, axis))


def test_keys_of_columns_are_computed_along_rows() -> None:
    """One by one, from elements that lie far apart, they took twice as long."""
    program = lower(ops.topk.compute(TopkAttrs(5, 0), x := te.placeholder((256, 128), "float32")), (x,), "topk")
    for loop in ir.walk_stmts(program.body):
        match loop:
            case ir.For(var=column, body=ir.Seq(stmts=(ir.Store(buffer=ir.Buffer(name=name), value=key), *_))) if "block" in name:
                (index,) = {node.indices[-1] for node in ir.walk_exprs(key) if isinstance(node, ir.Load)}
                assert arith.simplify(index - column) == arith.simplify(arith.substitute(index, {column: arith.ZERO}))
                break
    else:
        pytest.fail("no loop computes keys of a block")
