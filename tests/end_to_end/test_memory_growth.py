"""A process that compiles, loads and runs models does not grow. benchmarks/memory_growth.py measures it at length."""

from __future__ import annotations

import dataclasses
import functools
import gc
import re
import subprocess
import sys
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import inlaid
import memory_growth
from inlaid import ops
from inlaid.plugins.registry import default_registry
from inlaid_runtime.types.dtypes import from_numpy
from memory_growth import Growth, Memory, small_model

SCRIPT = Path(memory_growth.__file__)
KINDS = 5
"""Kinds of small models."""

needs_x86 = pytest.mark.skipif(
    "x86" not in default_registry().kinds(), reason='the x86 plugin is not installed: pip install "inlaid[x86]"'
)


def unbounded() -> dict[Any, int]:
    """Entries of every cache of Inlaid without a bound."""
    modules = [module for name, module in list(sys.modules.items()) if name.startswith("inlaid")]
    every = {item for module in modules for item in vars(module).values() if isinstance(item, functools._lru_cache_wrapper)}
    return {cache: cache.cache_info().currsize for cache in every if cache.cache_info().maxsize is None}


@needs_x86
def test_unbounded_caches_do_not_grow_with_models() -> None:
    """A cache whose keys have the sizes of models needs a bound."""
    count = 4
    for number in range(2 * KINDS):
        inlaid.compile(small_model(number), targets=["x86:threads=1"])
    before = unbounded()
    assert before
    for number in range(2 * KINDS, (2 + count) * KINDS):
        inlaid.compile(small_model(number), targets=["x86:threads=1"])
    grown = {cache.__qualname__: (before.get(cache, 0), size) for cache, size in unbounded().items()}
    assert not {name: sizes for name, sizes in grown.items() if sizes[1] >= sizes[0] + count}


def test_caches_have_bounds() -> None:
    """numpy has a dtype for every length of strings; each schedule by hand is an operator of its own, which has its program."""
    for length in range(1, 1000):
        from_numpy(np.dtype(f"U{length}"))
    assert from_numpy.cache_info().currsize < 500
    operator = dataclasses.replace(ops.TABLE["relu"], name="own")
    operator(inlaid.var("x", inlaid.TensorType((3,), "float32")))
    alive = weakref.ref(operator)
    del operator
    gc.collect()
    assert alive() is None


@needs_x86
def test_failures_fail_as_they_should() -> None:
    for number, (error, call) in enumerate(memory_growth.failures()):
        with pytest.raises(error):
            call(number)


def memory(resident: float, heap: float | None, peak: float = 500.0) -> Memory:
    """Memory in MB."""
    return Memory(int(resident * 1e6), int(peak * 1e6), None if heap is None else int(heap * 1e6))


@pytest.mark.parametrize(
    ("end", "passed"),
    [
        (memory(100, 50), True),
        (memory(101.9, 50.9), True),  # 0.9 KB a call; twice as much resident memory is within what differs
        (memory(101, 51.1), False),  # 1.1 KB a call
        (memory(90, 51.1), False),  # also if free memory was returned
        (memory(103.1, 50), False),  # a leak of mappings
        (memory(100, 50, 521), False),  # a peak that rises
        (memory(100, None), True),
        (memory(102.1, None), False),
    ],
)
def test_verdict(end: Memory, passed: bool) -> None:
    half = memory(100, 50)
    growth = Growth(2000, memory(40, 30, 100), half, end)
    assert growth.passed is passed
    assert growth.resident_kb == pytest.approx((end.resident - half.resident) / 1e6)


def test_memory_that_is_lost_is_seen() -> None:
    before, blocks = Memory.now(), [bytearray(b"x" * 50_000) for _ in range(200)]
    after = Memory.now()
    if before.heap is None or after.heap is None:
        pytest.skip("the C library does not tell what is allocated: glibc 2.33 does")
    assert 9e6 < after.heap - before.heap < 12e6 and after.resident > before.resident and after.peak >= after.resident
    del blocks
    assert Memory.now().heap < before.heap + 1e6


def command(*arguments: str) -> dict[str, float]:
    """Growth of the heap in KB per call, by case. What differs between few calls may exceed the limits."""
    process = subprocess.run([sys.executable, str(SCRIPT), *arguments], capture_output=True, text=True, check=False, timeout=900)
    assert process.returncode in (0, 1), process.stderr
    rows = re.findall(r"^([a-z0-9-]+) +\d+ .* (\S+) +(pass|FAIL)$", process.stdout, re.M)
    assert process.returncode == int(any(verdict == "FAIL" for _, _, verdict in rows))
    return {name: float("nan") if heap == "?" else float(heap) for name, heap, _ in rows}


@needs_x86
def test_the_command() -> None:
    assert list(command("--only", "load", "--scale", "0.01")) == ["load"]


@needs_x86
@pytest.mark.slow
def test_a_process_does_not_grow() -> None:
    """A compilation lost 160 KB before pass managers were freed. Filling caches takes up to 15 KB a call in the beginning."""
    growth_by_case = command("--only", "compile", "run-x86", "--scale", "0.06")
    assert not growth_by_case["compile"] > 40 and not growth_by_case["run-x86"] > 5
