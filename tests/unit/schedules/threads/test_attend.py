"""Attention in one kernel on grids of threads."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inlaid import ops
from inlaid.graph import ir as graph
from inlaid.lowering.kernels.kernel import grid_of
from inlaid.lowering.loop_rule import loop_rule
from inlaid.ops.threads.attend_blocks import tiles_of
from inlaid.plugins import Accept, Capabilities, MemoryScope, Reject, Threads
from inlaid_runtime import arith
from inlaid_runtime.types import TensorType, dtype

from .held import CLASSES, GPU, SHARED, Sizes, planted_races
from .whole import Threaded

B, N, S = (arith.SizeVar(name) for name in "bns")
Shape = tuple[arith.Dim, ...]


def attention(
    able: Capabilities,
    q: Shape,
    k: Shape,
    width: int = 12,
    of: str = "float32",
    mask: tuple[Shape, str] | None = None,
    **attrs: Any,
) -> Threaded:
    types = [(q, of), (k, of), ((*k[:3], width), of), *([] if mask is None else [mask])]
    types += [((q[0],), "int32")] if attrs.get("padded") else []
    return Threaded(ops.attention, able, *types, scale=0.3, masked=mask is not None, **attrs)


def arrays_for(made: Threaded, sizes: Sizes | None = None, lengths: tuple[int, ...] = (), seed: int = 0) -> list[np.ndarray]:
    random = np.random.default_rng(seed)
    found = []
    for buffer in made.program.inputs:
        shape = [arith.evaluate(arith.wrap(dim), dict(sizes or {})) for dim in buffer.shape]
        if buffer.dtype.is_int:
            found.append(np.array(lengths, np.int32))
        elif buffer.dtype.kind == "bool":
            found.append(random.random(shape) < 0.5)
        else:
            found.append(random.standard_normal(shape).astype(buffer.dtype.numpy))
    return found


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
@pytest.mark.parametrize("asked", CASES.values(), ids=CASES)
def test_what_is_asked(able, asked):
    """With two heads of queries for each of keys, and lengths of no and of all keys."""
    made = attention(able, (2, 2, 9, 8), (2, 1, 37, 8), **asked)
    assert len(made.split.kernels) == 1
    made.check(arrays_for(made, lengths=(0, 37)), tolerance=2e-5)
    if "padded" in asked:
        made.check(arrays_for(made, lengths=(5, 20)), tolerance=2e-5)


@pytest.mark.parametrize("able", CLASSES.values(), ids=CLASSES)
@pytest.mark.parametrize(("of", "tolerance"), [("float16", 2e-3), ("bfloat16", 1e-2), ("float64", 1e-12)])
def test_element_types(able, of, tolerance):
    made = attention(able, (1, 1, 5, 8), (1, 1, 40, 8), of=of, right=20)
    made.check(arrays_for(made), tolerance=tolerance)


@pytest.mark.parametrize("able", CLASSES.values(), ids=CLASSES)
@pytest.mark.parametrize("size", [1, 5, 33])
def test_odd_sizes(able, size):
    made = attention(able, (1, 2, 3, size), (1, 1, 34, size), width=size)
    made.check(arrays_for(made), tolerance=2e-5)


@pytest.fixture(scope="module", params=CLASSES.values(), ids=CLASSES)
def of_any_size(request):
    return attention(request.param, (B, 2, N, 4), (B, 1, S, 4), width=5, mask=((B, 1, N, S), "bool"), right=2)


@settings(deadline=None, max_examples=10)
@given(batch=st.integers(0, 2), queries=st.integers(0, 20), keys=st.integers(0, 70), seed=st.integers(0, 99))
def test_any_size(of_any_size, batch, queries, keys, seed):
    sizes = {B: batch, N: queries, S: keys}
    of_any_size.check(arrays_for(of_any_size, sizes, seed=seed), sizes, tolerance=2e-5, seed=seed)


def test_barriers_of_any_size(of_any_size):
    assert planted_races(of_any_size.split) == []


@pytest.mark.parametrize("able", CLASSES.values(), ids=CLASSES)
def test_special_values(able):
    """A row of which all scores are minus infinity is NaN, as its softmax is, unless it sees no key."""
    made = attention(able, (1, 1, 4, 2), (1, 1, 36, 2), width=3, mask=((4, 36), "float32"))
    q, k, v, mask = arrays_for(made)
    q[0, 0, 0], k[:] = -np.inf, np.abs(k)
    mask[1], mask[2, 5], mask[3, :35] = -np.inf, np.nan, -np.inf
    made.check([q, k, v, mask], tolerance=2e-5)


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
    grid = grid_of(able)
    assert grid is not None
    tiles = tiles_of(grid, size, size, dtype("float16"))
    assert tiles is not None and tiles.queries * tiles.lanes <= 256 and tiles.keys % tiles.lanes == 0
    attention(able, (1, 1, N, size), (1, 1, S, size), width=size, of="float16", right=0)


def test_no_tiles_where_there_is_no_room():
    assert grid_of(GPU) is not None and SHARED.capacity == 32 << 10
    assert tiles_of(grid_of(GPU), 4096, 64, dtype("float32")) is None
    assert tiles_of(grid_of(GPU), N, 64, dtype("float32")) is None
