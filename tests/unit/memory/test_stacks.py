"""Places for buffers whose sizes have several symbolic factors."""

from __future__ import annotations

import json
from random import Random

import pytest

from inlaid_runtime import arith
from inlaid_runtime.arith import Dim, SizeVar
from inlaid_runtime.artifact.plan import Value
from inlaid_runtime.execution.codec import decode, encode
from inlaid_runtime.memory import Lifetime, lower_bound, plan

H, W, N = SizeVar("h", 1), SizeVar("w", 1), SizeVar("n")
SIZES = ({H: 1, W: 1, N: 0}, {H: 33, W: 1, N: 7}, {H: 224, W: 224, N: 1}, {H: 17, W: 1000, N: 300})


def network(count: int, seed: int) -> list[Lifetime]:
    """Feature maps of a network that goes down and up again, some of which live long, and others beside them."""
    draw = Random(seed)
    lifetimes = []
    for step in range(count):
        level = min(step, count - 1 - step, 4)
        rows, columns = (arith.ceildiv(extent, 1 << level) for extent in (H, W))
        map_ = arith.mul(arith.mul(rows, columns), draw.choice((3, 16, 32, 64)) * 4)
        size: Dim = draw.choice(
            [
                arith.unwrap(map_),
                arith.unwrap(map_),
                100 * step,
                arith.unwrap(arith.mul(N, 4 * step)),
                arith.unwrap(arith.mul(arith.mul(N, N), 64)),
            ]
        )
        last = count - 1 - step if step < count // 2 and draw.random() < 0.4 else step + draw.choice((0, 1, 1, 3))
        lifetimes.append(Lifetime(size, step, last))
    return lifetimes


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("count", [2, 9, 60])
def test_places_at_many_sizes(count: int, seed: int) -> None:
    """Nothing that lives at once overlaps, all is aligned, and memory is little more than that of sizes that are known."""
    buffers = network(count, seed)
    arena = plan(buffers)
    for sizes in SIZES:
        values: dict[arith.Expr, int] = dict(sizes)
        spans = [
            (start := arith.evaluate(offset, values), start + arith.evaluate(buffer.size, values))
            for offset, buffer in zip(arena.offsets, buffers, strict=True)
        ]
        end = arith.evaluate(arena.size, values)
        assert all(start % 64 == 0 and stop <= end for start, stop in spans)
        for a, (one, first) in enumerate(zip(spans, buffers, strict=True)):
            for two, second in zip(spans[:a], buffers, strict=False):
                if first.first <= second.last and second.first <= first.last:
                    assert one[1] <= two[0] or two[1] <= one[0] or one[0] == one[1] or two[0] == two[1]
        bound = lower_bound(buffers, values=values)
        static = plan([Lifetime(arith.evaluate(item.size, values), item.first, item.last) for item in buffers])
        assert end <= 1.25 * max(bound, arith.evaluate(static.size, {})) + 4096


def test_attention_takes_the_memory_of_the_larger_of_its_parts() -> None:
    """Scores, quadratic in the sequence, and what is linear in it, at different times."""
    scores, inner = arith.unwrap(arith.mul(arith.mul(N, N), 256)), arith.unwrap(arith.mul(N, 4096))
    arena = plan([Lifetime(scores, 0, 1), Lifetime(scores, 1, 2), Lifetime(inner, 3, 4)])
    for n in (0, 1, 8, 9, 512):
        assert arith.evaluate(arena.size, {N: n}) == max(2 * 256 * n * n, 4096 * n)


def test_what_offsets_share_is_written_once() -> None:
    """As a tree, the arena of a network of hundreds of maps would be millions of nodes."""
    arena = plan(network(400, 0))
    value = Value("arena", None, (), "", arena.size)
    text = json.dumps(encode(value))
    assert len(text) < 1 << 17
    again = decode(Value, json.loads(text), "here")
    for sizes in SIZES:
        values: dict[arith.Expr, int] = dict(sizes)
        assert arith.evaluate(again.offset, values) == arith.evaluate(arena.size, values)
        doubled = arith.substitute(arith.wrap(arena.size), {H: arith.mul(H, 2)})
        assert arith.evaluate(doubled, values) == arith.evaluate(arena.size, values | {H: 2 * values[H]})
