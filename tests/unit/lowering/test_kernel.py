"""Kernels of users' operators that are wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from inlaid.graph.ir import Span, var
from inlaid.graph.operator import Operator
from inlaid.lowering.kernels.kernel import KernelSource, build
from inlaid.tensor import te
from inlaid_runtime.errors import CompileError
from inlaid_runtime.types import TensorType


@pytest.mark.parametrize(
    ("compute", "message", "cause"),
    [
        (lambda attrs, x: x.no_such_thing, "compute raised AttributeError", AttributeError),
        (lambda attrs: None, "compute raised TypeError", TypeError),
        (lambda attrs, x: {}["key"], "compute raised KeyError", KeyError),
        (lambda attrs, x: None, "must return tensors, found None", type(None)),
        (lambda attrs, x: te.compute((3,), lambda i: x[i]), r"must return .*found .*\(3,\), float32", type(None)),
        (lambda attrs, x: te.compute((2, 1), lambda i, j: x[i]), r"must return .*found .*\(2, 1\), float32", type(None)),
        (lambda attrs, x: te.compute((2,), lambda i: te.cast(x[i], "int32")), r"must return .*found .*\(2,\), int32", type(None)),
        (lambda attrs, x: (x, x), "must return .*found ", type(None)),
    ],
)
def test_a_compute_that_fails_is_named(compute: Callable[..., Any], message: str, cause: type) -> None:
    x = var("x", TensorType((2,), "float32"))
    call = Operator("my.broken", lambda attrs, x: x, compute=compute)(x, span=Span("m", "node"))
    with pytest.raises(CompileError, match=rf"{message}.*operator my\.broken, at m:node") as caught:
        build(KernelSource("kernel", (x,), call))
    assert isinstance(caught.value.__cause__, cause)
