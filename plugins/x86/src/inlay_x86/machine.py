"""LLVM for x86-64: text to object code. Imports no compiler package of the core, since the runtime's threads need it too."""

from __future__ import annotations

import functools
from typing import Any

import llvmlite.binding as llvm

from inlay.errors import CompileError

TRIPLE = "x86_64-unknown-linux-gnu"


@functools.cache
def initialise() -> None:
    """Register LLVM's targets, once."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()


def compile_text(text: str, enabled: tuple[str, ...]) -> bytes:
    """LLVM text to an ELF object, optimised. Raises `CompileError` where LLVM rejects the text."""
    machine = _target_machine(enabled)
    try:
        module = llvm.parse_assembly(text)
        module.verify()
    except RuntimeError as error:
        raise CompileError(f"LLVM rejects the generated code: {error}", plugin="x86") from error
    tuning = llvm.create_pipeline_tuning_options(speed_level=2)
    tuning.slp_vectorization = False
    builder = llvm.create_pass_builder(machine, tuning)
    builder.getModulePassManager().run(module, builder)
    code: bytes = machine.emit_object(module)
    return code


@functools.cache
def _target_machine(enabled: tuple[str, ...]) -> Any:
    initialise()
    target = llvm.Target.from_triple(TRIPLE)
    return target.create_target_machine(
        cpu="x86-64", features=",".join(f"+{name}" for name in enabled), opt=3, reloc="pic", codemodel="small"
    )


@functools.cache
def data_layout() -> str:
    """How LLVM lays out types for x86-64."""
    return str(_target_machine(()).target_data)
