"""Tensor data in files beside the model.

The names come from an untrusted model. Nothing outside the model's folder is ever opened: a name is a relative path of plain
parts, every part is opened relative to its folder without following links, and the file must be an ordinary one with a single
name. Compare CVE-2022-25882 and CVE-2024-27318 (`..`), CVE-2026-27489 (links) and CVE-2026-34445 (keys and lengths).
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from inlaid.errors import ModelImportError

if TYPE_CHECKING:
    import onnx

KEYS = ("location", "offset", "length", "checksum")
"""The keys that an external-data entry may have. The checksum is not verified: ONNX does not say of which bytes it is."""

_DIGITS = 18  # a decimal number of so many digits fits 64 bits


@dataclass(frozen=True)
class Reference:
    """Where a tensor's bytes are: `length` bytes from `offset` in the file `location`; None: as many as the tensor has."""

    location: str
    offset: int = 0
    length: int | None = None


@dataclass(frozen=True)
class ExternalData:
    """The files beside one model. `folder` is None for a model that was not read from a file. `opened` is told the location of each
    file from which data is taken."""

    folder: Path | None
    file: str
    opened: Callable[[str], None] = lambda location: None

    def read(self, tensor: onnx.TensorProto, size: int) -> bytes:
        """The `size` bytes of a tensor. Raises `ModelImportError`, naming tensor and file."""
        try:
            reference = parse(tensor.external_data)
            if self.folder is None:
                raise ValueError("the model was not read from a file, so the folder of its data is unknown: load it by its path")
            if reference.length is not None and reference.length != size:
                raise ValueError(f"the entry has length {reference.length}, but shape and type make {size} bytes")
            data = read_range(self.folder, reference, size)
            self.opened(reference.location)
            return data
        except FileNotFoundError as error:
            expected = f"expected the file {reference.location!r} in {self.folder}"
            raise ModelImportError(
                f"the external data of tensor {tensor.name!r} is missing: {expected}",
                node=f"{self.file}:{tensor.name}",
                remedy="copy it there from where the model comes from: it holds the weights",
            ) from error
        except (OSError, ValueError) as error:
            raise ModelImportError(
                f"cannot read the external data of tensor {tensor.name!r}: {error}", node=f"{self.file}:{tensor.name}"
            ) from error


def parse(entries: Iterable[onnx.StringStringEntryProto]) -> Reference:
    """Check the keys and values of an external-data entry. Raises ValueError."""
    found: dict[str, str] = {}
    for entry in entries:
        if entry.key not in KEYS:
            raise ValueError(f"unknown key {entry.key[:40]!r}; the keys are {', '.join(KEYS)}")
        if entry.key in found:
            raise ValueError(f"key {entry.key!r} occurs twice")
        found[entry.key] = entry.value
    if "location" not in found:
        raise ValueError("it has no location")
    length = _number(found, "length") if "length" in found else None
    return Reference(found["location"], _number(found, "offset") if "offset" in found else 0, length)


def _number(found: dict[str, str], key: str) -> int:
    text = found[key]
    if not (text.isascii() and text.isdigit() and len(text) <= _DIGITS):
        raise ValueError(f"{key} {text[:40]!r} is not a number of bytes")
    return int(text)


def read_range(folder: Path, reference: Reference, size: int) -> bytes:
    """`size` bytes from the reference's offset on. Raises ValueError and OSError."""
    descriptor = _open_below(folder, reference.location)
    with os.fdopen(descriptor, "rb") as file:
        facts = os.fstat(file.fileno())
        if not stat.S_ISREG(facts.st_mode):
            raise ValueError(f"{reference.location!r} is not an ordinary file")
        if facts.st_nlink > 1:
            raise ValueError(f"{reference.location!r} has a second name (a hard link), perhaps outside the model's folder")
        if reference.offset + size > facts.st_size:
            raise ValueError(f"{size} bytes at offset {reference.offset} reach beyond the end of {reference.location!r}")
        file.seek(reference.offset)
        data = file.read(size)
        if len(data) != size:
            raise ValueError(f"{reference.location!r} became shorter while it was read")
        return data


def _open_below(folder: Path, location: str) -> int:
    """A descriptor of the file at a relative path below a folder, reached without following any link."""
    parts = location.split("/")
    if parts[0] == "." and len(parts) > 1:
        del parts[0]
    if "\\" in location or ":" in location or "\0" in location or not all(parts) or any(part in (".", "..") for part in parts):
        raise ValueError(f"{location[:200]!r} is not a plain path inside the model's folder")
    here = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        for part in parts[:-1]:
            below = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=here)
            os.close(here)
            here = below
        # Without O_NONBLOCK, opening a named pipe would wait for a writer.
        return os.open(parts[-1], os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=here)
    finally:
        os.close(here)
