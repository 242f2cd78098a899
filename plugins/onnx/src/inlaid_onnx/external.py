"""External tensor data: files in the folder of the model.

File names come from an untrusted model. Files outside the model's folder are never opened: a name must be a relative path without
`.` or `..`, every part is opened relative to its parent without following symbolic links, and the file must be a regular file with
one hard link. Compare CVE-2022-25882 and CVE-2024-27318 (`..`), CVE-2026-27489 (links) and CVE-2026-34445 (keys and lengths).
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from inlaid_runtime.errors import ModelImportError
from inlaid_runtime.records import dataclass

if TYPE_CHECKING:
    import onnx

KEYS = ("location", "offset", "length", "checksum")
"""The allowed keys of an external-data entry. The checksum is not verified, as ONNX does not define which bytes it covers."""

_DIGITS = 18  # a decimal number of this length fits 64 bits


@dataclass(frozen=True)
class Reference:
    """Location of a tensor's bytes: `length` bytes (None: the size of the tensor) at `offset` in the file `location`."""

    location: str
    offset: int = 0
    length: int | None = None


@dataclass(frozen=True)
class ExternalData:
    """The external data of one model. `folder` is None for a model that was not read from a file. `opened` is called with the
    location of each file that is read."""

    folder: Path | None
    file: str
    opened: Callable[[str], None] = lambda location: None

    def read(self, tensor: onnx.TensorProto, size: int) -> bytes:
        """Read the `size` bytes of a tensor. Raises `ModelImportError`, naming the tensor and the file."""
        try:
            reference = parse(tensor.external_data)
            if self.folder is None:
                raise ValueError(
                    "the data is in the model's folder, which is unknown for a model given as bytes: load it by its path"
                )
            if reference.length is not None and reference.length != size:
                raise ValueError(f"expected {size} bytes for its shape and dtype, but the entry has length {reference.length}")
            data = read_range(self.folder, reference, size)
            self.opened(reference.location)
            return data
        except FileNotFoundError as error:
            expected = f"expected the file {reference.location!r} in {self.folder}"
            raise ModelImportError(
                f"the external data of tensor {tensor.name!r} is missing: {expected}",
                node=f"{self.file}:{tensor.name}",
                remedy="copy it there from the source of the model: it has the weights",
            ) from error
        except (OSError, ValueError) as error:
            raise ModelImportError(
                f"cannot read the external data of tensor {tensor.name!r}: {error}", node=f"{self.file}:{tensor.name}"
            ) from error


def parse(entries: Iterable[onnx.StringStringEntryProto]) -> Reference:
    """Check the keys and values of an external-data entry. Raises ValueError."""
    fields: dict[str, str] = {}
    for entry in entries:
        if entry.key not in KEYS:
            raise ValueError(f"unknown key {entry.key[:40]!r}, expected one of {', '.join(KEYS)}")
        if entry.key in fields:
            raise ValueError(f"duplicate key {entry.key!r}")
        fields[entry.key] = entry.value
    if "location" not in fields:
        raise ValueError("expected a key location, found none")
    length = _number(fields, "length") if "length" in fields else None
    return Reference(fields["location"], _number(fields, "offset") if "offset" in fields else 0, length)


def _number(fields: dict[str, str], key: str) -> int:
    text = fields[key]
    if not (text.isascii() and text.isdigit() and len(text) <= _DIGITS):
        raise ValueError(f"{key} must be a number of bytes, got {text[:40]!r}")
    return int(text)


def read_range(folder: Path, reference: Reference, size: int) -> bytes:
    """Read `size` bytes at the reference's offset. Raises ValueError and OSError."""
    descriptor = _open_below(folder, reference.location)
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise ValueError(f"{reference.location!r} is not a regular file")
        if status.st_nlink > 1:
            raise ValueError(f"{reference.location!r} has a second hard link, which may be outside the model's folder")
        if reference.offset + size > status.st_size:
            raise ValueError(f"{size} bytes at offset {reference.offset} exceed the end of {reference.location!r}")
        file.seek(reference.offset)
        data = file.read(size)
        if len(data) != size:
            raise ValueError(f"{reference.location!r} was truncated while it was read")
        return data


def _open_below(folder: Path, location: str) -> int:
    """Open the file at a relative path below a folder without following symbolic links. Returns its descriptor."""
    parts = location.split("/")
    if parts[0] == "." and len(parts) > 1:
        del parts[0]
    if "\\" in location or ":" in location or "\0" in location or not all(parts) or any(part in (".", "..") for part in parts):
        raise ValueError(f"expected a relative path inside the model's folder, without . or .., got {location[:200]!r}")
    folder_descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        for part in parts[:-1]:
            subfolder_descriptor = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=folder_descriptor)
            os.close(folder_descriptor)
            folder_descriptor = subfolder_descriptor
        # Without O_NONBLOCK, opening a named pipe would block until there is a writer.
        return os.open(parts[-1], os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder_descriptor)
    finally:
        os.close(folder_descriptor)
