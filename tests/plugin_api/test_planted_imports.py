"""Each import that the layers forbid fails the lint: planted in a copy of the sources."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = ["core", "runtime/src", *(str(path.relative_to(ROOT)) for path in sorted(ROOT.glob("plugins/*/src")))]
PLANTED = {
    "core/inlaid/passes/manager.py": ("inlaid_x86", "inlaid_onnx", "inlaid_cli", "onnx"),
    "core/inlaid/graph/ir.py": ("inlaid.driver",),
    "core/inlaid/lowering/region.py": ("inlaid.schedules", "inlaid.codegen.c"),
    "core/inlaid/driver/compile.py": ("inlaid.schedules.matmul",),
    "runtime/src/inlaid_runtime/types.py": ("inlaid", "inlaid_runtime.execution"),
    "plugins/x86/src/inlaid_x86/codegen.py": ("inlaid_opencl", "inlaid_quantization"),
    "plugins/tflite/src/inlaid_tflite/importer.py": ("inlaid_onnx",),
    "plugins/quantization/src/inlaid_quantization/plan.py": ("inlaid_cli", "inlaid_onnx", "inlaid_x86"),
    "plugins/opencl/src/inlaid_opencl/runtime_plugin.py": ("inlaid.graph",),
}
"""Imports that are planted in files."""


def run(*command: str, folder: Path, path: str = "") -> str:
    """Run a lint that fails, and return what it prints."""
    process = subprocess.run(
        command, cwd=folder, env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True, check=False
    )
    assert process.returncode == 1, process.stderr
    return re.sub(r"\s+", " ", process.stdout)


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("planted")
    for folder_name in SOURCES:
        shutil.copytree(
            ROOT / folder_name, folder / folder_name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info", "[!_]*.[!p]*")
        )
    shutil.copy(ROOT / "pyproject.toml", folder)
    for file, names in PLANTED.items():
        with (folder / file).open("a") as source:
            source.writelines(f"import {name}\n" for name in names)
    return folder


LINT = Path(sys.executable).parent / "lint-imports"


@pytest.mark.skipif(not LINT.exists(), reason="needs import-linter: pip install import-linter")
def test_import_contracts_break(planted: Path) -> None:
    printed = run(
        str(LINT),
        "--no-cache",
        folder=planted,
        path=os.pathsep.join(str(planted / folder_name) for folder_name in SOURCES),
    )
    for file, names in PLANTED.items():
        module = file.removesuffix(".py").partition("src/")[2] or file.removesuffix(".py").partition("/")[2]
        for name in names:
            assert re.search(rf"- {module.replace('/', '.')} -> {name}\b", printed), f"{module} -> {name}"


def test_what_the_contract_does_not_list_is_no_import_of_a_plugin(planted: Path) -> None:
    with (planted / "plugins/cuda/src/inlaid_cuda/codegen.py").open("a") as source:
        source.write("from inlaid.partitioning import annotate\nfrom inlaid import api\nimport inlaid_runtime.execution.executor\n")
    printed = run(sys.executable, str(ROOT / "tools/plugin_imports.py"), "plugins/cuda/src", folder=planted)
    for name in ("inlaid.partitioning.annotate", "inlaid.api", "inlaid_runtime.execution.executor"):
        assert f": {name} is not in the table" in printed


def test_core_and_runtime_name_no_package_of_a_plugin(planted: Path) -> None:
    for file in ("core/inlaid/api.py", "runtime/src/inlaid_runtime/types.py"):
        with (planted / file).open("a") as source:
            source.write('"""About inlaid_onnx."""\nHIDDEN = "inlaid_onnx.load"\n')
    folders = (str(planted / "core"), str(planted / "runtime/src/inlaid_runtime"))
    printed = run(sys.executable, str(ROOT / "tools/import_names.py"), *folders, folder=planted)
    assert printed.count("'inlaid_onnx.load' names a package") == 2 and "About" not in printed
