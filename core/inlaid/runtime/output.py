"""Output files: validation of paths, and atomic replacement."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

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


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """Open a temporary file that replaces `path` on success and is deleted on failure."""
    temporary = path.with_name(f".{path.name}.{os.urandom(4).hex()}.tmp")
    try:
        with open(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o666), "w+b") as file:
            yield file
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
