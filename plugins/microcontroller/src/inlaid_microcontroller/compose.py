"""Composition of a model from several regions. Regions are of this target, or of other targets whose artifacts are C.

Each region becomes one function. One arena holds the values that regions pass to each other and the workspaces of the regions. All
are planned together."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from inlaid.codegen.c import region_source
from inlaid_microcontroller.options import FORMAT
from inlaid_microcontroller.source import Array, ModelSource
from inlaid_microcontroller.unit import PREFIX, Buffer, Call, Kernel, Unit, decode
from inlaid_runtime.arith import Dim, SizeVar, free_vars
from inlaid_runtime.artifact import PORTABLE_C, Artifact, Signature, TensorSpec
from inlaid_runtime.artifact.plan import Invoke, Move, Plan, Value
from inlaid_runtime.errors import EXPLAIN, Remedy, Unsupported, dims_setting
from inlaid_runtime.execution.c_source import REGION_PARAMETERS, REGION_PRELUDE
from inlaid_runtime.memory.planner import Lifetime, plan

ALIGNED = 8
"""Alignment of all buffers in bytes, since the structs of parts hold 64-bit numbers."""


@dataclass(frozen=True)
class Composed:
    """A composed model. source: the whole model. files: additional sources by name. parts: regions of this target, as separate
    models."""

    source: ModelSource
    files: Mapping[str, str]
    parts: tuple[ModelSource, ...] = ()


@dataclass(frozen=True)
class _Part:
    """One call of a region. room: bytes of the workspace. text: C function that runs the region. before: declarations that `text`
    needs. files: sources of the region by name. source: the region as a model if it is of this target, else None."""

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
    """Compose a model from a plan of region calls. nodes: source nodes of each region. Raises `Unsupported` for an artifact that is
    not C."""
    parts = [_part(name, number, call, artifacts[call.symbol], nodes[call.symbol]) for number, call in enumerate(calls)]
    values = sorted({number for call in calls for number in (*call.inputs, *call.outputs)} | {number for _, number in graph.inputs})
    lifetimes: list[Lifetime] = []
    for number in values:
        steps = [step for step, call in enumerate(calls) if number in (*call.inputs, *call.outputs)]
        kind = graph.values[number].storage
        first = -1 if kind == "input" or not steps else steps[0]
        lifetimes.append(
            Lifetime(_bytes(graph.values[number]), first, len(calls) if kind == "output" else max(steps, default=first))
        )
    lifetimes += [Lifetime(part.room, step, step) for step, part in enumerate(parts)]
    arena = plan(lifetimes, ALIGNED)
    offsets = [_static(offset) for offset in arena.offsets]
    storages = {number: ("input", index) for index, (_, number) in enumerate(graph.inputs)}
    storages |= {number: ("output", index) for index, (_, number) in enumerate(graph.outputs)}
    buffers: list[Buffer] = []
    for number, offset in zip(values, offsets, strict=False):
        value = graph.values[number]
        storage, index = storages.get(number, ("arena", 0))
        size = _bytes(value)
        elements = np.zeros(0, np.uint8 if value.dtype is None else value.dtype.numpy)
        buffers.append(Buffer(f"value{number}", storage, index, offset, _element_type(elements), size // elements.itemsize, size))
    positions = {number: position for position, number in enumerate(values)}
    constants: dict[str, Array] = {}
    unit_calls: list[Call] = []
    for step, part in enumerate(parts):
        arguments = [*(positions[number] for number in (*part.call.inputs, *part.call.outputs)), len(buffers)]
        buffers.append(Buffer(f"room{step}", "arena", 0, offsets[len(values) + step], "uint8_t", part.room, part.room))
        for key, array in part.artifact.constants.items() if part.artifact.format != FORMAT else ():
            arguments.append(len(buffers))
            buffers.append(Buffer(key, "constant", len(constants), 0, _element_type(array), array.size, array.nbytes))
            constants[f"{step}.{key}"] = array
        unit_calls.append(Call(step, tuple(arguments), tuple(nodes[part.call.symbol])))
    kernels = tuple(Kernel(f"part{step}", part.text, True, 0, 0, 0, 256) for step, part in enumerate(parts))
    sources = tuple(part.source for part in parts if part.source is not None)
    headers = tuple(dict.fromkeys(("string.h", *(header for source in sources for header in source.unit.headers))))
    functions = "".join(dict.fromkeys(part.before for part in parts))
    unit = Unit(cpu, kernels, tuple(unit_calls), tuple(buffers), _static(arena.size), 0, headers, functions)
    signature = Signature(_specs(graph, graph.inputs), _specs(graph, graph.outputs))
    inputs, outputs = ([label for label, _ in side] for side in (graph.inputs, graph.outputs))
    files = {file: text for part in parts for file, text in part.files.items()}
    return Composed(ModelSource(name, unit, signature, inputs, outputs, constants), files, sources)


def copy_to_output(graph: Plan, move: Move, number: int, weights: Mapping[str, Array]) -> tuple[Invoke, Artifact]:
    """Create a C region that copies a value or a constant to an output of the model. Returns the call of the region and its
    artifact."""
    value = graph.values[move.source]
    spec = TensorSpec("x", value.shape, value.dtype)
    constants = {"x": weights[value.name]} if value.storage == "constant" else {}
    body = f"    memcpy(outputs[0], {'constants' if constants else 'inputs'}[0], {_bytes(value)});"
    call = Invoke(f"copy{number}", () if constants else (move.source,), (move.target,))
    signature = Signature(() if constants else (spec,), (spec,))
    code = region_source(call.symbol, body, "#include <string.h>\n")
    return call, Artifact(call.symbol, f"copy{PORTABLE_C}", 1, code, signature, constants)


def _part(name: str, number: int, call: Invoke, artifact: Artifact, nodes: Sequence[str]) -> _Part:
    if artifact.format == FORMAT:
        return _nested_model(f"{name}_part{number}", number, call, artifact)
    if artifact.format.endswith(PORTABLE_C) and not artifact.signature.dims:
        return _foreign_region(f"{name}_{artifact.symbol}", number, call, artifact)
    raise Unsupported(
        f"expected every region as C, since the controller runs the whole model, found {artifact.symbol} as {artifact.format}",
        node=", ".join(nodes[:3]) or artifact.symbol,
        remedy=Remedy.join("see ", EXPLAIN),
    )


def _params(artifact: Artifact) -> list[str]:
    kinds = {"x": "const void *restrict x", "y": "void *restrict y"}
    params = [f"{kinds[letter]}{index}" for letter, side in _sides(artifact.signature) for index in range(len(side))]
    return [*params, "uint8_t *restrict room"]


def _nested_model(title: str, number: int, call: Invoke, artifact: Artifact) -> _Part:
    """Convert a region of this target to a separate model, whose state is in the arena."""
    signature = artifact.signature
    inputs, outputs = ([f"{word}{index}" for index in range(len(side))] for word, side in _sides(signature))
    source = ModelSource(title, decode(artifact.code), signature, inputs, outputs, artifact.constants)
    if source.unit.fast:
        expected = "one region, whose outputs are distinct and neither inputs nor constants"
        raise Unsupported(f"a model with option fast must have {expected}", remedy="remove the option fast")
    lines = [f"struct {title} *const state = (struct {title} *)(void *)room;"]
    lines += [f"memcpy({port.address}, x{index}, {port.bytes});" for index, port in enumerate(source.inputs)]
    run = f"{title}_run(state)"
    lines.append(f"if ({run}) return 1;" if source.checks else f"{run};")
    lines += [f"memcpy(y{index}, {port.address}, {port.bytes});" for index, port in enumerate(source.outputs)]
    room = -(-max(source.unit.arena, 1) // ALIGNED) * ALIGNED
    text = _function(number, _params(artifact), lines)
    return _Part(artifact, call, room, text, f'#include "{title}.h"\n', source.files(), source)


def _foreign_region(title: str, number: int, call: Invoke, artifact: Artifact) -> _Part:
    """Convert a region of another target. It is renamed with the model's prefix and called by its C ABI for hosts."""
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
    declared = f'#ifdef __cplusplus\nextern "C"\n#endif\nint32_t {title}({REGION_PARAMETERS});\n'
    before = f"#ifndef {PREFIX}CONTEXT\n#define {PREFIX}CONTEXT\n{REGION_PRELUDE}#endif\n{declared}"
    code = re.sub(rf"\b{artifact.symbol}\b", title, artifact.code.decode())
    room = -(-max(_static(artifact.workspace.get("", 0)), 1) // ALIGNED) * ALIGNED
    return _Part(artifact, call, room, _function(number, params, lines), before, {f"{title}.c": code})


def _sides(signature: Signature) -> tuple[tuple[str, tuple[TensorSpec, ...]], ...]:
    """Return pairs of a parameter letter and specs: x with the inputs, y with the outputs."""
    return ("x", signature.inputs), ("y", signature.outputs)


def _function(number: int, params: Sequence[str], lines: Sequence[str]) -> str:
    body = "".join(f"    {line}\n" for line in lines)
    unused = "" if "room" in body else "    (void)room;\n"
    end = "" if lines[-1].startswith("return") else "    return 0;\n"
    return f"static int32_t {PREFIX}part{number}({', '.join(params)}) {{\n{unused}{body}{end}}}\n"


def _element_type(array: Array) -> str:
    """Return the C type of an array's elements."""
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
            f"expected static sizes, found symbolic size {size!r}",
            remedy=Remedy.join("fix it: ", dims_setting(dict.fromkeys(names))),
        )
    return size
