"""What the README and CONTRIBUTING say to type works: in a copy of the checkout, in a fresh virtual environment, with real tools.

The index is asked for what Inlay depends on, never for Inlay's own packages.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from email import message_from_bytes
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
PARTS = ("core", "plugins", "pyproject.toml", "hatch_build.py", "build_backend.py", "README.md", "CHANGELOG.md", "LICENSE")
PLUGINS = sorted(file.parent.name for file in ROOT.glob("plugins/*/pyproject.toml"))
USE = """
import inlay
import numpy as np

x = inlay.var("x", inlay.TensorType((3,), "float32"))
executable = inlay.compile(inlay.Module({"main": inlay.function([x], inlay.ops.relu(x))}), targets=["x86"])
(result,) = executable.run({"x": np.array([-1, 0.5, 2], np.float32)}).values()
assert result.tolist() == [0, 0.5, 2], result
assert {region.target for region in executable.regions} == {"x86"}
"""


def run(*command: str | Path, folder: Path) -> str:
    """Run a command in a folder, with no trace of the environment that the tests run in. Returns what it prints."""
    # The cache folder of the tests is Inlay's alone: pip and uv keep what they fetch in their own.
    hidden = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "INLAY_RELEASE", "XDG_CACHE_HOME")
    variables = {name: value for name, value in os.environ.items() if name not in hidden} | {"INLAY_CACHE": "off"}
    variables.setdefault("UV_SYSTEM_CERTS", "1")  # as pip does
    done = subprocess.run(list(map(str, command)), cwd=folder, env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(map(str, command))}\n{done.stdout}\n{done.stderr}"
    return done.stdout


class Environment:
    """A fresh virtual environment with the pip that this Python brings."""

    def __init__(self, folder: Path) -> None:
        venv.create(folder, with_pip=True, symlinks=True)
        self.python = folder / "bin" / "python"
        self.folder = folder.parent

    def pip(self, *arguments: str, folder: Path | None = None) -> str:
        return run(self.python, "-m", "pip", "--disable-pip-version-check", *arguments, folder=folder or self.folder)

    def fetch(self, *requirements: str) -> None:
        """Install a tool, or skip the test where there is none to be had."""
        try:
            self.pip("install", "--quiet", "--upgrade", *requirements)
        except AssertionError as error:
            pytest.skip(f"cannot install {' '.join(requirements)}: {str(error).splitlines()[-1]}")

    def check(self) -> None:
        """Inlay works here, from a folder that is not the checkout."""
        elsewhere = self.folder / "elsewhere"
        elsewhere.mkdir()
        run(self.python, "-c", USE, folder=elsewhere)
        rows = json.loads(run(self.python.parent / "inlay", "targets", "--json", folder=elsewhere))
        assert {row["target"]: row["available"] for row in rows} == {"reference": True, "x86": True}


@pytest.fixture
def checkout(tmp_path):
    """A copy of what the packages are made of."""
    folder = tmp_path / "checkout"
    folder.mkdir()
    for part in PARTS:
        if (ROOT / part).is_dir():
            shutil.copytree(ROOT / part, folder / part, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info", ".*_cache"))
        else:
            shutil.copy(ROOT / part, folder)
    return folder


@pytest.fixture
def environment(tmp_path):
    yield Environment(tmp_path / "venv")
    shutil.rmtree(tmp_path / "venv")  # pytest keeps temporary folders for a while, and this one is large


@pytest.mark.parametrize("arguments", [(".[x86]",), ("-e", ".[x86]"), ("-e", ".", "-e", "plugins/x86")], ids=" ".join)
def test_the_pip_that_python_brings(checkout, environment, arguments):
    environment.pip("install", *arguments, folder=checkout)
    environment.check()


@pytest.mark.skipif(sys.version_info < (3, 12), reason="Python 3.11 brings pip 23 itself")
def test_the_pip_that_python_3_11_brings(checkout, environment):
    environment.fetch("pip==23.2.*")
    environment.pip("install", ".[x86]", folder=checkout)
    environment.check()


@pytest.mark.parametrize("arguments", [(".[x86]",), ("-e", ".[x86]")], ids=" ".join)
def test_the_newest_pip(checkout, environment, arguments):
    environment.fetch("pip")
    environment.pip("install", *arguments, folder=checkout)
    environment.check()


@pytest.mark.parametrize("arguments", [(".[x86]",), ("-e", ".[x86]")], ids=" ".join)
def test_uv(checkout, environment, arguments):
    environment.fetch("uv")
    uv = environment.python.parent / "uv"
    try:
        run(uv, "pip", "install", "--python", environment.python, "hatchling", folder=checkout)
    except AssertionError as error:
        pytest.skip(f"uv, which does not read pip's settings, cannot reach an index: {str(error).splitlines()[-1]}")
    run(uv, "pip", "install", "--python", environment.python, *arguments, folder=checkout)
    environment.check()


def metadata(file: Path) -> list[str]:
    """The `Requires-Dist` lines of a wheel or a source distribution."""
    if file.suffix == ".whl":
        with zipfile.ZipFile(file) as wheel:
            (name,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
            content = wheel.read(name)
    else:
        with tarfile.open(file) as archive:
            (name,) = (name for name in archive.getnames() if name.count("/") == 1 and name.endswith("/PKG-INFO"))
            content = archive.extractfile(name).read()
    return message_from_bytes(content).get_all("Requires-Dist")


def modules(folder: Path) -> set[str]:
    """The files of a package that belong into its wheel."""
    return {path.relative_to(folder.parent).as_posix() for path in folder.rglob("*") if path.is_file()}


def test_what_is_built_for_others_names_plugins_by_version(checkout, environment, tmp_path):
    dist = tmp_path / "dist"
    run(sys.executable, "-m", "build", "--outdir", dist, folder=checkout)  # a wheel by way of the source distribution
    run(sys.executable, "-m", "build", "--wheel", "--outdir", tmp_path / "straight", folder=checkout)
    for name in PLUGINS:
        run(sys.executable, "-m", "build", "--wheel", "--outdir", dist, folder=checkout / "plugins" / name)
    built = [*dist.iterdir(), *(tmp_path / "straight").iterdir()]
    assert len(built) == 3 + len(PLUGINS)
    for file in built:
        needs = metadata(file)
        assert not [line for line in needs if " @ " in line], file.name
        if file.name.startswith("inlay-"):
            extras = [line for line in needs if "extra ==" in line]
            plugins = [line.partition("<")[0] for line in extras if line.startswith("inlay-")]
            assert plugins == [f"inlay-{name.replace('_', '-')}" for name in PLUGINS]

    (core,) = dist.glob("inlay-*.whl")
    with zipfile.ZipFile(core) as wheel:
        assert {name for name in wheel.namelist() if ".dist-info/" not in name} == modules(checkout / "core" / "inlay")
    environment.pip("install", f"{core}[x86]", *map(str, dist.glob("inlay_*.whl")))
    environment.check()
