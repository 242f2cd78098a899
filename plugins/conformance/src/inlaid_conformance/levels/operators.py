"""Level 4: every supported operator agrees with the reference, for every element type.

Each example is compiled as a region. For common element types, the plain example is tried in each form that the rules accept: all
arguments variable, all but the first constant, and symbolic sizes. Other examples are tried in the first accepted form. A search
finds further attribute values and shapes that the rules accept, and a few examples cover them; see `coverage`.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache, partial
from zlib import crc32

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from inlaid.graph import ir
from inlaid.graph.interp import evaluate
from inlaid.graph.operator import Operator
from inlaid.partitioning.rules import ANY
from inlaid.plugins import Reject
from inlaid_conformance.case import Case, Check, Failed, NotClaimed, Unexercised
from inlaid_conformance.corpus import COMMON, CORPUS, RANKS, Choices, Entry, Example, Form, find_entry
from inlaid_conformance.coverage import Values, accepted, example_values, may_claim, search, selected
from inlaid_conformance.pattern_examples import draw_inputs
from inlaid_conformance.target_under_test import TargetUnderTest
from inlaid_conformance.tolerance import hold, operator_tolerance
from inlaid_conformance.values import MIXES
from inlaid_runtime.errors import InlaidError

PINNED = 4
"""Number of fixed examples per operator and element type: three of one shape, which share a kernel, with ordinary, special and
extreme values; and one with another shape and attributes. The first supported element type has an extra example per further
rank."""


REMEDY = "declare one in inlaid_conformance: Conformance(examples=(function, ...))"


def _agrees(entry: Entry, element: str) -> Check:
    """Make a check of fixed examples."""

    def check(tested: TargetUnderTest) -> None:
        _may_be_claimed(tested, entry, element)
        tried = False
        for form in _pinned(tested, entry, element):
            _hold(tested, entry, form)
            tried = True
        if not tried:
            raise NotClaimed(_refusal(tested, entry, element))

    return check


def _pinned(tested: TargetUnderTest, entry: Entry, element: str, count: int = PINNED) -> Iterator[Form]:
    """Yield the fixed examples that the rules accept: up to `count`, and examples of further ranks."""
    for number in range(count):
        forms = _claimed(tested, entry.example(Choices.pinned(number, tiles=tested.capabilities.tiles), element))
        yield from forms if number == 0 and element in COMMON else forms[:1]
    if element == _first_claimed(tested, entry):
        yield from _examples_of_other_ranks(tested, entry, element)


@lru_cache(maxsize=256)
def _first_claimed(tested: TargetUnderTest, entry: Entry) -> str | None:
    plain = ((element, entry.example(Choices.pinned(0), element)) for element in entry.dtypes)
    return next((element for element, example in plain if _claimed(tested, example)), None)


def _examples_of_other_ranks(tested: TargetUnderTest, entry: Entry, element: str) -> Iterator[Form]:
    for rank in RANKS[1:]:
        choices = Choices.pinned(0, rank=rank)
        example = entry.example(choices, element)
        if choices.ranked:
            yield from _claimed(tested, example)[:1]


def _drawn(entry: Entry, element: str) -> Check:
    """Make a check of examples drawn by Hypothesis: other shapes, attributes and values, each in one form. Failures are shrunk."""

    def check(tested: TargetUnderTest) -> None:
        _may_be_claimed(tested, entry, element)
        tried = 0

        # The first drawn example is the plain one, which `_agrees` has tried.
        @settings(
            max_examples=tested.examples + 1, deadline=None, database=None, phases=(Phase.generate, Phase.shrink),
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

            forms = _claimed(tested, entry.example(Choices(choose, tiles=tested.capabilities.tiles), element))
            if forms and any(drawn):
                _hold(tested, entry, forms[choose(len(forms))])
                tried += 1

        holds()
        if not tried:
            raise NotClaimed(_refusal(tested, entry, element))

    return check


def _claimed(tested: TargetUnderTest, example: Example) -> list[Form]:
    """Return the forms of an example that the target accepts."""
    return [form for form in example.forms() if accepted(tested, form) is None]


def _may_be_claimed(tested: TargetUnderTest, entry: Entry, element: str) -> None:
    """Raise `NotClaimed` if no rule applies to the operator, so that no example needs to be tried."""
    if not may_claim(tested, entry.operator.name):
        raise NotClaimed(_refusal(tested, entry, element))


def _refusal(tested: TargetUnderTest, entry: Entry, element: str) -> str:
    """Explain why an operator is not supported."""
    verdict = tested.verdict(entry.example(Choices.pinned(0), element).forms()[0].function)
    return verdict.reason if isinstance(verdict, Reject) else "it is accepted under a condition that does not hold"


def _hold(tested: TargetUnderTest, entry: Entry, form: Form) -> None:
    hold(tested, form, form.function, form.inputs, partial(operator_tolerance, tested, entry.operator.name, entry.exact))


def _exercised(operator: Operator | str) -> Check:
    """Make a check of examples that cover accepted attribute values, shapes and element types, and of the plugin's own examples."""
    name = operator if isinstance(operator, str) else operator.name
    entry = None if isinstance(operator, str) else find_entry(operator)

    def check(tested: TargetUnderTest) -> None:
        declared_count = _check_declared_examples(tested, name, entry)
        search_result = None
        if entry is not None and may_claim(tested, name):
            search_result = search(tested, entry)
            for trial in selected(search_result.trials, _values_of_pinned(tested, entry)):
                _hold(tested, entry, trial.form)
                for mix in trial.mixes():
                    other = trial.with_mix(entry, mix, tested.capabilities.tiles)
                    if other is not None and accepted(tested, other) is None:
                        _hold(tested, entry, other)
        if not declared_count and (search_result is None or not search_result.trials):
            reasons = search_result.reasons.most_common(1) if search_result is not None else []
            reason = (
                reasons[0][0] if reasons else f"has no rule for {name}" if entry is not None else "it is not an operator of Inlaid"
            )
            if name in tested.candidate.by_name:
                raise Unexercised(f"{name} has a rule, but no example was found that it accepts: {reason}; {REMEDY}")
            raise NotClaimed(reason)

    return check


def _values_of_pinned(tested: TargetUnderTest, entry: Entry) -> list[Values]:
    """Return the properties of the examples that `_agrees` exercises. Special values have the properties of plain ones."""
    elements = [name for name in entry.dtypes if name in tested.capabilities.dtypes]
    plain_forms = ((form, name) for name in elements for form in _pinned(tested, entry, name, 1))
    return [example_values(entry, form, name) for form, name in plain_forms]


def _check_declared_examples(tested: TargetUnderTest, name: str, entry: Entry | None) -> int:
    """Compare the plugin's examples of an operator with the reference, and count them. Values are ordinary for operators that round
    or that Inlaid does not define."""
    exact = entry is not None and entry.exact
    operator_examples = [function for function in tested.conformance.examples if _operator_name(function) == name]
    functions = [
        function for function in operator_examples if tested.claims(function)
    ]  # `annotations.accepts_its_examples` reports the others
    for function in functions:
        for mix in MIXES if exact else MIXES[:1]:
            example = draw_inputs(function, mix)
            try:
                evaluate(example.function, example.inputs)
            except (InlaidError, ValueError, IndexError) as error:
                if mix != "plain":
                    continue  # for example an index out of range
                raise Failed(
                    f"the reference cannot run the declared example {example}: {error}; make indices and sizes constants"
                ) from error
            hold(tested, example, example.function, example.inputs, partial(operator_tolerance, tested, name, exact))
    return len(functions)


def _operator_name(function: ir.Function) -> str:
    body = function.body
    return body.callee.name if isinstance(body, ir.Call) and isinstance(body.callee, Operator) else ""


def vendor_cases(tested: TargetUnderTest) -> tuple[Case, ...]:
    """Return cases for the vendor's operators that rules name."""
    if tested.problem is not None or tested.unruly is not None:
        return ()
    names = [name for name in tested.candidate.by_name if name != ANY and all(entry.operator.name != name for entry in CORPUS)]
    return tuple(Case("operators", "exercised", _exercised(name), name) for name in names)


CASES = (
    *(
        Case("operators", name, make(entry, element), f"{entry.operator.name}-{element}")
        for entry in CORPUS
        for element in entry.dtypes
        for name, make in (("agrees", _agrees), ("drawn", _drawn))
        if name == "agrees" or element in COMMON
    ),
    *(Case("operators", "exercised", _exercised(entry.operator), entry.operator.name) for entry in CORPUS),
)
