"""Names in C for what has names in a model."""

from __future__ import annotations

import re
from collections.abc import Iterable

_NOT_TELLING = re.compile(
    r"(activation|batch_normali[sz]ation|re_?lu|functional|model|fusedbatchnorm\w*|biasadd|readvariableop|resource)(_?\d+)?"
)
"""Parts of the names of TensorFlow's nodes that say nothing of what a layer is."""
LONGEST = 40


def label(nodes: Iterable[str], otherwise: str) -> str:
    """A short name for what computes some source nodes: that of the layer, where the name of a node is a path or several."""
    for node in nodes:
        parts = [part for path in node.split(";") for part in path.split("/")]
        telling = [part for part in parts if part and not _NOT_TELLING.fullmatch(part.lower())]
        if telling:
            return identifier(telling[0])
    return identifier(otherwise)


def identifier(text: str) -> str:
    """What C can call something, in lower case."""
    clean = re.sub(r"[^a-z0-9]+", "_", text.lower()).strip("_")[:LONGEST].rstrip("_")
    return clean if clean[:1].isalpha() else f"n{clean}" if clean else "kernel"
