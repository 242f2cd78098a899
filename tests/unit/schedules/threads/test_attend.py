"""Attention in one kernel on grids of threads."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inlaid import ops
from inlaid.graph import ir as graph
from inlaid.lowering.kernels.kernel import thread_grid
from inlaid.lowering.loop_rule import loop_rule
from inlaid.ops.threads.attend_blocks import choose_tiles
from inlaid.plugins import Accept, Capabilities, MemoryScope, Reject, Threads
from inlaid_runtime import arith
from inlaid_runtime.types import TensorType, dtype

from .interpreter_checks import CLASSES, GPU, SHARED, Sizes, planted_races
from .threaded import Threaded

B, N, S = (arith.SizeVar(name) for name in "bns")
Shape = tuple[arith.Dim, ...]


def attention(
    able: Capabilities,
    q: Shape,
    k: Shape,
    width: int = 12,
    dtype_name: str = "float32",
    mask: tuple[Shape, str] | None = None,
    **attrs: Any,
) -> Threaded:
    types = [(q, dtype_name), (k, dtype_name), ((*k[:3], width), dtype_name), *([] if mask is None else [mask])]
    types += [((q[0],), "int32")] if attrs.get("padded") else []
    return Threaded(ops.attention, able, *types, scale=0.3, masked=mask is not None, **attrs)


def arrays_for(kernel: Threaded, sizes: Sizes | None = None, lengths: tuple[int, ...] = (), seed: int = 0) -> list[np.ndarray]:
    random = np.random.default_rng(seed)
    arrays = []
    for buffer in kernel.program.inputs:
        shape = [arith.evaluate(arith.wrap(dim), dict(sizes or {})) for dim in buffer.shape]
        if buffer.dtype.is_int:
            arrays.append(np.array(lengths, np.int32))
        elif buffer.dtype.kind == "bool":
            arrays.append(random.random(shape) < 0.5)
        else:
            arrays.append(random.standard_normal(shape).astype(buffer.dtype.numpy))
    return arrays


CASES: dict[str, dict[str, Any]] = {
    "plain": {},
    "causal": {"right": 0},
    "causal, further on": {"right": 0, "offset": 26},
    "causal, and some see none": {"right": 0, "offset": -4},
    "a window": {"left": 3, "right": 2, "offset": 9},
    "softcap": {"softcap": 0.5, "left": 5},
    "mask of bool": {"mask": ((9, 37), "bool")},
    "mask of float": {"mask": ((2, 1, 1, 37), "float32"), "right": 4},
    "lengths": {"padded": True},
    "causal with lengths": {"padded": True, "right": 0},
    "all": {"padded": True, "left": 20, "right": 3, "mask": ((2, 1, 37), "bool"), "softcap": 3.0},
}


@pytest.mark.parametrize("able", CLASSES.values(), ids=CLASSES)
@pytest.mark.parametrize("options", CASES.values(), ids=CASES)
def test_what_is_asked(able, options):
    """With two heads of queries for each of keys, and lengths of no and of all keys."""
    kernel = attention(able, (2, 2, 9, 8), (2, 1, 37, 8), **options)
    assert len(kernel.split.kernels) == 1
    kernel.check(arrays_for(kernel, lengths=(0, 37)), tolerance=2e-5)
    if "padded" in options:
        kernel.check(arrays_for(kernel, lengths=(5, 20)), tolerance=2e-5)


@pytest.mark.parametrize("able", CLASSES.values(), ids=CLASSES)
@pytest.mark.parametrize(("dtype_name", "tolerance"), [("float16", 2e-3), ("bfloat16", 1e-2), ("float64", 1e-12)])
def test_element_types(able, dtype_name, tolerance):
    kernel = attention(able, (1, 1, 5, 8), (1, 1, 40, 8), dtype_name=dtype_name, right=20)
    kernel.check(arrays_for(kernel), tolerance=tolerance)


@pytest.mark.parametrize("able", CLASSES.values(), ids=CLASSES)
@pytest.mark.parametrize("size", [1, 5, 33])
def test_odd_sizes(able, size):
    kernel = attention(able, (1, 2, 3, size), (1, 1, 34, size), width=size)
    kernel.check(arrays_for(kernel), tolerance=2e-5)


@pytest.fixture(scope="module", params=CLASSES.values(), ids=CLASSES)
def any_size_kernel(request):
    return attention(request.param, (B, 2, N, 4), (B, 1, S, 4), width=5, mask=((B, 1, N, S), "bool"), right=2)


@settings(deadline=None, max_examples=10)
@given(batch=st.integers(0, 2), queries=st.integers(0, 20), keys=st.integers(0, 70), seed=st.integers(0, 99))
def test_any_size(any_size_kernel, batch, queries, keys, seed):
    sizes = {B: batch, N: queries, S: keys}
    any_size_kernel.check(arrays_for(any_size_kernel, sizes, seed=seed), sizes, tolerance=2e-5, seed=seed)


def test_barriers_of_any_size(any_size_kernel):
    assert planted_races(any_size_kernel.split) == []


@pytest.mark.parametrize("able", CLASSES.values(), ids=CLASSES)
def test_special_values(able):
    """A row of which all scores are minus infinity is NaN, as its softmax is, unless it sees no key."""
    kernel = attention(able, (1, 1, 4, 2), (1, 1, 36, 2), width=3, mask=((4, 36), "float32"))
    q, k, v, mask = arrays_for(kernel)
    q[0, 0, 0], k[:] = -np.inf, np.abs(k)
    mask[1], mask[2, 5], mask[3, :35] = -np.inf, np.nan, -np.inf
    kernel.check([q, k, v, mask], tolerance=2e-5)


def test_capabilities_decide_who_takes_it_whole():
    q, k = (graph.var(name, TensorType((1, 2, 5, 8), "float32")) for name in "qk")
    call = ops.attention(q, k, k, scale=1.0)
    one = Capabilities(("float32",), threads=Threads(1, 1))
    for able in (None, Capabilities(("float32",)), one):
        verdict = loop_rule("any", capabilities=able).predicate(call)
        assert isinstance(verdict, Reject) and "is decomposed" in verdict.reason
    for able in CLASSES.values():
        assert isinstance(loop_rule("any", capabilities=able).predicate(call), Accept)
    wide = graph.var("w", TensorType((1, 2, 5, 4096), "float32"))
    for able in CLASSES.values():
        assert isinstance(loop_rule("any", capabilities=able).predicate(ops.attention(wide, wide, wide, scale=1.0)), Reject)


@pytest.mark.parametrize("size", [1, 16, 64, 80, 128, 192, 256])
def test_tiles_fit(size):
    """The shared memory of the least that devices have, for usual sizes of heads."""
    able = Capabilities(("float32",), (MemoryScope("shared", "block", 32 << 10, 16),), threads=Threads(), stack_bytes=0)
    grid = thread_grid(able)
    assert grid is not None
    tiles = choose_tiles(grid, size, size, dtype("float16"))
    assert tiles is not None and tiles.queries * tiles.lanes <= 256 and tiles.keys % tiles.lanes == 0
    attention(able, (1, 1, N, size), (1, 1, S, size), width=size, dtype_name="float16", right=0)


def test_no_tiles_where_there_is_no_room():
    assert thread_grid(GPU) is not None and SHARED.capacity == 32 << 10
    assert choose_tiles(thread_grid(GPU), 4096, 64, dtype("float32")) is None
    assert choose_tiles(thread_grid(GPU), N, 64, dtype("float32")) is None
