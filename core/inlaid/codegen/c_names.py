"""Identifiers of C made from the names of a model."""

from __future__ import annotations

import re

from inlaid_runtime.names import unique

_WORDS = """
    workspace message team auto break case char const continue default do double else enum extern float for goto if inline int long
    register restrict return short signed sizeof static struct switch typedef union unsigned void volatile while
    alignas alignof bool class constexpr delete explicit export false friend mutable namespace new noexcept nullptr operator
    private protected public template this throw true try typeid typename using virtual and or not xor asm linux unix
"""
RESERVED_WORDS = frozenset(_WORDS.split())
"""Keywords and predefined macros of C and C++, and the parameter names of every model's function."""


def c_name(name: str) -> str:
    """Convert a model's name to a C identifier, the prefix of its C names."""
    clean = re.sub(r"[^A-Za-z0-9_]", "_", name)
    return clean if clean[:1].isalpha() and clean not in RESERVED_WORDS else f"model_{clean}"


def c_identifier(label: str, identifiers: set[str]) -> str:
    """Make a unique C identifier. Characters that C does not allow become underscores."""
    clean = re.sub(r"[^A-Za-z0-9_]", "_", label)
    if not clean[:1].isalpha() or clean.startswith("inlaid_"):
        clean = f"x_{clean}"
    return unique(clean, identifiers)


def c_comment(label: str) -> str:
    """Format a name of the model as a C comment; "" if a comment cannot contain it."""
    return f" ({label})" if label.isprintable() and "*/" not in label else ""
