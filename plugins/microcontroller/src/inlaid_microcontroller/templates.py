"""Templates of the files in a firmware folder that depend little on the model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any

import numpy as np

from inlaid_microcontroller.options import Cpu
from inlaid_microcontroller.source import ModelSource, Port, numbers

SIGNATURE = "Written by Inlaid: what is changed here is lost when the model is compiled again."
"""First line of every written file. Files without it belong to the user."""


def signed(file: str, text: str) -> str:
    """Prepend `SIGNATURE` to the text of a file, or add it as a member if the file is JSON."""
    comment = {".json": "", ".txt": f"# {SIGNATURE}\n"}.get(PurePath(file).suffix, f"/* {SIGNATURE} */\n")
    return comment + text


def test_vector(source: ModelSource, inputs: Mapping[str, Any], outputs: Mapping[str, Any]) -> str:
    """Print the header with test inputs and expected outputs. inputs, outputs: arrays by name."""
    parts = [f"#ifndef {source.guard}_TEST_H\n#define {source.guard}_TEST_H\n#include <stdint.h>\n"]
    for side, ports, arrays in (("input", source.inputs, inputs), ("output", source.outputs, outputs)):
        for port in ports:
            array = arrays[port.title]
            parts.append(
                f"static const {port.kind} {_vector(source, side, port)}[{max(array.size, 1)}] = {{\n{numbers(array)}\n}};\n"
            )
    return "\n".join([*parts, "#endif\n"])


def _vector(source: ModelSource, side: str, port: Port) -> str:
    return f"{source.name}_test_{side}_{port.name}"


def _accessor(source: ModelSource, side: str, port: Port) -> str:
    ports = source.inputs if side == "input" else source.outputs
    return f"{source.name}_{side}" if len(ports) == 1 else f"{source.name}_{side}_{port.name}"


def main(source: ModelSource, outputs: Mapping[str, Any]) -> str:
    """Print an example that runs the model on its test vector. Its exit status is 0 if the outputs are as expected. All NaNs are
    equal, since the bits of a NaN depend on the processor."""
    fill = compare = ""
    for port in source.inputs:
        fill += f"    memcpy({_accessor(source, 'input', port)}(&state), {_vector(source, 'input', port)}, {port.bytes});\n"
    for port in source.outputs:
        got, expected = _accessor(source, "output", port), _vector(source, "output", port)
        if port.kind in ("float", "double") and np.isnan(outputs[port.title]).any():
            compare += f"""    for (int i = 0; i < {port.elements}; i++) {{
        const {port.kind} got = {got}(&state)[i], wanted = {expected}[i];
        if (got != wanted && !(got != got && wanted != wanted)) return 1;
    }}
"""
            continue
        compare += f"    if (memcmp({got}(&state), {expected}, {port.bytes}) != 0) return 1;\n"
    fast = f"static struct {source.name}_fast fast;\n" if source.unit.fast else ""
    link = "    state.fast = &fast;\n" if source.unit.fast else ""
    run = f"    if ({source.name}_run(&state) != 0) return 2;\n" if source.checks else f"    {source.name}_run(&state);\n"
    return f"""/* Runs the model once on a test vector and checks the outputs. */
#include <string.h>
#include "{source.name}.h"
#include "{source.name}_test.h"

{fast}static struct {source.name} state;

int main(void) {{
{link}{fill}{run}{compare}    return 0;
}}
"""


def cmake(source: ModelSource, cpu: Cpu, more: Sequence[str]) -> str:
    """Print the CMake file of the model's library and the example. more: additional source files."""
    name = source.name
    math = f"\ntarget_link_libraries({name} PUBLIC m)" if "math.h" in source.unit.headers else ""
    flags = " ".join(cpu.flags)
    comment = f"# Compiler flags of the processor: {flags}\n" if flags else ""
    return f"""cmake_minimum_required(VERSION 3.13)
project({name} C)
{comment}add_library({name} STATIC {name}.c {" ".join((f"{name}_weights.c", *(file for file in more if file.endswith(".c"))))})
target_include_directories({name} PUBLIC ${{CMAKE_CURRENT_SOURCE_DIR}})
set_target_properties({name} PROPERTIES C_STANDARD 99 C_EXTENSIONS OFF)
# Products and sums of floats are rounded one by one, so that results are the same on every processor.
target_compile_options({name} PRIVATE -O2 -ffp-contract=off){math}

option({name.upper()}_EXAMPLE "Build main.c, which checks the model on its test vector" OFF)
if({name.upper()}_EXAMPLE)
  add_executable({name}_example main.c)
  target_link_libraries({name}_example PRIVATE {name})
endif()
"""
