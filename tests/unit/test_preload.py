"""Modules are imported beside other work."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from inlaid.preload import preloading


def test_modules_are_imported_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"preloaded_{number}" for number in range(3)]
    for name in names:
        (tmp_path / f"{name}.py").write_text("import time\ntime.sleep(0.05)\n")
    monkeypatch.syspath_prepend(tmp_path)
    with preloading(["absent_module", *names]):
        while names[0] not in sys.modules:
            time.sleep(0.001)
    assert names[0] in sys.modules
    assert names[2] not in sys.modules  # not begun after the end of the block


def test_errors_of_the_work_pass_through() -> None:
    with pytest.raises(ValueError, match="work"), preloading(["json"]):
        raise ValueError("work")
