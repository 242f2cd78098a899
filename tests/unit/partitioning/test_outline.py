"""What regions are made of: where they begin and end, what crosses their borders, and what they leave to the executor."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from inlaid import ops
from inlaid.driver.compile import compile_module
from inlaid.graph import ir
from inlaid.graph.interp import evaluate
from inlaid.graph.operator import Operator
from inlaid.graph.pattern import is_const, is_op, wildcard
from inlaid.partitioning import Partitioned, dissolve, partition, verify_partition
from inlaid.partitioning.outline import region_operators
from inlaid.plugins import Accept, AcceptIf, OpRule, Reject
from inlaid.plugins.contract import COMPOSITE
from inlaid_runtime import arith
from inlaid_runtime.arith import SizeVar
from inlaid_runtime.errors import CompileError, InputError, VerifyError
from inlaid_runtime.types import FunctionType, TensorType, TupleType

from .fakes import Judge, fake_candidates, make_registry, taking

F32 = "float32"
X = ir.var("x", TensorType((2, 3), F32))
Y = ir.var("y", TensorType((2, 3), F32))
INPUTS = {"x": np.arange(-3, 3, dtype=np.float32).reshape(2, 3), "y": np.full((2, 3), 2, np.float32)}


def cut(body: ir.Expr, *judges: Judge) -> Partitioned:
    """The partition of a function of x and y for targets a, b, ..., checked, and run to the same result."""
    module = ir.Module({"main": ir.function([X, Y], body)})
    named = dict(zip("abc", judges, strict=False))
    partitioning = partition(module, fake_candidates(named))
    verify_partition(module, partitioning)
    expected = evaluate(module, INPUTS)
    assert_equal(evaluate(partitioning.module, INPUTS), expected)
    results = compile_module(module, list(named), make_registry(named)).run(INPUTS)
    assert_equal(tuple(results.values()), flat(expected))
    return partitioning


def flat(value: Any) -> tuple[Any, ...]:
    """The arrays of a value with tuples taken apart, as executables return them."""
    return tuple(part for item in value for part in flat(item)) if isinstance(value, tuple) else (value,)


def assert_equal(a: Any, b: Any) -> None:
    if isinstance(b, tuple):
        assert len(a) == len(b)
        for one, other in zip(a, b, strict=True):
            assert_equal(one, other)
    else:
        np.testing.assert_array_equal(a, b)
        assert a.dtype == b.dtype


def shape(partitioning: Partitioned) -> list[tuple[str, str]]:
    """Per region its target's letter and the names of its operators, in order."""
    return [
        (name.split("_", 1)[1], " ".join(call.callee.name for call in region_operators(partitioning.module[name])))  # type: ignore[union-attr]
        for name in partitioning.regions
    ]


ELEMENTWISE = taking("relu", "neg", "abs", "add", "mul", "topk", "cast", "less", "reduce_sum", "concat", "test.pair")
RELU_TOPK = taking("relu", "topk")
NEG_MUL = taking("neg", "mul")


def test_one_region_where_one_target_takes_all() -> None:
    partitioning = cut(ops.add(ops.relu(X), ops.neg(ops.relu(X))), ELEMENTWISE)
    assert shape(partitioning) == [("a", "relu relu neg add")]


def test_no_cycle_between_regions() -> None:
    """relu feeds neg on another target, and add reads both: relu and add must not share a region."""
    first = ops.relu(X)
    partitioning = cut(ops.add(first, ops.neg(first)), taking("relu", "add"), taking("neg"))
    assert shape(partitioning) == [("a", "relu"), ("b", "neg"), ("a", "add")]


def test_diamonds_of_two_targets_meet_once() -> None:
    """Two independent chains of the same targets merge side by side."""
    chains = [ops.relu(ops.neg(ops.relu(item))) for item in (X, Y)]
    partitioning = cut(ir.tuple_(chains), taking("relu"), taking("neg"))
    assert shape(partitioning) == [("a", "relu relu"), ("b", "neg neg"), ("a", "relu relu")]


def test_priority_decides() -> None:
    assert shape(cut(ops.relu(X), ELEMENTWISE, RELU_TOPK)) == [("a", "relu")]
    assert shape(cut(ops.relu(X), NEG_MUL, RELU_TOPK)) == [("b", "relu")]
    assert shape(cut(ops.relu(X), NEG_MUL)) == [("reference", "relu")]


def test_inputs_and_constants_are_returned_as_they_are() -> None:
    weights = ir.constant(np.arange(4, dtype=np.int64))
    partitioning = cut(ir.tuple_([X, ops.relu(Y), X, weights, weights]), RELU_TOPK)
    assert shape(partitioning) == [("a", "relu")]
    assert len(partitioning.module["region0_a"].params) == 1
    alone = cut(ir.tuple_([X, weights]), RELU_TOPK)
    assert alone.regions == {}
    assert cut(X, RELU_TOPK).module.main.body is X


def test_one_value_returned_twice_leaves_its_region_once() -> None:
    value = ops.relu(X)
    partitioning = cut(ir.tuple_([value, value, ops.neg(value)]), RELU_TOPK, NEG_MUL)
    region = partitioning.module["region0_a"]
    assert isinstance(region.type.result, TupleType) and len(region.type.result.fields) == 1  # type: ignore[union-attr]


def test_items_used_inside_and_outside() -> None:
    """One item is used in the region, one outside by two expressions, and the call is one."""
    both = ops.topk(X, k=2, axis=1)
    values, places, again = ir.tuple_item(both, 0), ir.tuple_item(both, 1), ir.tuple_item(both, 1)
    partitioning = cut(ir.tuple_([ops.relu(values), ops.neg(places), ops.mul(again, again)]), RELU_TOPK, NEG_MUL)
    assert shape(partitioning) == [("a", "topk relu"), ("b", "neg mul")]
    kinds = [field.dtype.name for field in partitioning.module["region0_a"].type.result.fields]  # type: ignore[union-attr]
    assert kinds == ["int64", F32]
    assert len(partitioning.module["region1_b"].params) == 1


def test_whole_results_of_an_operator() -> None:
    both = ops.topk(X, k=2, axis=1)
    cut(both, RELU_TOPK)
    cut(ir.tuple_([both, ops.relu(ir.tuple_item(both, 0))]), RELU_TOPK)
    cut(ops.topk(ops.neg(X), k=1, axis=0), NEG_MUL, RELU_TOPK)


def test_constants_in_regions() -> None:
    weights = ir.constant(np.full((2, 3), 3, np.float32))
    partitioning = cut(ir.tuple_([ops.add(X, weights), ops.mul(Y, weights), weights]), taking("add"), taking("mul"))
    digests = {e.digest() for f in partitioning.module.functions.values() for e in ir.post_order(f) if isinstance(e, ir.Constant)}
    assert digests == {weights.digest()}
    assert all(len(partitioning.module[name].params) == 1 for name in partitioning.regions)


PAIR = Operator(
    "test.pair",
    lambda attrs, pair: TupleType((pair.fields[1], pair.fields[0])),
    reference=lambda attrs, pair: (pair[1], pair[0]),
)


def test_tuples_of_values_of_several_regions() -> None:
    """An operator that takes a tuple comes after all regions that its parts come from, and takes the parts one by one."""
    a, b = ops.relu(X), ops.neg(Y)
    swapped = PAIR(ir.tuple_([a, b]))
    body = ir.tuple_([ops.relu(ir.tuple_item(swapped, 0)), ops.mul(a, ir.tuple_item(swapped, 1))])
    candidates = fake_candidates({"a": taking("relu", "test.pair"), "b": NEG_MUL})
    module = ir.Module({"main": ir.function([X, Y], body)})
    partitioning = partition(module, candidates)
    verify_partition(module, partitioning)
    assert_equal(evaluate(partitioning.module, INPUTS), evaluate(module, INPUTS))
    assert shape(partitioning) == [("a", "relu"), ("b", "neg"), ("a", "test.pair relu"), ("b", "mul")]
    assert all(isinstance(param.type, TensorType) for name in partitioning.regions for param in partitioning.module[name].params)


# --- control flow -----------------------------------------------------------------------------------------------------


def flag(value: ir.Expr) -> ir.Expr:
    return ops.less(ops.reduce_sum(value, axes=(0, 1)), ir.constant(np.float32(0)))


def test_branches() -> None:
    """Regions lie before, in and after a choice; what both branches read crosses their border once."""
    shared = ops.relu(X)
    choice = ir.if_(flag(shared), ops.neg(ops.relu(shared)), ops.add(shared, Y))
    partitioning = cut(ops.relu(choice), ELEMENTWISE)
    assert shape(partitioning) == [("a", "relu reduce_sum less"), ("a", "relu neg"), ("a", "add"), ("a", "relu")]
    assert any(isinstance(e, ir.If) for e in ir.post_order(partitioning.module.main))


def test_branches_that_compute_nothing() -> None:
    cut(ir.if_(flag(X), X, Y), ELEMENTWISE)
    cut(ir.if_(flag(X), X, ir.constant(np.ones((2, 3), np.float32))), ELEMENTWISE)
    cut(ir.if_(flag(X), ir.if_(flag(Y), ops.relu(X), Y), ops.neg(Y)), ELEMENTWISE)


def counted(body: Any, rounds: int = 3, **facts: Any) -> ir.Expr:
    """A loop whose body gets (iteration, state) and gives (keep going, state, output)."""
    i, total = ir.var("i", TensorType((), "int64")), ir.var("total", TensorType((2, 3), F32))
    inner = ir.function([i, total], ir.tuple_(body(i, total)))
    return ir.loop(inner, state=[facts.get("state", X)], trip_count=ir.constant(np.int64(rounds)))


def test_loops() -> None:
    """The body of a loop has regions of its own, and reads what is computed before the loop."""
    before = ops.relu(Y)
    result = counted(lambda i, total: [ir.constant(True), ops.add(ops.neg(total), before), ops.relu(total)])
    partitioning = cut(ir.tuple_([ops.relu(ir.tuple_item(result, 0)), ir.tuple_item(result, 1), before]), ELEMENTWISE)
    assert shape(partitioning) == [("a", "relu"), ("a", "neg add relu"), ("a", "relu")]
    cut(counted(lambda i, total: [ir.constant(True), total, total], rounds=0), ELEMENTWISE)
    cut(counted(lambda i, total: [flag(total), ops.neg(total), Y], state=ops.relu(X)), ELEMENTWISE, NEG_MUL)


def test_loops_in_branches_in_loops() -> None:
    def outer(i: ir.Expr, total: ir.Expr) -> list[ir.Expr]:
        inner = counted(lambda j, state: [ir.constant(True), ops.mul(state, Y), ops.cast(j, dtype=F32)], 2, state=total)
        chosen = ir.if_(flag(total), ir.tuple_item(inner, 0), ops.relu(total))
        return [ir.constant(True), chosen, ops.reduce_sum(chosen, axes=(0, 1))]

    cut(counted(outer), ELEMENTWISE)
    cut(counted(outer), RELU_TOPK, NEG_MUL)


def test_functions_that_are_called_by_name() -> None:
    """They are cut as the entry is, and regions of all have names of their own."""
    v = ir.var("v", TensorType((2, 3), F32))
    callee = ir.function([v], ops.neg(ops.relu(v)))
    kind = callee.type
    assert isinstance(kind, FunctionType)
    main = ir.function([X], ops.relu(ir.call(ir.global_var("f", kind), [ops.relu(X)])))
    module = ir.Module({"main": main, "f": callee, "unused": ir.function([X], PAIR(ir.tuple_([X, X])))})
    judges = {"a": taking("relu")}
    partitioning = partition(module, fake_candidates(judges))
    verify_partition(module, partitioning)
    assert shape(partitioning) == [("a", "relu"), ("a", "relu"), ("a", "relu"), ("reference", "neg")]
    assert_equal(evaluate(partitioning.module, {"x": INPUTS["x"]}), evaluate(module, {"x": INPUTS["x"]}))
    results = compile_module(module, ["a"], make_registry(judges)).run({"x": INPUTS["x"]})
    assert_equal(tuple(results.values()), (evaluate(module, {"x": INPUTS["x"]}),))


def test_bindings_keep_values_out_of_loops() -> None:
    """What is bound outside of a loop is computed once, not in every round; operators around it may still share its region."""
    let_var = ir.var("held", TensorType((2, 3), F32))
    value = ops.exp(ops.neg(Y))
    looped = ir.tuple_item(counted(lambda i, total: [ir.constant(True), ops.add(total, let_var), ops.relu(let_var)]), 0)
    body = ir.let(let_var, value, ir.tuple_([ops.mul(looped, let_var), ops.relu(let_var), ops.neg(X)]))
    for judges in ([ELEMENTWISE], [taking("exp", "add"), NEG_MUL], [taking("relu", "exp", "neg", "mul", "add")]):
        partitioning = cut(body, *judges)
        assert any(isinstance(e, ir.Let) for e in ir.post_order(partitioning.module.main))
        (loop,) = [e for e in ir.post_order(partitioning.module.main) if isinstance(e, ir.Loop)]
        inside = [e for e in ir.post_order(loop.body) if isinstance(e, ir.Call) and isinstance(e.callee, ir.GlobalVar)]
        names = [name for call in inside for name in region_names(partitioning, call)]
        assert "exp" not in names and "add" in names


def test_items_of_outer_values_begin_no_region() -> None:
    """Taking an item out of what is computed outside costs nothing and divides nothing."""
    both = ops.topk(X, k=3, axis=1)
    result = counted(lambda i, total: [ir.constant(True), ops.add(ops.neg(total), ir.tuple_item(both, 0)), total])
    partitioning = cut(ir.tuple_([result, ops.relu(ir.tuple_item(both, 0))]), ELEMENTWISE)
    assert shape(partitioning) == [("a", "topk relu"), ("a", "neg add")]


def region_names(partitioning: Partitioned, call: ir.Call) -> list[str]:
    assert isinstance(call.callee, ir.GlobalVar)
    return [item.callee.name for item in region_operators(partitioning.module[call.callee.name])]  # type: ignore[union-attr]


def test_bindings_of_bindings() -> None:
    """Of tuples, of variables, of parameters and of what another region computes after a merge."""
    a, b, c, d = (ir.var(name, TensorType((2, 3), F32)) for name in "abcd")
    pair = ir.var("pair", TupleType((a.type, a.type)))

    def rounds(*read: ir.Expr) -> ir.Expr:
        i, total = ir.var("i", TensorType((), "int64")), ir.var("total", a.type)
        new: ir.Expr = total
        for item in read:
            new = ops.add(new, item)  # type: ignore[assignment]
        inner = ir.function([i, total], ir.tuple_([ir.constant(True), new]))
        return ir.tuple_item(ir.loop(inner, state=[X], trip_count=ir.constant(np.int64(2))), 0)

    late = ops.relu(rounds(b, ir.tuple_item(pair, 1), d))
    body: ir.Expr = ir.let(c, late, ops.add(rounds(c), ops.relu(c)))
    body = ir.let(pair, ir.tuple_([ops.relu(X), a]), body)
    body = ir.let(d, X, ir.let(b, a, body))
    body = ir.let(a, ops.relu(Y), body)
    for judges in ([ELEMENTWISE], [RELU_TOPK, NEG_MUL], [taking("add")]):
        cut(body, *judges)


def test_a_binding_inside_a_closure_of_a_value_outside() -> None:
    """The closure comes after the value, though nothing in it but the binding reads it."""
    outer = ops.reduce_sum(ops.relu(X), axes=(0,))
    v, bound = ir.var("v", X.type), ir.var("bound", outer.type)
    closure = ir.function([v], ir.let(bound, outer, ops.transpose(X, perm=(1, 0))))
    for judges in ([taking("relu")], [taking("reduce_sum")], [taking()]):
        cut(ir.tuple_([outer, ir.call(closure, [X])]), *judges)


# --- refusals ---------------------------------------------------------------------------------------------------------


def test_an_operator_that_nobody_takes() -> None:
    module = ir.Module({"main": ir.function([X], PAIR(ir.tuple_([X, X]), span=ir.Span("m.onnx", "swap")))})
    with pytest.raises(CompileError, match=r"accepts the operator: a: takes no test.pair; reference: .*operator test.pair.*swap"):
        partition(module, fake_candidates({"a": RELU_TOPK}))


def test_conditions_on_dimensions() -> None:
    """What a target takes under a condition runs there where the condition holds, and elsewhere where it does not."""
    n = SizeVar("n", 1, 8)
    x = ir.var("x", TensorType((n, 3), F32))
    module = ir.Module({"main": ir.function([x], ops.neg(ops.relu(x)))})
    judges = {"a": lambda call: AcceptIf(arith.compare("<=", n, 4)), "b": taking("neg")}
    partitioning = partition(module, fake_candidates(judges))
    verify_partition(module, partitioning)
    (guard,) = partitioning.guards
    assert partitioning.regions[guard.region] == 0
    assert {partitioning.regions[name] for name in guard.regions} == {1, 2}
    executable = compile_module(module, list(judges), make_registry(judges))
    for size in (1, 4, 5, 8):
        data = np.arange(-size, 2 * size, dtype=np.float32).reshape(size, 3)
        np.testing.assert_array_equal(evaluate(partitioning.module, {"x": data}), -np.maximum(data, 0))
        (result,) = executable.run({"x": data}).values()
        np.testing.assert_array_equal(result, -np.maximum(data, 0))
    names = {size: {event.name for event in executable.profile({"x": np.zeros((size, 3), F32)}).events} for size in (4, 5)}
    assert guard.region in names[4] and guard.region not in names[5]


def test_conditions_that_need_no_branch() -> None:
    n = SizeVar("n", 1, 8)
    x = ir.var("x", TensorType((n, 3), F32))
    module = ir.Module({"main": ir.function([x], ops.relu(x))})
    for constraint, target in ((arith.compare("<=", n, 8), 0), (0, 1), (arith.compare("<=", 9, n), 1)):
        partitioning = partition(module, fake_candidates({"a": lambda call, constraint=constraint: AcceptIf(constraint)}))
        assert not partitioning.guards and set(partitioning.regions.values()) == {target}


def test_the_operators_of_a_region_are_in_the_order_in_which_they_run() -> None:
    """Those in composites, too: errors and profiles name source nodes in that order."""
    pair = OpRule(is_op("neg")(is_op("relu")(wildcard())), "pair")
    body = ops.exp(ops.neg(ops.relu(ops.tanh(X))))
    partitioning = partition(
        ir.Module({"main": ir.function([X], body)}), fake_candidates({"a": (pair, OpRule("exp"), OpRule("tanh"))})
    )
    (name,) = partitioning.regions
    calls = region_operators(partitioning.module[name])
    assert [call.callee.name for call in calls] == ["tanh", "relu", "neg", "exp"]  # type: ignore[union-attr]


def test_composites() -> None:
    """Operators that match a pattern become one call of a marked function; where a value inside is read outside they do not."""
    conv = is_op("mul")(wildcard(), is_const().named("weight"))
    biased = is_op("add")(conv, wildcard())
    rule = OpRule(is_op("relu")(biased), "a.mac")
    a, weight = ir.var("x", X.type), ir.constant(np.full((2, 3), 2, np.float32))
    product = ops.mul(a, weight)
    plain = ops.relu(ops.add(product, Y))
    partitioning = partition(ir.Module({"main": ir.function([a, Y], plain)}), fake_candidates({"a": (rule,)}))
    verify_partition(ir.Module({"main": ir.function([a, Y], plain)}), partitioning)
    (name,) = partitioning.regions
    (call,) = (
        e for e in ir.post_order(partitioning.module[name].body) if isinstance(e, ir.Call) and isinstance(e.callee, ir.Function)
    )
    assert call.callee.attr(COMPOSITE) == "a.mac" and len(call.args) == 2
    assert len(region_operators(dissolve(partitioning.module[name]))) == 3
    leaking = ir.tuple_([plain, product])
    partitioning = partition(ir.Module({"main": ir.function([a, Y], leaking)}), fake_candidates({"a": (rule,)}))
    assert set(partitioning.regions.values()) == {1}
    verdict = partitioning.placements[0].annotated.verdicts[id(plain)][0]
    assert isinstance(verdict, Reject) and "the value of mul inside the composite is also read outside" in verdict.reason


def test_element_types_and_dimensions_beyond_the_target() -> None:
    n = SizeVar("n")
    x = ir.var("x", TensorType((n,), F32))
    module = ir.Module({"main": ir.function([x], ops.cast(ops.relu(x), dtype="float64"))})
    static = partition(module, fake_candidates({"a": lambda call: Accept()}, dynamic_dims=False))
    assert shape(static) == [("reference", "relu cast")]
    annotated = static.placements[0].annotated
    reason = annotated.verdicts[id(annotated.calls[0])][0]
    assert isinstance(reason, Reject) and "not static" in reason.reason
    narrow = partition(module, fake_candidates({"a": lambda call: Accept()}, dtypes=(F32,)))
    assert shape(narrow) == [("a", "relu"), ("reference", "cast")]
    annotated = narrow.placements[0].annotated
    reason = annotated.verdicts[id(annotated.calls[1])][0]
    assert isinstance(reason, Reject) and "float64 is not among" in reason.reason


def test_functions_as_values_are_refused() -> None:
    v = ir.var("v", TensorType((2, 3), F32))
    chosen = ir.if_(flag(X), ir.function([v], ops.relu(v)), ir.function([v], ops.neg(v)))
    module = ir.Module({"main": ir.function([X], ir.call(chosen, [X]))})
    judges = {"a": ELEMENTWISE}
    with pytest.raises(CompileError, match="functions as values"):
        compile_module(module, ["a"], make_registry(judges))


# --- computed sizes -----


def test_regions_show_the_sizes_in_the_types_of_their_results() -> None:
    """The plan takes a size from the shape of a result. Here the only result that another region reads has n + 3 columns."""
    x, z = ir.var("x", TensorType((6,), F32)), ir.var("z", TensorType((1, SizeVar("m")), "int64"))
    padded = ops.concat(ops.nonzero(x), ops.reshape(np.arange(3), shape=(1, 3)), axis=1)
    rows = ops.reduce_sum(ops.concat(ops.neg(padded), z, axis=0, span=ir.Span("model", "rows")), axes=(0,))
    module = ir.Module({"main": ir.function([x, z], rows)})
    judges = {"a": taking("nonzero", "concat", "reshape"), "b": taking("neg", "reduce_sum", "concat")}
    partitioning = partition(module, fake_candidates(judges))
    verify_partition(module, partitioning)
    first = partitioning.module[next(iter(partitioning.regions))].body.type
    assert isinstance(first, TupleType) and len(first.fields) == 2
    executable = compile_module(module, list(judges), make_registry(judges))
    feeds = {"x": np.array([0, 1, 2, 0, 3, 1], F32), "z": np.full((1, 7), 10)}
    (result,) = executable.run(feeds).values()
    np.testing.assert_array_equal(result, 10 - np.array([1, 2, 4, 5, 0, 1, 2]))
    for columns in (6, 4, 1, 0):
        with pytest.raises(InputError, match=rf"must be .* got 7 where .* m is {columns} .*model:rows"):
            executable.run({**feeds, "z": np.full((1, columns), 10)})


# --- the verifier -----------------------------------------------------------------------------------------------------


def test_the_verifier_finds_what_is_wrong() -> None:
    body = ops.add(ops.relu(X), ir.constant(np.ones((2, 3), np.float32)))
    module = ir.Module({"main": ir.function([X, Y], body)})
    partitioning = partition(module, fake_candidates({"a": taking("relu"), "b": taking("add")}))
    first, second = partitioning.regions

    def changed(name: str, function: ir.Function) -> Partitioned:
        return dataclasses.replace(partitioning, module=partitioning.module.with_function(name, function))

    other = ir.Module({"main": ir.function([X], body)})
    region = partitioning.module[second]
    constant = ir.constant(np.zeros((2, 3), np.float32))
    fresh = ops.add(region.params[0], constant)
    cases = [
        (other, partitioning, "changed the type of main"),
        (module, dataclasses.replace(partitioning, module=module), "is in no region"),
        (module, dataclasses.replace(partitioning, regions={first: 0}), "expected 2 operator calls after partitioning, got 1"),
        (module, changed(second, ir.function(region.params, ir.tuple_([fresh]), region.attrs)), "changed a constant"),
        (module, changed(second, ir.function((), region.body, region.attrs)), "not a closed function"),
        (module, changed(second, ir.function(region.params, region.body)), "not a closed function"),
    ]
    for before, after, message in cases:
        with pytest.raises(VerifyError, match=message):
            verify_partition(before, after)


def test_the_parameters_of_a_function_show_the_sizes_that_its_body_reads() -> None:
    """The body reads the computed size of its argument, but not the argument."""
    x = ir.var("x", TensorType((SizeVar("n"),), "float32"))
    begin, end = (ir.var(name, TensorType((1,), "int64")) for name in ("begin", "end"))
    part = ops.dynamic_slice(x, begin, end, axes=(0,), strides=(1,))
    argument, value = ir.var("argument", part.type), ir.var("value", part.type)
    count = ir.function((argument,), ops.clip(ops.iota(shape=part.type.shape, dtype="float32"), maximum=1.0))
    module = ir.Module({"main": ir.function((x, begin, end), ir.let(value, part, ir.call(count, (value,))))})
    inputs = {"x": np.ones(5, np.float32), "begin": np.array([1]), "end": np.array([4])}
    for target in ("reference", "x86"):
        (result,) = compile_module(module, [target]).run(inputs).values()
        assert result.tolist() == [0, 1, 1]
