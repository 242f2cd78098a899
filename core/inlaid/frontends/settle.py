"""What the importer does to the expressions that a converter has made: spans, and witnesses of the sizes that they read."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass, field

from inlaid import ops
from inlaid.frontends.values import Values
from inlaid.graph.attrs import attr_vars
from inlaid.graph.ir import Call, Constant, Expr, GlobalVar, Span, Var, call, children, existential, rebuild
from inlaid.graph.operator import Operator
from inlaid.types import type_vars

_TAKE_WITNESSES = ("iota", "sizes", "after")


@dataclass
class Settler:
    """Settles the expressions of one model, each once."""

    values: Values
    _settled: set[Expr] = field(default_factory=set)

    def settle(self, root: Expr, span: Span) -> Expr:
        """The expression with the span on all under it that has none yet, and with witnesses (see `ops.shape`) of the existential
        sizes that occur in attributes alone."""
        done: dict[Expr, Expr] = {}
        for expr in self._fresh(root):
            found = expr
            if not isinstance(expr, (Var, Constant, GlobalVar)):
                found = rebuild(expr, tuple(done.get(child, child) for child in children(expr)))
            if isinstance(found, Call) and isinstance(found.callee, Operator):
                found = self._witnessed(found, found.callee)
            if found.span is None:
                # Made a moment ago, and nobody else has seen it: marking it in place saves making it anew.
                object.__setattr__(found, "span", span)
            self.values.add_origin(found)
            self._settled.add(found)
            done[expr] = found
        return done.get(root, root)

    def _fresh(self, root: Expr) -> Iterator[Expr]:
        """The expressions under the root that are not settled, children first."""
        seen: set[Expr] = set()
        stack = [(root, False)]
        while stack:
            expr, expanded = stack.pop()
            if expanded:
                yield expr
            elif expr not in seen and expr not in self._settled:
                seen.add(expr)
                stack.append((expr, True))
                stack.extend((child, False) for child in reversed(children(expr)) if child not in seen)

    def _witnessed(self, expr: Call, operator: Operator) -> Expr:
        read = [size for size in attr_vars(expr.attrs) if existential(size)]
        if not read:
            return expr
        known = frozenset().union(*(type_vars(arg.type) for arg in expr.args))
        origins = (self.values.origin(size) for size in read if size not in known)
        witnesses = tuple(dict.fromkeys(origin for origin in origins if origin is not None))
        if not witnesses:
            return expr
        if operator.name in _TAKE_WITNESSES:
            return call(operator, (*expr.args, *witnesses), expr.attrs, expr.span)
        first = ops.after(expr.args[0], *witnesses, span=expr.span)
        self._settled.add(first)
        return dataclasses.replace(expr, args=(first, *expr.args[1:]))
