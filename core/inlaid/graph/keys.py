"""Structural hashes of programs."""

from __future__ import annotations

import dataclasses
import hashlib
from typing import Any

from inlaid.graph.attrs import attr_items, sizes_in
from inlaid.graph.ir import Call, Constant, Expr, Function, GlobalVar, If, Let, Loop, Module, Tuple, TupleItem, Var, children
from inlaid.graph.operator import Operator
from inlaid_runtime import arith
from inlaid_runtime.arith import Constraint
from inlaid_runtime.types import Type, substitute_type


def structural_key(unit: Module | Expr) -> str:
    """Return a hexadecimal hash, equal for two modules or expressions that are equal up to the names of variables and of
    existential sizes.

    Constants are compared by content, operators by name, functions of a module by global name. Sharing is ignored: an expression
    used twice equals two equal expressions. Spans and inferred types are ignored too.
    """
    if isinstance(unit, Module):
        parts = [f"{name}={structural_key(unit[name])}" for name in sorted(unit.functions)]
        return _digest("module", *parts)
    return _Walk().key(unit)


class _Walk:
    """One traversal: the keys of visited expressions, and the numbers of variables and existential sizes in order of appearance."""

    def __init__(self) -> None:
        self._keys: dict[int, str] = {}
        self._sizes: dict[arith.Expr, arith.Expr] = {}
        self._vars = 0

    def key(self, root: Expr) -> str:
        pending: list[tuple[Expr, str]] = [(root, "visit")]
        while pending:
            expr, step = pending.pop()
            if step == "bind":
                assert isinstance(expr, Let)
                self._keys[id(expr.var)] = self._keys[id(expr.value)]
            elif step == "done":
                self._keys[id(expr)] = self._expr_key(expr)
            elif id(expr) not in self._keys:
                pending.append((expr, "done"))
                if isinstance(expr, Function):
                    for param in expr.params:
                        self._keys[id(param)] = self._var(param)
                if isinstance(expr, Let):
                    pending += [(expr.body, "visit"), (expr, "bind"), (expr.value, "visit")]
                else:
                    pending.extend((child, "visit") for child in reversed(children(expr)))
        return self._keys[id(root)]

    def _var(self, variable: Var) -> str:
        self._vars += 1
        return _digest("var", str(self._vars), self._type(variable.type))

    def _expr_key(self, expr: Expr) -> str:
        self._number(expr.type)
        parts = [self._keys[id(child)] for child in children(expr)]
        match expr:
            case Call(callee=callee, attrs=attrs):
                kind = f"op {callee.name}" if isinstance(callee, Operator) else "call"
                return _digest(kind, *(f"{name}={self._value(value)}" for name, value in attr_items(attrs)), *parts)
            case Constant():
                return _digest("const", expr.digest())
            case GlobalVar(name=name):
                return _digest("global", name)
            case Var():
                return self._var(expr)
            case Tuple():
                return _digest("tuple", *parts)
            case TupleItem(index=index):
                return _digest("item", str(index), *parts)
            case Function(params=params, attrs=function_attrs, constraints=constraints):
                return _digest(
                    "fn",
                    *(self._keys[id(param)] for param in params),
                    repr(function_attrs),
                    *parts,
                    *map(self._constraint, constraints),
                )
            case If(constraints=(then, otherwise)):
                branch_keys = [";".join(map(self._constraint, branch)) for branch in (then, otherwise)] if then or otherwise else []
                return _digest("if", *parts, *branch_keys)
            case Let():
                return _digest("let", *parts)
            case Loop(trip_count=trips, condition=condition, state=state):
                return _digest("loop", str((trips is not None, condition is not None, len(state))), *parts)
        raise AssertionError(f"no key for {expr!r}")

    def _constraint(self, item: Constraint) -> str:
        return repr([self._value(getattr(item, field.name)) for field in dataclasses.fields(item)])

    def _value(self, value: Any) -> str:
        if isinstance(value, tuple):
            return f"({','.join(map(self._value, value))})"
        if isinstance(value, arith.Expr):
            self._number(value)
            return repr(arith.substitute(value, self._sizes))
        return self._type(value) if isinstance(value, Type) else f"{type(value).__name__} {value!r}"

    def _type(self, type_: Type) -> str:
        self._number(type_)
        return repr(substitute_type(type_, self._sizes))

    def _number(self, value: Any) -> None:
        for size in sizes_in(value):
            if size.existential and size not in self._sizes:
                self._sizes[size] = arith.SizeVar(f"?{len(self._sizes)}")


def _digest(*parts: str) -> str:
    return hashlib.blake2b("\0".join(parts).encode(), digest_size=16).hexdigest()
