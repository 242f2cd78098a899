"""What tests need that not every machine has. The reasons that they are skipped for say how to get it."""

from __future__ import annotations

import pytest

from inlay.plugins.registry import default_registry
from inlay.runtime.c_source import MISSING, REMEDY, find_compiler

needs_compiler = pytest.mark.skipif(find_compiler() is None, reason=f"{MISSING}: {REMEDY}")
needs_x86 = pytest.mark.skipif("x86" not in default_registry().kinds(), reason="needs the x86 plugin: pip install -e plugins/x86")
