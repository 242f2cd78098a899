"""What an entry of the corpus is: a model, where it comes from, and inputs of several sizes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx

Array = np.ndarray[Any, Any]
Feeds = Mapping[str, Array]

SCRIPT = "script"
"""Source of the models that this package builds itself."""


class NotInstalledError(Exception):
    """A model that another package has, or writes, is not there. The message names the command that installs it."""


class Draw:
    """Seeded inputs."""

    def __init__(self, seed: int) -> None:
        self._random = np.random.default_rng(seed)

    def floats(self, *shape: int, low: float = -1.0, high: float = 1.0) -> Array:
        """Uniform float32 in [low, high)."""
        return self._random.uniform(low, high, shape).astype(np.float32)

    def halves(self, *shape: int) -> Array:
        """Uniform float16 in [-1, 1)."""
        return self.floats(*shape).astype(np.float16)

    def tokens(self, below: int, *shape: int, dtype: type[np.integer[Any]] = np.int64) -> Array:
        """Uniform integers in [0, below)."""
        return self._random.integers(0, below, shape).astype(dtype)

    def lengths(self, count: int, longest: int, dtype: type[np.integer[Any]] = np.int64) -> Array:
        """`count` lengths in [1, longest]; the first is the longest."""
        lengths = self._random.integers(1, longest + 1, count).astype(dtype)
        lengths[:1] = longest
        return lengths

    def mask(self, batch: int, length: int, dtype: type[np.integer[Any]] = np.int64) -> Array:
        """[batch, length] of ones, then zeros: which positions of a padded batch count."""
        return (np.arange(length) < self.lengths(batch, length)[:, None]).astype(dtype)

    def words(self, vocabulary: tuple[str, ...], *shape: int) -> Array:
        """Strings drawn from a vocabulary."""
        return np.array(vocabulary, object)[self._random.integers(0, len(vocabulary), shape)]


@dataclass(frozen=True)
class Model:
    """A model and its inputs. `load` returns it, or raises `NotInstalledError`; `feeds` takes a `Draw` and one of `sizes`."""

    name: str
    domain: str
    source: str
    load: Callable[[], onnx.ModelProto]
    feeds: Callable[..., Feeds]
    sizes: tuple[tuple[int, ...], ...]
