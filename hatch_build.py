"""Define the extras: one per plugin folder, `conformance` for the suite, and `cost` for placement by cost.

In a checkout, an extra points to the plugin's folder, so that pip installs the plugin next to the core. In source distributions
and in wheels for an index (see `build_backend.py`), it names the plugin by version.
"""

from __future__ import annotations

import os
import tomllib
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface


class CustomMetadataHook(MetadataHookInterface):
    """Fills in `optional-dependencies`."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Add the extras to the project table. Called by hatchling."""
        major, minor, _ = metadata["version"].split(".")
        versions = f">={major}.{minor},<{major}.{int(minor) + 1}"  # plugins and core share their version
        released = os.environ.get("INLAID_RELEASE") == "1"
        extras = {}
        for file in sorted(Path(self.root, "plugins").glob("*/pyproject.toml")):
            name = tomllib.loads(file.read_text(encoding="utf-8"))["project"]["name"]
            extras[file.parent.name] = [f"{name}{versions}" if released else f"{name} @ {file.parent.as_uri()}"]
        extras["conformance"] = ["hypothesis>=6.100", "pytest>=8"]
        extras["cost"] = ["scipy>=1.11"]
        metadata["optional-dependencies"] = extras
