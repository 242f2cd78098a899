"""Export of firmware folders. A folder contains a model as C99 for any build system and a manifest of its resources."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from inlaid.plugins import Exported
from inlaid_microcontroller import naming, templates
from inlaid_microcontroller.compose import Composed, compose, copy_to_output
from inlaid_microcontroller.options import CPUS, FORMAT, MicrocontrollerOptions
from inlaid_microcontroller.source import ModelSource
from inlaid_microcontroller.toolchain import Compiled, compiled
from inlaid_microcontroller.unit import decode
from inlaid_runtime.artifact import TensorSpec
from inlaid_runtime.artifact.plan import Invoke, Move, Plan
from inlaid_runtime.errors import InputError, KernelFault, Unsupported
from inlaid_runtime.execution.executable import Executable
from inlaid_runtime.execution.output import check_output, write_files
from inlaid_runtime.execution.package import Package

FRAME = 384
"""Estimated stack bytes of a kernel without its buffers, used if no compiler reports its stack. Includes saved and spilled
registers, the frame of the caller, and library functions."""


class FirmwareExporter:
    """Writes a model's header, code, weights, test vector, example, CMake file and manifest."""

    def __init__(self, options: MicrocontrollerOptions) -> None:
        self.options = options

    def export(self, package: Package, load: Callable[[], Executable], folder: Path, name: str) -> Exported:
        """Write the firmware folder (see `inlaid.plugins.Exporter`). Raises `Unsupported` for a model that does not run completely
        on the controller. Raises `InputError` if a file of that name exists and Inlaid did not write it."""
        name = naming.model(name)
        composed = compose_package(package, name, self.options.cpu)
        source = composed.source
        code = {**source.sources(), **composed.files}
        with ThreadPoolExecutor(1) as pool:
            # Meanwhile, `try_out` compiles the model with this machine's compiler and runs it.
            sizes = pool.submit(compiled, code, f"{name}_run", self.options.cpu)
            inputs, expected = try_out(load())
            code |= source.files()
            manifest = describe(composed, self.options, inputs, expected, sizes.result())
        texts = {
            **code,
            f"{name}_test.h": templates.test_vector(source, inputs, expected),
            "main.c": templates.main(source, expected),
            "CMakeLists.txt": templates.cmake(source, CPUS[self.options.cpu], sorted(composed.files)),
            "manifest.json": json.dumps(manifest, indent=2) + "\n",
        }
        for file in texts:
            _check_ours(folder / file)
        write_files({folder / file: [templates.signed(file, text).encode()] for file, text in texts.items()})
        fast = f" and {manifest['fast_arena_bytes']} in fast memory" if source.unit.fast else ""
        about = "" if manifest["stack_is"] == "bound" else "about "
        size = manifest["flash"]["code"]
        what = "the code of" if size is None else f"{size} of code in"
        functions = {kernel["function"] for kernel in manifest["kernels"]}
        lines = (
            f"memory: {manifest['arena_bytes']} bytes of arena{fast}, with inputs and outputs;"
            f" {about}{manifest['stack_bytes']} of stack",
            f"flash: {manifest['flash']['weights']} bytes of weights, and {what} {len(functions)} kernels",
        )
        return Exported(tuple(folder / file for file in texts), lines, manifest)


def _check_ours(path: Path) -> None:
    """Raise `InputError` for an existing file that Inlaid did not write."""
    check_output(path)
    if path.exists() and templates.SIGNATURE.encode() not in path.read_bytes()[:200]:
        raise InputError(f"{path} was not written by Inlaid and is not overwritten", remedy="choose another folder or move it")


def firmware(executable: Executable, name: str) -> ModelSource:
    """Return the C sources of a model that is one region of this target. Raises the errors of `compose_package`."""
    return compose_package(executable.package, name, "c99").source


def compose_package(package: Package, name: str, cpu: str) -> Composed:
    """Return the C sources of a model. Raises `Unsupported`, with a source node, if a part does not run on the controller."""
    artifacts = {artifact.symbol: artifact for artifact in package.artifacts}
    nodes = {region.symbol: region.nodes for region in package.program.regions}
    plan: Plan = package.program.plans["main"]
    invokes: list[Invoke] = []
    for item in plan.instructions:
        if isinstance(item, Move):
            item, copy = copy_to_output(plan, item, len(invokes), package.weights)
            artifacts[item.symbol], nodes[item.symbol] = copy, ()
        if not isinstance(item, Invoke):
            raise Unsupported(f"expected a model without control flow on the host, found {type(item).__name__}")
        invokes.append(item)
    call, artifact = invokes[0], artifacts[invokes[0].symbol]
    if len(invokes) > 1 or artifact.format != FORMAT:
        return compose(name, cpu, plan, invokes, artifacts, nodes)
    titles = {number: label for label, number in (*plan.inputs, *plan.outputs)}
    inputs, outputs = ([titles[number] for number in side] for side in (call.inputs, call.outputs))
    return Composed(ModelSource(name, decode(artifact.code), artifact.signature, inputs, outputs, artifact.constants), {})


def try_out(executable: Executable) -> tuple[dict[str, np.ndarray[Any, Any]], dict[str, np.ndarray[Any, Any]]]:
    """Run the model on example inputs, or on zeros if the examples cause an index out of range. Returns inputs and outputs."""
    inputs = {spec.name: example(spec) for spec in executable.inputs}
    try:
        return inputs, executable.run(inputs)
    except KernelFault:
        inputs = {name: np.zeros_like(array) for name, array in inputs.items()}
        return inputs, executable.run(inputs)


def example(spec: TensorSpec) -> np.ndarray[Any, Any]:
    """Generate a test input. Its bytes are s >> 24 of the generator s = s * 1664525 + 1013904223, starting at s = 1. Integer
    elements are these bytes; float elements are the signed bytes divided by 64."""
    count = int(np.prod([dim for dim in spec.shape if isinstance(dim, int)], dtype=np.int64))
    assert spec.dtype is not None
    size = spec.dtype.bytes if spec.dtype.is_int else 1
    data = np.empty(count * size, np.uint8)
    state = 1
    for index in range(len(data)):
        state = (state * 1664525 + 1013904223) & 0xFFFFFFFF
        data[index] = state >> 24
    shape = tuple(dim for dim in spec.shape if isinstance(dim, int))
    if spec.dtype.is_int and spec.dtype.bits >= 8:
        return data.view(spec.dtype.numpy).reshape(shape)
    if spec.dtype.kind == "bool":
        return (data & 1).astype(np.bool_).reshape(shape)
    return (data.view(np.int8).astype(np.float32) / 64).astype(spec.dtype.numpy).reshape(shape)


def describe(
    model: Composed,
    options: MicrocontrollerOptions,
    inputs: Mapping[str, Any],
    outputs: Mapping[str, Any],
    compiled: Compiled | None,
) -> dict[str, Any]:
    """Build the manifest of a model's resources, with sizes in bytes. compiled: sizes that a compiler reported, None without
    one."""
    stack = compiled and compiled.stack
    source, unit = model.source, model.source.unit
    kernels: list[dict[str, Any]] = []
    weights: dict[str, int] = {}
    for each in (source, *model.parts):
        for call in each.unit.calls:
            kernel = each.unit.kernels[call.kernel]
            rounds = max(each.unit.loop.rounds, 1) if each.unit.loop is not None else 1
            kernels.append(
                {
                    "function": f"{each.name}_{kernel.name}",
                    "nodes": list(call.nodes),
                    "multiplications": kernel.multiplications * rounds,
                    "loads": kernel.loads * rounds,
                    "stores": kernel.stores * rounds,
                }
            )
        for number, name in each.weights.items():
            weights[f"{each.name}_{name}".removeprefix(f"{source.name}_")] = each.arrays[number].nbytes

    def ports(side: str) -> list[dict[str, Any]]:
        arrays = inputs if side == "inputs" else outputs
        return [
            {
                "name": port.title,
                "dtype": str(port.spec.dtype),
                "shape": list(port.spec.shape),
                "offset": port.offset,
                "bytes": port.bytes,
                "test": np.ascontiguousarray(array).tobytes().hex(),
            }
            for name, array in arrays.items()
            for port in (source.inputs if side == "inputs" else source.outputs)
            if port.title == name
        ]

    return {
        "about": templates.SIGNATURE,
        "model": source.name,
        "cpu": options.cpu,
        "arena_bytes": unit.arena,
        "fast_arena_bytes": unit.fast,
        "stack_bytes": FRAME + max((kernel.locals for each in (source, *model.parts) for kernel in each.unit.kernels), default=0)
        if stack is None
        else stack,
        "stack_is": "estimate" if stack is None else "bound",
        "flash": {"weights": sum(weights.values()), "code": compiled and compiled.code, "by_weight": weights},
        "headers": ["stdint.h", *unit.headers],
        "multiplications": sum(item["multiplications"] for item in kernels),
        "loads": sum(item["loads"] for item in kernels),
        "stores": sum(item["stores"] for item in kernels),
        "source_nodes": sorted({node for kernel in kernels for node in kernel["nodes"]}),
        "kernels": kernels,
        "inputs": ports("inputs"),
        "outputs": ports("outputs"),
    }
