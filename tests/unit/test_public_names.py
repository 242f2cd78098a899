"""Completion and types for all that is public: at run time by `dir`, in editors and type checkers by annotations and a stub."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

import inlaid
from inlaid import ops
from inlaid.attributes import DISTRIBUTIONS

ROOT = Path(__file__).parents[2]
CORE = Path(inlaid.__file__).parent


def test_names_are_completed_at_run_time() -> None:
    assert set(dir(inlaid)) == {*inlaid.__all__, *DISTRIBUTIONS}
    for name in dir(inlaid):
        assert getattr(inlaid, name) is not None
    assert set(dir(ops)) == {*ops.TABLE, "FAMILIES", "OPERATORS", "TABLE", "mean", "split", "sum"}
    for name in dir(ops):
        assert getattr(ops, name) is not None
    assert {"load", "Executable", "Profile"} <= set(dir(inlaid.runtime))
    with pytest.raises(AttributeError, match=r"unknown operator 'cnov' \(is 'conv' meant\?\)"):
        _ = ops.cnov  # type: ignore[attr-defined]


def test_type_checkers_know_every_public_name() -> None:
    tree = ast.parse((CORE / "__init__.py").read_text(encoding="utf-8"))
    (guarded,) = [node for node in tree.body if isinstance(node, ast.If) and isinstance(node.test, ast.Name)]
    imported = {alias.asname for node in guarded.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert imported == {*inlaid.__all__, *DISTRIBUTIONS} - {"__version__"}
    assert (CORE / "py.typed").exists()


def test_what_is_public_is_annotated() -> None:
    for name in (*inlaid.__all__, *DISTRIBUTIONS):
        value = getattr(inlaid, name)
        if inspect.isfunction(value):
            parameters = inspect.signature(value).parameters
            assert all(item.annotation is not item.empty for item in parameters.values()), name
            assert value.__doc__ and "return" in value.__annotations__, name
        elif inspect.isclass(value):
            for label, member in vars(value).items():
                if inspect.isfunction(member) and not label.startswith("_") and member.__module__.startswith("inlaid"):
                    assert "return" in member.__annotations__ and member.__doc__, (name, label)


def test_the_stub_is_that_of_the_operators() -> None:
    script = ROOT / "tools" / "operator_stubs.py"
    spec = spec_from_file_location("operator_stubs", script)
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    assert not module.is_stale(), f"{module.STUB} does not match the operators; run: {module.COMMAND}"


PROGRAM = """
import inlaid
from inlaid import ops

x = inlaid.var("x", (2, 3))
good = ops.softmax(x @ x + 1, axis=-1)[0]
fields: tuple[inlaid.Executable, ...] = (inlaid.compile(inlaid.function([x], good)),)
ops.cnov
ops.conv(x, x, stride=1)
inlaid.complie
"""


@pytest.mark.slow
def test_a_type_checker_finds_mistakes(tmp_path: Path) -> None:
    pytest.importorskip("mypy", reason="needs mypy: pip install -r requirements-dev.txt")
    (tmp_path / "program.py").write_text(PROGRAM)
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--config-file=",
        "--ignore-missing-imports",
        "--cache-dir",
        str(tmp_path),
        "program.py",
    ]
    process = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=600)
    lines = [line for line in process.stdout.splitlines() if "error" in line and line.startswith("program.py")]
    assert [line.split(":")[1] for line in lines] == ["8", "9", "10"], process.stdout + process.stderr
    assert 'did you mean "strides"' in lines[1]
