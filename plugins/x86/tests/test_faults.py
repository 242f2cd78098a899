"""Data that a kernel must refuse: an error, never an access outside of a buffer."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from inlaid import ops
from inlaid.driver.compile import compile_module
from inlaid.graph.ir import Module, function, var
from inlaid_runtime.arith import SizeVar
from inlaid_runtime.errors import InputError, KernelFault
from inlaid_runtime.execution.executable import Executable
from inlaid_runtime.types import TensorType, from_numpy

pytestmark = pytest.mark.usefixtures("host")

X = np.arange(12, dtype=np.float32).reshape(3, 4)


def compiled(operator: str, *arrays: np.ndarray[Any, Any], symbolic: bool = False, **attrs: Any) -> Executable:
    params = []
    for number, array in enumerate(arrays):
        shape = tuple(SizeVar(f"d{number}{axis}") for axis in range(array.ndim)) if symbolic else array.shape
        params.append(var(f"x{number}", TensorType(shape, from_numpy(array.dtype))))
    return compile_module(Module({"main": function(params, ops.TABLE[operator](*params, **attrs))}), ["x86:threads=1"])


def run(executable: Executable, *arrays: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    (result, *_) = executable.run({f"x{number}": array for number, array in enumerate(arrays)}).values()
    return result


@pytest.mark.parametrize(
    ("operator", "index_shape", "further", "attrs"),
    [
        ("take", (2,), (), {"axis": 0}),
        ("take_along_axis", (1, 2), (), {"axis": 0}),
        ("gather_nd", (2, 1), (), {}),
        ("scatter_nd", (2, 1), ((2, 4),), {}),
        ("scatter_along_axis", (1, 2), ((1, 2),), {"axis": 0}),
    ],
)
@pytest.mark.parametrize("symbolic", [False, True])
def test_index_out_of_range(
    operator: str, index_shape: tuple[int, ...], further: tuple[tuple[int, ...], ...], attrs: dict[str, Any], symbolic: bool
) -> None:
    updates = [np.ones(shape, np.float32) for shape in further]
    good = np.array([-3, 2]).reshape(index_shape)
    fixed = symbolic and operator not in ("gather_nd", "scatter_nd")  # these need the last extent of the indices
    executable = compiled(operator, X, good, *updates, symbolic=fixed, **attrs)
    run(executable, X, good, *updates)
    for bad in (3, -4, 2**62, -(2**63)):
        with pytest.raises(KernelFault, match="index is out of range"):
            run(executable, X, np.array([0, bad]).reshape(index_shape), *updates)
    run(executable, X, good, *updates)


def test_length_out_of_range() -> None:
    executable = compiled("reverse_sequence", X, np.array([1, 2, 4]), batch_axis=0, time_axis=1)
    for bad in (-1, 5):
        with pytest.raises(KernelFault, match="index is out of range"):
            run(executable, X, np.array([1, bad, 4]))


def test_more_elements_than_there_are() -> None:
    executable = compiled("topk", X, symbolic=True, k=4, axis=0)
    with pytest.raises(InputError, match="k must be 0 to d00, got 4 where d00 is 3"):
        run(executable, X)
    assert run(executable, np.tile(X, (2, 1))).shape == (4, 4)


def test_dimensions_that_do_not_broadcast() -> None:
    executable = compiled("broadcast_to", X, symbolic=True, shape=(3, 4))
    assert np.array_equal(run(executable, X), X)
    assert np.array_equal(run(executable, X[:1]), np.tile(X[:1], (3, 1)))
    with pytest.raises(InputError, match="1 or 3 to broadcast, got 2"):
        run(executable, X[:2])
