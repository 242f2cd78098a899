"""Output files: validation of paths, and atomic replacement."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO

from inlaid.errors import InputError, OutputError

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Errors of a full disk, an exhausted quota, and a file that exceeds a limit on its size."""


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
    """Open a temporary file that replaces `path` on success and is deleted on failure. Raises `OutputError` for an `OSError`,
    also of the body."""
    temporary = path.with_name(f".{path.name}.{os.urandom(4).hex()}.tmp")
    try:
        try:
            with open(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o666), "w+b") as file:
                yield file
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)
    except OutputError:
        raise
    except OSError as error:
        raise _failure(path, error) from error


def write_files(contents: Mapping[Path, Iterable[bytes | bytearray | memoryview]]) -> None:
    """Write files, each given as chunks of its content. No file is replaced before all are written. Raises `OutputError`."""
    with ExitStack() as stack:
        for path, chunks in contents.items():
            file = stack.enter_context(replacing(path))
            try:
                file.writelines(chunks)
                file.flush()
            except OSError as error:
                raise _failure(path, error) from error


def write_text(path: Path, text: str) -> None:
    """Write a UTF-8 text file. Raises `OutputError`."""
    write_files({path: [text.encode()]})


def _failure(path: Path, error: OSError) -> OutputError:
    """Return the error of a file that cannot be written, with the free space of its disk if that is the reason."""
    reason, remedy = error.strerror or str(error), "choose another folder for the file"
    if error.errno in _FULL:
        try:
            status = os.statvfs(path.parent)
            reason += f", {status.f_bavail * status.f_frsize} bytes are free in {path.parent}"
        except OSError:
            pass
        remedy = f"free space, or {remedy}"
    elif error.errno in (errno.ENOENT, errno.ENOTDIR):
        remedy = f"create the folder {path.parent}, or {remedy}"
    return OutputError(f"cannot write {path}: {reason}", remedy=remedy)
