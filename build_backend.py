"""PEP 517 build backend: hatchling, but with dependencies that depend on what is built.

While a front end resolves an installation from a checkout, the runtime and the plugins are named by their folders in that checkout.
In a distribution to publish, they are named by version: in source distributions, and in wheels whose metadata the front end did not
request beforehand. An editable installation does not depend on the runtime: a copy of `inlaid` in site-packages would shadow the
sources.
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
"""Environment variables that make `hatch_build.py` name versions, or tell it that the installation is editable. A front end runs
each hook in a separate process, so the setting ends with the hook."""


def build_sdist(sdist_directory: str, config_settings: dict[str, Any] | None = None) -> str:
    """PEP 517 hook. The extras of a source distribution name plugins by version."""
    os.environ[RELEASE] = "1"
    return _hatchling.build_sdist(sdist_directory, config_settings)


def build_wheel(wheel_directory: str, config_settings: dict[str, Any] | None = None, metadata_directory: str | None = None) -> str:
    """PEP 517 hook. A front end that installs passes the directory of the metadata that it prepared, which the wheel must repeat.
    Without one, the wheel is for distribution, and its extras name plugins by version."""
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
