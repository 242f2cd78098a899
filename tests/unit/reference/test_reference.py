"""The reference target gives the interpreter's answers, before and after a package."""

from __future__ import annotations

import dataclasses
import random

import numpy as np
import pytest
from tests.computed_relations import CASES, check_target

from inlaid import ops
from inlaid.graph import ir
from inlaid.graph.operator import Operator
from inlaid.plugins import Accept, Region, Reject
from inlaid.plugins.registry import default_registry
from inlaid.reference.codegen import ReferenceCodegen, accepts
from inlaid.reference.runtime import ReferenceRuntime
from inlaid_runtime import Executable, Package, load
from inlaid_runtime.arith import SizeVar
from inlaid_runtime.artifact.plan import Invoke, Plan, Program, RegionInfo, Value
from inlaid_runtime.errors import InlaidError, InputError, PackageError, Unsupported
from inlaid_runtime.types import OptionalType, SequenceType, TensorType, dtype

N = SizeVar("n")


def build(function: ir.Function, inputs: list[Value], outputs: list[Value]) -> Executable:
    """A model of one region on the reference target."""
    registry = default_registry()
    target = registry.target("reference")
    artifact = registry.codegen(target).compile(Region("region0", function, target), None)
    values = (*inputs, *outputs)
    numbers = tuple(range(len(inputs))), tuple(range(len(inputs), len(values)))
    plan = Plan(
        "main",
        values,
        tuple((f"x{number}", number) for number in numbers[0]),
        tuple((f"y{index}", number) for index, number in enumerate(numbers[1])),
        (Invoke("region0", *numbers),),
    )
    return Executable(Package(Program({"main": plan}, (RegionInfo("region0", "reference", ("node",)),)), (artifact,), {}))


def tensor(storage, shape, dtype_name="float32"):
    return Value(storage, dtype(dtype_name), shape)


def test_probe_and_capabilities():
    registry = default_registry()
    target = registry.target("reference")
    assert registry.probe(target).available
    assert {"float32", "bfloat16", "string", "sequence"} <= set(registry.capabilities(target).dtypes)


def test_a_region_before_and_after_a_package(tmp_path):
    x = ir.var("x", TensorType((N, 30), "float32"))
    weight = ir.constant(np.random.default_rng(0).standard_normal((30, 4)).astype(np.float32))
    model = build(
        ir.function([x], ir.tuple_([ops.relu(ops.matmul(x, weight)), x])),
        [tensor("input", (N, 30))],
        [tensor("output", (N, 4)), tensor("output", (N, 30))],
    )
    model.save(tmp_path / "m.inlaid")
    for each in (model, load(tmp_path / "m.inlaid")):
        data = np.random.default_rng(1).standard_normal((5, 30)).astype(np.float32)
        result = each.run({"x0": data})
        np.testing.assert_allclose(result["y0"], np.maximum(data @ weight.data, 0), rtol=1e-5)
        np.testing.assert_array_equal(result["y1"], data)
        assert not np.shares_memory(result["y1"], data)
        with pytest.raises(InputError):
            each.run({"x0": data[:, :3]})


def test_results_whose_size_data_decides(tmp_path):
    x = ir.var("x", TensorType((N,), "float32"))
    positions = ops.nonzero(x)
    size = positions.type.shape[1]
    model = build(ir.function([x], positions), [tensor("input", (N,))], [tensor("output", (1, size), "int64")])
    model.save(tmp_path / "m.inlaid")
    for each in (model, load(tmp_path / "m.inlaid")):
        assert each.run({"x0": np.array([0, 1, 0, 2], np.float32)})["y0"].tolist() == [[1, 3]]
        assert each.run({"x0": np.zeros(3, np.float32)})["y0"].shape == (1, 0)


def test_sequences_optionals_and_strings(tmp_path):
    element = TensorType((2,), "float32")
    sequence = ir.var("s", SequenceType(element))
    maybe = ir.var("o", OptionalType(element))
    text = ir.var("t", TensorType((2,), "string"))
    host = Value("host", None)
    model = build(ir.function([sequence, maybe, text], ir.tuple_([sequence, maybe, text])), [Value("input", None)] * 3, [host] * 3)
    model.save(tmp_path / "m.inlaid")
    for each in (model, load(tmp_path / "m.inlaid")):
        arrays = [np.ones(2, np.float32)]
        result = each.run({"x0": arrays, "x1": None, "x2": np.array(["a", "b"])})
        assert result["y0"][0].tolist() == [1, 1]
        assert not np.shares_memory(result["y0"][0], arrays[0])
        assert result["y1"] is None
        assert result["y2"].tolist() == ["a", "b"]


def test_an_operator_of_the_user_is_refused():
    operator = Operator("acme.twice", lambda attrs, x: x, reference=lambda attrs, x: 2 * x)
    x = ir.var("x", TensorType((2,), "float32"))
    assert isinstance(accepts(ops.relu(x)), Accept)
    assert isinstance(accepts(operator(x)), Reject)
    with pytest.raises(Unsupported, match=r"acme\.twice is not one of Inlaid's operators"):
        ReferenceCodegen().compile(Region("r", ir.function([x], operator(x)), default_registry().target("reference")), None)


@pytest.mark.parametrize(
    "code", [b"", b"\xff", b"def @region0(", b"def @other(%x: Tensor[(2), float32]) -> Tensor[(2), float32] {"]
)
def test_code_that_is_no_graph(code):
    x = ir.var("x", TensorType((2,), "float32"))
    region = Region("region0", ir.function([x], ops.relu(x)), default_registry().target("reference"))
    artifact = dataclasses.replace(ReferenceCodegen().compile(region, None), code=code)
    with pytest.raises(PackageError, match="region region0 is not a valid graph"):
        ReferenceRuntime().load(artifact, {})


def test_mutated_graphs_are_refused_or_run():
    x = ir.var("x", TensorType((N, 4, 3), "float32"))
    weight = ir.constant(np.arange(36, dtype=np.float32).reshape(3, 12))
    body = ops.transpose(ops.relu(ops.matmul(x, weight)), perm=(1, 0, 2))
    region = Region("r", ir.function([x], ir.tuple_([body, ops.nonzero(body)])), default_registry().target("reference"))
    artifact = ReferenceCodegen().compile(region, None)
    text = artifact.code.decode()
    words = ["0", "-1", "9" * 20, "(", ")", "relu", "%0", "none", "n", "?k", "1e400", "float64", '"', "{", "true"]
    chance = random.Random(0)
    refused = 0
    for _ in range(300):
        changed = text
        for _ in range(chance.randint(1, 2)):
            where = chance.randrange(len(changed))
            changed = changed[:where] + chance.choice([*words, ""]) + changed[where + chance.randint(0, 4) :]
        try:
            kernel = ReferenceRuntime().load(dataclasses.replace(artifact, code=changed.encode()), artifact.constants)
            kernel.allocating.call([np.ones((2, 4, 3), np.float32)])
        except InlaidError:
            refused += 1
    assert refused > 200


def test_equal_regions_give_equal_bytes():
    x = ir.var("x", TensorType((2,), "float32"))
    region = Region("region0", ir.function([x], ops.relu(x)), default_registry().target("reference"))
    assert ReferenceCodegen().compile(region, None).code == ReferenceCodegen().compile(region, None).code


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_relations_of_computed_sizes(case):
    check_target(case, "reference")
