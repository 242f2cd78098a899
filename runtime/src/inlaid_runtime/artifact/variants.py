"""Joins versions of a region for different machines into one artifact."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from inlaid_runtime.artifact.artifact import Artifact
from inlaid_runtime.errors import PluginError


def joined(versions: Sequence[Artifact]) -> Artifact:
    """Join `versions` of a region, of which the least demanding is first, into one artifact. Duplicate versions are dropped, and
    equal constants share one array. Raises `PluginError` if signatures or aliases differ."""
    if len(versions) == 1:
        return versions[0]
    distinct_versions: list[Artifact] = []
    arrays: dict[object, np.ndarray[Any, Any]] = {}
    for version in versions:
        if version.signature != versions[0].signature:
            raise PluginError(f"the versions of region {version.symbol} have different signatures")
        if version.aliases != versions[0].aliases:
            raise PluginError(f"the versions of region {version.symbol} have different aliases")
        shared = {name: arrays.setdefault(_content(array), array) for name, array in version.constants.items()}
        constant_ids = list(map(id, shared.values()))
        if not any(
            replace(version, constants={}) == replace(other, constants={})
            and list(map(id, other.constants.values())) == constant_ids
            for other in distinct_versions
        ):
            distinct_versions.append(replace(version, constants=shared))
    return replace(distinct_versions[0], variants=tuple(reversed(distinct_versions[1:])))


def _content(array: np.ndarray[Any, Any]) -> object:
    """Compute a key that is equal for arrays with equal elements."""
    if array.dtype.hasobject:
        return id(array)
    return array.dtype, array.shape, hashlib.sha256(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data).digest()
