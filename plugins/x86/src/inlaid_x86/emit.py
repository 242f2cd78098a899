"""Compilation of LLVM text to object code, in this process or as the main program of a worker process.

llvmlite serializes all work of a process with one lock, so compiling kernels in parallel needs several processes. This file imports
only the standard library and llvmlite, so that a worker starts quickly:

    python -I -S emit.py FOLDER_OF_LLVMLITE IDLE_SECONDS

A worker writes `GREETING` to stdout, then reads requests from stdin and answers each on stdout, until end of file, or until no
request arrives for `IDLE_SECONDS`. A request is one byte for the effort (`FULL`), then three UTF-8 texts: features, symbol and
module, each preceded by its length. An answer is one byte (0: an object, 1: LLVM's error message), the length of the object or
message, and its bytes. Lengths are unsigned 64-bit little-endian numbers of bytes.
"""

from __future__ import annotations

import functools
import select
import struct
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

if __name__ == "__main__":
    sys.path.append(sys.argv[1])

import llvmlite.binding as llvm
from llvmlite.binding.newpassmanagers import NewPassManager

TRIPLE = "x86_64-unknown-linux-gnu"
KERNEL = "kernel"
"""Placeholder name of a kernel's function in its module; `emit` renames it to a symbol derived from its contents."""
FULL, EXPLICIT, CALLS = range(3)
"""Optimization effort. FULL: LLVM's usual passes. EXPLICIT: few passes, for code that is already vectorized and unrolled. CALLS: no
passes, for entry functions, which only call kernels."""
GREETING = b"ready\n"
REQUEST = struct.Struct("<B3Q")
ANSWER = struct.Struct("<BQ")


@functools.cache
def initialize() -> None:
    """Register LLVM's targets on the first call."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    llvm.initialize_native_asmparser()  # for inline assembly


@functools.cache
def target_machine(features: str, level: int = 3) -> Any:
    """Create LLVM's code generator for features such as `+avx,+fma` at an optimization level of 0 to 3."""
    initialize()
    target = llvm.Target.from_triple(TRIPLE)
    return target.create_target_machine(cpu="x86-64", features=features, opt=level, reloc="pic", codemodel="small")


def emit(text: str, features: str, symbol: str = "", effort: int = FULL) -> bytes:
    """Compile a module to an ELF object and rename its kernel to `symbol`. Raises RuntimeError if LLVM rejects the text."""
    machine = target_machine(features, 0 if effort == CALLS else 3)
    # A context of its own: LLVM's global context keeps the types and constants of every module.
    with llvm.create_context() as context, llvm.parse_assembly(text, context) as module:
        module.verify()
        if symbol:
            module.get_function(KERNEL).name = symbol
        if effort != CALLS:
            _optimize(module, machine, effort)
        with _in_source_order(effort == EXPLICIT):
            code: bytes = machine.emit_object(module)
    return code


def _optimize(module: Any, machine: Any, effort: int) -> None:
    """Run LLVM's passes on a module."""
    with llvm.create_pipeline_tuning_options(speed_level=2) as tuning:
        tuning.slp_vectorization = False
        with llvm.create_pass_builder(machine, tuning) as builder:
            passes = _explicit_passes() if effort == EXPLICIT else builder.getModulePassManager()
            try:
                passes.run(module, builder)
            finally:
                _dispose(passes)


def _dispose(passes: Any) -> None:
    """Free a pass manager and its passes, 150 KB for LLVM's usual ones. Its own `close` frees nothing: `ObjectRef` comes before
    `NewPassManager` among the bases of llvmlite's classes, so that the empty `_dispose` of the former hides that of the latter."""
    NewPassManager._dispose(passes)
    passes.detach()


_options = threading.Lock()
"""Lock held while code is generated, since LLVM's options are process-wide."""


@contextmanager
def _in_source_order(enabled: bool) -> Iterator[None]:
    """Enter a context that generates code, if `enabled` without LLVM's scheduler. The scheduler hoists loads above multiply-adds
    even if no register is free. A tile of 16 accumulators then spills one in each step, and a 7 x 7 convolution takes 1.7 times as
    long."""
    with _options:
        llvm.set_option("inlaid", f"-enable-misched={0 if enabled else 1}")
        try:
            yield
        finally:
            llvm.set_option("inlaid", "-enable-misched=1")


def _explicit_passes() -> Any:
    passes = llvm.create_new_module_pass_manager()
    passes.add_sroa_pass()
    # Merge a loop's body and latch. Otherwise the next pass sinks loads for the next iteration into the latch in reverse order, and
    # prefetchers do not follow addresses that increase from step to step but decrease within a step.
    passes.add_simplify_cfg_pass()
    passes.add_instruction_combine_pass()
    passes.add_loop_simplify_pass()
    passes.add_loop_rotate_pass()
    passes.add_simplify_cfg_pass()
    return passes


def serve(idle_seconds: float) -> None:
    """Answer requests from stdin until end of file, or until none arrives for a time."""
    source, sink = sys.stdin.buffer, sys.stdout.buffer
    sink.write(GREETING)
    sink.flush()
    # `select` does not see what Python has buffered, but nothing is: the next request is written after the answer.
    while select.select([source], [], [], idle_seconds)[0] and len(head := source.read(REQUEST.size)) == REQUEST.size:
        effort, *sizes = REQUEST.unpack(head)
        features, symbol, text = (source.read(size).decode() for size in sizes)
        try:
            status, content = 0, emit(text, features, symbol, effort)
        except RuntimeError as error:
            status, content = 1, str(error).encode()
        sink.write(ANSWER.pack(status, len(content)) + content)
        sink.flush()


if __name__ == "__main__":
    serve(float(sys.argv[2]))
