"""Generates examples of composites from a pattern: operators, attributes, shapes, element types and constants for each part, such
that type inference succeeds and the pattern matches.

`builder` binds the parts of a pattern from the innermost call outwards (`bindings`), each call to an example of the corpus that
fits the shapes of its computed operands (`sampler`). Before it builds the operands of a call, a dry run draws an example of the
call alone: the types of its operands are hints for the calls that compute them. A call that does not fit is redrawn a few times
(`calls`). Constants are adapted to the target's arithmetic (`constants`, `requantization`).
"""

from inlaid_conformance.pattern_examples.builder import generate_example
from inlaid_conformance.pattern_examples.draws import ANY_TARGET, Draw, Recipe
from inlaid_conformance.pattern_examples.example import NoExampleError, PatternExample, draw_inputs
from inlaid_conformance.pattern_examples.properties import operator_properties

__all__ = [
    "ANY_TARGET",
    "Draw",
    "NoExampleError",
    "PatternExample",
    "Recipe",
    "draw_inputs",
    "generate_example",
    "operator_properties",
]
