"""What all tests share, those of the plugins included."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from inlaid_runtime.cache import SWITCH

# No test asserts a speed: on a busy machine examples take longer than Hypothesis allows by default. Properties are tested with the
# same examples each time, so that a checkout which has passed passes again; `--hypothesis-profile=random` draws other ones.
settings.register_profile("random", settings.default, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("repeatable", settings.get_profile("random"), derandomize=True)
settings.load_profile("repeatable")

# Compiling makes many small objects and few cycles. By default, the collector of cycles runs after every 700 of them, which takes a
# tenth of the time of all tests.
gc.set_threshold(50_000, 20, 50)


def pytest_collection_finish() -> None:
    """Exempt modules and test items from garbage collection: a collection of them takes 0.25 s, and tests of leaks collect
    hundreds of times."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def common_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A temporary folder that the processes of a test run share."""
    own = tmp_path_factory.getbasetemp()
    return own.parent if "PYTEST_XDIST_WORKER" in os.environ else own


@pytest.fixture(scope="session", autouse=True)
def _shared_bytecode(common_folder: Path) -> Iterator[None]:
    """Processes that tests start share bytecode even where the environment forbids writing it beside the sources: compiling the
    sources takes as long as importing them."""
    with pytest.MonkeyPatch.context() as patch:
        if os.environ.get("PYTHONDONTWRITEBYTECODE"):
            patch.delenv("PYTHONDONTWRITEBYTECODE")
            patch.setenv("PYTHONPYCACHEPREFIX", str(common_folder / "bytecode"))
        yield


@pytest.fixture(scope="session", autouse=True)
def _own_cache(common_folder: Path) -> Iterator[None]:
    """Tests neither read nor fill the user's cache: each test run has one of its own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(common_folder / "cache"))
        patch.delenv(SWITCH, raising=False)
        yield
