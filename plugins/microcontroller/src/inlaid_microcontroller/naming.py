"""Names in C for what has names in a model."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

from inlaid.names import unique

_NOT_TELLING = re.compile(
    r"(activation|batch_normali[sz]ation|re_?lu|functional|model|fusedbatchnorm\w*|biasadd|readvariableop|resource)(_?\d+)?"
)
"""Parts of the names of TensorFlow's nodes that say nothing of what a layer is."""
LONGEST = 40
_FILES = """
    assert complex ctype errno fenv float inttypes iso646 limits locale math setjmp signal stdarg stdbool stddef stdint stdio stdlib
    string tgmath time wchar wctype arm_acle arm_mve main m all clean help install package test
"""
"""Names that headers of C, the example, the library of mathematics and targets of CMake have already."""


def label(nodes: Iterable[str], otherwise: str) -> str:
    """A short name for what computes some source nodes: that of the layer, where the name of a node is a path or several."""
    for node in nodes:
        parts = [part for path in node.split(";") for part in path.split("/")]
        telling = [part for part in parts if part and not _NOT_TELLING.fullmatch(part.lower())]
        if telling:
            return identifier(telling[0])
    return identifier(otherwise)


def kernel(nodes: Iterable[str], otherwise: str, called: Collection[str], taken: set[str]) -> str:
    """What to call a kernel after its label. `called` are the functions that kernels call, `taken` the names of other kernels."""
    name = label(nodes, otherwise)
    meant_for_others = name == "run" or name in called or re.match("(input|output)(_|$)", name)
    return unique(f"layer_{name}" if meant_for_others else name, taken)


def model(name: str) -> str:
    """What to call a model, an identifier in C, whose files and library have that name too."""
    return f"model_{name}" if name.lower() in _FILES.split() else name


def identifier(text: str) -> str:
    """What C can call something, in lower case."""
    clean = re.sub(r"[^a-z0-9]+", "_", text.lower()).strip("_")[:LONGEST].rstrip("_")
    return clean if clean[:1].isalpha() else f"n{clean}" if clean else "kernel"
