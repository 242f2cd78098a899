"""Pickling and copying of executables, modules, sizes and arrays, and packages in memory."""

from __future__ import annotations

import copy
import dataclasses
import io
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from inlaid import ops
from inlaid.driver.compile import compile_module
from inlaid.graph import ir
from inlaid.graph.interp import evaluate
from inlaid.graph.text import print_module
from inlaid_runtime import Executable, aligned_empty, arith
from inlaid_runtime import load as load_package
from inlaid_runtime.arith import SizeVar
from inlaid_runtime.errors import InputError, PackageError
from inlaid_runtime.types import TensorType

WEIGHTS = np.arange(9, dtype=np.float32).reshape(3, 3)
ROWS = SizeVar("rows", 1, 8)


def module() -> ir.Module:
    x = ir.var("x", TensorType((ROWS, 3), "float32"))
    return ir.Module({"main": ir.function([x], ops.relu(ops.matmul(x, ir.constant(WEIGHTS))))})


@pytest.fixture(scope="module")
def executable() -> Executable:
    return compile_module(module(), ["reference"])


X = np.array([[1, 0, -2], [0, 1, 0]], np.float32)
PRODUCT = np.maximum(X @ WEIGHTS, 0)


def pickled(value: Any) -> Any:
    return pickle.loads(pickle.dumps(value))


@pytest.mark.parametrize("way", [pickled, copy.copy, copy.deepcopy])
def test_executables(executable: Executable, way: Any) -> None:
    other = way(executable)
    assert np.array_equal(other.run({"x": X})["output0"], PRODUCT)
    assert repr(other) == repr(executable) and other.inputs == executable.inputs


@pytest.mark.parametrize("way", [pickled, copy.copy, copy.deepcopy])
def test_modules(way: Any) -> None:
    original = module()
    other = way(original)
    assert np.array_equal(evaluate(other, {"x": X}), PRODUCT)
    assert print_module(other)[0] == print_module(original)[0]
    (rows, _), (bounded, _) = other.main.params[0].shape, original.main.params[0].shape
    assert (rows.lower, rows.upper) == (bounded.lower, bounded.upper) == (1, 8)


def test_operators_of_users_are_refused() -> None:
    operator = dataclasses.replace(ops.TABLE["add"])
    x = ir.var("x", TensorType((2,), "float32"))
    module = ir.Module({"main": ir.function([x], ir.call(operator, [x, x]))})
    with pytest.raises(InputError, match=r"its operator 'add' is not one of inlaid.ops; compile the module and pickle the exec"):
        pickle.dumps(module)
    assert np.array_equal(evaluate(copy.deepcopy(module), [np.float32([1, 2])]), [2, 4])
    with pytest.raises(InputError, match=r"an expression cannot be pickled: .*; pickle a Module of a function"):
        pickle.dumps(module.main)
    assert copy.deepcopy(module.main) is module.main


def test_integer_expressions() -> None:
    m, i = SizeVar("m"), arith.Var("i")
    expr = arith.select(arith.compare("<", m, 5), arith.maximum(m // 2, 3), m % 4) * ROWS - arith.minimum(m, 9)
    for value in (0, 4, 7):
        assert arith.evaluate(pickled(expr), {m: value, ROWS: 2}) == arith.evaluate(expr, {m: value, ROWS: 2})
    assert pickled(expr) == expr and copy.deepcopy(expr) is expr and hash(pickled(ROWS)) == hash(ROWS)
    one, two = pickled((i, i + 1))
    assert one in arith.free_vars(two) and one != i


INTEGERS = [f"{sign}int{bits}" for sign in ("", "u") for bits in (4, 8, 16, 32, 64)]
TYPES = ["float16", "bfloat16", "float32", "float64", "bool", *INTEGERS]


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("way", [pickled, copy.copy, copy.deepcopy])
def test_arrays(dtype: str, way: Any) -> None:
    """Arrays that are copied, and results, are inputs as before."""
    x = ir.var("x", TensorType((2, 3), dtype))
    other = compile_module(ir.Module({"main": ir.function([x], ops.transpose(x, perm=(1, 0)))}), ["reference"])
    value = aligned_empty((2, 3), x.type.dtype.numpy)
    value[...] = np.array([[0, 1, 2], [3, 4, 5]]) % (2 if dtype == "bool" else 8)
    (result,) = other.run({"x": way(value)}).values()
    assert result.dtype == value.dtype and np.array_equal(result, value.T)
    (again,) = other.run({"x": np.ascontiguousarray(way(result).T)}).values()
    assert np.array_equal(again, value.T)


@pytest.mark.parametrize("way", [pickled, copy.copy, copy.deepcopy])
def test_strings(way: Any) -> None:
    x = ir.var("x", TensorType((2,), "string"))
    other = compile_module(ir.Module({"main": ir.function([x], ops.concat(x, x, axis=0))}), ["reference"])
    (result,) = other.run({"x": way(np.array(["a", "b"], object))}).values()
    assert way(result).tolist() == ["a", "b", "a", "b"]


# --- packages in memory ---------------------------------------------------------------------------------------------------


def test_packages_in_memory(executable: Executable, tmp_path: Path) -> None:
    path = tmp_path / "model.inlaid"
    executable.save(path)
    content = path.read_bytes()
    for package in (path, str(path), content, bytearray(content), memoryview(content), io.BytesIO(content)):
        assert np.array_equal(load_package(package).run({"x": X})["output0"], PRODUCT)
    strided = memoryview(bytes(byte for pair in zip(content, content, strict=True) for byte in pair))[::2]
    typed = memoryview(np.frombuffer(content, "V1"))
    for view in (strided, typed):
        assert np.array_equal(load_package(view).run({"x": X})["output0"], PRODUCT)
    with path.open("rb") as file:
        loaded = load_package(file)
    path.unlink()
    assert np.array_equal(loaded.run({"x": X})["output0"], PRODUCT)


def test_what_is_no_package_in_memory(executable: Executable, tmp_path: Path) -> None:
    path = tmp_path / "model.inlaid"
    executable.save(path)
    content = path.read_bytes()
    remedy = r'; give its path, its bytes or open\(path, "rb"\)'
    for damaged in (b"", content[:100], content[:-1], content[:400] + b"?" + content[401:], b"x" * 4096):
        with pytest.raises(PackageError, match="<bytes> is not a valid package"):
            load_package(damaged)
    with pytest.raises(PackageError, match="<bytes>: expected SHA-256 00, got"):
        load_package(content, expect_sha256="00")
    with pytest.raises(InputError, match=f"expected a package, got 3{remedy}"):
        load_package(3)  # type: ignore[arg-type] # to be refused
    for errors in ("strict", "replace"):
        text = path.open(encoding="utf-8", errors=errors)
        with text, pytest.raises(InputError, match=rf"whose read\(\) returns str{remedy}"):
            load_package(text)  # type: ignore[arg-type] # to be refused
    with open(path, "ab") as unreadable, pytest.raises(PackageError, match="cannot read"):
        load_package(unreadable)
