"""What all tests share, those of the plugins included."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from inlay.cache import SWITCH


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Tests neither read nor fill the user's cache: each process of a test run has one of its own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        patch.delenv(SWITCH, raising=False)
        yield
