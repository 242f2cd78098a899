"""Whole models on devices: runs, packages, faults and memory."""

import gc
import json
import threading

import numpy as np
import pytest
from tests.computed_relations import CASES, check_target

import inlaid
from inlaid import ops
from inlaid.graph import ir
from inlaid.graph.interp import evaluate
from inlaid_opencl.options import KINDS
from inlaid_runtime import load
from inlaid_runtime.arith import SizeVar
from inlaid_runtime.errors import InputError, KernelFault, OutOfMemory, TargetError, Unsupported
from inlaid_runtime.execution.device_memory import DeviceArray
from inlaid_runtime.types import TensorType

pytestmark = pytest.mark.usefixtures("device")
WEIGHTS = np.random.default_rng(0).uniform(-1, 1, (7, 9)).astype(np.float32)
N = SizeVar("n")


def perceptron():
    """softmax(relu(x @ w)), for any number of rows."""
    x = ir.var("x", TensorType((N, 7), "float32"))
    return ir.function((x,), ops.softmax(ops.relu(ops.matmul(x, ir.constant(WEIGHTS))), axis=1))


def gather():
    """Rows of a table by number."""
    x, i = ir.var("x", TensorType((5, 3), "float32")), ir.var("i", TensorType((4,), "int64"))
    return ir.function((x, i), ops.neg(ops.take(x, i, axis=0)))


def compiled(function, target="opencl", **more):
    return inlaid.compile(ir.Module({"main": function}), targets=[target], cache=False, **more)


def rows(count, seed=0):
    return np.random.default_rng(seed).uniform(-1, 1, (count, 7)).astype(np.float32)


def reference_output(x):
    outputs = evaluate(perceptron(), [x])
    return outputs[0] if isinstance(outputs, tuple) else outputs


@pytest.fixture(scope="module", params=KINDS)
def executable(request):
    return compiled(perceptron(), f"opencl:kind={request.param}")


def result(outputs):
    (value,) = outputs.values()
    return value.numpy() if isinstance(value, DeviceArray) else value


def test_every_kind_at_several_sizes(executable):
    assert {region.target.split(":")[0] for region in executable.regions} == {"opencl"}
    for count in (3, 1, 40, 0, 3):
        np.testing.assert_allclose(result(executable.run({"x": rows(count)})), reference_output(rows(count)), rtol=1e-5, atol=1e-6)


def test_values_stay_on_the_device(executable):
    device_input = executable.to_device("x", rows(5))
    first = executable.run({"x": device_input}, keep_on_device=True)
    np.testing.assert_allclose(result(first), reference_output(rows(5)), rtol=1e-5, atol=1e-6)
    (name,) = first
    device_input.assign(rows(5, seed=1))
    assert executable.run({"x": device_input}, out=first)[name] is first[name]
    np.testing.assert_allclose(result(first), reference_output(rows(5, seed=1)), rtol=1e-5, atol=1e-6)


def test_threads(executable):
    wrong = []

    def work(seed):
        for turn in range(20):
            x = rows(1 + (seed + turn) % 3, seed)
            if not np.allclose(result(executable.run({"x": x})), reference_output(x), rtol=1e-5, atol=1e-6):
                wrong.append((seed, turn))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_profiles(executable):
    profile = executable.profile({"x": rows(50)})
    kernels = [event for event in profile.events if event.kind == "kernel"]
    assert kernels and all(0 < event.seconds < profile.seconds for event in kernels)
    assert json.loads(profile.chrome_trace())["traceEvents"]


def test_runs_do_not_grow(device):
    executable = compiled(perceptron())
    for turn in range(40):
        executable.run({"x": rows(1 + turn % 5)})
    gc.collect()
    live = device.live
    for turn in range(1000):
        executable.run({"x": rows(1 + turn % 5)}, keep_on_device=turn % 3 == 0)
    gc.collect()
    assert device.live == live


def test_an_index_out_of_range():
    executable = compiled(gather())
    x = np.arange(15, dtype=np.float32).reshape(5, 3)
    right = {"x": x, "i": np.array([0, 4, 2, 2])}
    for _ in range(2):
        np.testing.assert_array_equal(result(executable.run(right)), -x[right["i"]])
        with pytest.raises(KernelFault, match="an index is out of range in kernel") as caught:
            executable.run({"x": x, "i": np.array([0, 5, 2, 2])})
        assert caught.value.plugin == "opencl"


def test_no_room(device, monkeypatch):
    executable = compiled(perceptron())
    executable.run({"x": rows(3)})
    with monkeypatch.context() as patch:
        patch.setattr(device, "total", device.live + 1000)
        with pytest.raises(OutOfMemory, match="bytes free"):
            executable.run({"x": rows(1000)})
    np.testing.assert_allclose(result(executable.run({"x": rows(3)})), reference_output(rows(3)), rtol=1e-5, atol=1e-6)


def test_a_package(tmp_path, device):
    path = tmp_path / "model.inlaid"
    compiled(perceptron()).save(path)
    first, second = load(path), load(path, devices={"opencl": 0})
    for executable in (first, second):
        np.testing.assert_allclose(result(executable.run({"x": rows(2)})), reference_output(rows(2)), rtol=1e-5, atol=1e-6)
    with pytest.raises(TargetError, match="opencl device number must be 0 to"):
        load(path, devices={"opencl": 99})


def test_a_device_that_lacks_what_the_code_needs(tmp_path, device, monkeypatch):
    from inlaid_opencl import runtime

    path = tmp_path / "model.inlaid"
    compiled(perceptron()).save(path)
    monkeypatch.setattr(runtime, "missing", lambda requires, facts: "the code needs more")
    with pytest.raises(Unsupported, match="cannot run on opencl here: the code needs more; compile with the option kind"):
        load(path)


def test_loops_and_branches(device):
    """Loops are run by the host, with their state on the device."""
    x = ir.var("x", TensorType((3, 4), "float32"))
    positive = ops.less(ir.constant(np.float32(0)), ops.reduce_sum(x, axes=(0, 1)))
    executable = compiled(ir.function((x,), ops.abs(ir.if_(positive, ops.exp(ops.relu(x)), ops.neg(x)))))
    array = np.linspace(-1, 2, 12, dtype=np.float32).reshape(3, 4)
    for value in (array, -array):
        expected = np.exp(np.maximum(value, 0)) if value.sum() > 0 else np.abs(value)
        np.testing.assert_allclose(result(executable.run({"x": value})), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_a_donated_value_is_updated_where_it_lies(device, kind):
    x, i, u = (
        ir.var(name, TensorType(shape, dtype))
        for name, shape, dtype in (("x", (50, 7), "float32"), ("i", (3, 1), "int64"), ("u", (3, 7), "float32"))
    )
    function = ir.function((x, i, u), ops.scatter_nd(x, i, ops.relu(u)))
    executable = compiled(function, f"opencl:kind={kind}", donate=["x"])
    expected, numbers, rows = np.zeros((50, 7), np.float32), np.array([[3], [7], [40]]), np.ones((3, 7), np.float32)
    cache = executable.to_device("x", expected)
    for step in range(3):
        device_results = executable.run({"x": cache, "i": numbers + step, "u": rows * step}, keep_on_device=True)
        expected[numbers[:, 0] + step] = rows * step
        assert next(iter(device_results.values())) is cache
    np.testing.assert_array_equal(cache.numpy(), expected)


def test_sizes_that_data_decides(device):
    x = ir.var("x", TensorType((12,), "float32"))
    where = ops.nonzero(ops.less(ir.constant(np.float32(0)), x))
    executable = compiled(ir.function((x,), ops.mul(where, ir.constant(np.int64(2)))))
    for seed in range(4):
        array = np.random.default_rng(seed).uniform(-1, 1, 12).astype(np.float32)
        np.testing.assert_array_equal(result(executable.run({"x": array})).reshape(-1), 2 * np.flatnonzero(array > 0))


def shaped():
    """Relu, reshape to a shape that an input gives, and top-k with a k that an input gives."""
    import onnx

    make = onnx.helper
    nodes = [make.make_node("Relu", ["x"], ["y"]), make.make_node("Reshape", ["y", "shape"], ["z"])]
    nodes += [make.make_node("TopK", ["z", "k"], ["v", "i"], axis=1), make.make_node("Neg", ["y"], ["w"])]
    inputs = [make.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["rows", 6])]
    inputs += [make.make_tensor_value_info(name, onnx.TensorProto.INT64, [extent]) for name, extent in (("shape", 2), ("k", 1))]
    types = {"z": onnx.TensorProto.FLOAT, "v": onnx.TensorProto.FLOAT, "i": onnx.TensorProto.INT64, "w": onnx.TensorProto.FLOAT}
    results = [make.make_tensor_value_info(name, onnx_type, [f"{name}0", f"{name}1"]) for name, onnx_type in types.items()]
    graph = make.make_graph(nodes, "g", inputs, results)
    return make.make_model(graph, opset_imports=[make.make_opsetid("", 20)], ir_version=9)


def shaped_input(rows, columns, k):
    x = np.random.default_rng(rows).uniform(-1, 1, (rows, 6)).astype(np.float32)
    return {"x": x, "shape": np.array([-1, columns]), "k": np.array([k])}


@pytest.mark.parametrize("kind", KINDS)
def test_sizes_that_inputs_give_as_values(tidy, kind):
    """Shapes and k are read by the host; tensors of these sizes have their memory on the device in each run."""
    model = shaped()
    executable = inlaid.compile(model, targets=[f"opencl:kind={kind}"], cache=False)
    assert {region.target.split(":")[0] for region in executable.regions} == {"opencl"}
    reference = inlaid.compile(model, targets=["reference"], cache=False)
    for rows, columns, k in ((2, 4, 3), (1, 6, 0), (40, 3, 3), (0, 2, 1), (7, 42, 5)):
        feeds = shaped_input(rows, columns, k)
        for name, expected in reference.run(feeds).items():
            np.testing.assert_array_equal(executable.run(feeds)[name], expected)
    with pytest.raises(InputError, match=r"k must be 0 to .*, got 5"):
        executable.run(shaped_input(2, 4, 5))
    with pytest.raises(KernelFault, match="must be 0 to"):
        executable.run(shaped_input(2, 4, -1))
    del executable


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_relations_of_computed_sizes(case):
    check_target(case, "opencl")
