from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from inlaid import ops
from inlaid.graph.interp import evaluate
from inlaid.graph.ir import (
    Expr,
    Function,
    Module,
    Span,
    call,
    constant,
    function,
    global_var,
    if_,
    let,
    loop,
    post_order,
    tuple_,
    tuple_item,
    var,
)
from inlaid.graph.keys import structural_key
from inlaid.graph.normal import is_a_normal_form, to_a_normal_form, to_graph_form
from inlaid.graph.operator import Operator
from inlaid.graph.parse import parse
from inlaid.graph.text import print_module, show
from inlaid.graph.unify import fresh_size
from inlaid_runtime.arith import SizeVar
from inlaid_runtime.errors import ParseError, TypeInferenceError
from inlaid_runtime.types import FunctionType, OptionalType, SequenceType, TensorType

F32 = "float32"
SCALAR = TensorType((), F32)
COUNT = TensorType((), "int64")
POSITIVE = Operator(
    "vendor.positive",
    lambda attrs, x: TensorType((fresh_size("k", x.shape[0]),), x.dtype),
    reference=lambda attrs, x: x[x > 0],
)
OPERATORS = {**ops.TABLE, POSITIVE.name: POSITIVE}


def module(*params: object, body: Expr) -> Module:
    return Module({"main": function(params, body)})  # type: ignore[arg-type]


def round_trip(unit: Module) -> Module:
    text, constants = print_module(unit)
    again = parse(text, OPERATORS, constants)
    assert structural_key(again) == structural_key(unit)
    assert print_module(again)[0] == text
    return again


def test_a_chain_with_sharing_weights_and_spans() -> None:
    x = var("x", TensorType((SizeVar("n", 1, 64), 3), F32))
    shared = ops.relu(x, span=Span('a "b".onnx', "Relu:0"))
    weights = constant(np.arange(27, dtype=np.float32).reshape(9, 3))
    body = ops.add(ops.mul(shared, constant(np.float32(2))), ops.reduce_sum(weights, axes=(0,), keepdims=True))
    unit = module(x, body=ops.add(body, shared))
    text, constants = print_module(unit)
    assert text == (
        "def @main(%x: Tensor[(n{1..64}, 3), float32]) -> Tensor[(n, 3), float32] {\n"
        '  %0 = relu(%x)  # "a \\"b\\".onnx" "Relu:0"\n'
        "  %1 = mul(%0, const[float32](2.0))\n"
        f'  %2 = reduce_sum(const[float32, (9, 3)]("{weights.digest()}"), axes=(0,), keepdims=true)\n'
        "  %3 = add(%1, %2)\n"
        "  %4 = add(%3, %0)\n"
        "  %4\n"
        "}\n"
    )
    assert list(constants) == [weights.digest()]
    again = round_trip(unit)
    assert [expr.span for expr in post_order(again.main) if expr.span] == [Span('a "b".onnx', "Relu:0")]
    size = again.main.params[0].type.shape[0]
    assert isinstance(size, SizeVar) and (size.lower, size.upper) == (1, 64)
    assert "(...)" in show(unit) and "onnx" not in show(unit)
    with pytest.raises(ParseError, match="elided"):
        parse(show(unit), OPERATORS)
    with pytest.raises(ParseError, match="unknown constant with hash"):
        parse(text, OPERATORS)
    with pytest.raises(ParseError, match="different type or content"):
        parse(text, OPERATORS, {weights.digest(): np.zeros((9, 3), np.float32)})


def test_names_are_kept_quoted_and_made_unique() -> None:
    params = [var(name, SCALAR) for name in ("x", "x", "12", "a/b:0", "x_1", "è")]
    body: Expr = params[0]
    for param in params[1:]:
        body = ops.add(body, param)
    again = round_trip(module(*params, body=body))
    assert [param.name for param in again.main.params] == ["x", "x_1", "12", "a/b:0", "x_2", "è"]


def test_branches_closures_and_tuples() -> None:
    flag, x, y = var("flag", TensorType((), "bool")), var("x", SCALAR), var("y", SCALAR)
    shared = ops.neg(x)
    adder = function([y], ops.add(y, shared), (("primitive", "fused"), ("target", "x86")))
    choice = if_(flag, tuple_([call(adder, [x]), x]), tuple_([shared, ops.abs(shared)]))
    unit = module(flag, x, body=ops.add(tuple_item(choice, 0), tuple_item(choice, 1)))
    again = round_trip(unit)
    for value in (True, False):
        inputs = [np.asarray(value), np.asarray(3, np.float32)]
        assert evaluate(again, inputs) == evaluate(unit, inputs)
    closures = [expr for expr in post_order(again.main.body) if isinstance(expr, Function)]
    assert closures[0].attr("target") == "x86"


def test_lets_in_the_middle_and_at_the_end() -> None:
    x, v, w, u = var("x", SCALAR), var("v", SCALAR), var("w", SCALAR), var("u", SCALAR)
    inner = let(v, ops.neg(x), ops.mul(v, v))
    body = let(w, ops.add(inner, x), let(u, w, ops.mul(u, ops.sub(w, constant(np.float32(1))))))
    unit = module(x, body=body)
    again = round_trip(unit)
    assert show(again) == (
        "def @main(%x: Tensor[(), float32]) -> Tensor[(), float32] {\n"
        "  let %v = neg(%x)\n"
        "  %0 = mul(%v, %v)\n"
        "  %1 = end(%v, %0)\n"
        "  let %w = add(%1, %x)\n"
        "  let %u = %w\n"
        "  %2 = sub(%w, const[float32](1.0))\n"
        "  %3 = mul(%u, %2)\n"
        "  %3\n"
        "}\n"
    )
    assert evaluate(again, [np.asarray(2, np.float32)]) == evaluate(unit, [np.asarray(2, np.float32)])


def test_loops_recursion_and_several_functions() -> None:
    i, total, row = var("i", COUNT), var("total", SCALAR), var("row", SCALAR)
    new = ops.add(total, row)
    body = function([i, total, row], tuple_([ops.less(new, constant(np.float32(9))), new, new]))
    xs = var("xs", TensorType((SizeVar("n"),), F32))
    start = call(global_var("f", FunctionType((SCALAR,), SCALAR)), [constant(np.float32(0))])
    main = function([xs], loop(body, state=[start], scanned=[xs], trip_count=constant(np.int64(7)), condition=constant(True)))
    y = var("y", SCALAR)
    again = call(global_var("f", FunctionType((SCALAR,), SCALAR)), [ops.add(y, constant(np.float32(1)))])
    f = function([y], if_(ops.less(y, constant(np.float32(3))), again, y), result=SCALAR)
    unit = Module({"main": main, "f": f})
    parsed = round_trip(unit)
    inputs = [np.arange(6, dtype=np.float32)]
    for a, b in zip(evaluate(unit, inputs), evaluate(parsed, inputs), strict=True):
        np.testing.assert_array_equal(a, b)


def test_symbolic_and_existential_sizes() -> None:
    n, odd = SizeVar("n"), SizeVar("past + seq", 2)
    x, y = var("x", TensorType((n, odd), F32)), var("y", TensorType((n,), F32))
    positives = POSITIVE(y)
    k = positives.type.shape[0]  # type: ignore[attr-defined]
    twice = ops.concat(positives, positives, axis=0)
    body = tuple_([ops.reshape(x, shape=(n * odd,)), ops.reshape(twice, shape=(k, 2)), POSITIVE(twice)])
    unit = module(x, y, body=body)
    text = print_module(unit)[0]
    assert "`past + seq`{2..}" in text and "?k_0{0..n}" in text
    again = round_trip(unit)
    inputs = [np.ones((3, 2), np.float32), np.asarray([1, -1, 2], np.float32)]
    for a, b in zip(evaluate(unit, inputs), evaluate(again, inputs), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(
    "value",
    [
        np.float32(0.1),
        np.float64(1e-300),
        np.asarray([np.nan, np.inf, -np.inf, -0.0], np.float32),
        np.asarray([1, -2], np.int8),
        np.asarray(2**64 - 1, np.uint64),
        np.asarray([[True], [False]]),
        np.asarray([1.5, -2], ml_dtypes.bfloat16),
        np.asarray([7, -8], ml_dtypes.int4),
        np.asarray([1, 448], ml_dtypes.float8_e4m3fn),
        np.asarray(["a", 'b"\n'], object),
        np.zeros((0, 3), np.float32),
        np.asarray([0x7FC00001], np.uint32).view(np.float32),
        np.asarray(list("abcdefghij"), object),
    ],
    ids=lambda value: f"{value.dtype}-{value.shape}",
)
def test_constants_are_exact(value: np.ndarray) -> None:
    unit = module(body=constant(value))
    again = round_trip(unit)
    body = again.main.body
    assert body.type == unit.main.body.type
    if value.dtype != object:
        assert body.data.tobytes() == np.asarray(value).tobytes()  # type: ignore[attr-defined]


def test_sequence_and_optional_types() -> None:
    x = var("x", SequenceType(TensorType((fresh_size("n", 4), 2), F32)))
    y = var("y", OptionalType(TensorType((2,), "string")))
    round_trip(module(x, y, body=tuple_([x, y])))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("def @main() -> Tensor[(), float32] { %0 }", "line 1: expected a name in scope, found '%0'"),
        ("def @main() -> Tensor[(), float32] {\n %0 = nope()\n %0 }", "unknown operator 'nope'"),
        ("def @main() -> Tensor[(), float99] { const[float32](1) }", "float99"),
        ("def @main(%x: Tensor[(), float32] -> ", "expected ','"),
        ("def @main(%x: Tensor[(), float32]) -> Tensor[(), float32] { %x", "expected '}', found the end"),
        ("def @main(%x: Tensor[(), float32]) -> Tensor[(), float32] { %0 = cast(%x, wrong=1) %0 }", "wrong"),
        ("def @f() -> Tensor[(), float32] { @g }", "expected a function of the module"),
        ("def @f(%x: Tensor[(), int8]) -> Tensor[(), int8] { %x } def @f() -> () { () }", "defined twice"),
        ("def @f() -> Tensor[(), int8] { const[int8](1000) }", "expected a constant of type int8"),
        ("def @f() -> Tensor[(), int8] ; ", "unexpected character ';'"),
    ],
)
def test_errors_say_where(text: str, problem: str) -> None:
    with pytest.raises(ParseError) as caught:
        parse(text, OPERATORS)
    assert problem in str(caught.value)


def test_type_errors_name_the_line() -> None:
    text = "def @main(%x: Tensor[(2,), float32], %y: Tensor[(3,), float32]) -> Tensor[(2,), float32] {\n  %0 = add(%x, %y)\n  %0\n}"
    with pytest.raises(TypeInferenceError, match=r"line 2: .*operator add"):
        parse(text, OPERATORS)


def test_keys_tell_programs_apart_and_names_do_not_count() -> None:
    def unit(name: str, operator: Operator = ops.add, value: float = 1) -> str:
        x = var(name, SCALAR)
        return structural_key(module(x, body=operator(x, constant(np.float32(value)))))

    assert unit("x") == unit("y")
    assert len({unit("x"), unit("x", ops.mul), unit("x", value=2), unit("x", ops.sub)}) == 4
    x, y = var("x", SCALAR), var("y", SCALAR)
    assert structural_key(ops.sub(x, y)) != structural_key(ops.sub(x, x))


def test_deep_graphs_print_and_parse() -> None:
    x = var("x", SCALAR)
    expr: Expr = x
    for _ in range(5000):
        expr = ops.neg(expr)
    round_trip(module(x, body=expr))


def test_a_normal_form_and_back() -> None:
    flag, x, y = var("flag", TensorType((), "bool")), var("x", SCALAR), var("y", SCALAR)
    shared = ops.neg(x)
    f = function([y], ops.add(y, shared))
    main = function([flag, x], if_(flag, ops.mul(call(f, [shared]), shared), ops.abs(ops.abs(x))))
    normal = to_a_normal_form(main)
    assert is_a_normal_form(normal) and not is_a_normal_form(main)
    assert to_a_normal_form(normal) is normal
    round_trip(Module({"main": normal}))
    graph = to_graph_form(normal)
    assert structural_key(graph) == structural_key(main)
    assert to_graph_form(graph) is graph
    for value in (True, False):
        inputs = [np.asarray(value), np.asarray(3, np.float32)]
        assert evaluate(main, inputs) == evaluate(normal, inputs) == evaluate(graph, inputs)


def test_graph_form_does_not_move_work_into_loops() -> None:
    i, s, x, v = var("i", COUNT), var("s", SCALAR), var("x", SCALAR), var("v", SCALAR)
    body = function([i, s], tuple_([constant(True), ops.add(s, v)]))
    main = function([x], let(v, ops.exp(x), loop(body, state=[x], trip_count=constant(np.int64(3)))))
    assert to_graph_form(main) is main
