"""Install this checkout with several installers, and check that each asked-for distribution is there.

    python benchmarks/pips.py [--only pip==23.2.1 uv] [--quick]

pip exits with 0 when an extra is unknown, so the exit status proves nothing. For each installer (the pip that this Python brings,
pip 22.3 on Python 3.11, 23.2.1, 23.3.2, 24.0, the newest, and uv), in a fresh virtual environment: a dry run of every line of
README.md that installs with pip, and of every extra in both spellings; then two real installations, of `.[x86,vta_fpga]`, and of
the parts as editable, in another environment. A dry run must name the distributions of its extras among those that it would
install, and a program compiles for x86 after a real one. Exits with 1 where a distribution is missing, where the program fails, or
where an installer cannot be had.

--quick leaves out extras without an underscore.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import tomllib
import venv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
BUNDLED = "bundled pip"
INSTALLERS = (
    BUNDLED,
    *(("pip==22.3",) if sys.version_info < (3, 12) else ()),  # its pkg_resources needs what Python 3.12 removed
    "pip==23.2.1",
    "pip==23.3.2",
    "pip==24.0",
    "pip",
    "uv",
)
PARTS = ("runtime", "core", "plugins/onnx", "plugins/quantization", "plugins/cli")
"""Folders of the distributions that every installation has."""
EDITABLE = tuple(argument for folder in (*PARTS, "plugins/x86", ".") for argument in ("-e", folder))
USE = """
import inlaid
import numpy as np

x = inlaid.var("x", inlaid.TensorType((3,), "float32"))
executable = inlaid.compile(inlaid.Module({"main": inlaid.function([x], inlaid.ops.relu(x))}), targets=["x86"])
(result,) = executable.run({"x": np.array([-1, 0.5, 2], np.float32)}).values()
assert result.tolist() == [0, 0.5, 2], result
assert {region.target for region in executable.regions} == {"x86"}
"""
"""A program that needs x86."""
REAL = {(".[x86,vta_fpga]",): ("inlaid", "inlaid-x86", "inlaid-vta-fpga"), EDITABLE: ("inlaid", "inlaid-x86")}
"""Arguments of the real installations, and the distributions that they must bring."""
_INSTALLED = "import importlib.metadata as m; print(*(item.name for item in m.distributions()), sep='\\n')"


@dataclass(frozen=True)
class Line:
    """One installation: the requirement as the user types it, and the names of the distributions that it must bring."""

    requirement: str
    distributions: tuple[str, ...]


def extras() -> dict[str, tuple[str, ...]]:
    """Map each extra, as pyproject.toml or a plugin folder spells it, to the distributions that it must bring."""
    tables = {file.parent.name: tomllib.loads(file.read_text("utf-8"))["project"] for file in ROOT.glob("plugins/*/pyproject.toml")}
    plugins = {name: (project["name"],) for name, project in sorted(tables.items())}
    return {**plugins, "cost": ("scipy",)}


def lines(quick: bool = False) -> Iterator[Line]:
    """Yield the lines of README.md that install this checkout, then every extra in both spellings."""
    distributions_by_extra = extras()
    for requirement in re.findall(r'pip install "(\.\[[^"]+)"', (ROOT / "README.md").read_text("utf-8")):
        names = requirement[2:-1].split(",")
        yield Line(requirement, tuple(name for extra in names for name in distributions_by_extra[extra]))
    for extra, distributions in distributions_by_extra.items():
        if not quick or "_" in extra:
            for spelling in sorted({extra, extra.replace("_", "-")}):
                yield Line(f".[{spelling}]", distributions)


class Installer:
    """The command that installs into a virtual environment, by its Python. Raises subprocess.CalledProcessError if the installer
    cannot be installed."""

    def __init__(self, name: str, python: Path) -> None:
        self.python = python
        self.command: tuple[str | Path, ...] = (self.python, "-m", "pip", "--disable-pip-version-check", "install")
        if name != BUNDLED:
            self._run(*self.command, "--quiet", "--upgrade", name)
        if name == "uv":
            self.command = (python.parent / "uv", "pip", "install", "--python", self.python)

    def plan(self, requirement: str) -> set[str]:
        """Return the normalized names of the distributions that an installation would bring."""
        printed = self._run(*self.command, "--dry-run", requirement)
        if self.command[0] == self.python:  # pip prints one line, of names with versions
            names = [item.rpartition("-")[0] for item in re.findall(r"^Would install (.*)$", printed, re.MULTILINE)[0].split()]
        else:
            names = re.findall(r"^ \+ ([\w.-]+)", printed, re.MULTILINE)
        return set(map(_normalized, names))

    def install(self, *requirements: str) -> set[str]:
        """Install, and return the normalized names of all distributions of the environment."""
        self._run(*self.command, *requirements)
        return set(map(_normalized, self._run(self.python, "-c", _INSTALLED).split()))

    def use(self) -> None:
        """Run the program."""
        self._run(self.python, "-c", USE)

    def _run(self, *command: str | Path) -> str:
        variables = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")}
        variables.setdefault("UV_SYSTEM_CERTS", "1")  # as pip does
        process = subprocess.run(
            command, cwd=ROOT, env=variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
        )
        if process.returncode:
            raise subprocess.CalledProcessError(process.returncode, [str(part) for part in command], process.stdout)
        return process.stdout


def environment(folder: Path) -> Path:
    """Create a virtual environment with pip. Returns its Python."""
    venv.create(folder, with_pip=True, symlinks=True)
    return folder / "bin" / "python"


def _normalized(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def check(name: str, todo: Sequence[Line]) -> list[str]:
    """Run all lines with one installer. Returns what failed, one sentence each."""
    failures = []
    with tempfile.TemporaryDirectory(prefix="inlaid-pips-") as folder:
        try:
            for number, (requirements, distributions) in enumerate(REAL.items()):
                installer = Installer(name, environment(Path(folder, f"{number}")))
                for line in todo if number == 0 else ():
                    if missing := set(line.distributions) - installer.plan(line.requirement):
                        failures.append(f'"{line.requirement}" would not install {", ".join(sorted(missing))}')
                if missing := set(distributions) - installer.install(*requirements):
                    failures.append(f'"{" ".join(requirements)}" did not install {", ".join(sorted(missing))}')
                installer.use()
        except subprocess.CalledProcessError as error:
            failures.append(f"{' '.join(error.cmd[1:])} failed: {error.output.strip().splitlines()[-1:]}")
    return failures


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=INSTALLERS, default=INSTALLERS, help="installers to try")
    parser.add_argument("--quick", action="store_true", help="leave out extras without an underscore")
    arguments = parser.parse_args()
    todo = list(dict.fromkeys(lines(arguments.quick)))
    failed = False
    for name in arguments.only:
        failures = check(name, todo)
        failed |= bool(failures)
        print(f"{name:<12} {len(todo)} dry runs, {len(REAL)} installations: {'; '.join(failures) or 'all there'}", flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
