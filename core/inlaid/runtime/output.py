"""Where results may be written."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from inlaid.errors import InputError


def check_output(path: Path, sources: Iterable[Path] = ()) -> None:
    """Raises `InputError` for a path that nothing may be written to: a folder, a device or whatever else is no regular file, and
    any of the `sources` that the result is made from."""
    remedy = "name a file of its own for the output"
    if path.is_dir():
        raise InputError(f"{path} cannot be written: it is a folder", remedy=remedy)
    if not path.exists():
        return
    if not path.is_file():
        raise InputError(f"{path} cannot be written: it is a device, a pipe or a socket", remedy=remedy)
    if any(source.exists() and path.samefile(source) for source in sources):
        raise InputError(f"{path} cannot be written: it is what the output is made from", remedy=remedy)
