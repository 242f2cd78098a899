"""The random models of a seed: which operators each has, and how it is compiled."""

from __future__ import annotations

import random
from collections.abc import Sequence

from inlaid.plugins.registry import default_registry

from .check import Case, Variant
from .modules import OPERATORS, ModuleGenerator
from .onnx_host import MAKERS, names_at
from .onnx_models import OPSETS, OnnxCase, OnnxGenerator

FOCUS = 7
"""Number of operators that a model certainly has, apart from those that ONNX Runtime refuses."""
OPENCL = "opencl"


def model(seed: int, number: int) -> Case:
    """Make model `number` of a seed: a module if it is even, an ONNX model if it is odd."""
    name, turn = f"{seed} {number}", number // 2
    if number % 2 == 0:
        return ModuleGenerator(name, focus(OPERATORS, seed, turn)).case()
    return onnx_model(name, OPSETS[turn % len(OPSETS)], seed, turn // len(OPSETS))


def onnx_model(name: str, opset: int, seed: int, turn: int) -> OnnxCase:
    """Make an ONNX model of an opset. Operators that few opsets have are in its focus more often."""
    at = {each: names_at(each) for each in OPSETS}
    rare = [each for each in at[opset] for _ in range(round(len(OPSETS) / sum(each in names for names in at.values())))]
    generator = OnnxGenerator(name, opset)
    focus_makers = [MAKERS[each] for each in focus(rare, seed + opset, turn)]
    free = [MAKERS[generator.pick(at[opset])] for _ in range(generator.number(0, 3))]
    makers = [*focus_makers, *free]
    generator.random.shuffle(makers)
    for maker in makers:
        generator.grow(maker)
    return generator.case()


def focus(names: Sequence[str], seed: int, turn: int) -> list[str]:
    """Return the names of a turn: each `FOCUS` of all names in turn, whose order changes every time."""
    selection = []
    for position in range(turn * FOCUS, (turn + 1) * FOCUS):
        order = list(names)
        random.Random(f"{seed} {position // len(names)}").shuffle(order)
        selection.append(order[position % len(names)])
    return selection


def variants(case: Case, number: int, targets: Sequence[str]) -> list[Variant]:
    """Return how a model is compiled: for x86; some for x86 with checked accesses, for further `targets`, with fixed sizes, or by
    way of a package's bytes."""
    turn = number // 2
    result = [Variant(f"x86:threads={1 + turn % 2}", saved=turn % 10 == 3)]
    if turn % 4 == 1:
        result.append(Variant("x86:threads=1,check=true"))
    result += [Variant(target) for index, target in enumerate(targets) if turn % 8 == (3 + 4 * index) % 8]
    if turn % 8 == 2 and case.fixable():
        result.append(Variant("x86:threads=1", turn % len(case.inputs)))
    return result


def further_targets() -> list[str]:
    """Return the targets besides x86 that this machine can run."""
    registry = default_registry()
    return ["reference", *([OPENCL] if OPENCL in registry.kinds() and registry.probe(registry.target(OPENCL)).available else [])]
