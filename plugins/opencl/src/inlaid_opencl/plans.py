"""The code of an artifact: a plan of launches and OpenCL C source, as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from inlaid import arith
from inlaid.artifact import Artifact
from inlaid.errors import PackageError, Unsupported
from inlaid.runtime.codec import decode, encode, expect, expect_fields, expect_int
from inlaid.runtime.launches import Launch, LaunchPlan, Step

_FIELDS = ("plan", "source")


def encode_code(plan: LaunchPlan, source: str) -> bytes:
    """A plan and the source of its kernels as code: equal bytes for equal ones."""
    return json.dumps({"plan": encode(plan), "source": source}, separators=(",", ":")).encode()


def decode_code(artifact: Artifact) -> tuple[LaunchPlan, str]:
    """The plan and the source of an artifact. Every number in the plan is checked, so that it names something. Raises `Unsupported`
    for code that is damaged."""
    try:
        fields = expect_fields(json.loads(artifact.code), _FIELDS, "code")
        plan = decode(LaunchPlan, fields["plan"], "plan")
        _check(plan, artifact)
        return plan, expect(fields["source"], str, "source")
    except (PackageError, ValueError, RecursionError) as error:
        raise Unsupported(f"the code of {artifact.symbol} is damaged: {error}", remedy="compile the model again") from error


def _check(plan: LaunchPlan, artifact: Artifact) -> None:
    signature = artifact.signature
    stores = {
        "input": len(signature.inputs),
        "output": len(signature.outputs),
        "constant": len(artifact.constants),
        "arena": 1,
    }
    if len(plan.reports) != len(plan.kernels) or len(plan.dims) != len(signature.dims):
        raise PackageError("plan: kernels, reports and dims do not fit the signature")
    variables = [size.dim for size in (*plan.dims, *plan.variables)]
    if not all(isinstance(dim, arith.SizeVar) for dim in variables):
        raise PackageError("plan: a dimension is no name")
    for number, size in enumerate(plan.sizes):
        if not set(arith.free_vars(arith.wrap(size.dim))) <= {arith.wrap(dim) for dim in variables}:
            raise PackageError(f"plan.sizes[{number}]: a size names no dimension of the plan")
    used = set(_check_steps(plan, plan.steps, len(artifact.kernels)))
    for number in sorted(used):  # a constant that is part of the source is in no storage
        place = plan.places[number]
        if place.storage not in stores:
            raise PackageError(f"plan.places[{number}]: {place.storage[:80]!r} is no storage")
        _number(place.index, stores[place.storage], f"plan.places[{number}].index")
        _number(place.offset, len(plan.sizes), f"plan.places[{number}].offset")


def _check_steps(plan: LaunchPlan, steps: Sequence[Step], calls: int) -> Iterator[int]:
    """The numbers of the places that steps use, once all other numbers in the steps are checked."""
    for step in steps:
        if step.launch is not None:
            _check_launch(plan, step.launch, calls)
            yield from step.launch.buffers
        if step.read is not None:
            _number(step.read.size, len(plan.dims), "read.size")
            _number(step.read.buffer, len(plan.places), "read.buffer")
            yield step.read.buffer
        if step.body:
            _number(step.variable, len(plan.variables), "step.variable")
            _number(step.extent, len(plan.sizes), "step.extent")
        if (step.launch is not None) + (step.read is not None) + bool(step.body) > 1:
            raise PackageError("plan.steps: a step does several things")
        yield from _check_steps(plan, step.body, calls)


def _check_launch(plan: LaunchPlan, launch: Launch, calls: int) -> None:
    _number(launch.kernel, len(plan.kernels), "launch.kernel")
    _number(launch.call, calls, "launch.call")
    for buffer in launch.buffers:
        _number(buffer, len(plan.places), "launch.buffers")
    for size in (*launch.scalars, *launch.grid, *launch.threads):
        _number(size, len(plan.sizes), "launch.sizes")


def _number(value: int, count: int, where: str) -> None:
    """Raise `PackageError` unless a number counts one of so many."""
    expect_int(value, where, 0, count - 1)
