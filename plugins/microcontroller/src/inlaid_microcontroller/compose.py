"""Models of several regions: the target's own, and those of vendors whose artifacts are C. Each becomes one function of the whole,
over one arena in which values between regions and the memory of each are planned together."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from inlaid.arith import Dim, SizeVar, free_vars
from inlaid.artifact import PORTABLE_C, Artifact, Signature, TensorSpec
from inlaid.artifact.plan import Invoke, Move, Plan, Value
from inlaid.codegen.c import region_source
from inlaid.errors import EXPLAIN, Remedy, Unsupported, dims_setting
from inlaid.memory.planner import Lifetime, plan
from inlaid.runtime.c_source import REGION_PARAMETERS, REGION_PRELUDE
from inlaid_microcontroller.options import FORMAT
from inlaid_microcontroller.source import Array, ModelSource
from inlaid_microcontroller.unit import PREFIX, Buffer, Call, Kernel, Unit, decode

ALIGNED = 8
"""Bytes to multiples of which everything is aligned: the structs of parts hold 64-bit numbers."""


@dataclass(frozen=True)
class Composed:
    """The whole, and further files by name: the target's own `parts`, as models of their own, and the vendors' C."""

    source: ModelSource
    files: Mapping[str, str]
    parts: tuple[ModelSource, ...] = ()


@dataclass(frozen=True)
class _Part:
    """One call of a region: bytes of memory that it takes, its function's text, what stands before that, the files that it is
    made of, and, of the target's own, the model that it is."""

    artifact: Artifact
    call: Invoke
    room: int
    text: str
    before: str
    files: Mapping[str, str]
    source: ModelSource | None = None


def compose(
    name: str,
    cpu: str,
    graph: Plan,
    calls: Sequence[Invoke],
    artifacts: Mapping[str, Artifact],
    nodes: Mapping[str, Sequence[str]],
) -> Composed:
    """The model that a plan of calls of regions is. `nodes` has the source nodes of each region. Raises `Unsupported` for an
    artifact that is no C."""
    parts = [_part(name, number, call, artifacts[call.symbol], nodes[call.symbol]) for number, call in enumerate(calls)]
    values = sorted({number for call in calls for number in (*call.inputs, *call.outputs)} | {number for _, number in graph.inputs})
    lives: list[Lifetime] = []
    for number in values:
        steps = [step for step, call in enumerate(calls) if number in (*call.inputs, *call.outputs)]
        kind = graph.values[number].storage
        first = -1 if kind == "input" or not steps else steps[0]
        lives.append(Lifetime(_bytes(graph.values[number]), first, len(calls) if kind == "output" else max(steps, default=first)))
    lives += [Lifetime(part.room, step, step) for step, part in enumerate(parts)]
    arena = plan(lives, ALIGNED)
    offsets = [_static(offset) for offset in arena.offsets]
    storages = {number: ("input", index) for index, (_, number) in enumerate(graph.inputs)}
    storages |= {number: ("output", index) for index, (_, number) in enumerate(graph.outputs)}
    buffers: list[Buffer] = []
    for number, offset in zip(values, offsets, strict=False):
        value = graph.values[number]
        storage, index = storages.get(number, ("arena", 0))
        size = _bytes(value)
        elements = np.zeros(0, np.uint8 if value.dtype is None else value.dtype.numpy)
        buffers.append(Buffer(f"value{number}", storage, index, offset, _word(elements), size // elements.itemsize, size))
    places = {number: place for place, number in enumerate(values)}
    constants: dict[str, Array] = {}
    made: list[Call] = []
    for step, part in enumerate(parts):
        used = [*(places[number] for number in (*part.call.inputs, *part.call.outputs)), len(buffers)]
        buffers.append(Buffer(f"room{step}", "arena", 0, offsets[len(values) + step], "uint8_t", part.room, part.room))
        for key, array in part.artifact.constants.items() if part.artifact.format != FORMAT else ():
            used.append(len(buffers))
            buffers.append(Buffer(key, "constant", len(constants), 0, _word(array), array.size, array.nbytes))
            constants[f"{step}.{key}"] = array
        made.append(Call(step, tuple(used), tuple(nodes[part.call.symbol])))
    kernels = tuple(Kernel(f"part{step}", part.text, True, 0, 0, 0, 256) for step, part in enumerate(parts))
    own = tuple(part.source for part in parts if part.source is not None)
    headers = tuple(dict.fromkeys(("string.h", *(header for source in own for header in source.unit.headers))))
    functions = "".join(dict.fromkeys(part.before for part in parts))
    unit = Unit(cpu, kernels, tuple(made), tuple(buffers), _static(arena.size), 0, headers, functions)
    signature = Signature(_specs(graph, graph.inputs), _specs(graph, graph.outputs))
    inputs, outputs = ([label for label, _ in side] for side in (graph.inputs, graph.outputs))
    files = {file: text for part in parts for file, text in part.files.items()}
    return Composed(ModelSource(name, unit, signature, inputs, outputs, constants), files, own)


def copy_to_output(graph: Plan, move: Move, number: int, weights: Mapping[str, Array]) -> tuple[Invoke, Artifact]:
    """What copies a value to an output of the model, as a region in C and a call of it; a constant is the region's own."""
    value = graph.values[move.source]
    spec = TensorSpec("x", value.shape, value.dtype)
    own = {"x": weights[value.name]} if value.storage == "constant" else {}
    body = "    (void)inputs, (void)constants, (void)dims, (void)workspace, (void)context;\n"
    body += f"    memcpy(outputs[0], {'constants' if own else 'inputs'}[0], {_bytes(value)});"
    call = Invoke(f"copy{number}", () if own else (move.source,), (move.target,))
    signature = Signature(() if own else (spec,), (spec,))
    code = region_source(call.symbol, body, "#include <string.h>\n")
    return call, Artifact(call.symbol, f"copy{PORTABLE_C}", 1, code, signature, own)


def _part(name: str, number: int, call: Invoke, artifact: Artifact, nodes: Sequence[str]) -> _Part:
    if artifact.format == FORMAT:
        return _own(f"{name}_part{number}", number, call, artifact)
    if artifact.format.endswith(PORTABLE_C) and not artifact.signature.dims:
        return _vendors(f"{name}_{artifact.symbol}", number, call, artifact)
    raise Unsupported(
        f"region {artifact.symbol} is {artifact.format}, which the controller cannot run: a model runs there whole or not at all",
        node=", ".join(nodes[:3]) or artifact.symbol,
        remedy=Remedy.of("see ", EXPLAIN),
    )


def _params(artifact: Artifact) -> list[str]:
    kinds = {"x": "const void *restrict x", "y": "void *restrict y"}
    params = [f"{kinds[letter]}{index}" for letter, side in _sides(artifact.signature) for index in range(len(side))]
    return [*params, "uint8_t *restrict room"]


def _own(title: str, number: int, call: Invoke, artifact: Artifact) -> _Part:
    """A region of the target, as a model of its own whose state lies in the arena."""
    signature = artifact.signature
    inputs, outputs = ([f"{word}{index}" for index in range(len(side))] for word, side in _sides(signature))
    source = ModelSource(title, decode(artifact.code), signature, inputs, outputs, artifact.constants)
    if source.unit.fast:
        what = "models of one region, of which no output is an input, a constant or another output"
        raise Unsupported(f"two memories are for {what}", remedy="leave fast= out")
    lines = [f"struct {title} *const state = (void *)room;"]
    lines += [f"memcpy({port.address}, x{index}, {port.bytes});" for index, port in enumerate(source.inputs)]
    run = f"{title}_run(state)"
    lines.append(f"if ({run}) return 1;" if source.checks else f"{run};")
    lines += [f"memcpy(y{index}, {port.address}, {port.bytes});" for index, port in enumerate(source.outputs)]
    room = -(-max(source.unit.arena, 1) // ALIGNED) * ALIGNED
    text = _function(number, _params(artifact), lines)
    return _Part(artifact, call, room, text, f'#include "{title}.h"\n', source.files(), source)


def _vendors(title: str, number: int, call: Invoke, artifact: Artifact) -> _Part:
    """A vendor's region, called as on a host, under a name of the model's."""
    params = [*_params(artifact), *(f"const void *restrict c{index}" for index in range(len(artifact.constants)))]

    def array(const: str, letter: str, count: int) -> str:
        return f"{const}void *const {letter}s[] = {{{', '.join(f'{letter}{index}' for index in range(count)) or '0'}}};"

    lines = [
        array("const ", "x", len(artifact.signature.inputs)),
        array("", "y", len(artifact.signature.outputs)),
        array("const ", "c", len(artifact.constants)),
        f"{PREFIX}context context = {{{{0}}, 0, 0, 0, {{0}}}};",
        f"return {title}(xs, ys, cs, 0, room, &context) != 0;",
    ]
    declared = f"int32_t {title}({REGION_PARAMETERS});\n"
    before = f"#ifndef {PREFIX}CONTEXT\n#define {PREFIX}CONTEXT\n{REGION_PRELUDE}#endif\n{declared}"
    code = re.sub(rf"\b{artifact.symbol}\b", title, artifact.code.decode())
    room = -(-max(_static(artifact.workspace.get("", 0)), 1) // ALIGNED) * ALIGNED
    return _Part(artifact, call, room, _function(number, params, lines), before, {f"{title}.c": code})


def _sides(signature: Signature) -> tuple[tuple[str, tuple[TensorSpec, ...]], ...]:
    """Letters for parameters, and what they stand for."""
    return ("x", signature.inputs), ("y", signature.outputs)


def _function(number: int, params: Sequence[str], lines: Sequence[str]) -> str:
    body = "".join(f"    {line}\n" for line in lines)
    unused = "" if "room" in body else "    (void)room;\n"
    end = "" if lines[-1].startswith("return") else "    return 0;\n"
    return f"static int32_t {PREFIX}part{number}({', '.join(params)}) {{\n{unused}{body}{end}}}\n"


def _word(array: Array) -> str:
    """The C type of the elements of an array."""
    size = array.dtype.itemsize
    if array.dtype.kind == "f" and size >= 4:
        return "float" if size == 4 else "double"
    return f"{'u' if array.dtype.kind not in 'i' else ''}int{8 * size}_t"


def _specs(graph: Plan, side: Sequence[tuple[str, int]]) -> tuple[TensorSpec, ...]:
    return tuple(TensorSpec(label, graph.values[number].shape, graph.values[number].dtype) for label, number in side)


def _bytes(value: Value) -> int:
    size = 1 if value.dtype is None else value.dtype.bytes
    for dim in value.shape:
        size *= _static(dim)
    return size


def _static(size: Dim) -> int:
    if not isinstance(size, int):
        names = sorted(variable.name for variable in free_vars(size) if isinstance(variable, SizeVar))
        raise Unsupported(
            f"the model has a symbolic size, {size!r}", remedy=Remedy.of("fix it: ", dims_setting(dict.fromkeys(names)))
        )
    return size
