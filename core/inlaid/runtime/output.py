"""Validation of output paths."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from inlaid.errors import InputError


def check_output(path: Path, sources: Iterable[Path] = ()) -> None:
    """Raise `InputError` for a path that must not be written: a folder, a device or another non-regular file, or one of the
    `sources` of the output."""
    remedy = "give another file for the output"
    if path.is_dir():
        raise InputError(f"cannot write {path}: it is a folder", remedy=remedy)
    if not path.exists():
        return
    if not path.is_file():
        raise InputError(f"cannot write {path}: it is a device, a pipe or a socket", remedy=remedy)
    if any(source.exists() and path.samefile(source) for source in sources):
        raise InputError(f"cannot write {path}: it is an input of this command", remedy=remedy)
