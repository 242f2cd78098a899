"""Sample regions of a target: operators and composites that it accepts, and its regions in the suite's models."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from inlaid import ops
from inlaid.driver.build import ALONE
from inlaid.graph import ir
from inlaid.graph.interp import evaluate
from inlaid.graph.keys import structural_key
from inlaid.graph.operator import Operator
from inlaid.graph.transform import transform
from inlaid.partitioning.annotate import Claim
from inlaid.partitioning.compose import alone
from inlaid.plugins import OpRule, Region, Reject, Tiles, Tolerance
from inlaid_conformance.case import NotClaimed, Undefined
from inlaid_conformance.corpus import CONSTANTS, Choices, Entry, Form, find_entry
from inlaid_conformance.corpus.product import MAX_SCRATCH, several
from inlaid_conformance.coverage import may_claim, search
from inlaid_conformance.levels import composites
from inlaid_conformance.neighbors import Neighbor, with_other_roundings, with_other_sizes
from inlaid_conformance.nets import NETS
from inlaid_conformance.pattern_examples import PatternExample, draw_inputs
from inlaid_conformance.target_under_test import TargetUnderTest
from inlaid_conformance.tolerance import compare, composite_tolerance, hold, model_tolerance, operator_tolerance
from inlaid_runtime.arith import SizeVar
from inlaid_runtime.artifact import Artifact
from inlaid_runtime.errors import InlaidError
from inlaid_runtime.execution.executable import Executable
from inlaid_runtime.types import TensorType, Type, from_numpy

OPERATORS = (
    *("conv", "matmul", "add", "relu", "softmax", "reduce_sum", "max_pool", "reshape", "concat", "take", "quantize", "less"),
)
"""Operators to sample: one example of each, if supported."""
NOTHING = "it supports none of the suite's operators, no composite with an example, and no part of its models"
MAX_REGIONS = 14
"""Greatest number of sampled regions."""
RUNS = 6
"""Number of operators and composites that are run, besides those of further element types."""
RUN_NETS = ("convolution", "quantized-convolution")
"""Models that are run besides operators and composites."""
IMAGES = 2
"""Images of a sample of several tiles."""
MAX_CHANNELS = 37
"""Greatest number of channels of a sample of several tiles."""
MAX_PIXELS = 2304
"""Greatest number of pixels, or of rows of a matrix, of a sample of several tiles."""
FEWER = 13
"""Number of rows and columns if the window of a layer, such as a mean, may not have more."""
ATTEMPTS = 6
"""Number of ways to give an axis another size that are tried until one is accepted."""
ROWS = (1, 100, 3000)
"""Rows of regions of symbolic sizes."""
REGIONS_OF_SYMBOLIC_SIZES: Mapping[str, Callable[[], ir.Function]] = {
    "softmax over columns, then rows": lambda: _of_rows(1000, lambda x: ops.softmax(ops.softmax(x, axis=1), axis=0)),
    "the sum of softmax over rows": lambda: _of_rows(1000, lambda x: ops.reduce_sum(ops.softmax(ops.relu(x), axis=0), axes=(0,))),
    "two matrix products": lambda: _of_rows(256, lambda x: ops.matmul(ops.matmul(x, _square(256)), _square(256))),
    "two softmax of one value": lambda: _of_rows(
        1000, lambda x: ops.add(ops.softmax(value := ops.softmax(x, axis=1), axis=0), value)
    ),
}
"""Regions of one input, a matrix of any number of rows, whose values between operators are as large as the input."""
Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Sample:
    """An operator or composite that the target accepts, with a name for messages, and inputs. `composed` is the function with
    composites wrapped, as in a region; `allowed` returns the tolerance for an element type; `rule` has the pattern by
    which it is accepted, None if it is accepted by name."""

    name: str
    function: ir.Function
    inputs: tuple[Any, ...]
    composed: ir.Function
    allowed: Callable[[str], Tolerance]
    rule: OpRule | None = None

    def changed(self, tested: TargetUnderTest, neighbor: Neighbor) -> Sample | None:
        """Return a neighbor as a sample; None if the target rejects it."""
        claim = tested.claim(neighbor.function, self.rule)
        if isinstance(claim, Reject):
            return None
        name = f"{self.name}, but with {neighbor.difference}"
        composed = alone(neighbor.function, claim)
        return replace(self, name=name, function=neighbor.function, inputs=neighbor.inputs, composed=composed)

    def reversed(self) -> Sample:
        """Return the sample with `reversed_inputs`."""
        names = [param.name for param in self.function.params]
        inputs = reversed_inputs(self.function, dict(zip(names, self.inputs, strict=True)))
        return replace(self, inputs=tuple(inputs.values()))

    def with_other_constants(self, tested: TargetUnderTest) -> Sample | None:
        """Return the sample with the elements of constants in reverse order; None if these are equal, or it is rejected or has no
        result."""
        other, composed = reversed_constants(self.function), reversed_constants(self.composed)
        if structural_key(other) == structural_key(self.function) or not tested.claims(other):
            return None
        names = [param.name for param in self.function.params]
        if not _has_result(other, dict(zip(names, self.inputs, strict=True))):
            return None
        return replace(self, function=other, composed=composed)

    def check(self, tested: TargetUnderTest) -> None:
        """Compare with the reference. A sample without a defined result passes. Raises `Failed`."""
        with contextlib.suppress(Undefined):
            hold(tested, self.name, self.function, self.inputs, self.allowed, self.composed)


def _of_rows(columns: int, body: Callable[[ir.Expr], ir.Expr]) -> ir.Function:
    """Make a function of a matrix of any number of rows."""
    x = ir.var("x", TensorType((SizeVar("rows"), columns), "float32"))
    return ir.function((x,), body(x))


def _square(size: int) -> ir.Constant:
    """Make a random matrix that keeps the magnitude of rows."""
    return ir.constant((np.random.default_rng(1).standard_normal((size, size)) / math.sqrt(size)).astype(np.float32))


def claimed(tested: TargetUnderTest, operators: tuple[str, ...] = OPERATORS) -> Iterator[Sample]:
    """Yield one example of each composite of several operators; of each supported operator, of the first element type and form that
    the target accepts; and, for each element type of the target that no example has, of the first operator that supports it."""
    covered_dtypes: set[str] = set()
    composed = tested.once(composites.plain_examples) if operators is OPERATORS else ()
    for example in composed:
        sample = _sample_of_composite(tested, *example)
        yield sample
        covered_dtypes |= _elements(sample.inputs)
    for name in operators:
        form = next(_claimed_forms(tested, name), None)
        if form is not None:
            yield _sample(tested, name, form)
            covered_dtypes |= _elements(form.inputs)
    for element in tested.capabilities.dtypes:
        names = (name for name in operators if element not in covered_dtypes and element in _entry(name).dtypes)
        named_forms = ((name, form) for name in names for form in _plain_forms(tested, name, element))
        named_form = next(named_forms, None)
        if named_form is not None:
            yield _sample(tested, *named_form)
            covered_dtypes |= _elements(named_form[1].inputs)


def with_constants(tested: TargetUnderTest) -> Iterator[Sample]:
    """Yield, for each supported operator, one example in which all arguments but the first are constants, as weights are."""
    for name in OPERATORS:
        forms = (form for element in _entry(name).dtypes for form in _plain_forms(tested, name, element))
        form = next((form for form in forms if form.kind == CONSTANTS), None)
        if form is not None:
            yield _sample(tested, name, form)


def varied(tested: TargetUnderTest) -> Iterator[Sample]:
    """Yield an example of each variant of the composites, if one is found soon, and the same example in every other rounding that
    is accepted: variants and roundings may use other units of the hardware, or other branches of its driver."""
    roundings = tested.capabilities.requantization.roundings
    for example in tested.once(composites.examples_of_variants):
        sample = _sample_of_composite(tested, *example)
        yield sample
        for neighbor in with_other_roundings(sample.function, sample.inputs, roundings):
            changed = sample.changed(tested, neighbor)
            if changed is not None:
                yield changed


def _sample_of_composite(tested: TargetUnderTest, rule: OpRule, example: PatternExample, claim: Claim) -> Sample:
    allowed = functools.partial(composite_tolerance, tested, rule.name, False)
    return Sample(f"{rule.name}, {example}", example.function, example.inputs, alone(example.function, claim), allowed, rule)


def _sample(tested: TargetUnderTest, name: str, form: Form) -> Sample:
    claim = tested.claim(form.function)
    rule = claim.composite if isinstance(claim, Claim) else None
    allowed = functools.partial(operator_tolerance, tested, name, False)
    return Sample(f"{form}", form.function, form.inputs, tested.composed(form.function), allowed, rule)


def samples_of_patterns(tested: TargetUnderTest) -> tuple[Sample, ...]:
    """Return the declared examples, and one example of each other rule with a pattern. Raises `NotClaimed` if none exist."""
    samples = [*declared(tested)]
    rules = {sample.rule for sample in samples}
    samples += [sample for sample in claimed(tested) if sample.rule is not None and sample.rule not in rules]
    if not samples:
        raise NotClaimed("no rule has a pattern with an example")
    return tuple(samples)


def declared(tested: TargetUnderTest) -> Iterator[Sample]:
    """Yield the declared examples of rules with a pattern."""
    for function in tested.conformance.examples:
        example, claim = draw_inputs(function, "plain"), tested.claim(function)
        if isinstance(claim, Claim) and claim.composite is not None:
            allowed = functools.partial(composite_tolerance, tested, claim.composite.name, False)
            yield Sample(
                f"{example}", example.function, example.inputs, tested.composed(example.function), allowed, claim.composite
            )


def tiled(tested: TargetUnderTest) -> tuple[Sample, ...]:
    """Return the samples with several axes lengthened at once, as far as the target accepts it: several images, channels of several
    tiles, the last of them partial, and pixels beyond the scratch memory; samples with constants of several axes also with weights
    beyond the scratch memory. Samples of which no axis can be lengthened are left out."""
    tiles, larger = tested.capabilities.tiles, []
    for sample in claimed(tested):
        rank = len(_shape(sample.function.params[0].type)) if sample.function.params else 0
        constants = (expr for expr in ir.post_order(sample.function.body) if isinstance(expr, ir.Constant))
        larger.append((sample, grown(tested, sample, large_shape(rank, tiles))))
        if tiles.scratch and rank > 1 and any(expr.data.ndim > 1 for expr in constants):
            channels = math.isqrt(min(tiles.scratch, MAX_SCRATCH)) | 1
            larger.append((sample, grown(tested, sample, (IMAGES, channels + 2, *(FEWER for _ in range(rank - 2))))))
    return tuple(large for sample, large in larger if large is not sample)


def grown(tested: TargetUnderTest, sample: Sample, shape: Sequence[int]) -> Sample:
    """Resize the axes of the data, one after another, to `shape`, and the first two axes of what follows, such as weights, to its
    number of channels. An axis stays as it is if its new size would shrink the result, as that of a window, or is rejected."""
    rank, channels = len(shape), max(shape[:2][-1:], default=0)
    for axis in range(rank + 2):
        sizes = (shape[axis], min(shape[axis], FEWER)) if axis < rank else (channels,)
        options = next(itertools.islice(with_other_sizes(sample.function, sample.inputs, sizes), axis, None), None)
        if options is None:
            break
        result = _shape(sample.function.body.type)
        larger = (option for option in options if _covers(_shape(option.function.body.type), result))
        candidates = (sample.changed(tested, option) for option in itertools.islice(larger, ATTEMPTS))
        sample = next(filter(None, candidates), sample)
    return sample


def large_shape(rank: int, tiles: Tiles) -> tuple[int, ...]:
    """Return a shape of data of several tiles: (images, channels, pixels...), (rows, channels) or (channels,), by rank."""
    channels = min(several(max(tiles.inputs, tiles.outputs)), MAX_CHANNELS)
    pixels = min(max(several(tiles.rows), tiles.scratch // tiles.outputs), MAX_PIXELS)
    if rank <= 2:
        return (pixels | 1, channels)[2 - rank :]
    side = math.ceil(pixels ** (1 / (rank - 2))) | 1
    return (IMAGES, channels, *(side for _ in range(rank - 2)))


def of_symbolic_sizes(tested: TargetUnderTest) -> Iterator[Sample]:
    """Yield the parts of `REGIONS_OF_SYMBOLIC_SIZES` that the target runs on their whole input, each at several sizes."""
    for name, build in REGIONS_OF_SYMBOLIC_SIZES.items():
        function = build()
        (data_type,) = (param.type for param in function.params)
        for region in tested.cut(ir.Module({"main": function})):
            if region.borders is not None or [param.type for param in region.function.params] != [data_type]:
                continue
            for rows in ROWS:
                shape = (rows, *_shape(data_type))
                data = np.random.default_rng(rows).uniform(-1, 1, shape).astype(np.float32)
                allowed = functools.partial(model_tolerance, tested)
                yield Sample(f"{name} of {rows} rows", region.function, (data,), region.function, allowed)


def _covers(shape: Sequence[int], other: Sequence[int]) -> bool:
    """Test whether a shape has the rank of another one, and no smaller axis."""
    return len(shape) == len(other) and all(extent >= least for extent, least in zip(shape, other, strict=True))


def _shape(type_: Type) -> tuple[int, ...]:
    """Return the static dimensions of a tensor; none of other values."""
    return tuple(dim for dim in type_.shape if isinstance(dim, int)) if isinstance(type_, TensorType) else ()


def _elements(inputs: Iterable[Array]) -> set[str]:
    return {from_numpy(value.dtype).name for value in inputs if isinstance(value, np.ndarray)}  # no sequences


def _entry(name: str) -> Entry:
    entry = find_entry(ops.TABLE[name])
    assert entry is not None
    return entry


def _plain_forms(tested: TargetUnderTest, name: str, element: str) -> Iterator[Form]:
    forms = _entry(name).example(Choices.pinned(0), element).forms()
    return (form for form in forms if tested.claims(form.function))


def _claimed_forms(tested: TargetUnderTest, name: str) -> Iterator[Form]:
    """Yield accepted examples of an operator: plain examples, or other examples if the rules reject the plain ones."""
    for element in _entry(name).dtypes:
        yield from _plain_forms(tested, name, element)
    if may_claim(tested, name):
        yield from (trial.form for trial in search(tested, _entry(name)).trials)


def regions(tested: TargetUnderTest) -> tuple[Region, ...]:
    """Return the regions for the code generator, the same in each call. Raises `NotClaimed` if the target has none."""
    regions = [tested.region("", sample.composed) for sample in claimed(tested)][: MAX_REGIONS // 2]
    for net in NETS:
        if len(regions) < MAX_REGIONS:
            regions += tested.cut(net.module())
    if not regions:
        raise NotClaimed(NOTHING)
    return tuple(replace(region, symbol=f"sample{number}") for number, region in enumerate(regions[:MAX_REGIONS]))


@dataclass(frozen=True)
class Run:
    """An operator or model to run: a name for messages, a function that loads it, inputs, the function that the reference
    evaluates, and the tolerance for an element type. `load_other` loads `other`, the same with other constants, and `other_inputs`
    are inputs of the same shapes with other values; both are the originals if no others are accepted and have a result."""

    name: str
    load: Callable[[], Executable]
    inputs: Mapping[str, Array]
    function: ir.Function
    allowed: Callable[[str], Tolerance]
    other: ir.Function
    load_other: Callable[[], Executable]
    other_inputs: Mapping[str, Array]

    def compare(self, function: ir.Function, inputs: Mapping[str, Array], results: Mapping[str, Any]) -> None:
        """Compare results of `function`, the run's `function` or its `other`, with the reference. Raises `Failed`."""
        expected = evaluate(function, [inputs[param.name] for param in function.params])
        compare(function.body.type, expected, list(results.values()), self.allowed)


def runs(tested: TargetUnderTest) -> tuple[Run, ...]:
    """Return operators and composites that the target accepts, of each of its element types, and models that it runs at least
    partly. Raises `NotClaimed` if none exist."""
    runs = []
    covered_dtypes: set[str] = set()
    for number, sample in enumerate(claimed(tested)):
        elements = _elements(sample.inputs)
        if number < RUNS or elements - covered_dtypes:
            runs.append(make_run(tested, sample))
            covered_dtypes |= elements
    nets = [net for net in NETS if net.name in RUN_NETS or (not runs and net.dtype == "float32")]
    for net in nets:
        if tested.refused(net.module()) is None:
            load, function, inputs = functools.partial(tested.load_model, net.module()), net.build(), net.inputs()
            other_inputs = reversed_inputs(function, inputs)
            runs.append(
                Run(net.name, load, inputs, function, functools.partial(model_tolerance, tested), function, load, other_inputs)
            )
    if not runs:
        raise NotClaimed(NOTHING)
    return tuple(runs)


def compile_artifact(tested: TargetUnderTest, sample: Sample) -> Artifact:
    """Compile a sample, and return the artifact of its region, without those of conversions at its borders."""
    return next(item for item in tested.package(sample.composed).artifacts if item.symbol == ALONE)


def make_run(tested: TargetUnderTest, sample: Sample) -> Run:
    """Return a sample to load and run."""
    names = [param.name for param in sample.function.params]
    inputs = dict(zip(names, sample.inputs, strict=True))
    other_inputs = reversed_inputs(sample.function, inputs)
    other, composed = reversed_constants(sample.function), reversed_constants(sample.composed)
    if not tested.claims(other) or not _has_result(other, other_inputs):
        other, composed = sample.function, sample.composed
    load, load_other = (functools.partial(tested.load, function) for function in (sample.composed, composed))
    return Run(sample.name, load, inputs, sample.function, sample.allowed, other, load_other, other_inputs)


def reversed_inputs(function: ir.Function, inputs: Mapping[str, Array]) -> Mapping[str, Array]:
    """Return inputs with their elements in reverse order; the inputs themselves if the function has no result for these."""
    changed = {name: np.ascontiguousarray(value.reshape(-1)[::-1].reshape(value.shape)) for name, value in inputs.items()}
    return changed if _has_result(function, changed) else inputs


def _has_result(function: ir.Function, inputs: Mapping[str, Array]) -> bool:
    """Test whether the reference has a result for inputs, of which indices may be out of range."""
    try:
        evaluate(function, [inputs[param.name] for param in function.params])
    except InlaidError:
        return False
    return True


def reversed_constants(function: ir.Function) -> ir.Function:
    """Return a function whose constants have their elements in reverse order; equal functions if all have one element."""

    def visit(old: ir.Expr, new: ir.Expr) -> ir.Expr:
        if not isinstance(new, ir.Constant) or new.data.size < 2:
            return new
        return ir.constant(np.ascontiguousarray(new.data.reshape(-1)[::-1].reshape(new.data.shape)))

    changed = transform(function, visit)
    assert isinstance(changed, ir.Function)
    return changed


def compiled(tested: TargetUnderTest) -> dict[Region, Artifact]:
    """Compile the samples with the target's code generator, without the user's cache."""
    units = {region: tested.unit(region, keep=False) for region in regions(tested)}
    return {region: tested.codegen.compile(unit, tested.context(keep=False)) for region, unit in units.items()}


def fingerprints(artifacts: Mapping[Region, Artifact]) -> dict[str, str]:
    """Return a hash of each artifact, by its region's symbol and operators."""
    return {f"{region.symbol} ({operator_names(region)})": _hashed(artifact) for region, artifact in artifacts.items()}


def operator_names(region: Region) -> str:
    """Return the names of a region's operators, for messages."""
    callees = [expr.callee for expr in ir.post_order(region.function) if isinstance(expr, ir.Call)]
    return ", ".join(dict.fromkeys(callee.name for callee in callees if isinstance(callee, Operator)))


def _hashed(artifact: Artifact) -> str:
    """Hash all contents of an artifact."""
    facts = (
        artifact.symbol, artifact.format, artifact.format_version, artifact.signature, dict(artifact.workspace), artifact.aliases,
        artifact.constraints, artifact.requires, artifact.kernels, tuple(map(_hashed, artifact.variants)),
    )  # fmt: skip
    digest = hashlib.sha256(repr(facts).encode())
    digest.update(artifact.code)
    for name, array in artifact.constants.items():
        digest.update(f"{name} {array.dtype} {array.shape}".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()
