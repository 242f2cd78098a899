"""Models that are not right yet, and why. Tests and `bench_real.py` fail where a listed model is right: take it out then."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

EXPECTED_FAILURES: Mapping[str, str] = MappingProxyType({})
