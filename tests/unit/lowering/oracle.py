"""Regions run kernel by kernel in the interpreter of loop programs, over a real arena: what a lowering is held to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from inlaid.graph import ir as graph
from inlaid.graph.scope_conditions import call_conditions
from inlaid.lowering.region import RegionSource, lower_region
from inlaid.passes.fuse import fuse
from inlaid.plugins import Capabilities
from inlaid.schedules.default import SHARED_RULES
from inlaid.tensor import ir
from inlaid.tensor.analysis.verify import verify
from inlaid.tensor.interp import values
from inlaid.tensor.interp.to_python import translate
from inlaid.tensor.primitives import SEMANTICS
from inlaid.tensor.region import Predicate, RegionProgram, size_vars
from inlaid.tensor.scheduling.rule import KernelContext, ScheduleRule
from inlaid_runtime import arith
from inlaid_runtime.arith import SizeVar
from inlaid_runtime.artifact import ALIGNMENT
from inlaid_runtime.errors import InputError

Array = np.ndarray[Any, Any]
CPU = Capabilities(("float32", "int64", "bool"), vector_bits=256, vector_registers=16, cores=2, branches=True)


def lowered(function: graph.Function, rules: Sequence[ScheduleRule] = SHARED_RULES, fused: bool = True) -> RegionProgram:
    """A region for a CPU. The result of a region is a tuple."""
    if not isinstance(function.body, graph.Tuple):
        function = graph.function(function.params, graph.tuple_([function.body]))
    calls = [item for item in graph.post_order(function.body) if isinstance(item, graph.Call)]
    source = RegionSource("region", fuse(function) if fused else function, conditions=call_conditions(calls))
    region = lower_region(source, rules, KernelContext(CPU, CPU.cores))
    check(region)
    return region


def check(region: RegionProgram) -> None:
    """What holds of every region: calls fit kernels, places are aligned, and no two buffers that live at once share bytes unless
    one shows the other."""
    written: dict[tuple[str, int, int | arith.Expr], int] = {}
    for call in region.calls:
        kernel = region.kernels[call.kernel]
        verify(kernel)
        assert len(call.inputs) == len(kernel.inputs)
        assert len(call.outputs) == len(kernel.outputs) - len(kernel.defines)
        assert len(call.sizes) == len(size_vars(kernel)) and len(call.defines) == len(kernel.defines)
        for number in (*call.inputs, *call.outputs):
            buffer = region.buffers[number]
            if buffer.storage == "arena" and isinstance(buffer.offset, int):
                assert buffer.offset % ALIGNMENT == 0
        for number in call.outputs:
            buffer = region.buffers[number]
            assert buffer.storage in ("arena", "output")
            key = (buffer.storage, buffer.index, buffer.offset)
            if buffer.storage == "output":
                # Parts of a concatenation are written into one buffer.
                assert call.predicates or written.get(key, number) == number, f"output {buffer.index} is written twice"
            written[key] = number
    places = {index for storage, index, _ in written if storage == "output"}
    assert places == set(range(len(region.signature.outputs))), "some output is not written"
    assert {buffer.index for buffer in buffers_in(region, "constant")} == set(range(len(region.constants)))


def buffers_in(region: RegionProgram, storage: str) -> list[Any]:
    """The buffers of a kind that calls use, views included."""
    numbers = dict.fromkeys(number for call in region.calls for number in (*call.reads, *call.outputs))
    return [region.buffers[number] for number in numbers if region.buffers[number].storage == storage]


def run(
    region: RegionProgram,
    inputs: Sequence[Array],
    sizes: Mapping[str, int] | None = None,
    semantics: Mapping[str, ir.LoopProgram] = SEMANTICS,
) -> list[Array]:
    """The outputs of a region. Buffers share the bytes of one arena, which is poisoned before; where it is lent to two buffers at
    once, or read before it is written, results are wrong. `semantics` are those of intrinsics."""
    sizes_by_variable: dict[arith.Expr, int] = {SizeVar(name): size for name, size in (sizes or {}).items()}
    for source in region.signature.dims:
        if source.input is not None:
            sizes_by_variable[SizeVar(source.name)] = inputs[source.input].shape[source.axis]
    limits = dict(sizes_by_variable)
    for source in region.signature.dims:
        if source.upper is not None:
            limits[SizeVar(source.name)] = arith.evaluate(source.upper, limits)
    arena = np.full(arith.evaluate(region.workspace, limits), 0xA5, np.uint8)
    outputs = [_poisoned([arith.evaluate(dim, limits) for dim in spec.shape], spec.dtype) for spec in region.signature.outputs]
    constants = [np.array(array) for array in region.constants.values()]

    def bytes_at(number: int, size: int) -> Array:
        buffer = region.buffers[number]
        storage_bytes = arena if buffer.storage == "arena" else None
        if storage_bytes is None:
            array = {"input": inputs, "output": outputs, "constant": constants}[buffer.storage][buffer.index]
            storage_bytes = np.reshape(array, -1).view(np.uint8)
        start = arith.evaluate(buffer.offset, limits)
        return storage_bytes[start : start + size]

    def holds(predicate: Predicate) -> bool:
        if isinstance(predicate.condition, int):
            return bool(bytes_at(predicate.condition, 1)[0]) is predicate.holds
        return bool(arith.evaluate(predicate.condition, sizes_by_variable)) is predicate.holds

    for call in region.calls:
        if not all(map(holds, call.predicates)):
            continue
        kernel = region.kernels[call.kernel]
        arrays: dict[ir.Buffer, Array] = {}
        kernel_sizes: dict[SizeVar, int] = {
            size: arith.evaluate(value, sizes_by_variable) for size, value in zip(size_vars(kernel), call.sizes, strict=True)
        }
        bounds: dict[arith.Expr, int] = dict(kernel_sizes)
        for size, _ in kernel.defines:
            bounds[size] = arith.evaluate(size.upper, bounds) if size.upper is not None else 0
        numbers = (*call.inputs, *call.outputs)
        results = kernel.outputs[: len(call.outputs)]
        for param, number in zip((*kernel.inputs, *results), numbers, strict=True):
            shape = [arith.evaluate(dim, bounds) for dim in param.shape]
            buffer_bytes = bytes_at(number, int(np.prod(shape)) * param.dtype.bytes)
            arrays[param] = buffer_bytes.view(param.dtype.numpy).reshape(shape)
        for _, cell in kernel.defines:
            arrays[cell] = np.zeros((), np.int64)
        with np.errstate(all="ignore"):
            translate(kernel, kernel_sizes, semantics)(*(arrays[buffer] for buffer in kernel.params))
        for name, (_, cell) in zip(call.defines, kernel.defines, strict=True):
            sizes_by_variable[name] = int(arrays[cell])
        for constraint in call.checks:
            if not constraint.holds(sizes_by_variable):
                raise InputError(constraint.message(sizes_by_variable), operator=constraint.operator, node=constraint.node)
    shapes = [[arith.evaluate(dim, sizes_by_variable) for dim in spec.shape] for spec in region.signature.outputs]
    return [array.reshape(-1)[: int(np.prod(shape))].reshape(shape) for array, shape in zip(outputs, shapes, strict=True)]


def _poisoned(shape: list[int], dtype: Any) -> Array:
    return values.poison(tuple(shape), dtype)
