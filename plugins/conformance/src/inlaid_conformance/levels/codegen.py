"""Level 3: the code generator makes valid artifacts, reproducibly and without a device."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping

import numpy as np

from inlaid.graph import ir
from inlaid.graph.operator import Operator
from inlaid.partitioning.borders import stored_function
from inlaid.plugins import Level, Region, Reject
from inlaid_conformance import fresh, samples
from inlaid_conformance.case import Case, Failed, NotClaimed, Skipped
from inlaid_conformance.corpus import CORPUS, Choices
from inlaid_conformance.graphs import grown
from inlaid_conformance.target_under_test import TargetUnderTest
from inlaid_runtime.artifact import Artifact, TensorSpec
from inlaid_runtime.errors import InlaidError, Unsupported
from inlaid_runtime.types import TensorType, TupleType, Type

GRAPHS = 8
"""Number of random graphs that are partitioned and compiled."""


def artifacts_are_complete(tested: TargetUnderTest) -> None:
    """Check that an artifact has the region's symbol, code in a named format, and inputs and outputs of the region's types."""
    for region, artifact in tested.once(samples.compiled).items():
        if not isinstance(artifact, Artifact):
            raise Failed(f"compile must return an Artifact, got {type(artifact).__name__}")
        problem = _problem(artifact, region)
        if problem is not None:
            raise Failed(f"the artifact of {samples.operator_names(region)} {problem}")


def _problem(artifact: Artifact, region: Region) -> str | None:
    if artifact.symbol != region.symbol:
        return f"must have the symbol {region.symbol!r}, got {artifact.symbol!r}"
    code: object = artifact.code
    if not artifact.format or not isinstance(code, bytes):
        return "has no format" if not artifact.format else f"must have code of type bytes, got {type(code).__name__}"
    stored = region.function if region.borders is None else stored_function(region.function, region.borders)
    sides = (
        ("inputs", artifact.signature.inputs, [param.type for param in stored.params]),
        ("outputs", artifact.signature.outputs, [stored.body.type]),
    )
    for side, specs, types in sides:
        expected_types = [part for type_ in types for part in _flat(type_)]
        if len(specs) != len(expected_types):
            return f"must have {len(expected_types)} {side} as the region, got {len(specs)}"
        for spec, type_ in zip(specs, expected_types, strict=True):
            if not _fits(spec, type_):
                return f"has {spec} among its {side}, but the region has {type_!r}"
    non_arrays = [name for name, array in artifact.constants.items() if not issubclass(type(array), np.ndarray)]
    return f"has a constant {non_arrays[0]} that is not an array" if non_arrays else None


def _flat(type_: Type) -> Iterator[Type]:
    if isinstance(type_, TupleType):
        for field in type_.fields:
            yield from _flat(field)
    else:
        yield type_


def _fits(spec: TensorSpec, type_: Type) -> bool:
    if not isinstance(type_, TensorType) or spec.dtype is None:
        return spec.dtype is None
    compatible = len(spec.shape) == type_.rank and spec.dtype == type_.dtype
    pairs = zip(spec.shape, type_.shape, strict=False)
    return compatible and all(a == b for a, b in pairs if isinstance(a, int) and isinstance(b, int))


def gives_the_same_again(tested: TargetUnderTest) -> None:
    """Check that equal units give equal bytes."""
    _compare(tested, samples.fingerprints(samples.compiled(tested)), "when it is compiled again")


def gives_the_same_elsewhere(tested: TargetUnderTest) -> None:
    """Check that another process, with another hash seed, gives equal bytes."""
    fingerprints = fresh.ask(
        "compile", tested.registry.plugin_modules(), {"PYTHONHASHSEED": "7"}, target=tested.text, cut_off=False
    )
    _compare(tested, fingerprints, "in another process")


def needs_no_device(tested: TargetUnderTest) -> None:
    """Check that compiling does not use the run side. It must work in a process in which `inlaid_runtime` and `inlaid_probe` raise,
    and the usual environment variables hide devices."""
    hidden = {"CUDA_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": "", "ROCR_VISIBLE_DEVICES": "", "ONEAPI_DEVICE_SELECTOR": "none:*"}
    fresh.ask("compile", tested.registry.plugin_modules(), hidden, target=tested.text, cut_off=True)


def _compare(tested: TargetUnderTest, fingerprints: Mapping[str, str], when: str) -> None:
    changed = [
        name for name, value in samples.fingerprints(tested.once(samples.compiled)).items() if fingerprints.get(name) != value
    ]
    if changed:
        raise Failed(f"the artifact of {changed[0]} differs {when}")


def compiles_what_it_claims(tested: TargetUnderTest) -> None:
    """Check that partitioned random graphs compile without failure in lowering and in the code generator, graphs of accepted
    operators and graphs of any operators."""

    def claimed(call: ir.Call) -> bool:
        return not isinstance(tested.candidate.judge(call), Reject)

    plain = [(entry, entry.example(Choices.pinned(0), element)) for entry in CORPUS for element in entry.dtypes]
    entries = list(dict.fromkeys(entry for entry, example in plain if claimed(example.forms()[0].call)))
    if not entries:
        raise NotClaimed("the target supports no single operator")
    for seed in range(GRAPHS):
        graph = grown(random.Random(seed).randrange, *((entries, claimed) if seed % 4 else (CORPUS, lambda call: True)))
        for region in () if graph is None else tested.cut(ir.Module({"main": graph.function})):
            try:
                tested.codegen.compile(tested.unit(region, keep=False), tested.context(keep=False))
            except Exception as error:
                what = f"random graph {seed}, a region of {samples.operator_names(region)}"
                raise Failed(f"{what}, failed to compile with {type(error).__name__}: {error}") from error


def refuses_what_it_cannot(tested: TargetUnderTest) -> None:
    """Check that the code generator raises `Unsupported` for a region that the rules reject, or compiles it correctly."""
    attempt_count = 0
    for name, function in _unclaimed(tested):
        try:
            region = tested.region("refused", function)
        except Unsupported:
            attempt_count += 1
            continue
        try:
            unit = tested.unit(region, keep=False)
        except InlaidError:
            continue  # lowering failed, so the code generator never gets it
        attempt_count += 1
        try:
            tested.codegen.compile(unit, tested.context(keep=False))
        except Unsupported:
            continue
        except Exception as error:
            raise Failed(f"expected Unsupported for {name}, which its rules reject, got {type(error).__name__}: {error}") from error
    if not attempt_count:
        raise Skipped("the rules reject no operator that the code generator can get")


def _unclaimed(tested: TargetUnderTest) -> Iterator[tuple[str, ir.Function]]:
    """Yield an example of each operator that the rules reject, and of an unknown operator."""
    if tested.level is Level.REGION:
        x = ir.var("x", TensorType((2, 3), tested.capabilities.dtypes[0]))
        yield "an unknown operator", ir.function((x,), Operator("conformance.unknown", lambda attrs, type_: type_)(x))
    for entry in CORPUS:
        for element in entry.dtypes:
            (form, *_) = entry.example(Choices.pinned(0), element).forms()
            if not tested.claims(form.function):
                yield str(form), form.function
                break


CASES = (
    Case("codegen", "artifacts-are-whole", artifacts_are_complete),
    Case("codegen", "gives-the-same-again", gives_the_same_again),
    Case("codegen", "gives-the-same-elsewhere", gives_the_same_elsewhere),
    Case("codegen", "needs-no-device", needs_no_device),
    Case("codegen", "compiles-what-it-claims", compiles_what_it_claims),
    Case("codegen", "refuses-what-it-cannot", refuses_what_it_cannot),
)
