"""The statements of relations between sizes: where they are in the sources, and which of them refuses sizes.

A statement is a call of a function of `inlaid.graph.conditions` in a type relation. It is identified by its line.
"""

from __future__ import annotations

import ast
import functools
import importlib
import pkgutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from types import FrameType, FunctionType
from typing import Any

from inlaid import ops
from inlaid.graph import conditions
from inlaid.graph.operator import Operator
from inlaid_runtime import arith
from inlaid_runtime.arith import Constraint
from inlaid_runtime.errors import InlaidError
from inlaid_runtime.types import Type

_REQUIRE, _NOT_NEGATIVE = conditions.require, conditions.not_negative


@dataclass(frozen=True, order=True)
class Line:
    """A line of one of Inlaid's modules."""

    module: str
    number: int

    def __str__(self) -> str:
        return f"{self.module}:{self.number}"


@dataclass(frozen=True, order=True)
class Statement:
    """A statement: its first and last lines, and its text in one line."""

    first: Line
    last: int
    text: str

    def __str__(self) -> str:
        return f"{self.first} {self.text}"

    def covers(self, line: Line) -> bool:
        """Test whether a line is in the statement."""
        return line.module == self.first.module and self.first.number <= line.number <= self.last


# --- execution ------------------------------------------------------------------------------------------------------------


@dataclass
class Log:
    """The lines whose statements have been executed, each with its constraint, the last one last."""

    entries: list[tuple[Line, Constraint]]

    def lines_stating(self, constraint: Constraint) -> frozenset[Line]:
        """Return the lines that state a condition."""
        return frozenset(line for line, stated in self.entries if arith.with_value(stated.condition) == constraint.condition)


_LOG: ContextVar[Log | None] = ContextVar("log", default=None)


def _require(constraint: Constraint) -> None:
    """`require`, which also logs."""
    log = _LOG.get()
    if log is not None:
        log.entries.append((_line(sys._getframe(1)), constraint))
    _REQUIRE(constraint)


def _not_negative(type_: Type) -> Iterator[Constraint]:
    """`not_negative`, which also logs."""
    log = _LOG.get()
    for constraint in _NOT_NEGATIVE(type_):
        if log is not None:
            log.entries.append((_line(sys._getframe(1)), constraint))
        yield constraint


def _line(frame: FrameType | None) -> Line:
    """Return the innermost line outside of `inlaid.graph.conditions`."""
    while frame is not None and frame.f_code.co_filename == conditions.__file__:
        frame = frame.f_back
    assert frame is not None
    return Line(frame.f_globals["__name__"], frame.f_lineno)


@contextmanager
def logged() -> Iterator[Log]:
    """Log the statements that type relations execute meanwhile. Replaces `require` for the rest of the process."""
    if conditions.require is _REQUIRE:
        assert ops.OPERATORS  # the modules of all operators are imported
        for module in [*sys.modules.values()]:
            names = getattr(module, "__dict__", {})  # not the attributes, which some modules of NumPy compute with a warning
            if names.get("require") is _REQUIRE:
                names["require"] = _require
            if module is not conditions and names.get("not_negative") is _NOT_NEGATIVE:
                names["not_negative"] = _not_negative
    log = Log([])
    token = _LOG.set(log)
    try:
        yield log
    finally:
        _LOG.reset(token)


@dataclass(frozen=True)
class Refusal:
    """Why sizes are refused. `line` is that of the statement, None if the type relation has refused them otherwise."""

    line: Line | None
    message: str


def refusal(build: Callable[[], object]) -> Refusal | None:
    """Infer the types of a program with static sizes; returns why that fails, None if it does not."""
    with logged() as log:
        try:
            build()
        except InlaidError as error:
            line, constraint = log.entries[-1] if log.entries else (None, None)
            stated = constraint is not None and constraint.message({}) in error.message
            return Refusal(line if stated else None, error.message)
    return None


# --- sources --------------------------------------------------------------------------------------------------------------

_BESIDE = ("inlaid.graph.unify", "inlaid.graph.loops", "inlaid.graph.scope_conditions")
"""Modules besides those of operators that state relations."""
_STATING = ("require", "broadcast_shapes", "not_negative")
"""How the names of functions begin that state relations."""


@dataclass(frozen=True)
class _Module:
    """The source of a module: its functions by name, nested ones included, and the names that it imports, as (module, name)."""

    name: str
    functions: dict[str, list[ast.FunctionDef | ast.Lambda]]
    imports: dict[str, tuple[str, str]]


def statements() -> tuple[Statement, ...]:
    """Find the statements in the sources of type relations: in functions that the type relation of an operator may call, and in the
    type rules of calls, branches and loops."""
    modules = {f"inlaid.ops.{item.name}": None for item in pkgutil.walk_packages(ops.__path__)}
    parsed = {name: _parsed(name) for name in modules}
    result: set[Statement] = set()
    pending = [_definition(parsed, operator.infer) for operator in _operators(parsed)]
    visited_ids = set()
    while pending:
        name, node = pending.pop()
        if id(node) in visited_ids:
            continue
        visited_ids.add(id(node))
        result |= set(_stated(parsed[name], node))
        for reference in ast.walk(node):
            pending += _resolved(parsed, name, reference)
    return tuple(sorted(result.union(*map(module_statements, _BESIDE))))


def module_statements(name: str) -> frozenset[Statement]:
    """Find all statements in a module."""
    module = _parsed(name)
    return frozenset(item for nodes in module.functions.values() for node in nodes for item in _stated(module, node))


@functools.cache
def _parsed(name: str) -> _Module:
    module = importlib.import_module(name)
    assert module.__file__ is not None
    tree = ast.parse(Path(module.__file__).read_text())
    functions: dict[str, list[ast.FunctionDef | ast.Lambda]] = {}
    imports = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            functions.setdefault(node.name, []).append(node)
        elif isinstance(node, ast.Lambda):
            functions.setdefault("<lambda>", []).append(node)
        elif isinstance(node, ast.ImportFrom) and node.module:
            imports |= {alias.asname or alias.name: (node.module, alias.name) for alias in node.names}
    return _Module(name, functions, imports)


def _operators(parsed: dict[str, _Module]) -> list[Operator]:
    """Return all operators that modules define, those included that only passes build."""
    values = (value for name in parsed for value in vars(importlib.import_module(name)).values())
    return list({value: None for value in values if isinstance(value, Operator)})


def _definition(parsed: dict[str, _Module], function: Any) -> tuple[str, ast.AST]:
    """Return the module and the syntax of a function object."""
    while isinstance(function, functools.partial):
        function = function.func
    assert isinstance(function, FunctionType)
    nodes = parsed[function.__module__].functions[function.__name__]
    line = function.__code__.co_firstlineno
    return function.__module__, next(
        node for node in nodes if node.lineno <= line <= (node.end_lineno or line) or node.lineno == line
    )


def _resolved(parsed: dict[str, _Module], name: str, reference: ast.AST) -> list[tuple[str, ast.AST]]:
    """Return the functions of operators' modules that a name or an attribute of a module may mean."""
    module = parsed[name]
    if isinstance(reference, ast.Name):
        if reference.id in module.functions:
            return [(name, node) for node in module.functions[reference.id]]
        source, original = module.imports.get(reference.id, ("", ""))
    elif isinstance(reference, ast.Attribute) and isinstance(reference.value, ast.Name):
        package, inner = module.imports.get(reference.value.id, ("", ""))
        source, original = f"{package}.{inner}", reference.attr
    else:
        return []
    return [(source, node) for node in parsed[source].functions.get(original, [])] if source in parsed else []


def _stated(module: _Module, node: ast.AST) -> Iterator[Statement]:
    for call in ast.walk(node):
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name):
            source, name = module.imports.get(call.func.id, ("", ""))
            if source == conditions.__name__ and name.startswith(_STATING) and name != "require_static":
                yield Statement(Line(module.name, call.lineno), call.end_lineno or call.lineno, ast.unparse(call))
