"""The images of a region's kernels in a package: a cubin, and PTX from which the driver compiles for later devices."""

from __future__ import annotations

import struct
from dataclasses import dataclass

_LENGTH = struct.Struct("<Q")


@dataclass(frozen=True)
class Images:
    """The cubin of an architecture, and its PTX, which ends with a null byte. `ptx` is empty for architectures with a suffix
    (sm_90a), whose PTX no other device compiles."""

    cubin: bytes
    ptx: bytes = b""

    def encode(self) -> bytes:
        """Encode the images: the length of the cubin as 8 bytes, cubin, PTX."""
        return _LENGTH.pack(len(self.cubin)) + self.cubin + self.ptx

    @staticmethod
    def decode(program: bytes) -> Images:
        """Decode the result of `encode`. Raises `ValueError` for a length beyond the end, and for PTX without its null byte, at
        which the driver stops to read."""
        if len(program) < _LENGTH.size:
            raise ValueError(f"expected at least {_LENGTH.size} bytes of images, got {len(program)}")
        (length,) = _LENGTH.unpack_from(program)
        end = _LENGTH.size + length
        if end > len(program):
            raise ValueError(f"expected a cubin of {length} bytes, got {len(program) - _LENGTH.size}")
        images = Images(program[_LENGTH.size : end], program[end:])
        if images.ptx and not images.ptx.endswith(b"\0"):
            raise ValueError("expected PTX that ends with a null byte")
        return images
