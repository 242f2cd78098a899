"""Follow the pages of numbered steps in a copy of the sources."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

from .pages import page_blocks

ROOT = Path(__file__).parents[2]
LINKED = ("core", "runtime", "tests", "tools", "docs", "benchmarks", "examples", "conftest.py", "pyproject.toml", "Makefile")
"""What a copy has of the checkout, besides the plugins."""
NOT_COPIED = {"docs": ("_build", "*.svg", "*.png", "benchmarks*", "conformance", "images")}
"""Names that the copy of a part leaves out."""
SITE = "site-packages"
"""The folder of a copy in which its Python finds the projects that a page installs."""
WIDTH = 132
"""Maximum length of a line of code."""


def copy_checkout(folder: Path, copied: tuple[str, ...]) -> Path:
    """Make a folder like this checkout. `copied` are the parts whose files may be changed; the others are links. A part that finds
    files by its own place, such as the tests, must be copied for it to find changed ones. Returns the folder."""
    (folder / "plugins").mkdir(parents=True)
    for name in [*LINKED, *(f"plugins/{path.name}" for path in (ROOT / "plugins").iterdir() if path.is_dir())]:
        if name in copied:
            shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", *NOT_COPIED.get(name, ())))
        else:
            (folder / name).symlink_to(ROOT / name)
    (folder / ".venv").symlink_to(sys.prefix)
    return folder


def run_in(checkout: Path, *command: str, folder: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run a command with the packages of a copy of the checkout, in that copy or in another `folder`."""
    paths = [
        *(checkout / "core", checkout / "runtime" / "src", checkout / "docs"),
        *(*sorted((checkout / "plugins").glob("*/src")), checkout / SITE),
    ]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(map(str, paths)),
        "PYTHONWARNINGS": "error",
        "PATH": os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"])),
    }
    return subprocess.run(command, cwd=folder or checkout, env=environment, capture_output=True, text=True, check=False)


def link_project(project: Path, site: Path) -> None:
    """Put the packages of a project where Python finds them, as `pip install -e` does, without building anything."""
    facts = tomllib.loads((project / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    site.mkdir(exist_ok=True)
    for package in (project / "src").iterdir():
        (site / package.name).symlink_to(package.resolve())
    info = site / f"{facts['name'].replace('-', '_')}-{facts['version']}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {facts['name']}\nVersion: {facts['version']}\n")
    groups = facts["entry-points"].items()
    lines = [f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in points.items()) for group, points in groups]
    (info / "entry_points.txt").write_text("\n".join(lines))


def apply_edit(folder: Path, body: str, where: str = "the page") -> Path:
    """Replace the lines of a block that start with `-` by those with `+`. Returns the file, which the first line names.
    `where` is the place of the block, for messages."""
    header, *lines = body.splitlines()
    assert header.startswith("--- ") and {line[:1] for line in lines} == {"-", "+"}, f"expected an edit of a file, got\n{body}"
    path = folder / header.removeprefix("--- ")
    old, new = ("".join(f"{line[1:]}\n" for line in lines if line[0] == sign) for sign in "-+")
    text = path.read_text(encoding="utf-8")
    assert text.count(old) == 1, f"{where} replaces lines that {header[4:]} must have once; correct the page:\n{old}"
    path.write_text(text.replace(old, new), encoding="utf-8")
    return path


def follow(page: Path, checkout: Path, folder: Path) -> set[Path]:
    """Write the files of a page, apply its edits, and run its commands in order, in a folder. Returns the changed and new files.

    Every line that a `console` block shows below a command must be in what the command prints. In such a line, `...` stands for any
    text. A line that starts with `inlaid: ` is the error of a command that fails.
    """
    changed: set[Path] = set()
    for block in page_blocks(page.read_text(encoding="utf-8")):
        if block.file:
            path = folder / block.file
            path.parent.mkdir(parents=True, exist_ok=True)
            assert not path.exists(), f"{page.name}, line {block.line}: {block.file} exists; choose another name"
            path.write_text(block.body, encoding="utf-8")
            changed.add(path)
        elif block.language == "diff":
            changed.add(apply_edit(folder, block.body, f"{page.name}, line {block.line}"))
        elif block.language == "console":
            for session in re.split(r"^\$ ", block.body, flags=re.MULTILINE)[1:]:
                command, *lines = session.splitlines()
                where = f"{page.name}, line {block.line}: {command}"
                succeeds, printed = _run_command(command, checkout, folder)
                assert succeeds != any(line.startswith("inlaid: ") for line in lines), f"{where}\n{printed}"
                for line in lines:
                    pattern = ".*".join(map(re.escape, line.split("...")))
                    assert re.search(pattern, printed), f"{where}\nexpected {line!r} in\n{printed}"
    return changed


def _run_command(command: str, checkout: Path, folder: Path) -> tuple[bool, str]:
    """Run a command of a page. Returns whether it succeeds, and what it prints. `pip install -e` needs no index here."""
    words = shlex.split(command)
    if words[:-1] == ["pip", "install", "-e"]:
        link_project(folder / words[-1], checkout / SITE)
        return True, ""
    process = run_in(checkout, *words, folder=folder)
    return process.returncode == 0, process.stdout + process.stderr


def check_style(checkout: Path, files: set[Path]) -> None:
    """Assert that Python files of a copy pass the checks of `make lint` that concern single files."""
    names = [str(path.relative_to(checkout)) for path in sorted(files) if path.suffix == ".py"]
    for arguments in (("check", "--no-cache"), ("format", "--check", "--no-cache")):
        process = run_in(checkout, sys.executable, "-m", "ruff", *arguments, *names)
        assert process.returncode == 0, process.stdout + process.stderr
