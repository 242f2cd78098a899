"""Places in memory scopes, and what is refused: undeclared scopes, too large buffers, buffers of the wrong owner."""

from __future__ import annotations

from dataclasses import replace

import pytest

from inlaid.tensor import ir
from inlaid.tensor.analysis.memory_scopes import check_scopes, places
from inlaid.tensor.parse import parse
from inlaid_runtime import arith
from inlaid_runtime.errors import ScheduleError
from inlaid_runtime.types import MemoryScope, dtype

SHARED = MemoryScope("shared", "block", capacity=49152, alignment=128)
LOCAL = MemoryScope("local", "thread", capacity=1024)
SRAM = MemoryScope("sram", "device", capacity=65536)
TILE = MemoryScope("tile", "thread", capacity=64, count=3, row_bytes=16)
EVERY = (SHARED, LOCAL, SRAM, TILE)

PHASES = """
program phases(x: float32[8, 32]) -> (y: float32[8, 32]):
  for b in 8, thread, "blockIdx.x":
    alloc s: float32[32] in "shared"
    alloc t: float32[8, 4] in "shared"
    alloc u: float32[33] in "shared"
    for i in 32, thread, "threadIdx.x":
      s[i] = x[b, i]
    for j in 32, thread, "threadIdx.x":
      t[(j // 4), (j % 4)] = s[((-1 * j) + 31)]
    for k in 32, thread, "threadIdx.x":
      alloc r: float32[2] in "local"
      r[1] = t[(k // 4), (k % 4)]
      u[k] = r[1]
    for m in 32, thread, "threadIdx.x":
      y[b, m] = u[((-1 * m) + 31)]
"""
"""Each phase of threads reads what another thread of the phase before wrote."""


def named(program: ir.LoopProgram, scope: MemoryScope) -> dict[str, int]:
    return {buffer.name: at for buffer, at in places(program, scope).items()}


def refused(text: str, message: str, *scopes: MemoryScope) -> None:
    with pytest.raises(ScheduleError) as caught:
        check_scopes(parse(text), scopes or EVERY)
    assert message in str(caught.value)


def test_buffers_share_what_no_other_uses_at_the_time() -> None:
    program = parse(PHASES)
    offsets = named(program, SHARED)
    assert offsets["s"] == offsets["u"] == 0 and offsets["t"] == 256
    assert named(program, LOCAL) == {"r": 0} and not named(program, SRAM)
    check_scopes(program, EVERY)


def test_offsets_are_aligned() -> None:
    program = parse(PHASES)
    assert named(program, replace(SHARED, alignment=512))["t"] == 512
    # s and t, 128 bytes each, then t and u, 132 bytes and the rest of a unit: 384 bytes at multiples of 128, 260 at those of 4.
    check_scopes(program, (replace(SHARED, capacity=384), LOCAL))
    check_scopes(program, (replace(SHARED, capacity=260, alignment=1), LOCAL))
    for fewer in (replace(SHARED, capacity=383), replace(SHARED, capacity=259, alignment=1)):
        with pytest.raises(ScheduleError, match=r"scope 'shared', in loop b: expected at most \d+ bytes in use at once, found"):
            check_scopes(program, (fewer, LOCAL))


def test_elements_are_aligned_where_the_scope_asks_for_less() -> None:
    text = """
program mixed() -> (y: float32[1]):
  alloc a: int8[6] in "sram"
  alloc b: float32[1] in "sram"
  b[0] = float32(2.0)
  a[0] = int8(1)
  y[0] = b[0]
"""
    assert all(at % 4 == 0 for at in named(parse(text), SRAM).values())


def test_one_phase_is_in_no_order() -> None:
    """What one thread has done with, another may be about to use."""
    program = parse("""
program phase(x: float32[32]) -> (y: float32[32]):
  alloc s: float32[32] in "shared"
  alloc t: float32[32] in "shared"
  for i in 32, thread, "threadIdx.x":
    s[i] = x[i]
    t[i] = s[i]
    y[i] = t[i]
""")
    assert sorted(named(program, SHARED).values()) == [0, 128]


def test_what_a_loop_carries_is_live_in_all_of_it() -> None:
    program = parse("""
program carried(x: float32[8]) -> (y: float32[8]):
  alloc a: float32[1] in "sram"
  alloc b: float32[1] in "sram"
  for i in 8:
    b[0] = x[i]
    y[i] = b[0]
    a[0] = x[i]
""")
    assert sorted(named(program, SRAM).values()) == [0, 4]


def test_a_buffer_that_code_allocates_twice_has_one_place() -> None:
    """Beside what lives with it at either."""
    y = ir.Buffer("y", (2,), dtype("float32"))
    s, t = (ir.Buffer(name, (1,), dtype("float32"), "sram") for name in "st")
    one, first = ir.const(1, "float32"), (arith.ZERO,)
    both = ir.Seq((ir.Store(s, first, one), ir.Store(t, first, one), ir.Store(y, first, s[0] + t[0])))
    again = ir.Seq((ir.Store(s, first, one), ir.Store(y, (arith.ONE,), s[0])))
    program = ir.LoopProgram("twice", (), (y,), ir.Seq((ir.Alloc(s, ir.Alloc(t, both)), ir.Alloc(s, again))))
    assert sorted(places(program, SRAM).values()) == [0, 4]


def test_too_large_a_buffer() -> None:
    refused(
        """
program large(x: float32[8]) -> (y: float32[8]):
  for b in 8, thread, "blockIdx.x":
    alloc s: float32[262144] in "shared"
    s[b] = x[b]
    y[b] = s[b]
""",
        "large: buffer s in scope 'shared', in loop b: expected at most 49152 bytes in use at once, found 1048576: s of 1048576; "
        "split the loops around it further",
    )


def test_too_many_buffers_at_once() -> None:
    text = """
program both(x: float32[8192]) -> (y: float32[8192]):
  alloc s: float32[8192] in "shared"
  alloc t: float32[8192] in "shared"
  for i in 8192, thread, "threadIdx.x":
    s[i] = x[i]
  for j in 8192, thread, "threadIdx.x":
    t[j] = s[((-1 * j) + 8191)]
  for k in 8192, thread, "threadIdx.x":
    y[k] = t[k]
"""
    refused(
        text,
        "scope 'shared', outside of all loops: expected at most 49152 bytes in use at once, found 65536: s of 32768, t of 32768",
    )
    check_scopes(parse(text.replace("t[j] = s[((-1 * j) + 8191)]", "t[j] = x[((-1 * j) + 8191)]")), EVERY)


def test_an_undeclared_scope() -> None:
    refused(PHASES, "phases: buffer s in scope 'shared', in loop b: expected a scope that the target declares ('local')", LOCAL)
    with pytest.raises(ScheduleError, match=r"\(none\)"):
        check_scopes(parse(PHASES), ())


def test_main_memory_and_plain_registers_need_no_declaration() -> None:
    check_scopes(parse(PHASES.replace('in "shared"', "").replace('in "local"', 'in "register"')), ())


SYMBOLIC = """
program symbolic(x: float32[n]) -> (y: float32[n]):
  size n: 1..{most}
  alloc s: float32[n] in "sram"
  for i in n:
    s[i] = x[i]
  for j in n:
    y[j] = s[j]
"""


def test_symbolic_extents_count_by_their_bounds() -> None:
    check_scopes(parse(SYMBOLIC.format(most=16384)), EVERY)
    refused(SYMBOLIC.format(most=16385), "buffer s in scope 'sram', outside of all loops: expected at most 65536 bytes")
    refused(SYMBOLIC.format(most=""), "expected extents with constant bounds, found n")


OWNED = """
program owned(x: float32[4, 8]) -> (y: float32[4, 8]):
  {0}
  for b in 4, thread, "blockIdx.x":
    {1}
    for t in 8, {loop}:
      {2}
      s[t] = x[b, t]
      y[b, t] = s[t]
"""
BLOCKS, THREADS, PARALLEL, LANES = "blockIdx.x", 'thread, "threadIdx.x"', "parallel", "vectorized"


@pytest.mark.parametrize(
    ("scope", "depth", "loop", "message"),
    [
        ("sram", 0, THREADS, ""),
        ("sram", 1, THREADS, "one buffer per device, found one per iteration of loop b; allocate it outside of loop b"),
        ("shared", 0, THREADS, "one buffer per block, found one for all iterations of loop b; allocate it inside loop b"),
        ("shared", 1, THREADS, ""),
        ("shared", 2, THREADS, "one buffer per block, found one per iteration of loop t; allocate it outside of loop t"),
        ("local", 0, THREADS, "one buffer per thread, found one for all iterations of loop b; allocate it inside loop b"),
        ("local", 1, THREADS, "one buffer per thread, found one for all iterations of loop t; allocate it inside loop t"),
        ("local", 2, THREADS, ""),
        ("local", 1, PARALLEL, "one buffer per thread, found one for all iterations of loop t; allocate it inside loop t"),
        ("local", 2, PARALLEL, ""),
        ("local", 1, "serial", ""),
        ("local", 1, LANES, ""),
        ("local", 2, LANES, "one buffer per thread, found one per iteration of loop t; allocate it outside of loop t"),
    ],
)
def test_owners(scope: str, depth: int, loop: str, message: str) -> None:
    around = ["", "", ""]
    around[depth] = f'alloc s: float32[8] in "{scope}"'
    text = OWNED.format(*around, loop=loop).replace(", serial", "")
    text = "\n".join(line for line in text.splitlines() if line.strip())
    if message:
        refused(text, f"buffer s in scope '{scope}'")
        refused(text, message)
    else:
        check_scopes(parse(text), EVERY)


TOGETHER = """
program together(x: float32[4, 8]) -> (y: float32[4, 8]):
  for b in 4, thread, "blockIdx.x":
    alloc f: float32[1000] in "local"
    intrinsic "load" over "threadIdx.x" on read x[b +: 1, 0 +: 8], write f[0 +: 8]
    for t in 8, thread, "threadIdx.x":
      y[b, t] = x[b, t]
    intrinsic "store" over "threadIdx.x" on read f[0 +: 8], update y[b +: 1, 0 +: 8]
"""


def test_what_threads_use_together_is_left_to_launches() -> None:
    """It may be larger than what a thread owns, and be allocated around loops over threads, but not around those over blocks."""
    check_scopes(parse(TOGETHER), EVERY)
    alloc = '    alloc f: float32[1000] in "local"\n'
    outside = TOGETHER.replace(alloc, "").replace("  for b", f"{alloc[2:]}  for b")
    refused(outside, "buffer f in scope 'local', outside of all loops: expected one buffer per thread")


TILES = """
program tiles(x: float32[4]) -> (y: float32[4]):
  for i in 4:
    alloc a: float32[4, 4] in "tile"
    alloc b: float32[4, 4] in "tile"
    a[0, 0] = x[i]
    y[i] = a[0, 0]
    b[0, 0] = x[i]
    y[i] = b[0, 0]
  for j in 4:
    alloc c: float32[4, 4] in "tile"
    alloc d: float32[2, 4] in "tile"
    c[0, 0] = x[j]
    d[0, 0] = c[0, 0]
    y[j] = d[0, 0]
"""


def test_registers_hold_one_buffer_each() -> None:
    """Those allocated together have registers of their own, those of another shape too."""
    registers = named(parse(TILES), TILE)
    assert {registers["a"], registers["b"]} == {0, 1} and registers["c"] in (0, 1) and registers["d"] == 2
    refused(TILES, "in scope 'tile', in loop j: expected at most 2 registers in use, found 3", replace(TILE, count=2))


@pytest.mark.parametrize(("shape", "rows"), [("5, 4", "5 of 16"), ("4, 5", "4 of 20"), ("4, 2, 3", "4 of 24")])
def test_registers_have_rows(shape: str, rows: str) -> None:
    indices = ", ".join("0" for _ in shape.split(","))
    text = f"""
program rows() -> (y: float32[1]):
  alloc t: float32[{shape}] in "tile"
  t[{indices}] = float32(1.0)
  y[0] = t[{indices}]
"""
    refused(text, f"rows: buffer t in scope 'tile', outside of all loops: expected at most 4 rows of 16 bytes, found {rows}")
