"""Sample regions of a target: operators and composites that it accepts, and its regions in the suite's models."""

from __future__ import annotations

import functools
import hashlib
import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from inlaid import ops
from inlaid.artifact import Artifact
from inlaid.conformance.case import NotClaimed
from inlaid.conformance.corpus import Choices, Form, entry_of
from inlaid.conformance.coverage import may_claim, search
from inlaid.conformance.levels import composites
from inlaid.conformance.nets import NETS
from inlaid.conformance.target_under_test import TargetUnderTest
from inlaid.conformance.tolerance import of_composite, of_operator
from inlaid.driver.build import ALONE
from inlaid.graph import ir
from inlaid.graph.interp import evaluate
from inlaid.graph.operator import Operator
from inlaid.partitioning.compose import alone
from inlaid.plugins import Region, Tolerance
from inlaid.runtime.executable import Executable

OPERATORS = (
    *("conv", "matmul", "add", "relu", "softmax", "reduce_sum", "max_pool", "reshape", "concat", "take", "quantize", "less"),
)
"""Operators to sample: one example of each, if supported."""
NOTHING = "it supports none of the suite's operators, no composite with an example, and no part of its models"
MOST = 14
"""Greatest number of sampled regions."""
RUNS = 6
"""Greatest number of operators and composites that are run."""
FEW = 3
"""Composites are sampled too if the target supports fewer of `OPERATORS` than this."""
Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Sample:
    """An operator or composite that the target accepts, with a name for messages, and inputs. `composed` is the function with
    composites wrapped, as in a region; `allowed` returns the tolerance for an element type."""

    name: str
    function: ir.Function
    inputs: tuple[Any, ...]
    composed: ir.Function
    allowed: Callable[[str], Tolerance]


def claimed(tested: TargetUnderTest, operators: tuple[str, ...] = OPERATORS) -> Iterator[Sample]:
    """Yield one example of each supported operator, of the first element type and form that the target accepts. If the target
    supports few operators, also yield examples of composites."""
    count = 0
    for name in operators:
        form = next(_claimed_forms(tested, name), None)
        if form is not None:
            count += 1
            allowed = functools.partial(of_operator, tested, name, False)
            yield Sample(f"{form}", form.function, form.inputs, tested.composed(form.function), allowed)
    if count < FEW and operators is OPERATORS:
        for rule, made, claim in tested.once(composites.plain_examples):
            allowed = functools.partial(of_composite, tested, rule.name, False)
            yield Sample(f"{rule.name}, {made}", made.function, made.inputs, alone(made.function, claim), allowed)


def _claimed_forms(tested: TargetUnderTest, name: str) -> Iterator[Form]:
    """Yield accepted examples of an operator: plain examples, or other examples if the rules reject the plain ones."""
    entry = entry_of(ops.TABLE[name])
    assert entry is not None
    for element in entry.dtypes:
        yield from (form for form in entry.example(Choices.pinned(0), element).forms() if tested.claims(form.function))
    if may_claim(tested, name):
        yield from (trial.form for trial in search(tested, entry).trials)


def regions(tested: TargetUnderTest) -> tuple[Region, ...]:
    """Return the regions for the code generator, the same in each call. Raises `NotClaimed` if the target has none."""
    found = [tested.region("", sample.composed) for sample in claimed(tested)][: MOST // 2]
    for net in NETS:
        if len(found) < MOST:
            found += tested.cut(net.module())
    if not found:
        raise NotClaimed(NOTHING)
    return tuple(replace(region, symbol=f"sample{number}") for number, region in enumerate(found[:MOST]))


@dataclass(frozen=True)
class Run:
    """An operator or model to run: a name for messages, a function that loads it, inputs, and a function that evaluates the
    reference."""

    name: str
    load: Callable[[], Executable]
    inputs: Mapping[str, Array]
    function: ir.Function

    def other_inputs(self) -> dict[str, Array]:
        """Return inputs of the same shapes with other values: the elements in reverse order."""
        return {name: np.ascontiguousarray(value.reshape(-1)[::-1].reshape(value.shape)) for name, value in self.inputs.items()}

    def wanted(self, inputs: Mapping[str, Array]) -> Any:
        """Evaluate the reference."""
        return evaluate(self.function, [inputs[param.name] for param in self.function.params])


def runs(tested: TargetUnderTest) -> tuple[Run, ...]:
    """Return the operators that the target accepts, and models that it runs at least partly. Raises `NotClaimed` if none exist."""
    found = []
    for sample in itertools.islice(claimed(tested), RUNS):
        names = [param.name for param in sample.function.params]
        load = functools.partial(tested.load, sample.composed)
        found.append(Run(sample.name, load, dict(zip(names, sample.inputs, strict=True)), sample.function))
    nets = [net for net in NETS if net.dtype == "float32" and (not found or net.name in ("convolution", "quantised-convolution"))]
    for net in nets:
        if tested.refused(net.module()) is None:
            found.append(Run(net.name, functools.partial(tested.load_model, net.module()), net.inputs(), net.build()))
    if not found:
        raise NotClaimed(NOTHING)
    return tuple(found)


def artifact_of(tested: TargetUnderTest, sample: Sample) -> Artifact:
    """Compile a sample, and return the artifact of its region, without those of conversions at its borders."""
    return next(item for item in tested.package(sample.composed).artifacts if item.symbol == ALONE)


def compiled(tested: TargetUnderTest) -> dict[Region, Artifact]:
    """Compile the samples with the target's code generator, without the user's cache."""
    units = {region: tested.unit(region, keep=False) for region in regions(tested)}
    return {region: tested.codegen.compile(unit, tested.context(keep=False)) for region, unit in units.items()}


def fingerprints(artifacts: Mapping[Region, Artifact]) -> dict[str, str]:
    """Return a hash of each artifact, by its region's symbol and operators."""
    return {f"{region.symbol} ({operators_of(region)})": _hashed(artifact) for region, artifact in artifacts.items()}


def operators_of(region: Region) -> str:
    """Return the names of a region's operators, for messages."""
    callees = [expr.callee for expr in ir.post_order(region.function) if isinstance(expr, ir.Call)]
    return ", ".join(dict.fromkeys(callee.name for callee in callees if isinstance(callee, Operator)))


def _hashed(artifact: Artifact) -> str:
    """Hash all contents of an artifact."""
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
