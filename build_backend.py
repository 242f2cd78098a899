"""hatchling, except for what the dependencies name.

While a front end resolves what to install from a checkout, the runtime and the plugins are named by the folders that lie beside the
core. In what is built to be handed on, they are named by version: in source distributions, and in wheels whose metadata no front
end has asked for beforehand. An editable installation does not depend on the runtime: a copy of `inlaid` in site-packages would
hide the sources.
"""

from __future__ import annotations

import os
from typing import Any

# Under pip, hatchling leaves out the hooks that prepare metadata, for projects whose build hooks change them. Inlaid has none, and
# without them pip builds a whole wheel to read its dependencies.
os.environ.pop("PIP_BUILD_TRACKER", None)

from hatchling import build as _hatchling
from hatchling.build import *  # noqa: F403

RELEASE, EDITABLE = "INLAID_RELEASE", "INLAID_EDITABLE"
"""The environment variables that tell `hatch_build.py` to name versions, or that the installation is editable. A front end calls
each hook in a process of its own, so that setting them here lasts no longer than the call."""


def build_sdist(sdist_directory: str, config_settings: dict[str, Any] | None = None) -> str:
    """PEP 517 hook."""
    os.environ[RELEASE] = "1"
    return _hatchling.build_sdist(sdist_directory, config_settings)


def build_wheel(wheel_directory: str, config_settings: dict[str, Any] | None = None, metadata_directory: str | None = None) -> str:
    """PEP 517 hook. A front end that installs has prepared the metadata, and must find the same in the wheel; one that builds for
    others has not."""
    if metadata_directory is None:
        os.environ[RELEASE] = "1"
    return _hatchling.build_wheel(wheel_directory, config_settings, metadata_directory)


def prepare_metadata_for_build_editable(metadata_directory: str, config_settings: dict[str, Any] | None = None) -> str:
    """PEP 660 hook."""
    os.environ[EDITABLE] = "1"
    return _hatchling.prepare_metadata_for_build_editable(metadata_directory, config_settings)


def build_editable(
    wheel_directory: str, config_settings: dict[str, Any] | None = None, metadata_directory: str | None = None
) -> str:
    """PEP 660 hook."""
    os.environ[EDITABLE] = "1"
    return _hatchling.build_editable(wheel_directory, config_settings, metadata_directory)
