"""Kernels on threads in a language of the tests' own, which has no vectors: what does not depend on a language."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import pytest

from inlaid.codegen.launch_plan import ThreadKernel
from inlaid.codegen.threads.kernel import print_thread_kernel, thread_source
from inlaid.tensor import ir
from inlaid.tensor.parse import parse
from inlaid.tensor.transform.launches import SpmdKernel, split_launches
from inlaid.tensor.transform.rewrite import Rewriter
from inlaid_runtime.errors import Unsupported
from inlaid_runtime.types import DType, MemoryScope

SCOPES = (
    MemoryScope("shared", "block", 32 << 10, 16),
    MemoryScope("local", "thread", 1024),
    MemoryScope("dealt", "thread", 1024),
)


class Toy:
    """A language of scalars."""

    name = "toy"
    prelude = "// toy\n"
    words = frozenset(("kernel",))
    lanes: tuple[int, ...] = ()
    helpers: ClassVar = {"called": "// called\n", "used": "// used, called\n", "unused": "// unused\n"}
    converted: frozenset[str] = frozenset()
    device, shared, barrier, static_shared = "far", "near", "used()", 1 << 10
    emitters: ClassVar = {
        name: lambda places, args, name=name: [f"{name}({', '.join(region.pointer for region in places)});"]
        for name in ("begin", "warp")
    } | {"settle": lambda places, args: ["settle();"], "described": lambda places, args: [f"described({', '.join(args)});"]}
    dealt: ClassVar = {"dealt": 4}

    def with_waits(self, program: ir.LoopProgram) -> ir.LoopProgram:
        def awaited(stmt: ir.Stmt) -> ir.Stmt | None:
            return ir.Seq((ir.Intrinsic("settle", ()), stmt)) if isinstance(stmt, ir.Barrier) else None

        begins = any(isinstance(stmt, ir.Intrinsic) and stmt.name == "begin" for stmt in ir.walk_stmts(program.body))
        return Rewriter(stmt=awaited).program(program) if begins else program

    def descriptor(self, stmt: ir.Intrinsic) -> str:
        return "rows of 8" if stmt.name == "described" else ""

    def descriptor_parameter(self, name: str) -> str:
        return f"map {name}"

    def head(self, name: str, threads: tuple[int, int, int] | None) -> str:
        return f"kernel {name}"

    def position(self, thread: str) -> str:
        return thread

    def shared_array(self, kind: str, name: str, count: int) -> str:
        return f"near {kind} {name}[{count}];"

    def vector(self, dtype: DType, lanes: int) -> str:
        raise AssertionError("no vectors")

    def call(self, function: str, args: Sequence[str], dtype: DType, lanes: int) -> str:
        return f"{function}({', '.join(args)})"

    def shuffle(self, value: str, lane: str, width: int) -> str:
        return f"shuffle({value}, {lane}, {width})"

    any = all = splat = elements = lane = choose = convert = decode = encode = reinterpret = load = store = vector


REVERSE = """
program reverse(x: float32[n]) -> (y: float32[n]):
  size n: 8..1000000000000
  for b in (n // 8), thread, "blockIdx.x":
    alloc s: float32[8] in "shared"
    for t in 8, thread, "threadIdx.x":
      s[t] = x[((b * 8) + t)]
    for u in 8, thread, "threadIdx.x":
      y[((b * 8) + u)] = s[(7 + (u * -1))]
"""
REVERSE_TEXT = """\
kernel reverse_0(far uint8_t *restrict b0, int64_t o0, far uint8_t *b1, int64_t o1, int64_t n) {
    far const float *x = (far const float *)(b0 + o0);
    far float *y = (far float *)(b1 + o1);
    near float s[8];
    const int64_t b = (int64_t)blockIdx.x;
    const int64_t threadIdx_x = (int64_t)threadIdx.x;
    s[threadIdx_x] = x[b * 8 + threadIdx_x];
    used();
    y[b * 8 + threadIdx_x] = s[threadIdx_x * (-1) + 7];
}
"""


def printed(text: str) -> tuple[str, bool, str]:
    ((name, kernel),) = split_launches(parse(text), SCOPES, 8).kernels.items()
    printed_kernel = print_thread_kernel(ThreadKernel(name, kernel, 0), Toy())
    return printed_kernel.text, printed_kernel.reports, printed_kernel.index


def test_a_kernel_with_shared_memory():
    text, reports, index = printed(REVERSE)
    assert (text, reports, index) == (REVERSE_TEXT, False, "int64_t")
    ((name, kernel),) = split_launches(parse(REVERSE), SCOPES).kernels.items()
    source = thread_source([print_thread_kernel(ThreadKernel(name, kernel, 0), Toy())], Toy())
    assert source == f"// toy\n\n// called\n\n// used, called\n\n{REVERSE_TEXT}"


def test_shared_memory_that_a_launch_allocates():
    ((name, kernel),) = split_launches(parse(REVERSE.replace("float32[8]", "float32[300]")), SCOPES).kernels.items()
    printed_kernel = print_thread_kernel(ThreadKernel(name, kernel, 0), Toy())
    assert printed_kernel.shared == 1200 and "near int64_t arena[0];" in printed_kernel.text
    assert "near float *s = (near float *)((near uint8_t *)arena + 0);" in printed_kernel.text


def test_indices_have_32_bits_where_these_hold_them():
    assert printed(REVERSE.replace("1000000000000", "100000"))[2] == "int32_t"
    assert printed(REVERSE.replace("1000000000000", str(1 << 31)))[2] == "int64_t"


def test_registers_are_named_values_and_lanes_that_a_language_has_not_are_scalars():
    text, _, _ = printed("""
program sums(x: float32[4, 100]) -> (y: float32[4]):
  for b in 1, thread, "blockIdx.x":
    alloc r: float32[4] in "register"
    for lane in 4, vectorized:
      r[lane] = float32(0.0)
    for k in 100:
      for lane2 in 4, vectorized:
        r[lane2] = (r[lane2] + x[lane2, k])
    for lane3 in 4, vectorized:
      y[lane3] = r[lane3]
""")
    assert "float r_0, r_1, r_2, r_3;" in text and "r_3 += x[k + 300];" in text and "y[2] = r_2;" in text


def test_what_fails_beside_a_barrier_reaches_it_all_the_same():
    text, reports, _ = printed("""
program scatter(x: int32[8], at: int32[8]) -> (y: int32[8]):
  for b in 1, thread, "blockIdx.x":
    alloc s: int32[8] in "shared"
    for t in 8, thread, "threadIdx.x":
      s[checked(at[t], 0, 7)] = x[t]
    for u in 8, thread, "threadIdx.x":
      y[u] = s[(7 + (u * -1))]
""")
    assert reports and "far int32_t *report)" in text
    inside = text[text.index("do {") : text.index("} while (0);")]
    assert "*report = 1;" in inside and "break;" in inside and "return" not in text


DEALT = """
program tiles(x: float32[32]) -> (y: float32[32]):
  for b in 1, thread, "blockIdx.x":
    alloc s: float32[32] in "shared"
    alloc f: float32[2, 16] in "dealt"
    for t in 4, thread, "threadIdx.x":
      intrinsic "begin" on read x[(t * 8) +: 8], write s[(t * 8) +: 8]
    intrinsic "warp" over "threadIdx.x" on read s[16 +: 16], write f[1 +: 1, 0 +: 16]
    intrinsic "warp" over "threadIdx.x" on read f[1 +: 1, 0 +: 16], write s[16 +: 16]
    for u in 4, thread, "threadIdx.x":
      y[u] = s[(u + 1)]
"""


def test_intrinsics_work_on_buffers_that_are_dealt_out_and_later():
    text, _, _ = printed(DEALT)
    lines = [line.strip() for line in text.splitlines()]
    assert "uint32_t f[8];" in lines and "warp(&s[16], &f[4]);" in lines
    assert lines[lines.index("used();") - 1] == "settle();" and lines.count("used();") == 1
    with pytest.raises(Unsupported, match="buffer f in scope 'dealt': expected a constant index"):
        printed(DEALT.replace('    intrinsic "warp"', '    for i in 2:\n      intrinsic "warp"').replace("f[1 +:", "f[i +:"))


DESCRIBED = """
program described(x: int32[32], z: int32[32]) -> (y: int32[32]):
  for b in 8, thread, "blockIdx.x":
    alloc s: int32[32] in "shared"
    intrinsic "described" on read z[0 +: 8], write s[0 +: 8]
    intrinsic "described" on read z[8 +: 8], write s[8 +: 8]
    intrinsic "described" on read x[16 +: 16], write s[16 +: 16]
    for u in 4, thread, "threadIdx.x":
      y[((b * 4) + u)] = s[(u + 1)]
"""


def test_buffers_are_described_by_parameters():
    (kernel,) = split_launches(parse(DESCRIBED), SCOPES).kernels.values()
    printed_kernel = print_thread_kernel(ThreadKernel("k", kernel, 0), Toy())
    params = kernel.program.params
    assert [(params[item.buffer].name, item.text) for item in printed_kernel.descriptors] == [
        ("z", "rows of 8"),
        ("x", "rows of 8"),
    ]
    assert "map descriptor, map descriptor_1" in " ".join(printed_kernel.text.split())
    assert printed_kernel.text.count("described(descriptor);") == 2 and printed_kernel.text.count("described(descriptor_1);") == 1


def test_an_unknown_intrinsic():
    program = ir.LoopProgram("odd", (), (), ir.Intrinsic("gemm", ()))
    with pytest.raises(Unsupported, match="toy has no tensor intrinsic 'gemm'"):
        print_thread_kernel(ThreadKernel("odd", SpmdKernel(program, {}, {}, {}), 0), Toy())


TREE = """
program tree(x: bool[24, 8]) -> (y: bool[24, 2, 8]):
  for b in 6, thread, "blockIdx.x":
    alloc p: bool[4, 8] in "subgroup"
    alloc q: bool[4, 4] in "subgroup"
    for r in 4, thread, "threadIdx.y":
      for t in 8, thread, "threadIdx.x":
        p[r, t] = x[((b * 4) + r), t]
    for r in 4, thread, "threadIdx.y":
      for t in 4, thread, "threadIdx.x":
        q[r, t] = max(p[r, t], p[r, (t + 4)])
    for r in 4, thread, "threadIdx.y":
      for t in 8, thread, "threadIdx.x":
        y[((b * 4) + r), 0, t] = q[r, 3]
        y[((b * 4) + r), 1, t] = p[r, t]
"""
TREE_TEXT = """\
    const int32_t threadIdx_y = (int32_t)threadIdx.y;
    const int32_t threadIdx_x = (int32_t)threadIdx.x;
    uint8_t p_0;
    uint8_t q_0;
    uint8_t p_of_0;
    uint8_t q_of_0;
    p_0 = 0;
    q_0 = 0;
    p_0 = x[b * 32 + threadIdx_y * 8 + threadIdx_x] != 0;
    p_of_0 = shuffle((uint8_t)(p_0 != 0), (int32_t)(threadIdx_x + 4), 8) != 0;
    if (threadIdx_x < 4) {
        const _Bool v1 = p_of_0 != 0;
        const _Bool v2 = p_0 != 0;
        q_0 = v2 > v1 ? v2 : v1;
    }
    q_of_0 = shuffle((uint8_t)(q_0 != 0), 3, 8) != 0;
    y[b * 64 + threadIdx_y * 16 + threadIdx_x] = q_of_0 != 0;
    y[b * 64 + threadIdx_y * 16 + threadIdx_x + 8] = p_0 != 0;
}
"""


def test_registers_of_a_subgroup_are_shuffled():
    text = printed(TREE)[0]
    assert text[text.index("    const int32_t threadIdx_y") :] == TREE_TEXT


def test_a_buffer_of_lanes_that_a_scalar_copy_of_the_loop_had_by_name():
    class Lanes(Toy):
        lanes = (4,)

        def vector(self, dtype: DType, lanes: int) -> str:
            return f"{dtype}x{lanes}"

        def lane(self, value: str, number: int, lanes: int) -> str:
            return f"{value}.{number}"

        def elements(self, values: Sequence[str], dtype: DType) -> str:
            return f"[{', '.join(values)}]"

        def load(self, pointer: str, space: str, dtype: DType, lanes: int, aligned: int) -> str:
            return f"load({pointer})"

        def store(self, value: str, pointer: str, space: str, dtype: DType, lanes: int, aligned: int) -> str:
            return f"store({pointer}, {value})"

    program = parse("""
program twice(x: float32[10]) -> (y: float32[10]):
  for b in 1, thread, "blockIdx.x":
    for lane in 5, vectorized:
      alloc own: float32[1]
      own[0] = x[lane]
      y[lane] = own[0]
    for lane in 5, vectorized:
      alloc other: float32[1]
      other[0] = x[(lane + 5)]
      y[(lane + 5)] = other[0]
""")
    first, second = (stmt.buffer for stmt in ir.walk_stmts(program.body) if isinstance(stmt, ir.Alloc))
    program = Rewriter(buffers={second: first}).program(program)
    ((name, kernel),) = split_launches(program, SCOPES).kernels.items()
    text = print_thread_kernel(ThreadKernel(name, kernel, 0), Lanes()).text
    assert text.count("float own[4];") + text.count("float own_1[4];") + text.count("float own_2[4];") == 2
