"""What operators declare is true of them, and nothing decides by lists of their names."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import inlaid
from inlaid import ops
from inlaid.graph.operator import Attrs, Operator
from inlaid_conformance.corpus import Choices, Example, find_entry

CORE = Path(inlaid.__file__).parent
DEFINED = ("frontends", "ops")
"""Packages that name operators: those that define them, and import them from other formats."""
LOOP_PROGRAM_FILES = ("codegen/c_expressions.py", "schedules/shape.py", "tensor/math/__init__.py")
"""Files whose collections are of operations of loop programs, which share some names with operators."""


def collections(path: Path) -> Iterator[tuple[int, list[str]]]:
    """The tuples, lists, sets and keys of dictionaries of a file that are three or more operators' names and nothing else."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        items = node.elts if isinstance(node, (ast.Tuple, ast.List, ast.Set)) else node.keys if isinstance(node, ast.Dict) else []
        names = [item.value for item in items if isinstance(item, ast.Constant) and isinstance(item.value, str)]
        if len(names) >= 3 and len(names) == len(items) and all(name in ops.TABLE for name in names):
            yield node.lineno, names  # type: ignore[attr-defined]


def test_no_module_decides_by_a_list_of_names() -> None:
    places = [path.relative_to(CORE).as_posix() for path in CORE.rglob("*.py")]
    places = [path_name for path_name in places if not path_name.startswith(DEFINED)]
    collections_by_file = {path_name: names for path_name in places if (names := list(collections(CORE / path_name)))}
    assert sorted(collections_by_file) == sorted(LOOP_PROGRAM_FILES), (
        "declare a fact of the operators (Traits), or compare operators themselves"
    )


def test_lists_of_names_are_found(tmp_path: Path) -> None:
    path = tmp_path / "module.py"
    path.write_text('A = ("add", "sub", "mul")\nB = {"add": 1, "sub": 2, "mul": 3}\nC = ("add", "sub", "x")\nD = ("add", "sub")\n')
    assert [line for line, _ in collections(path)] == [1, 2]


def declaring(fact: str) -> list[Any]:
    return [pytest.param(item, id=item.name) for item in ops.OPERATORS if getattr(item.traits, fact)]


def examples(operator: Operator) -> Iterator[tuple[Attrs, Example]]:
    """Examples of an operator, of several element types and kinds of values."""
    entry = find_entry(operator)
    assert entry is not None
    for element in entry.dtypes:
        if element in ("float32", "int8", "int32", "bool", "float16"):
            for number in range(8):
                example = entry.example(Choices.pinned(number), element)
                yield operator.attrs(**example.attrs), example


def compute(operator: Operator, attrs: Attrs, *inputs: Any) -> Any:
    assert operator.reference is not None
    return operator.reference(attrs, *inputs)


@pytest.mark.parametrize("operator", declaring("moves"))
def test_moves_give_elements_of_operands(operator: Operator) -> None:
    moves = operator.traits.moves
    assert moves is not None
    for attrs, example in examples(operator):
        result = compute(operator, attrs, *example.inputs)
        count = len(example.inputs)
        fill = moves.filling(count)
        numbers = moves.places(count) if fill is None else (*moves.places(count), fill)
        sources = np.concatenate([np.ravel(example.inputs[number]) for number in numbers])
        assert result.dtype == sources.dtype
        if operator is not ops.max_pool or not any(attrs.pads):  # windows of padding alone have the least value
            assert np.isin(result[result == result], sources).all()


@pytest.mark.parametrize("operator", declaring("view"))
def test_views_keep_the_order(operator: Operator) -> None:
    for attrs, example in examples(operator):
        np.testing.assert_array_equal(compute(operator, attrs, *example.inputs).ravel(), np.ravel(example.inputs[0]))


@pytest.mark.parametrize("operator", declaring("idempotent"))
def test_idempotent_operators(operator: Operator) -> None:
    for attrs, (x, *other_inputs) in ((attrs, example.inputs) for attrs, example in examples(operator)):
        if other_inputs:
            np.testing.assert_array_equal(compute(operator, attrs, x, x), x)
        else:
            once = compute(operator, attrs, x)
            np.testing.assert_array_equal(compute(operator, attrs, once), once)


@pytest.mark.parametrize("operator", declaring("involution"))
def test_involutions(operator: Operator) -> None:
    for attrs, example in examples(operator):
        (x,) = example.inputs
        np.testing.assert_array_equal(compute(operator, attrs, compute(operator, attrs, x)), x)


@pytest.mark.parametrize("operator", [item for item in declaring("monotone") if item.values[0].arity == (1, 1)])  # type: ignore[union-attr]
def test_monotone_operators(operator: Operator) -> None:
    """Those with parameters are tested with the ranges of integers."""
    for attrs, example in examples(operator):
        (x,) = example.inputs
        rising = np.sort(np.ravel(x[x == x]))
        result = compute(operator, attrs, rising)
        assert np.all(result[1:] >= result[:-1])


@settings(max_examples=60, deadline=None)
@pytest.mark.parametrize("operator", declaring("interval"))
@given(st.data())
def test_intervals_hold_every_value(operator: Operator, data: Any) -> None:
    attrs = operator.attrs(dtype="int32") if operator is ops.cast else operator.attrs()
    bounds = []
    for number in range(operator.arity[0]):
        first, second = (data.draw(st.integers(-6, 6)) for _ in range(2))
        if operator is ops.where and number == 0:
            first, second = abs(first) % 2, abs(second) % 2
        bounds.append((min(first, second), max(first, second)))
    assert operator.traits.interval is not None
    interval = operator.traits.interval(*[tuple(np.array(end) for end in pair) for pair in bounds])
    grids = list(np.meshgrid(*[np.arange(low, high + 1, dtype=np.int32) for low, high in bounds]))
    if operator is ops.where:
        grids[0] = grids[0].astype(bool)
    result = compute(operator, attrs, *grids).astype(np.int64)
    if interval is not None:
        assert interval[0] <= result.min() and result.max() <= interval[1]
