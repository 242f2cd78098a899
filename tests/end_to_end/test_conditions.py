"""Conditions on sizes outside of operators' type rules: calls, branches, loops, bindings, and what passes remove.

Each case has sizes that fit, with the result of the interpreter, and sizes that are refused with the same words by the interpreter,
the reference target, native code, and a package that was saved and loaded.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import inlaid
from inlaid import ops
from inlaid.driver.compile import compile_module
from inlaid.driver.export import export_library
from inlaid.graph import ir
from inlaid.graph.conditions import require
from inlaid.graph.interp import evaluate
from inlaid.graph.operator import Operator
from inlaid.graph.parse import parse
from inlaid.graph.scope_conditions import with_constraints
from inlaid.graph.text import print_module
from inlaid.graph.transform import transform_function
from inlaid.passes.manager import FunctionPass
from inlaid.passes.pipeline import canonical
from inlaid_runtime import aligned_empty, arith, load
from inlaid_runtime.arith import SizeVar
from inlaid_runtime.artifact.plan import Invoke
from inlaid_runtime.errors import InputError, VerifyError
from inlaid_runtime.execution.executable import Executable
from inlaid_runtime.records import dataclass
from inlaid_runtime.types import FunctionType, SequenceType, TensorType

N, M, K = SizeVar("n"), SizeVar("m"), SizeVar("k")
TRUE = ir.constant(True)
ITERATION = TensorType((), "int64")
Inputs = list[np.ndarray[Any, Any]]


def f32(*shape: Any) -> TensorType:
    return TensorType(shape, "float32")


def ones(*shape: int) -> np.ndarray[Any, Any]:
    return np.arange(1, 1 + int(np.prod(shape)), dtype=np.float32).reshape(shape)


def at(node: str) -> ir.Span:
    return ir.Span("model", node)


@dataclass(frozen=True)
class Case:
    """A module, inputs that fit, and inputs that are refused, each with parts of the error message."""

    module: ir.Module
    fitting: tuple[Inputs, ...]
    refused: tuple[tuple[Inputs, tuple[str, ...]], ...]


def main(params: list[ir.Var], body: ir.Expr, **functions: ir.Function) -> ir.Module:
    return ir.Module({"main": ir.function(params, body), **functions})


def global_function_case() -> Case:
    """One size of the callee gets two values."""
    x, y = ir.var("x", f32(N)), ir.var("y", f32(N))
    f = ir.function([x, y], ops.add(ops.mul(x, x), ops.exp(y)))
    a, b = ir.var("a", f32("a")), ir.var("b", f32("b"))
    call = ir.call(ir.global_var("f", f.type), [ops.relu(a), ops.neg(b)], span=at("call1"))
    message = "dimension 0 of argument 1 of @f must be a, got 7 where a is 5, b is 7 (at model:call1)"
    refused = (([ones(5), ones(7)], (message,)), ([ones(5), ones(1)], ("dimension 0 of argument 1 of @f must be a, got 1",)))
    return Case(main([a, b], call, f=f), ([ones(5), ones(5)], [ones(0), ones(0)]), refused)  # type: ignore[arg-type]


def declared_reference_case() -> Case:
    """A reference declares two sizes where the function has one."""
    x, y = ir.var("x", f32(N)), ir.var("y", f32(N))
    f = ir.function([x, y], ops.mul(x, y))
    a, b = ir.var("a", f32("a")), ir.var("b", f32("b"))
    reference = ir.global_var("f", FunctionType((f32(N), f32(M)), f32(M)))
    refused = (([ones(5), ones(7)], ("dimension 0 of argument 1 of @f must be a, got 7",)),)
    return Case(main([a, b], ir.call(reference, [a, b]), f=f), ([ones(5), ones(5)],), refused)


def bounds_case() -> Case:
    """A parameter has narrower bounds than its argument."""
    x = ir.var("x", f32(SizeVar("n", 2, 6)))
    f = ir.function([x], ops.relu(x))
    a = ir.var("a", f32("n"))
    call = ir.call(ir.global_var("f", f.type), [a], span=at("call1"))
    refused = (
        ([ones(1)], ("dimension n of @f must be >= 2, got 1 where n is 1 (at model:call1)",)),
        ([ones(7)], ("dimension n of @f must be <= 6, got 7",)),
    )
    return Case(main([a], call, f=f), ([ones(2)], [ones(6)]), refused)  # type: ignore[arg-type]


def expressions_case() -> Case:
    """A parameter's extent is an expression over another parameter's."""
    x, y = ir.var("x", f32(N)), ir.var("y", f32(2 * N))
    f = ir.function([x, y], ops.add(ops.sum(x, axes=(0,)), ops.sum(y, axes=(0,))))
    a, b = ir.var("a", f32("a")), ir.var("b", f32("b"))
    call = ir.call(ir.global_var("f", f.type), [a, b])
    refused = (([ones(2), ones(5)], ("dimension 0 of argument 1 of @f must be (a * 2), got 5 where a is 2, b is 5",)),)
    return Case(main([a, b], call, f=f), ([ones(2), ones(4)],), refused)  # type: ignore[arg-type]


def closure_case() -> Case:
    """A closure captures a value, whose size is that of its parameter."""
    a, b = ir.var("a", f32(N)), ir.var("b", f32("b"))
    x = ir.var("x", f32(N))
    inner = ir.function([x], ops.add(x, ops.relu(a)))
    body = ir.call(inner, [ops.exp(b)], span=at("call1"))
    refused = (([ones(3), ones(4)], ("dimension 0 of argument 0 of the function must be n, got 4 where b is 4, n is 3",)),)
    return Case(main([a, b], body), ([ones(3), ones(3)],), refused)


def declared_result_case() -> Case:
    """A function declares another size than its body has."""
    x, y = ir.var("x", f32(N)), ir.var("y", f32(M))
    f = ir.function([x, y], ops.relu(x), result=f32(M), span=at("f"))
    a, b = ir.var("a", f32("a")), ir.var("b", f32("b"))
    call = ir.call(ir.global_var("f", f.type), [a, b])
    refused = (([ones(3), ones(4)], ("dimension 0 of the result of the function must be m, got 3 where m is 4, n is 3",)),)
    return Case(main([a, b], ops.add(call, b), f=f), ([ones(3), ones(3)],), refused)  # type: ignore[arg-type]


def let_case() -> Case:
    """A variable is annotated with another size than its value has."""
    a, b = ir.var("a", f32(N)), ir.var("b", f32(M))
    let_var = ir.var("held", f32(M))
    body = ir.let(let_var, ops.relu(a), ops.add(let_var, b), span=at("let1"))
    refused = (([ones(3), ones(4)], ("dimension 0 of %held must be m, got 3 where m is 4, n is 3 (at model:let1)",)),)
    return Case(main([a, b], body), ([ones(3), ones(3)],), refused)


def looped(state: TensorType, row: TensorType, body: Callable[[ir.Var, ir.Var], list[ir.Expr]]) -> ir.Function:
    """A loop body with a state and a slice."""
    i, s, r = ir.var("i", ITERATION), ir.var("s", state), ir.var("r", row)
    return ir.function([i, s, r], ir.tuple_([TRUE, *body(s, r)]))


def scanned_lengths_case() -> Case:
    """Two scanned inputs have different lengths."""
    i, s, p, q = ir.var("i", ITERATION), ir.var("s", f32(4)), ir.var("p", f32(4)), ir.var("q", f32(4))
    inner = ir.function([i, s, p, q], ir.tuple_([TRUE, ops.add(s, p), ops.mul(p, q)]))
    x, y, s0 = ir.var("x", f32(N, 4)), ir.var("y", f32(M, 4)), ir.var("s0", f32(4))
    loop = ir.loop(inner, state=[s0], scanned=[x, y], span=at("scan1"))
    message = "the length of scanned input 1 of the loop must be n, got 3 where m is 3, n is 300 (operator loop, at model:scan1)"
    refused = (([ones(300, 4), ones(3, 4), ones(4)], (message,)), ([ones(2, 4), ones(3, 4), ones(4)], ("must be n, got 3",)))
    fitting = ([ones(3, 4), ones(3, 4), ones(4)], [ones(0, 4), ones(0, 4), ones(4)])
    return Case(main([x, y, s0], ir.tuple_([ir.tuple_item(loop, 0), ir.tuple_item(loop, 1)])), fitting, refused)


def stacked_extent_case() -> Case:
    """The declared extent of the stacked outputs is another one than the number of iterations. The body captures a value with this
    extent, so that a region knows it."""
    x, y, s0 = ir.var("x", f32(N, 4)), ir.var("y", f32(M)), ir.var("s0", f32(4))

    def body(s: ir.Var, r: ir.Var) -> list[ir.Expr]:
        return [ops.add(s, r), ops.add(ops.mul(r, r), ops.sum(ops.mul(y, ops.sum(r, axes=(0,))), axes=(0,)))]

    loop = ir.loop(looped(f32(4), f32(4), body), state=[s0], scanned=[x], stacked_extent=M)
    message = "the number of iterations of the loop must be m, got 300000 where m is 3, n is 300000 (operator loop)"
    refused = (([ones(300000, 4), ones(3), ones(4)], (message,)), ([ones(2, 4), ones(3), ones(4)], ("must be m, got 2",)))
    body_ = ir.tuple_([ir.tuple_item(loop, 0), ir.tuple_item(loop, 1)])
    return Case(main([x, y, s0], body_), ([ones(3, 4), ones(3), ones(4)],), refused)


def initial_state_case() -> Case:
    """The initial states have different sizes, for parameters of one size."""
    i, s, t = ir.var("i", ITERATION), ir.var("s", f32(K)), ir.var("t", f32(K))
    inner = ir.function([i, s, t], ir.tuple_([TRUE, ops.add(s, t), ops.mul(t, t)]))
    a, b = ir.var("a", f32(N)), ir.var("b", f32(M))
    loop = ir.loop(inner, state=[a, b], trip_count=ir.constant(np.int64(2)), span=at("loop1"))
    message = "dimension 0 of state 1 of the loop must be n, got 4 where m is 4, n is 3 (operator loop, at model:loop1)"
    refused = (([ones(3), ones(4)], (message,)),)
    return Case(main([a, b], ir.tuple_item(loop, 0)), ([ones(3), ones(3)],), refused)


def carried_state_case() -> Case:
    """A state has another size after an iteration. Nothing is required if there is none."""
    i, s = ir.var("i", ITERATION), ir.var("s", f32(N))
    a, b, trips = ir.var("a", f32(N)), ir.var("b", f32(M)), ir.var("trips", ITERATION)
    inner = ir.function([i, s], ir.tuple_([TRUE, ops.mul(b, ops.sum(s, axes=(0,)))]))
    loop = ir.loop(inner, state=[a], trip_count=trips)
    message = "dimension 0 of state 0 after an iteration of the loop must be n, got 4 where m is 4, n is 3 (operator loop)"
    count = [np.array(number) for number in range(3)]
    refused = (([ones(3), ones(4), count[1]], (message,)),)
    fitting = ([ones(3), ones(4), count[0]], [ones(3), ones(3), count[1]], [ones(3), ones(3), count[2]])
    return Case(main([a, b, trips], ir.tuple_item(loop, 0)), fitting, refused)


def computed_state_case() -> Case:
    """A state has a size that the body computes: it is refused as soon as it is known."""
    i, s = ir.var("i", ITERATION), ir.var("s", TensorType((N,), "int64"))
    a = ir.var("a", TensorType((N,), "int64"))
    positions = ops.nonzero(s)
    rows = ops.reshape(positions, shape=(positions.shape[1],))
    inner = ir.function([i, s], ir.tuple_([TRUE, ops.add(rows, ir.constant(np.int64(1)))]))
    loop = ir.loop(inner, state=[a], trip_count=ir.constant(np.int64(2)))
    refused = (([np.array([1, 0, 2])], ("dimension 0 of state 0 after an iteration of the loop must be n, got 2",)),)
    return Case(main([a], ir.tuple_item(loop, 0)), ([np.array([1, 5, 2])],), refused)


def slices_case() -> Case:
    """Slices of a scanned input have another size than the parameter, which is that of a captured value."""
    x, y, s0 = ir.var("x", f32(3, M)), ir.var("y", f32(N)), ir.var("s0", f32())
    inner = looped(f32(), f32(N), lambda s, r: [ops.add(s, ops.sum(ops.mul(ops.mul(r, y), s), axes=(0,)))])
    loop = ir.loop(inner, state=[s0], scanned=[x])
    refused = (([ones(3, 4), ones(5), ones()], ("dimension 0 of a slice of scanned input 0 of the loop must be n, got 4",)),)
    return Case(main([x, y, s0], ir.tuple_item(loop, 0)), ([ones(3, 4), ones(4), ones()],), refused)


def sequences_case() -> Case:
    """The elements of a sequence have another size than the parameter."""
    x = ir.var("x", SequenceType(f32(N)))
    y = ir.var("y", f32(N))
    f = ir.function([x, y], ops.add(ops.sequence_at(x, ir.constant(np.int64(0))), y))
    a, b = ir.var("a", f32("a")), ir.var("b", f32("b"))
    call = ir.call(ir.global_var("f", f.type), [ops.sequence_construct(a, a), b])
    refused = (([ones(3), ones(4)], ("dimension 0 of argument 1 of @f must be a, got 4 where a is 3, b is 4",)),)
    return Case(main([a, b], call, f=f), ([ones(3), ones(3)],), refused)  # type: ignore[arg-type]


def declared_text_case() -> Case:
    """A text declares other sizes than inference finds."""
    text = """
    def @main(%x: Tensor[(n,), float32], %y: Tensor[(m,), float32], %c: Tensor[(), bool]) -> Tensor[(m,), float32] {
      %0: Tensor[(m,), float32] = relu(%x)
      %1: Tensor[(m,), float32] = if %c {
        %2 = add(%0, %y)
        %2
      } else {
        %3 = neg(%x)
        %3
      }
      %1
    }
    """
    yes, no = np.array(True), np.array(False)
    refused = (
        ([ones(3), ones(4), yes], ("dimension 0 of the result must be m, got 3", "operator relu")),
        ([ones(3), ones(4), no], ("dimension 0 of the result of the branch must be m, got 3",)),
    )
    return Case(parse(text, ops.TABLE), ([ones(3), ones(3), yes], [ones(3), ones(3), no]), refused)


MEMBERS = (
    global_function_case, declared_reference_case, bounds_case, expressions_case, closure_case, declared_result_case, let_case,
    scanned_lengths_case, stacked_extent_case, initial_state_case, carried_state_case, computed_state_case, slices_case,
    sequences_case, declared_text_case,
)  # fmt: skip


def results(value: Any) -> list[Any]:
    return list(value) if isinstance(value, tuple) else [value]


def ways(module: ir.Module, folder: Path) -> Iterator[tuple[str, Callable[..., Any]]]:
    """Functions that run a module on inputs in order, by name."""
    yield "interpreter", lambda *inputs: evaluate(module, list(inputs))
    for target in ("reference", "x86:threads=1"):
        yield target, compile_module(module, [target])
    compile_module(module, ["x86:threads=1"]).save(folder / "model.inlaid")
    yield "package", load(folder / "model.inlaid")


def check(case: Case, folder: Path) -> None:
    for name, run in ways(case.module, folder):
        for inputs in case.fitting:
            for actual, expected in zip(results(run(*inputs)), results(evaluate(case.module, inputs)), strict=True):
                np.testing.assert_allclose(actual, expected, rtol=1e-5, err_msg=name)
        for inputs, messages in case.refused:
            with pytest.raises(InputError) as caught:
                run(*inputs)
            assert all(message in str(caught.value) for message in messages), (name, str(caught.value))


@pytest.mark.parametrize("member", MEMBERS, ids=lambda member: member.__name__)
def test_members(member: Callable[[], Case], tmp_path: Path) -> None:
    check(member(), tmp_path)


# --- what passes remove -------------------------------------------------------------------------------------------------

ALIKE = Operator(
    "test.alike",
    lambda attrs, x, y: [require(arith.equals(y.shape[0], x.shape[0], "the length of y")), x][1],
    reference=lambda attrs, x, y: x + 0,
    arity=(2, 2),
)
"""Returns its first operand, and requires the second one to be as long."""


def drop_alike(function: ir.Function) -> ir.Function:
    """Remove all calls of `ALIKE`."""
    return transform_function(function, lambda old, new: new.args[0] if isinstance(new, ir.Call) and new.callee is ALIKE else new)


@pytest.fixture
def dropping(monkeypatch: pytest.MonkeyPatch) -> None:
    drop = FunctionPass("drop_alike", drop_alike)
    monkeypatch.setattr("inlaid.passes.pipeline.canonical", lambda *options, **named: (*canonical(*options, **named), drop))


def compiled(module: ir.Module, folder: Path) -> Iterator[Executable]:
    """Executables for the targets, and loaded from a package."""
    for target in ("reference", "x86:threads=1"):
        yield compile_module(module, [target])
    compile_module(module, ["x86:threads=1"]).save(folder / "model.inlaid")
    yield load(folder / "model.inlaid")


MESSAGE = r"the length of y must be n, got 4 where m is 4, n is 3 \(operator test\.alike, at model:alike1\)"
X, Y = ir.var("x", f32(N)), ir.var("y", f32(M))


def alike(x: ir.Expr = X, y: ir.Expr = Y) -> ir.Expr:
    return ALIKE(x, y, span=at("alike1"))


@pytest.mark.usefixtures("dropping")
def test_a_removed_call_keeps_its_condition(tmp_path: Path) -> None:
    module = main([X, Y], ops.mul(alike(), ops.exp(X)))
    for executable in compiled(module, tmp_path):
        assert not any(artifact.constraints for artifact in executable.package.artifacts)
        np.testing.assert_allclose(executable(ones(3), ones(3)), ones(3) * np.exp(ones(3)), rtol=1e-5)
        with pytest.raises(InputError, match=MESSAGE):
            executable(ones(3), ones(4))


@pytest.mark.usefixtures("dropping")
@pytest.mark.parametrize("constant", [True, False])
def test_of_branches_only_the_one_that_runs_is_checked(constant: bool, tmp_path: Path) -> None:
    """Also of branches inside of branches, and if simplification replaces a conditional by its branch."""
    flags = [ir.var("a", TensorType((), "bool")), ir.var("b", TensorType((), "bool"))]
    for outer, inner in ((True, True), (True, False), (False, True)):
        chosen = [ir.constant(flag) for flag in (outer, inner)] if constant else flags
        nested = ir.if_(chosen[1], ops.mul(alike(), ops.exp(X)), ops.exp(X))
        module = main([X, Y, *flags], ir.if_(chosen[0], ops.neg(nested), ops.relu(X)))
        values = [ones(3), ones(4), np.array(outer), np.array(inner)]
        for executable in compiled(module, tmp_path):
            if outer and inner:
                with pytest.raises(InputError, match=MESSAGE):
                    executable(*values)
                values[1] = ones(3)
            np.testing.assert_allclose(executable(*values), evaluate(module, values), rtol=1e-5)
            values[1] = ones(4)


@pytest.mark.usefixtures("dropping")
@pytest.mark.parametrize("counted", ["trips", "scanned"])
@pytest.mark.parametrize("invariant", [True, False])
def test_a_loop_without_iterations_requires_nothing(counted: str, invariant: bool, tmp_path: Path) -> None:
    """Neither of what passes remove from its body, nor of what they compute before the loop."""
    i, s, r = ir.var("i", ITERATION), ir.var("s", f32(N)), ir.var("r", f32())
    trips, scanned = ir.var("trips", ITERATION), ir.var("rows", f32(K))
    refused = ops.mul(ir.call(ALIKE, [X, Y], span=at("alike1")), ops.broadcast_to(ops.sum(ops.add(X, Y), axes=(0,)), shape=(N,)))
    stated = ops.add(s, refused if invariant else alike(s))
    inner = ir.function([i, s, r] if counted == "scanned" else [i, s], ir.tuple_([TRUE, ops.mul(stated, s), stated]))
    if counted == "scanned":
        loop, count = ir.loop(inner, state=[X], scanned=[scanned]), scanned
    else:
        loop, count = ir.loop(inner, state=[X], trip_count=trips), trips
    stacked = ir.tuple_item(loop, 1)
    module = main([X, Y, count], ir.tuple_([ir.tuple_item(loop, 0), ops.reshape(stacked, shape=(stacked.shape[0], N, 1))]))
    for executable in compiled(module, tmp_path):
        for number, size in ((0, 4), (0, 3), (1, 3), (2, 3)):
            arrays = [ones(3), ones(size), ones(number) if counted == "scanned" else np.array(number)]
            for actual, expected in zip(executable(*arrays), evaluate(module, arrays), strict=True):
                assert actual.shape == expected.shape
                np.testing.assert_allclose(actual, expected, rtol=1e-5)
        arrays[1] = ones(4)
        for run in (executable, lambda *values: evaluate(module, list(values))):
            with pytest.raises(InputError, match=r"the length of y must be n, got 4|must be 1 or m to broadcast, got 3"):
                run(*arrays)


@pytest.mark.usefixtures("dropping")
def test_sizes_that_a_run_computes(tmp_path: Path) -> None:
    """A condition on a computed size is checked when the size is known."""
    flags = ir.var("flags", TensorType((K,), "bool"))
    positions = ops.nonzero(flags)
    places = ops.reshape(positions, shape=(positions.shape[1],))
    module = main([X, flags], ir.tuple_([ops.sum(ALIKE(ops.exp(X), places), axes=(0,)), places]))
    for run in (lambda *values: evaluate(module, list(values)), *compiled(module, tmp_path)):
        np.testing.assert_allclose(run(ones(3), np.array([True, False, True, True]))[0], np.exp(ones(3)).sum(), rtol=1e-5)
        with pytest.raises(InputError, match=r"the length of y must be n, got 4 where \?nonzero\w* is 4, n is 3"):
            run(ones(3), np.ones(4, np.bool_))


@pytest.mark.usefixtures("dropping")
def test_a_library_checks_before_it_runs(tmp_path: Path) -> None:
    """The conditions of the model, also those whose call is gone, and those of a loop that may run no iteration."""
    n, m, k = SizeVar("n", 0, 8), SizeVar("m", 0, 8), SizeVar("k", 0, 8)
    x, y, rows = ir.var("x", f32(n)), ir.var("y", f32(m)), ir.var("rows", f32(k, 4))
    i, s, r = ir.var("i", ITERATION), ir.var("s", f32(n)), ir.var("r", f32(4))
    inner = ir.function([i, s, r], ir.tuple_([TRUE, ops.add(alike(s, ops.mul(y, ops.sum(r, axes=(0,)))), ops.sum(r, axes=(0,)))]))
    loop = ir.tuple_item(ir.loop(inner, state=[x], scanned=[rows]), 0)
    executable = compile_module(main([x, y, rows], loop), ["x86:threads=1"])
    export = export_library(executable, tmp_path / "net.so")
    library, message = ctypes.CDLL(str(export.library)), ctypes.create_string_buffer(256)
    workspace = aligned_empty((export.workspace,), "uint8")
    for sizes, status in (((3, 3, 2), 0), ((3, 4, 0), 0), ((3, 4, 2), -2), ((3, 9, 2), -2)):
        arrays = [aligned_empty((n_,), "float32") for n_ in (sizes[0], sizes[1])] + [aligned_empty((sizes[2], 4), "float32")]
        for array in arrays:
            array[...] = ones(*array.shape)
        output = aligned_empty((sizes[0],), "float32")
        numbers = [ctypes.c_int64(size) for size in sizes]
        pointers = [array.ctypes for array in (*arrays, output, workspace)]
        message.value = b""
        assert library.net_run(*numbers, *pointers, message) == status, message.value
        if status == 0:
            np.testing.assert_allclose(output, arrays[0] + sum(map(np.sum, arrays[2])), rtol=1e-5)
        elif sizes[1] < 9:
            assert message.value == b"the length of y must be n (operator test.alike, at model:alike1)"
        with pytest.raises(InputError) if status else nullcontext():
            executable(*arrays)


# --- forms --------------------------------------------------------------------------------------------------------------


def test_constraints_have_text() -> None:
    """Printing and parsing keep the constraints of functions and branches."""
    flag = ir.var("flag", TensorType((), "bool"))
    product = ops.matmul(ops.reshape(X, shape=(1, N)), ops.reshape(Y, shape=(N, 1)))
    choice = ir.if_(flag, ops.add(ops.relu(X), Y), ops.strided_slice(Y, begin=(0,), end=(2,), strides=(1,)))
    single_module, both = (with_constraints(main([X, Y, flag], body)) for body in (product, choice))
    assert single_module.main.constraints and all(next(e for e in ir.post_order(both.main) if isinstance(e, ir.If)).constraints)
    for module in (single_module, both):
        text, constants = print_module(module)
        assert "requires [(" in text
        again = parse(text, ops.TABLE, constants)
        assert print_module(again)[0] == text
        assert again.main.constraints == module.main.constraints
        assert with_constraints(again) == again or print_module(with_constraints(again))[0] == text


def test_branches_and_loops_that_require_nothing_more_are_merged() -> None:
    """A branch whose conditions hold anyway, and a loop that runs only if its conditions hold, are in one region."""
    flag, trips = ir.var("flag", TensorType((), "bool")), ir.var("trips", ITERATION)
    total = ops.add(ops.relu(X), Y)
    choice = ir.if_(flag, ops.add(ops.neg(X), Y), ops.exp(total))
    executable = compile_module(main([X, Y, flag], ops.mul(choice, total)), ["x86:threads=1"])
    assert len(executable.regions) == 1
    i, s, w = ir.var("i", ITERATION), ir.var("s", f32(1, N)), ir.var("w", f32(M, N))
    loop = ir.loop(ir.function([i, s], ir.tuple_([TRUE, ops.matmul(s, w)])), state=[ir.var("s0", f32(1, N))], trip_count=trips)
    module = main([loop.state[0], w, trips], ir.tuple_item(loop, 0))  # type: ignore[list-item]
    executable = compile_module(module, ["x86:threads=1"])
    (then,) = (plan for name, plan in executable.package.program.plans.items() if name.startswith("main.then"))
    assert all(isinstance(item, Invoke) for item in then.instructions)
    for count, m in ((0, 4), (2, 3)):
        values = [ones(1, 3), ones(m, 3), np.array(count)]
        np.testing.assert_allclose(executable(*values), evaluate(module, values), rtol=1e-5)
    with pytest.raises(InputError, match="the inner dimension of a must be m, got 3 where m is 4, n is 3"):
        executable(ones(1, 3), ones(4, 3), np.array(1))


def test_a_condition_is_checked_once() -> None:
    """The plan checks what the model states, and regions do not repeat it."""
    module = main([X, Y], ops.add(ops.relu(X), ops.exp(Y)))
    package = compile_module(module, ["x86:threads=1"]).package
    assert len(package.program.plans["main"].constraints) == 1
    assert not any(artifact.constraints for artifact in package.artifacts)


def test_equal_models_give_equal_packages(tmp_path: Path) -> None:
    """Messages have no names that differ between compilations."""
    written = []
    for number in range(2):
        x = ir.var("x", TensorType((N,), "bool"))
        y = ir.var("y", TensorType((1, M), "int64"))
        module = main([x, y], ops.sum(ops.add(ops.nonzero(x), y), axes=(0, 1)))
        compile_module(module, ["reference"]).save(tmp_path / f"{number}.inlaid")
        written.append((tmp_path / f"{number}.inlaid").read_bytes())
    assert written[0] == written[1]


def test_sizes_that_no_call_determines() -> None:
    """A size that is no extent of a parameter would be another size in each function."""
    x = ir.var("x", f32(2 * N))
    with pytest.raises(VerifyError, match=r"in @main: the dimension n must be an extent of a parameter.*declare a parameter"):
        inlaid.compile(ir.function([x], ops.relu(x)), targets=["reference"])
    y = ir.var("y", f32(M))
    f = ir.function([y], ops.relu(y), result=f32(K))
    with pytest.raises(VerifyError, match="in @f: the dimension k must be an extent"):
        inlaid.compile(main([X], ir.call(ir.global_var("f", f.type), [X]), f=f), targets=["reference"])  # type: ignore[arg-type]
