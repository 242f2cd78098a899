"""Every transformation of a graph or a kernel is a pass that the pass manager runs, and `inlaid show` knows it."""

from __future__ import annotations

import dataclasses
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from types import CodeType, FrameType
from typing import Any

import numpy as np
import pytest

from inlaid import ops
from inlaid.driver import after_step, build_package, pass_effects
from inlaid.graph import ir as graph
from inlaid.passes.manager import PassManager
from inlaid.plugins.registry import default_registry
from inlaid.tensor.ir import LoopProgram
from inlaid_conformance.nets import NETS
from inlaid_runtime.errors import CompileError
from inlaid_runtime.types import TensorType
from recorded import print_only

PROGRAMS = (graph.Module, graph.Function, LoopProgram)
EXCEPTIONS: Mapping[str, str] = {
    "inlaid.tensor.schedule:Schedule": "schedule primitives: rules choose them for each kernel, and traces record them",
    "inlaid.lowering.emission.emit:_Emitter._scheduled": "applies the schedule that a rule offers",
    "inlaid.tensor.scheduling.trace:collect_offers": "rules look at copies of a kernel, and offer schedules",
    "inlaid.partitioning.outline:partition": "a stage, which makes regions of one function; `inlaid show` has it",
    "inlaid.partitioning.control:absorb_control": "a part of the stage `partition`",
    "inlaid.partitioning.borders:with_borders": "a stage, which adds regions; `inlaid show` has it",
    "inlaid.partitioning.outline:region_operators": "looks into composites, in a copy of the region",
    "inlaid.partitioning.outline:region_conditions": "looks into composites, in a copy of the region",
    "inlaid.driver.region_steps:region_steps": "makes steps, and the signature of a region with its stored forms",
    "inlaid.lowering.kernels.needs:unmet_need": "builds a kernel to see what it needs, before its operator has a target",
    "inlaid.lowering.memory.streams:streamed": "makes one kernel of several, to plan memory",
    "inlaid.tensor.transform.generalize:generalize": "makes one kernel of several that differ in integers",
    "inlaid.lowering.kernels.kernel:build": "makes the kernel of an operator",
    "inlaid_vta_fpga.compiler.kernels:kernel": "makes the kernel of a layer",
}
"""Functions that do not count, with all that they call, and why: none is a transformation of one program into one program."""
CONSTRUCTORS = [item.__code__ for item in (dataclasses.replace, graph.Module.with_function)]
INSTALLED = default_registry().kinds()


def concatenated() -> graph.Module:
    """A convolution whose results are parts of a concatenation, and of a layout of their own."""
    x = graph.var("x", TensorType((2, 4, 8, 8), "float32"))
    weights = graph.constant(np.linspace(-1, 1, 6 * 4 * 9, dtype=np.float32).reshape(6, 4, 3, 3))
    image = ops.conv(x, weights, strides=(1, 1), pads=(1, 1, 1, 1), dilations=(1, 1), groups=1)
    joined = ops.concat(ops.exp(image), ops.neg(image), axis=1)
    return graph.Module({"main": graph.function([x], ops.softmax(ops.relu(joined), axis=1))})


MODELS: Mapping[str, Callable[[], graph.Module]] = {"concatenated": concatenated, **{net.name: net.module for net in NETS}}
FLOAT = ("concatenated", "residual", "transformer", "recurrent")
SYMBOLIC = ("perceptron-symbolic",)
INT8 = ("quantized-convolution", "integer-convolution-up")
COMPILATIONS = [
    ("x86:threads=2,cpu=cascadelake", (*FLOAT, *SYMBOLIC, *INT8, "perceptron-bfloat16")),
    ("x86:threads=1,cpu=portable", SYMBOLIC),
    ("opencl:kind=gpu,subgroup=32,float64=false", (*FLOAT, *SYMBOLIC, "quantized-convolution")),
    ("cuda:arch=sm_90a,tf32=true", (*FLOAT, *SYMBOLIC, "perceptron-float16")),
    ("microcontroller:cpu=cortex-m55", (*FLOAT, *INT8)),
    ("vta_fpga", ("integer-convolution-up",)),
    ("reference", FLOAT),
]
for_each_target = pytest.mark.parametrize(
    ("target", "models"),
    [
        pytest.param(
            target,
            models,
            id=target,
            marks=pytest.mark.skipif(target.partition(":")[0] not in INSTALLED, reason="needs the target's plugin"),
        )
        for target, models in COMPILATIONS
    ],
)


def codes_of(name: str) -> Iterator[CodeType]:
    """The code of a function, or of the methods of a class, by the name of its module and its own."""
    module, _, path = name.partition(":")
    value: Any = import_module(module)
    for part in path.split("."):
        value = getattr(value, part)
    functions = [item for _, item in inspect.getmembers(value, inspect.isfunction)] if inspect.isclass(value) else [value]
    return (inspect.unwrap(item).__code__ for item in functions)


class Hook:
    """A profiler that lists the functions which get a program and return another one, outside of the manager and of `EXCEPTIONS`.
    Functions that return what the manager or such an exception made do not count."""

    def __init__(self) -> None:
        names = [name for name in EXCEPTIONS if name.partition(".")[0].partition("_")[2] in ("", *INSTALLED)]
        self.exempt = {PassManager.run.__code__, *(code for name in names for code in codes_of(name))}
        self.transformations: set[str] = set()
        self.passes = 0
        self._frames: list[tuple[FrameType, list[Any], bool]] = []
        self._results: dict[int, Any] = {}

    def __call__(self, frame: FrameType, event: str, result: Any) -> None:
        if event == "call":
            code = frame.f_code
            names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
            exempt = code in self.exempt or bool(self._frames and self._frames[-1][2])
            self._frames.append((frame, [] if exempt else [frame.f_locals.get(name) for name in names], exempt))
        elif event == "return" and self._frames and self._frames[-1][0] is frame:
            _, args, exempt = self._frames.pop()
            if not isinstance(result, PROGRAMS):
                return
            if exempt:
                self.passes += frame.f_code is PassManager.run.__code__
                self._results[id(result)] = result
                return
            changed = any(type(arg) is type(result) for arg in args) and not any(arg is result for arg in args)
            if changed and id(result) not in self._results and frame.f_code not in CONSTRUCTORS:
                self.transformations.add(f"{frame.f_code.co_filename}: {frame.f_code.co_qualname}")

    @contextmanager
    def watching(self) -> Iterator[None]:
        sys.setprofile(self)
        try:
            yield
        finally:
            sys.setprofile(None)


@for_each_target
def test_the_manager_runs_every_transformation(target: str, models: tuple[str, ...]) -> None:
    hook = Hook()
    for model in models:
        module = MODELS[model]()
        with print_only([target]), hook.watching():
            build_package(module, [target], keep=False)
    assert hook.passes
    assert not hook.transformations


def test_the_hook_sees_a_transformation_of_a_printer(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plugin that changes kernels on its own is caught."""
    pytest.importorskip("inlaid_microcontroller", reason="needs the microcontroller plugin")
    from inlaid_microcontroller import codegen

    def silently(program: LoopProgram, *args: Any) -> Any:
        return printed(renamed(program), *args)

    def renamed(program: LoopProgram) -> LoopProgram:
        return dataclasses.replace(program, name="other")

    printed = codegen.print_legalized
    monkeypatch.setattr(codegen, "print_legalized", silently)
    hook = Hook()
    with hook.watching():
        build_package(concatenated(), ["microcontroller:cpu=c99"], keep=False)
    assert {item.rpartition(".")[2] for item in hook.transformations} == {"renamed"}


@for_each_target
def test_every_listed_pass_can_be_shown(target: str, models: tuple[str, ...]) -> None:
    """By its name, in the order in which the unknown name lists all."""
    module = MODELS[models[0]]()
    effects = pass_effects(module, [target])
    with pytest.raises(CompileError, match="unknown pass 'magic'") as caught:
        after_step(module, [target], "magic")
    assert caught.value.remedy is not None
    names = str(caught.value.remedy).removeprefix("choose from ").split(", ")
    assert set(names) == {effect.name.partition(":")[0] for effect in effects}
    kernels = [effect for effect in effects if effect.level == "kernel"]
    assert bool(kernels) == (target != "reference")
    for effect in (*effects[:3], *kernels[-2:]):
        assert after_step(module, [target], effect.name)
