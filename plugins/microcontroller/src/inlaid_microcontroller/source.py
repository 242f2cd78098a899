"""Printer of a model as C99: header, code and weights. The code needs only C99's standard headers."""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np

from inlaid_microcontroller.naming import identifier, label
from inlaid_microcontroller.unit import PREFIX, Buffer, Copy, Loop, Unit
from inlaid_runtime.artifact import Signature, TensorSpec
from inlaid_runtime.execution.c_source import cplusplus, spread
from inlaid_runtime.names import unique
from inlaid_runtime.types import from_numpy

Array = np.ndarray[Any, Any]
WIDTH = 120
"""Maximum characters of a line of numbers."""


@dataclass(frozen=True)
class Port:
    """An input or output. name: its name in C. title: its name in the model. kind: C type. offset: bytes into the arena, or into
    the fast arena if `fast`."""

    name: str
    title: str
    spec: TensorSpec
    kind: str
    offset: int
    elements: int
    fast: bool

    @property
    def address(self) -> str:
        """C expression of the address."""
        return f"state->{'fast->' if self.fast else ''}memory.arena + {self.offset}"

    @property
    def bytes(self) -> int:
        """Size in bytes."""
        assert self.spec.dtype is not None
        return self.elements * self.spec.dtype.bytes


class ModelSource:
    """Prints a model of one region. name: prefix of all C identifiers. inputs, outputs: names in the model of the region's inputs
    and outputs, in order. constants: the region's constants, in order. kinds: C types of the constants' elements, by number."""

    def __init__(
        self,
        name: str,
        unit: Unit,
        signature: Signature,
        inputs: Sequence[str],
        outputs: Sequence[str],
        constants: Mapping[str, Array],
    ) -> None:
        self.name = name
        self.unit = unit
        self.inputs, self.outputs = (
            tuple(self._port(names, storage, *item) for item in enumerate(zip(titles, specs, strict=True)))
            for names, storage, titles, specs in (
                (set[str](), "input", inputs, signature.inputs),
                (set[str](), "output", outputs, signature.outputs),
            )
        )
        accessors = {f"{kind}_{port.name}" for kind, ports in (("input", self.inputs), ("output", self.outputs)) for port in ports}
        self.weights = _weight_names(unit, list(constants.values()), accessors)
        self.arrays = list(constants.values())
        call_buffers = [unit.buffers[number] for call in unit.calls for number in call.buffers]
        self.kinds = {buffer.index: buffer.kind for buffer in reversed(call_buffers) if buffer.storage == "constant"}
        self.checks = any(unit.kernels[call.kernel].checks for call in unit.calls) or (unit.loop is not None and unit.loop.fails)

    def _port(self, names: set[str], storage: str, index: int, what: tuple[str, TensorSpec]) -> Port:
        title, spec = what
        candidates = [item for item in self.unit.buffers if item.storage == storage and item.index == index]
        buffer = min(candidates, key=lambda item: (item.offset, -item.bytes))
        assert spec.dtype is not None
        return Port(unique(identifier(title), names), title, spec, buffer.kind, buffer.offset, buffer.elements, buffer.fast)

    @property
    def guard(self) -> str:
        """Prefix of macros: the model's name in upper case."""
        return self.name.upper()

    def prefixed(self, text: str) -> str:
        """Replace the placeholder prefix of function names in the text of kernels by the model's name."""
        return re.sub(rf"\b{PREFIX}", f"{self.name}_", text)

    def files(self) -> dict[str, str]:
        """Return the model's files by name."""
        return {**self.sources(), f"{self.name}_weights.c": self.weights_source()}

    def sources(self) -> dict[str, str]:
        """Return the files except the definitions of the weights."""
        return {f"{self.name}.h": self.header(), f"{self.name}.c": self.code(), f"{self.name}_weights.h": self.weights_header()}

    def header(self) -> str:
        """Print the header that programs include."""
        name, guard = self.name, self.guard
        ports = []
        for port, kind in (*((port, "input") for port in self.inputs), *((port, "output") for port in self.outputs)):
            const = "const " if kind == "output" else ""
            call = f"{name}_{kind}" if len(self.inputs if kind == "input" else self.outputs) == 1 else f"{name}_{kind}_{port.name}"
            title = _comment(port.title)
            shape = "x".join(map(str, port.spec.shape)) or "1"
            ports.append(
                f"""/* {kind.capitalize()} {title}: {port.spec.dtype} {shape}, row-major. */
#define {call.upper()}_ELEMENTS {port.elements}
static inline {const}{port.kind} *{call}({const}struct {name} *state) {{
    return ({const}{port.kind} *)({const}void *)({port.address});
}}
"""
            )
        result = "int32_t" if self.checks else "void"
        returns = "\n   Returns 0, or 1 if an index in the data is out of range." if self.checks else ""
        body = "\n".join(ports)
        fast = set_fast = pointer = ""
        if self.unit.fast:
            fast = f"""#define {guard}_FAST_BYTES {self.unit.fast}

/* The part of the state to place in fast memory. */
struct {name}_fast {{
    union {{
        uint8_t arena[{self.unit.fast}];
        uint64_t aligned;
    }} memory;
}};
"""
            set_fast = " Set `fast` first."
            pointer = f"\n    struct {name}_fast *fast;"
        return f"""#ifndef {guard}_H
#define {guard}_H
#include <stdint.h>
#ifdef __cplusplus
extern "C" {{
#endif

#define {guard}_ARENA_BYTES {self.unit.arena}
{fast}
/* State of the model. Threads may run the model at the same time on separate states.{set_fast} */
struct {name} {{
    union {{
        uint8_t arena[{max(self.unit.arena, 1)}];
        uint64_t aligned;
    }} memory;{pointer}
}};

{body}
/* Run the model once. Inputs and outputs share memory with intermediate results: write all inputs before each run, and read the
   outputs before the next.{returns} */
{result} {name}_run(struct {name} *state);

#ifdef __cplusplus
}}
#endif
#endif
"""

    def code(self) -> str:
        """Print the kernels and the function that calls them in order."""
        kernels = []
        for number, kernel in enumerate(self.unit.kernels):
            calls = [call for call in self.unit.calls if call.kernel == number]
            nodes = [node for call in calls for node in call.nodes]
            about = f"{kernel.multiplications} multiplications, {kernel.loads} loads, {kernel.stores} stores"
            lines = "".join(f"\n   {_comment(node)}" for node in dict.fromkeys(nodes))
            about += f". Computes{lines} */" if nodes else ". */"
            kernels.append(f"/* {about}\n{self.guard}_NOINLINE {self.prefixed(kernel.text)}")
        text = "\n".join(kernels)
        headers = "".join(f"#include <{header}>\n" for header in self.unit.headers)
        functions = self.prefixed(self.unit.functions)
        end = "    return 0;\n" if self.checks else ""
        calls_ = "".join(self._call(number) for number in range(len(self.unit.calls)))
        calls_ = calls_ if self.unit.loop is None else self._rounds(self.unit.loop, calls_)
        arena = "    uint8_t *const arena = state->memory.arena;\n" if "(arena + " in calls_ else ""
        arena += "    uint8_t *const fast = state->fast->memory.arena;\n" if "(fast + " in calls_ else ""
        arena = arena or "    (void)state;\n"
        return f"""#include "{self.name}.h"
#include "{self.name}_weights.h"
{headers}{cplusplus(text + functions)}
/* Kernels reuse memory for elements of other types, so compilers must not inline and reorder them. */
#if defined(__GNUC__)
#define {self.guard}_NOINLINE __attribute__((noinline))
#else
#define {self.guard}_NOINLINE
#endif

{functions}
{text}
{"int32_t" if self.checks else "void"} {self.name}_run(struct {self.name} *state) {{
{arena}{calls_}{end}}}
"""

    def _call(self, number: int) -> str:
        call = self.unit.calls[number]
        kernel = self.unit.kernels[call.kernel]
        numbers_ = (_integer(value, 32, "int") for value in call.numbers)
        args = (*(self._argument(self.unit.buffers[item]) for item in call.buffers), *numbers_)
        flags = [f"{'' if holds else '!'}*{self._argument(self.unit.buffers[item], 'uint8_t')}" for item, holds in call.predicates]
        prefix = f"if ({' && '.join(flags)}) " if flags else ""
        before, after = (f"{prefix}if (", ") return 1;\n") if kernel.checks else (prefix, ";\n")
        return spread(f"    {before}{self.name}_{kernel.name}", args, after, WIDTH)

    def _rounds(self, loop: Loop, calls: str) -> str:
        """Print the rounds of a loop around the calls of one round."""

        def buffer(number: int, kind: str = "") -> str:
            return self._argument(self.unit.buffers[number], kind)

        def copy(item: Copy) -> str:
            source, target = (
                f"{buffer(number, 'uint8_t')}{f' + round * {step}' if step else ''}"
                for number, step in ((item.source, item.source_step), (item.target, item.target_step))
            )
            return f"memcpy({target}, {source}, {item.bytes});\n" if item.bytes else ""

        head = "".join(f"    {copy(item)}" for item in loop.first)
        limits = [f"round < {loop.rounds}"] if loop.rounds >= 0 else []
        if loop.trips >= 0:
            head += f"    const int64_t trips = *{buffer(loop.trips)};\n"
            limits.append("round < trips")
        if loop.condition >= 0 or loop.going >= 0:
            head += f"    uint8_t going = {f'*{buffer(loop.condition)}' if loop.condition >= 0 else '1'};\n"
            limits.append("going")
        kind = "int64_t" if loop.trips >= 0 or loop.rounds < 0 else "int32_t"
        # Kernels may read the number through a view. If no kernel reads it, the copies that follow may use its memory.
        body = f"    *{buffer(loop.number)} = round;\n"
        body += "".join(f"    {copy(item)}" for item in loop.before) + calls + "".join(f"    {copy(item)}" for item in loop.after)
        body += f"    going = *{buffer(loop.going)};\n" if loop.going >= 0 else ""
        indented_body = "".join(f"    {line}\n" for line in body.splitlines())
        round_loop = f"    {kind} round = 0;\n    for (; {' && '.join(limits)}; round++) {{\n{indented_body}    }}\n"
        return f"{head}{round_loop}" + (f"    if (round != {loop.rounds}) return 1;\n" if loop.fails else "")

    def _argument(self, buffer: Buffer, kind: str = "") -> str:
        if buffer.storage == "constant":
            return f"{self.name}_{self.weights[buffer.index]}"
        kind = kind or buffer.kind
        address = f"({'fast' if buffer.fast else 'arena'} + {buffer.offset})"
        # By way of void, since the arena has the alignment of all types.
        return f"({kind} *){address}" if kind in ("uint8_t", "int8_t") else f"({kind} *)(void *){address}"

    def weights_header(self) -> str:
        """Print the declarations of the weights."""
        lines = "".join(
            f"extern const {self.kinds[n]} {self.name}_{self.weights[n]}[{max(array.size, 1)}];\n"
            for n, array in enumerate(self.arrays)
        )
        head = f"#ifndef {self.guard}_WEIGHTS_H\n#define {self.guard}_WEIGHTS_H\n#include <stdint.h>\n"
        return f'{head}#ifdef __cplusplus\nextern "C" {{\n#endif\n{lines}#ifdef __cplusplus\n}}\n#endif\n#endif\n'

    def weights_source(self) -> str:
        """Print the definitions of the weights."""
        parts = [f'#include "{self.name}_weights.h"\n']
        for number, array in enumerate(self.arrays):
            name = f"{self.name}_{self.weights[number]}"
            shape = "x".join(map(str, array.shape)) or "1"
            parts.append(f"/* {shape} */\nconst {self.kinds[number]} {name}[{max(array.size, 1)}] = {{\n{numbers(array)}\n}};\n")
        return "\n".join(parts)


def _comment(text: str) -> str:
    """Escape text for a C comment. Breaks long names, which TensorFlow joins by semicolons, into lines."""
    text = text.replace("/*", "/ *").replace("*/", "* /") if text.isprintable() else identifier(text)
    return text if len(text) <= WIDTH else text.replace(";", ";\n      ")


def numbers(array: Array) -> str:
    """Format the elements of an array as lines of C literals."""
    kind = from_numpy(array.dtype)
    flat = np.ascontiguousarray(array).reshape(-1)
    if array.dtype == np.int8:  # a table, since there are millions of weights; negative values index it from its end
        bytes_ = [f" {value}," for value in (*range(128), *range(-128, 0))]
        texts = [bytes_[value] for value in flat.tolist()]
    elif kind.is_float and kind.bits >= 32:
        texts = [f" {_float(value, kind.bits)}," for value in flat.tolist()]
    elif kind.is_float or array.dtype.kind not in "iub":
        texts = [f" {value}," for value in flat.view(f"u{array.dtype.itemsize}" if kind.is_float else "i1").tolist()]
    else:
        texts = [f" {_integer(int(value), kind.bits, kind.kind)}," for value in flat.tolist()]
    texts = texts or [" 0,"]
    ends = [0, *accumulate(map(len, texts))]
    lines: list[str] = []
    first = 0
    while first < len(texts):
        last = bisect_right(ends, ends[first] + WIDTH - 3, first + 2) - 1
        lines.append(f"   {''.join(texts[first:last])}")
        first = last
    return "\n".join(lines)


def _integer(value: int, bits: int, kind: str) -> str:
    if bits == 64:
        return f"UINT64_C({value})" if kind == "uint" else f"INT64_C({value})" if value != -(1 << 63) else "INT64_MIN"
    return f"{value}u" if kind == "uint" and bits == 32 else "INT32_MIN" if value == -(1 << 31) else str(value)


def _float(value: float, bits: int) -> str:
    suffix = "f" if bits == 32 else ""
    if math.isnan(value):
        return f"0.0{suffix} / 0.0{suffix}"
    if math.isinf(value):
        return f"{'-' if value < 0 else ''}1.0{suffix} / 0.0{suffix}"
    return f"{value.hex()}{suffix}"


def _weight_names(unit: Unit, arrays: Sequence[Array], accessors: Collection[str]) -> dict[int, str]:
    """Choose the names of constants, keyed by number. A name consists of the layer that reads the constant and its role. accessors:
    names of functions other than kernels."""
    names = {*accessors, *(kernel.name for kernel in unit.kernels)}
    names_by_number: dict[int, str] = {}
    for call in unit.calls:
        owner = label(call.nodes, unit.kernels[call.kernel].name)
        for buffer in (unit.buffers[number] for number in call.buffers):
            if buffer.storage == "constant" and buffer.index not in names_by_number:
                names_by_number[buffer.index] = unique(f"{owner}_{role(arrays[buffer.index])}", names)
    for number in range(len(arrays)):
        names_by_number.setdefault(number, unique("constant", names))
    return names_by_number


def role(array: Array) -> str:
    """Guess the role of a constant from its type, rank and values."""
    if array.dtype == np.int8 and array.ndim == 1 and np.all(np.abs(array.astype(np.int32)) < 32):
        return "shift"
    if array.dtype == np.int64:
        return "indices"
    if array.dtype != np.int32:
        return "weights" if array.ndim > 1 else "table"
    if array.size and np.all((array == 0) | (np.abs(array.astype(np.int64)) >= 1 << 30)):
        return "multiplier"
    return "shift" if array.size and np.all(np.abs(array.astype(np.int64)) < 32) else "bias"
