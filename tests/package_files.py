"""Package files that a test takes apart, changes and writes anew, sound in all else."""

from __future__ import annotations

import hashlib
import io
import json
import struct
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from inlaid_runtime.execution import package as package_module

Json = Any
_LENGTH = struct.Struct("<Q")


def read_members(data: bytes) -> dict[str, bytes]:
    """Return the members of a package by name."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {info.filename: archive.read(info) for info in archive.infolist()}


def composed(members: Iterable[tuple[str, bytes]], compression: int = zipfile.ZIP_STORED) -> bytes:
    """Write members as a package, with their checksums, and the weights aligned to a page."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", compression) as archive:
        for name, data in members:
            info = zipfile.ZipInfo(name)
            info.compress_type = compression
            if name == "weights.bin":
                package_module._pad_to_page(info, file.tell())
            archive.writestr(info, data)
    return file.getvalue()


def rewrite(path: Path, change: Callable[[Json], bytes | None]) -> None:
    """Change the manifest of a package, or replace it by the bytes that `change` returns."""
    members = read_members(path.read_bytes())
    manifest = json.loads(members["manifest.json"])
    result = change(manifest)
    members["manifest.json"] = result if isinstance(result, bytes) else json.dumps(manifest).encode()
    path.write_bytes(composed(members.items()))


def described(content: bytes) -> tuple[Json, bytes]:
    """Split a code member into its description and its code."""
    (length,) = _LENGTH.unpack_from(content)
    end = _LENGTH.size + length
    return json.loads(content[_LENGTH.size : end]), content[end:]


def with_code(members: dict[str, bytes], member: str, content: bytes) -> dict[str, bytes]:
    """Replace a code member, and its hash in the manifest."""
    old, new = (hashlib.sha256(each).hexdigest().encode() for each in (members[member], content))
    return {**members, member: content, "manifest.json": members["manifest.json"].replace(old, new)}


def joined(description: Json, code: bytes) -> bytes:
    """Join a description and code to a code member."""
    text = json.dumps(description).encode()
    return _LENGTH.pack(len(text)) + text + code


def redescribe(path: Path, member: str, change: Callable[[Json], bytes | None]) -> None:
    """Change the description in a code member, or replace it by the bytes that `change` returns."""
    members = read_members(path.read_bytes())
    description, code = described(members[member])
    result = change(description)
    content = joined(description, code) if result is None else _LENGTH.pack(len(result)) + result + code
    path.write_bytes(composed(with_code(members, member, content).items()))
