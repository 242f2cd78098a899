"""Compiling for the machine, and running on it: graphs, which it follows as the reference target does."""

from __future__ import annotations

import dataclasses
import time

import numpy as np

from inlaid import ops
from inlaid.graph import ir
from inlaid.graph.interp import Interpreter
from inlaid.graph.operator import Operator
from inlaid.graph.parse import parse
from inlaid.graph.unify import upper_bound
from inlaid.lowering.signature import build_signature
from inlaid.partitioning.borders import stored_function
from inlaid.partitioning.outline import region_operators
from inlaid.plugins import Border, Codegen, KernelInfo, KernelTime, Loaded, Reject
from inlaid.reference.codegen import ReferenceCodegen, accepts, flat_types
from inlaid_runtime.errors import TargetError, Unsupported
from inlaid_runtime.execution.host import HostRuntime
from inlaid_runtime.types import Layout, TensorType, type_vars

from .machine import MACHINES

FORMAT = "discrete-graph"


def judge(call, without):
    """Tensors of numbers; sizes that an operator works out have a bound."""
    if call.callee.name in without:
        return Reject(f"it is to leave {call.callee.name} to others")
    for type_ in (*(part for arg in call.args for part in flat_types(arg.type)), *flat_types(call.type)):
        if not isinstance(type_, TensorType) or type_.dtype.kind == "string":
            return Reject("it computes with tensors of numbers alone")
    if any(upper_bound(size) is None for size in ir.introduced_sizes(call)):
        return Reject("it sets memory aside before it knows a size")
    return accepts(call)


class DiscreteCodegen(Codegen):
    def __init__(self, lanes=0):
        self.lanes = lanes

    def borders(self, region):
        return region.stored_as(self.form) if self.lanes else None

    def form(self, type_):
        """The last axis in blocks, if it has a static size."""
        blocked = type_.dtype.name == "float32" and type_.rank and isinstance(type_.shape[-1], int)
        return Border(Layout(((type_.rank - 1, self.lanes),))) if blocked else Border()

    def compile(self, unit, context):
        for call in region_operators(unit.function):
            if isinstance(verdict := judge(call, ()), Reject):
                raise Unsupported(verdict.reason, operator=call.callee.name)
        if unit.borders is not None:
            unit = dataclasses.replace(unit, function=stored_function(unit.function, unit.borders), borders=None)
        artifact = ReferenceCodegen().compile(unit, context)
        input_sizes = {size for param in unit.function.params for size in type_vars(param.type)}
        worked_out = sorted((size for size in type_vars(unit.function.body.type) - input_sizes if ir.existential(size)), key=repr)
        signature = build_signature(unit.function, worked_out)
        kernels = tuple(KernelInfo(call.callee.name, (str(call.span),) if call.span else ()) for call in calls(unit.function))
        fields = {"format": FORMAT, "workspace": {"": 256}, "aliases": aliases(unit.function), "kernels": kernels}
        return dataclasses.replace(artifact, signature=signature, **fields)


def calls(function):
    """The calls of operators in a region, those in composites included: its kernels."""
    return [expr for expr in ir.post_order(function) if isinstance(expr, ir.Call) and isinstance(expr.callee, Operator)]


def aliases(function):
    """Results that are parameters with some elements updated, which take over their buffers."""
    parts = [id(param) for param in function.params]
    results = function.body.fields if isinstance(function.body, ir.Tuple) else (function.body,)
    pairs = []
    for number, result in enumerate(results):
        updates = isinstance(result, ir.Call) and getattr(result.callee, "name", "") == "scatter_nd"
        if updates and id(result.args[0]) in parts and not any(id(other) == id(result.args[0]) for other in results):
            pairs.append((number, parts.index(id(result.args[0]))))
    return tuple(pairs) if len({param_index for _, param_index in pairs}) == len(pairs) else ()


class DiscreteRuntime(HostRuntime):
    def __init__(self, number):
        super().__init__(FORMAT, 1)
        if not 0 <= number < len(MACHINES):
            raise TargetError(f"there is no device {number}", remedy=f"devices: 0 to {len(MACHINES) - 1}")
        self.machine = MACHINES[number]

    def device(self):
        return self.machine

    def live_bytes(self):
        return self.machine.live

    def load(self, artifact, constants):
        try:
            module = parse(artifact.code.decode(), ops.TABLE, constants)
        except UnicodeDecodeError as error:
            raise Unsupported(f"the code of {artifact.symbol} is damaged: {error}") from error
        if artifact.symbol not in module.functions:
            raise Unsupported(f"the code of {artifact.symbol} must define it")
        kernel = DiscreteKernel(self.machine, Stopwatch(module), module[artifact.symbol], artifact.signature)
        return Loaded(launching=kernel, timed_launch=kernel.launch_timed)


class Stopwatch(Interpreter):
    """An interpreter that notes when operators ran, by the ids of their calls."""

    times = None

    def _apply(self, operator, attrs, args, frame, expr):
        begin = time.perf_counter()
        result = super()._apply(operator, attrs, args, frame, expr)
        if self.times is not None:
            self.times.append((id(expr), begin, time.perf_counter()))
        return result


class DiscreteKernel:
    def __init__(self, machine, interpreter, function, signature):
        self.machine, self.interpreter, self.function, self.signature = machine, interpreter, function, signature

    def launch(self, inputs, outputs, workspace, dims, queue):
        assert workspace is not None and workspace.shape[0] >= 256
        self.machine.launch(self.run, inputs, outputs, workspace, dims, queue)

    def launch_timed(self, inputs, outputs, workspace, dims, queue):
        times, started = [], []

        def run(*args):
            started.append(time.perf_counter())
            object.__setattr__(self.interpreter, "times", times)
            self.run(*args)
            object.__setattr__(self.interpreter, "times", None)

        self.machine.launch(run, inputs, outputs, workspace, dims, queue)
        numbers = {id(call): number for number, call in enumerate(calls(self.function))}
        return lambda: [KernelTime(numbers[call], begin - started[0], end - begin) for call, begin, end in times if call in numbers]

    def run(self, inputs, outputs, dims):
        arguments = iter(inputs)
        results = self.interpreter.run(self.function, [next(arguments) for _ in self.function.params])
        results = results if isinstance(results, tuple) else (results,)
        for output, result in zip(outputs, [np.array(result) for result in results], strict=True):
            output.reshape(-1)[: result.size] = np.asarray(result).reshape(-1)
        for number, source in enumerate(self.signature.dims):
            if source.input is None and source.upper is not None:
                dims[number] = self._size(source.name, results)

    def _size(self, name, results):
        for spec, result in zip(self.signature.outputs, results, strict=True):
            for dim, size in zip(spec.shape, result.shape, strict=True):
                if getattr(dim, "name", None) == name:
                    return size
        raise AssertionError(f"no result has {name}")
