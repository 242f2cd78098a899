"""The linker: what it makes is read by other tools and does what its parts say; what it cannot link it names."""

from __future__ import annotations

import contextlib
import ctypes
import io
import itertools
import math
import struct
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from elftools.elf.elffile import ELFFile
from hypothesis import given, settings
from hypothesis import strategies as st

from inlaid.codegen.elf import Blob, link
from inlaid_runtime.artifact.image import read_image
from inlaid_runtime.errors import CompileError
from inlaid_runtime.execution.c_source import find_compiler
from inlaid_runtime.execution.mapped import map_image
from inlaid_x86.linking import X86_64, helper_object, link_image
from inlaid_x86.machine import TRIPLE, compile_text, data_layout
from inlaid_x86_runtime.pool import MACHINE

HEAD = f'target triple = "{TRIPLE}"\ntarget datalayout = "{data_layout()}"\n'
PARTS = (
    f"""{HEAD}
@count = global i32 5
@zeros = hidden global [100 x i32] zeroinitializer
@table = hidden constant [2 x ptr] [ptr @bump, ptr @two]
define hidden i32 @bump(i32 %x) noinline {{
  %old = load i32, ptr @count
  %new = add i32 %old, %x
  store i32 %new, ptr @count
  ret i32 %new
}}
declare hidden i32 @two(i32)
define hidden i32 @shared(i32 %x) noinline {{
  ret i32 1
}}
define i32 @pick(i32 %which, i32 %x) {{
  %slot = getelementptr ptr, ptr @table, i32 %which
  %function = load ptr, ptr %slot
  %result = call i32 %function(i32 %x)
  ret i32 %result
}}
""",
    f"""{HEAD}
@zeros = external hidden global [100 x i32]
declare hidden i32 @bump(i32)
define weak hidden i32 @shared(i32 %x) noinline {{
  ret i32 2
}}
define hidden i32 @two(i32 %x) noinline {{
  ret i32 2
}}
define i32 @branch(i32 %x) {{
  switch i32 %x, label %none [ i32 0, label %a  i32 1, label %b  i32 2, label %c  i32 3, label %d  i32 4, label %e ]
a:
  ret i32 10
b:
  %moved = call i32 @bump(i32 7)
  ret i32 %moved
c:
  %place = getelementptr i32, ptr @zeros, i32 99
  %zero = load i32, ptr %place
  ret i32 %zero
d:
  %one = call i32 @shared(i32 0)
  ret i32 %one
e:
  ret i32 50
none:
  ret i32 -1
}}
""",
)
OBJECTS = [compile_text(text) for text in PARTS]
NAMES = ("pick", "branch")


def function(code: bytes, name: str, result: Any, *parameters: Any) -> Any:
    mapped = map_image(code, MACHINE, "a test")
    entry_point = ctypes.CFUNCTYPE(result, *parameters)(mapped.addresses[name])
    entry_point.keep = mapped
    return entry_point


def test_calls_data_tables_and_weak_symbols() -> None:
    """A call between objects, a variable that is not hidden, a table of addresses, a jump table, memory that is zero."""
    for order in (OBJECTS, OBJECTS[::-1]):
        mapped = map_image(link_image(order, NAMES), MACHINE, "a test")
        pick = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_int32, ctypes.c_int32)(mapped.addresses["pick"])
        branch = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_int32)(mapped.addresses["branch"])
        assert [pick(0, 1), pick(0, 2), pick(1, 0)] == [6, 8, 2]
        assert [branch(x) for x in range(6)] == [10, 15, 0, 1, 50, -1]


def test_equal_inputs_give_equal_bytes() -> None:
    assert link_image(OBJECTS, NAMES) == link_image(OBJECTS, NAMES)


def test_other_tools_read_it() -> None:
    """pyelftools finds the functions, the name and the sections; no segment is writable and executable, nor the stack."""
    code = b"".join(link(OBJECTS, NAMES, X86_64, name="libparts.so", blobs=(Blob("unused", (bytes(100), bytes(7)), 64),)))
    elf = ELFFile(io.BytesIO(code))
    dynamic = elf.get_section_by_name(".dynamic")
    assert [tag.soname for tag in dynamic.iter_tags("DT_SONAME")] == ["libparts.so"]
    assert not list(dynamic.iter_tags("DT_NEEDED"))
    symbols = elf.get_section_by_name(".dynsym")
    addresses = {symbol.name: symbol["st_value"] for symbol in symbols.iter_symbols() if symbol.name}
    assert addresses == dict(read_image(code, MACHINE).functions) and set(addresses) == set(NAMES)
    text = elf.get_section_by_name(".text")
    assert all(text["sh_addr"] <= at < text["sh_addr"] + text["sh_size"] for at in addresses.values())
    assert {elf.get_section(symbol["st_shndx"]).name for symbol in symbols.iter_symbols() if symbol.name} == {".text"}
    hashes = elf.get_section_by_name(".hash")
    assert hashes.get_number_of_symbols() == 3 and all(hashes.get_symbol(name).name == name for name in NAMES)
    relocations = list(elf.get_section_by_name(".rela.dyn").iter_relocations())
    assert len(relocations) == 3 and {item["r_info_type"] for item in relocations} == {8}
    loads = [item for item in elf.iter_segments() if item["p_type"] == "PT_LOAD"]
    assert [item["p_flags"] for item in loads] == [4, 5, 6, 4]
    for item in loads:
        assert item["p_offset"] % 4096 == item["p_vaddr"] % 4096
    for before, after in itertools.pairwise(loads):
        assert (before["p_vaddr"] + before["p_memsz"] - 1) // 4096 < after["p_vaddr"] // 4096
    (stack,) = [item for item in elf.iter_segments() if item["p_type"] == "PT_GNU_STACK"]
    assert stack["p_flags"] == 6


@pytest.mark.skipif(find_compiler() is None, reason="there is no C compiler: apt-get install gcc")
def test_a_c_program_links_to_it(tmp_path: Path) -> None:
    """The system's link editor and its dynamic linker take the library, and run its constructors."""
    text = f"""{HEAD}
@llvm.global_ctors = appending global [1 x {{ i32, ptr, ptr }}] [{{ i32, ptr, ptr }} {{ i32 65535, ptr @start, ptr null }}]
@value = hidden global i32 1
define hidden void @start() {{
  store volatile i32 42, ptr @value
  ret void
}}
define i32 @read() {{
  %value = load i32, ptr @value
  ret i32 %value
}}
"""
    chunks = link([*OBJECTS, compile_text(text)], ("pick", "branch", "read"), X86_64, name="libparts.so")
    (tmp_path / "libparts.so").write_bytes(b"".join(chunks))
    (tmp_path / "main.c").write_text(
        "int pick(int, int), branch(int), read(void);\n"
        "int main(void) { return read() == 42 && pick(0, 3) == 8 && branch(1) == 15 && pick(1, 0) == 2 ? 0 : 1; }\n"
    )
    command = [str(find_compiler()), "-o", "main", "main.c", "-L.", "-lparts", "-Wl,-rpath,$ORIGIN"]
    subprocess.run(command, cwd=tmp_path, check=True, timeout=60)
    subprocess.run([str(tmp_path / "main")], check=True, timeout=60)


def test_images_are_linked_again() -> None:
    """Two copies of one image in another: each with data of its own."""
    image = read_image(link_image(OBJECTS, NAMES), MACHINE)
    caller = compile_text(f"""{HEAD}
declare hidden i32 @first(i32, i32)
declare hidden i32 @second(i32, i32)
@blob.address = hidden constant ptr @blob
@blob = external hidden constant i8
define i32 @both(i32 %x) {{
  %a = call i32 @first(i32 0, i32 %x)
  %b = call i32 @first(i32 0, i32 %x)
  %c = call i32 @second(i32 0, i32 %x)
  %ab = shl i32 %b, 8
  %address = load volatile ptr, ptr @blob.address
  %byte = load i8, ptr %address
  %d = zext i8 %byte to i32
  %abc = add i32 %ab, %c
  %abcd = add i32 %abc, %d
  ret i32 %abcd
}}
""")
    pick = {"pick": image.functions["pick"]}
    first = type(image)({"first": pick["pick"]}, image.segments, image.relative, image.size)
    second = type(image)({"second": pick["pick"]}, image.segments, image.relative, image.size)
    code = b"".join(
        link([caller], ("both",), X86_64, images={"first": first, "second": second}, blobs=(Blob("blob", (b"\x07",), 64),))
    )
    assert function(code, "both", ctypes.c_int32, ctypes.c_int32)(1) == (7 << 8) + 6 + 7


# --- what is not linked -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("declare i32 @getpid()\ndefine i32 @f() {\n  %r = call i32 @getpid()\n  ret i32 %r\n}", "object 0 refers to 'getpid'"),
        ("@x = external global i32\ndefine i32 @f() {\n  %r = load i32, ptr @x\n  ret i32 %r\n}", "refers to 'x'"),
        (
            "declare float @llvm.exp.f32(float)\n"
            "define float @f(float %x) {\n  %r = call float @llvm.exp.f32(float %x)\n  ret float %r\n}",
            "refers to 'expf', which neither the code nor the linker's helpers define",
        ),
        ("@x = thread_local global i32 1\ndefine ptr @f() {\n  ret ptr @x\n}", "thread-local"),
        ("@x = common global i32 0\ndefine ptr @f() {\n  ret ptr @x\n}", "absolute or common"),
        ("define i32 @g() {\n  ret i32 0\n}", "found no definition of f"),
    ],
)  # fmt: skip
def test_what_is_not_linked(text: str, reason: str) -> None:
    with pytest.raises(CompileError, match=reason):
        link_image([compile_text(HEAD + text)], ("f",))


def test_symbols_that_are_defined_twice() -> None:
    with pytest.raises(CompileError, match="symbol bump must be defined once, found a second definition in object 1"):
        link_image([OBJECTS[0], OBJECTS[0]], ("pick",))


def test_damaged_objects() -> None:
    for content in (b"", b"\x7fELF", b"no object" * 20, OBJECTS[0][:200], b"\x7fELF\x02\x01\x01" + bytes(100)):
        with pytest.raises(CompileError, match="object 0 cannot be linked"):
            link_image([content], ("f",))
    arm = bytearray(OBJECTS[0])
    arm[18] = 183
    with pytest.raises(CompileError, match="expected a relocatable object for ELF machine 62, found type 1 for machine 183"):
        link_image([bytes(arm)], ("f",))


@settings(deadline=None, max_examples=300)
@given(st.sampled_from(OBJECTS), st.data())
def test_objects_with_any_bytes_changed(content: bytes, data: st.DataObject) -> None:
    """They are linked or refused; nothing else is raised."""
    at, noise = data.draw(st.integers(0, len(content) - 1)), data.draw(st.binary(min_size=1, max_size=8))
    changed = (content[:at] + noise + content[at + len(noise) :])[: len(content)]
    objects = [other for other in OBJECTS if other is not content]
    with contextlib.suppress(CompileError):
        link_image([changed, *objects], NAMES)


# --- the functions of the C library that LLVM calls --------------------------------------------------------------------

DIVISIONS = ("__udivti3", "__umodti3", "__divti3", "__modti3")
HELPERS = ("memcpy", "memmove", "memset", "fmod", "fmodf", "fma", "fmaf", *DIVISIONS)


class Wide(ctypes.Structure):
    """A 128-bit integer in two registers."""

    _fields_ = (("low", ctypes.c_uint64), ("high", ctypes.c_uint64))


@pytest.fixture(scope="module")
def helpers() -> Any:
    """The helpers as Python functions."""
    objects = [content for name in HELPERS if (content := helper_object(name)) is not None]
    mapped = map_image(b"".join(link(objects, HELPERS, X86_64)), MACHINE, "helpers")
    kinds = {
        "memcpy": (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t),
        "memmove": (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t),
        "memset": (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t),
        "fmod": (ctypes.c_double,) * 3,
        "fmodf": (ctypes.c_float,) * 3,
        "fma": (ctypes.c_double,) * 4,
        "fmaf": (ctypes.c_float,) * 4,
        **dict.fromkeys(DIVISIONS, (Wide, Wide, Wide)),
    }
    functions = {name: ctypes.CFUNCTYPE(*kind)(mapped.addresses[name]) for name, kind in kinds.items()}
    return {**functions, "keep": mapped}


def test_copies_and_fills(helpers: Any) -> None:
    rng = np.random.default_rng(0)
    for size in [*range(140), 255, 256, 257, 1000, 4096, 10001]:
        for shift in (0, 1, 7, 63, 64, 65, 130):
            start = rng.integers(0, 256, size + 300, dtype=np.uint8)
            for name, to, source in (("memcpy", 20, None), ("memmove", 20, 20 + shift), ("memmove", 20 + shift, 20)):
                actual, expected, other = start.copy(), start.copy(), rng.integers(0, 256, size + 1, dtype=np.uint8)
                base = actual.ctypes.data
                source_address = other.ctypes.data if source is None else base + source
                expected[to : to + size] = other[:size] if source is None else start[source : source + size]
                assert helpers[name](base + to, source_address, size) == base + to
                np.testing.assert_array_equal(actual, expected)
            actual, expected = start.copy(), start.copy()
            expected[20 : 20 + size] = (shift * 3) & 255
            assert helpers["memset"](actual.ctypes.data + 20, shift * 3 + 256, size) == actual.ctypes.data + 20
            np.testing.assert_array_equal(actual, expected)


def bits_equal(actual: float, expected: float) -> bool:
    return struct.pack("<d", actual) == struct.pack("<d", expected) or (math.isnan(actual) and math.isnan(expected))


EDGES = st.sampled_from(
    [0.0, -0.0, 5e-324, -5e-324, 2.2250738585072014e-308, 1.0, -1.0, 1.7976931348623157e308, math.inf, -math.inf, math.nan]
)
DOUBLES = st.one_of(EDGES, st.floats(), st.floats(-1e3, 1e3), st.floats(-1e-300, 1e-300))


def libm(name: str, kind: Any, count: int) -> Any:
    symbol = getattr(ctypes.CDLL("libm.so.6"), name)
    symbol.restype, symbol.argtypes = kind, (kind,) * count
    return symbol


@settings(deadline=None, max_examples=600)
@given(DOUBLES, DOUBLES, DOUBLES)
def test_arithmetic(helpers: Any, x: float, y: float, z: float) -> None:
    """To the bit what the C library says, which is correctly rounded; also where the product and the addend nearly cancel."""
    fma, fmaf = libm("fma", ctypes.c_double, 3), libm("fmaf", ctypes.c_float, 3)
    fmod, fmodf = libm("fmod", ctypes.c_double, 2), libm("fmodf", ctypes.c_float, 2)
    nearly = [z, -(x * y), math.nextafter(-(x * y), math.inf), x * y * 2**-53 if math.isfinite(x * y) else z]
    for addend in nearly:
        assert bits_equal(helpers["fma"](x, y, addend), fma(x, y, addend)), (x, y, addend)
        assert bits_equal(helpers["fmaf"](x, y, addend), fmaf(x, y, addend)), (x, y, addend)
    assert bits_equal(helpers["fmod"](x, y), fmod(x, y)) and bits_equal(helpers["fmod"](y, x), fmod(y, x))
    assert bits_equal(helpers["fmodf"](x, y), fmodf(x, y)) and bits_equal(helpers["fmodf"](y, x), fmodf(y, x))


@settings(deadline=None, max_examples=600)
@given(st.floats(2.0**-100, 2.0**80, width=32), st.integers(0, 2**30), st.sampled_from([-2, -1, 0, 1, 2]), st.booleans())
def test_remainders_near_multiples(helpers: Any, divisor: float, times: int, steps: int, negative: bool) -> None:
    """Where a rounded quotient is the next integer, and around the longest quotient that is not divided step by step."""
    dividend = np.float32(divisor * times)
    for _ in range(abs(steps)):
        dividend = np.nextafter(dividend, np.float32(math.copysign(math.inf, steps)))
    x = -float(dividend) if negative else float(dividend)
    fmodf = libm("fmodf", ctypes.c_float, 2)
    for y in (divisor, -divisor):
        assert bits_equal(helpers["fmodf"](x, y), fmodf(x, y)), (x, y)


def test_arithmetic_of_random_bits(helpers: Any) -> None:
    """Every exponent, and exponents that lie close together."""
    rng = np.random.default_rng(1)
    fma, fmaf = libm("fma", ctypes.c_double, 3), libm("fmaf", ctypes.c_float, 3)
    fmod = libm("fmod", ctypes.c_double, 2)
    wide = rng.integers(0, 2**64, (3000, 3), dtype=np.uint64).view(np.float64)
    moderate = rng.normal(size=(3000, 3)) * 2.0 ** rng.integers(-60, 60, (3000, 3))
    tiny = moderate * 2.0**-1040
    for x, y, z in np.concatenate([wide, moderate, tiny, moderate * [1, 2.0**-1040, 2.0**-1040]]).tolist():
        assert bits_equal(helpers["fma"](x, y, z), fma(x, y, z)), (x, y, z)
        assert bits_equal(helpers["fmod"](x, y), fmod(x, y)), (x, y)
    narrow = rng.integers(0, 2**32, (3000, 3), dtype=np.uint32).view(np.float32)
    for x, y, z in np.concatenate(
        [narrow, moderate.astype(np.float32), (moderate * [1, 2.0**-140, 2.0**-140]).astype(np.float32)]
    ).tolist():
        assert bits_equal(helpers["fmaf"](x, y, z), fmaf(x, y, z)), (x, y, z)


BITS = st.one_of(
    st.integers(0, 2**128 - 1), st.integers(0, 2**65), st.integers(0, 200), st.sampled_from([2**127, 2**128 - 1, 2**64])
)


@settings(deadline=None, max_examples=300)
@given(BITS, BITS.filter(bool))
def test_wide_division(helpers: Any, x: int, y: int) -> None:
    def result(name: str) -> int:
        wide = helpers[name](*(Wide(value & (2**64 - 1), value >> 64) for value in (x, y)))
        return wide.high << 64 | wide.low

    assert (result("__udivti3"), result("__umodti3")) == divmod(x, y)
    a, b = (value - 2**128 if value >= 2**127 else value for value in (x, y))
    quotient = abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
    assert (result("__divti3"), result("__modti3")) == (quotient % 2**128, (a - quotient * b) % 2**128)
