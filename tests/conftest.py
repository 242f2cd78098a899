"""Fixtures that every kind of test may use."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sysconfig
import tomllib
import venv
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PARTS = (
    "core",
    "plugins",
    "runtime",
    "pyproject.toml",
    "hatch_build.py",
    "build_backend.py",
    "README.md",
    "CHANGELOG.md",
    "LICENSE",
)
"""What the packages are made of."""
GOLDEN = Path(__file__).parent / "golden"
Golden = Callable[[str, str], None]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write the golden files anew instead of comparing with them")


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    """`golden(name, text)` compares a text with the file tests/golden/<name>, or writes the file under --update-golden."""
    update = request.config.getoption("--update-golden")

    def check(name: str, text: str) -> None:
        path = GOLDEN / name
        text = text.rstrip("\n") + "\n"
        if update:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            return
        if not path.exists():
            pytest.fail(f"there is no golden file {path}; write it with --update-golden")
        expected = path.read_text(encoding="utf-8")
        assert text == expected, (
            f"{path.name} differs; look at the difference, and write it anew with --update-golden if it is meant"
        )

    return check


def run(*command: str | Path, folder: Path, **more: str) -> str:
    """Run a command in a folder, with no trace of the environment that the tests run in, but with more variables where they are
    given. Returns what it prints."""
    # The cache folder of the tests is Inlaid's alone: pip and uv keep what they fetch in their own.
    hidden = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "INLAID_RELEASE", "XDG_CACHE_HOME")
    variables = {name: value for name, value in os.environ.items() if name not in hidden} | {"INLAID_CACHE": "off", **more}
    variables.setdefault("UV_SYSTEM_CERTS", "1")  # as pip does
    process = subprocess.run(list(map(str, command)), cwd=folder, env=variables, capture_output=True, text=True, check=False)
    assert process.returncode == 0, f"{' '.join(map(str, command))}\n{process.stdout}\n{process.stderr}"
    return process.stdout


def site_packages(environment: Path) -> Path:
    """Where a virtual environment has its packages."""
    return Path(sysconfig.get_path("purelib", "venv", {"base": str(environment)}))


class Environment:
    """A fresh virtual environment: with the `packages` of a folder where one is given, else with nothing but the pip that this
    Python brings. The index is asked for what Inlaid depends on, never for Inlaid's own packages."""

    def __init__(self, folder: Path, packages: Path | None = None) -> None:
        venv.create(folder, with_pip=packages is None, symlinks=True)
        if packages is not None:
            (site_packages(folder) / "given.pth").write_text(f"{packages}\n", encoding="utf-8")
        self.python = folder / "bin" / "python"
        self.inlaid = folder / "bin" / "inlaid"
        self.folder = folder.parent

    @staticmethod
    def run(*command: str | Path, folder: Path) -> str:
        """Run any command as in a shell of its own."""
        return run(*command, folder=folder)

    def pip(self, *arguments: str | Path, folder: Path | None = None) -> str:
        return run(self.python, "-m", "pip", "--disable-pip-version-check", *arguments, folder=folder or self.folder)

    def fetch(self, *requirements: str) -> None:
        """Install a tool, or skip the test where there is none to be had."""
        try:
            self.pip("install", "--quiet", "--upgrade", *requirements)
        except AssertionError as error:
            pytest.skip(f"cannot install {' '.join(requirements)}: {str(error).splitlines()[-1]}")


@pytest.fixture
def run_command() -> Callable[..., str]:
    """`run`."""
    return run


@pytest.fixture
def environment(tmp_path: Path) -> Iterator[Environment]:
    """A fresh virtual environment with pip alone."""
    yield Environment(tmp_path / "venv")
    shutil.rmtree(tmp_path / "venv")  # pytest keeps temporary folders for a while, and this one is large


@pytest.fixture(scope="session")
def dependencies(common_folder: Path) -> Path:
    """A folder of packages, fetched once in a test run: what Inlaid and its plugins depend on, and what builds and checks them."""
    folder = common_folder / "dependencies"
    files = [ROOT / name / "pyproject.toml" for name in ("runtime", "core")] + [*ROOT.glob("plugins/*/pyproject.toml")]
    lists = (tomllib.loads(file.read_text())["project"]["dependencies"] for file in files)
    requirements = {need for needs in lists for need in needs if not need.startswith("inlaid")}
    with (common_folder / "dependencies.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            environment = Environment(folder.with_suffix(".new"))
            environment.pip("install", "--quiet", *sorted(requirements), "hatchling", "hypothesis", "pytest")
            environment.python.parents[1].rename(folder)
    return site_packages(folder)


@pytest.fixture
def furnished(tmp_path: Path, dependencies: Path) -> Environment:
    """A fresh virtual environment that has what Inlaid depends on, and pip."""
    return Environment(tmp_path / "venv", dependencies)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of what the packages are made of."""
    folder = tmp_path / "checkout"
    folder.mkdir()
    for part in PARTS:
        if (ROOT / part).is_dir():
            shutil.copytree(ROOT / part, folder / part, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info", ".*_cache"))
        else:
            shutil.copy(ROOT / part, folder)
    return folder
