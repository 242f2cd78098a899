"""Donated inputs and updates in place in a device's memory."""

from __future__ import annotations

import copy
import pickle
from dataclasses import replace

import numpy as np
import pytest

from inlaid import ops
from inlaid.driver.compile import compile_module
from inlaid.graph import ir
from inlaid.settings import Settings
from inlaid_runtime.artifact.plan import Move
from inlaid_runtime.errors import InputError, PackageError
from inlaid_runtime.execution.device_memory import DeviceArray
from inlaid_runtime.execution.executable import Executable
from inlaid_runtime.types import TensorType

ROWS = 8


def cache(registry, donate=("cache",), read_later=False):
    """A row put into a cache; `read_later`: the cache is read once that is done."""
    cache_var, at, row = (
        ir.var(name, TensorType(shape, dtype))
        for name, shape, dtype in (("cache", (ROWS, 16), "float32"), ("at", (1, 1), "int64"), ("row", (1, 16), "float32"))
    )
    updated = ops.scatter_nd(cache_var, at, ops.tanh(row))
    result = ir.tuple_((updated, ops.add(cache_var, ops.tanh(updated)))) if read_later else updated
    module = ir.Module({"main": ir.function([cache_var, at, row], result)})
    package = compile_module(module, ["discrete:without=tanh"], registry, settings=Settings(donate=donate)).package
    return Executable(package, registry=registry)


def x(rows, seed=0):
    return np.random.default_rng(seed).uniform(-1, 1, (rows, 16)).astype(np.float32)


def test_arrays_on_the_device_are_copied_there_and_not_pickled(registry):
    executable = cache(registry)
    device_cache = executable.to_device("cache", x(ROWS))
    assert isinstance(device_cache, DeviceArray)
    for way in (copy.copy, copy.deepcopy):
        other = way(device_cache)
        assert isinstance(other, DeviceArray) and other.tensor.buffer is not device_cache.tensor.buffer
        assert np.array_equal(other.numpy(), x(ROWS))
    with pytest.raises(InputError, match=r"DeviceArray.* cannot be pickled: .*; pickle the array of \.numpy\(\)"):
        pickle.dumps(device_cache)
    assert np.array_equal(pickle.loads(pickle.dumps(device_cache.numpy())), x(ROWS))


def test_a_donated_array_on_the_device_is_updated_where_it_lies(registry, machines):
    executable = cache(registry)
    assert executable.donated == ("cache",)
    device_cache = executable.to_device("cache", x(ROWS))
    expected = x(ROWS)
    live = machines[0].live
    for index in (3, 5, 3, 0):
        row = x(1, index)
        (updated_cache,) = executable.run(
            {"cache": device_cache, "at": np.array([[index]]), "row": row}, keep_on_device=True
        ).values()
        expected[index] = np.tanh(row)
        assert updated_cache is device_cache
        np.testing.assert_allclose(device_cache.numpy(), expected, rtol=1e-6)
    assert machines[0].counters.beside == 0  # the cache is never copied
    (actual,) = executable.run({"cache": device_cache, "at": np.array([[1]]), "row": row}).values()
    expected[1] = np.tanh(row)
    np.testing.assert_allclose(actual, expected, rtol=1e-6)
    np.testing.assert_allclose(device_cache.numpy(), expected, rtol=1e-6)
    assert machines[0].live <= live + 4096  # arenas of the first run


def test_what_is_not_donated_is_copied(registry, machines):
    executable = cache(registry, donate=())
    device_cache = executable.to_device("cache", x(ROWS))
    (updated_cache,) = executable.run({"cache": device_cache, "at": np.array([[2]]), "row": x(1)}, keep_on_device=True).values()
    assert isinstance(updated_cache, DeviceArray) and updated_cache is not device_cache
    np.testing.assert_array_equal(device_cache.numpy(), x(ROWS))
    np.testing.assert_allclose(updated_cache.numpy()[2:3], np.tanh(x(1)), rtol=1e-6)
    assert machines[0].counters.beside == 2


def test_an_array_of_the_host_is_left_as_it_is(registry, machines):
    executable = cache(registry)
    host_cache = x(ROWS)
    host_cache.flags.writeable = False
    (actual,) = executable.run({"cache": host_cache, "at": np.array([[2]]), "row": x(1)}).values()
    np.testing.assert_array_equal(host_cache, x(ROWS))
    np.testing.assert_allclose(actual[2:3], np.tanh(x(1)), rtol=1e-6)


def test_what_is_read_later_is_not_given_away(registry, machines):
    with pytest.warns(match="no output reuses the buffer"):
        executable = cache(registry, read_later=True)
    assert executable.donated == ()
    device_cache = executable.to_device("cache", x(ROWS))
    for _ in range(3):
        updated, total = executable.run({"cache": device_cache, "at": np.array([[2]]), "row": x(1)}).values()
        np.testing.assert_allclose(total, x(ROWS) + np.tanh(updated), rtol=1e-6)
        np.testing.assert_array_equal(device_cache.numpy(), x(ROWS))


def test_one_array_for_two_inputs_is_copied(registry, machines):
    left, right = (ir.var(name, TensorType((ROWS, 16), "float32")) for name in ("left", "right"))
    at, row = ir.constant(np.array([[1]])), ir.constant(np.zeros((1, 16), np.float32))
    result = ir.tuple_((ops.scatter_nd(left, at, row), ops.neg(right)))
    module = ir.Module({"main": ir.function([left, right], result)})
    package = compile_module(module, ["discrete"], registry, settings=Settings(donate=("left",))).package
    executable = Executable(package, registry=registry)
    both = executable.to_device("left", x(ROWS))
    first, second = executable.run({"left": both, "right": both}).values()
    np.testing.assert_array_equal(second, -x(ROWS))
    np.testing.assert_array_equal(first[2:], x(ROWS)[2:])
    np.testing.assert_array_equal(both.numpy(), x(ROWS))


def test_a_read_after_donation_is_refused(registry, machines):
    package = cache(registry).package
    plan = package.program.plans["main"]
    (move,) = (item for item in plan.instructions if isinstance(item, Move) and item.donate and not plan.values[item.source].device)
    again = replace(move, donate=False)
    changed = replace(package.program, plans={"main": replace(plan, instructions=(*plan.instructions, again))})
    with pytest.raises(PackageError, match="read after its buffer was reused"):
        Executable(replace(package, program=changed), registry=registry)
