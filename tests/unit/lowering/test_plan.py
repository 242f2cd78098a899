"""Plans: what the executor does around regions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from tests.unit.graph.strategies import Program, assert_close, programs

from inlaid import ops
from inlaid.driver.compile import candidates_for, compile_module
from inlaid.graph import ir
from inlaid.graph.interp import Interpreter, evaluate
from inlaid.graph.unify import fresh_size
from inlaid.lowering.plans.build import Plans, build_plans
from inlaid.partitioning import partition
from inlaid.plugins.registry import PluginRegistry, default_registry
from inlaid_runtime.arith import SizeVar
from inlaid_runtime.artifact import ALIGNMENT
from inlaid_runtime.artifact.plan import Branch, Call, Invoke, Loop, Move, Plan
from inlaid_runtime.errors import CompileError, KernelFault
from inlaid_runtime.types import FunctionType, SequenceType, TensorType, TupleType

F32 = "float32"
MATRIX, SCALAR, COUNT = TensorType((2, 3), F32), TensorType((), F32), TensorType((), "int64")
X, Y = ir.var("x", MATRIX), ir.var("y", MATRIX)
VALUES = {"x": np.arange(-3, 3, dtype=np.float32).reshape(2, 3), "y": np.full((2, 3), 2, np.float32)}


@pytest.fixture(scope="module")
def registry() -> PluginRegistry:
    return default_registry()


def make_plans(module: ir.Module) -> Plans:
    """The plans of a module for the reference target."""
    partitioning = partition(module, candidates_for(["reference"], default_registry()))
    return build_plans(partitioning.module, dict.fromkeys(partitioning.regions, ()))


def make_main_plan(body: ir.Expr, *params: ir.Var, **facts: Any) -> Plan:
    return make_plans(ir.Module({"main": ir.function(params or (X, Y), body, **facts)})).plans["main"]


def runs(module: ir.Module, inputs: dict[str, Any]) -> None:
    """Compiled, the module gives what the interpreter gives."""
    results = compile_module(module, ["reference"]).run(inputs)
    expected = evaluate(module, inputs)
    assert_close(tuple(results.values()), flat(expected))


def flat(value: Any) -> tuple[Any, ...]:
    return tuple(part for item in value for part in flat(item)) if isinstance(value, tuple) else (value,)


def storages(plan: Plan) -> list[str]:
    return [plan.values[number].storage for _, number in plan.outputs]


# --- straight lines ---------------------------------------------------------------------------------------------------


def test_names_of_results() -> None:
    both = ir.tuple_([ops.relu(X), ops.neg(Y)])
    assert [name for name, _ in make_main_plan(both).outputs] == ["output0", "output1"]
    assert [name for name, _ in make_main_plan(both, attrs=(("outputs", '["a", "b"]'),)).outputs] == ["a", "b"]
    assert [name for name, _ in make_main_plan(both, attrs=(("outputs", '["a"]'),)).outputs] == ["output0", "output1"]


def test_regions_write_results_in_place() -> None:
    plan = make_main_plan(ops.relu(X))
    (step,) = plan.instructions
    assert isinstance(step, Invoke) and step.outputs == (plan.outputs[0][1],)
    assert storages(plan) == ["output"] and plan.workspace == 0


def test_results_that_belong_to_others_are_copied() -> None:
    """Inputs, constants, and what is returned already: the caller owns every result."""
    value = ops.relu(X)
    weight = ir.constant(np.ones(3, np.float32))
    plan = make_main_plan(ir.tuple_([X, weight, value, value, X]))
    assert storages(plan) == ["output"] * 5 and len({number for _, number in plan.outputs}) == 5
    assert [type(step) for step in plan.instructions] == [Invoke, Move, Move, Move, Move]
    runs(ir.Module({"main": ir.function([X, Y], ir.tuple_([X, weight, value, value, X]))}), VALUES)


def test_constants_are_stored_once() -> None:
    equal_constants = [ir.constant(np.ones(3, np.float32)) for _ in range(3)]
    plans = make_plans(
        ir.Module(
            {"main": ir.function([X], ir.tuple_([*equal_constants, ir.if_(flag(X), equal_constants[0], equal_constants[1])]))}
        )
    )
    assert len(plans.constants) == 1


def flag(value: ir.Expr) -> ir.Expr:
    return ops.less(ops.reduce_sum(value, axes=(0, 1)), ir.constant(np.float32(0)))


def test_the_arena_holds_what_lies_between() -> None:
    """Values that are never alive together share bytes, at aligned places."""
    value: ir.Expr = X
    for _ in range(6):
        value = ir.if_(flag(value), ops.relu(value), ops.neg(value))
    plan = make_main_plan(value)
    inner = [item for item in plan.values if item.storage == "arena"]
    assert len(inner) >= 10
    assert all(isinstance(item.offset, int) and item.offset % ALIGNMENT == 0 for item in inner)
    assert isinstance(plan.workspace, int) and plan.workspace <= 4 * ALIGNMENT
    runs(ir.Module({"main": ir.function([X], value)}), {"x": VALUES["x"]})


def test_where_values_live() -> None:
    """In the arena where they have a bound before the run, allocated where not, on the host where they are no arrays."""
    unbounded = fresh_size("k")
    x = ir.var("x", TensorType((unbounded,), F32))
    late = ir.var("l", TensorType((fresh_size("m", unbounded),), F32))
    storages: dict[str, str] = {}
    for name, param in (("bounded", X), ("unbounded", x), ("late bound", late), ("sequence", ir.var("s", SequenceType(MATRIX)))):
        choice = ir.if_(ir.var("c", TensorType((), "bool")), param, param)
        plan = build_plans(ir.Module({"main": ir.function([choice.condition, param], ir.tuple_([choice, choice]))}), ())  # type: ignore[list-item]
        storages[name] = next(plan.plans["main"].values[step.outputs[0]].storage for step in plan.plans["main"].instructions)  # type: ignore[union-attr]
    assert storages == {"bounded": "output", "unbounded": "dynamic", "late bound": "dynamic", "sequence": "host"}


def test_tuples_are_taken_apart() -> None:
    pair = ir.tuple_([ir.tuple_([ops.relu(X), Y]), ops.neg(X)])
    choice = ir.if_(flag(X), pair, ir.tuple_([ir.tuple_([Y, Y]), X]))
    inner = ir.tuple_item(ir.tuple_item(choice, 0), 1)
    plan = make_main_plan(ir.tuple_([choice, inner, ir.tuple_item(choice, 1)]))
    assert len(plan.outputs) == 5
    runs(ir.Module({"main": ir.function([X, Y], ir.tuple_([choice, inner, ir.tuple_item(choice, 1)]))}), VALUES)


def test_tuples_as_parameters() -> None:
    """An entry that takes a tuple has an input for each part; operators and branches take it apart."""
    pair = ir.var("pair", TupleType((MATRIX, MATRIX)))
    first, second = ir.tuple_item(pair, 0), ir.tuple_item(pair, 1)
    body = ir.tuple_([ops.add(first, second), ir.if_(flag(first), pair, ir.tuple_([second, ops.neg(first)])), pair])
    module = ir.Module({"main": ir.function([pair], body)})
    executable = compile_module(module, ["reference"])
    assert [spec.name for spec in executable.inputs] == ["pair.0", "pair.1"]
    results = executable.run({"pair.0": VALUES["x"], "pair.1": VALUES["y"]})
    expected = Interpreter().run(module.main, [(VALUES["x"], VALUES["y"])])
    assert_close(tuple(results.values()), flat(expected))


# --- branches and loops -----------------------------------------------------------------------------------------------


def test_branches_capture_what_they_read() -> None:
    """Each value once, whichever branch reads it, and what only inner branches read too."""
    shared, deep = ops.relu(X), ops.neg(Y)
    inner = ir.if_(flag(deep), ops.exp(deep), shared)
    choice = ir.if_(flag(X), inner, ops.abs(shared))
    plans = make_plans(ir.Module({"main": ir.function([X, Y], ir.tuple_([choice, shared, deep]))})).plans
    (branch,) = [step for step in plans["main"].instructions if isinstance(step, Branch)]
    assert len(branch.inputs) == 2 == len(set(branch.inputs))
    assert [name for name, _ in plans[branch.then].inputs] == [name for name, _ in plans[branch.otherwise].inputs]
    assert any(isinstance(step, Branch) for step in plans[branch.then].instructions)
    assert len(plans) == 5
    runs(ir.Module({"main": ir.function([X, Y], ir.tuple_([choice, shared, deep]))}), VALUES)


def repeat(body: Any, state: ir.Expr, rounds: int = 3) -> ir.Expr:
    """The state after some rounds of `body(iteration, state)`."""
    i, total = ir.var("i", COUNT), ir.var("total", state.type)
    inner = ir.function([i, total], ir.tuple_([ir.constant(True), body(i, total)]))
    return ir.tuple_item(ir.loop(inner, state=[state], trip_count=ir.constant(np.int64(rounds))), 0)


def test_loops() -> None:
    before = ops.relu(Y)
    result = repeat(lambda i, total: ops.add(total, before), X)
    plans = make_plans(ir.Module({"main": ir.function([X, Y], ir.tuple_([result, before]))})).plans
    (loop,) = [step for step in plans["main"].instructions if isinstance(step, Loop)]
    assert (len(loop.state), len(loop.captured), len(loop.scanned)) == (1, 1, 0)
    assert len(plans[loop.body].inputs) == 3 and len(plans[loop.body].outputs) == 2
    runs(ir.Module({"main": ir.function([X, Y], ir.tuple_([result, before]))}), VALUES)


def test_one_body_in_two_branches() -> None:
    """A function that is shared stands outside of those who run it: they hand it what it reads."""
    i, total = ir.var("i", COUNT), ir.var("total", MATRIX)
    hidden = ops.neg(Y)
    body = ir.function([i, total], ir.tuple_([ir.constant(True), ops.add(total, hidden)]))

    def rounds(count: int) -> ir.Expr:
        return ir.tuple_item(ir.loop(body, state=[X], trip_count=ir.constant(np.int64(count))), 0)

    choice = ir.if_(flag(X), rounds(2), ir.if_(flag(Y), rounds(3), rounds(4)))
    runs(ir.Module({"main": ir.function([X, Y], ir.tuple_([choice, hidden]))}), VALUES)
    runs(ir.Module({"main": ir.function([X, Y], ir.tuple_([choice, hidden]))}), {"x": -VALUES["x"] + 1, "y": -VALUES["y"]})


# --- functions --------------------------------------------------------------------------------------------------------

KIND = FunctionType((COUNT, SCALAR), SCALAR)


def test_recursion() -> None:
    """Global functions are plans, which may call themselves and one another."""
    n, x, y = ir.var("n", COUNT), ir.var("x", SCALAR), ir.var("y", SCALAR)
    one = ir.constant(np.int64(1))
    again = ir.call(ir.global_var("odd", KIND), [ops.sub(n, one), ops.mul(x, ir.constant(np.float32(2)))])
    even = ir.function([n, x], ir.if_(ops.less(n, one), x, again), result=SCALAR)
    back = ir.call(ir.global_var("even", KIND), [ops.sub(n, one), ops.neg(x)])
    odd = ir.function([n, x], ir.if_(ops.less(n, one), ops.abs(x), back), result=SCALAR)
    first = ir.call(ir.global_var("even", KIND), [ir.constant(np.int64(5)), y])
    unused = ir.function([x], x)
    module = ir.Module({"main": ir.function([y], ops.add(first, y)), "even": even, "odd": odd, "unused": unused})
    plans = make_plans(module).plans
    assert {"main", "main.even", "main.odd"} <= set(plans) and "main.unused" not in plans
    assert [step.plan for step in plans["main"].instructions if isinstance(step, Call)] == ["main.even"]
    runs(module, {"y": np.float32(3)})


def test_endless_recursion() -> None:
    x = ir.var("x", SCALAR)
    kind = FunctionType((SCALAR,), SCALAR)
    deeper = ir.function([x], ir.call(ir.global_var("f", kind), [ops.neg(x)]), result=SCALAR)
    module = ir.Module({"main": ir.function([x], ir.call(ir.global_var("f", kind), [x])), "f": deeper})
    with pytest.raises(KernelFault, match="too deeply"):
        compile_module(module, ["reference"]).run({"x": np.float32(1)})


def test_closures() -> None:
    """A function that is written out where it is called, twice, and in a branch as well."""
    v = ir.var("v", MATRIX)
    hidden = ops.relu(Y)
    closure = ir.function([v], ops.add(ops.neg(v), hidden))
    calls = [ir.call(closure, [X]), ir.if_(flag(X), ir.call(closure, [Y]), X)]
    module = ir.Module({"main": ir.function([X, Y], ir.tuple_([*calls, hidden]))})
    plans = make_plans(module).plans
    assert sum("closure" in name for name in plans) == 1
    runs(module, VALUES)


def test_functions_over_symbolic_sizes() -> None:
    n = SizeVar("n")
    p, x = ir.var("p", TensorType((n,), F32)), ir.var("x", TensorType((SizeVar("m"),), F32))
    twice = ir.function([p], ops.concat(p, p, axis=0))
    kind = twice.type
    assert isinstance(kind, FunctionType)
    first = ir.call(ir.global_var("twice", kind), [x])
    module = ir.Module({"main": ir.function([x], ir.call(ir.global_var("twice", kind), [first])), "twice": twice})
    runs(module, {"x": np.arange(3, dtype=np.float32)})


@settings(max_examples=40, deadline=None)
@given(programs())
def test_random_modules(program: Program) -> None:
    """With branches, bindings, loops, closures, recursion and sizes that only a run knows. What is not Inlaid's own is left out."""
    if any(isinstance(e, ir.Call) and getattr(e.callee, "name", "").startswith("test.") for e in everything(program.module)):
        return
    runs(program.module, program.inputs)


def everything(module: ir.Module) -> list[ir.Expr]:
    return [expr for function in module.functions.values() for expr in ir.post_order(function)]


# --- refusals ---------------------------------------------------------------------------------------------------------


def test_what_an_executor_cannot_do() -> None:
    v = ir.var("v", MATRIX)
    chosen = ir.if_(ir.var("c", TensorType((), "bool")), ir.function([v], v), ir.function([v], X))
    with pytest.raises(CompileError, match="functions as values"):
        compile_module(ir.Module({"main": ir.function([chosen.condition, X], ir.call(chosen, [X]))}), ["reference"])  # type: ignore[list-item]
    with pytest.raises(CompileError, match="cannot run"):
        build_plans(ir.Module({"main": ir.function([X], ops.relu(X))}), ())
    lost = ir.call(ir.global_var("lost", FunctionType((MATRIX,), MATRIX)), [X])
    with pytest.raises(CompileError, match="no function @lost"):
        build_plans(ir.Module({"main": ir.function([X], lost)}), ())
