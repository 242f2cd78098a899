"""The body of a plan under construction: its instructions and values, with copies between the memories of host and devices."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from inlaid.graph import ir
from inlaid.graph.unify import upper_bound
from inlaid.lowering.signature import bound_bytes
from inlaid_runtime import arith
from inlaid_runtime.arith import Dim
from inlaid_runtime.artifact.plan import Instruction, Move, Storage, Value
from inlaid_runtime.artifact.touched import lifetimes, renumbered
from inlaid_runtime.errors import Unsupported
from inlaid_runtime.memory.planner import Lifetime, plan
from inlaid_runtime.records import dataclass, field, replace
from inlaid_runtime.types import TensorType, TupleType, Type


@dataclass
class PlanBody:
    """Values and instructions of a plan. `constants` maps (name, device) to a constant's number, `moved` maps (number of a value,
    device) to the number of its copy."""

    values: list[Value] = field(default_factory=list)
    instructions: list[Instruction] = field(default_factory=list)
    constants: dict[tuple[str, str], int] = field(default_factory=dict)
    moved: dict[tuple[int, str], int] = field(default_factory=dict)

    def add(self, value: Value) -> int:
        """Add a value and return its number."""
        self.values.append(value)
        return len(self.values) - 1

    def constant(self, value: Value) -> int:
        """Add a constant; equal constants share a value."""
        key = (value.name, value.device)
        if key not in self.constants:
            self.constants[key] = self.add(value)
        return self.constants[key]

    def result(self, type_: Type, devices: Sequence[str] = ()) -> tuple[int, ...]:
        """Add values for a result, in the arena if their sizes are bounded. `devices` holds the device of each part; empty for the
        host."""
        parts = flat(type_)
        numbers = []
        for part, device in zip(parts, devices or [""] * len(parts), strict=True):
            value = replace(make_value(result_storage(part), part), device=device)
            if device and value.storage == "host":
                raise Unsupported(f"results in the memory of {device} must be numeric tensors, found {type_!r}")
            numbers.append(self.add(value))
        return tuple(numbers)

    def at(self, numbers: Sequence[int], device: str = "") -> tuple[int, ...]:
        """Return the numbers of values in a device's memory ("": host). Values in other memories are copied there once."""
        return tuple(self.copied(number, device) for number in numbers)

    def spread(self, numbers: Sequence[int], devices: Sequence[str]) -> tuple[int, ...]:
        """Return the numbers of values, each in the memory of its device; all on the host if `devices` is empty."""
        return tuple(map(self.copied, numbers, devices or [""] * len(numbers)))

    def copied(self, number: int, device: str) -> int:
        """Return the number of a value in a device's memory."""
        value = self.values[number]
        if value.device == device:
            return number
        if value.storage == "constant":
            return self.constant(replace(value, device=device))
        if value.device and device:
            number = self.copied(number, "")
        if (number, device) not in self.moved:
            target = self.add(replace(value, storage=_array_storage(value.shape), name="", device=device))
            self.moved[number, device] = target
            self.instructions.append(Move(number, target))
        return self.moved[number, device]

    def arriving(self, inputs: Sequence[int], devices: Sequence[str]) -> dict[int, int]:
        """Put inputs into the memories of their devices ("": host), and drop their copies there. Returns the inputs by the numbers
        of these copies, which instructions no longer refer to."""
        input_by_copy: dict[int, int] = {}
        for number, device in zip(inputs, devices, strict=False):
            if device:
                self.values[number] = replace(self.values[number], device=device)
                if (number, device) in self.moved:
                    input_by_copy[self.moved.pop((number, device))] = number
        instructions = [item for item in self.instructions if not (isinstance(item, Move) and item.target in input_by_copy)]
        self.instructions = [renumbered(item, lambda number: input_by_copy.get(number, number)) for item in instructions]
        return input_by_copy

    def outputs(self, numbers: Sequence[int], devices: Sequence[str]) -> list[int]:
        """Make every result an output value in the memory of its device: its producer writes it directly if possible; otherwise it
        is copied."""
        results: list[int] = []
        for number, device in zip(numbers, devices, strict=True):
            value = self.values[number]
            touches_host = not value.device or not device
            if value.device != device and touches_host and value.storage != "constant" and (number, device) not in self.moved:
                target = self.add(replace(value, storage="output", name="", device=device))
                self.moved[number, device] = target
                self.instructions.append(Move(number, target))
                results.append(target)
                continue
            (number,) = self.at((number,), device)
            value = self.values[number]
            if value.storage == "arena" and number not in results:
                self.values[number] = replace(value, storage="output")
            elif value.storage not in ("dynamic", "host") or number in results:
                target = self.add(replace(value, storage="output" if value.dtype is not None else "host", name=""))
                self.instructions.append(Move(number, target))
                number = target
            results.append(number)
        return results

    def assign_offsets(self) -> dict[str, Dim]:
        """Assign arena offsets; returns the arena sizes by device."""
        owners, lives = lifetimes(self.values, self.instructions, lambda value: value.storage == "arena")
        offsets: dict[int, Dim] = {}
        sizes: dict[str, Dim] = dict.fromkeys((value.device for value in self.values if value.device), 0)
        for device in dict.fromkeys(self.values[number].device for number in lives):
            device_lives = {number: life for number, life in lives.items() if self.values[number].device == device}
            arena = plan([Lifetime(_bytes(self.values[number]), *life) for number, life in device_lives.items()])
            offsets.update(zip(device_lives, arena.offsets, strict=True))
            sizes[device] = arena.size
        for number, owner in owners.items():
            self.values[number] = replace(self.values[number], offset=offsets[owner])
        return sizes


def flat(type_: Type) -> tuple[Type, ...]:
    """Flatten a tuple type."""
    if isinstance(type_, TupleType):
        return tuple(part for item in type_.fields for part in flat(item))
    return (type_,)


def make_value(storage: Any, type_: Type, name: str = "") -> Value:
    """Return a value of a type. Values that are not numeric arrays are on the host, unless they are constants or inputs."""
    if not isinstance(type_, TensorType) or type_.dtype.kind == "string":
        shape = type_.shape if storage == "input" and isinstance(type_, TensorType) else ()
        return Value(storage if storage in ("constant", "input") else "host", None, shape, name)
    return Value(storage, type_.dtype, type_.shape, name)


def result_storage(type_: Type) -> Storage:
    """Return the storage of a result: `_array_storage` for a numeric array, else the host."""
    return _array_storage(type_.shape) if isinstance(type_, TensorType) and type_.dtype.kind != "string" else "host"


def has_known_shape(value: Value) -> bool:
    """Test whether a value's shape is known before the run, so that a loop may carry, scan or stack it on a device."""
    return value.dtype is not None and not any(ir.existential(size) for dim in value.shape for size in arith.free_vars(dim))


def sole_device(*memories: Collection[str]) -> str:
    """Return the only device in collections of memories; "" if they contain no device or several."""
    devices = {device for memory in memories for device in memory}
    return devices.pop() if len(devices) == 1 else ""


def _array_storage(shape: tuple[Dim, ...]) -> Storage:
    """Return the storage of a numeric array: the arena, unless its size has no bound that is known before the run."""
    pending = [size for dim in shape for size in arith.free_vars(dim) if ir.existential(size)]
    for size in pending:
        bound = upper_bound(arith.unwrap(size))
        if bound is None:
            return "dynamic"
        pending += filter(ir.existential, arith.free_vars(bound))  # a bound known only at run time, such as the k of top-k
    return "arena"


def _bytes(value: Value) -> Dim:
    assert value.dtype is not None
    return bound_bytes(value.shape, value.dtype.bytes)
