"""Index maps, which describe layout transformations of buffers."""

from __future__ import annotations

from collections.abc import Callable

from inlaid_runtime.arith.analyzer import Analyzer
from inlaid_runtime.arith.expr import Dim, Expr, Var, substitute, unwrap, wrap
from inlaid_runtime.arith.intset import Span, span
from inlaid_runtime.arith.text import Tokens, parse_expr
from inlaid_runtime.records import dataclass


@dataclass(frozen=True, slots=True)
class IndexMap:
    """A map from the index `variables` to the indices `results`. Prints as `(n, c) -> (n, (c // 8), (c % 8))`."""

    variables: tuple[Var, ...]
    results: tuple[Expr, ...]

    def __call__(self, indices: tuple[Expr, ...]) -> tuple[Expr, ...]:
        """Map indices to new indices."""
        mapping: dict[Expr, Expr] = dict(zip(self.variables, indices, strict=True))
        return tuple(substitute(result, mapping) for result in self.results)

    def shape(self, dims: tuple[Dim, ...]) -> tuple[Dim, ...]:
        """Return the smallest shape that holds the mapped elements of a buffer of shape `dims`. Raises ValueError if a mapped index
        is unbounded or may be negative."""
        ranges: dict[Expr, Span] = {var: (wrap(0), wrap(dim) - 1) for var, dim in zip(self.variables, dims, strict=True)}
        analyzer = Analyzer(ranges)
        shape = []
        for result in self.results:
            ends = span(result, ranges, analyzer)
            least = analyzer.bounds(result)[0]
            if ends is None or least is None or least < 0:
                raise ValueError(f"{self!r} must map shape {dims} to bounded, non-negative indices, got {result!r}")
            shape.append(unwrap(analyzer.simplify(ends[1] + 1)))
        return tuple(shape)

    def __repr__(self) -> str:
        return f"({', '.join(map(repr, self.variables))}) -> ({', '.join(map(repr, self.results))})"


def index_map(rank: int, function: Callable[..., tuple[Dim, ...]]) -> IndexMap:
    """Build the index map that a Python function of `rank` indices describes."""
    variables = tuple(Var(f"i{axis}") for axis in range(rank))
    return IndexMap(variables, tuple(map(wrap, function(*variables))))


def parse_index_map(text: str) -> IndexMap:
    """Parse an index map in the form that `repr` prints. Raises `ParseError`."""
    tokens = Tokens(text)
    variables: dict[str, Var] = {}
    tokens.expect("(")
    while not tokens.accept(")"):
        name = tokens.expect_kind("name")
        variables[name] = Var(name)
        if not tokens.at(")"):
            tokens.expect(",")
    tokens.expect("->")
    tokens.expect("(")
    results = []

    def leaf(at: Tokens) -> Expr:
        if at.next.text not in variables:
            at.fail("expected an index")
        return variables[at.take().text]

    while not tokens.accept(")"):
        results.append(parse_expr(tokens, leaf))
        if not tokens.at(")"):
            tokens.expect(",")
    if tokens.next.kind != "end":
        tokens.fail("expected the end of the map")
    return IndexMap(tuple(variables.values()), tuple(results))
