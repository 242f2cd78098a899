"""Strategies of the core's tests are used here."""

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[3]))


@pytest.fixture
def host_compiler():
    """The host's C++ compiler. Skips the test where there is none."""
    from inlaid_cuda.emulation.build import INSTALL, find_compiler

    return find_compiler() or pytest.skip(f"there is no C++ compiler: {INSTALL}")
