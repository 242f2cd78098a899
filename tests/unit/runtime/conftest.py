"""A target whose kernels are Python functions of the test, so that the runtime is tested without a compiler."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from tests.plugin_registry import both_halves

from inlaid.plugins import Capabilities, KernelInfo, KernelTime, Loaded, TargetSpec, hookimpl
from inlaid.plugins.registry import PluginRegistry
from inlaid_runtime import Executable, Package
from inlaid_runtime.artifact import Artifact, DimSource, Signature, TensorSpec
from inlaid_runtime.artifact.plan import Plan, Program, RegionInfo, Value
from inlaid_runtime.execution.host import HostRuntime
from inlaid_runtime.types import dtype

FORMAT = "python-function"


class Kernel:
    """Calls a function that fills outputs and may write `dims`."""

    def __init__(self, function: Callable[..., None], symbol: str) -> None:
        self.function = function
        self.symbol = symbol

    def invoke(self, inputs, outputs, workspace, dims):
        for array in (*inputs, *outputs):
            assert array.flags.c_contiguous
            assert array.__array_interface__["data"][0] % 64 == 0
        self.function(*inputs, *outputs, **self._extra(workspace, dims))

    def _extra(self, workspace, dims):
        names = self.function.__code__.co_varnames[: self.function.__code__.co_argcount + self.function.__code__.co_kwonlyargcount]
        return {name: value for name, value in (("workspace", workspace), ("dims", dims)) if name in names}


class TimedKernel(Kernel):
    def profile(self, inputs, outputs, workspace, dims):
        self.invoke(inputs, outputs, workspace, dims)
        return [KernelTime(0, 0.0, 0.25), KernelTime(1, 0.25, 0.5)]


class FreeKernel:
    """Calls a function that returns its outputs."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function

    def call(self, inputs):
        results = self.function(*inputs)
        return results if isinstance(results, tuple) else (results,)


@dataclass
class Lab:
    """Builds packages of Python regions."""

    registry: PluginRegistry = None
    functions: dict[str, tuple[str, Callable[..., Any]]] = field(default_factory=dict)
    artifacts: list[Artifact] = field(default_factory=list)
    loads: list[dict[str, Any]] = field(default_factory=list)
    devices: list[int] = field(default_factory=list)

    def region(self, symbol, function, inputs, outputs, *, dims=(), kind="fill", **facts) -> str:
        """Add a region. `inputs` and `outputs` are (shape, dtype) pairs; `kind`: "fill", "timed" or "free"."""

        def specs(prefix, pairs):
            return tuple(
                TensorSpec(f"{prefix}{index}", tuple(shape), None if dtype_name is None else dtype(dtype_name))
                for index, (shape, dtype_name) in enumerate(pairs)
            )

        signature = Signature(specs("in", inputs), specs("out", outputs), tuple(DimSource(*item) for item in dims))
        self.functions[symbol] = (kind, function)
        if kind == "timed":
            facts["kernels"] = tuple(KernelInfo(f"{symbol}.{part}", (f"node_{part}",)) for part in "ab")
        self.artifacts.append(Artifact(symbol, FORMAT, 1, symbol.encode(), signature, **facts))
        return symbol

    def package(self, *plans: Plan, weights=None) -> Package:
        infos = tuple(RegionInfo(artifact.symbol, "lab", (f"node of {artifact.symbol}",)) for artifact in self.artifacts)
        return Package(Program({plan.name: plan for plan in plans}, infos), tuple(self.artifacts), weights or {})

    def executable(self, *plans: Plan, weights=None, devices=None) -> Executable:
        return Executable(self.package(*plans, weights=weights), registry=self.registry, devices=devices)


@pytest.fixture
def lab() -> Iterator[Lab]:
    lab = Lab()

    class Runtime(HostRuntime):
        def load(self, artifact, constants):
            lab.loads.append(dict(constants))
            kind, function = lab.functions[artifact.code.decode()]
            if kind == "free":
                return Loaded(allocating=FreeKernel(function))
            if kind == "timed":
                kernel = TimedKernel(function, artifact.symbol)
                return Loaded(kernel, profile=kernel.profile)
            return Loaded(Kernel(function, artifact.symbol))

    module = types.ModuleType("inlaid_lab_plugin")
    module.PLUGIN_API_VERSION = 3

    @hookimpl
    def inlaid_targets():
        return [TargetSpec("lab", "functions of a test", lambda options: Capabilities(("float32",)))]

    @hookimpl
    def inlaid_runtime(target, device):
        lab.devices.append(device)
        return Runtime(FORMAT, 1, ("fma",))

    module.inlaid_targets, module.inlaid_runtime = inlaid_targets, inlaid_runtime
    sys.modules[module.__name__] = module
    lab.registry = PluginRegistry.discover(both_halves("lab", module.__name__))
    yield lab
    del sys.modules[module.__name__]


def _value(storage, shape=(), dtype_name="float32", **facts) -> Value:
    return Value(storage, None if dtype_name is None else dtype(dtype_name), tuple(shape), **facts)


@pytest.fixture
def value() -> Callable[..., Value]:
    """`value(storage, shape, dtype)` makes a plan's value."""
    return _value


@pytest.fixture
def chain(lab) -> Callable[[], Executable]:
    """A model y = (x + 1) * 2 * w over shape (n, 3), in two regions with a constant each way."""

    def build(n: Any = 2) -> Executable:
        def add(x, y):
            y[...] = x + 1

        def scale(x, w, y):
            y[...] = x * 2 * w

        dims = (("n", 0, 0),) if not isinstance(n, int) else ()
        lab.region("add", add, [((n, 3), "float32")], [((n, 3), "float32")], dims=dims, constants={"c": np.arange(5.0)})
        lab.region("scale", scale, [((n, 3), "float32"), ((3,), "float32")], [((n, 3), "float32")], dims=dims)
        from inlaid_runtime.artifact.plan import Invoke

        plan = Plan(
            "main",
            (
                _value("input", (n, 3)),
                _value("arena", (n, 3)),
                _value("output", (n, 3)),
                _value("constant", (3,), name="w"),
            ),
            (("x", 0),),
            (("y", 2),),
            (Invoke("add", (0,), (1,)), Invoke("scale", (1, 3), (2,))),
            64 if isinstance(n, int) else n * 64,
        )
        return lab.executable(plan, weights={"w": np.array([1, 2, 3], np.float32)})

    return build
