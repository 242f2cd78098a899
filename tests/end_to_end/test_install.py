"""What the README and CONTRIBUTING say to type works: in a copy of the checkout, in a fresh virtual environment, with real tools.

The index is asked for what Inlaid depends on, never for Inlaid's own packages.
"""

from __future__ import annotations

import json
import sys
import tarfile
import zipfile
from email import message_from_bytes
from pathlib import Path

import pytest

import inlaid
import pips

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
PLUGINS = sorted(file.parent.name for file in ROOT.glob("plugins/*/pyproject.toml"))
TARGETS = ("cuda", "microcontroller", "opencl", "vta_fpga", "x86")
VERSION = inlaid.__version__


def check(environment, plugins=("x86",)) -> None:
    """Inlaid works in an environment, from a folder that is not the checkout, and has these plugins."""
    elsewhere = environment.folder / "elsewhere"
    elsewhere.mkdir()
    environment.run(environment.python, "-c", pips.USE, folder=elsewhere)
    rows = json.loads(environment.run(environment.inlaid, "targets", "--json", folder=elsewhere))
    assert {row["target"] for row in rows} == {"reference", *plugins}
    assert {row["target"] for row in rows if row["available"]} >= {"reference", "x86"}


def test_the_pip_that_python_brings(checkout, environment, monkeypatch):
    """Whatever its version, with both spellings of an extra: `python benchmarks/pips.py` has other versions, and other lines."""
    monkeypatch.setattr(pips, "ROOT", checkout)
    monkeypatch.delenv("XDG_CACHE_HOME")  # that of this test run, where pip would fetch everything again
    installer = pips.Installer(pips.BUNDLED, environment.python)
    for line in dict.fromkeys(pips.lines(quick=True)):
        if line.requirement == ".[vta-fpga]":
            assert installer.plan(line.requirement) >= set(line.distributions)
    assert installer.install(".[x86,vta_fpga]") >= {"inlaid-x86", "inlaid-vta-fpga"}
    check(environment, ("x86", "vta_fpga"))


def test_editable(checkout, furnished):
    furnished.pip("install", *pips.EDITABLE, folder=checkout)
    check(furnished)


def test_uv(checkout, furnished):
    """uv shares no code with pip. `python benchmarks/pips.py` has its editable installation."""
    furnished.fetch("uv")
    uv = furnished.python.parent / "uv"
    try:
        furnished.run(uv, "pip", "install", "--python", furnished.python, "hatchling", folder=checkout)
    except AssertionError as error:
        pytest.skip(f"uv, which does not read pip's settings, cannot reach an index: {str(error).splitlines()[-1]}")
    furnished.run(uv, "pip", "install", "--python", furnished.python, ".[x86]", folder=checkout)
    check(furnished)


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


def contents(wheel: Path) -> set[str]:
    """The files of packages in a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        return {name for name in archive.namelist() if ".dist-info/" not in name}


def modules(folder: Path) -> set[str]:
    """The files of a package."""
    return {path.relative_to(folder.parent).as_posix() for path in folder.rglob("*") if path.is_file()}


def test_what_is_built_for_others_names_plugins_by_version(checkout, furnished, tmp_path):
    dist = tmp_path / "dist"
    furnished.run(sys.executable, "-m", "build", "--outdir", dist, folder=checkout)  # a wheel by way of the source distribution
    build = (sys.executable, "-m", "build", "--no-isolation")  # once is enough to show that what builds a distribution is declared
    furnished.run(*build, "--wheel", "--outdir", tmp_path / "straight", folder=checkout)
    for folder in (checkout / "runtime", checkout / "core", *(checkout / "plugins" / name for name in PLUGINS)):
        furnished.run(*build, "--outdir", dist, folder=folder)
    built = [*dist.iterdir(), *(tmp_path / "straight").iterdir()]
    assert len(built) == 7 + 2 * len(PLUGINS)
    for file in built:
        needs = metadata(file)
        assert not [line for line in needs if " @ " in line], file.name
        if file.name.startswith("inlaid-"):
            extras = [line for line in needs if "extra ==" in line]
            plugins = {line.partition("<")[0] for line in extras if line.startswith("inlaid-")}
            assert plugins == {f"inlaid-{name.replace('_', '-')}" for name in PLUGINS}
            assert {f"inlaid-{Path(folder).name}=={VERSION}" for folder in pips.PARTS} <= set(needs)

    # A wheel from the checkout has both spellings of an extra, which pip below 23.3 compares literally. hatchling normalizes the
    # names when it builds from a source distribution.
    (straight,) = (tmp_path / "straight").glob("inlaid-*.whl")
    for name in PLUGINS:
        for extra in {name, name.replace("_", "-")}:
            assert any(line.endswith(f"extra == '{extra}'") for line in metadata(straight)), extra

    # Every package is in one wheel, whole.
    (user,) = dist.glob("inlaid-*.whl")
    wheels = [contents(file) for file in dist.glob("*.whl")]
    packages = [*checkout.glob("core/inlaid"), *checkout.glob("runtime/src/*"), *checkout.glob("plugins/*/src/*")]
    assert sum(map(len, wheels)) == len(set().union(*wheels)), "two distributions contain a file"
    assert set().union(*wheels) == set().union(*map(modules, packages)) and not contents(user)
    furnished.pip("install", f"{user}[x86]", *map(str, dist.glob("inlaid_*.whl")))
    check(furnished, TARGETS)
