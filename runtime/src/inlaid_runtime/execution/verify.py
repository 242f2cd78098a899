"""Verifies a program before it runs, so that an invalid plan raises an error instead of reading wrong memory."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from inlaid_runtime import arith
from inlaid_runtime.arith import Dim, SizeVar
from inlaid_runtime.artifact import Artifact
from inlaid_runtime.artifact.plan import Assert, Bind, Branch, Call, Instruction, Invoke, Loop, Move, Plan, Program, Value, Wait
from inlaid_runtime.artifact.touched import written_by
from inlaid_runtime.errors import PackageError
from inlaid_runtime.execution.arrays import Array
from inlaid_runtime.types import DType
from inlaid_runtime.types import dtype as as_dtype

_BITS = 1 << 14
"""Greatest number of bits of an expression's value, if sizes have up to 64: values of repeated products would take all memory."""


def verify_program(program: Program, artifacts: Sequence[Artifact], weights: Mapping[str, Array]) -> None:
    """Check that plans, artifacts and weights are consistent. Raises `PackageError`, naming the plan and the instruction."""
    by_symbol = {artifact.symbol: artifact for artifact in artifacts}
    if len(by_symbol) != len(artifacts):
        raise PackageError("two regions have the same symbol")
    info_symbols = [info.symbol for info in program.regions]
    if sorted(info_symbols) != sorted(by_symbol):
        raise PackageError(f"expected facts on regions {sorted(by_symbol)}, got {sorted(info_symbols)}")
    if "main" not in program.plans:
        raise PackageError("the package has no plan named main")
    for artifact in artifacts:
        for version in (artifact, *artifact.variants):
            _verify_signature(version)
            if (version.symbol, version.signature) != (artifact.symbol, artifact.signature):
                raise PackageError(f"region {artifact.symbol}: a variant must have the same symbol and signature")
    for name, plan in program.plans.items():
        if plan.name != name:
            raise PackageError(f"plan {plan.name!r} is listed as {name!r}")
        _PlanVerifier(plan, program, by_symbol, weights).run()


class DimVerifier:
    """Checks that all variables of expressions have values at run time, as `allowed` tells, and that no value is too large to
    compute."""

    def __init__(self, allowed: Callable[[SizeVar], bool]) -> None:
        self._allowed = allowed
        self._bits: dict[int, int] = {}

    def verify(self, dim: Dim, where: str) -> None:
        """Check one expression. Raises `PackageError`."""
        if isinstance(dim, int):
            if dim < 0:
                raise PackageError(f"{where}: {dim} is negative")
            return
        bits = self._bits
        for node in arith.post_order(dim, below=lambda node: () if id(node) in bits else node.operands):
            if id(node) in bits:
                continue
            if isinstance(node, (arith.Var, arith.Opaque)) or (isinstance(node, SizeVar) and not self._allowed(node)):
                raise PackageError(f"{where}: {node!r} has no value at run time")
            widths = [bits[id(item)] for item in node.operands]
            if not widths:
                width = node.value.bit_length() if isinstance(node, arith.Const) else 64
            else:
                width = sum(widths) if isinstance(node, arith.Mul) else max(widths) + isinstance(node, arith.Add)
            if width > _BITS:
                raise PackageError(f"{where}: expected a size of at most {_BITS} bits, got a product of too many sizes")
            bits[id(node)] = width


def _verify_signature(artifact: Artifact) -> None:
    signature, where = artifact.signature, f"region {artifact.symbol}"
    names: set[str] = set()
    declared_dims, any_dims = DimVerifier(lambda size: size.name in names), DimVerifier(lambda size: True)
    for source in signature.dims:
        if source.name in names:
            raise PackageError(f"{where}: dimension {source.name} is declared twice")
        if source.input is not None and not (
            0 <= source.input < len(signature.inputs) and 0 <= source.axis < len(signature.inputs[source.input].shape)
        ):
            raise PackageError(
                f"{where}: dimension {source.name} refers to axis {source.axis} of input {source.input}, which does not exist"
            )
        if source.upper is not None:
            declared_dims.verify(source.upper, f"{where}, bound of {source.name}")
        names.add(source.name)
    for spec in (*signature.inputs, *signature.outputs):
        for dim in spec.shape:
            any_dims.verify(dim, f"{where}, shape of {spec.name}")  # an allocating kernel returns its sizes
    conditions = [dim for constraint in artifact.constraints for dim in (constraint.condition, constraint.value)]
    for dim in (*artifact.workspace.values(), *conditions):
        declared_dims.verify(dim, where)
    if any(len(set(side)) < len(artifact.aliases) for side in zip(*artifact.aliases, strict=True)):
        raise PackageError(f"{where}: an output or an input has two aliases")
    for output, aliased_input in artifact.aliases:
        if not (0 <= output < len(signature.outputs) and 0 <= aliased_input < len(signature.inputs)):
            raise PackageError(f"{where}: alias ({output}, {aliased_input}) does not name an output and an input")


class _PlanVerifier:
    """Verifies one plan."""

    def __init__(self, plan: Plan, program: Program, artifacts: Mapping[str, Artifact], weights: Mapping[str, Array]) -> None:
        self.plan = plan
        self.program = program
        self.artifacts = artifacts
        self.weights = weights
        self.location = f"plan {plan.name}"
        self.targets = {info.symbol: info.target for info in program.regions}
        self.defined: set[int] = set()
        self.donated: set[int] = set()
        self.pending: dict[int, str] = {}

    def run(self) -> None:
        """Run all checks."""
        plan = self.plan
        for names in ([name for name, _ in plan.inputs], [name for name, _ in plan.outputs]):
            self.require(plan.name != "main" or len(set(names)) == len(names), "two inputs or two outputs have the same name")
        for name, number in plan.inputs:
            self.require(self.value(number).storage == "input", f"the storage of input {name!r} must be input")
            self.require(number not in self.defined, f"input {name!r} has the same value as another input")
            self.defined.add(number)
        self._values()
        self._devices()
        for position, instruction in enumerate(plan.instructions):
            self.location = f"plan {plan.name}, instruction {position} ({type(instruction).__name__})"
            self._instruction(instruction)
        self.location = f"plan {plan.name}"
        for name, number in plan.outputs:
            self.require(self.value(number).storage in ("output", "dynamic", "host"), f"output {name!r} has an invalid storage")
            self.read(number)

    def require(self, condition: bool, message: str) -> None:
        """Raise `PackageError` unless the condition holds."""
        if not condition:
            raise PackageError(f"{self.location}: {message}")

    def value(self, number: int) -> Value:
        """Look up a value by number."""
        self.require(0 <= number < len(self.plan.values), f"unknown value {number}")
        return self.plan.values[number]

    def read(self, number: int) -> Value:
        """Look up a value that must have been written before."""
        value = self.value(number)
        self.require(number not in self.donated, f"value {number} is read after its buffer was reused")
        self.require(number in self.defined, f"value {number} is read before it is written")
        self.require(number not in self.pending, f"value {number} is read before its device has computed it")
        return value

    def on_host(self, number: int) -> Value:
        """Look up a value that must have been written before, to host memory."""
        value = self.read(number)
        self.require(not value.device, f"value {number} is on {value.device}")
        return value

    def write(self, number: int) -> Value:
        """Look up a value that must not have been written before."""
        value = self.value(number)
        self.require(value.storage not in ("input", "constant"), f"value {number} is an {value.storage} and cannot be written")
        self.require(number not in self.defined and number not in self.donated, f"value {number} is written twice")
        self.defined.add(number)
        return value

    def _values(self) -> None:
        plan = self.plan
        input_sizes = {dim for _, number in plan.inputs for dim in self.value(number).shape if isinstance(dim, SizeVar)}

        def allowed(size: SizeVar) -> bool:
            # A called plan may use sizes of its caller.
            return size.existential or size in input_sizes or plan.name != "main"

        dims = DimVerifier(allowed)
        for number, value in enumerate(plan.values):
            where = f"{self.location}, value {number}"
            for dim in (*value.shape, value.offset):
                dims.verify(dim, where)
            storages = ("arena", "constant", "dynamic", *(() if plan.name == "main" else ("input", "output")))
            self.require(not value.device or value.storage in storages, f"value {number} cannot be on a device")
            self.require(not value.device or value.dtype is not None, f"value {number} is a host object on a device")
            self.require(value.storage != "host" or value.dtype is None, f"value {number} is a host object with a dtype")
            self.require(
                value.dtype is not None or value.storage in ("host", "input", "output", "constant"),
                f"value {number} is a host object, but stored as {value.storage}",
            )
            if value.storage == "arena":
                self.require(value.dtype is not None and value.dtype.kind != "string", f"value {number} cannot be in an arena")
            if value.storage == "constant":
                array = self.weights.get(value.name)
                self.require(array is not None, f"unknown constant {value.name!r}")
                assert array is not None
                fits = (
                    array.dtype.hasobject
                    if value.dtype is None
                    else array.dtype == value.dtype.numpy and array.shape == value.shape
                )
                self.require(fits, f"constant {value.name!r} has another type")
                self.defined.add(number)
        for size in (plan.workspace, *plan.arenas.values()):
            dims.verify(size, f"{self.location}, workspace")
        for constraint in plan.constraints:
            for dim in (constraint.condition, constraint.value):
                if isinstance(dim, arith.Expr):
                    dims.verify(dim, f"{self.location}, constraints")

    def _devices(self) -> None:
        """Check that every device that the plan uses has an arena, and is the target of a region."""
        plan_devices = {value.device for value in self.plan.values} | {
            item.device for item in self.plan.instructions if isinstance(item, Wait)
        }
        for device in sorted(plan_devices - {"", *self.plan.arenas}):
            self.require(False, f"device {device!r} has no arena")
        for device in sorted(set(self.plan.arenas) - set(self.targets.values())):
            self.require(False, f"no region runs on device {device!r}")

    def _instruction(self, instruction: Instruction) -> None:
        if isinstance(instruction, (Bind, Assert)):
            for number in written_by(instruction):
                self.require(not self.value(number).device, f"value {number} is on a device, where the host cannot write")
        match instruction:
            case Invoke(symbol=symbol, inputs=inputs, outputs=outputs):
                artifact = self.artifacts.get(symbol)
                self.require(artifact is not None, f"unknown region {symbol!r}")
                assert artifact is not None
                self._invoke(artifact, inputs, outputs)
            case Call(plan=plan, inputs=inputs, outputs=outputs):
                self._enter(plan, [self.read(number) for number in inputs], [self.write(number) for number in outputs])
            case Branch(condition=condition, inputs=inputs, outputs=outputs):
                self._scalar(condition, "bool")
                arguments, results = [self.read(number) for number in inputs], [self.write(number) for number in outputs]
                self._enter(instruction.then, arguments, results)
                self._enter(instruction.otherwise, arguments, results)
            case Loop():
                self._loop(instruction)
            case Move(source=source, target=target, donate=donate):
                source_value, target_value = self.read(source), self.write(target)
                self.require(
                    target_value.dtype is None or target_value.dtype is source_value.dtype,
                    "source and target have different dtypes",
                )
                self.require(
                    not (source_value.device and target_value.device) or source_value.device == target_value.device,
                    "one side must be the host",
                )
                if source_value.device and not target_value.device:
                    self.pending[target] = source_value.device
                if donate:
                    shares_memory = source_value.device == target_value.device or (
                        source_value.storage == "input" and target_value.storage == "arena"
                    )
                    self.require(shares_memory, f"values {source} and {target} must be in the same memory")
                    self.require(
                        source_value.storage in ("input", "arena", "dynamic"),
                        f"value {source} is not owned by the plan and cannot be reused",
                    )
                    is_elsewhere = source_value.storage == "arena" and (
                        target_value.storage != "arena" or target_value.offset != source_value.offset
                    )
                    self.require(not is_elsewhere, f"value {target} must be at the arena offset of value {source}")
                    is_elsewhere = (
                        source_value.device != "" and source_value.storage == "dynamic" and target_value.storage != "dynamic"
                    )
                    self.require(not is_elsewhere, f"value {target} must be in a device block, as value {source}")
                    self.defined.discard(source)
                    self.donated.add(source)
            case Wait(device=device):
                self.pending = {number: source_device for number, source_device in self.pending.items() if source_device != device}
            case Bind(source=source, target=target, element=element):
                value = self.on_host(source)
                count = math.prod(dim if isinstance(dim, int) else 0 for dim in value.shape)
                fits = value.dtype is as_dtype("int64") and 0 <= element < count
                self.require(fits, f"value {source} is not an int64 tensor with element {element}")
                self._require_types([self.write(target)], [(as_dtype("bool"), 2)])
            case Assert(condition=condition, outputs=outputs):
                for number in outputs:
                    self.write(number)
                if condition is not None:
                    self._scalar(condition, "bool")
                    self._require_types([self.value(number) for number in outputs], [(as_dtype("bool"), 1)])

    def _invoke(self, artifact: Artifact, inputs: tuple[int, ...], outputs: tuple[int, ...]) -> None:
        signature, updated = artifact.signature, dict(artifact.aliases)
        self._require_types([self.read(number) for number in inputs], [(spec.dtype, len(spec.shape)) for spec in signature.inputs])
        written = [self.value(number) if position in updated else self.write(number) for position, number in enumerate(outputs)]
        self._require_types(written, [(spec.dtype, len(spec.shape)) for spec in signature.outputs])
        memories = {self.value(number).device for number in (*inputs, *outputs)}
        self.require(memories <= {""} or memories == {self.targets[artifact.symbol]}, "a region's values must be in its memory")
        for output, aliased_input in updated.items():
            self.require(
                inputs[aliased_input] == outputs[output], f"input {aliased_input} and output {output} must be the same value"
            )

    def _loop(self, loop: Loop) -> None:
        if loop.trip_count is not None:
            self._scalar(loop.trip_count, "int64")
        if loop.condition is not None:
            self._scalar(loop.condition, "bool")
        self.require(len(loop.outputs) >= len(loop.state), "the loop must return at least its carried values")
        scalar = Value("arena", as_dtype("int64"))
        state = [self.read(number) for number in loop.state]
        scanned = [self.read(number) for number in loop.scanned]
        self.require(all(v.dtype is not None and v.shape for v in scanned), "a scanned value must be a tensor of rank >= 1")
        slices = [replace(value, shape=value.shape[1:]) for value in scanned]
        captured = [self.read(number) for number in loop.captured]
        outputs = [self.write(number) for number in loop.outputs]
        stacked = outputs[len(state) :]
        self.require(all(v.dtype is not None and v.shape for v in stacked), "a stacked value must be a tensor of rank >= 1")
        parts = [replace(value, shape=value.shape[1:]) for value in stacked]
        self._require_types(outputs[: len(state)], [(value.dtype, len(value.shape)) for value in state])
        self.require(
            [v.device for v in outputs[: len(state)]] == [v.device for v in state], "a carried value must stay in one memory"
        )
        rows = [value for value in (*outputs[: len(state)], *slices, *parts) if value.device]
        spare = [self.write(number) for number in loop.spare]
        self._require_types(spare, [(value.dtype, len(value.shape)) for value in rows])
        matches = all((v.device, v.shape, v.storage) == (w.device, w.shape, "arena") for v, w in zip(spare, rows, strict=True))
        self.require(matches, "the spare buffers of a loop must match its state and rows on devices")
        self.require(not any(_existential(dim) for value in rows for dim in value.shape), "a device loop's sizes must be known")
        keep_going = Value("arena", as_dtype("bool"))
        self._enter(loop.body, [scalar, *state, *slices, *captured], [keep_going, *state, *parts])

    def _scalar(self, number: int, dtype: str) -> None:
        value = self.on_host(number)
        self.require(value.dtype is as_dtype(dtype) and value.shape == (), f"value {number} must be a 0-d {dtype}")

    def _enter(self, plan: str, inputs: Sequence[Value], outputs: Sequence[Value]) -> None:
        callee = self.program.plans.get(plan)
        self.require(callee is not None, f"unknown plan {plan!r}")
        assert callee is not None
        for arguments, parameters in ((inputs, callee.inputs), (outputs, callee.outputs)):
            numbers = [number for _, number in parameters]
            self.require(all(0 <= number < len(callee.values) for number in numbers), f"plan {plan!r} refers to unknown values")
            values = [callee.values[number] for number in numbers]
            self._require_types(arguments, [(value.dtype, len(value.shape)) for value in values])
            shares_memory = all(value.device == parameter.device for value, parameter in zip(arguments, values, strict=True))
            self.require(shares_memory, f"plan {plan!r} must be called with values in its memories")

    def _require_types(self, values: Sequence[Value], expected_types: Sequence[tuple[DType | None, int]]) -> None:
        self.require(len(values) == len(expected_types), f"expected {len(expected_types)} values, got {len(values)}")
        for value, (dtype, rank) in zip(values, expected_types, strict=True):
            fits = value.dtype is dtype and (dtype is None or len(value.shape) == rank)
            self.require(fits, f"expected a value of type {_show(dtype, rank)}, got {_show(value.dtype, len(value.shape))}")


def _existential(dim: Dim) -> bool:
    return any(isinstance(size, SizeVar) and size.existential for size in arith.free_vars(dim))


def _show(dtype: DType | None, rank: int) -> str:
    return "host object" if dtype is None else f"{dtype.name} of rank {rank}"
