"""LLVM interface for x86-64: features, compilation errors, data layout."""

from __future__ import annotations

import functools
from collections.abc import Sequence

from inlaid_runtime.errors import CompileError
from inlaid_x86.emit import CALLS, FULL, TRIPLE, emit, target_machine
from inlaid_x86.processes import optimizer

__all__ = ["TRIPLE", "compile_text", "data_layout", "feature_text", "rejected"]


def feature_text(features: Sequence[str]) -> str:
    """Format features in LLVM's syntax, such as `+avx,+fma`."""
    return ",".join(f"+{name}" for name in features)


def compile_text(text: str, features: str = "", symbol: str = "", effort: int = FULL) -> bytes:
    """Compile LLVM text by `emit.emit`, here or in a process of `optimizer`. Raises `CompileError` if LLVM rejects the text, or
    crashes in a process."""
    try:
        return emit(text, features, symbol, effort) if effort == CALLS else optimizer().compile(text, features, symbol, effort)
    except RuntimeError as error:
        raise rejected(str(error)) from error


def rejected(reason: str) -> CompileError:
    """Create the error for text that LLVM rejects."""
    return CompileError(f"LLVM rejects the generated code: {reason}", plugin="x86")


@functools.cache
def data_layout() -> str:
    """Return LLVM's data layout string for x86-64."""
    return str(target_machine("").target_data)
