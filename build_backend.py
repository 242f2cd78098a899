"""PEP 517 build backend: hatchling, with dependencies that depend on the kind of build.

For an installation from a checkout, dependencies name folders of the checkout. For a distribution to publish, dependencies name
versions: in source distributions, and in wheels whose metadata the front end did not request beforehand.
"""

from __future__ import annotations

import os
from typing import Any

# Inside pip, hatchling omits the hooks that prepare metadata, because build hooks might change them. Inlaid has no build hooks, and
# without the metadata hooks pip would build a whole wheel just to read the dependencies.
os.environ.pop("PIP_BUILD_TRACKER", None)

from hatchling import build as _hatchling
from hatchling.build import *  # noqa: F403

RELEASE, EDITABLE = "INLAID_RELEASE", "INLAID_EDITABLE"
"""Environment variables for `hatch_build.py`: dependencies name versions; the installation is editable. A front end runs each hook
in a separate process, so a setting ends with the hook."""


def build_sdist(sdist_directory: str, config_settings: dict[str, Any] | None = None) -> str:
    """Build a source distribution (PEP 517 hook). Its extras name plugins by version."""
    os.environ[RELEASE] = "1"
    return _hatchling.build_sdist(sdist_directory, config_settings)


def build_wheel(wheel_directory: str, config_settings: dict[str, Any] | None = None, metadata_directory: str | None = None) -> str:
    """Build a wheel (PEP 517 hook). A front end that installs passes the directory of prepared metadata, which the wheel must
    repeat. Without `metadata_directory`, the wheel is for distribution, and its extras name plugins by version."""
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
