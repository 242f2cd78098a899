"""The package file format: a compiled model as one `.inlaid` file.

A zip archive of uncompressed members:

    manifest.json   format and version; plans; regions by target, code and constants; the table of tensors
    code/<n>        code of regions, each distinct one stored once, after a description of what the code was compiled for
    weights.bin     all tensors; aligned to 4096 bytes in the file, each tensor to 64 bytes in the member

A code member starts with the byte length of its description (little-endian uint64) and the description, which is JSON: all that
the code relies on, such as signature, workspace, constraints and the types of constants. The hash of the member covers both, so
that no change elsewhere in the file makes code run on other sizes than it was compiled for.

Tensors with equal dtype and bytes are stored once. Equal models give equal bytes. The file is memory-mapped, so that processes
share the pages of weights. Nothing is unpickled or evaluated; all data is validated before use, and checksums detect damage. Code
in a package runs unrestricted: load only packages that you trust, as for shared libraries. `expect_sha256` pins a known file.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import mmap
import os
import re
import struct
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np

from inlaid_runtime.arith import Constraint, Dim
from inlaid_runtime.artifact import ALIGNMENT, Artifact, KernelInfo, Signature
from inlaid_runtime.artifact.plan import Plan, Program, RegionInfo
from inlaid_runtime.distinct import DistinctArrays
from inlaid_runtime.errors import PackageError, Remedy
from inlaid_runtime.execution.arrays import Array, address
from inlaid_runtime.execution.codec import MAX_RANK, Json, decode, encode, expect, expect_fields, expect_int
from inlaid_runtime.execution.output import check_output, replacing
from inlaid_runtime.records import dataclass, field
from inlaid_runtime.types import DTYPES, DType, from_numpy

FORMAT = "inlaid-package"
VERSION = 3
PAGE = 4096

_MANIFEST, _WEIGHTS = "manifest.json", "weights.bin"
_MEMBER = re.compile(r"manifest\.json|weights\.bin|code/(0|[1-9][0-9]{0,5})")
_MAX_MANIFEST = 64 << 20
_EPOCH = (1980, 1, 1, 0, 0, 0)
_PADDING_ID = 0x4C49  # id of an extra field of zeros that aligns the data to a page; other readers ignore it
_LOCAL_HEADER = struct.Struct("<4s5H3L2H")
_LEAST_BYTES = 22
"""Size of an empty zip file."""


@dataclass(frozen=True)
class Package:
    """Contents of a `.inlaid` file: the program, the code of its regions, and the plans' weights by name."""

    program: Program
    artifacts: tuple[Artifact, ...]
    weights: Mapping[str, Array]

    @property
    def weight_bytes(self) -> int:
        """Bytes of all constants, including constants of regions, each counted once."""
        versions = [version for artifact in self.artifacts for version in (artifact, *artifact.variants)]
        arrays = [*self.weights.values(), *(array for version in versions for array in version.constants.values())]
        return sum({(address(array), array.nbytes): array.nbytes for array in arrays}.values())


@dataclass(frozen=True)
class _ConstantType:
    """Name and type of a region's constant, as its code expects it."""

    name: str
    dtype: DType
    shape: tuple[int, ...]


@dataclass(frozen=True)
class _Description:
    """What a region's code was compiled for: the fields of `Artifact` that it relies on. `constants` are in the order of the
    artifact."""

    symbol: str
    format: str
    format_version: int
    signature: Signature
    workspace: Mapping[str, Dim]
    aliases: tuple[tuple[int, int], ...]
    constraints: tuple[Constraint, ...]
    requires: tuple[str, ...]
    kernels: tuple[KernelInfo, ...]
    constants: tuple[_ConstantType, ...]


_REGION_FIELDS = ("target", "nodes", "code", "sha256", "constants", "variants")
_LENGTH = struct.Struct("<Q")
"""Header of a code member: byte length of the description."""


# --- writing ----------------------------------------------------------------------------------------------------------------


@dataclass
class _Tensors:
    """Deduplicated tensors of a package that is being written."""

    table: list[dict[str, Json]] = field(default_factory=list)
    chunks: list[tuple[int, memoryview]] = field(default_factory=list)
    size: int = 0
    _distinct: DistinctArrays = field(default_factory=DistinctArrays)

    def add(self, array: Array) -> int:
        """Add a tensor and return its number in the table."""
        number = self._distinct.add(array)
        if number == len(self.table):
            dtype = from_numpy(array.dtype)
            raw = _pack_strings(array) if dtype.kind == "string" else _raw_bytes(array)
            offset = -(-self.size // ALIGNMENT) * ALIGNMENT
            self.table.append({"dtype": dtype.name, "shape": list(array.shape), "offset": offset, "bytes": len(raw)})
            self.chunks.append((offset, raw))
            self.size = offset + len(raw)
        return number

    def write(self, file: IO[bytes]) -> None:
        """Write the bytes of `weights.bin`."""
        position = 0
        for offset, raw in self.chunks:
            file.write(bytes(offset - position))
            file.write(raw)
            position = offset + len(raw)


def write_package(package: Package, path: Path) -> None:
    """Write a package to a file, atomically. Raises `OutputError`, `InputError` for a path that is a folder or a device, and
    `PackageError` for a manifest that is too large."""
    check_output(path)
    with replacing(path) as file:
        _write(package, file)


def encode_package(package: Package) -> bytes:
    """Return the content of a package's file. Raises `PackageError` for a manifest that is too large."""
    file = io.BytesIO()
    _write(package, file)
    return file.getvalue()


def _write(package: Package, file: IO[bytes]) -> None:
    """Write the content of a package's file."""
    tensors = _Tensors()
    codes: dict[bytes, str] = {}
    region_infos = {info.symbol: info for info in package.program.regions}

    manifest = {
        "format": FORMAT,
        "version": VERSION,
        "plans": [encode(plan) for plan in package.program.plans.values()],
        "regions": [_region(artifact, region_infos, codes, tensors) for artifact in package.artifacts],
        "weights": {name: tensors.add(array) for name, array in package.weights.items()},
        "tensors": tensors.table,
    }
    text = json.dumps(manifest, sort_keys=True, separators=(",", ":")).encode()
    if len(text) > _MAX_MANIFEST:
        raise PackageError(f"the manifest must have at most {_MAX_MANIFEST} bytes, got {len(text)}")
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr(_member(_MANIFEST), text)
        for content, name in codes.items():
            archive.writestr(_member(name), content)
        entry = _member(_WEIGHTS)
        entry.file_size = tensors.size
        _pad_to_page(entry, file.tell())
        with archive.open(entry, "w") as member:
            tensors.write(member)


def _region(
    artifact: Artifact, region_infos: Mapping[str, RegionInfo], codes: dict[bytes, str], tensors: _Tensors
) -> dict[str, Json]:
    """Return a region's entry in the manifest, and add its code to `codes` and its constants to `tensors`."""
    info, content = region_infos[artifact.symbol], _code_member(artifact)
    return {
        "target": info.target,
        "nodes": list(info.nodes),
        "code": codes.setdefault(content, f"code/{len(codes)}"),
        "sha256": hashlib.sha256(content).hexdigest(),
        "constants": [tensors.add(array) for array in artifact.constants.values()],
        "variants": [_region(variant, region_infos, codes, tensors) for variant in artifact.variants],
    }


def _code_member(artifact: Artifact) -> bytes:
    """Return the content of a code member: a description and the code."""
    description = _Description(
        artifact.symbol,
        artifact.format,
        artifact.format_version,
        artifact.signature,
        artifact.workspace,
        artifact.aliases,
        artifact.constraints,
        artifact.requires,
        artifact.kernels,
        tuple(_ConstantType(name, from_numpy(array.dtype), array.shape) for name, array in artifact.constants.items()),
    )
    text = json.dumps(encode(description), sort_keys=True, separators=(",", ":")).encode()
    return b"".join((_LENGTH.pack(len(text)), text, artifact.code))


def _member(name: str) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name, _EPOCH)
    info.create_system = 3
    info.external_attr = 0o644 << 16
    return info


def _pad_to_page(info: zipfile.ZipInfo, position: int) -> None:
    """Extend the local header, which starts at `position`, so that the data is page-aligned."""
    zip64 = 20 if info.file_size * 1.05 > zipfile.ZIP64_LIMIT else 0
    start = position + _LOCAL_HEADER.size + len(info.filename) + zip64 + 4
    info.extra = struct.pack("<HH", _PADDING_ID, -start % PAGE) + bytes(-start % PAGE)


def _raw_bytes(array: Array) -> memoryview:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def _pack_strings(array: Array) -> memoryview:
    """Encode strings as the end offsets of their UTF-8 bytes (little-endian uint64), followed by the bytes."""
    encoded = [item if isinstance(item, bytes) else str(item).encode("utf-8", "surrogateescape") for item in array.flat]
    ends = np.cumsum([len(item) for item in encoded], dtype=np.uint64) if encoded else np.zeros(0, np.uint64)
    return memoryview(ends.astype("<u8").tobytes() + b"".join(encoded))


# --- reading ----------------------------------------------------------------------------------------------------------------


def read_package(path: Path, expect_sha256: str | None = None) -> Package:
    """Read a package. Weights are memory-mapped from the file, which must not change while they are in use.

    `expect_sha256` is the hexadecimal SHA-256 of the whole file. Raises `PackageError` for a file that is unreadable, damaged or
    inconsistent, whose hash differs, or whose format version is not supported.
    """
    try:
        with path.open("rb") as file:
            if expect_sha256 is not None:
                _check_hash(path, hashlib.file_digest(file, "sha256").hexdigest(), expect_sha256)
            if os.fstat(file.fileno()).st_size < _LEAST_BYTES:
                raise _damaged(path, "it is too short for a zip file")
            return decode_package(path, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    except OSError as error:
        raise PackageError(f"cannot read {path}: {error.strerror or error}") from error


def package_from_bytes(content: bytes | bytearray | memoryview, expect_sha256: str | None = None) -> Package:
    """Return the package with the content of a file, which is copied. Raises as `read_package` does."""
    path = Path("<bytes>")
    if expect_sha256 is not None:
        _check_hash(path, hashlib.sha256(content).hexdigest(), expect_sha256)
    if len(content) < _LEAST_BYTES:
        raise _damaged(path, "it is too short for a zip file")
    pages = mmap.mmap(-1, len(content))  # starts at a page, as a file, so that weights are aligned
    pages[:] = content
    return decode_package(path, pages)


def _check_hash(path: Path, actual: str, expected: str) -> None:
    if actual != expected.lower():
        raise PackageError(f"{path}: expected SHA-256 {expected}, got {actual}")


def decode_package(path: Path, content: mmap.mmap, verified: bool = False) -> Package:
    """Decode the package in a mapped file, to which its weights refer. With `verified`, checksums are not compared. Raises as
    `read_package` does."""
    return _Reader(path, content, verified).read()


def _damaged(path: Path, why: str) -> PackageError:
    return PackageError(
        f"{path} is not a valid package: {why}",
        remedy=Remedy.join("create it again with ", Remedy("inlaid.compile(...).save(path)", "inlaid compile")),
    )


class _Reader:
    """Reads one package file."""

    def __init__(self, path: Path, content: mmap.mmap, verified: bool) -> None:
        self.path = path
        self.content = content
        self.data = memoryview(content)
        self.size = len(content)
        self.verified = verified

    def read(self) -> Package:
        """Read the package."""
        self.members = self._members()
        manifest = expect_fields(self._manifest(), ("format", "version", "plans", "regions", "weights", "tensors"), "manifest")
        tensors = [self._tensor(*item) for item in self._tensor_table(manifest["tensors"])]
        weights = {
            name: tensors[expect_int(number, f"weights.{name[:80]}", 0, len(tensors) - 1)]
            for name, number in expect(manifest["weights"], dict, "weights").items()
        }
        plans = [decode(Plan, item, f"plans[{index}]") for index, item in enumerate(expect(manifest["plans"], list, "plans"))]
        regions = [
            self._region(item, tensors, f"regions[{index}]")
            for index, item in enumerate(expect(manifest["regions"], list, "regions"))
        ]
        by_name = {plan.name: plan for plan in plans}
        if len(by_name) != len(plans):
            raise PackageError(f"{self.path}: plans must have different names")
        program = Program(by_name, tuple(info for info, _ in regions))
        return Package(program, tuple(artifact for _, artifact in regions), weights)

    def damaged(self, why: str) -> PackageError:
        """Return the error for a damaged zip file."""
        return _damaged(self.path, why)

    def _members(self) -> dict[str, memoryview]:
        """Return the data of every member by name. Checks that names are known, data is uncompressed, and no members overlap."""
        try:
            with zipfile.ZipFile(self.content) as archive:  # type: ignore[call-overload] # it ignores what seek returns
                infos, end = archive.infolist(), archive.start_dir
        except (zipfile.BadZipFile, NotImplementedError, UnicodeDecodeError, ValueError, struct.error, OverflowError) as error:
            raise self.damaged(f"{error}") from error
        members: dict[str, memoryview] = {}
        spans: list[tuple[int, int]] = []
        for info in infos:
            name = info.filename
            if not _MEMBER.fullmatch(name):
                raise self.damaged(f"it has an unknown member {name[:80]!r}")
            if name in members:
                raise self.damaged(f"it has two members {name!r}")
            begin, stop = self._span(info)
            spans.append((info.header_offset, stop))
            members[name] = self.data[begin:stop]
            if not self.verified and zlib.crc32(members[name]) != info.CRC:
                raise self.damaged(f"the checksum of {name} does not match")
        if _MANIFEST not in members or _WEIGHTS not in members:
            raise self.damaged("it has no manifest and weights")
        spans.sort()
        for (_, stop), (start, _) in zip(spans, [*spans[1:], (end, end)], strict=True):
            if stop > start:
                raise self.damaged("members overlap")
        return members

    def _span(self, info: zipfile.ZipInfo) -> tuple[int, int]:
        """Return the start and end of a member's data in the file."""
        if info.compress_type != zipfile.ZIP_STORED or info.flag_bits & ~0x800 or info.file_size != info.compress_size:
            raise self.damaged(f"{info.filename} is compressed or encrypted")
        begin = info.header_offset + _LOCAL_HEADER.size
        if info.header_offset < 0 or begin > self.size:
            raise self.damaged(f"{info.filename} is outside of the file")
        header = _LOCAL_HEADER.unpack(self.data[info.header_offset : begin])
        signature, flags, method, packed, plain = header[0], header[2], header[3], header[7], header[8]
        name_length, extra_length = header[9], header[10]
        name = bytes(self.data[begin : begin + name_length])
        sizes_fit = {packed, plain} <= {info.file_size, 0xFFFFFFFF}
        if signature != b"PK\x03\x04" or flags & ~0x800 or method or name != info.filename.encode() or not sizes_fit:
            raise self.damaged(f"the header of {info.filename} contradicts the directory")
        begin += name_length + extra_length
        if begin + info.file_size > self.size:
            raise self.damaged(f"{info.filename} extends beyond the end of the file")
        if info.filename == _WEIGHTS and begin % PAGE:
            raise self.damaged(f"{_WEIGHTS} is not page-aligned")
        return begin, begin + info.file_size

    def _manifest(self) -> dict[str, Json]:
        manifest = self._json(self.members[_MANIFEST], "the manifest")
        if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
            raise self.damaged("the manifest is not that of a package")
        if manifest.get("version") != VERSION:
            raise PackageError(
                f"{self.path}: expected package version {VERSION}, got {str(manifest.get('version'))[:20]}",
                remedy="compile the model again, or install the version of Inlaid that created it",
            )
        return manifest

    def _json(self, raw: memoryview, what: str) -> Json:
        if len(raw) > _MAX_MANIFEST:
            raise self.damaged(f"{what} must have at most {_MAX_MANIFEST} bytes, got {len(raw)}")
        try:
            return json.loads(bytes(raw).decode(), object_pairs_hook=_unique, parse_constant=_no_constant)
        except (ValueError, RecursionError) as error:
            raise self.damaged(f"{what} is not JSON: {error}") from error

    def _tensor_table(self, table: Json) -> Iterator[tuple[str, tuple[int, ...], int, int]]:
        """Yield the dtype, shape, offset and bytes of each tensor, in file order and without overlap."""
        position, limit = 0, len(self.members[_WEIGHTS])
        for index, item in enumerate(expect(table, list, "tensors")):
            where = f"tensors[{index}]"
            fields = expect_fields(item, ("dtype", "shape", "offset", "bytes"), where)
            dtype = expect(fields["dtype"], str, f"{where}.dtype")
            if dtype not in DTYPES:
                raise PackageError(f"{where}: {dtype[:80]!r} is not an element type")
            shape = tuple(expect_int(dim, f"{where}.shape", 0) for dim in expect(fields["shape"], list, f"{where}.shape"))
            offset = expect_int(fields["offset"], f"{where}.offset", position, limit)
            size = expect_int(fields["bytes"], f"{where}.bytes", 0, limit - offset)
            if len(shape) > MAX_RANK:
                raise PackageError(f"{where}: a shape has {len(shape)} dimensions")
            if offset % ALIGNMENT:
                raise PackageError(f"{where}: the offset {offset} is not a multiple of {ALIGNMENT}")
            if dtype != "string" and math.prod(shape) * DTYPES[dtype].bytes != size:
                raise PackageError(f"{where}: a tensor of dtype {dtype} and shape {shape} cannot have {size} bytes")
            position = offset + size
            yield dtype, shape, offset, size

    def _tensor(self, dtype: str, shape: tuple[int, ...], offset: int, size: int) -> Array:
        raw = self.members[_WEIGHTS][offset : offset + size]
        if dtype == "string":
            return self._strings(raw, shape)
        try:
            return np.ndarray(shape, DTYPES[dtype].numpy, raw)
        except (ValueError, TypeError) as error:
            raise PackageError(f"{self.path}: a tensor of shape {shape}: {error}") from error

    def _strings(self, raw: memoryview, shape: tuple[int, ...]) -> Array:
        count = math.prod(shape)
        if count * 8 > len(raw):
            raise PackageError(f"{self.path}: a tensor of {count} strings does not fit {len(raw)} bytes")
        ends = np.frombuffer(raw[: count * 8], "<u8").tolist()
        text = raw[count * 8 :]
        if any(a > b for a, b in zip([0, *ends], [*ends, len(text)], strict=True)):
            raise PackageError(f"{self.path}: the strings of a tensor are outside of it")
        strings = np.empty(count, object)
        for index, (begin, end) in enumerate(zip([0, *ends], ends, strict=False)):
            strings[index] = bytes(text[begin:end]).decode("utf-8", "surrogateescape")
        return strings.reshape(shape)

    def _variants(self, items: Json, tensors: Sequence[Array], where: str) -> tuple[Artifact, ...]:
        listed = enumerate(expect(items, list, f"{where}.variants"))
        return tuple(self._region(item, tensors, f"{where}.variants[{number}]", variant=True)[1] for number, item in listed)

    def _region(self, item: Json, tensors: Sequence[Array], where: str, variant: bool = False) -> tuple[RegionInfo, Artifact]:
        fields = expect_fields(item, _REGION_FIELDS, where)
        target = expect(fields["target"], str, f"{where}.target")
        nodes = tuple(expect(node, str, f"{where}.nodes") for node in expect(fields["nodes"], list, f"{where}.nodes"))
        description, code = self._code(fields, where)
        if variant and fields["variants"] != []:
            raise PackageError(f"{where}: a variant must not have variants")
        artifact = Artifact(
            description.symbol,
            description.format,
            description.format_version,
            code,
            description.signature,
            self._constants(description, fields["constants"], tensors, where),
            description.workspace,
            description.aliases,
            description.constraints,
            description.requires,
            description.kernels,
            () if variant else self._variants(fields["variants"], tensors, where),
        )
        return RegionInfo(description.symbol, target, nodes), artifact

    def _code(self, fields: Mapping[str, Json], where: str) -> tuple[_Description, bytes]:
        """Return the description and the code in a region's code member."""
        member = expect(fields["code"], str, f"{where}.code")
        if not member.startswith("code/") or member not in self.members:
            raise PackageError(f"{where}: unknown code member {member[:80]!r}")
        content = self.members[member]
        if hashlib.sha256(content).hexdigest() != fields["sha256"]:
            raise PackageError(f"{where}: the hash of {member} does not match")
        if len(content) < _LENGTH.size:
            raise self.damaged(f"{member} must have at least {_LENGTH.size} bytes, got {len(content)}")
        end = _LENGTH.size + expect_int(_LENGTH.unpack_from(content)[0], f"{member}.length", 0, len(content) - _LENGTH.size)
        description = decode(_Description, self._json(content[_LENGTH.size : end], f"the description in {member}"), member)
        return description, bytes(content[end:])

    def _constants(self, description: _Description, numbers: Json, tensors: Sequence[Array], where: str) -> dict[str, Array]:
        """Return a region's constants by name, in the order and with the types that its code expects."""
        location = f"{where}.constants"
        types = description.constants
        if len(expect(numbers, list, location)) != len(types) or len({constant.name for constant in types}) != len(types):
            raise PackageError(f"{location}: expected {len(types)} constants of different names, got {len(numbers)}")
        constants: dict[str, Array] = {}
        for number, constant in zip(numbers, types, strict=True):
            array = tensors[expect_int(number, location, 0, len(tensors) - 1)]
            if array.dtype != constant.dtype.numpy or array.shape != constant.shape:
                raise PackageError(
                    f"{location}: constant {constant.name[:80]!r} must be a tensor of {constant.dtype.name}{list(constant.shape)},"
                    f" got {array.dtype}{list(array.shape)}"
                )
            constants[constant.name] = array
        return constants


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("a field occurs twice")
    return members


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a number")
