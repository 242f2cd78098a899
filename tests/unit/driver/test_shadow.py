"""Shadow mode finds the operator that a target gets wrong, and nothing where it gets all right."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.unit.partitioning.fakes import plugin, registry_of, taking

from inlay import ops
from inlay.driver.shadow import shadow
from inlay.graph import ir
from inlay.graph.ir import Span
from inlay.types import TensorType

X = ir.var("x", TensorType((2, 3), "float32"))
INPUTS = {"x": np.array([[-1, 2, -3], [4, -5, 6]], np.float32)}


def model() -> ir.Module:
    turned = ops.neg(ops.relu(X, span=Span("m", "act")), span=Span("m", "turn"))
    top = ops.topk(turned, k=2, axis=1, span=Span("m", "top"))
    body = ops.add(ops.exp(ir.tuple_item(top, 0), span=Span("m", "exp")), ir.constant(np.float32(1)))
    return ir.Module({"main": ir.function([X], body)})


def test_all_is_right() -> None:
    judges = {"a": taking("relu", "add", "topk"), "b": taking("neg")}
    found = shadow(model(), INPUTS, list(judges), registry_of(judges))
    assert found.difference is None and found.compared == 5
    (result,) = found.outputs
    np.testing.assert_allclose(result, np.exp(np.array([[0, 0], [0, -4]], np.float32)) + 1, rtol=1e-6)


def test_x86_is_right() -> None:
    pytest.importorskip("inlay_x86", reason="needs the x86 target: pip install -e plugins/x86")
    found = shadow(model(), INPUTS, ["x86:threads=1"])
    assert found.difference is None and found.compared == 1


@pytest.mark.parametrize(("wrong", "node"), [("neg", "turn"), ("topk", "top"), ("exp", "exp")])
def test_the_operator_that_is_wrong_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, wrong: str, node: str) -> None:
    judges = {"a": taking("relu", "neg", "exp", "add", "topk")}
    registry = registry_of(judges)
    _sabotage(monkeypatch, registry, wrong)
    found = shadow(model(), INPUTS, ["a"], registry).difference
    assert found is not None
    assert (found.operator, found.node, found.target) == (wrong, f"m:{node}", "a")
    assert f"{wrong} at m:{node}" in str(found)
    found.save(tmp_path / "inputs.npz")
    with np.load(tmp_path / "inputs.npz") as saved:
        assert saved["x0"].shape[0] == 2


def test_a_region_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    judges = {"a": taking("relu")}
    registry = registry_of(judges)
    _sabotage(monkeypatch, registry, "relu", fails=True)
    found = shadow(model(), INPUTS, ["a"], registry).difference
    assert found is not None and found.operator == "relu" and "it failed: " in found.error


def _sabotage(monkeypatch: pytest.MonkeyPatch, registry: Any, operator: str, *, fails: bool = False) -> None:
    """Let target a add one to every result of kernels that hold an operator, or fail there."""
    real = registry.runtime

    class Wrong:
        def __init__(self, inner: Any) -> None:
            self.inner = inner

        def check(self, artifact: Any) -> str | None:
            return self.inner.check(artifact)  # type: ignore[no-any-return]

        def load(self, artifact: Any, constants: Mapping[str, Any]) -> Any:
            kernel = self.inner.load(artifact, constants)
            if f"{operator}(" not in artifact.code.decode():
                return kernel

            class Kernel:
                def call(self, inputs: Any) -> Any:
                    if fails:
                        raise RuntimeError("out of order")
                    return [np.asarray(item + 1, item.dtype) for item in kernel.call(inputs)]

            return Kernel()

    def runtime(target: Any, *args: Any, **kwargs: Any) -> Any:
        found = real(target, *args, **kwargs)
        return Wrong(found) if target.kind == "a" else found

    monkeypatch.setattr(registry, "runtime", runtime)
    assert plugin
