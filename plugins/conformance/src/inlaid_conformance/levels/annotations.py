"""Level 2: the plugin's rules, including symbolic sizes."""

from __future__ import annotations

import functools

from inlaid.driver import FALLBACK, candidates_for
from inlaid.driver.prepare import prepare
from inlaid.graph import ir
from inlaid.partitioning.annotate import annotate
from inlaid.plugins import Reject
from inlaid_conformance.case import Case, Failed
from inlaid_conformance.corpus import CORPUS, Choices, Form
from inlaid_conformance.nets import NETS
from inlaid_conformance.target_under_test import TargetUnderTest
from inlaid_runtime.errors import PluginError


def loads_rules(tested: TargetUnderTest) -> None:
    """Check that rules name existing operators, since a misspelled rule would never match, and that composites have unique
    names."""
    if tested.unruly is not None:
        raise Failed(tested.unruly)
    names = [rule.name for rule, _ in tested.candidate.composites]
    if len(set(names)) < len(names):
        raise Failed(f"two composites have the name {next(name for name in names if names.count(name) > 1)!r}")


def judges_operators(tested: TargetUnderTest) -> None:
    """Check that every rule has a verdict on every example of the corpus, in each form, and that every rejection has a reason."""
    for form in _forms():
        try:
            annotated = annotate(form.function, [tested.candidate])
        except PluginError as error:
            raise Failed(f"the verdict on {form} failed: {error}") from error
        (verdict,) = annotated.verdicts[id(form.call)]
        if isinstance(verdict, Reject) and not verdict.reason.strip():
            raise Failed(f"{form} is rejected without a reason")


def judges_alike(tested: TargetUnderTest) -> None:
    """Check that the verdict on an operator is deterministic."""
    for form in _forms():
        first, second = tested.verdict(form.function), tested.verdict(form.function)
        if repr(first) != repr(second):
            raise Failed(f"the verdict on {form} is first {first!r}, then {second!r}")


def predicts_sound_costs(tested: TargetUnderTest) -> None:
    """Check that predicted seconds are positive and finite."""
    for form in _forms():
        verdict = tested.verdict(form.function)
        seconds = None if isinstance(verdict, Reject) else verdict.seconds
        if seconds is not None and not 0 < seconds < 1e9:
            raise Failed(f"expected positive finite predicted seconds for {form}, got {seconds!r}")


def accepts_its_examples(tested: TargetUnderTest) -> None:
    """Check that the rules accept every example that the plugin declares as a whole, as one operator or composite."""
    for number, function in enumerate(tested.conformance.examples):
        claim = tested.claim(function) if isinstance(function.body, ir.Call) else Reject("its body is not a call")
        if isinstance(claim, Reject):
            raise Failed(
                f"its rules must accept every function of Conformance(examples=...) as a whole; number {number} is rejected: "
                f"{claim.reason}"
            )


def judges_models(tested: TargetUnderTest) -> None:
    """Check that the rules, including rules of composites, have verdicts on all operators of the suite's models."""
    for net in NETS:
        candidates = candidates_for([tested.text], tested.registry)
        module = prepare(net.module(), candidates, FALLBACK, tested.registry)
        try:
            annotated = annotate(module.main, [tested.candidate])
        except PluginError as error:
            raise Failed(f"annotating {net.name} failed: {error}") from error
        for call in annotated.calls:
            (verdict,) = annotated.verdicts[id(call)]
            if isinstance(verdict, Reject) and not verdict.reason.strip():
                raise Failed(f"{call!r} in {net.name} is rejected without a reason")


@functools.cache
def _forms() -> tuple[Form, ...]:
    """Return a plain example of every operator and element type, in each of its forms."""
    examples = (entry.example(Choices.pinned(0), element) for entry in CORPUS for element in entry.dtypes)
    return tuple(form for example in examples for form in example.forms())


CASES = (
    Case("annotations", "loads-rules", loads_rules),
    Case("annotations", "judges-operators", judges_operators),
    Case("annotations", "judges-alike", judges_alike),
    Case("annotations", "predicts-sound-costs", predicts_sound_costs),
    Case("annotations", "accepts-its-examples", accepts_its_examples),
    Case("annotations", "judges-models", judges_models),
)
