"""The Python API, as its documentation shows it."""

from __future__ import annotations

import gc
import json
import subprocess
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import inlaid
from inlaid.attributes import DISTRIBUTIONS
from inlaid.support.collector import COLLECTIONS
from inlaid.tensor import te
from inlaid_runtime import arith
from inlaid_runtime.errors import InputError, KernelFault, ModelImportError, TargetError

W = np.arange(12, dtype=np.float32).reshape(3, 4) - 5
X = np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)
RIGHT = np.maximum(X @ W, 0)


def proto(batch: int | str = 2) -> onnx.ModelProto:
    """relu(x w)."""
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"], name="product"), helper.make_node("Relu", ["h"], ["y"], name="act")]
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [batch, size]) for name, size in (("x", 3), ("y", 4))]
    graph = helper.make_graph(nodes, "small", infos[:1], infos[1:], [numpy_helper.from_array(W, "w")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("api")
    onnx.save(proto(), folder / "small.onnx")
    onnx.save(proto("batch"), folder / "open.onnx")
    return folder


def test_load_compile_run_save(path: Path, tmp_path: Path) -> None:
    module = inlaid.load(path / "small.onnx")
    assert isinstance(module, inlaid.Module) and [param.name for param in module.main.params] == ["x"]
    executable = inlaid.compile(module, targets=["x86:threads=1"])
    assert isinstance(executable, inlaid.Executable)
    results = executable.run({"x": X})
    assert list(results) == ["y"] and results["y"].dtype == np.float32
    np.testing.assert_allclose(results["y"], RIGHT, rtol=1e-6)
    executable.save(tmp_path / "small.inlaid")
    again = inlaid.runtime.load(tmp_path / "small.inlaid")
    assert again.run({"x": X})["y"].tobytes() == results["y"].tobytes()
    assert [spec.name for spec in again.inputs] == ["x"] and [spec.shape for spec in again.outputs] == [(2, 4)]
    measured = again.profile({"x": X})
    assert measured.seconds > 0 and "product" in measured.table()


def test_what_a_model_may_be(path: Path) -> None:
    """A path, text or not; a model in memory, as an object or as bytes; a module; a function."""
    model = proto()
    for source in (path / "small.onnx", str(path / "small.onnx"), model, model.SerializeToString(), inlaid.load(model)):
        np.testing.assert_allclose(inlaid.compile(source, ["reference"]).run({"x": X})["y"], RIGHT, rtol=1e-6)
    x = inlaid.var("x", inlaid.TensorType((3, 3), "float32"))
    executable = inlaid.compile(inlaid.function([x], inlaid.ops.relu(x)), ["x86:threads=1"])
    assert executable.run({"x": -np.eye(3, dtype=np.float32)})["output0"].tolist() == np.zeros((3, 3)).tolist()
    for name in ("model.tflite", "model.pt", "model.inlaid"):
        with pytest.raises(ModelImportError, match=name):
            inlaid.load(name)


def test_dimensions(path: Path) -> None:
    """Fixed, bounded, or left open."""
    sizes = {}
    for name, dims in (("fixed", {"batch": 2}), ("bounded", {"batch": (1, 8)}), ("open", None)):
        executable = inlaid.compile(path / "open.onnx", ["x86:threads=1"], dims=dims)
        np.testing.assert_allclose(executable.run({"x": X})["y"], RIGHT, rtol=1e-6)
        sizes[name] = executable.inputs[0].shape[0]
    assert sizes["fixed"] == 2 and repr(sizes["bounded"]) == repr(sizes["open"]) == "batch"
    for size in (1, 5):
        assert executable.run({"x": np.ones((size, 3), np.float32)})["y"].shape == (size, 4)
    bounded = inlaid.compile(path / "open.onnx", ["x86:threads=1"], dims={"batch": (1, 8)})
    with pytest.raises(InputError, match="batch"):
        bounded.run({"x": np.ones((9, 3), np.float32)})
    with pytest.raises(InputError, match=r"give dims to inlaid\.load"):
        inlaid.compile(inlaid.load(path / "open.onnx"), dims={"batch": 1})


@pytest.mark.parametrize(
    ("size", "why"),
    [
        ("4", "expected an integer size"),
        (2.0, "expected an integer size"),
        (True, "expected an integer size"),
        (None, "expected an integer size"),
        ((1, None), "expected an integer size"),
        ((1, 2, 3), r"expected a size or \(minimum, maximum\)"),
        ((8, 1), "expected minimum <= maximum"),
        (-1, "expected a size >= 1 and <= "),
        (0, "expected a size >= 1 and <= "),
        ((0, 0), "expected a size >= 1 and <= "),
        ((-1, 4), "expected a size >= 0 and <= "),
        (2**63, "expected a size >= 1 and <= "),
    ],
)
def test_dimensions_that_are_none(path: Path, size: Any, why: str) -> None:
    for source in (path / "open.onnx", (path / "open.onnx").read_bytes()):
        with pytest.raises(InputError, match=f"{why}.* for dimension 'batch', got "):
            inlaid.compile(source, ["reference"], dims={"batch": size})
    with pytest.raises(InputError, match="dimension 'batch'"):
        inlaid.load(path / "open.onnx", {"batch": size})


def test_arguments_of_a_wrong_kind(path: Path) -> None:
    wrong: Any
    for wrong in (["batch"], 5, {1: 2}):
        with pytest.raises(InputError, match="give sizes by name"):
            inlaid.compile(path / "open.onnx", dims=wrong)
    for wrong in (5, None, [path / "small.onnx"]):
        with pytest.raises(InputError, match=f"got an object of type {type(wrong).__name__}; give the path of a model file, ONNX"):
            inlaid.compile(wrong)
    for wrong in ([1], 5, [None]):
        for source in (path / "small.onnx", proto()):
            with pytest.raises(TargetError, match="expected a list of target strings"):
                inlaid.compile(source, wrong)
    executable = inlaid.compile(path / "open.onnx", "reference", dims={"batch": np.int64(2)})  # type: ignore[dict-item]
    assert [info.target for info in executable.regions] == ["reference"] and executable.inputs[0].shape == (2, 3)
    with pytest.raises(InputError, match="the model has no input 1; input 'x' is missing"):
        executable.run({1: X})  # type: ignore[dict-item]
    for wrong in ([X], X):
        with pytest.raises(InputError, match=r"out must be a dictionary of arrays by name, got .*; pass \{name: array\}"):
            executable.run({"x": X}, out=wrong)
    for wrong in ([X], X, None):
        for use in (executable.run, executable.profile, executable.workspace_bytes):
            with pytest.raises(InputError, match=r"expected a dictionary of inputs by name, got .*x: float32\[2, 3\]"):
                use(wrong)


def test_saving_where_no_file_can_be(path: Path) -> None:
    executable = inlaid.compile(path / "small.onnx", ["reference"])
    for destination in (path, "."):
        with pytest.raises(InputError, match="it is a folder"):
            executable.save(destination)


def test_partition(path: Path) -> None:
    module = inlaid.partition(path / "small.onnx", ["x86:threads=1"])
    assert set(module.functions) == {"main", "region0_x86"}
    assert module["region0_x86"].attr("target") == "x86:threads=1"


def test_targets(path: Path) -> None:
    """In order of priority, with options after a colon."""
    executable = inlaid.compile(path / "small.onnx", ["reference", "x86"])
    assert [region.target for region in executable.regions] == ["reference"]
    with pytest.raises(TargetError, match="no target 'gpu' is installed"):
        inlaid.compile(path / "small.onnx", ["gpu"])


def test_progress(path: Path) -> None:
    entries: list[tuple[str, int, int]] = []
    inlaid.compile(path / "small.onnx", ["x86:threads=1"], progress=lambda *entry: entries.append(entry), cache=False)
    stages = list(dict.fromkeys(stage for stage, _, _ in entries))
    assert stages[:2] == ["import", "partition"] and stages[-1] == "load" and any("region0_x86" in stage for stage in stages)
    assert all(0 <= count <= total for _, count, total in entries)


def test_garbage_is_collected_rarely_while_a_model_compiles(path: Path) -> None:
    before, during = gc.get_threshold(), set()
    gc.set_threshold(700, 10, 10)
    try:
        inlaid.compile(path / "small.onnx", ["reference"], progress=lambda *_: during.add(gc.get_threshold()), cache=False)
        assert during == {COLLECTIONS} and gc.get_threshold() == (700, 10, 10)
    finally:
        gc.set_threshold(*before)


# --- building models --------------------------------------------------------------------------------------------------


def test_builder() -> None:
    """Control flow, functions and tuples, written in Python."""
    ops, scalar = inlaid.ops, inlaid.TensorType((), "float32")
    n = inlaid.SizeVar("n", 1, 100)
    x, limit = inlaid.var("x", inlaid.TensorType((n, 3), "float32")), inlaid.var("limit", scalar)
    total = ops.reduce_sum(x, axes=(0, 1))
    choice = inlaid.if_(ops.less(total, limit), ops.neg(x), x)
    v = inlaid.var("v", scalar)
    square = inlaid.function([v], ops.mul(v, v))
    i, state = inlaid.var("i", inlaid.TensorType((), "int64")), inlaid.var("state", scalar)
    body = inlaid.function([i, state], inlaid.tuple_([inlaid.constant(True), inlaid.call(square, [state])]))
    power = inlaid.tuple_item(inlaid.loop(body, state=[total], trip_count=inlaid.constant(np.int64(2))), 0)
    bound = inlaid.var("bound", scalar)
    result = inlaid.let(bound, power, inlaid.tuple_([choice, ops.add(bound, bound)]))
    executable = inlaid.compile(inlaid.function([x, limit], result), ["x86:threads=1"])
    for rows, threshold in ((1, 100.0), (4, -100.0)):
        value = np.full((rows, 3), 0.5, np.float32)
        chosen, twice = executable.run({"x": value, "limit": np.float32(threshold)}).values()
        np.testing.assert_array_equal(chosen, -value if threshold > 0 else value)
        assert twice == 2 * value.sum() ** 4


@dataclass(frozen=True)
class ShiftAttrs(inlaid.Attrs):
    """by: how far."""

    by: int = 1


def shifted(attrs: ShiftAttrs, x: te.Tensor) -> te.Tensor:
    """Each element takes the value of one further on; behind the end, of the last."""
    (extent,) = x.shape
    result: te.Tensor = te.compute((extent,), lambda i: x[arith.minimum(i + attrs.by, extent - 1)], "shifted")
    return result


SHIFT = inlaid.Operator(
    "test.shift",
    lambda attrs, x: x,
    ShiftAttrs,
    reference=lambda attrs, x: x[np.minimum(np.arange(len(x)) + attrs.by, len(x) - 1)],
    compute=shifted,
)


def test_an_operator_of_ones_own() -> None:
    """By a tensor expression it runs natively, fused with Inlaid's own operators."""
    x = inlaid.var("x", inlaid.TensorType((5,), "float32"))
    model = inlaid.function([x], inlaid.ops.neg(SHIFT(inlaid.ops.relu(x), by=2)))
    executable = inlaid.compile(model, ["x86:threads=1"])
    assert [region.target for region in executable.regions] == ["x86:threads=1"]
    value = np.array([5, -4, 3, -2, 1], np.float32)
    assert executable.run({"x": value})["output0"].tolist() == [-3, 0, -1, -1, -1]
    looked_up = inlaid.Operator(
        "test.lookup",
        lambda attrs, x, at: inlaid.TensorType(at.shape, x.dtype),
        compute=lambda attrs, x, at: te.compute(at.shape, lambda i: x[te.checked(at[i], 0, x.shape[0] - 1)], "lookup"),
        arity=(2, 2),
    )
    at = inlaid.var("at", inlaid.TensorType((2,), "int64"))
    executable = inlaid.compile(inlaid.function([x, at], looked_up(x, at)), ["x86:threads=1"])
    assert executable.run({"x": value, "at": np.array([4, 0])})["output0"].tolist() == [1, 5]
    with pytest.raises(KernelFault, match="an index is out of range in kernel test"):
        executable.run({"x": value, "at": np.array([5, 0])})


# --- what it costs to import ------------------------------------------------------------------------------------------


def python(code: str) -> str:
    process = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=120, check=False
    )
    assert process.returncode == 0, process.stderr
    return process.stdout


def test_importing_costs_nothing() -> None:
    """Nothing that takes long to import is imported; `benchmarks/compile.py` prints the time."""
    code = """
        import json, sys
        import inlaid
        heavy = {"numpy", "onnx", "ml_dtypes", "pluggy", "llvmlite", "rich", "click"} & set(sys.modules)
        print(json.dumps(sorted(heavy)))
    """
    assert json.loads(python(code)) == []


def test_the_core_imports_no_vendor_library(path: Path) -> None:
    """Not even with the x86 plugin installed, as long as no one asks for x86."""
    code = f"""
        import sys
        import numpy as np
        import inlaid
        from inlaid.plugins.registry import default_registry
        executable = inlaid.compile({str(path / "small.onnx")!r}, ["reference"])
        executable.run({{"x": np.ones((2, 3), np.float32)}})
        registry = default_registry()
        assert "x86" in registry.kinds() and registry.op_rules(registry.target("x86"))
        print(sorted(name for name in sys.modules if name.partition(".")[0] in ("llvmlite", "torch", "cuda")))
    """
    assert python(code) == "[]\n"


def test_everything_that_is_exported_exists() -> None:
    for name in inlaid.__all__:
        assert getattr(inlaid, name) is not None
    assert dir(inlaid) == sorted({*inlaid.__all__, *DISTRIBUTIONS})
    with pytest.raises(AttributeError, match="no attribute 'tune'"):
        _ = inlaid.tune  # type: ignore[attr-defined]
