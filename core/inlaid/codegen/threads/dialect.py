"""The interface between the kernel printer and a C-like kernel language."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from inlaid.codegen.c_statements import Emitter
from inlaid.types import DType


class ThreadDialect(Protocol):
    """Syntax of a C-like kernel language.

    Scalar code is C99: `prelude` defines its names (`int32_t`, `fmaf`, `INT64_C`, `NAN`) in the language. A product and a sum in
    one expression may be contracted to an FMA.

    Vectors exist for the lane counts in `lanes`. Operators are lane-wise, and unsigned arithmetic wraps. A comparison gives a mask:
    a vector of signed integers of the operands' width, with 0 and -1. A ternary takes a mask of its operands' width.

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
        """Kernel signature up to its parameter list; `threads` is the block size, None if unknown."""

    def position(self, thread: str) -> str:
        """Index of the thread or block along an axis such as "threadIdx.x"."""

    def shared_array(self, kind: str, name: str, count: int) -> str:
        """The declaration of an array that the threads of a block share, `count` 0 for memory allocated at the launch."""

    def vector(self, of: DType, lanes: int) -> str:
        """Vector type of an element type; for bool, of its bytes in memory."""

    def call(self, function: str, args: Sequence[str], of: DType, lanes: int) -> str:
        """Call of a function of ir.UNARY, `fma` or `fmod`, on vectors, or on scalars for `lanes` 0."""

    def any(self, mask: str, lanes: int) -> str:
        """Whether any lane of an 8-bit mask is set."""

    def all(self, mask: str, lanes: int) -> str:
        """Whether all lanes of an 8-bit mask are set."""

    def splat(self, value: str, of: DType, lanes: int) -> str:
        """Broadcast of a scalar."""

    def elements(self, values: Sequence[str], of: DType) -> str:
        """Vector from one scalar per lane."""

    def lane(self, value: str, number: int, lanes: int) -> str:
        """One lane of a vector, as an lvalue."""

    def choose(self, mask: str, a: str, b: str) -> str:
        """The lanes of `a` where a mask is set, of `b` elsewhere."""

    def convert(self, value: str, source: DType, to: DType, lanes: int) -> str:
        """Lane-wise conversion with the semantics of a C cast; masks stay masks."""

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
        """Vector store to address space `space`, with the alignment of an element."""
