"""Encodes and decodes the code of artifacts for devices that run grids of threads: a launch plan and a program of kernels."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Sequence

from inlaid import arith
from inlaid.artifact import Artifact
from inlaid.errors import PackageError, Unsupported
from inlaid.runtime.codec import decode, encode, expect_int
from inlaid.runtime.launches import Launch, LaunchPlan, Step

_LENGTH = struct.Struct("<Q")
"""Header of the code: byte length of the plan, which is JSON. The program follows the plan."""


def encode_launches(plan: LaunchPlan, program: bytes) -> bytes:
    """Encode a plan and the program of its kernels, source or binary. Equal arguments give equal bytes."""
    text = json.dumps(encode(plan), separators=(",", ":")).encode()
    return b"".join((_LENGTH.pack(len(text)), text, program))


def decode_launches(artifact: Artifact) -> tuple[LaunchPlan, bytes]:
    """Decode the plan and the program of an artifact.

    Every number in the plan is checked to be a valid index. Raises `Unsupported` for damaged code.
    """
    code = artifact.code
    try:
        if len(code) < _LENGTH.size:
            raise PackageError(f"code: expected at least {_LENGTH.size} bytes, got {len(code)}")
        (length,) = _LENGTH.unpack_from(code)
        end = _LENGTH.size + expect_int(length, "code.length", 0, len(code) - _LENGTH.size)
        plan = decode(LaunchPlan, json.loads(code[_LENGTH.size : end]), "plan")
        _check(plan, artifact)
    except (PackageError, ValueError, RecursionError) as error:
        raise Unsupported(f"the code of {artifact.symbol} is damaged: {error}", remedy="compile the model again") from error
    return plan, code[end:]


def all_steps(steps: Sequence[Step]) -> Iterator[Step]:
    """Yield the steps of a plan, including the steps in loop bodies."""
    for step in steps:
        yield step
        yield from all_steps(step.body)


def _check(plan: LaunchPlan, artifact: Artifact) -> None:
    signature = artifact.signature
    stores = {
        "input": len(signature.inputs),
        "output": len(signature.outputs),
        "constant": len(artifact.constants),
        "arena": 1,
    }
    if len(plan.reports) != len(plan.kernels) or len(plan.dims) != len(signature.dims):
        raise PackageError("plan: expected a report flag per kernel and a dimension per one of the signature")
    if plan.shared and (len(plan.shared) != len(plan.kernels) or min(plan.shared) < 0):
        raise PackageError("plan.shared: expected bytes >= 0 for each kernel, or nothing")
    if plan.descriptors and len(plan.descriptors) != len(plan.kernels):
        raise PackageError("plan.descriptors: expected a list for each kernel, or nothing")
    variables = [size.dim for size in (*plan.dims, *plan.variables)]
    if not all(isinstance(dim, arith.SizeVar) for dim in variables):
        raise PackageError("plan: dimensions and variables must be names")
    for number, size in enumerate(plan.sizes):
        if not set(arith.free_vars(arith.wrap(size.dim))) <= {arith.wrap(dim) for dim in variables}:
            raise PackageError(f"plan.sizes[{number}]: a size must use dimensions and variables of the plan only")
    used = set(_check_steps(plan, plan.steps, len(artifact.kernels)))
    for number in sorted(used):  # constants in the source have an unused place without storage
        place = plan.places[number]
        if place.storage not in stores:
            raise PackageError(f"plan.places[{number}].storage: expected one of {', '.join(stores)}, got {place.storage[:80]!r}")
        _number(place.index, stores[place.storage], f"plan.places[{number}].index")
        _number(place.offset, len(plan.sizes), f"plan.places[{number}].offset")


def _check_steps(plan: LaunchPlan, steps: Sequence[Step], calls: int) -> Iterator[int]:
    """Check all indices in steps except indices of places, and yield the indices of the places."""
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
            raise PackageError("plan.steps: expected one of launch, read and body in a step, got several")
        yield from _check_steps(plan, step.body, calls)


def _check_launch(plan: LaunchPlan, launch: Launch, calls: int) -> None:
    _number(launch.kernel, len(plan.kernels), "launch.kernel")
    _number(launch.call, calls, "launch.call")
    for buffer in launch.buffers:
        _number(buffer, len(plan.places), "launch.buffers")
    for descriptor in plan.descriptors[launch.kernel] if plan.descriptors else ():
        _number(descriptor.buffer, len(launch.buffers), "descriptor.buffer")
    for size in (*launch.scalars, *launch.grid, *launch.threads):
        _number(size, len(plan.sizes), "launch.sizes")


def _number(value: int, count: int, where: str) -> None:
    """Raise `PackageError` unless 0 <= value < count."""
    expect_int(value, where, 0, count - 1)
