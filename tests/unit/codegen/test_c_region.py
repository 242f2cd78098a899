"""Loop programs in C, bit for bit what the interpreter computes."""

from __future__ import annotations

import subprocess
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.computed_relations import CASES, check_target, x_with
from tests.plugin_registry import registry_with

from inlaid import ops
from inlaid.codegen.c_indices import index_text
from inlaid.codegen.c_kernel import Dialect, print_kernel
from inlaid.codegen.c_region import region_in_c
from inlaid.codegen.c_values import NATIVE
from inlaid.driver.compile import build_package
from inlaid.graph import ir as graph
from inlaid.lowering.kernels.finish import finish
from inlaid.lowering.region import RegionSource, lower_region
from inlaid.plugins import Accept, Capabilities, Codegen, Level, OpRule, TargetSpec, hookimpl
from inlaid.schedules.default import SHARED_RULES
from inlaid.tensor import interp, ir, te
from inlaid.tensor.build import Builder
from inlaid.tensor.lower import lower
from inlaid.tensor.region import KernelCall, RegionBuffer, RegionProgram, size_vars
from inlaid.tensor.scheduling.rule import KernelContext, Offer, Version
from inlaid_runtime import arith
from inlaid_runtime.arith import SizeVar
from inlaid_runtime.artifact import Artifact, DimSource, Signature, TensorSpec
from inlaid_runtime.errors import CompileError, InputError, KernelFault, Unsupported
from inlaid_runtime.execution.c_source import CSourceRuntime, find_compiler
from inlaid_runtime.types import ROW_MAJOR, TensorType, dtype

pytestmark = pytest.mark.skipif(find_compiler() is None, reason="there is no C compiler: apt-get install gcc")

FLOATS = ("float32", "float64")
INTEGERS = tuple(sorted(name for name in NATIVE if dtype(name).is_int))
OPERATIONS = {
    "int": (("neg", "abs", "not", "popcount", "clz"), ir.ARITHMETIC),
    "float": (("neg", "abs", "sqrt", "floor", "ceil", "round", "trunc"), ("add", "sub", "mul", "div", "mod", "min", "max")),
    "bool": (("not",), ("and", "or", "xor")),
}


ROW, COLUMN = arith.Var("i"), arith.Var("j")


def index_expressions():
    """Expressions of `ROW` and `COLUMN`, in which no divisor is zero."""

    def grown(parts):
        two = st.sampled_from([arith.add, arith.mul, arith.mul, arith.minimum, arith.maximum])
        divided = st.sampled_from([arith.floordiv, arith.floormod])
        return st.one_of(
            st.builds(lambda build, a, b: build(a, b), two, parts, parts),
            st.builds(lambda build, a, b: build(a, b), divided, parts, st.integers(1, 5)),
            st.builds(lambda a, b, c: arith.select(arith.compare("<", a, b), b, c), parts, parts, parts),
        )

    return st.recursive(
        st.one_of(st.integers(-5, 5).map(arith.Const), st.sampled_from([ROW, COLUMN, ROW // 2, COLUMN % 3])), grown, max_leaves=8
    )


def elements(dtype_name: str, seed: int) -> np.ndarray:
    """Values at the edges of an element type, and random ones, in a random order."""
    element, rng = dtype(dtype_name), np.random.default_rng(seed)
    if dtype_name == "bool":
        return rng.integers(0, 2, 64).astype(np.bool_)
    if element.is_float:
        info = np.finfo(element.numpy)
        edges = [0.0, -0.0, 1, -1, 0.5, -1.5, 2.5, np.inf, -np.inf, np.nan, info.max, info.min, info.tiny, info.smallest_subnormal]
        edges += [127.5, -128.5, 255.5, 2.0**31, -(2.0**31), 2.0**63, -(2.0**63), 2.0**64, 1e30, -1e30]
        samples = np.concatenate([edges, rng.normal(size=40) * 10.0 ** rng.integers(-3, 12, 40)]).astype(element.numpy)
    else:
        low, high = element.limits
        edges = [
            low,
            low + 1,
            high,
            high - 1,
            0,
            1,
            2,
            3,
            element.bits - 1,
            element.bits,
            *([-1, -2, -element.bits] if low else []),
        ]
        rest = rng.integers(low, high, 64, element.numpy, endpoint=True)
        samples = np.concatenate([np.array(edges, element.numpy), rest])[:64]
    return rng.permutation(samples)


def pointwise(name, body, *types):
    """A kernel that computes one element of 64 after another."""
    tensors = [te.placeholder((64,), dtype_name, f"x{number}") for number, dtype_name in enumerate(types)]
    return lower([te.compute((64,), lambda i: body(*(x[i] for x in tensors)), "y")], tensors, name)


def make_region(programs):
    """A region that calls each kernel once, on inputs and outputs of its own."""
    programs = list(map(finish, programs))
    buffers, calls, inputs, outputs, dims = [], [], [], [], {}

    def add(buffer, storage, specs):
        buffers.append(RegionBuffer(f"{storage}{len(specs)}", storage, buffer.shape, buffer.dtype, len(specs)))
        specs.append(TensorSpec(f"{storage}{len(specs)}", buffer.shape, buffer.dtype))
        return len(buffers) - 1

    for number, program in enumerate(programs):
        size_cells = {buffer for _, buffer in program.defines}
        for buffer in program.inputs:
            for axis, dim in enumerate(buffer.shape):
                if isinstance(dim, SizeVar):
                    dims.setdefault(dim, DimSource(dim.name, len(inputs), axis))
        input_numbers = tuple(add(buffer, "input", inputs) for buffer in program.inputs)
        output_numbers = tuple(add(buffer, "output", outputs) for buffer in program.outputs if buffer not in size_cells)
        defines = tuple(size for size, _ in program.defines)
        dims.update({size: DimSource(size.name, None, 0, size.upper) for size in defines})
        calls.append(KernelCall(number, input_numbers, output_numbers, size_vars(program), defines, (f"node{number}",)))
    return RegionProgram(
        "region", tuple(programs), tuple(calls), tuple(buffers), Signature(tuple(inputs), tuple(outputs), tuple(dims.values()))
    )


def load(region):
    artifact = Artifact(region.name, "c", 1, region_in_c(region), region.signature, region.constants, {"": region.workspace})
    return CSourceRuntime("c", 1).load(artifact, artifact.constants).kernel


def check(programs, arrays):
    """All kernels in one region give what the interpreter gives."""
    region = make_region(programs)
    expected = [output for program, inputs in zip(programs, arrays, strict=True) for output in interp.run(program, inputs)]
    results = [np.zeros_like(array) for array in expected]
    load(region).invoke([array for inputs in arrays for array in inputs], results, np.zeros(0, np.uint8), np.zeros(0, np.int64))
    names = [program.name for program in programs for _ in program.outputs]
    for name, output, expected_output in zip(names, results, expected, strict=True):
        np.testing.assert_array_equal(output, expected_output, err_msg=name, strict=True)
        if output.dtype.kind == "f":
            np.testing.assert_array_equal(
                np.signbit(output[expected_output == 0]), np.signbit(expected_output[expected_output == 0]), err_msg=name
            )


@pytest.mark.parametrize("dtype_name", sorted(NATIVE))
def test_arithmetic(dtype_name):
    kind = dtype(dtype_name).kind.replace("uint", "int")
    one, two = OPERATIONS[kind]
    programs = [pointwise(f"{dtype_name} {op}", lambda a, op=op: ir.unary(op, a), dtype_name) for op in one]
    arrays = [[elements(dtype_name, 0)] for _ in programs]
    binary = [*two, *ir.COMPARISONS]
    a, b = elements(dtype_name, 1), elements(dtype_name, 2)
    extremes = [op for op in two if op in ("min", "max") and kind == "float"]
    for op in binary:
        programs.append(pointwise(f"{dtype_name} {op}", lambda x, y, op=op: ir.binary(op, x, y), dtype_name, dtype_name))
        # Which of two zeros is less is not defined.
        arrays.append([np.where(a == 0, a.dtype.type(1), a), b] if op in extremes else [a, b])
    if kind == "float":
        tests = ("isnan", "isinf")
        programs += [
            pointwise(f"{dtype_name} {op}", lambda x, op=op: te.cast(ir.unary(op, x), "uint8"), dtype_name) for op in tests
        ]
        arrays += [[a]] * len(tests)
    programs.append(
        pointwise(f"{dtype_name} fma", lambda x, y, z: ir.fma(x, y, z), dtype_name, dtype_name, dtype_name)
    ) if kind != "bool" else None
    arrays += [[a, b, elements(dtype_name, 3)]] if kind != "bool" else []
    check(programs, arrays)


@pytest.mark.parametrize("source", sorted(NATIVE))
def test_conversions(source):
    targets = [name for name in sorted(NATIVE) if name != source]
    programs = [pointwise(f"{source} to {target}", lambda x, target=target: te.cast(x, target), source) for target in targets]
    bitcast_types = [
        name
        for name in sorted(NATIVE - {"bool"})
        if dtype(name).bytes == dtype(source).bytes and name != source and source != "bool"
    ]
    programs += [
        pointwise(f"{source} as {target}", lambda x, target=target: ir.bitcast(x, target), source) for target in bitcast_types
    ]
    check(programs, [[elements(source, 4)]] * len(programs))


@pytest.mark.parametrize("dtype_name", ["float16", "bfloat16", "float8e4m3fn", "int4"])
def test_narrow_types(dtype_name):
    wide = "int8" if dtype_name == "int4" else "float32"
    values = np.random.default_rng(5).integers(-8, 8, 64).astype(dtype(wide).numpy)
    narrow_values = values.astype(dtype(dtype_name).numpy)
    programs = [
        pointwise(f"{dtype_name} more", lambda x: te.cast(te.cast(x, wide) + 1, dtype_name), dtype_name),
        pointwise("to", lambda x: te.cast(x, dtype_name), wide),
    ]
    region = make_region(programs)
    results = [np.zeros(64, dtype(dtype_name).numpy) for _ in programs]
    load(region).invoke([narrow_values, values], results, np.zeros(0, np.uint8), np.zeros(0, np.int64))
    for program, array, result in zip(programs, (narrow_values, values), results, strict=True):
        (expected,) = interp.run(program, [array])
        np.testing.assert_array_equal(result.astype(np.float32), expected.astype(np.float32))


def test_constants_are_exact():
    values = {
        "float32": [0.1, 3.4e38, 1e39, 1e-45, -0.0, float("inf"), -float("inf"), float("nan")],
        "float64": [0.1, 1.7e308, 5e-324, float("inf")],
        "int64": [-(2**63), 2**63 - 1, 0, -1],
        "uint64": [2**64 - 1],
        "int8": [-128, 127],
        "bool": [True, False],
    }
    pairs = [(dtype_name, value) for dtype_name, listed in values.items() for value in listed]
    programs = [
        pointwise(f"{dtype_name} {value}", lambda x, dtype_name=dtype_name, value=value: te.const(value, dtype_name), "int8")
        for dtype_name, value in pairs
    ]
    check(programs, [[elements("int8", 0)]] * len(programs))


def no_variable(text: str) -> str:
    raise AssertionError(f"expected a short expression, got a variable for {text}")


def test_indices():
    i, n = arith.Var("i"), SizeVar("n")
    names = {i: "i", n: "n"}
    text = index_text((i * 3 - 4) // n + arith.minimum(i % 5, n), names.get, no_variable)
    assert text == "inlaid_floordiv(i * 3 - 4, n) + inlaid_min(inlaid_floormod(i, 5), n)"
    condition = arith.logical_and(arith.compare("<", i, n), arith.logical_not(arith.compare("==", i, 2)))
    assert index_text(condition, names.get, no_variable) in ("(i < n) && !(i == 2)", "(i < n) && (i != 2)")
    with pytest.raises(CompileError, match="is not in scope"):
        index_text(arith.Var("j"), names.get, no_variable)

    x = te.placeholder((40,), "int64", "x")
    values = [i - 20 for i in range(40)]
    body = te.compute((40,), lambda i: ir.Index(dtype("int64"), (i - 20) // 7 * 100 + (i - 20) % 7) + x[i], "y")
    check([lower([body], [x], "floors")], [[np.zeros(40, np.int64)]])
    assert [value // 7 * 100 + value % 7 for value in values] == interp.run(lower([body], [x], "f"), [np.zeros(40, np.int64)])[
        0
    ].tolist()


@pytest.mark.parametrize("depth", [12, 60, 700])
def test_common_parts_of_indices_have_variables(depth):
    """As a tree, the expression of depth 60 has 2^60 nodes; that of depth 700 exceeds the recursion limit."""
    n = SizeVar("n")
    expr = arith.wrap(n)
    for step in range(depth):
        expr = arith.maximum(expr // 2, expr % (step + 3)) + 1
    lines: list[str] = []

    def assigned(text: str) -> str:
        lines.append(text)
        return f"v{len(lines) - 1}"

    lines.append(index_text(expr, {n: "n"}.get, assigned))
    assert len("".join(lines)) < 150 * depth
    helpers = {
        "inlaid_max": max,
        "inlaid_floordiv": lambda a, b: a // b,
        "inlaid_floormod": lambda a, b: a % b,
    }
    for size in (0, 1, 7, 1000):
        values = {"n": size, **helpers}
        for number, line in enumerate(lines):
            values[f"v{number}"] = eval(line.replace(" / ", " // "), values)
        assert values[f"v{len(lines) - 1}"] == arith.evaluate(expr, {n: size})


@settings(deadline=None, max_examples=8)
@given(st.lists(index_expressions(), min_size=40, max_size=40))
def test_indices_bind_as_they_are_meant(exprs):
    """Values of which those below zero are known and those above are, so that divisions are printed in both ways."""
    x = te.placeholder((6, 7), "int64", "x")
    tensors = [
        te.compute(
            (6, 7), lambda i, j, expr=expr: ir.Index(dtype("int64"), arith.substitute(expr, {ROW: i, COLUMN: j - 3})) + x[i, j], "y"
        )
        for expr in exprs
    ]
    check(
        [lower([body], [x], f"index{number}") for number, body in enumerate(tensors)], [[np.zeros((6, 7), np.int64)]] * len(tensors)
    )


def guarded():
    """A load that is in range only where it is chosen, and an index that data gives."""
    x, at = te.placeholder((8,), "float32", "x"), te.placeholder((8,), "int64", "at")

    def element(i):
        inside = te.select(ir.Index(dtype("bool"), arith.compare("<", i, 7)), x[i + 1], te.const(-1, "float32"))
        return inside + x[te.checked(at[i], 0, 7)]

    return lower([te.compute((8,), element, "y")], [x, at], "guarded")


def test_what_is_not_chosen_is_not_read_and_indices_are_checked():
    x, at = np.arange(8, dtype=np.float32), np.array([7, 0, 1, 1, 5, 4, 3, 2])
    check([guarded()], [[x, at]])
    kernel = load(make_region([guarded()]))
    for bad in (8, -1, 2**62):
        at[3] = bad
        with pytest.raises(KernelFault, match="region region: an index is out of range in kernel guarded at node0"):
            kernel.invoke([x, at], [np.zeros(8, np.float32)], np.zeros(0, np.uint8), np.zeros(0, np.int64))


def test_buffers_hide_no_functions():
    """A buffer that is called as a function of C is, after the operator that computes it."""
    x = te.placeholder((64,), "float64", "while")
    program = lower([te.compute((64,), lambda i: ir.unary("floor", x[i]), "floor")], [x], "floor")
    check([program], [[elements("float64", 0)]])


STRICT = ("-std=c99", "-Wall", "-Wextra", "-Wconversion", "-Wno-unused-parameter", "-Werror", "-fsanitize=undefined", "-c")


def test_needs_no_flags_and_draws_no_warnings(tmp_path):
    """What may wrap is unsigned, and every conversion is written out."""
    programs = [pointwise(op, lambda x, y, op=op: ir.binary(op, x, y), "int32", "int32") for op in ir.ARITHMETIC]
    programs += [
        pointwise(f"to {dtype_name}", lambda x, dtype_name=dtype_name: te.cast(x, dtype_name), "float32") for dtype_name in INTEGERS
    ]
    source = tmp_path / "region.c"
    source.write_bytes(region_in_c(make_region([finish(program) for program in programs])))
    compiler = find_compiler()
    assert compiler is not None
    process = subprocess.run([compiler, *STRICT, "-o", "/dev/null", source], capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr


def test_statements():
    b = Builder()
    x, y = ir.Buffer("x", (6,), dtype("int64")), ir.Buffer("y", (6,), dtype("int64"))
    counters = b.alloc((2,), "int64", "kept")
    with b.loop(6, "i", ir.ForKind.PARALLEL) as i:
        b.store(counters, (0,), x[i])
        b.store(counters, (1,), te.const(0, "int64"))
        with b.while_(te.const(0, "int64") < counters[0]):
            b.store(counters, (1,), counters[1] + counters[0])
            b.store(counters, (0,), counters[0] - 2)
        with b.if_(counters[1].equal(6)):
            b.store(y, (i,), te.const(-6, "int64"))
        with b.else_():
            at = b.let(counters[1] % 3, "at", (0, 2))
            b.store(y, (i,), counters[1] * 10 + ir.Index(dtype("int64"), at))
    check([ir.LoopProgram("statements", (x,), (y,), b.finish())], [[np.array([0, 1, 4, 5, -3, 10])]])


def unlucky(stmt):
    x = ir.Buffer("x", (4,), dtype("float32"))
    return ir.LoopProgram("unlucky", (x,), (ir.Buffer("y", (4,), dtype("float32")),), stmt)


def test_what_c_lacks():
    loop = ir.For(arith.Var("i"), arith.wrap(4), ir.Seq(()), ir.ForKind.THREAD, "threadIdx.x")
    with pytest.raises(Unsupported, match="loop i: C has no thread loops"):
        print_kernel(unlucky(loop), "k")
    with pytest.raises(Unsupported, match="C has no tensor intrinsic 'gemm'"):
        print_kernel(unlucky(ir.Intrinsic("gemm", ())), "k")
    b = Builder()
    buffer, large = b.alloc((1 << 15,), "float32", "m"), unlucky(ir.Seq(()))
    b.store(large.outputs[0], (0,), buffer[0])
    with pytest.raises(Unsupported, match="must have a constant size of at most 65536 bytes"):
        print_kernel(replace(large, body=b.finish()), "k")


def test_numbers_are_compared_with_no_number_once_and_known_indices_not_at_all():
    b = Builder()
    x, at = ir.Buffer("x", (4,), dtype("float32")), ir.Buffer("at", (4,), dtype("int64"))
    y = ir.Buffer("y", (4,), dtype("float32"))
    with b.loop(4, "i") as i:
        index = b.let(at[i], "place", (0, 3))
        b.store(y, (index,), ir.binary("min", ir.binary("max", x[i], te.const(-1.0, "float32")), te.const(127.0, "float32")) + -1.5)
    program = ir.LoopProgram("clipped", (x, at), (y,), b.finish())
    check([program], [[np.array([0.5, np.nan, -3, 300], np.float32), np.array([3, 0, 2, 1])]])
    bounded_kernel = print_kernel(program, "k", Dialect("int32_t"), {1: (0, 3)}, names=("data", "indices", "output"))
    assert not bounded_kernel.checks
    assert "const int32_t place = (int32_t)indices[i];" in bounded_kernel.text
    assert "127.0f != 127.0f" not in bounded_kernel.text
    assert "output[place] = " in bounded_kernel.text
    assert " - 0x1.8p+0f;" in bounded_kernel.text
    unknown = print_kernel(program, "k", Dialect("int32_t"))
    assert unknown.checks
    assert "const int32_t place = v1 < INT32_MIN ? INT32_MIN : v1 > INT32_MAX ? INT32_MAX : (int32_t)v1;" in unknown.text


def lowered(body, *params):
    """A graph as loop programs, scheduled as those of a plugin without capabilities are."""
    context = KernelContext(Capabilities(tuple(NATIVE)), 1, ())
    return lower_region(
        RegionSource("region", graph.function(params, graph.tuple_([body]))), SHARED_RULES, context, lambda progress, total: None
    )


def test_sizes_known_later_and_an_arena():
    x = graph.var("x", TensorType((SizeVar("n", 1), 5), "float32"))
    region = lowered(ops.softmax(ops.matmul(x, graph.constant(np.ones((5, 3), np.float32))), axis=0), x)
    kernel = load(region)
    assert region.workspace != 0
    for rows in (1, 7):
        array = np.random.default_rng(rows).normal(size=(rows, 5)).astype(np.float32)
        result, workspace = (
            np.zeros((rows, 3), np.float32),
            np.zeros(arith.evaluate(region.workspace, {SizeVar("n"): rows}), np.uint8),
        )
        kernel.invoke([array], [result], workspace, np.array([rows], np.int64))
        shares = np.exp(array.sum(1))
        np.testing.assert_allclose(result, np.repeat((shares / shares.sum())[:, None], 3, 1), rtol=1e-5)


def test_sizes_that_the_region_works_out():
    x = graph.var("x", TensorType((9,), "int64"))
    region = lowered(ops.nonzero(x), x)
    kernel = load(region)
    values = np.array([0, 3, 0, 1, 1, 0, 0, 0, 2])
    dims, result = np.zeros(1, np.int64), np.zeros((1, 9), np.int64)
    kernel.invoke([values], [result], np.zeros(1 << 12, np.uint8), dims)
    assert dims.tolist() == [4] and result.reshape(-1)[:4].tolist() == [1, 3, 4, 8]


def test_equal_regions_give_equal_bytes():
    assert region_in_c(make_region([guarded()])) == region_in_c(make_region([guarded()]))


@pytest.mark.parametrize("rows", [0, 1, 2, 9])
def test_branches(rows):
    """By a flag, by a size, and by both."""
    n, flag = SizeVar("n"), graph.var("flag", TensorType((), "bool"))
    x = graph.var("x", TensorType((n, 3), "float32"))
    one = arith.compare("==", n, 1)

    def lower_body(body):
        (kernel,) = lower_region(
            RegionSource("alone", graph.function([x], graph.tuple_([body]))), (), KernelContext(Capabilities(("float32",)))
        ).kernels
        return kernel

    class Rule:
        name = "versions"

        def offer(self, program, context, inputs):
            return Offer(
                (ROW_MAJOR,) * 2,
                lambda program: lower_body(ops.neg(x)),
                versions=(Version(one, lambda program: lower_body(ops.floor(x))),),
            )

    body = graph.if_(flag, ops.abs(x), x)
    source = RegionSource("region", graph.function([x, flag], graph.tuple_([body])))
    region = lower_region(source, (Rule(),), KernelContext(Capabilities(("float32", "bool"), branches=True)))
    kernel, values = load(region), np.random.default_rng(rows).standard_normal((rows, 3)).astype(np.float32)
    for value in (True, False):
        result = np.zeros_like(values)
        dims = np.array([rows], np.int64)
        kernel.invoke([values, np.array(value)], [result], np.zeros(64, np.uint8), dims)
        np.testing.assert_array_equal(result, values if not value else np.floor(values) if rows == 1 else -values)


@pytest.fixture(scope="module")
def c_target():
    """A registry with a target whose code generator prints regions."""

    @hookimpl
    def inlaid_targets():
        return [TargetSpec("c", "of a test", lambda options: Capabilities(tuple(NATIVE)), Level.LOOP)]

    @hookimpl
    def inlaid_op_rules(target):
        return [OpRule("*", "all", lambda call: Accept())] if target.kind == "c" else ()

    class CCodegen(Codegen):
        def compile(self, unit, context):
            return Artifact(unit.name, "c", 1, region_in_c(unit), unit.signature, unit.constants, {"": unit.workspace})

    @hookimpl
    def inlaid_codegen(target):
        return CCodegen()

    @hookimpl
    def inlaid_runtime(target):
        return CSourceRuntime("c", 1)

    return registry_with("c", inlaid_targets, inlaid_op_rules, inlaid_codegen, inlaid_runtime)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_relations_of_computed_sizes(case, c_target):
    check_target(case, "c", c_target)


def test_a_violation_ends_the_region(c_target):
    """The kernel that reads a size which violates a condition does not run: its result keeps its bytes."""
    case = next(case for case in CASES if case.name == "concat")
    (artifact,) = build_package(case.module(), ["c"], c_target, keep=False).artifacts
    assert artifact.constraints and [source.name for source in artifact.signature.dims][:2] == ["N", "M"]
    kernel = c_target.runtime(c_target.target("c")).load(artifact, artifact.constants).kernel
    result, dims = np.full((2, 6), 77), np.array([6, 2, 0], np.int64)
    with pytest.raises(InputError, match=r"got 4 where .* is 4, M is 2 \(operator concat, at model:node"):
        kernel.invoke([x_with(4), np.full(2, 10)], [result], np.zeros(1 << 12, np.uint8), dims)
    assert (result == 77).all() and dims.tolist() == [6, 2, 4]
