"""inlaid new-plugin: what it writes installs, works and conforms as it is."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from tests.docs.steps import link_project

from inlaid.plugins import Level
from inlaid_cli import main
from inlaid_cli.exit_codes import ExitCode
from inlaid_cli.new_plugin import render
from inlaid_runtime.errors import InputError
from inlaid_runtime.execution.c_source import find_compiler

ROOT = Path(__file__).parents[2]
KINDS = pytest.mark.parametrize("kind", [(), ("--level", "loop"), ("--memory", "device")], ids=["region", "loop", "device"])
LEVELS = pytest.mark.parametrize("level", ["region", "loop"])
QUICK = (
    *(f"runtime/{name}" for name in ("checks", "closes", "gives", "keeps-to", "refuses", "reports", "runs-at", "takes")),
    *(f"models/agrees[{name}" for name in ("convolution", "perceptron", "transformer")),
)
"""Cases of the suite that take less than a second each where a C compiler compiles each kernel."""


def new_plugin(*arguments: str) -> int:
    with pytest.raises(SystemExit) as exit_info:
        main(["new-plugin", *arguments])
    assert isinstance(exit_info.value.code, int)
    return exit_info.value.code


@LEVELS
def test_what_is_written(tmp_path, monkeypatch, capsys, level):
    monkeypatch.chdir(tmp_path)
    assert new_plugin("acme_tpu", "--level", level) == 0
    folder = tmp_path / "inlaid-acme-tpu"
    assert f"cd {folder.name}" in capsys.readouterr().out
    written = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    sources = {f"src/inlaid_acme_tpu/{name}.py" for name in ("__init__", "plugin", "runtime_plugin", "rules", "codegen", "runtime")}
    assert written == {
        "pyproject.toml", "README.md", ".gitignore", ".github/workflows/test.yml", "tests/test_acme_tpu.py", *sources,
    }  # fmt: skip
    project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    assert project["name"] == "inlaid-acme-tpu"
    assert project["entry-points"] == {
        "inlaid.plugins": {"acme_tpu": "inlaid_acme_tpu.plugin"},
        "inlaid.runtimes": {"acme_tpu": "inlaid_acme_tpu.runtime_plugin"},
    }
    text = "".join((folder / name).read_text() for name in written)
    assert "{{ name" not in text and "{%" not in text and "${{ matrix.python }}" in text
    assert "class AcmeTpuCodegen" in text
    assert ("Level.LOOP" in text) == (level == "loop")


@LEVELS
def test_a_useful_plugin_is_short(level):
    """Docstrings count, and blank lines, comments and the operators that numpy computes in place of hardware do not."""
    sources = [text for name, text in render("acme_tpu", Level(level)).items() if name.startswith("src/")]
    text = re.sub(r"^OPERATORS: .*?^}$", "", "\n".join(sources), flags=re.DOTALL | re.MULTILINE)
    lines = [line.strip() for line in text.splitlines()]
    assert 50 < sum(bool(line) and not line.startswith("#") for line in lines) <= 150


@KINDS
@pytest.mark.parametrize("name", ["acme", "quantum_npu"])
def test_it_is_in_good_order(tmp_path, run_command, kind, name):
    assert new_plugin(name, *kind, "-o", str(tmp_path / "p")) == 0
    rules = ["--isolated", "--config", f"src=['{tmp_path}/p/src']", "--line-length", "132", "--select", "E,F,W,I,UP,B,SIM,RUF"]
    run_command(sys.executable, "-m", "ruff", "check", *rules, ".", folder=tmp_path / "p")
    if name == "acme":  # where lines break depends on how long the name is
        run_command(
            sys.executable, "-m", "ruff", "format", "--isolated", "--line-length", "132", "--check", ".", folder=tmp_path / "p"
        )


@pytest.mark.parametrize("name", ["Acme", "2d", "acme-tpu", "class", "", "äcme"])
def test_names_that_no_target_may_have(name):
    with pytest.raises(InputError, match="a target name must be lower-case letters"):
        render(name, Level.REGION)


def test_a_name_that_is_taken():
    with pytest.raises(InputError, match="target 'reference' exists, in plugin reference"):
        render("reference", Level.LOOP)


def test_nothing_is_overwritten(tmp_path, capsys):
    (tmp_path / "kept").write_text("mine")
    assert new_plugin("acme", "-o", str(tmp_path)) == ExitCode.INPUT
    assert "already exists" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]
    assert new_plugin("acme", "-o", str(tmp_path / "kept")) == ExitCode.INPUT
    (tmp_path / "empty").mkdir()
    assert new_plugin("acme", "-o", str(tmp_path / "empty")) == 0


def test_what_a_plugin_may_import_is_held_by_a_lint(tmp_path, run_command):
    """With the project's own settings. None of the modules that they ban is in the table of docs/contract.md."""
    folder = tmp_path / "p"
    assert new_plugin("acme", "-o", str(folder)) == 0
    check = [sys.executable, "-m", "ruff", "check", "--no-cache", "src", "tests"]
    run_command(*check, folder=folder)
    runtime = folder / "src" / "inlaid_acme" / "runtime.py"
    runtime.write_text(runtime.read_text() + "\n\nfrom inlaid.driver import cut  # noqa: E402, F401\n")
    process = subprocess.run(check, cwd=folder, capture_output=True, text=True, check=False)
    assert process.returncode == 1 and "TID251" in process.stdout
    ruff = tomllib.loads((folder / "pyproject.toml").read_text())["tool"]["ruff"]
    table = (ROOT / "docs" / "contract.md").read_text().partition("## What a plugin may import")[2].partition("\n## ")[0]
    banned = set(ruff["lint"]["flake8-tidy-imports"]["banned-api"])
    assert banned and not [name for name in banned if f"`{name.rpartition('.')[2]}`" in table.replace("`frontends`", "")]


def test_loop_programs_are_for_the_memory_of_the_host():
    with pytest.raises(InputError, match="expected --level region for --memory device, got loop"):
        render("acme", Level.LOOP, "device")


@KINDS
def test_its_tests_pass_and_its_declarations_conform(tmp_path, tmp_path_factory, run_command, kind):
    if "loop" in kind and find_compiler() is None:
        pytest.skip("there is no C compiler: apt-get install gcc")
    project, site = tmp_path / "p", tmp_path / "site"
    assert new_plugin("acme", *kind, "-o", str(project)) == 0
    link_project(project, site)
    path = os.pathsep.join([str(site), *filter(None, sys.path)])
    run_command(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", folder=project, PYTHONPATH=path)
    types = ("--strict", "--cache-dir", tmp_path_factory.getbasetemp() / "mypy")  # what it knows of the core holds for every kind
    run_command(sys.executable, "-m", "mypy", *types, "src", folder=project, MYPYPATH=f"{ROOT / 'core'}:{ROOT / 'runtime' / 'src'}")
    command = (sys.executable, "-c", "from inlaid_cli import main; main()", "conformance", "--target", "acme", "--report", "r.json")
    run_command(
        *command, "--only", "plugin", "--only", "annotations", "--only", "devices", "--jobs", "1", folder=project, PYTHONPATH=path
    )
    report = json.loads((project / "r.json").read_text())
    assert report["target"] == "acme"


@pytest.mark.slow
@LEVELS
def test_it_installs_and_conforms_in_a_fresh_environment(tmp_path, inlaid_environment, conformance_options, exhaustive, level):
    if level == "loop" and find_compiler() is None:
        pytest.skip("there is no C compiler: apt-get install gcc")
    project = tmp_path / "inlaid-acme"
    assert new_plugin("acme", "--level", level, "-o", str(project)) == 0
    inlaid_environment.pip("install", "--quiet", "--no-build-isolation", f"{project}[test]")
    python = inlaid_environment.python
    inlaid_environment.run(python, "-m", "pytest", folder=project)
    rows = json.loads(inlaid_environment.run(python, "-m", "inlaid", "targets", "--json", folder=tmp_path))
    available = {row["target"]: row["available"] for row in rows if row["compiles"]}
    assert available == {"acme": True, "reference": True, "x86": True}
    # The operators of the loop level are printed by the core, whose own plugins run the whole suite.
    parts = (
        "plugin",
        "annotations",
        "codegen",
        "package",
        "operators/agrees[softmax",
        *(("runtime", "models") if exhaustive else QUICK),
    )
    loop_options = ("--examples", "1", "--jobs", "1", *(word for part in parts for word in ("--only", part)))
    options = loop_options if level == "loop" else conformance_options()
    command = (python, "-m", "inlaid", "conformance", "--target", "acme", "--report", "acme.json", *options)
    inlaid_environment.run(*command, folder=tmp_path)
    assert json.loads((tmp_path / "acme.json").read_text())["target"] == "acme"
