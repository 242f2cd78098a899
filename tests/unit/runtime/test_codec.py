"""Every expression in every field where one may be written is read back equal, with the bounds of its sizes."""

from __future__ import annotations

import dataclasses
import json
import types
from collections.abc import Callable, Hashable, Mapping
from typing import Any, Literal, Union, get_args, get_origin

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from inlaid_runtime import arith
from inlaid_runtime.arith import Dim, SizeVar
from inlaid_runtime.artifact.plan import Plan
from inlaid_runtime.errors import PackageError
from inlaid_runtime.execution import codec
from inlaid_runtime.execution.codec import decode, encode
from inlaid_runtime.execution.launch_code import _Kernels
from inlaid_runtime.execution.launches import LaunchPlan, LaunchPlanStep
from inlaid_runtime.execution.package import _Description
from inlaid_runtime.types import DTYPES, DType

ROOTS = (Plan, _Description, LaunchPlan, _Kernels)
"""All objects that a package has encoded: plans, descriptions of regions, and the two parts of a launch plan."""
BINARY: tuple[Callable[[Dim, Dim], arith.Expr], ...] = (
    arith.add,
    arith.mul,
    arith.floordiv,
    arith.floormod,
    arith.minimum,
    arith.maximum,
    arith.logical_and,
    arith.logical_or,
    *(lambda a, b, op=op: arith.compare(op, a, b) for op in ("<", "<=", "==", "!=")),
)
EXPRESSIONS = {
    *(arith.Add, arith.Mul, arith.FloorDiv, arith.FloorMod, arith.Min, arith.Max),
    *(arith.And, arith.Or, arith.Not, arith.Compare, arith.Select, SizeVar, arith.Const),
}
"""All kinds of nodes but `Var` and `Opaque`, which have no value when a package is loaded."""
INTEGERS = st.one_of(st.integers(-9, 9), st.sampled_from([1 << 62, -(1 << 62), 1023, 1024]))


@st.composite
def expressions(draw: st.DrawFn) -> list[arith.Expr]:
    """A pool of expressions. Each is made of earlier ones, so that they have many parts in common and are deep."""
    pool: list[arith.Expr] = [SizeVar("n"), SizeVar("m", 1, 64)]
    for _ in range(draw(st.integers(1, 24))):
        part = st.sampled_from(pool[-6:])
        match draw(st.integers(0, 5)):
            case 0:
                name = draw(st.sampled_from(["n", "?rows", "?columns", 'a "name"', "\u00e4"]))
                pool.append(SizeVar(name, draw(INTEGERS), draw(st.one_of(st.none(), st.integers(0, 1 << 62), part))))
            case 1:
                pool.append(arith.select(draw(part), draw(part), draw(part)))
            case 2:
                pool.append(arith.logical_not(draw(part)))
            case _:
                a, b = draw(st.one_of(part, INTEGERS)), draw(part)
                pool.append(draw(st.sampled_from(BINARY))(*draw(st.permutations((a, b)))))
        if isinstance(pool[-1], arith.Const):
            pool.pop()
    return pool


def values(hint: Any, dims: st.SearchStrategy[Dim], depth: int = 2) -> st.SearchStrategy[Any]:
    """Values of a declared type. They are valid for the codec, which does not know what numbers refer to."""
    origin, args = get_origin(hint), get_args(hint)
    if hint in (bool, int, str, DType):
        return {bool: st.booleans(), int: INTEGERS, str: st.text(max_size=5), DType: st.sampled_from(list(DTYPES.values()))}[hint]
    if origin is Literal:
        return st.sampled_from(args)
    if origin is tuple and args[1:] == (Ellipsis,):
        return (
            st.just(())
            if args[0] is LaunchPlanStep and not depth
            else st.lists(values(args[0], dims, depth), max_size=3).map(tuple)
        )
    if origin is tuple:
        return st.tuples(*(values(arg, dims, depth) for arg in args))
    if origin in (Union, types.UnionType):
        return st.one_of(*(dims if arg is arith.Expr else values(arg, dims, depth) for arg in args))
    if hint is type(None):
        return st.none()
    if origin is not None and issubclass(origin, Mapping):
        return st.dictionaries(st.text(max_size=5), values(args[1], dims, depth), max_size=2)
    fields = {name: values(field, dims, depth - (hint is LaunchPlanStep)) for name, field in codec._hints(hint).items()}
    return st.builds(hint, **fields)


@st.composite
def objects(draw: st.DrawFn, root: type) -> Any:
    """An object to encode, with expressions of one pool."""
    return draw(values(root, st.sampled_from(draw(expressions()))))


def subexpressions(node: arith.Expr) -> tuple[arith.Expr, ...]:
    """The expressions that a node is made of, with the bound of a size."""
    return (node.upper,) if isinstance(node, SizeVar) and isinstance(node.upper, arith.Expr) else node.operands


def content(value: Any) -> Any:
    """A value with expressions as lists of their distinct nodes, which `==` compares with the bounds of sizes."""
    if isinstance(value, arith.Expr):
        numbers: dict[int, int] = {}
        distinct: dict[Hashable, int] = {}
        for node in arith.post_order(value, below=subexpressions):
            facts = tuple(getattr(node, name) for name in type(node).__slots__ if name != "usual")
            inside = tuple(numbers[id(item)] for item in subexpressions(node))
            key = (type(node).__name__, *("expr" if isinstance(fact, arith.Expr) else fact for fact in facts), *inside)
            numbers[id(node)] = distinct.setdefault(key, len(distinct))
        return list(distinct)
    if isinstance(value, tuple):
        return [content(item) for item in value]
    if isinstance(value, Mapping):
        return {name: content(item) for name, item in value.items()}
    if dataclasses.is_dataclass(value):
        return type(value), {item.name: content(getattr(value, item.name)) for item in dataclasses.fields(value)}
    return value


def places(root: Any, path: str = "") -> set[str]:
    """The fields of a type, and of the types of its fields, that may have an expression."""
    if arith.Expr in get_args(root):
        return {path}
    if dataclasses.is_dataclass(root):
        assert isinstance(root, type)
        return {
            field_path
            for name, hint in codec._hints(root).items()
            if LaunchPlanStep not in (root, *get_args(hint))
            for field_path in places(hint, f"{root.__name__}.{name}")
        }
    return {field_path for arg in get_args(root) for field_path in places(arg, path)}


@pytest.mark.parametrize("root", ROOTS, ids=lambda root: root.__name__)
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_what_is_written_is_read(root: type, data: st.DataObject) -> None:
    value = data.draw(objects(root))
    text = json.dumps(encode(value))
    again = decode(root, json.loads(text), "object")
    assert content(again) == content(value)
    assert json.dumps(encode(again)) == text


def test_every_kind_in_every_place() -> None:
    """The strategy above reaches all pairs: here each kind of node is written in each place, and inside the bound of a size."""
    n = SizeVar("n")
    kinds = {
        type(expr): expr
        for expr in (n, *(make(n, SizeVar("m")) for make in BINARY), arith.logical_not(n), arith.select(n, n + 1, 2))
    }
    assert {*kinds, arith.Const} == EXPRESSIONS
    everything = {cls for cls in vars(arith).values() if isinstance(cls, type) and issubclass(cls, arith.Expr)}
    assert everything - {arith.Expr, arith.Var, arith.Opaque} == EXPRESSIONS
    paths: set[str] = set()
    for root in ROOTS:
        for kind, expr in kinds.items():
            for dim in (expr, SizeVar("?m", 0, expr), SizeVar("?m", 0, expr * expr + expr) // 2):
                value = make_object(root, dim, paths)
                assert content(decode(root, json.loads(json.dumps(encode(value))), "object")) == content(value), kind
    assert paths == {field_path for root in ROOTS for field_path in places(root)}
    assert {"Value.shape", "Value.offset", "Plan.workspace", "Plan.arenas", "DimSource.upper", "Constraint.condition"} < paths
    assert {"Size.dim", "Parameter.bytes", "KernelFunction.grid", "KernelInfo.operations", "_Description.workspace"} < paths


def make_object(hint: Any, dim: arith.Expr, paths: set[str], path: str = "") -> Any:
    """A value of a declared type with an expression in every place; adds the places to `paths`."""
    origin, args = get_origin(hint), get_args(hint)
    if arith.Expr in args:
        paths.add(path)
        return dim
    if hint in (bool, int, str, DType):
        return {bool: True, int: 1, str: "x", DType: DTYPES["int8"]}[hint]
    if origin is Literal:
        return args[0]
    if origin is tuple:
        items = args[:1] if args[1:] == (Ellipsis,) else args
        return () if LaunchPlanStep in items else tuple(make_object(item, dim, paths, path) for item in items)
    if origin in (Union, types.UnionType):
        return make_object(next(arg for arg in args if arg is not type(None)), dim, paths, path)
    if origin is not None and issubclass(origin, Mapping):
        return {"x": make_object(args[1], dim, paths, path)}
    return hint(**{name: make_object(field, dim, paths, f"{hint.__name__}.{name}") for name, field in codec._hints(hint).items()})


def test_variables_of_loops_are_refused() -> None:
    for expr in (arith.Var("i"), SizeVar("n") + arith.Var("i"), SizeVar("?m", 0, arith.Var("i") + 1)):
        with pytest.raises(PackageError, match="has no value at run time"):
            encode(Plan("main", (), (), (), (), expr))


def test_a_bound_has_parts_of_the_other_fields() -> None:
    """The bound of a size is made of the expression that is the shape of another value, as for the collapse of CTC."""
    n = SizeVar("n")
    part = arith.minimum((n - 3) // 2, n // 4) * 5
    plan = Plan("main", (), (), (), (), part + SizeVar("?m", 0, part * part), {"gpu": SizeVar("?k", 0, part)})
    data = encode(plan)
    assert content(decode(Plan, data, "plan")) == content(plan)
    assert len(data["parts"]) < 5


@pytest.mark.parametrize("depth", [10, 99, 1000, 20_000])
def test_any_depth_is_read(depth: int) -> None:
    """Of expressions with and without common parts, and of bounds."""
    shared = bound = arith.wrap(SizeVar("n"))
    for number in range(depth):
        shared, bound = arith.maximum(shared // 2, number) + shared, arith.maximum(bound // 2, number)
    plan = Plan("main", (), (), (), (), SizeVar("?m", 0, bound), {"gpu": shared})
    text = json.dumps(encode(plan))
    assert len(text) < 200 * depth + 500
    assert content(decode(Plan, json.loads(text), "plan")) == content(plan)
