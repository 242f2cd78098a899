"""Regions of a target to look at more closely: operators that it claims by themselves, and its parts of the suite's models."""

from __future__ import annotations

import functools
import hashlib
import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from inlaid import ops
from inlaid.artifact import Artifact
from inlaid.conformance.case import NotClaimed
from inlaid.conformance.corpus import Choices, Form, entry_of
from inlaid.conformance.nets import NETS
from inlaid.conformance.subject import Subject
from inlaid.graph import ir
from inlaid.graph.interp import evaluate
from inlaid.graph.operator import Operator
from inlaid.plugins import Region
from inlaid.runtime.executable import Executable

OPERATORS = (
    *("conv", "matmul", "add", "relu", "softmax", "reduce_sum", "max_pool", "reshape", "concat", "take", "quantize", "less"),
)
"""Operators of which one example each is looked at, where they are claimed."""
NOTHING = "it claims none of the suite's operators, and no part of its models"
MOST = 14
"""Regions that are looked at, at most."""
RUNS = 6
"""Operators that are run, at most."""
Array = np.ndarray[Any, Any]


def claimed_forms(subject: Subject, operators: tuple[str, ...] = OPERATORS) -> Iterator[Form]:
    """For each operator one example, of the first element type and form that the target claims."""
    for name in operators:
        entry = entry_of(ops.TABLE[name])
        assert entry is not None
        examples = (entry.example(Choices.pinned(0), element) for element in entry.dtypes)
        claimed = (form for example in examples for form in example.forms() if subject.claims(form.function))
        found = next(claimed, None)
        if found is not None:
            yield found


def regions(subject: Subject) -> tuple[Region, ...]:
    """Regions for the code generator, equal ones each time. Raises `NotClaimed` where there are none."""
    found = []
    found = [subject.region("", form.function) for form in claimed_forms(subject)][: MOST // 2]
    for net in NETS:
        if len(found) < MOST:
            found += subject.cut(net.module())
    if not found:
        raise NotClaimed(NOTHING)
    return tuple(Region(f"sample{number}", region.function, region.target) for number, region in enumerate(found[:MOST]))


@dataclass(frozen=True)
class Run:
    """Something to run on the target, by a name for people: how it is loaded, its inputs, and a function with what the reference
    makes of inputs."""

    name: str
    load: Callable[[], Executable]
    inputs: Mapping[str, Array]
    function: ir.Function

    def other_inputs(self) -> dict[str, Array]:
        """Inputs of the same shapes with other values: those there are, from the last to the first."""
        return {name: np.ascontiguousarray(value.reshape(-1)[::-1].reshape(value.shape)) for name, value in self.inputs.items()}

    def wanted(self, inputs: Mapping[str, Array]) -> Any:
        """What the reference gives."""
        return evaluate(self.function, [inputs[param.name] for param in self.function.params])


def runs(subject: Subject) -> tuple[Run, ...]:
    """Operators that the target claims, and models that it takes part of. Raises `NotClaimed` where there are none."""
    found = []
    for form in itertools.islice(claimed_forms(subject), RUNS):
        names = [param.name for param in form.function.params]
        load = functools.partial(subject.load, form.function)
        found.append(Run(form.example.operator.name, load, dict(zip(names, form.inputs, strict=True)), form.function))
    nets = [net for net in NETS if net.dtype == "float32" and (not found or net.name in ("convolution", "quantised-convolution"))]
    for net in nets:
        if subject.refused(net.module()) is None:
            found.append(Run(net.name, functools.partial(subject.load_model, net.module()), net.inputs(), net.build()))
    if not found:
        raise NotClaimed(NOTHING)
    return tuple(found)


def compiled(subject: Subject) -> dict[Region, Artifact]:
    """What the target's code generator makes of the samples, none of it from the user's cache."""
    units = {region: subject.unit(region, keep=False) for region in regions(subject)}
    return {region: subject.codegen.compile(unit, subject.context(keep=False)) for region, unit in units.items()}


def fingerprints(artifacts: Mapping[Region, Artifact]) -> dict[str, str]:
    """A hash of each artifact, by what it was made of."""
    return {f"{region.symbol} ({operators_of(region)})": _hashed(artifact) for region, artifact in artifacts.items()}


def operators_of(region: Region) -> str:
    """The names of a region's operators, in words."""
    callees = [expr.callee for expr in ir.post_order(region.function) if isinstance(expr, ir.Call)]
    return ", ".join(dict.fromkeys(callee.name for callee in callees if isinstance(callee, Operator)))


def _hashed(artifact: Artifact) -> str:
    """A hash of all that an artifact is."""
    facts = (
        artifact.symbol, artifact.format, artifact.format_version, artifact.signature, dict(artifact.workspace), artifact.aliases,
        artifact.constraints, artifact.requires, artifact.kernels, tuple(map(_hashed, artifact.variants)),
    )  # fmt: skip
    found = hashlib.sha256(repr(facts).encode())
    found.update(artifact.code)
    for name, array in artifact.constants.items():
        found.update(f"{name} {array.dtype} {array.shape}".encode())
        found.update(np.ascontiguousarray(array).tobytes())
    return found.hexdigest()
