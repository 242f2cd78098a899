"""Level 2: what the plugin's rules say of operators, symbolic sizes included."""

from __future__ import annotations

import functools

from inlay import ops
from inlay.arith import Expr
from inlay.conformance.case import Case, Failed
from inlay.conformance.corpus import CORPUS, Choices, Form
from inlay.conformance.nets import NETS
from inlay.conformance.subject import Subject
from inlay.driver import FALLBACK, candidates
from inlay.driver.prepare import prepare
from inlay.errors import InlayError
from inlay.partitioning.annotate import ANY, annotate
from inlay.plugins import Accept, AcceptIf, Reject


def names_operators(subject: Subject) -> None:
    """A rule for one operator names one that there is: a misspelt one would never be asked. A vendor's own have a dot in them."""
    for name in subject.candidate.by_name:
        if name != ANY and name not in ops.TABLE and "." not in name:
            raise Failed(f"a rule is for {name!r}, which is no operator")


def names_composites(subject: Subject) -> None:
    """Composites have names, each its own: it is by them that the code generator knows what it is given."""
    names = [rule.name for rule, _ in subject.candidate.composites]
    if "" in names:
        raise Failed("a composite has no name")
    if len(set(names)) < len(names):
        raise Failed(f"two composites are called {next(name for name in names if names.count(name) > 1)!r}")


def judges_operators(subject: Subject) -> None:
    """Every rule has a verdict on every example of the corpus, with constant arguments and symbolic sizes too, and a rejection has
    a reason."""
    for form in _forms():
        try:
            verdict: object = subject.candidate.judge(form.call)
        except Exception as error:
            raise Failed(f"the verdict on {form} failed: {type(error).__name__}: {error}") from error
        if not isinstance(verdict, (Accept, AcceptIf, Reject)):
            raise Failed(f"the verdict on {form} is {verdict!r}, and not Accept, AcceptIf or Reject")
        if isinstance(verdict, Reject) and not verdict.reason.strip():
            raise Failed(f"{form} is rejected without a reason")


def judges_alike(subject: Subject) -> None:
    """The verdict on an operator is the same each time."""
    for form in _forms():
        first, second = subject.verdict(form.function), subject.verdict(form.function)
        if repr(first) != repr(second):
            raise Failed(f"{form} is judged {first!r} and then {second!r}")


def predicts_sound_costs(subject: Subject) -> None:
    """Predicted seconds are positive and finite, and a condition is over sizes of the operator."""
    for form in _forms():
        verdict = subject.verdict(form.function)
        seconds = None if isinstance(verdict, Reject) else verdict.seconds
        if seconds is not None and not 0 < seconds < 1e9:
            raise Failed(f"{form} is predicted to take {seconds!r} seconds")
        if isinstance(verdict, AcceptIf) and not isinstance(verdict.constraint, Expr):
            raise Failed(f"{form} is accepted under the condition {verdict.constraint!r}, which no size decides")


def judges_models(subject: Subject) -> None:
    """The rules, those for composites included, have verdicts on all that the suite's models are made of."""
    for net in NETS:
        takers = candidates([subject.text], subject.registry)
        module = prepare(net.module(), takers, FALLBACK, subject.registry)
        try:
            annotated = annotate(module.main, [subject.candidate])
        except InlayError:
            raise
        except Exception as error:
            raise Failed(f"annotating {net.name} failed: {type(error).__name__}: {error}") from error
        for claim in annotated.claims:
            if not isinstance(claim.verdict, (Accept, AcceptIf)):
                raise Failed(f"the verdict on {claim.root!r} in {net.name} is {claim.verdict!r}")
        for call in annotated.calls:
            (verdict,) = annotated.verdicts[id(call)]
            if isinstance(verdict, Reject) and not verdict.reason.strip():
                raise Failed(f"{call!r} in {net.name} is rejected without a reason")


@functools.cache
def _forms() -> tuple[Form, ...]:
    """A plain example of every operator and element type, in each of its forms."""
    examples = (entry.example(Choices.pinned(0), element) for entry in CORPUS for element in entry.dtypes)
    return tuple(form for example in examples for form in example.forms())


CASES = (
    Case("annotations", "names-operators", names_operators),
    Case("annotations", "names-composites", names_composites),
    Case("annotations", "judges-operators", judges_operators),
    Case("annotations", "judges-alike", judges_alike),
    Case("annotations", "predicts-sound-costs", predicts_sound_costs),
    Case("annotations", "judges-models", judges_models),
)
