"""Level 4: every operator that is claimed agrees with the reference, for every element type.

Each example is compiled as a region of its own. Of common element types the plain example is tried in each of its forms that is
claimed: with all arguments given when it runs, with all but the first constant, and with sizes that are known only when it runs.
Others are tried in the first form that is claimed.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from zlib import crc32

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from inlaid import arith
from inlaid.conformance.case import Case, Check, NotClaimed
from inlaid.conformance.corpus import COMMON, CORPUS, RANKS, Choices, Entry, Example, Form
from inlaid.conformance.subject import Subject
from inlaid.conformance.tolerance import hold, of_operator
from inlaid.plugins import AcceptIf, Reject

PINNED = 4
"""Pinned examples of each operator and element type: one of ordinary values, one of special ones, one at the edges, which are of
one shape and so share a kernel, and one of another shape and other attributes. Of the first element type that is claimed there
is one more for each other rank that its data may be of."""


def _agrees(entry: Entry, element: str) -> Check:
    """Pinned examples, the same ones each time."""

    def check(subject: Subject) -> None:
        tried = 0
        for number in range(PINNED):
            forms = _claimed(subject, entry.example(Choices.pinned(number), element))
            for form in forms if number == 0 and element in COMMON else forms[:1]:
                _hold(subject, entry, form)
                tried += 1
        if not tried:
            raise NotClaimed(_refusal(subject, entry, element))
        if element == _first_claimed(subject, entry):
            for form in _of_other_ranks(subject, entry, element):
                _hold(subject, entry, form)

    return check


def _first_claimed(subject: Subject, entry: Entry) -> str | None:
    plain = ((element, entry.example(Choices.pinned(0), element)) for element in entry.dtypes)
    return next((element for element, example in plain if _claimed(subject, example)), None)


def _of_other_ranks(subject: Subject, entry: Entry, element: str) -> Iterator[Form]:
    for rank in RANKS[1:]:
        choices = Choices.pinned(0, rank=rank)
        example = entry.example(choices, element)
        if choices.ranked:
            yield from _claimed(subject, example)[:1]


def _drawn(entry: Entry, element: str) -> Check:
    """Examples that Hypothesis draws: other shapes, attributes and values, each in one of its forms. Failures are shrunk."""

    def check(subject: Subject) -> None:
        tried = 0

        # The first that is drawn is the plain one, which `_agrees` has tried.
        @settings(
            max_examples=subject.examples + 1, deadline=None, database=None, phases=(Phase.generate, Phase.shrink),
            suppress_health_check=list(HealthCheck), report_multiple_bugs=False,
        )  # fmt: skip
        @seed(crc32(f"{entry.operator.name} {element}".encode()))
        @given(st.data())
        def holds(data: st.DataObject) -> None:
            nonlocal tried
            drawn: list[int] = []

            def choose(count: int) -> int:
                drawn.append(data.draw(st.integers(0, count - 1)))
                return drawn[-1]

            forms = _claimed(subject, entry.example(Choices(choose), element))
            if forms and any(drawn):
                _hold(subject, entry, forms[choose(len(forms))])
                tried += 1

        holds()
        if not tried:
            raise NotClaimed(_refusal(subject, entry, element))

    return check


def _claimed(subject: Subject, example: Example) -> list[Form]:
    """The forms of an example that the target takes."""
    return [form for form in example.forms() if _takes(subject, form)]


def _takes(subject: Subject, form: Form) -> bool:
    verdict = subject.verdict(form.function)
    if isinstance(verdict, AcceptIf):
        free = arith.free_vars(verdict.constraint)
        sizes: dict[arith.Expr, int] = {size: int(size.name[1:]) for size in free if isinstance(size, arith.SizeVar)}
        return bool(arith.evaluate(verdict.constraint, sizes))
    return not isinstance(verdict, Reject)


def _refusal(subject: Subject, entry: Entry, element: str) -> str:
    """Why an operator is not claimed."""
    verdict = subject.verdict(entry.example(Choices.pinned(0), element).forms()[0].function)
    return verdict.reason if isinstance(verdict, Reject) else "it is claimed under a condition that does not hold"


def _hold(subject: Subject, entry: Entry, form: Form) -> None:
    hold(subject, form, form.function, form.inputs, partial(of_operator, subject, entry.operator.name, entry.exact))


CASES = (
    *(
        Case("operators", name, make(entry, element), f"{entry.operator.name}-{element}")
        for entry in CORPUS
        for element in entry.dtypes
        for name, make in (("agrees", _agrees), ("drawn", _drawn))
        if name == "agrees" or element in COMMON
    ),
)
