"""Models that are not right yet, and why. Tests and `bench_real.py` fail where a listed model is right: take it out then."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

KNOWN: Mapping[str, str] = MappingProxyType({})
