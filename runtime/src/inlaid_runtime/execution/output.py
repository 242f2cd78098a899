"""Output files: validation of paths, and atomic replacement."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO

from inlaid_runtime.errors import InputError, OutputError

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Errors of a full disk, an exhausted quota, and a file that exceeds a limit on its size."""


def check_output(path: Path, sources: Iterable[Path] = ()) -> None:
    """Raise `InputError` for a path that must not be written: a folder, a device or another non-regular file, or one of the
    `sources` of the output. Raises `OutputError` for a path that the system refuses, such as one that is too long."""
    remedy = "give another file for the output"
    try:
        if path.is_dir():
            raise InputError(f"cannot write {path}: it is a folder", remedy=remedy)
        if not path.exists():
            return
        if not path.is_file():
            raise InputError(f"cannot write {path}: it is a device, a pipe or a socket", remedy=remedy)
    except OSError as error:
        raise _failure(path, error) from error
    if any(source.exists() and path.samefile(source) for source in sources):
        raise InputError(f"cannot write {path}: it is an input of this command", remedy=remedy)


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """Open a temporary file that replaces `path` on success and is deleted on failure. A link stays, and its target is replaced; an
    existing file keeps its mode, and its owner if the system permits. A file that is a mount point, or to which standard output or
    standard error is redirected, is overwritten in place.

    Raises `InputError` for a folder, a device or another non-regular file, and `OutputError` for an `OSError`, also for one that
    the body raises, unless that names another file.
    """
    check_output(path)
    target = os.path.realpath(path)
    # The name does not contain that of the file, which may have the greatest length already.
    temporary = os.path.join(os.path.dirname(target), f".{os.urandom(8).hex()}.tmp")
    try:
        if os.path.islink(target):
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        if _is_standard_stream(path):
            with open(path, "w+b") as file:
                yield file
            return
        try:
            with open(_create(temporary, target), "w+b") as file:
                yield file
            _move(temporary, target)
        finally:
            Path(temporary).unlink(missing_ok=True)
    except OutputError:
        raise
    except OSError as error:
        if isinstance(error.filename, (str, bytes, os.PathLike)) and os.fsdecode(error.filename) not in (
            str(path),
            target,
            temporary,
        ):
            raise
        raise _failure(path, error) from error


def _is_standard_stream(path: Path) -> bool:
    """Test whether standard output or standard error is redirected to a file."""
    for descriptor in (1, 2):
        with suppress(OSError):
            if os.path.samestat(os.stat(path), os.fstat(descriptor)):
                return True
    return False


def _create(temporary: str, target: str) -> int:
    """Create a file with the mode of the target, if that exists, and return its descriptor."""
    try:
        status = os.stat(target)
    except FileNotFoundError:
        return os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o666)
    mode = stat.S_IMODE(status.st_mode)
    descriptor = os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_RDWR, mode & 0o777)  # at no time readable by more users
    with suppress(OSError):  # only root may change the owner
        os.fchown(descriptor, status.st_uid, status.st_gid)
    with suppress(OSError):  # some file systems have no modes
        os.fchmod(descriptor, mode)
    return descriptor


def _move(temporary: str, target: str) -> None:
    """Replace the target by the temporary file; if the target is a mount point, replace its content."""
    try:
        os.replace(temporary, target)
    except OSError as error:
        if error.errno != errno.EBUSY:
            raise
        import shutil  # rarely needed, and 2 ms to import

        shutil.copyfile(temporary, target)


def write_files(contents: Mapping[Path, Iterable[bytes | bytearray | memoryview]]) -> None:
    """Write files, each given as chunks of its content. No file is replaced before all are written. Raises as `replacing` does."""
    with ExitStack() as stack:
        for path, chunks in contents.items():
            file = stack.enter_context(replacing(path))
            file.writelines(chunks)
            file.flush()


def write_text(path: Path, text: str) -> None:
    """Write a UTF-8 text file. Raises as `replacing` does."""
    write_files({path: [text.encode()]})


def _failure(path: Path, error: OSError) -> OutputError:
    """Return the error of a file that cannot be written, with the free space of its disk if that is the reason."""
    reason, remedy = error.strerror or str(error), "choose another folder for the file"
    folder = Path(os.path.realpath(path)).parent if os.path.islink(path) else path.parent
    if error.errno in _FULL:
        with suppress(OSError):
            status = os.statvfs(folder)
            reason += f", {status.f_bavail * status.f_frsize} bytes are free in {folder}"
        remedy = f"free space, or {remedy}"
    elif error.errno in (errno.ENOENT, errno.ENOTDIR):
        remedy = f"create the folder {folder}, or {remedy}"
    elif error.errno == errno.ENAMETOOLONG:
        remedy = "choose a shorter name"
    failure = OutputError(f"cannot write {path}: {reason}", remedy=remedy)
    failure.errno, failure.strerror, failure.filename = error.errno, error.strerror, str(path)
    return failure
