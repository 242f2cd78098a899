"""Exported libraries for x86-64: processor check at load time, and the objects of the library's function."""

from __future__ import annotations

import platform
from collections.abc import Iterator, Sequence

from inlaid.codegen.library import LibraryFunction
from inlaid_runtime.errors import CompileError, Unsupported
from inlaid_x86.linking import helper_object
from inlaid_x86.llvm.library import MISSING, print_library
from inlaid_x86.llvm.region import Dialect
from inlaid_x86.machine import TRIPLE, compile_text, data_layout
from inlaid_x86.pool_text import TEXT
from inlaid_x86_runtime.cpu import TILE
from inlaid_x86_runtime.instruction_sets import FEATURES

_CPUID = """\
define internal i32 @cpuid(i32 %leaf, i32 %subleaf, i32 %register) #1 {
  %basis = and i32 %leaf, -2147483648
  %known = call { i32, i32, i32, i32 } asm sideeffect "cpuid", "={eax},={ebx},={ecx},={edx},{eax},{ecx}"(i32 %basis, i32 0)
  %last = extractvalue { i32, i32, i32, i32 } %known, 0
  %all = call { i32, i32, i32, i32 } asm sideeffect "cpuid", "={eax},={ebx},={ecx},={edx},{eax},{ecx}"(i32 %leaf, i32 %subleaf)
  %a = extractvalue { i32, i32, i32, i32 } %all, 0
  %b = extractvalue { i32, i32, i32, i32 } %all, 1
  %c = extractvalue { i32, i32, i32, i32 } %all, 2
  %d = extractvalue { i32, i32, i32, i32 } %all, 3
  %is.a = icmp eq i32 %register, 0
  %is.b = icmp eq i32 %register, 1
  %is.c = icmp eq i32 %register, 2
  %c.or.d = select i1 %is.c, i32 %c, i32 %d
  %b.to.d = select i1 %is.b, i32 %b, i32 %c.or.d
  %found = select i1 %is.a, i32 %a, i32 %b.to.d
  %unknown = icmp ult i32 %last, %leaf
  %result = select i1 %unknown, i32 0, i32 %found
  ret i32 %result
}

; The registers whose state the operating system saves; 0 if it does not use XSAVE, in which case XGETBV is undefined.
define internal i32 @saved() #1 {
  %word = call i32 @cpuid(i32 1, i32 0, i32 2)
  %shifted = lshr i32 %word, 27
  %osxsave = trunc i32 %shifted to i1
  br i1 %osxsave, label %yes, label %no
yes:
  %halves = call { i32, i32 } asm sideeffect "xgetbv", "={eax},={edx},{ecx}"(i32 0)
  %low = extractvalue { i32, i32 } %halves, 0
  ret i32 %low
no:
  ret i32 0
}"""
"""LLVM functions. `cpuid` returns a register of a CPUID leaf, 0 for an unknown leaf. `saved` returns the low half of XCR0."""
_PERMISSION = """\
  %refused = call i64 asm sideeffect "syscall",
    "={rax},{rax},{rdi},{rsi},~{rcx},~{r11},~{memory}"(i64 158, i64 4131, i64 18)"""
"""LLVM text of arch_prctl(ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA), which returns 0 if the process may use tiles."""


def library_objects(function: LibraryFunction) -> list[bytes]:
    """Compile the objects that define a library's function and its helpers, for any x86-64 processor."""
    if platform.machine() not in ("x86_64", "AMD64"):
        raise Unsupported(
            f"expected an x86_64 host, since LLVM assembles the processor check for its host only, found {platform.machine()}",
            remedy="export on an x86-64 machine",
        )
    parts = [*print_library(function), *(_print_check(function.requires) if function.requires else ())]
    helpers = [helper_object(name) for name in ("memcpy", "memset")]
    pool = [compile_text(TEXT)] if function.threads else []
    return [compile_text(Dialect(TRIPLE, data_layout(), "").module(*parts)), *pool, *filter(None, helpers)]


def _print_check(requires: Sequence[str]) -> Iterator[str]:
    """Print a constructor that sets `MISSING` to the number of the first required feature that the processor lacks."""
    features = {feature.name: feature for feature in FEATURES}
    if unknown := [name for name in requires if name not in features]:
        raise CompileError(f"cannot check for CPU features {', '.join(unknown)}: expected names in FEATURES", plugin="x86")
    yield _CPUID
    yield "@llvm.global_ctors = appending global [1 x { i32, ptr, ptr }] [{ i32, ptr, ptr } { i32 65535, ptr @check, ptr null }]"
    lines = ["define internal void @check() #1 {", "  %saved = call i32 @saved()"]
    missing = "0"
    # The message names the first missing feature, so features are tested in reverse order.
    for number, feature in reversed([*enumerate((features[name] for name in requires), 1)]):
        leaf, test = (value - (value >> 31 << 32) for value in (feature.leaf, 1 << feature.bit))
        lines += [
            f"  %word{number} = call i32 @cpuid(i32 {leaf}, i32 {feature.subleaf}, i32 {feature.register})",
            f"  %bit{number} = and i32 %word{number}, {test}",
            f"  %has{number} = icmp ne i32 %bit{number}, 0",
            f"  %state{number} = and i32 %saved, {feature.state}",
            f"  %kept{number} = icmp eq i32 %state{number}, {feature.state}",
            f"  %fine{number} = and i1 %has{number}, %kept{number}",
        ]
        usable = f"%fine{number}"
        if feature.name == TILE:
            lines += [_PERMISSION, "  %granted = icmp eq i64 %refused, 0", f"  %usable{number} = and i1 %fine{number}, %granted"]
            usable = f"%usable{number}"
        lines.append(f"  %missing{number} = select i1 {usable}, i32 {missing}, i32 {number}")
        missing = f"%missing{number}"
    yield "\n".join([*lines, f"  store i32 {missing}, ptr {MISSING}", "  ret void", "}"])
