"""What a language for kernels on threads is to the printer: data and a few spellings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from inlaid.codegen.c_statements import Emitter
from inlaid.types import DType


class ThreadDialect(Protocol):
    """How a language like C spells kernels.

    Scalars are printed as C99 does: `prelude` gives the language the names of that (`int32_t`, `fmaf`, `INT64_C`, `NAN`). Products
    and sums in one expression may be contracted.

    Vectors have the numbers of `lanes`. Their operators work on lanes, integers wrap as unsigned ones do, comparisons give a mask:
    a vector of signed integers as wide as what is compared, of 0 and -1. A choice takes a mask as wide as what it chooses.

    converted: narrow floats, by name, that the language converts from and to float32, exactly and to nearest even. words: what no
    variable may be called. helpers: definitions by name, for `source` to print where a kernel or a later definition uses them.
    device, shared: qualifiers of a pointer to memory of the device, and to memory that the threads of a block share.
    static_shared: bytes of shared memory that a kernel may declare; more is allocated at its launch.

    emitters: how tensor intrinsics are printed, by name. asynchronous: the intrinsics that take effect later, and the call by which
    a thread waits for those that it began, which it makes before each barrier. dealt: scopes whose buffers are dealt out among the
    threads of a subgroup, and how many threads that is: a thread declares its part as words of 32 bits, and intrinsics alone access
    it, whole words at constant indices.
    """

    name: str
    prelude: str
    words: frozenset[str]
    lanes: tuple[int, ...]
    converted: frozenset[str]
    helpers: Mapping[str, str]
    device: str
    shared: str
    static_shared: int
    barrier: str
    emitters: Mapping[str, Emitter]
    asynchronous: Mapping[str, str]
    dealt: Mapping[str, int]

    def head(self, name: str, threads: tuple[int, int, int] | None) -> str:
        """The head of a kernel, `threads` in a block where that is known."""

    def position(self, thread: str) -> str:
        """The number of a thread or block along an axis such as "threadIdx.x"."""

    def shared_array(self, kind: str, name: str, count: int) -> str:
        """The declaration of an array that the threads of a block share, `count` 0 for memory allocated at the launch."""

    def vector(self, of: DType, lanes: int) -> str:
        """The type of vectors of an element type; of bool, that of a lane in memory."""

    def call(self, function: str, args: Sequence[str], of: DType, lanes: int) -> str:
        """A function of ir.UNARY, `fma` or `fmod`, on scalars (`lanes` 0) or vectors."""

    def any(self, mask: str, lanes: int) -> str:
        """Whether some lane of a mask of 8 bits is set."""

    def all(self, mask: str, lanes: int) -> str:
        """Whether all are."""

    def splat(self, value: str, of: DType, lanes: int) -> str:
        """A vector of equal lanes."""

    def elements(self, values: Sequence[str], of: DType) -> str:
        """A vector of scalars."""

    def lane(self, value: str, number: int, lanes: int) -> str:
        """A lane of a vector, which can be assigned to."""

    def choose(self, mask: str, a: str, b: str) -> str:
        """The lanes of `a` where a mask is set, of `b` elsewhere."""

    def convert(self, value: str, source: DType, to: DType, lanes: int) -> str:
        """A conversion as of a C cast, lane by lane; a mask keeps its meaning."""

    def decode(self, code: str, of: DType, lanes: int) -> str:
        """The float32 value of a narrow float, one of `converted`, that an unsigned integer of its width carries: a scalar (`lanes`
        0) or a vector."""

    def encode(self, value: str, of: DType, lanes: int) -> str:
        """The unsigned integer that carries a float32 value as a narrow float."""

    def reinterpret(self, value: str, to: DType, lanes: int) -> str:
        """The bits of a scalar (`lanes` 0) or vector as another type of as many bits."""

    def shuffle(self, value: str, lane: str, width: int) -> str:
        """The scalar `value` of another thread. `lane`, modulo `width`, a power of two, is the number of that thread in the aligned
        group of `width` threads of a subgroup. All threads of the block reach it. Printed only where the target has `shuffles`."""

    def load(self, pointer: str, space: str, of: DType, lanes: int, aligned: int) -> str:
        """A vector from memory qualified by `space`, at a multiple of `aligned` bytes."""

    def store(self, value: str, pointer: str, space: str, of: DType, lanes: int, aligned: int) -> str:
        """The expression that stores a vector so."""
