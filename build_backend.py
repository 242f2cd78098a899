"""hatchling, except that a source distribution always names the plugins by version."""

import os

from hatchling import build as _hatchling
from hatchling.build import *  # noqa: F403


def build_sdist(sdist_directory, config_settings=None):
    """PEP 517 hook."""
    os.environ["INLAY_RELEASE"] = "1"
    return _hatchling.build_sdist(sdist_directory, config_settings)
