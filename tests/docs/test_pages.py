"""Pages: their code runs, their links resolve, and Sphinx builds a web site from them without a warning."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Callable
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import onnx
import pytest
from onnx import TensorProto, helper

from inlaid import ops
from inlaid.graph.operator import Operator
from inlaid.plugins.registry import default_registry
from sphinx_inlaid import commands, operators, texts

from .pages import page_blocks, run_page

ROOT = Path(__file__).parents[2]
TUTORIAL = ROOT / "docs" / "write-a-backend.md"
ACME = ROOT / "examples" / "acme"
"""The example that the tutorial explains."""
PAGES = sorted(
    page
    for pattern in ("*.md", "docs/**/*.md", "plugins/*/README.md", "core/README.md", "runtime/README.md")
    for page in ROOT.glob(pattern)
)
GUIDE = [
    ROOT / "docs" / f"{name}.md"
    for name in ("quickstart", "python", "command-line", "dynamic-shapes", "deploy", "performance", "plugins")
]
"""Pages whose commands run as well as their programs."""


def programs_on(page: Path) -> str:
    """The Python programs of a page; files that it shows are none."""
    blocks = page_blocks(page.read_text(encoding="utf-8"))
    return "\n".join(block.body for block in blocks if block.language == "python" and not block.file)


PROGRAMS = [page for page in PAGES if page in GUIDE or (page != TUTORIAL and programs_on(page))]
needs_x86 = pytest.mark.skipif(
    "x86" not in default_registry().kinds(), reason='the x86 plugin is not installed: pip install "inlaid[x86]"'
)


def page_name(page: Path) -> str:
    return str(page.relative_to(ROOT))


@needs_x86
@pytest.mark.parametrize("page", PROGRAMS, ids=page_name)
def test_programs_run(page: Path, tmp_path: Path) -> None:
    """Each runs in a folder with the examples and a `model.onnx` whose input is `input`; `array` is a value for it."""
    registry, text = default_registry(), page.read_text(encoding="utf-8")
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    for kind in registry.kinds():
        if f'"{kind}"' in programs_on(page) and not (status := registry.probe(registry.target(kind))).available:
            pytest.skip(f"{kind}: {status.detail}")
    if re.search(r"^cc ", text, re.MULTILINE) and shutil.which("cc") is None:
        pytest.skip("needs a C compiler: apt-get install gcc")
    value = helper.make_tensor_value_info("input", TensorProto.FLOAT, [1, 3])
    node = helper.make_node("Relu", ["input"], ["output"])
    graph = helper.make_graph([node], "g", [value], [helper.make_tensor_value_info("output", TensorProto.FLOAT, [1, 3])])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9), tmp_path / "model.onnx")
    before = "import numpy as np\narray = np.ones((1, 3), np.float32)\n"
    copy = tmp_path / page.name
    copy.write_text(text.replace("```python\n", f"```python\n{before}"), encoding="utf-8")
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    languages = ("python", "sh") if page in GUIDE else ("python",)
    assert run_page(copy, tmp_path, path, languages) > 0


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    """The scripts of a virtual environment that has what this one has, and room for more."""
    venv.create(tmp_path / "venv", symlinks=True)
    site_packages = tmp_path / "venv" / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
    outer = sysconfig.get_path("purelib")
    (site_packages / "outer.pth").write_text(f"import site; site.addsitedir({outer!r})\n")
    bin_ = tmp_path / "venv" / "bin"
    scripts = {
        "inlaid": "from inlaid_cli import main; main()",
        "pip": "import runpy; runpy.run_module('pip', run_name='__main__')",
        "pytest": "import pytest; pytest.console_main()",
    }
    for name, call in scripts.items():
        (bin_ / name).write_text(f"#!{bin_ / 'python'}\n{call}\n")
        (bin_ / name).chmod(0o755)
    return bin_


@needs_x86
@pytest.mark.slow
def test_the_tutorial_makes_a_conforming_plugin(
    environment: Path, tmp_path: Path, conformance_options: Callable[..., tuple[str, ...]], exhaustive: bool
) -> None:
    folder, page, command = tmp_path / "acme", tmp_path / TUTORIAL.name, "inlaid conformance --target acme --report acme.json"
    shutil.copytree(ACME, folder)
    text = TUTORIAL.read_text(encoding="utf-8")
    assert text.count(command) == 1
    if not exhaustive:  # tests/vendor_example/test_installed.py runs the level "package"
        text = text.replace(command, shlex.join([*command.split(), *conformance_options("package")]))
    page.write_text(text, encoding="utf-8")
    path = os.pathsep.join((str(environment), os.environ["PATH"]))
    assert run_page(page, folder, path) == 5
    report = json.loads((folder / "acme.json").read_text())
    assert report["conforms"] and report["complete"] == exhaustive


def test_the_tutorial_shows_the_files_of_its_example() -> None:
    shown = {block.file: block.body for block in page_blocks(TUTORIAL.read_text(encoding="utf-8")) if block.file}
    sources = [path for path in sorted(ACME.rglob("*")) if path.suffix in (".md", ".py", ".toml")]
    files = {str(path.relative_to(ACME)): path.read_text(encoding="utf-8") for path in sources}
    assert {file for file in shown if file not in files} == {"model.py"}
    assert not [file for file, text in shown.items() if files.get(file, text) != text]
    assert {"src/inlaid_acme/__init__.py", "src/inlaid_acme/simulator.py", "README.md"} >= {
        file for file in files if file not in shown
    }


def slug(heading: str) -> str:
    """The anchor of a heading, as GitHub and MyST make it."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).strip().lower()
    return re.sub(r"[^\w\- ]", "", text).replace(" ", "-")


@cache
def page_anchors(page: Path) -> frozenset[str]:
    text = "".join(part for part, fenced in texts.split_fences(texts.full_text(page)) if not fenced)
    return frozenset(map(slug, re.findall(r"^#+ (.*)$", text, re.MULTILINE)))


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_links_lead_somewhere(page: Path) -> None:
    for part, fenced in texts.split_fences(page.read_text(encoding="utf-8")):
        for link in () if fenced else texts.LINK.finditer(part):
            if "://" in link["path"]:
                continue
            file = page.parent / link["path"] if link["path"] else page
            assert file.exists(), f"{page}: {link['path']}"
            if link["anchor"]:
                assert link["anchor"][1:] in page_anchors(file), f"{page}: {link['path']}{link['anchor']}"


class Links(HTMLParser):
    """Targets and ids of a web page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.ids: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name == "id":
                self.ids.add(value or "")
            elif name in ("href", "src") and value and "://" not in value and not value.startswith(("data:", "mailto:")):
                self.links.append(value)


def check_site(folder: Path) -> None:
    """Every link of a web site, and every anchor, is there."""
    parsed = {file.resolve(): Links(file.read_text(encoding="utf-8")) for file in folder.rglob("*.html")}
    for file, page in parsed.items():
        for link in page.links:
            path_part, _, anchor = unquote(link.partition("?")[0]).partition("#")
            target = (file.parent / path_part).resolve() if path_part else file
            assert target.exists(), f"{file}: {link}"
            assert not anchor or target not in parsed or anchor in parsed[target].ids, f"{file}: {link}"


@pytest.mark.slow
def test_a_web_site_is_made_without_warnings(tmp_path: Path) -> None:
    pytest.importorskip("sphinx", reason="needs Sphinx: pip install -r requirements-dev.txt")
    site = tmp_path / "html"
    command = [sys.executable, "-m", "sphinx", "-W", "-q", "-b", "html", str(ROOT / "docs"), str(site)]
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr
    assert "inlaid_codegen" in (site / "contract.html").read_text()
    assert "inlaid.plugins.contract" in (site / "reference" / "plugin-api.html").read_text()
    assert "instruction set" in (site / "targets" / "x86.html").read_text()  # the text of the plugin's README
    check_site(site)


def test_every_command_and_option_is_on_the_page() -> None:
    text = commands.render()
    for name, command in commands.commands():
        section = text.split(f"### {name}\n")[1].split("\n### ")[0]
        for option in (option for item in command.params for option in item.opts if option.startswith("-")):
            assert f"`{option}" in section, f"{name} {option}"


@pytest.mark.parametrize("operator", ops.OPERATORS, ids=lambda operator: operator.name)
def test_examples_of_operators_print_what_they_say(operator: Operator) -> None:
    assert f"### {operator.name}\n" in operators.render()
    code = operators.example(operator)
    if code is None:
        return
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(operators.PRELUDE + code, {})
    assert operators.shown_type(printed.getvalue().strip()) == code.rpartition("# ")[2]
