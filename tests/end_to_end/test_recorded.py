"""The record of generated code: equal for equal compilers, and different where the code is."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import onnx
import pytest

import recorded
from inlaid.driver import loop_lowering
from inlaid.plugins.registry import default_registry
from inlaid.schedules.generic import GenericRule
from zoo.net import Net

KINDS = default_registry().kinds()
TARGETS = [
    target
    for target in ("x86:threads=1,cpu=x86-64-v3", "opencl:kind=gpu", "cuda:arch=sm_80", "microcontroller:cpu=cortex-m4")
    if target.partition(":")[0] in KINDS
]
needs_targets = pytest.mark.skipif(not TARGETS, reason='no plugin that generates code is installed: pip install "inlaid[x86]"')


def product(path: Path, name: str = "product") -> str:
    """The file of a model of one product, at a node of that name."""
    net = Net("product")
    x = net.input("x", (8, 16))
    net.output(net.node("MatMul", x, net.weight("w", (16, 32), 1.0), name=name), "y", (8, 32))
    path.parent.mkdir(exist_ok=True)
    onnx.save(net.build(), path)
    return str(path)


def compile_arguments(model: str) -> list[str]:
    return [model, *(word for target in TARGETS for word in ("--target", target))]


@needs_targets
def test_items_of_other_code_differ(tmp_path, monkeypatch, capsys):
    arguments, record = compile_arguments(product(tmp_path / "model.onnx")), str(tmp_path / "record.txt")
    assert recorded.main([*arguments, "-o", record]) == 0
    assert recorded.main([*arguments, "--check", record]) == 0
    assert "\n0 of " in capsys.readouterr().out
    monkeypatch.setattr(loop_lowering, "shared_rules", lambda capabilities: (GenericRule(),))
    assert recorded.main([*arguments, "--check", record]) == 1
    assert f"differs: {TARGETS[0]}\tmodel.onnx\tregion0" in capsys.readouterr().out


@needs_targets
def test_names_of_a_table_do_not_differ(tmp_path, capsys):
    before, after = (compile_arguments(product(tmp_path / name / "model.onnx", name)) for name in ("first", "third"))
    record, renames = str(tmp_path / "record.txt"), tmp_path / "renames.json"
    words = ("{}", "inlaid_{}", "model_{}", "model_{}_weights")
    renames.write_text(json.dumps({word.format("first"): word.format("third") for word in words}))
    assert recorded.main([*before, "-o", record]) == 0
    assert recorded.main([*after, "--check", record]) == 1
    assert recorded.main([*after, "--check", record, "--renames", str(renames)]) == 0, capsys.readouterr().out


def test_renames_are_of_whole_words_and_one_to_one():
    renames = recorded.Renames({"inlaid.driver": "inlaid.compiler", "place": "site"})
    assert renames("inlaid.compiler.site sites inlaid.compilers") == "inlaid.driver.place sites inlaid.compilers"
    with pytest.raises(ValueError, match="a different new name for each old name"):
        recorded.Renames({"a": "c", "b": "c"})


@needs_targets
def test_texts_of_another_checkout_are_shown(tmp_path, capsys):
    """The other checkout is a stand-in whose recorder writes this one's texts, but for a line of the package."""
    model, texts = product(tmp_path / "model.onnx"), tmp_path / "texts"
    case = [model, "--target", TARGETS[0]]
    assert recorded.main([*case, "--texts", str(texts)]) == 0
    package = texts / TARGETS[0] / "model.onnx" / "package"
    package.write_text(package.read_text() + "\nanother line")
    checkout = tmp_path / "checkout"
    (checkout / ".venv/bin").mkdir(parents=True)
    (checkout / ".venv/bin/python").symlink_to(os.path.realpath(sys.executable))
    (checkout / "benchmarks").mkdir()
    (checkout / "benchmarks/recorded.py").write_text(
        f"import shutil, sys\nshutil.copytree({str(texts)!r}, sys.argv[sys.argv.index('--texts') + 1])\n"
    )
    assert recorded.main([*case, "--against", str(checkout)]) == 1
    printed = capsys.readouterr().out
    assert f"{TARGETS[0]}\tmodel.onnx\tpackage\n" in printed and "\n-another line\n" in printed
    assert "\tregion" not in printed


def test_an_item_that_is_not_in_both_records_differs():
    first, second = (recorded.Item("x86", "model", name) for name in ("region0", "region1"))
    assert recorded.differences({first: "0", second: "1"}, {first: "0"}) == [second]
    assert recorded.differences({first: "0"}, {first: "2"}) == [first]
