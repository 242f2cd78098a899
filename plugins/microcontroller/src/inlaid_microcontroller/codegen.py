"""Code generator: compiles regions to C."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from inlaid.codegen.c_indices import HELPERS, helpers
from inlaid.codegen.c_kernel import Dialect, kernel_passes, print_legalized, stored_type
from inlaid.passes.manager import UnitPass
from inlaid.plugins import Codegen, CompileContext
from inlaid.tensor.analysis.ranges import Range
from inlaid.tensor.ir import LoopProgram
from inlaid.tensor.region import KernelCall, RegionBuffer, RegionLoop, RegionProgram
from inlaid.tensor.transform.generalize import generalize
from inlaid_microcontroller.counts import count_work
from inlaid_microcontroller.intrinsics import costs, emitters, function_names, support
from inlaid_microcontroller.loops import looped
from inlaid_microcontroller.naming import kernel as kernel_name
from inlaid_microcontroller.narrow import narrow_constants, narrow_parameters, narrowable_parameters
from inlaid_microcontroller.options import CPUS, FORMAT, FORMAT_VERSION, MicrocontrollerOptions
from inlaid_microcontroller.source import role
from inlaid_microcontroller.unit import PREFIX, Buffer, Call, Kernel, Unit, workspace
from inlaid_runtime import arith
from inlaid_runtime.artifact import Artifact
from inlaid_runtime.errors import Remedy, Unsupported, dims_setting

INDEX = "int32_t"
"""C type of indices. It suffices, since no microcontroller has arrays of more than 2 GiB."""
MAX_INTEGER_PARAMS = 4
"""Layers that differ only in integers share a kernel with integer parameters if it needs at most this many. An addition with 11
integer parameters is 11 to 14% slower on Cortex-M4 and M3 than with constants. Products and convolutions with up to 3 are at most
0.2% slower."""
_USES = {
    "math.h": re.compile(r"\b((fma|fmod|sqrt|floor|ceil|rint|trunc|fabs)f?\(|INFINITY\b|NAN\b)"),
    "string.h": re.compile(r"\bmemcpy\("),
}
"""Uses of headers in the text of kernels."""


class MicrocontrollerCodegen(Codegen["RegionProgram | RegionLoop"]):
    """Compiles a region to kernels in C99 and a memory plan."""

    def __init__(self, options: MicrocontrollerOptions) -> None:
        self.options = options

    def compile(self, unit: RegionProgram | RegionLoop, context: CompileContext) -> Artifact:
        """Compile a region to an artifact. Equal regions give equal bytes. Raises `Unsupported` for symbolic sizes."""
        region = unit.body if isinstance(unit, RegionLoop) else unit
        if unit.signature.dims:
            nodes = [node for call in region.calls for node in call.nodes]
            raise Unsupported(
                f"expected static sizes, since memory is planned statically, found dimension {unit.signature.dims[0].name}",
                node=nodes[0] if nodes else None,
                remedy=Remedy.join("fix its size: ", dims_setting({unit.signature.dims[0].name: None})),
            )
        code, constants = self._unit(*self.legalized(unit, context), context)
        code = looped(unit, code) if isinstance(unit, RegionLoop) else code
        size = workspace(code.arena, code.fast)
        return Artifact(unit.name, FORMAT, FORMAT_VERSION, code.encode(), unit.signature, constants, {"": size})

    def legalized(
        self, unit: RegionProgram | RegionLoop, context: CompileContext
    ) -> tuple[RegionProgram, Sequence[Mapping[int, Range]]]:
        """Return the region with its kernels after the passes that precede printing, and the ranges of each kernel's parameters."""
        region = unit.body if isinstance(unit, RegionLoop) else unit
        param_ranges = [constant_ranges(region, number) for number in range(len(region.kernels))]
        kernels, narrowed = [], []
        for kernel, ranges in zip(region.kernels, param_ranges, strict=True):
            params = narrowable_parameters(kernel, ranges)
            narrow = UnitPass("narrow_parameters", partial(narrow_parameters, params=params))
            kernels.append(context.run_passes((narrow, *kernel_passes(ranges)), kernel))
            narrowed.append(params)
        return replace(narrow_constants(region, narrowed), kernels=tuple(kernels)), param_ranges

    def _unit(
        self, unit: RegionProgram, param_ranges: Sequence[Mapping[int, Range]], context: CompileContext
    ) -> tuple[Unit, Mapping[str, np.ndarray[Any, Any]]]:
        """Compile the calls of a legalized region. Returns the unit and the constants."""
        names: set[str] = set()
        kernels: list[Kernel] = []
        kernel_args: dict[int, tuple[int, tuple[int, ...]]] = {}
        assert isinstance(unit.workspace, int)
        for generalized in generalize(unit.kernels, MAX_INTEGER_PARAMS):
            context.report("print", len(kernel_args), len(unit.kernels))
            kernel_args |= {member: (len(kernels), values) for member, values in generalized.members.items()}
            calls = [call for call in unit.calls if call.kernel in generalized.members]
            kernels.append(
                self._kernel(
                    unit, generalized.program, calls, _common([param_ranges[member] for member in generalized.members]), names
                )
            )
        text = "".join(kernel.text for kernel in kernels)
        functions, headers = support(CPUS[self.options.cpu], text)
        code = Unit(
            self.options.cpu,
            tuple(kernels),
            tuple(
                Call(
                    kernel_args[call.kernel][0],
                    (*call.inputs, *call.outputs),
                    call.nodes,
                    kernel_args[call.kernel][1],
                    tuple((item.condition, item.holds) for item in call.predicates if isinstance(item.condition, int)),
                )
                for call in unit.calls
            ),
            tuple(map(_buffer, unit.buffers)),
            unit.workspace,
            unit.fast,
            tuple(dict.fromkeys((*(header for header, use in _USES.items() if use.search(text)), *headers))),
            helpers(text, INDEX) + functions,
        )
        return code, unit.constants

    def _kernel(
        self,
        unit: RegionProgram,
        program: LoopProgram,
        calls: Sequence[KernelCall],
        param_ranges: Mapping[int, Range],
        names: set[str],
    ) -> Kernel:
        nodes = (node for call in calls for node in call.nodes)
        name = kernel_name(nodes, program.name, (*HELPERS, *function_names()), names)
        shared = set[int]().union(*(_shared([unit.buffers[n] for n in (*call.inputs, *call.outputs)]) for call in calls))
        cpu = CPUS[self.options.cpu]
        dialect = Dialect(INDEX, emitters(program, param_ranges, cpu), freestanding=True)
        printed = print_legalized(program, f"{PREFIX}{name}", dialect, param_ranges, shared, _names(unit, calls))
        work = count_work(program, costs(cpu))
        return Kernel(name, printed.text, printed.checks, work.multiplications, work.loads, work.stores, work.locals)


def _names(unit: RegionProgram, calls: Sequence[KernelCall]) -> list[str]:
    """Choose the names of a kernel's parameters. A constant is named by its role (see `role`), other parameters input or output."""
    arrays = list(unit.constants.values())
    names: list[str] = []
    for numbers in zip(*((*call.inputs, *call.outputs) for call in calls), strict=True):
        buffers = [unit.buffers[number] for number in numbers]
        roles = {role(arrays[item.index]) if item.storage == "constant" else "input" for item in buffers}
        is_result = len(names) >= len(calls[0].inputs)
        names.append("output" if is_result else roles.pop() if len(roles) == 1 else "constant")
    return names


def _common(param_ranges: Sequence[Mapping[int, Range]]) -> dict[int, Range]:
    """Return, for each parameter whose range is known in all kernels, the smallest range that contains all of them."""
    common_params = set(param_ranges[0]).intersection(*param_ranges)
    return {
        param: (min(each[param][0] for each in param_ranges), max(each[param][1] for each in param_ranges))
        for param in common_params
    }


def constant_ranges(unit: RegionProgram, kernel: int) -> dict[int, Range]:
    """Return the value range of each kernel parameter that is an integer constant in every call, keyed by parameter number."""
    arrays = list(unit.constants.values())
    ranges: dict[int, Range] = {}
    unbounded: set[int] = set()
    for call in unit.calls:
        for param, number in enumerate(call.inputs if call.kernel == kernel else ()):
            buffer = unit.buffers[number]
            array = arrays[buffer.index] if buffer.storage == "constant" else None
            if array is None or array.dtype.kind not in "iu" or not array.size:
                unbounded.add(param)
                continue
            low, high = ranges.get(param, (int(array.min()), int(array.max())))
            ranges[param] = (min(low, int(array.min())), max(high, int(array.max())))
    return {param: range_ for param, range_ in ranges.items() if param not in unbounded}


def _shared(buffers: list[RegionBuffer]) -> set[int]:
    """Return the numbers of all non-constant buffers of a call if any two of them overlap in memory, else an empty set."""
    spans: list[tuple[bool, int, int]] = []
    for item in buffers:
        if item.storage != "constant" and isinstance(item.offset, int):
            # Empty buffers do not overlap, but compilers warn of equal addresses.
            spans.append((item.fast, item.offset, item.offset + max(_bytes(item), 1)))
    if not any(one[0] == two[0] and one[2] > two[1] for one, two in itertools.pairwise(sorted(spans))):
        return set()
    return {number for number, item in enumerate(buffers) if item.storage != "constant"}


def _bytes(buffer: RegionBuffer) -> int:
    size = arith.product(buffer.shape)
    assert isinstance(size, int)
    return size * buffer.dtype.bytes


def _buffer(buffer: RegionBuffer) -> Buffer:
    size = _bytes(buffer)
    assert isinstance(buffer.offset, int)
    kind = stored_type(buffer.dtype)
    return Buffer(buffer.name, buffer.storage, buffer.index, buffer.offset, kind, size // buffer.dtype.bytes, size, buffer.fast)
