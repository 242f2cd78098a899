"""Names the extras: one per plugin folder.

In a checkout an extra points at the folder, so that plain pip installs the plugin that lies beside the core; in a source
distribution, and so in every wheel made from one, it names the plugin by version.
"""

import os
import tomllib
from pathlib import Path

from hatchling.metadata.plugin.interface import MetadataHookInterface

VERSIONS = ">=0.1,<0.2"


class CustomMetadataHook(MetadataHookInterface):
    """Fills in `optional-dependencies`."""

    def update(self, metadata):
        """Called by hatchling with the project table."""
        released = os.environ.get("INLAY_RELEASE") == "1"
        extras = {}
        for folder in sorted(Path(self.root, "plugins").glob("*/pyproject.toml")):
            project = tomllib.loads(folder.read_text())["project"]["name"]
            local = f"{project} @ {folder.parent.as_uri()}"
            extras[folder.parent.name] = [f"{project}{VERSIONS}" if released else local]
        metadata["optional-dependencies"] = extras
