"""Models whose converters state relations between sizes, with sizes that keep and sizes that break them."""

from __future__ import annotations

import functools
import pkgutil
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Protocol

import numpy as np
import pytest
from tests.conformance.relations.statements import Line, logged, module_statements

from inlaid.driver import compile_module
from inlaid.graph.interp import evaluate
from inlaid.graph.ir import Module
from inlaid_runtime.errors import InlaidError

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Break:
    """A size that breaks a relation: dimension `axis` of input `index` is `size`. `message` begins that of the run. Static sizes
    are refused for the same relation, unless `static` is False."""

    index: int
    axis: int
    size: int
    message: str
    static: bool = True


class Case(Protocol):
    """A model of one operator. `title` is the operator's name in messages."""

    @property
    def title(self) -> str: ...

    @property
    def breaks(self) -> tuple[Break, ...]: ...

    def values(self) -> dict[int, Array]:
        """Return inputs that keep all relations."""

    def load(self, values: Mapping[int, Array], symbolic: bool) -> Module:
        """Import the model for inputs of these sizes, or with symbolic sizes."""

    def feeds(self, values: Mapping[int, Array]) -> dict[str, Array]:
        """Return the inputs of a run by name."""

    def peers(self, values: Mapping[int, Array]) -> Sequence[Array] | None:
        """Return the results of the runtime whose format it is; None if that does not run the operator."""


def broken(values: Mapping[int, Array], change: Break) -> dict[int, Array]:
    """Return the inputs at the sizes of a break."""
    value = values[change.index]
    extent = value.shape[change.axis]
    return {**values, change.index: np.take(value, np.resize(np.arange(extent), change.size), axis=change.axis)}


@functools.cache
def refusals(case: Case) -> tuple[Any, tuple[tuple[str, frozenset[Line]], ...]]:
    """Compile the model with symbolic sizes. Returns what runs it, and for each break the message of the run, with the lines of the
    statements that it is the message of."""
    values = case.values()
    with logged() as log:
        module = case.load(values, symbolic=True)
    executable = compile_module(module, ["reference"])
    messages = []
    for change in case.breaks:
        with pytest.raises(InlaidError) as refused:
            executable.run(case.feeds(broken(values, change)))
        message = str(refused.value)
        stated = [(line, f"{item.what} must be {item.expected}, got") for line, item in log.entries]
        messages.append((message, frozenset(line for line, words in stated if words in message)))
    return executable, tuple(messages)


def check(case: Case) -> None:
    """Check that sizes that break a relation are refused by it, and that others give what static sizes give."""
    values = case.values()
    executable, refused = refusals(case)
    expected: Any = evaluate(case.load(values, symbolic=False), case.feeds(values))
    peers = case.peers(values)
    results = [*executable.run(case.feeds(values)).values()]
    for expected_outputs in (expected if isinstance(expected, tuple) else (expected,), *([] if peers is None else [peers])):
        for result, other in zip(results, expected_outputs, strict=True):
            assert (result.dtype, result.shape) == (np.asarray(other).dtype, np.shape(other))
            np.testing.assert_allclose(result, other, rtol=1e-5, atol=1e-5)
    for change, (message, _) in zip(case.breaks, refused, strict=True):
        assert message.startswith(change.message)
        assert f"(operator {case.title}, at " in message
        if change.static:
            with pytest.raises(InlaidError, match=re.escape(change.message.partition(" must be")[0])):
                case.load(broken(values, change), symbolic=False)


def unreached(cases: Iterable[Case], package: ModuleType) -> list[str]:
    """Return the statements in the modules of a package, and in `inlaid.frontends.shapes`, that refuse no case."""
    modules = (item.name for item in pkgutil.walk_packages(package.__path__, f"{package.__name__}."))
    stated = {item for name in ("inlaid.frontends.shapes", *modules) for item in module_statements(name)}
    reached = {line for case in cases for _, lines in refusals(case)[1] for line in lines}
    return [str(item) for item in sorted(stated) if not any(map(item.covers, reached))]
