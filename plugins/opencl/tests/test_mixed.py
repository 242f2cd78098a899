"""Models over several targets: what is copied between host and device, counted at the device."""

from __future__ import annotations

import numpy as np
import pytest

import inlaid
from inlaid import ops
from inlaid.graph import ir
from inlaid_opencl.device import OpenCLDevice
from inlaid_runtime.types import TensorType

pytestmark = pytest.mark.usefixtures("device")


@pytest.fixture
def copies(monkeypatch):
    """The bytes of each copy, to the device and from it."""
    sizes: dict[str, list[int]] = {"upload": [], "download": []}
    for name, position in (("upload", 0), ("download", 1)):
        original = getattr(OpenCLDevice, name)

        def counted(self, *args, original=original, name=name, position=position):
            sizes[name].append(args[position].nbytes)
            return original(self, *args)

        monkeypatch.setattr(OpenCLDevice, name, counted)
    return sizes


def compiled(function, targets):
    return inlaid.compile(ir.Module({"main": function}), targets=targets, cache=False)


def tensor(name, *shape, dtype="float32"):
    return ir.var(name, TensorType(shape, dtype))


def test_a_value_moves_once_between_targets(copies):
    """An embedded device lacks float64, so the middle of the model runs on the host."""
    x = tensor("x", 8, 16)
    y = ops.relu(x)
    doubled = ops.exp(ops.cast(y, dtype="float64"))
    back = ops.cast(doubled, dtype="float32")
    executable = compiled(ir.function([x], ir.tuple_([ops.add(back, y), ops.mul(back, y)])), ["opencl:kind=embedded", "x86"])
    assert {region.target.split(":")[0] for region in executable.regions} == {"opencl", "x86"}
    array = np.linspace(-1, 1, 128, dtype=np.float32).reshape(8, 16)
    copies["upload"].clear()
    added, multiplied = executable.run({"x": array}).values()
    expected = np.maximum(array, 0)
    np.testing.assert_allclose(added, np.exp(expected) + expected, rtol=1e-5)
    np.testing.assert_allclose(multiplied, np.exp(expected) * expected, rtol=1e-5)
    # The input and the host's result go up, the intermediate value and two results come down.
    assert copies["upload"] == [array.nbytes] * 2 and copies["download"] == [array.nbytes] * 3


def test_regions_of_one_device_meet_on_it(copies):
    """Around a branch and in it: only its condition and the result come down."""
    x = tensor("x", 3, 4)
    y = ops.relu(x)
    positive = ops.less(ir.constant(np.float32(1)), ops.reduce_sum(y, axes=(0, 1)))
    executable = compiled(ir.function([x], ops.neg(ir.if_(positive, ops.exp(y), ops.sqrt(y)))), ["opencl"])
    assert len(executable.regions) > 1
    for array in (np.ones((3, 4), np.float32), np.zeros((3, 4), np.float32)):
        for sizes in copies.values():
            sizes.clear()
        (actual,) = executable.run({"x": array}).values()
        np.testing.assert_allclose(actual, -np.exp(array) if array.any() else array, rtol=1e-5)
        assert copies == {"upload": [array.nbytes], "download": [1, array.nbytes]}


def test_the_state_of_a_loop_stays(copies):
    """Five rounds: the state goes up once and comes down once."""
    x, w = tensor("x", 4, 4), tensor("w", 4, 4)
    number, state = ir.var("number", TensorType((), "int64")), tensor("state", 4, 4)
    body = ir.function([number, state], ir.tuple_([ir.constant(np.True_), ops.tanh(ops.matmul(state, w))]))
    looped = ir.loop(body, state=[x], trip_count=ir.constant(np.int64(5)))
    executable = compiled(ir.function([x, w], ops.relu(ir.tuple_item(looped, 0))), ["opencl"])
    array = np.random.default_rng(0).uniform(-1, 1, (2, 4, 4)).astype(np.float32)
    for sizes in copies.values():
        sizes.clear()
    (actual,) = executable.run(dict(zip(("x", "w"), array, strict=True))).values()
    expected = array[0]
    for _ in range(5):
        expected = np.tanh(expected @ array[1])
    np.testing.assert_allclose(actual, np.maximum(expected, 0), rtol=1e-4, atol=1e-5)
    assert sorted(copies["upload"])[-2:] == [64, 64] and copies["upload"].count(64) == 2
    assert copies["download"].count(64) == 1
