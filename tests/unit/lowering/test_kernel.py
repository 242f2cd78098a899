"""Kernels of users' operators that are wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from inlay.errors import CompileError
from inlay.graph.ir import Span, var
from inlay.graph.operator import Operator
from inlay.lowering.kernel import KernelSource, build
from inlay.types import TensorType


@pytest.mark.parametrize(
    ("compute", "message", "cause"),
    [
        (lambda attrs, x: x.no_such_thing, "compute raised AttributeError", AttributeError),
        (lambda attrs: None, "compute raised TypeError", TypeError),
        (lambda attrs, x: {}["key"], "compute raised KeyError", KeyError),
        (lambda attrs, x: None, "must return tensors, not None", type(None)),
    ],
)
def test_a_compute_that_fails_is_named(compute: Callable[..., Any], message: str, cause: type) -> None:
    x = var("x", TensorType((2,), "float32"))
    call = Operator("my.broken", lambda attrs, x: x, compute=compute)(x, span=Span("m", "node"))
    with pytest.raises(CompileError, match=rf"{message}.*operator my\.broken, at m:node") as caught:
        build(KernelSource("kernel", (x,), call))
    assert isinstance(caught.value.__cause__, cause)
