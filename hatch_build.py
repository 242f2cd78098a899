"""Defines the dependencies and the extras of `inlaid`: one extra per plugin folder, and `cost`.

In a checkout, dependencies and extras point to folders, so that pip installs from the checkout. In source distributions and in
wheels for an index (see `build_backend.py`), they name versions. In an editable installation, only extras point to folders: pip
refuses a part that is given as an editable folder and required as a folder."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

PARTS = ("runtime", "core", "plugins/onnx", "plugins/quantization", "plugins/cli")
"""Folders of the distributions that every installation has."""


class CustomMetadataHook(MetadataHookInterface):
    """Fills in `dependencies` and `optional-dependencies`."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Add the dependencies and extras to the project table. Called by hatchling."""
        version = metadata["version"]
        major, minor, _ = version.split(".")
        versions = f">={major}.{minor},<{major}.{int(minor) + 1}"  # plugins and core share their version
        released, editable = (os.environ.get(f"INLAID_{name}") == "1" for name in ("RELEASE", "EDITABLE"))
        metadata["dependencies"] = [
            f"inlaid-{Path(folder).name}" + (f"=={version}" if released or editable else f" @ {Path(self.root, folder).as_uri()}")
            for folder in PARTS
        ]
        extras: dict[str, list[str]] = {}
        for folder in sorted(file.parent for file in Path(self.root, "plugins").glob("*/pyproject.toml")):
            name = _project(folder)["name"]
            requirement = f"{name}{versions}" if released else f"{name} @ {folder.as_uri()}"
            # pip below 23.3 compares extras literally, so both spellings are declared. Newer tools read them as one extra.
            for extra in (folder.name, folder.name.replace("_", "-")):
                extras[extra] = [requirement]
        extras["cost"] = ["scipy>=1.11"]
        metadata["optional-dependencies"] = extras


def _project(folder: Path) -> dict[str, Any]:
    """Return the project table of a folder."""
    project: dict[str, Any] = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return project
