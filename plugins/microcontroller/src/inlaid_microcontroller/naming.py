"""C identifiers derived from a model's names."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

from inlaid_runtime.names import unique

_NOT_TELLING = re.compile(
    r"(activation|batch_normali[sz]ation|re_?lu|functional|model|fusedbatchnorm\w*|biasadd|readvariableop|resource)(_?\d+)?"
)
"""Parts of TensorFlow's node names that do not identify a layer."""
LONGEST = 40
"""Maximum length of an identifier."""
_FILES = """
    assert complex ctype errno fenv float inttypes iso646 limits locale math setjmp signal stdarg stdbool stddef stdint stdio stdlib
    string tgmath time wchar wctype arm_acle arm_mve main m all clean help install package test
"""
"""Names that a model must not have: names of C headers, of the example, of the math library and of CMake targets."""


def label(nodes: Iterable[str], otherwise: str) -> str:
    """Return a short label for the kernel of `nodes`: the name of the layer, extracted from node names, which may be paths."""
    for node in nodes:
        parts = [part for path in node.split(";") for part in path.split("/")]
        layer_names = [part for part in parts if part and not _NOT_TELLING.fullmatch(part.lower())]
        if layer_names:
            return identifier(layer_names[0])
    return identifier(otherwise)


def kernel(nodes: Iterable[str], otherwise: str, called: Collection[str], names: set[str]) -> str:
    """Choose the name of a kernel from its label. called: functions that kernels call. names: names of other kernels."""
    name = label(nodes, otherwise)
    is_reserved = name == "run" or name in called or re.match("(input|output)(_|$)", name)
    return unique(f"layer_{name}" if is_reserved else name, names)


def model(name: str) -> str:
    """Choose the C identifier of a model, which also names its files and library."""
    return f"model_{name}" if name.lower() in _FILES.split() else name


def identifier(text: str) -> str:
    """Convert text to a lower-case C identifier."""
    clean = re.sub(r"[^a-z0-9]+", "_", text.lower()).strip("_")[:LONGEST].rstrip("_")
    return clean if clean[:1].isalpha() else f"n{clean}" if clean else "kernel"
