"""OpenBLAS behind the contract: what it takes and why not the rest, the C that calls it, and networks that it shares."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

import inlaid
from inlaid import ops
from inlaid.driver import compile_module, cut
from inlaid.graph import ir
from inlaid.partitioning.explain import explain
from inlaid_runtime.arith import SizeVar
from inlaid_runtime.execution.c_source import find_compiler
from inlaid_runtime.types import TensorType
from zoo import GENERATED, feeds

needs_library = pytest.mark.skipif(find_compiler() is None, reason="there is no C compiler: apt-get install gcc")
library = pytest.importorskip("scipy_openblas32", reason="scipy-openblas32 is not installed")


def var(*shape, name="x", dtype="float32"):
    return ir.var(name, TensorType(shape, dtype))


def weights(*shape, seed=0):
    return ir.constant(np.random.default_rng(seed).uniform(-1, 1, shape).astype(np.float32))


def module(body):
    params = dict.fromkeys(expr for expr in ir.post_order(body) if isinstance(expr, ir.Var))
    return ir.Module({"main": ir.function(tuple(params), body)})


PRODUCTS = {
    "one row": (ops.matmul(var(1, 7), weights(7, 5)), 1),
    "one number": (ops.matmul(var(1, 1), weights(1, 1)), 1),
    "rows of several matrices": (ops.matmul(var(2, 3, 4), weights(4, 13)), 1),
    "several matrices": (ops.matmul(var(2, 5, 3, 4), var(2, 5, 4, 3, name="y")), 1),
    "bias": (ops.add(ops.matmul(var(17, 9), weights(9, 11)), weights(11, seed=1)), 1),
    "bias that is given": (ops.add(var(11, name="b"), ops.matmul(var(17, 9), weights(9, 11))), 1),
    "relu": (ops.relu(ops.matmul(var(6, 9), weights(9, 11))), 1),
    "bias, then relu": (ops.relu(ops.add(ops.matmul(var(3, 5, 9), weights(9, 11)), weights(11, seed=1))), 1),
    "one after another": (ops.matmul(ops.relu(ops.matmul(var(3, 9), weights(9, 8))), weights(8, 2)), 2),
    "large": (ops.matmul(var(130, 257), weights(257, 131)), 1),
}


@needs_library
@pytest.mark.parametrize("name", PRODUCTS)
def test_products(vendors, name):
    body, count = PRODUCTS[name]
    executable = compile_module(module(body), ["blas"], vendors)
    assert [region.target for region in executable.regions] == ["blas"]
    (artifact,) = executable.package.artifacts
    assert artifact.code.count(b"sgemm(101") == count
    generator = np.random.default_rng(1)
    arrays = {spec.name: generator.uniform(-1, 1, spec.shape).astype(np.float32) for spec in executable.inputs}
    for key, expected in compile_module(module(body), ["reference"], vendors).run(arrays).items():
        np.testing.assert_allclose(executable.run(arrays)[key], expected, rtol=0, atol=1e-4 * np.abs(expected).max() + 1e-5)


REFUSED = {
    "doubles": (ops.matmul(var(3, 4, dtype="float64"), var(4, 2, name="y", dtype="float64")), "element type float64 is not"),
    "vectors": (ops.matmul(var(4), weights(4, 2)), "expected matrices, found a vector"),
    "repeated": (ops.matmul(var(1, 3, 4), weights(2, 4, 3)), "expected operands without broadcasting"),
    "empty": (ops.matmul(var(3, 0), weights(0, 2)), "expected matrix sizes from 1"),
    "sizes known later": (ops.matmul(var(SizeVar("n", 1), 4), weights(4, 2)), "are not static"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_it_refuses_and_why(vendors, name):
    body, reason = REFUSED[name]
    report = explain(*cut(module(body), ["blas"], vendors))
    assert not [region for region in report.regions if region.target == "blas"]
    assert any(reason in words for operator in report.operators for target, words in operator.verdicts if target == "blas")


@needs_library
def test_a_bias_of_another_shape_stays_outside(vendors):
    body = ops.add(ops.matmul(var(5, 4), weights(4, 3)), weights(1))
    report = explain(*cut(module(body), ["blas"], vendors))
    assert {operator.operator: operator.target for operator in report.operators} == {"matmul": "blas", "add": "reference"}


@needs_library
def test_a_transformer_shared_with_x86(vendors):
    if "x86" not in vendors.kinds():
        pytest.skip("the x86 plugin is not installed")
    model = GENERATED["vit_b16"].tiny()
    arrays = feeds(model, 3)
    shared = compile_module(inlaid.load(model), ["blas:threads=2", "x86:threads=1"], vendors)
    assert {region.target for region in shared.regions} == {"blas:threads=2", "x86:threads=1"}
    for key, expected in compile_module(inlaid.load(model), ["reference"], vendors).run(arrays).items():
        np.testing.assert_allclose(shared.run(arrays)[key], expected, rtol=0, atol=1e-3 * np.abs(expected).max())


@needs_library
def test_a_package_runs_without_the_compiler(vendors, tmp_path):
    body, _ = PRODUCTS["bias, then relu"]
    path = tmp_path / "model.inlaid"
    compile_module(module(body), ["blas"], vendors).save(path)
    program = f"""
import sys
sys.path[:0] = {sys.path!r}
import importlib.metadata as metadata
sys.modules["inlaid"] = None
import numpy as np
from inlaid_runtime.plugins.registry import RuntimeRegistry
from inlaid_runtime.execution.executable import Executable
from inlaid_runtime.execution.package import read_package
from pathlib import Path
registry = RuntimeRegistry.discover([metadata.EntryPoint("blas", "inlaid_blas.runtime_plugin", "inlaid.runtimes")])
(result,) = Executable(read_package(Path({str(path)!r})), registry=registry).run({{"x": np.ones((3, 5, 9), np.float32)}}).values()
assert result.shape == (3, 5, 11)
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_without_a_compiler(vendors, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    status = vendors.probe(vendors.target("blas"))
    assert not status.available and "no C compiler" in status.detail
