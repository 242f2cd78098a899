"""The page docs/add-an-operator.md, followed to the letter in a copy of the sources, adds an operator by editing two files."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from inlaid.plugins.registry import default_registry

from .pages import page_blocks
from .steps import ROOT, apply_edit, copy_checkout, run_in

PAGE = ROOT / "docs" / "add-an-operator.md"
COPIED = ("core", "plugins/onnx", "tests", "tools", "docs")
"""Folders that the page's edits and commands write, or that find their files by their own place."""
CHECK = """
import sys

import numpy as np
import onnx
from onnx import helper

import inlaid
from inlaid import ops
from inlaid_conformance.levels.operators import CASES
from sphinx_inlaid import operators

assert inlaid.__file__.startswith(sys.argv[1]), inlaid.__file__
assert ops.hard_swish2.name in ops.TABLE
assert {f"operators/agrees[hard_swish2-{name}]" for name in ("float32", "bfloat16")} <= {case.id for case in CASES}
page = operators.render()
assert "### hard_swish2\\n\\nSwish with a piecewise linear gate" in page and "result = ops.hard_swish2(x)" in page
assert "Operand: x, float, any shape. Result: shape and dtype of x." in ops.hard_swish2.__doc__

array = np.linspace(-5, 5, 77, dtype=np.float32)
node = helper.make_node("HardSwish2", ["x"], ["y"], domain="com.example", slope=0.25)
x, y = (helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [77]) for name in "xy")
imports = [helper.make_opsetid("", 20), helper.make_opsetid("com.example", 1)]
model = helper.make_model(helper.make_graph([node], "g", [x], [y]), opset_imports=imports, ir_version=9)
for target in sys.argv[2:]:
    executable = inlaid.compile(model, targets=[target])
    assert {region.target for region in executable.regions} == {target}
    result = executable.run({"x": array})["y"]
    np.testing.assert_allclose(result, array * np.clip(array * 0.25 + 0.5, 0, 1), rtol=1e-6, atol=1e-6)
"""
"""What a user of the new operator sees. Arguments: the folder of the sources, and targets."""


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    """A folder like this checkout, whose files may be changed."""
    return copy_checkout(tmp_path / "checkout", COPIED)


def test_the_page_adds_an_operator(sources: Path) -> None:
    if shutil.which("make") is None:
        pytest.skip("needs make: apt-get install make")
    blocks = page_blocks(PAGE.read_text(encoding="utf-8"))
    edits = {apply_edit(sources, block.body) for block in blocks if block.language == "diff"}
    assert len(edits) == 2
    stale = run_in(sources, sys.executable, "tools/operator_stubs.py", "--check")
    assert stale.returncode == 1 and "run: make generate" in stale.stdout, stale.stderr

    generation = next(block.body for block in blocks if block.language == "console")
    assert generation == "$ make generate\n"
    process = run_in(sources, "make", "generate", f"BIN={Path(sys.executable).parent}", "DEVELOPING=")
    assert process.returncode == 0, process.stdout + process.stderr
    assert "hard_swish2: Final[_HardSwish2]" in (sources / "core/inlaid/ops/__init__.pyi").read_text(encoding="utf-8")
    changed = (
        path for path in (sources / "tests/golden").rglob("*.txt") if path.read_bytes() != original(sources, path).read_bytes()
    )
    assert [path.name for path in changed] == ["refusals.txt"]

    targets = [target for target in ("reference", "x86") if target in default_registry().kinds()]
    process = run_in(sources, sys.executable, "-c", CHECK, str(sources), *targets)
    assert process.returncode == 0, process.stdout + process.stderr
    for path in edits:
        difference = set(path.read_text(encoding="utf-8").splitlines()) - set(original(sources, path).read_text().splitlines())
        assert difference and all(len(line) <= 132 for line in difference)


def original(sources: Path, path: Path) -> Path:
    """The file of this checkout that a file of the copy was."""
    return ROOT / path.relative_to(sources)


def test_a_missing_part_is_an_error_that_says_what_to_add(sources: Path) -> None:
    """Without documentation, the package does not import; without examples, a test names the operator and the file."""
    blocks = [block.body for block in page_blocks(PAGE.read_text(encoding="utf-8")) if block.language == "diff"]
    family = {apply_edit(sources, body) for body in blocks if "activation.py" in body.splitlines()[0]}.pop()
    text = family.read_text(encoding="utf-8")
    documentation = next(line for line in text.splitlines(keepends=True) if 'doc="Swish' in line)
    family.write_text(text.replace(documentation, ""), encoding="utf-8")
    process = run_in(sources, sys.executable, "-c", "import inlaid.ops")
    assert "InlaidError: expected documentation of the operator, got none (operator hard_swish2); add doc=" in process.stderr
    assert "core/inlaid/ops/activation.py" in process.stderr and "KeyError" not in process.stderr

    examples = text[text.index("    examples=Examples(") : text.index("\n)\n", text.index("    examples=Examples(")) + 1]
    family.write_text(text.replace(examples, ""), encoding="utf-8")
    name = "tests/unit/ops/test_table.py::test_an_operator_has_examples[hard_swish2]"
    process = run_in(sources, sys.executable, "-m", "pytest", "-p", "no:xdist", name)
    assert (
        process.returncode == 1
        and "write examples=Examples(...) in its definition in core/inlaid/ops/activation.py" in process.stdout
    )
