"""Post-processing of the expressions that a converter builds: adds spans, and witnesses of the sizes that attributes read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from inlaid.frontends.values import Values
from inlaid.graph.attrs import attr_vars
from inlaid.graph.ir import Call, Constant, Expr, GlobalVar, Span, Var, children, existential, rebuild
from inlaid.graph.operator import Operator
from inlaid.ops.compose import with_witnesses
from inlaid_runtime.types import type_vars


@dataclass
class Finisher:
    """Finishes the expressions of one model, each once."""

    values: Values
    _finished: set[Expr] = field(default_factory=set)

    def finish(self, root: Expr, span: Span) -> Expr:
        """Add `span` to each new expression under `root` that has no span. Add witnesses (see `ops.shape`) of existential sizes
        that occur only in attributes."""
        replacements: dict[Expr, Expr] = {}
        for expr in self._unfinished(root):
            rebuilt = expr
            if not isinstance(expr, (Var, Constant, GlobalVar)):
                rebuilt = rebuild(expr, tuple(replacements.get(child, child) for child in children(expr)))
            if isinstance(rebuilt, Call) and isinstance(rebuilt.callee, Operator):
                rebuilt = self._witnessed(rebuilt)
            if rebuilt.span is None:
                # The expression is new and not yet shared, so that it can be modified in place.
                object.__setattr__(rebuilt, "span", span)
            self.values.add_origin(rebuilt)
            self._finished.add(rebuilt)
            replacements[expr] = rebuilt
        return replacements.get(root, root)

    def _unfinished(self, root: Expr) -> Iterator[Expr]:
        """Yield the unfinished expressions under the root, children first."""
        visited: set[Expr] = set()
        stack = [(root, False)]
        while stack:
            expr, expanded = stack.pop()
            if expanded:
                yield expr
            elif expr not in visited and expr not in self._finished:
                visited.add(expr)
                stack.append((expr, True))
                stack.extend((child, False) for child in reversed(children(expr)) if child not in visited)

    def _witnessed(self, expr: Call) -> Expr:
        attr_sizes = [size for size in attr_vars(expr.attrs) if existential(size)]
        if not attr_sizes:
            return expr
        operand_sizes = frozenset().union(*(type_vars(arg.type) for arg in expr.args))
        origins = (self.values.origin(size) for size in attr_sizes if size not in operand_sizes)
        witnesses = tuple(dict.fromkeys(origin for origin in origins if origin is not None))
        witnessed = with_witnesses(expr, witnesses)
        self._finished.update(arg for arg in witnessed.args if arg not in expr.args)
        return witnessed
