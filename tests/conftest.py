"""Fixtures that every kind of test may use."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sysconfig
import tomllib
import venv
from collections.abc import Callable, Iterable, Iterator
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
Sample = Callable[[Iterable[str], int], list[str]]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write the golden files anew instead of comparing with them")
    parser.addoption("--exhaustive", action="store_true", help="run all cases where tests run a sample otherwise")


@pytest.fixture(scope="session")
def exhaustive(request: pytest.FixtureRequest) -> bool:
    """Whether tests run all of their cases."""
    return bool(request.config.getoption("--exhaustive"))


@pytest.fixture(scope="session")
def sample(exhaustive: bool) -> Sample:
    """`sample(names, share)` chooses about one name in `share`, by a hash, so that a checkout always has the same sample. All names
    are chosen under --exhaustive."""

    def choose(names: Iterable[str], share: int) -> list[str]:
        return [name for name in names if exhaustive or hashlib.sha256(name.encode()).digest()[0] % share == 0]

    return choose


@pytest.fixture(scope="session")
def conformance_options(sample: Sample, exhaustive: bool) -> Callable[..., tuple[str, ...]]:
    """`conformance_options(*levels)` is options of `inlaid conformance`: one example of each operator, in one process; of the cases
    that the suite has for every operator and element type, those of a fifth of the operators; none of `levels`, which other tests
    run, and none of a plugin's composites and their chains, of which tests/vendor_example/test_acme.py runs some."""
    from inlaid_conformance.suite import CASES

    kinds = ("operators/agrees", "operators/drawn")
    operators = dict.fromkeys(case.subject.rpartition("-")[0] for case in CASES if case.id.startswith(kinds))
    sampled = [f"{kind}[{name}-" for name in sample(operators, 5) for kind in kinds]
    prefixes = [*sorted({case.id.partition("[")[0] for case in CASES} - {*kinds}), *sampled]

    def options(*levels: str) -> tuple[str, ...]:
        only = [] if exhaustive else [prefix for prefix in prefixes if prefix.partition("/")[0] not in levels]
        return ("--examples", "1", "--jobs", "1", *(word for prefix in only for word in ("--only", prefix)))

    return options


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
    """A fresh virtual environment: with the packages of folders where some are given, else with nothing but the pip that this
    Python brings. The index is asked for what Inlaid depends on, never for Inlaid's own packages."""

    def __init__(self, folder: Path, *packages: Path) -> None:
        venv.create(folder, with_pip=not packages, symlinks=True)
        (site_packages(folder) / "given.pth").write_text("".join(f"{path}\n" for path in packages), encoding="utf-8")
        self.python = folder / "bin" / "python"
        self.inlaid = folder / "bin" / "inlaid"
        self.folder = folder.parent

    @staticmethod
    def run(*command: str | Path, folder: Path) -> str:
        """Run any command as in a shell of its own."""
        return run(*command, folder=folder)

    def pip(self, *arguments: str | Path, folder: Path | None = None, **more: str) -> str:
        return run(self.python, "-m", "pip", "--disable-pip-version-check", *arguments, folder=folder or self.folder, **more)

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


def shared_packages(folder: Path, make: Callable[[Path], Environment]) -> Path:
    """Where an environment in a folder has its packages. The first process of a test run that needs the environment makes it."""
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            make(folder.with_suffix(".new")).python.parents[1].rename(folder)
    return site_packages(folder)


@pytest.fixture(scope="session")
def dependencies(common_folder: Path) -> Path:
    """A folder of packages, fetched once in a test run: what Inlaid and its plugins depend on, and what builds and checks them."""
    files = [ROOT / name / "pyproject.toml" for name in ("runtime", "core")] + [*ROOT.glob("plugins/*/pyproject.toml")]
    lists = (tomllib.loads(file.read_text())["project"]["dependencies"] for file in files)
    requirements = {need for needs in lists for need in needs if not need.startswith("inlaid")}

    def fetch(folder: Path) -> Environment:
        environment = Environment(folder)
        environment.pip("install", "--quiet", *sorted(requirements), "hatchling", "hypothesis", "pytest")
        return environment

    return shared_packages(common_folder / "dependencies", fetch)


@pytest.fixture(scope="session")
def distributions(common_folder: Path, dependencies: Path) -> Path:
    """A folder of packages, installed once in a test run: Inlaid with x86 and the conformance suite, which require each other by
    version, as from an index."""

    def install(folder: Path) -> Environment:
        environment = Environment(folder, dependencies)
        checkout = copy_checkout(common_folder / "checkout")
        plugins = (f"./plugins/{name}" for name in ("onnx", "quantization", "cli", "x86", "conformance"))
        parts = ("./runtime", "./core", *plugins, ".")
        environment.pip("install", "--quiet", "--no-build-isolation", *parts, folder=checkout, INLAID_RELEASE="1")
        shutil.rmtree(checkout)
        return environment

    return shared_packages(common_folder / "distributions", install)


@pytest.fixture
def furnished(tmp_path: Path, dependencies: Path) -> Environment:
    """A fresh virtual environment that has what Inlaid depends on, and pip."""
    return Environment(tmp_path / "venv", dependencies)


@pytest.fixture
def inlaid_environment(tmp_path: Path, dependencies: Path, distributions: Path) -> Environment:
    """A fresh virtual environment that has Inlaid, with x86 and the conformance suite, and pip. It shares Inlaid with other tests,
    so that it has no script `inlaid`: its command is `python -m inlaid`."""
    return Environment(tmp_path / "venv", distributions, dependencies)


def copy_checkout(folder: Path) -> Path:
    """Copy what the packages are made of to a new folder."""
    folder.mkdir()
    for part in PARTS:
        if (ROOT / part).is_dir():
            shutil.copytree(ROOT / part, folder / part, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info", ".*_cache"))
        else:
            shutil.copy(ROOT / part, folder)
    return folder


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of what the packages are made of."""
    return copy_checkout(tmp_path / "checkout")
