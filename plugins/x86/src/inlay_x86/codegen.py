"""Regions to x86-64 object code."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any

import llvmlite.binding as llvm

from inlay.artifact import Artifact
from inlay.errors import CompileError
from inlay.plugins import CompileContext
from inlay.tensor.math import expand_program
from inlay.tensor.region import RegionProgram
from inlay_x86.cpu import features, vector_bits
from inlay_x86.llvm.region import print_region
from inlay_x86.options import FORMAT, FORMAT_VERSION, X86Options

TRIPLE = "x86_64-unknown-linux-gnu"


class X86Codegen:
    """Compiles a `RegionProgram` to an ELF object with one C-ABI function."""

    def __init__(self, options: X86Options) -> None:
        self.options = options
        self.features = features(options)

    def compile(self, unit: RegionProgram, context: CompileContext) -> Artifact:
        """The region as an artifact. Equal regions give equal bytes."""
        symbol = unit.name
        unit = replace(unit, kernels=tuple(map(expand_program, unit.kernels)))
        text = print_region(unit, symbol, TRIPLE, _data_layout(), self._attributes())
        return Artifact(
            symbol=symbol,
            format=FORMAT,
            format_version=FORMAT_VERSION,
            code=compile_text(text, self.features),
            signature=unit.signature,
            constants=unit.constants,
            workspace={"": unit.workspace},
            requires=self.features,
        )

    def _attributes(self) -> str:
        """Function attributes: LLVM splits 512-bit vectors in two for many CPUs unless told not to."""
        width = vector_bits(self.options)
        return f'"prefer-vector-width"="{width}" "min-legal-vector-width"="{width}"'


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
def initialise() -> None:
    """Register LLVM's targets, once."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()


@functools.cache
def _target_machine(enabled: tuple[str, ...]) -> Any:
    initialise()
    target = llvm.Target.from_triple(TRIPLE)
    return target.create_target_machine(
        cpu="x86-64", features=",".join(f"+{name}" for name in enabled), opt=3, reloc="pic", codemodel="small"
    )


@functools.cache
def _data_layout() -> str:
    return str(_target_machine(()).target_data)
