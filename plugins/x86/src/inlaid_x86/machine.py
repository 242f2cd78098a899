"""LLVM for x86-64: text to object code."""

from __future__ import annotations

import functools
from collections.abc import Sequence

from inlaid.errors import CompileError
from inlaid_x86.emit import FULL, TRIPLE, emit, target_machine

__all__ = ["TRIPLE", "compile_text", "data_layout", "feature_text", "rejected"]


def feature_text(features: Sequence[str]) -> str:
    """Features as LLVM takes them."""
    return ",".join(f"+{name}" for name in features)


def compile_text(text: str, features: str = "", symbol: str = "", effort: int = FULL) -> bytes:
    """`emit.emit`. Raises `CompileError` where LLVM rejects the text."""
    try:
        return emit(text, features, symbol, effort)
    except RuntimeError as error:
        raise rejected(str(error)) from error


def rejected(reason: str) -> CompileError:
    """The error for text that LLVM does not take."""
    return CompileError(f"LLVM rejects the generated code: {reason}", plugin="x86")


@functools.cache
def data_layout() -> str:
    """How LLVM lays out types for x86-64."""
    return str(target_machine("").target_data)
