"""What all tests share, those of the plugins included."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from inlay.cache import SWITCH


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Tests neither read nor fill the user's cache: each test run has one of its own, which its processes share."""
    base = tmp_path_factory.getbasetemp()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str((base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "cache"))
        patch.delenv(SWITCH, raising=False)
        yield
