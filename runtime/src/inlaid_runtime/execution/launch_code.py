"""Encodes and decodes the code of artifacts for devices that run grids of threads: a launch plan and a program of kernels."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from inlaid_runtime import arith
from inlaid_runtime.artifact import Artifact
from inlaid_runtime.errors import PackageError, Unsupported
from inlaid_runtime.execution.codec import Json, decode, encode, expect, expect_int
from inlaid_runtime.execution.launches import KernelFunction, Launch, LaunchPlan, LaunchPlanStep
from inlaid_runtime.execution.verify import DimVerifier

_LENGTH = struct.Struct("<Q")
"""Header before the launches and before the kernels in the code: the byte length of their JSON. The program follows the kernels.

Kernels and program are compiled together, and the launches are checked against the kernels.
"""


@dataclass(frozen=True)
class _Kernels:
    """The kernels of a region as they are encoded."""

    kernels: tuple[KernelFunction, ...]


def encode_launches(plan: LaunchPlan, program: bytes) -> bytes:
    """Encode a plan and the program of its kernels, source or binary. Equal arguments give equal bytes."""
    launches = {name: value for name, value in encode(replace(plan, kernels=())).items() if name != "kernels"}
    texts = [json.dumps(item, separators=(",", ":")).encode() for item in (launches, encode(_Kernels(plan.kernels)))]
    return b"".join((*(part for text in texts for part in (_LENGTH.pack(len(text)), text)), program))


def decode_launches(artifact: Artifact) -> tuple[LaunchPlan, bytes]:
    """Decode the plan and the program of an artifact.

    Every number in the plan is checked to be a valid index, and every launch to have the arguments that its kernel takes. Raises
    `Unsupported` for damaged code.
    """
    try:
        launches, rest = _json(artifact.code, "plan")
        kernels, program = _json(rest, "kernels")
        functions = decode(_Kernels, kernels, "kernels").kernels
        fields = expect(launches, dict, "plan")
        if "kernels" in fields:
            raise PackageError("plan: field 'kernels' is unknown")
        plan = decode(LaunchPlan, {**fields, "kernels": []}, "plan")
        plan = replace(plan, kernels=functions)
        for number, function in enumerate(functions):
            _check_kernel(function, f"kernels[{number}]")
        _check(plan, artifact)
    except (PackageError, ValueError, RecursionError) as error:
        raise Unsupported(f"the code of {artifact.symbol} is damaged: {error}", remedy="compile the model again") from error
    return plan, program


def _json(code: bytes, where: str) -> tuple[Json, bytes]:
    """Split code into a JSON value and the rest."""
    if len(code) < _LENGTH.size:
        raise PackageError(f"{where}: expected at least {_LENGTH.size} bytes, got {len(code)}")
    (length,) = _LENGTH.unpack_from(code)
    end = _LENGTH.size + expect_int(length, f"{where}.length", 0, len(code) - _LENGTH.size)
    return json.loads(code[_LENGTH.size : end]), code[end:]


def walk_steps(steps: Sequence[LaunchPlanStep]) -> Iterator[LaunchPlanStep]:
    """Yield the steps of a plan, including the steps in loop bodies."""
    for step in steps:
        yield step
        yield from walk_steps(step.body)


def _check_kernel(function: KernelFunction, where: str) -> None:
    names = function.names
    if len(set(names)) != len(names):
        raise PackageError(f"{where}: scalars and witnesses must have different names")
    sizes = [*(buffer.bytes for buffer in function.buffers), *function.grid, *function.threads]
    dims = DimVerifier(lambda size: size.name in names)
    for dim in (*sizes, *(condition.dim for condition in function.conditions)):
        dims.verify(dim, where)
    if function.shared < 0:
        raise PackageError(f"{where}.shared: expected bytes >= 0, got {function.shared}")
    for descriptor in function.descriptors:
        _check_index(descriptor.buffer, len(function.buffers), f"{where}.descriptors.buffer")


def _check(plan: LaunchPlan, artifact: Artifact) -> None:
    signature = artifact.signature
    stores = {
        "input": len(signature.inputs),
        "output": len(signature.outputs),
        "constant": len(artifact.constants),
        "arena": 1,
    }
    if len(plan.dims) != len(signature.dims):
        raise PackageError("plan: expected a dimension per one of the signature")
    declared = [size.dim for size in (*plan.dims, *plan.variables)]
    variables = {dim for dim in declared if isinstance(dim, arith.SizeVar)}
    if len(variables) != len(declared):
        raise PackageError("plan: dimensions and variables must be different names")
    dims = DimVerifier(variables.__contains__)
    for number, size in enumerate(plan.sizes):
        dims.verify(size.dim, f"plan.sizes[{number}]")
    shared = {input_index for _, input_index in artifact.aliases}
    for number, writes in _check_steps(plan, plan.steps, artifact):  # unused places may have no storage: constants in the source
        address = plan.places[number]
        if address.storage not in stores:
            raise PackageError(f"plan.places[{number}].storage: expected one of {', '.join(stores)}, got {address.storage[:80]!r}")
        _check_index(address.index, stores[address.storage], f"plan.places[{number}].index")
        _check_index(address.offset, len(plan.sizes), f"plan.places[{number}].offset")
        if writes and address.storage in ("input", "constant"):
            raise PackageError(
                f"plan.places[{number}]: a kernel must not write {'an' if address.storage == 'input' else 'a'} {address.storage}"
            )
        if address.storage == "input" and address.index in shared:
            raise PackageError(
                f"plan.places[{number}]: input {address.index} shares the buffer of an output, which is used instead"
            )


def _check_steps(plan: LaunchPlan, steps: Sequence[LaunchPlanStep], artifact: Artifact) -> Iterator[tuple[int, bool]]:
    """Check all indices in steps except indices of places. Yields the indices of the places, and whether they are written."""
    for step in steps:
        if step.launch is not None:
            yield from _check_launch(plan, step.launch, len(artifact.kernels))
        if step.read is not None:
            _check_index(step.read.size, len(plan.dims), "read.size")
            _check_index(step.read.buffer, len(plan.places), "read.buffer")
            source = artifact.signature.dims[step.read.size]
            if source.input is not None or source.upper is None:
                raise PackageError(f"read.size: the region does not compute dimension {source.name[:80]}")
            yield step.read.buffer, False
        if step.body:
            _check_index(step.variable, len(plan.variables), "step.variable")
            _check_index(step.extent, len(plan.sizes), "step.extent")
        if (step.launch is not None) + (step.read is not None) + bool(step.body) > 1:
            raise PackageError("plan.steps: expected one of launch, read and body in a step, got several")
        yield from _check_steps(plan, step.body, artifact)


def _check_launch(plan: LaunchPlan, launch: Launch, calls: int) -> Iterator[tuple[int, bool]]:
    _check_index(launch.kernel, len(plan.kernels), "launch.kernel")
    _check_index(launch.call, calls, "launch.call")
    function = plan.kernels[launch.kernel]
    for what, numbers, expected in (
        ("buffers", launch.buffers, len(function.buffers)),
        ("scalars", launch.scalars, len(function.scalars)),
        ("witnesses", launch.witnesses, len(function.witnesses)),
    ):
        if len(numbers) != expected:
            raise PackageError(f"launch.{what}: kernel {function.name[:80]} takes {expected}, got {len(numbers)}")
    for size in (*launch.scalars, *launch.witnesses, *launch.grid, *launch.threads):
        _check_index(size, len(plan.sizes), "launch.sizes")
    for number, parameter in zip(launch.buffers, function.buffers, strict=True):
        _check_index(number, len(plan.places), "launch.buffers")
        yield number, parameter.writes


def _check_index(value: int, count: int, where: str) -> None:
    """Raise `PackageError` unless 0 <= value < count."""
    expect_int(value, where, 0, count - 1)
