"""Half precision, converted as the device does: every half, and every way to round to one."""

import numpy as np
import pytest
from tests.threads.printed import make_region

from inlaid.tensor.parse import parse

from .pocl import Compiled

COUNT = 1 << 16
INSTRUCTIONS = "defined(INLAID_CPU) && (defined(__F16C__) || defined(__aarch64__))"
LOOPS = {1: "", 2: ", vectorized", 4: ", vectorized", 8: ", vectorized", 16: ", vectorized"}


def conversion(source, target, lanes):
    text = f"""
program f{lanes}_{target}(x: {source}[{COUNT}]) -> (y: {target}[{COUNT}]):
  for b in {COUNT // 1024}, thread, "blockIdx.x":
    for i in {1024 // lanes}:
      for k in {lanes}{LOOPS[lanes]}:
        y[(((b * 1024) + (i * {lanes})) + k)] = cast({target}, x[(((b * 1024) + (i * {lanes})) + k)])
"""
    return parse(text)


def run(programs, arrays, dtype, changed):
    compiled = Compiled(make_region(programs), changed=changed)
    results = [np.zeros(COUNT, dtype) for _ in programs]
    compiled.run(arrays, results)
    return compiled, results


def without_instructions(source):
    """The source with the conversions of devices other than CPUs."""
    assert INSTRUCTIONS in source
    return source.replace(INSTRUCTIONS, "0")


WAYS = [lambda source: source, without_instructions]


@pytest.mark.parametrize("changed", WAYS, ids=["instructions", "functions"])
def test_every_half_is_decoded(changed):
    halves = np.arange(COUNT, dtype=np.uint16).view(np.float16)
    programs = [conversion("float16", "float32", lanes) for lanes in LOOPS]
    compiled, results = run(programs, [halves] * len(programs), np.float32, changed)
    for actual in results:
        np.testing.assert_array_equal(actual, halves.astype(np.float32))
        np.testing.assert_array_equal(np.signbit(actual[halves == 0]), np.signbit(halves[halves == 0]))
    assert "inlaid_decode_ushort16(" in compiled.source


def borders():
    """All halves, what lies between each and the next, and the neighbors of that: 65,536 of them at a time."""
    halves = np.arange(0x7C00, dtype=np.uint16).view(np.float16).astype(np.float32)
    between = (halves[:-1] + halves[1:]) / 2
    odd = np.array([65519.996, 65520, 65536, 1e30, np.inf, np.nan, 1e-45, 2**-25, np.nextafter(np.float32(2**-25), 1)], np.float32)
    every = np.concatenate([halves, between, np.nextafter(between, 0), np.nextafter(between, np.inf, dtype=np.float32), odd])
    every = np.concatenate([every, -every]).astype(np.float32)
    return np.resize(every, -(-every.size // COUNT) * COUNT).reshape(-1, COUNT)


@pytest.mark.parametrize("changed", WAYS, ids=["instructions", "functions"])
def test_floats_round_to_nearest_even(changed):
    values = borders()
    programs = [conversion("float32", "float16", lanes) for lanes in list(LOOPS)[: len(values)]]
    assert len(programs) == len(values) == 4
    for turn in range(len(values)):
        arrays = list(np.roll(values, turn, axis=0))
        _, results = run(programs, arrays, np.float16, changed)
        for actual, array in zip(results, arrays, strict=True):
            with np.errstate(over="ignore"):
                expected = array.astype(np.float16)
            np.testing.assert_array_equal(actual, expected)
            np.testing.assert_array_equal(np.signbit(actual[expected == 0]), np.signbit(expected[expected == 0]))
