"""Compiles a hand-written schedule as a model of one kernel, through the usual pipeline."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from typing import Any

from inlaid.driver.build import ALONE, build_regions
from inlaid.driver.candidates import build_candidate
from inlaid.graph import ir
from inlaid.graph.operator import Attrs, Operator
from inlaid.lowering.kernels.kernel import LoopCompute
from inlaid.lowering.plans.build import OUTPUT_NAMES
from inlaid.partitioning import Partitioned
from inlaid.partitioning.outline import call_by_name, outlined
from inlaid.plugins import Level
from inlaid.plugins.registry import PluginRegistry
from inlaid.tensor.analysis.verify import verify
from inlaid.tensor.ir import LoopProgram
from inlaid.tensor.primitives import TensorIntrin
from inlaid.tensor.scheduling.by_hand import scheduled
from inlaid_runtime.errors import InputError, ScheduleError, Unsupported, VerifyError
from inlaid_runtime.execution.package import Package
from inlaid_runtime.types import TensorType, TupleType, Type


def build_scheduled(
    program: LoopProgram, target: str, registry: PluginRegistry, instructions: Sequence[Any] = (), keep: bool = True
) -> Package:
    """Compile a scheduled program for a target that accepts loop programs. Inputs and outputs have the program's names. With
    `keep`, the user's object cache is used. Raises `Unsupported` for a target that takes graphs, `ScheduleError` for a malformed
    program, `InputError` for invalid instructions, and as `compile.build_package`."""
    candidate = build_candidate(registry.target(target), registry)
    if registry.spec(candidate.target.kind).level is not Level.LOOP:
        kinds = [kind for kind in registry.kinds() if registry.spec(kind).level is Level.LOOP]
        raise Unsupported(
            f"target {candidate.target.kind} accepts graphs, not loop programs",
            remedy=f"build for {' or '.join(kinds) or 'x86, once it is installed'}, or run the schedule with inlaid.interpret",
        )
    for item in instructions:
        if not isinstance(getattr(item, "intrinsic", None), TensorIntrin):
            raise InputError(
                f"expected tensor intrinsics with emitters as instructions, got {item!r}",
                remedy="use the class that the target's plugin documents",
            )
    try:
        verify(program)
    except VerifyError as error:
        raise ScheduleError(f"{program.name} is malformed: {error.message}") from error
    results = [TensorType(buffer.shape, buffer.dtype) for buffer in program.outputs[: len(program.outputs) - len(program.defines)]]
    type_: Type = results[0] if len(results) == 1 else TupleType(tuple(results))
    operator = Operator(
        program.name, partial(_typed, type_), compute=LoopCompute(scheduled(program)), arity=(0, None), existential=True
    )
    params = [ir.var(buffer.name, TensorType(buffer.shape, buffer.dtype)) for buffer in program.inputs]
    region = outlined(ir.function(params, operator(*params)), candidate.target)
    outer_params = [ir.var(param.name, param.type) for param in params]
    names = json.dumps([buffer.name for buffer in program.outputs[: len(results)]])
    region_call = call_by_name(ALONE, region, outer_params)
    body = ir.tuple_item(region_call, 0) if len(results) == 1 else region_call
    main = ir.function(outer_params, body, ((OUTPUT_NAMES, names),))
    partitioned = Partitioned(ir.Module({"main": main, ALONE: region}), (), {ALONE: 0})
    return build_regions(partitioned, (candidate,), registry, keep=keep, bound=True, instructions=instructions)


def _typed(type_: Type, attrs: Attrs, *types: Type) -> Type:
    return type_
