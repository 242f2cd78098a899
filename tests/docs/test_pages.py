"""What the pages say works: their code runs, their links lead somewhere, and a web site can be made of them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

from inlaid.plugins.registry import default_registry

from .pages import blocks_of, run_page

ROOT = Path(__file__).parents[2]
TUTORIAL = ROOT / "docs" / "write-a-backend.md"
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("plugins/*/README.md")])
PROGRAMS = [page for page in PAGES if page != TUTORIAL and any(b.language == "python" for b in blocks_of(page.read_text()))]
needs_x86 = pytest.mark.skipif(
    "x86" not in default_registry().kinds(), reason='the x86 plugin is not installed: pip install "inlaid[x86]"'
)


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


@needs_x86
@pytest.mark.parametrize("page", PROGRAMS, ids=name_of)
def test_programs_run(page: Path, tmp_path: Path) -> None:
    """Each in a folder with a `model.onnx` whose input is `input`; `array` is one for it."""
    registry, text = default_registry(), page.read_text(encoding="utf-8")
    for kind in registry.kinds():
        if f'"{kind}"' in text and not (status := registry.probe(registry.target(kind))).available:
            pytest.skip(f"{kind}: {status.detail}")
    value = helper.make_tensor_value_info("input", TensorProto.FLOAT, [1, 3])
    node = helper.make_node("Relu", ["input"], ["output"])
    graph = helper.make_graph([node], "g", [value], [helper.make_tensor_value_info("output", TensorProto.FLOAT, [1, 3])])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9), tmp_path / "model.onnx")
    before = "import numpy as np\narray = np.ones((1, 3), np.float32)\n"
    copy = tmp_path / page.name
    copy.write_text(text.replace("```python\n", f"```python\n{before}"), encoding="utf-8")
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    assert run_page(copy, tmp_path, path, ("python",)) > 0


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    """The scripts of a virtual environment that has what this one has, and room for more."""
    venv.create(tmp_path / "venv", with_pip=True, symlinks=True)
    here = tmp_path / "venv" / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
    outer = sysconfig.get_path("purelib")
    (here / "outer.pth").write_text(f"import site; site.addsitedir({outer!r})\n")
    bin_ = tmp_path / "venv" / "bin"
    for name, call in {"inlaid": "from inlaid.cli import main; main()", "pytest": "import pytest; pytest.console_main()"}.items():
        (bin_ / name).write_text(f"#!{bin_ / 'python'}\n{call}\n")
        (bin_ / name).chmod(0o755)
    return bin_


@needs_x86
@pytest.mark.slow
def test_the_tutorial_makes_a_conforming_plugin(environment: Path, tmp_path: Path) -> None:
    folder = tmp_path / "acme"
    folder.mkdir()
    path = os.pathsep.join((str(environment), os.environ["PATH"]))
    assert run_page(TUTORIAL, folder, path) == 5
    shown = subprocess.run(
        ["inlaid", "partition", "dense.onnx", "--targets", "acme,x86", "--explain"],
        cwd=folder, env={**os.environ, "PATH": path}, capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    assert "acme: 6 operators" in shown or "acme: 5 operators" in shown
    assert "acme: rejected: has no rule for softmax" in shown


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text):
        assert "://" in target or (page.parent / target).exists(), f"{page}: {target}"


@pytest.mark.slow
def test_a_web_site_is_made_without_warnings(tmp_path: Path) -> None:
    pytest.importorskip("sphinx", reason="needs Sphinx: pip install -r requirements-dev.txt")
    command = [sys.executable, "-m", "sphinx", "-W", "-q", "-b", "html", str(ROOT / "docs"), str(tmp_path / "html")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "inlaid_codegen" in (tmp_path / "html" / "contract.html").read_text()
    assert "inlaid.plugins.contract" in (tmp_path / "html" / "reference.html").read_text()
