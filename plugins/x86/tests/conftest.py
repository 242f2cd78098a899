"""What tests of x86 ask of the machine they run on."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from inlaid_x86_runtime import cpu
from inlaid_x86_runtime.cpu import LEVELS, host_features

OLDER_HOSTS = ("x86-64-v3", "x86-64-v2")


def _skip_unless_runnable(level: str) -> None:
    lacking = set(LEVELS.get(level, ())) - host_features()
    if lacking:
        pytest.skip(f"this processor has no {', '.join(sorted(lacking))}: code for {level} cannot run here")


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test whose parameter `cpu` names an instruction set that this machine lacks: its code would be illegal here."""
    callspec = getattr(item, "callspec", None)
    if callspec is not None:
        _skip_unless_runnable(str(callspec.params.get("cpu", "")))


@pytest.fixture(scope="module", params=["this host", *OLDER_HOSTS])
def host(request: pytest.FixtureRequest) -> Iterator[None]:
    """Run a test that compiles for `native` on this machine, and again as if it had only an older instruction set."""
    if request.param == "this host":
        yield
        return
    _skip_unless_runnable(request.param)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cpu, "processor_features", lambda: frozenset(LEVELS[request.param]))
        yield
