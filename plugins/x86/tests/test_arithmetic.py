"""Arithmetic of every native element type, bit for bit that of the interpreter, one element at a time and in vectors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import inlaid
from inlaid.tensor import ir, te
from inlaid.tensor.interp import evaluate_vector
from inlaid.tensor.lower import lower
from inlaid.tensor.schedule import Schedule
from inlaid_runtime.types import dtype
from inlaid_x86.conversions import to_int64
from inlaid_x86.llvm.values import NATIVE

from .native import PLAIN, Array, Native, check, run_reference

COUNT = 48
TYPES = tuple(sorted(NATIVE))
INTEGERS = tuple(name for name in TYPES if dtype(name).is_int)
FLOATS = ("float32", "float64")
UNARY = {"int": ("neg", "abs", "not", "popcount", "clz"), "float": ("neg", "abs", "sqrt", "floor", "ceil", "round", "trunc")}
BINARY = {"int": ir.ARITHMETIC, "float": ("add", "sub", "mul", "div", "mod", "min", "max"), "bool": ("and", "or", "xor")}


def elements(dtype_name: str, seed: int = 0) -> Array:
    """Values at the edges of an element type, then random ones."""
    element = dtype(dtype_name)
    rng = np.random.default_rng(seed)
    if element.kind == "bool":
        return rng.integers(0, 2, COUNT).astype(np.bool_)
    if element.is_float:
        info = np.finfo(element.numpy)
        edges = [
            0.0,
            -0.0,
            1.0,
            -1.0,
            0.5,
            -1.5,
            2.5,
            np.inf,
            -np.inf,
            np.nan,
            info.max,
            info.min,
            info.tiny,
            info.smallest_subnormal,
        ]
        edges += [127.5, -128.5, 255.5, 2.0**31, -(2.0**31), 2.0**63, -(2.0**63), 2.0**64, 1e30]
        rest = rng.normal(size=COUNT - len(edges)) * 10.0 ** rng.integers(-3, 12, COUNT - len(edges))
        return np.array([*edges, *rest]).astype(element.numpy)
    low, high = element.limits
    edges = [0, 1, 2, 3, low, low + 1, high, high - 1, high // 2, element.bits - 1, element.bits, min(high, element.bits + 1)]
    edges += [-1, -2, -element.bits] if low else []
    span = np.uint64(2**64 - 1) if element.bits == 64 else np.uint64(high - low)
    rest = rng.integers(0, span, COUNT - len(edges), np.uint64, endpoint=True).astype(element.numpy)
    return np.concatenate([np.array(edges, element.numpy), rest])


INPUTS = {dtype_name: elements(dtype_name) for dtype_name in TYPES}
SECOND_INPUTS = {dtype_name: np.roll(elements(dtype_name, seed=1), 7) for dtype_name in TYPES}


def pointwise(bodies: list[Callable[..., ir.Expr]], types: list[tuple[str, ...]], lanes: int = 0) -> list[ir.LoopProgram]:
    """A kernel per body: it is given one element of each input."""
    programs = []
    for number, (body, dtype_names) in enumerate(zip(bodies, types, strict=True)):
        tensors = [te.placeholder((COUNT,), dtype_name, f"x{position}") for position, dtype_name in enumerate(dtype_names)]
        result = te.compute((COUNT,), lambda i, body=body, tensors=tensors: body(*(x[i] for x in tensors)), "y")
        program = lower([result], tensors, f"pointwise{number}")
        programs.append(vectorized(program, "y", lanes) if lanes else program)
    return programs


def vectorized(program: ir.LoopProgram, block: str, lanes: int) -> ir.LoopProgram:
    """The innermost spatial loop of a block in vectors."""
    s = Schedule(program)
    *_, inner = s.split(s.loops(block)[-1], (None, lanes))
    s.vectorize(inner)
    return s.program


LANES = pytest.mark.parametrize("lanes", [0, 3, 16])


@LANES
def test_every_unary_operation(lanes: int) -> None:
    cases = [(op, dtype_name) for dtype_name in INTEGERS for op in UNARY["int"]]
    cases += [(op, dtype_name) for dtype_name in FLOATS for op in (*UNARY["float"], "isnan", "isinf")]
    cases.append(("not", "bool"))
    bodies = [lambda a, op=op: te.unary(op, a) for op, _ in cases]
    check(pointwise(bodies, [(dtype_name,) for _, dtype_name in cases], lanes), [INPUTS[dtype_name] for _, dtype_name in cases])


@LANES
def test_every_binary_operation(lanes: int) -> None:
    cases = [(op, dtype_name) for dtype_name in INTEGERS for op in ir.BINARY]
    cases += [(op, dtype_name) for dtype_name in FLOATS for op in (*BINARY["float"], *ir.COMPARISONS)]
    cases += [(op, "bool") for op in (*BINARY["bool"], "eq", "ne", "lt", "le", "min", "max")]
    bodies = [lambda a, b, op=op: ir.binary(op, a, b) for op, _ in cases]
    inputs = [array for _, dtype_name in cases for array in (INPUTS[dtype_name], SECOND_INPUTS[dtype_name])]
    check(pointwise(bodies, [(dtype_name, dtype_name) for _, dtype_name in cases], lanes), inputs)


@pytest.mark.parametrize("lanes", [0, 16])
def test_operations_with_constants(lanes: int) -> None:
    cases: list[tuple[str, str, Any]] = []
    for dtype_name in INTEGERS:
        low, high = dtype(dtype_name).limits
        cases += [(op, dtype_name, value) for value in (0, 8, high, *((-1, -3, low) if low else ())) for op in ("div", "mod")]
        cases += [
            (op, dtype_name, value) for value in (3, dtype(dtype_name).bits, *((-1,) if low else ())) for op in ("shl", "shr")
        ]
        cases += [("min", dtype_name, high // 2), ("max", dtype_name, low)]
    for dtype_name in FLOATS:
        cases += [(op, dtype_name, value) for value in (0.0, -np.inf, np.nan, 1e-42) for op in ("div", "min", "max")]
    bodies = [
        lambda a, op=op, dtype_name=dtype_name, value=value: ir.binary(op, a, te.const(value, dtype_name))
        for op, dtype_name, value in cases
    ]
    turned = [
        lambda a, op=op, dtype_name=dtype_name, value=value: ir.binary(op, te.const(value, dtype_name), a)
        for op, dtype_name, value in cases
    ]
    types = [(dtype_name,) for _, dtype_name, _ in cases]
    check(pointwise([*bodies, *turned], types * 2, lanes), [INPUTS[dtype_name] for _, dtype_name, _ in cases] * 2)


@pytest.mark.parametrize("lanes", [0, 16])
def test_every_cast(lanes: int) -> None:
    cases = [(source, target) for source in TYPES for target in TYPES if source != target]
    bodies = [lambda a, to=to: te.cast(a, to) for _, to in cases]
    check(pointwise(bodies, [(source,) for source, _ in cases], lanes), [INPUTS[source] for source, _ in cases])


@pytest.mark.parametrize("dtype_name", FLOATS)
def test_floats_to_int64_as_arithmetic(dtype_name: str) -> None:
    """Near every power of two, where halves of 32 bits are halfway between two, and where it saturates."""
    rng = np.random.default_rng(8)
    powers = np.ldexp(1.0, np.arange(-2, 67)).astype(dtype_name)
    halves = (rng.integers(0, 1 << 21, 500) + 0.5) * 2.0**32
    parts = [
        powers,
        np.nextafter(powers, np.inf, dtype=dtype_name),
        np.nextafter(powers, 0, dtype=dtype_name),
        powers + powers.dtype.type(0.5),
    ]
    parts += [
        halves.astype(dtype_name),
        (rng.normal(size=5000) * 10.0 ** rng.uniform(-2, 20, 5000)).astype(dtype_name),
        INPUTS[dtype_name],
    ]
    values = np.concatenate(parts)
    x = ir.Buffer("x", (), dtype(dtype_name))
    for array in (values, -values):
        expected = evaluate_vector(te.cast(x[()], "int64"), {x: array})
        np.testing.assert_array_equal(evaluate_vector(to_int64(x[()]), {x: array}), expected)


@pytest.mark.parametrize("cpu", ["x86-64-v3"])
@pytest.mark.parametrize("lanes", [0, 16])
def test_casts_and_choices_of_avx2(lanes: int, cpu: str) -> None:
    """Loads on both sides of a choice lie inside their buffers, and need no guard."""
    bodies = [*[lambda a, b: te.cast(a, "int64") - te.cast(b, "int64")] * 2, lambda a, b: te.select(a < b, a, b)]
    types = [(dtype_name, dtype_name) for dtype_name in (*FLOATS, "float32")]
    inputs = [array for dtype_name, _ in types for array in (INPUTS[dtype_name], SECOND_INPUTS[dtype_name])]
    check(pointwise(bodies, types, lanes), inputs, PLAIN.__class__(threads=1, cpu=cpu))


def test_bitcasts() -> None:
    cases = [(a, b) for a in TYPES for b in TYPES if a != b and "bool" not in (a, b) and dtype(a).bytes == dtype(b).bytes]
    programs = pointwise([lambda a, to=to: te.bitcast(a, to) for _, to in cases], [(source,) for source, _ in cases], 16)
    inputs = [INPUTS[source] for source, _ in cases]
    for actual, expected in zip(Native(programs).run(inputs), run_reference(programs, inputs), strict=True):
        assert actual.tobytes() == expected.tobytes()


@pytest.mark.usefixtures("host")
@LANES
def test_fused_multiply_add(lanes: int) -> None:
    """Rounded once, also on processors without the instruction: the C library does it there."""
    for options in (PLAIN, PLAIN.__class__(threads=1, cpu="native")):
        types = [(dtype_name, dtype_name, dtype_name) for dtype_name in (*FLOATS, "int32", "uint8")]
        inputs = [
            array
            for dtype_name, *_ in types
            for array in (INPUTS[dtype_name], SECOND_INPUTS[dtype_name], np.roll(INPUTS[dtype_name], 11))
        ]
        check(pointwise([te.fma] * len(types), types, lanes), inputs, options)


@pytest.mark.usefixtures("host")
@LANES
def test_exponents_are_added(lanes: int) -> None:
    """By the processor's own instruction where it has one: rounded once, denormal and infinite results too."""
    types = [(dtype_name, dtype_name) for dtype_name in ("float32", "float64") for _ in range(2)]
    rng = np.random.default_rng(6)
    inputs = []
    for dtype_name, _ in types:
        limit = 2 * np.finfo(dtype_name).maxexp - 4
        mantissas = rng.uniform(0.25, 4, INPUTS[dtype_name].shape) * rng.choice([-1, 1], INPUTS[dtype_name].shape)
        inputs += [mantissas.astype(dtype_name), rng.integers(-limit, limit, INPUTS[dtype_name].shape).astype(dtype_name)]
    programs = pointwise([lambda x, n: te.math("scalb", x, n)] * len(types), types, lanes)
    for options in (PLAIN, PLAIN.__class__(threads=1, cpu="native")):
        check(programs, inputs, options)


@pytest.mark.parametrize("lanes", [0, 5])
def test_mathematical_functions(lanes: int) -> None:
    """Expanded into arithmetic, which the interpreter runs to the same bits."""
    cases = [(name, dtype_name) for name in ir.MATH for dtype_name in FLOATS if name != "scalb"]
    arity = {name: 2 if name in ("pow", "atan2") else 1 for name in ir.MATH}
    bodies = [lambda *a, name=name: te.math(name, *a) for name, _ in cases]
    types = [(dtype_name,) * arity[name] for name, dtype_name in cases]
    inputs = [array for name, dtype_name in cases for array in (INPUTS[dtype_name], SECOND_INPUTS[dtype_name])[: arity[name]]]
    programs = pointwise(bodies, types, lanes)
    for actual, expected, (name, dtype_name) in zip(
        Native(programs).run(inputs), run_reference(programs, inputs), cases, strict=True
    ):
        np.testing.assert_array_equal(actual, expected, err_msg=f"{name} of {dtype_name}")


# --- random expressions -----------------------------------------------------------------------------------------------


class Expressions:
    """Random expressions over one element of an input per type and the index of the element."""

    def __init__(self, draw: Callable[..., Any], inputs: dict[str, te.Tensor], i: Any) -> None:
        self.draw = draw
        self.inputs = inputs
        self.i = i
        self.expressions: dict[str, list[ir.Expr]] = {dtype_name: [] for dtype_name in TYPES}

    def number(self, low: int, high: int) -> int:
        value: int = self.draw(st.integers(low, high))
        return value

    def draw_expression(self, kind: str, depth: int) -> ir.Expr:
        """An expression of an element type; sometimes one made before, so that expressions share parts."""
        if self.expressions[kind] and not self.number(0, 3):
            return self.expressions[kind][self.number(0, len(self.expressions[kind]) - 1)]
        expression = self.leaf(kind) if depth == 0 else self.node(kind, depth - 1)
        self.expressions[kind].append(expression)
        return expression

    def leaf(self, kind: str) -> ir.Expr:
        element = dtype(kind)
        if self.number(0, 2) or (element.is_float and self.number(0, 1)):
            return self.inputs[kind][self.i]
        if element.is_float:
            return te.const(self.draw(st.sampled_from([0.0, 1.0, -2.5, np.nan, np.inf])), kind)
        if element.is_int and self.number(0, 1):
            return ir.Index(element, self.i * 37 - 5)
        return te.const(bool(self.number(0, 1)) if kind == "bool" else self.number(*element.limits), kind)

    def node(self, kind: str, depth: int) -> ir.Expr:
        element = dtype(kind)
        group = "float" if element.is_float else "bool" if kind == "bool" else "int"
        match self.number(0, 6):
            case 0 if group != "bool":
                return te.unary(self.pick(UNARY[group]), self.draw_expression(kind, depth))
            case 1:
                return te.cast(self.draw_expression(self.pick(TYPES), depth), kind)
            case 2:
                return te.select(
                    self.draw_expression("bool", depth), self.draw_expression(kind, depth), self.draw_expression(kind, depth)
                )
            case 3:
                # A guarded load: where the guard does not hold, the index lies outside.
                shifted = self.i + self.number(-4, 4)
                inside = ir.as_expr(_inside(shifted), dtype("bool"))
                return te.select(inside, self.inputs[kind][shifted], self.draw_expression(kind, depth))
            case 4 if group == "bool":
                other = self.pick(TYPES)
                return ir.binary(self.pick(ir.COMPARISONS), self.draw_expression(other, depth), self.draw_expression(other, depth))
        expression = ir.binary(self.pick(BINARY[group]), self.draw_expression(kind, depth), self.draw_expression(kind, depth))
        # The sign of the lesser of 0 and -0 is left open.
        return expression + te.const(0.0, kind) if group == "float" and expression.op in ("min", "max") else expression  # type: ignore[attr-defined]

    def pick(self, items: tuple[str, ...]) -> str:
        return items[self.number(0, len(items) - 1)]


def _inside(index: Any) -> Any:
    from inlaid_runtime import arith

    return arith.logical_and(arith.compare("<=", 0, index), arith.compare("<", index, COUNT))


@st.composite
def random_programs(draw: Callable[..., Any]) -> tuple[list[ir.LoopProgram], list[Array]]:
    programs, arrays = [], []
    for number in range(6):
        inputs = {dtype_name: te.placeholder((COUNT,), dtype_name, dtype_name) for dtype_name in TYPES}
        kind = draw(st.sampled_from(TYPES))
        depth = draw(st.integers(1, 5))
        lanes = draw(st.sampled_from([0, 3, 5, 8, 16, 20]))
        result = te.compute(
            (COUNT,),
            lambda i, inputs=inputs, kind=kind, depth=depth: Expressions(draw, inputs, i).draw_expression(kind, depth),
            "y",
        )
        program = lower([result], list(inputs.values()), f"random{number}")
        programs.append(vectorized(program, "y", lanes) if lanes else program)
        arrays += [INPUTS[dtype_name] for dtype_name in inputs]
    return programs, arrays


@settings(max_examples=25, deadline=None)
@given(random_programs())
def test_random_expressions(case: tuple[list[ir.LoopProgram], list[Array]]) -> None:
    check(*case)


def test_expressions_of_any_depth() -> None:
    """Fused kernels are thousands of nodes deep."""

    def deep(a: ir.Expr) -> ir.Expr:
        for _ in range(3000):
            a = a + te.const(1, "int32")
        return a

    def guarded(a: ir.Expr) -> ir.Expr:
        for _ in range(60):
            a = te.select(a < te.const(10, "int32"), a + te.const(1, "int32"), a)
        return a

    check(pointwise([deep, guarded], [("int32",), ("int32",)]), [INPUTS["int32"], INPUTS["int32"]])


def test_index_expressions_wrap() -> None:
    """An index as a value of a narrow type keeps its low bits, constants included."""
    bodies = [
        lambda a, dtype_name=dtype_name: a + ir.Index(dtype(dtype_name), ir.arith.wrap(300 - (1 << 20))) for dtype_name in INTEGERS
    ]
    check(pointwise(bodies, [(dtype_name,) for dtype_name in INTEGERS]), [INPUTS[dtype_name] for dtype_name in INTEGERS])


@pytest.mark.parametrize("dtype_name", ["int32", "int64", "uint32"])
def test_powers_of_one_base(dtype_name: str) -> None:
    """Of an integer that all elements share: LLVM compiles a chain of its squares in time that grows with the power."""
    base, exponents = (inlaid.var(name, inlaid.TensorType(shape, dtype_name)) for name, shape in (("a", (1,)), ("b", (5,))))
    model = inlaid.function([base, exponents], inlaid.ops.pow(base, exponents))
    arrays = {"a": np.array([3], dtype_name), "b": np.array([0, 1, 2, 20, 31], dtype_name)}
    (actual,) = inlaid.compile(model, ["x86:threads=1"]).run(arrays).values()
    assert actual.dtype == dtype_name
    assert actual.tolist() == (arrays["a"] ** arrays["b"]).tolist()
