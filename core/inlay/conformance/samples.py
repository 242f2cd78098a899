"""Regions of a target to look at more closely: operators that it claims by themselves, and its parts of the suite's models."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import numpy as np

from inlay.artifact import Artifact
from inlay.conformance.case import NotClaimed
from inlay.conformance.corpus import CORPUS, Choices, Form
from inlay.conformance.nets import NETS
from inlay.conformance.subject import Subject
from inlay.graph import ir
from inlay.graph.operator import Operator
from inlay.plugins import Region

OPERATORS = (
    *("conv", "matmul", "add", "relu", "softmax", "reduce_sum", "max_pool", "reshape", "concat", "take", "quantize", "less"),
)
"""Operators of which one example each is looked at, where they are claimed."""
NOTHING = "it claims none of the suite's operators, and no part of its models"
MOST = 14
"""Regions that are looked at, at most."""


def claimed_forms(subject: Subject, operators: tuple[str, ...] = OPERATORS) -> Iterator[Form]:
    """For each operator one example, of the first element type and form that the target claims."""
    for name in operators:
        entry = next(entry for entry in CORPUS if entry.operator.name == name)
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
            found += subject.cut(net.module())[1]
    if not found:
        raise NotClaimed(NOTHING)
    return tuple(Region(f"sample{number}", region.function, region.target) for number, region in enumerate(found[:MOST]))


def compiled(subject: Subject, region: Region) -> Artifact:
    """What the target's code generator makes of a region, none of it from the user's cache."""
    return subject.codegen.compile(subject.unit(region, keep=False), subject.context(keep=False))


def fingerprints(subject: Subject) -> dict[str, str]:
    """A hash of the artifact of each sample, by what the sample is made of."""
    return {f"{region.symbol} ({operators_of(region)})": _hashed(compiled(subject, region)) for region in regions(subject)}


def operators_of(region: Region) -> str:
    """The names of a region's operators, in words."""
    callees = [expr.callee for expr in ir.post_order(region.function) if isinstance(expr, ir.Call)]
    return ", ".join(dict.fromkeys(callee.name for callee in callees if isinstance(callee, Operator)))


def _hashed(artifact: Artifact) -> str:
    """A hash of all that an artifact is."""
    facts = (
        artifact.symbol, artifact.format, artifact.format_version, artifact.signature, dict(artifact.workspace), artifact.aliases,
        artifact.constraints, artifact.requires, artifact.kernels,
    )  # fmt: skip
    found = hashlib.sha256(repr(facts).encode())
    found.update(artifact.code)
    for name, array in artifact.constants.items():
        found.update(f"{name} {array.dtype} {array.shape}".encode())
        found.update(np.ascontiguousarray(array).tobytes())
    return found.hexdigest()
