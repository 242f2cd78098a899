"""Symbolic and existential sizes in native code."""

from __future__ import annotations

import numpy as np
import pytest

from inlaid import ops
from inlaid.arith import SizeVar
from inlaid.driver.compile import compile_module
from inlaid.errors import InputError, KernelFault
from inlaid.graph.ir import Module, function, tuple_, var
from inlaid.runtime import layout
from inlaid.types import TensorType

pytestmark = pytest.mark.usefixtures("host")

N, M = SizeVar("n"), SizeVar("m")


def test_sizes_as_values() -> None:
    """Kernels read sizes that none of their buffers has; two that differ only in these are two kernels."""
    x = var("x", TensorType((N, M), "float32"))
    found, negative = ops.nonzero(x), ops.nonzero(ops.less(x, ops.neg(x)))
    counts = [ops.sizes(dims=(item.type.shape[1],)) for item in (found, negative)]
    results = [found, negative, *counts, ops.sizes(dims=(N, M)), ops.sizes(dims=(M, N)), ops.iota(shape=(N * 2,))]
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
    found = ops.nonzero(x)
    count = found.type.shape[1]
    for extent, most, least in ((5000 - count * 50, 5000, 1800), ((100 - count) // 3, 33, 12), (count * 3 + 2, 2, 194)):
        total = ops.after(ops.reduce_sum(x, axes=(0,)), found)
        body = ops.softmax(ops.full(total, shape=(extent,)), axis=0)
        executable = compile_module(Module({"main": function([x], body)}), ["x86:threads=1,check=true"])
        for value, wanted in ((0, most), (1, least)):
            (result,) = executable.run({"x": np.full(64, value, np.float32)}).values()
            np.testing.assert_allclose(result, np.full(wanted, 1 / wanted), rtol=1e-5)


def test_what_sizes_decide_is_worked_out_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a region that works out sizes, also where runs find others; what these must satisfy is checked in each run."""
    x, y = var("x", TensorType((N,), "float32")), var("y", TensorType((M,), "float32"))
    found = ops.nonzero(x)
    body = ops.add(ops.cast(ops.reshape(found, shape=(found.type.shape[1],)), dtype="float32"), y)
    executable = compile_module(Module({"main": function([x, y], tuple_([found, body]))}), ["x86:threads=1"])

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
