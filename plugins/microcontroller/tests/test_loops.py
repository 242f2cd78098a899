"""Models with loops: recurrent layers, whose states the caller passes from run to run, and loops of other kinds."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from plugins.tflite.tests.test_recurrent import lstm_of_int8, lstm_of_int16, streamed

from inlaid import ops
from inlaid.driver.compile import compile_module
from inlaid.driver.export import export_folder
from inlaid.graph.interp import evaluate
from inlaid.graph.ir import Module, constant, function, loop, tuple_, tuple_item, var
from inlaid_microcontroller.unit import decode
from inlaid_runtime.arith import SizeVar
from inlaid_runtime.errors import Unsupported
from inlaid_runtime.execution.c_source import find_compiler
from inlaid_runtime.types import TensorType
from inlaid_tflite import first_states, load

from .test_firmware import SANITIZED, STRICT, build

pytestmark = pytest.mark.skipif(find_compiler() is None, reason="there is no C compiler: apt-get install gcc")
TARGET = "microcontroller:cpu=cortex-m4"


@pytest.mark.parametrize("make", [lstm_of_int8, lstm_of_int16])
@pytest.mark.parametrize("seed", range(6))
def test_integer_lstm(make: Any, seed: int) -> None:
    """Streaming: each run starts from the states of the one before. The values are those of the reference, which are LiteRT's and
    TensorFlow Lite Micro's."""
    data, runs = make(seed)
    executable, states = compile_module(load(data), [TARGET]), first_states(data)
    name = executable.inputs[0].name
    for inputs, expected in zip(runs, streamed(data, runs), strict=True):
        output, *new = executable.run({name: inputs[0], **states}).values()
        np.testing.assert_array_equal(output, expected)
        states = dict(zip(states, new, strict=True))


@pytest.mark.parametrize("make", [lstm_of_int8, lstm_of_int16])
def test_firmware_of_an_lstm(make: Any, tmp_path: Path) -> None:
    """It builds without a warning, runs clean under sanitizers, and has no table of all 16-bit values."""
    data, _ = make(3)
    export_folder(compile_module(load(data), [TARGET], keep=False).package, tmp_path, "lstm")
    assert subprocess.run([build(tmp_path, *STRICT, *SANITIZED)], check=False).returncode == 0
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    assert manifest["flash"]["weights"] < 12_000
    assert [port["name"] for port in manifest["inputs"]][1:] == [port["name"] for port in manifest["outputs"]][1:]


def check(module: Module, regions: int, **inputs: Any) -> None:
    """Compare a model with the reference, and expect the number of its regions."""
    executable = compile_module(module, [TARGET])
    assert len(executable.regions) == regions
    expected = evaluate(module, inputs)
    for actual, value in zip(
        executable.run(inputs).values(), expected if isinstance(expected, tuple) else (expected,), strict=True
    ):
        np.testing.assert_array_equal(actual, value)


STEP = var("step", TensorType((), "int64"))
TRUE = constant(np.array(True))


@pytest.mark.parametrize("trips", [0, 1, 5])
def test_a_number_of_rounds_that_the_data_gives(trips: int) -> None:
    count, x, state = (
        var("count", TensorType((), "int64")),
        var("x", TensorType((3,), "int32")),
        var("s", TensorType((3,), "int32")),
    )
    body = function((STEP, state), tuple_((TRUE, ops.add(ops.add(state, x), ops.cast(STEP, dtype="int32")))))
    module = Module({"main": function((count, x), tuple_item(loop(body, state=(ops.neg(x),), trip_count=count), 0))})
    check(module, 2, count=np.int64(trips), x=np.array([1, -2, 3], np.int32))


@pytest.mark.parametrize("start", [1, 60, 200])
def test_a_loop_that_stops_itself(start: int) -> None:
    x, state = var("x", TensorType((1,), "int32")), var("s", TensorType((1,), "int32"))
    doubled = ops.add(state, state)
    going = ops.reshape(ops.less(doubled, constant(np.int32(100))), shape=())
    body = function((STEP, state), tuple_((going, doubled)))
    first = ops.reshape(ops.less(x, constant(np.int32(100))), shape=())
    module = Module({"main": function((x,), tuple_item(loop(body, state=(x,), condition=first), 0))})
    check(module, 2, x=np.array([start], np.int32))


def test_slices_and_stacked_outputs() -> None:
    x, state, row = (var(name, TensorType(shape, "int16")) for name, shape in (("x", (6, 5)), ("s", (5,)), ("row", (5,))))
    total = ops.add(state, row)
    body = function((STEP, state, row), tuple_((TRUE, total, ops.neg(total), ops.cast(ops.less(total, row), dtype="int8"))))
    result = loop(body, state=(constant(np.arange(5, dtype=np.int16)),), scanned=(x,))
    module = Module({"main": function((x,), tuple_([tuple_item(result, number) for number in range(3)]))})
    check(module, 1, x=np.random.default_rng(0).integers(-900, 900, (6, 5)).astype(np.int16))


def test_the_number_of_the_round_through_a_view() -> None:
    x, state, row = (var(name, TensorType(shape, "float32")) for name, shape in (("x", (5, 1)), ("s", (1,)), ("row", (1,))))
    number = ops.cast(ops.reshape(STEP, shape=(1,)), dtype="float32")
    body = function((STEP, state, row), tuple_((TRUE, ops.add(state, row), number)))
    result = loop(body, state=(constant(np.zeros(1, np.float32)),), scanned=(x,))
    module = Module({"main": function((x,), tuple_([tuple_item(result, 0), tuple_item(result, 1)]))})
    check(module, 1, x=np.arange(5, dtype=np.float32)[:, None])


def test_a_loop_over_a_symbolic_number_of_rows() -> None:
    """It stays with a target that takes symbolic sizes, and its body with this target; without another target it is refused."""
    x, state, row = (
        var(name, TensorType(shape, "float32")) for name, shape in (("x", (SizeVar("n"), 3)), ("s", (3,)), ("row", (3,)))
    )
    body = function((STEP, state, row), tuple_((TRUE, ops.add(state, row))))
    module = Module({"main": function((x,), tuple_item(loop(body, state=(constant(np.zeros(3, np.float32)),), scanned=(x,)), 0))})
    with pytest.raises(Unsupported):
        compile_module(module, [TARGET])
    executable = compile_module(module, [TARGET, "reference"])
    for rows in (0, 1, 4):
        value = np.arange(3 * rows, dtype=np.float32).reshape(rows, 3)
        (result,) = executable.run({"x": value}).values()
        np.testing.assert_array_equal(result, value.sum(0))


def test_damaged_loops_are_refused() -> None:
    data, _ = lstm_of_int8(1)
    artifacts = compile_module(load(data), [TARGET], keep=False).package.artifacts
    unit = next(unit for unit in map(decode, (artifact.code for artifact in artifacts)) if unit.loop is not None)
    assert unit.loop is not None and decode(unit.encode()) == unit
    copy = unit.loop.before[0]
    for change in (
        {"number": -1},
        {"going": len(unit.buffers)},
        {"rounds": unit.loop.rounds + 1000},
        {"first": (replace(copy, bytes=1 << 20),)},
        {"before": (replace(copy, source=len(unit.buffers)),)},
        {"after": (replace(copy, target_step=-4),)},
    ):
        damaged = replace(unit, loop=replace(unit.loop, **change))
        with pytest.raises(ValueError, match="expected"):
            decode(damaged.encode())
