"""The record of generated code: the same for the same compiler, and different where the code is."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

import recorded
from inlaid.driver import context
from inlaid.plugins.registry import default_registry
from inlaid.schedules.generic import GenericRule
from zoo.net import Net

TARGETS = [target for target in recorded.TARGETS if target.partition(":")[0] in default_registry().kinds()]


def product(path: Path, name: str) -> str:
    """The file of a model of one product. Its kernel in C is named by its node."""
    net = Net("product")
    x = net.input("x", (8, 16))
    net.output(net.node("MatMul", x, net.weight("w", (16, 32), 1.0), name=name), "y", (8, 32))
    onnx.save(net.build(), path)
    return str(path)


@pytest.mark.skipif(not TARGETS, reason='no plugin that generates code is installed: pip install "inlaid[x86]"')
def test_code_is_compared_by_kernel(tmp_path, monkeypatch, capsys):
    model, record = product(tmp_path / "model.onnx", "first"), tmp_path / "record.json"
    arguments = [model, *(word for target in TARGETS for word in ("--target", target))]
    assert recorded.main([*arguments, "-o", str(record)]) == 0
    assert recorded.main([*arguments, "--check", str(record)]) == 0
    assert f"the code of {len(TARGETS)} models is the same" in capsys.readouterr().out
    monkeypatch.setattr(context, "shared_rules", lambda capabilities: (GenericRule(),))
    assert recorded.main([*arguments, "--check", str(record)]) == 1
    assert "texts differ, the first is 0/0" in capsys.readouterr().out


@pytest.mark.parametrize("target", TARGETS)
def test_names_of_kernels_do_not_matter(tmp_path, target):
    first, second = (
        recorded.record(recorded.load(product(tmp_path / f"{name}.onnx", name)), target) for name in ("first", "second")
    )
    assert first["0/0"] == second["0/0"]


def test_a_text_that_is_not_in_both_records_differs():
    assert recorded.differences({"a": {}, "b": {"0/0": "x"}}, {"b": {"0/0": "x"}}) == ["a: only in one record"]
    grown = recorded.differences({"b": {"0/0": "x"}}, {"b": {"0/0": "x", "0/1": "y"}})
    assert grown == ["b: 1 of 1 texts differ, the first is 0/1"]
