"""Symbolic and existential sizes in native code."""

from __future__ import annotations

import numpy as np
import pytest
from tests.computed_relations import CASES, check_executable, check_target

from inlaid import ops
from inlaid.driver.compile import build_package, compile_module
from inlaid.graph.ir import Module, constant, function, loop, tuple_, tuple_item, var
from inlaid_runtime import load
from inlaid_runtime.arith import SizeVar
from inlaid_runtime.errors import InputError, KernelFault
from inlaid_runtime.execution import layout
from inlaid_runtime.execution.package import write_package
from inlaid_runtime.types import TensorType
from inlaid_x86_runtime.cpu import LEVELS

pytestmark = pytest.mark.usefixtures("host")

N, M = SizeVar("n"), SizeVar("m")


@pytest.mark.parametrize("target", ["x86:threads=1", "x86:threads=1,check=true"])
def test_an_extent_that_may_be_negative_for_all_that_its_expression_says(target: str) -> None:
    """The buffer of a computed size has an extent n - 2."""
    x, ends = var("x", TensorType((M, N), "float32")), var("ends", TensorType((1,), "int64"))
    rows = ops.avg_pool(ops.reshape(x, shape=(1, M, N)), kernel=(3,))
    part = ops.dynamic_slice(rows, constant(np.zeros(1, np.int64)), ends, axes=(1,), strides=(1,))
    executable = compile_module(Module({"main": function([x, ends], part)}), [target])
    for shape, end in (((3, 5), 2), ((4, 3), 9), ((2, 7), 0)):
        value = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
        (result,) = executable.run({"x": value, "ends": np.array([end])}).values()
        assert np.array_equal(result, value[None, :end, 1:-1])


def test_sizes_as_values() -> None:
    """Kernels read sizes that none of their buffers has; two that differ only in these are two kernels."""
    x = var("x", TensorType((N, M), "float32"))
    indices, negative = ops.nonzero(x), ops.nonzero(ops.less(x, ops.neg(x)))
    counts = [ops.sizes(dims=(item.type.shape[1],)) for item in (indices, negative)]
    results = [indices, negative, *counts, ops.sizes(dims=(N, M)), ops.sizes(dims=(M, N)), ops.iota(shape=(N * 2,))]
    executable = compile_module(Module({"main": function([x], tuple_(results))}), ["x86:threads=1"])
    assert [info.target for info in executable.package.program.regions] == ["x86:threads=1"]
    for shape in ((3, 5), (4, 0), (1, 1)):
        value = np.round(np.random.default_rng(1).normal(size=shape)).astype(np.float32)
        everything, below, count, count_below, forward, backward, counted = executable.run({"x": value}).values()
        assert np.array_equal(everything, np.array(np.nonzero(value)))
        assert np.array_equal(below, np.array(np.nonzero(value < 0)))
        assert (count.tolist(), count_below.tolist()) == ([np.count_nonzero(value)], [np.count_nonzero(value < 0)])
        assert (forward.tolist(), backward.tolist()) == (list(shape), list(shape[::-1]))
        assert counted.tolist() == list(range(2 * shape[0]))


def test_buffers_of_sizes_that_fall() -> None:
    """A buffer whose extent is the greater the fewer elements are found is as large as for none."""
    x = var("x", TensorType((64,), "float32"))
    indices = ops.nonzero(x)
    count = indices.type.shape[1]
    for extent, greatest, least in ((5000 - count * 50, 5000, 1800), ((100 - count) // 3, 33, 12), (count * 3 + 2, 2, 194)):
        total = ops.after(ops.reduce_sum(x, axes=(0,)), indices)
        body = ops.softmax(ops.full(total, shape=(extent,)), axis=0)
        executable = compile_module(Module({"main": function([x], body)}), ["x86:threads=1,check=true"])
        for value, length in ((0, greatest), (1, least)):
            (result,) = executable.run({"x": np.full(64, value, np.float32)}).values()
            np.testing.assert_allclose(result, np.full(length, 1 / length), rtol=1e-5)


def test_what_sizes_decide_is_worked_out_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a region that works out sizes, also where runs find others; what these must satisfy is checked in each run."""
    x, y = var("x", TensorType((N,), "float32")), var("y", TensorType((M,), "float32"))
    indices = ops.nonzero(x)
    body = ops.add(ops.cast(ops.reshape(indices, shape=(indices.type.shape[1],)), dtype="float32"), y)
    executable = compile_module(Module({"main": function([x, y], tuple_([indices, body]))}), ["x86:threads=1"])

    def check(length: int, count: int) -> None:
        feeds = {"x": (np.arange(length) < count).astype(np.float32), "y": np.ones(count, np.float32)}
        places, total = executable.run(feeds).values()
        assert np.array_equal(places, np.array(np.nonzero(feeds["x"])))
        assert total.tolist() == [index + 1.0 for index in range(count)]

    sizes = [(7, 5), (7, 2), (9, 5), (0, 0), *((length, 3) for length in range(3, 40))]
    for length, count in sizes:
        check(length, count)
    monkeypatch.setattr(layout, "region_workspace", None)
    for length, count in sizes[-2:]:
        check(length, count)
    with pytest.raises((InputError, KernelFault)):
        executable.run({"x": np.ones(39, np.float32), "y": np.ones(3, np.float32)})


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_relations_of_computed_sizes(case, tmp_path) -> None:
    """With `check=true`, a kernel that ran at sizes which violate a condition would report an access out of bounds."""
    check_target(case, "x86:threads=1,check=true")
    package = build_package(case.module(), ["x86:threads=1"])
    write_package(package, tmp_path / "model.inlaid")
    check_executable(case, load(tmp_path / "model.inlaid"))


def test_loops_that_checks_may_end_early() -> None:
    """LLVM counts their iterations in 65 bits, and divides numbers of that width."""
    x = var("x", TensorType((13, N), "uint8"))
    executable = compile_module(Module({"main": function([x], ops.transpose(x, perm=(1, 0)))}), ["x86:threads=1,check=true"])
    for size in (0, 1, 7, 8, 29, 64, 71):
        value = np.random.default_rng(size).integers(0, 256, (13, size), np.uint8)
        np.testing.assert_array_equal(executable.run({"x": value})["output0"], value.T)


def test_checked_results_of_sizes_that_another_kernel_bounds() -> None:
    """The kernel of the slice does not have the sizes that bound its result: those of the array whose elements are counted."""
    x, end = var("x", TensorType((N, M), "float32")), var("end", TensorType((1,), "int64"))
    positions = ops.dynamic_slice(ops.nonzero(x), constant([0]), end, axes=(1,), strides=(2,))
    executable = compile_module(Module({"main": function([x, end], positions)}), ["x86:threads=1,check=true"])
    for value, last in ((np.eye(3, 4), 9), (np.ones((2, 5)), 7), (np.zeros((2, 2)), 1)):
        feeds = {"x": value.astype(np.float32), "end": np.array([last])}
        np.testing.assert_array_equal(executable.run(feeds)["output0"], np.array(np.nonzero(value))[:, :last:2])


@pytest.mark.parametrize("looped", [False, True])
def test_bounds_of_sizes_that_another_region_computes(looped: bool) -> None:
    """The memory of a region depends on a size that no shape of its inputs has: it bounds the size of one of them."""
    x = var("x", TensorType((N, 3), "int64"))
    nonzero = ops.nonzero(x)
    small = ops.less(ops.reduce_sum(nonzero, axes=(0, 1)), constant(np.int64(99)))
    where = ops.after(nonzero, ops.assert_true(small, message="too many"))
    if looped:
        i, state = var("i", TensorType((), "int64")), var("state", where.type)
        total = ops.reduce_sum(ops.dynamic_slice(x, constant([0]), constant([9]), axes=(0,), strides=(1,)), axes=(0, 1))
        body = function([i, state], tuple_([constant(True), ops.add(state, total)]))
        result = tuple_item(loop(body, state=[where], trip_count=constant(np.int64(2))), 0)
    else:
        wide = ops.cast(where, dtype="float32")
        result = ops.cast(ops.matmul(ops.transpose(wide, perm=(1, 0)), wide), dtype="int64")
    executable = compile_module(Module({"main": function([x], result)}), ["x86:threads=1"])
    for value in (np.array([[1, 0, 2], [0, 0, 3]]), np.zeros((4, 3), np.int64), np.zeros((0, 3), np.int64)):
        rows = np.array(np.nonzero(value))
        expected = rows + 2 * value[:9].sum() if looped else rows.T @ rows
        np.testing.assert_array_equal(executable.run({"x": value})["output0"], expected)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "int8"])
def test_results_without_elements(dtype: str) -> None:
    """Rules for products and convolutions divide by rows, columns and channels."""
    total = {"out_dtype": "int32"} if dtype == "int8" else {}
    cases = []
    for a, b in (((3, 4), (4, 0)), ((0, 4), (4, 5)), ((1, 2, 3, 4), (1, 2, 4, 0)), ((2, N, 64), (2, 64, 0)), ((64,), (64, 0))):
        x, y = var("x", TensorType(a, dtype)), var("y", TensorType(b, dtype))
        cases.append(([x, y], ops.relu(ops.matmul(x, y, **total))))
    for data, weights in (((1, 4, 5, 5), (0, 4, 3, 3)), ((0, 4, 5, 5), (8, 4, 3, 3)), ((1, 16, 4, 5), (0, 16, 1, 1))):
        x, y = var("x", TensorType(data, dtype)), var("y", TensorType(weights, dtype))
        cases.append(([x, y], ops.conv(x, y, **total)))
    for params, result in cases:
        module = Module({"main": function(params, result)})
        for cpu in LEVELS:
            build_package(module, [f"x86:threads=1,cpu={cpu}"])
        arrays = {
            item.name: np.zeros([2 if dim == N else dim for dim in item.type.shape], item.type.dtype.numpy)  # type: ignore[attr-defined]
            for item in params
        }
        (actual,) = compile_module(module, ["x86:threads=1"]).run(arrays).values()
        assert actual.size == 0
        assert actual.shape == tuple(2 if dim == N else dim for dim in result.type.shape)
