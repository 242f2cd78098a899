"""Plugins written to a temporary folder and found by entry points, as installed ones are."""

from __future__ import annotations

import importlib
import importlib.metadata
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

MakePlugin = Callable[[str, str], importlib.metadata.EntryPoint]


@pytest.fixture
def make_plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[MakePlugin]:
    """`make_plugin(name, source)` writes a module and gives the entry point that names it. The source is prefixed with the API
    version and the usual imports unless it states a version itself."""
    monkeypatch.syspath_prepend(str(tmp_path))
    modules: list[str] = []

    def make(name: str, source: str) -> importlib.metadata.EntryPoint:
        module = f"fake_plugin_{name}_{len(modules)}"
        head = "" if "PLUGIN_API_VERSION" in source else "PLUGIN_API_VERSION = 3\nfrom inlaid.plugins import *\n"
        (tmp_path / f"{module}.py").write_text(head + textwrap.dedent(source))
        importlib.invalidate_caches()
        modules.append(module)
        return importlib.metadata.EntryPoint(name, module, "inlaid.plugins")

    yield make
    for module in modules:
        sys.modules.pop(module, None)
