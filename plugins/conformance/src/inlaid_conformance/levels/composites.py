"""Level 4, composites: everything that a pattern can match agrees with the reference.

A plugin's patterns define the accepted graphs, so examples are generated from the patterns. They have each alternative and optional
part at least once, every fitting element type, constant and variable weights, several shapes, and extreme values. They also cover
the attributes and shapes of each operator that the rule accepts. See `variants`, `pattern_examples` and `coverage`.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from dataclasses import dataclass, field, replace
from functools import partial

from inlaid.graph import ir
from inlaid.graph.operator import Operator
from inlaid.graph.pattern import Pattern, match
from inlaid.ops import TABLE
from inlaid.ops.fixed_point import multiply_fixed
from inlaid.ops.quantized import requantize
from inlaid.partitioning.annotate import Claim
from inlaid.partitioning.compose import alone
from inlaid.partitioning.requantize import unlike
from inlaid.plugins import OpRule, Reject
from inlaid_conformance import stress
from inlaid_conformance.case import Case, Failed, Undefined
from inlaid_conformance.corpus import COMMON, FILLS, SEVERAL, find_entry
from inlaid_conformance.coverage import Explorer, Values, Vector, selected
from inlaid_conformance.pattern_examples import (
    Draw,
    NoExampleError,
    PatternExample,
    Recipe,
    draw_inputs,
    generate_example,
    operator_properties,
)
from inlaid_conformance.target_under_test import TargetUnderTest
from inlaid_conformance.tolerance import composite_tolerance, hold
from inlaid_conformance.values import MIXES
from inlaid_conformance.variants import Branch, Variant, variants
from inlaid_runtime.plugins.blame import blame
from inlaid_runtime.types import DTYPES, TensorType

ATTEMPTS = 60
"""Number of examples generated in search of accepted ones; a third if the target declares none of their requantizations."""
EXAMPLES_OF_EACH = 2
"""Number of accepted examples of each variant, element type and kind of weights: a plain one, and one that differs."""
FEWER = 6
"""Replaces `ATTEMPTS` for further element types and kinds of weights once an example was found."""
ROUNDS = 2
"""Number of times that `FEWER` examples of each variant are drawn until one is accepted."""
OPERAND_SHAPES = (None, (3, 5), (2, 5, 4, 3))
"""Shapes of operands of examples of each variant; None for any."""
ROUNDED = ("add", "sub", "mul", "div", "sqrt", "cast")
"""Operators that round, but whose results are defined exactly."""
REQUANTIZED = frozenset((multiply_fixed.name, requantize.name))
"""Operators whose factors may shift sums to the left, if these are small."""
ENOUGH = 8
"""Number of elements of a result that suffice to notice a difference."""
NEIGHBORS = 120
"""Greatest number of choices tried for each operator of a composite."""
PAIRED = 2
"""Number of additional examples per operator that cover pairs of values."""
INSIDE = ("int32", "float32")
"""Element types that composites of narrower types may compute in internally, even if the target does not list them."""
REMEDY = "declare one in inlaid_conformance: Conformance(examples=(function, ...))"

OTHER = "those that can be generated use none of the target's element types"


def cases(tested: TargetUnderTest) -> tuple[Case, ...]:
    """Return one case for each composite of the target's rules."""
    if tested.problem is not None or tested.unruly is not None:
        return ()
    names = dict.fromkeys(rule.name for rule, _ in tested.candidate.composites)
    return tuple(Case("operators", "composite", partial(agrees, name=name), name) for name in names)


def agrees(tested: TargetUnderTest, name: str) -> tuple[str, ...]:
    """Check that generated examples of a composite agree with the reference. Returns the parts that the rule never accepted."""
    rejected_parts: tuple[str, ...] = ()
    for rule, pattern in tested.candidate.composites:
        if rule.name == name:
            rejected_parts += Search(tested, rule, pattern).run()
    return rejected_parts


def plain_examples(tested: TargetUnderTest) -> tuple[tuple[OpRule, PatternExample, Claim], ...]:
    """Return an accepted example of each composite of several operators, declared or generated, if one is found soon."""
    examples = []
    for rule, pattern in tested.candidate.composites:
        search = Search(tested, rule, pattern)
        declared_functions = (function for function in tested.conformance.examples if match(pattern, function.body) is not None)
        pattern_variants = (variant for variant in variants(pattern) if not variant.single)
        elements = [name for name in COMMON if name in tested.capabilities.dtypes]
        kinds = (*elements, *INSIDE)
        draws = itertools.product(range(ATTEMPTS), pattern_variants, elements or tested.capabilities.dtypes[:1], (True, False))
        generated_examples = (
            search.generate(variant, Draw(number, element, kinds, constant)) for number, variant, element, constant in draws
        )
        for example in itertools.chain((draw_inputs(function, "plain") for function in declared_functions), generated_examples):
            claim = tested.claim(example.function, rule) if example is not None and example.has_elements else None
            if example is not None and isinstance(claim, Claim):
                examples.append((rule, example, claim))
                break
    return tuple(examples)


def examples_of_variants(tested: TargetUnderTest) -> tuple[tuple[OpRule, PatternExample, Claim], ...]:
    """Return an accepted example of each variant of the composites, if one is found soon. Every other one is drawn like those that
    were accepted, and some have operands of one shape."""
    elements = [name for name in COMMON if name in tested.capabilities.dtypes] or list(tested.capabilities.dtypes[:1])
    examples: list[tuple[OpRule, PatternExample, Claim]] = []
    for rule, pattern in tested.candidate.composites:
        search, recipes, pending = Search(tested, rule, pattern), dict[str, Recipe](), [*variants(pattern)]
        for round_number, element in itertools.product(range(ROUNDS), elements):
            for variant in tuple(variant for variant in pending if not variant.single):
                for number in range(round_number * FEWER, (round_number + 1) * FEWER):
                    shape = OPERAND_SHAPES[number // 2 % len(OPERAND_SHAPES)]
                    draw = Draw(
                        number, element, (*elements, *INSIDE), number % 4 < 2, recipes=recipes if number % 2 else {}, shape=shape
                    )
                    example = search.generate(variant, draw)
                    claim = tested.claim(example.function, rule) if example is not None and example.has_elements else None
                    if example is not None and isinstance(claim, Claim):
                        examples.append((rule, example, claim))
                        recipes.update(example.recipes)
                        pending.remove(variant)
                        break
    return tuple(examples)


@dataclass(frozen=True)
class _Neighbor:
    """An example with changed choices of one operator, and the properties of the operator."""

    example: PatternExample
    draw: Draw
    values: Values


@dataclass
class Search:
    """Searches for accepted examples of a composite, and compares them with the reference. `accepted` counts accepted examples.
    `exercised` has the branches in accepted examples, `refused` the branches in rejected examples, with `reasons`, and `undeclared`
    the branches in examples whose requantization the target does not declare; `hopeless` counts these examples by variant. `stuck`
    has the reason why no example of a variant was generated. `fitting` has the element types, with and without constants, of
    accepted examples; `several` is set if one has several parameters. `plainest` has an accepted example for each operator."""

    tested: TargetUnderTest
    rule: OpRule
    pattern: Pattern
    accepted: int = 0
    exercised: set[Branch] = field(default_factory=set)
    refused: set[Branch] = field(default_factory=set)
    reasons: Counter[str] = field(default_factory=Counter)
    stuck: dict[Variant, str] = field(default_factory=dict)
    hopeless: Counter[Variant] = field(default_factory=Counter)
    fitting: set[tuple[str, bool]] = field(default_factory=set)
    several: bool = False
    recipes: dict[str, Recipe] = field(default_factory=dict)
    plainest: dict[str, tuple[Variant, Draw, PatternExample]] = field(default_factory=dict)
    undeclared: set[Branch] = field(default_factory=set)

    def run(self) -> tuple[str, ...]:
        """Run the search. Returns the parts of the pattern whose examples the rule rejects. Raises `Failed` if an example
        disagrees, or if a part has no example."""
        pattern_variants = variants(self.pattern)
        self._check_declared(pattern_variants)
        for number, variant in enumerate(pattern_variants):
            self._try(variant, number)
        for number, variant in enumerate(pattern_variants):
            if self.recipes and self._lacks(variant):
                self._try(variant, number)  # drawn like accepted examples of other variants
        for name, (variant, draw, example) in self.plainest.items():
            operator = TABLE.get(name)
            if operator is not None and (not operator.elementwise or operator is multiply_fixed):
                self._explore(name, variant, draw, example)
        if not self.accepted:
            why = self.reasons.most_common(1) or Counter(self.stuck.values()).most_common(1)
            raise Failed(f"found no example that the rule accepts: {why[0][0] if why else OTHER}; {REMEDY}")
        for variant in pattern_variants:
            if variant.branches - self.exercised - self.refused:
                raise Failed(f"found no example of {variant}: {self.stuck.get(variant, OTHER)}; {REMEDY}")
        why = self.reasons.most_common(1)
        rejected = [variant for variant in pattern_variants if self._lacks(variant)]
        for name, (variant, draw, example) in self.plainest.items():
            self._stress(name, variant, draw, example)
        return tuple(f"no example of {variant} is accepted: {why[0][0] if why else OTHER}; {REMEDY}" for variant in rejected)

    def _lacks(self, variant: Variant) -> bool:
        """Test whether a part of a variant is in no accepted example, unless the target does not declare its requantization."""
        return bool(variant.branches - self.exercised - self.undeclared)

    def _check_declared(self, pattern_variants: tuple[Variant, ...]) -> None:
        """Check the plugin's own examples."""
        for function in self.tested.conformance.examples:
            if match(self.pattern, function.body) is None:
                continue
            for mix in MIXES:
                example = draw_inputs(function, mix)
                claim = self.tested.claim(example.function, self.rule)
                if isinstance(claim, Reject):
                    raise Failed(f"a declared example is rejected: {claim.reason}")
                if not self._accepts(example) and mix == "plain":
                    raise Failed(f"{self.reasons.most_common(1)[0][0]}; make indices and sizes of the declared example constants")
            for variant in pattern_variants:
                if match(variant.pattern, function.body) is not None:
                    self.exercised |= variant.branches

    def _try(self, variant: Variant, first: int) -> None:
        """Compare examples of a variant with the reference, for each element type. `first`, the number of the first example,
        differs between variants, so that shapes differ too."""
        dtypes = [name for name in self.tested.capabilities.dtypes if name in DTYPES]
        elements = sorted(dtypes, key=lambda name: COMMON.index(name) if name in COMMON else len(COMMON))
        for element in elements:
            for constant in (False, True):
                if constant and (element, False) in self.fitting and not self.several:
                    continue  # no other argument could be constant
                quota = 1 if first or variant.single else EXAMPLES_OF_EACH
                likely = (element, constant) in self.fitting or not (self.fitting or constant)
                for number in range(first, first + (ATTEMPTS if likely else FEWER)):
                    # Every other example is drawn like a known accepted one.
                    draw = Draw(number, element, (*dtypes, *INSIDE), constant, recipes=self.recipes if (number - first) % 2 else {})
                    example = self.generate(variant, draw)
                    if example is not None and _fits(example, draw) and self._hold(variant, draw, example):
                        self.fitting.add((element, constant))
                        self.several |= len(example.function.params) > 1
                        self.recipes.update(example.recipes)
                        quota -= 1
                        self._remember(variant, draw, example)
                    if not quota or self.hopeless[variant] > ATTEMPTS // 3:
                        break

    def _remember(self, variant: Variant, draw: Draw, example: PatternExample) -> None:
        """Keep an accepted example for each of its operators. Prefers examples with elements, and of few operators, since operators
        constrain each other."""
        for name in () if variant.single else example.recipes:
            if name not in self.plainest or _plainness(example) < _plainness(self.plainest[name][2]):
                self.plainest[name] = variant, draw, example

    def generate(self, variant: Variant, draw: Draw) -> PatternExample | None:
        """Generate an example of a variant. Returns None if no example was found."""
        with blame(self.tested.plugin, f"the pattern of rule {self.rule.name}"):
            try:
                return generate_example(variant.pattern, replace(draw, target=self.tested.capabilities))
            except NoExampleError as error:
                self.stuck[variant] = str(error)
        return None

    def _explore(self, name: str, variant: Variant, draw: Draw, example: PatternExample) -> None:
        """Change the choices of operator `name` in an example, and compare examples that cover the accepted values with the
        reference."""

        target = self.tested.capabilities

        def neighbors(vector: Vector) -> tuple[list[_Neighbor], tuple[int, ...]]:
            recipe = replace(example.recipes[name], choices=vector, default_attributes=False, shape=None, ignores_context=True)
            changed = replace(draw, recipes={**example.recipes, name: recipe})
            changed = replace(changed, aim="roundings" if name in REQUANTIZED else "multipliers")
            other = self.generate(variant, changed)
            values = None if other is None else operator_properties(other.function, name, target)
            if other is None or values is None:
                return [], ()
            return [_Neighbor(other, changed, values)], other.recipes[name].option_counts

        def refuse(neighbor: _Neighbor) -> str | None:
            claim = self.tested.claim(neighbor.example.function, self.rule)
            return claim.reason if isinstance(claim, Reject) else None

        origins = ((), example.recipes[name].choices)
        explorer = Explorer(neighbors, refuse, f"{self.rule.name} {name}", Counter(), NEIGHBORS, origins)
        explorer.run(())
        plain = operator_properties(example.function, name, target)
        shift_draws = [replace(draw, recipes=example.recipes)] if name in REQUANTIZED else []
        # The plain example may be too small to distinguish roundings, so all of them are exercised again.
        covered = () if plain is None or name in REQUANTIZED else (plain,)
        for neighbor in selected(explorer.trials, covered, PAIRED):
            if self._accepts(neighbor.example):
                self._remember(variant, neighbor.draw, neighbor.example)
            if FILLS in neighbor.values.values():
                self._again(variant, replace(neighbor.draw, mix="full"))
            if neighbor.values.get("rows of integers") == SEVERAL and not REQUANTIZED.isdisjoint(example.recipes):
                shift_draws.append(neighbor.draw)
            if name in REQUANTIZED:
                self._again(variant, replace(neighbor.draw, mix="small"))
        for other in shift_draws[:1]:
            self._again(variant, replace(other, mix="small", aim="shifts"))

    def _stress(self, name: str, variant: Variant, draw: Draw, example: PatternExample) -> None:
        """Compare directed neighbors of an accepted example with the reference."""
        target = self.tested.capabilities
        for other in stress.draws(name, example, draw, target):
            self._again(variant, other)
        if name in stress.CONSTANTS:
            bases = (self.generate(variant, other) for other in stress.ample(example, draw, target))
            base = next(
                (base for base in bases if base is not None and isinstance(self.tested.claim(base.function, self.rule), Claim)),
                example,
            )
            for neighbor in stress.constants(name, base, target):
                self._accepts(neighbor)

    def _again(self, variant: Variant, draw: Draw) -> None:
        """Compare an example with another mix of values with the reference, if one can be generated."""
        other = self.generate(variant, draw)
        if other is not None:
            self._accepts(other)

    def _hold(self, variant: Variant, draw: Draw, example: PatternExample) -> bool:
        """Compare an example with the reference, with each mix of values. Returns whether the rule accepts it."""
        if not self._accepts(example):
            self.refused |= variant.branches
            pattern_match = match(self.pattern, example.function.body)
            if pattern_match is not None and unlike(pattern_match, self.tested.capabilities.requantization) is not None:
                self.undeclared |= variant.branches
                self.hopeless[variant] += 1
            return False
        self.exercised |= variant.branches
        edges = _roundings(example.function) < 2
        for mix in MIXES[1:]:
            self._again(variant, replace(draw, mix=mix, edges=edges))
        return True

    def _accepts(self, example: PatternExample) -> bool:
        """Test whether the rule accepts an example, which must then agree with the reference. An example without a defined result
        does not count. Raises `Failed`."""
        claim = self.tested.claim(example.function, self.rule)
        if isinstance(claim, Reject):
            self.reasons[claim.reason] += 1
            return False
        allowed = partial(composite_tolerance, self.tested, self.rule.name, _exact(example.function))
        try:
            hold(self.tested, example, example.function, example.inputs, allowed, alone(example.function, claim))
        except Undefined as error:
            self.reasons[str(error)] += 1
            return False
        self.accepted += 1
        return True


def _plainness(example: PatternExample) -> tuple[int, int]:
    """Order examples: those with enough elements first, then those of few operators."""
    type_ = example.function.body.type
    elements = math.prod(dim for dim in type_.shape if isinstance(dim, int)) if isinstance(type_, TensorType) else ENOUGH
    return -min(elements, ENOUGH), len(example.recipes)


def _fits(example: PatternExample, draw: Draw) -> bool:
    """Test whether an example uses the drawn element type, and has constants if `draw` requires them."""
    types = [param.type for param in example.function.params]
    constant = any(isinstance(expr, ir.Constant) for expr in ir.post_order(example.function.body))
    return (constant or not draw.constant_operands) and any(
        isinstance(t, TensorType) and t.dtype.name == draw.element for t in types
    )


def _roundings(function: ir.Function) -> int:
    """Return the number of operators that round floats. If there are several, fusion may change where they round."""
    return sum(_rounds(expr) for expr in ir.post_order(function) if isinstance(expr, ir.Call))


def _rounds(call: ir.Call) -> bool:
    assert isinstance(call.callee, Operator)
    entry = find_entry(call.callee)
    is_float = isinstance(call.type, TensorType) and call.type.dtype.is_float
    return entry is None or not entry.exact or (is_float and call.callee.name in ROUNDED)


def _exact(function: ir.Function) -> bool:
    """Test whether the results of a function are defined exactly."""
    calls = [expr for expr in ir.post_order(function) if isinstance(expr, ir.Call)]
    entries = [find_entry(call.callee) for call in calls if isinstance(call.callee, Operator)]
    return _roundings(function) < 2 and all(entry is not None and entry.exact for entry in entries)
