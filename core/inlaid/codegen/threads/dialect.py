"""The interface between the kernel printer and a C-like kernel language."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from inlaid.codegen.c_statements import Emitter
from inlaid.tensor import ir
from inlaid_runtime.types import DType


class ThreadDialect(Protocol):
    """Syntax of a C-like kernel language.

    Scalar code is C99: `prelude` defines its names (`int32_t`, `fmaf`, `INT64_C`, `NAN`) in the language. A product and a sum in
    one expression may be contracted to an FMA.

    Vectors exist for the lane counts in `lanes`. Operators are lane-wise, and unsigned arithmetic wraps. The result of a comparison
    is a mask: a vector of signed integers of the operands' width, 0 or -1. The condition of a ternary is a mask of its operands'
    width.

    converted: names of narrow floats that the language converts from and to float32, rounding half to even. words: reserved names.
    helpers: definitions by name; `thread_source` prints the helpers that a kernel or a later helper uses. device, shared: address
    space qualifiers of pointers to device and shared memory. static_shared: maximum bytes of shared memory that a kernel may
    declare; beyond it, dynamic shared memory is allocated at launch.

    emitters: printers of tensor intrinsics by name. dealt: scopes whose buffers are distributed over the registers of a subgroup,
    mapped to its number of threads. A thread declares its part as 32-bit words; only intrinsics access it, in whole words at
    constant indices.
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
    dealt: Mapping[str, int]

    def with_waits(self, program: ir.LoopProgram) -> ir.LoopProgram:
        """Insert the waits that the asynchronous intrinsics of an SPMD kernel need before barriers."""

    def descriptor(self, stmt: ir.Intrinsic) -> str:
        """Return the descriptor of the buffer in an intrinsic's first region, as text for the launch plan; "" if the intrinsic
        takes no descriptor. The emitter gets the name of the descriptor parameter as last argument."""

    def descriptor_parameter(self, name: str) -> str:
        """Print the declaration of a descriptor parameter. Called only for intrinsics that take a descriptor."""

    def head(self, name: str, threads: tuple[int, int, int] | None) -> str:
        """Print a kernel's signature before its parameter list; `threads` is the block size, None if unknown."""

    def position(self, thread: str) -> str:
        """Print the index of the thread or block along an axis such as "threadIdx.x"."""

    def shared_array(self, kind: str, name: str, count: int) -> str:
        """Print the declaration of an array in shared memory; `count` 0 for dynamic shared memory."""

    def vector(self, dtype: DType, lanes: int) -> str:
        """Print the vector type of an element type; for bool, the vector type of its bytes in memory."""

    def call(self, function: str, args: Sequence[str], dtype: DType, lanes: int) -> str:
        """Print a call of a function in `ir.UNARY`, of `fma` or of `fmod`, on vectors; on scalars for `lanes` 0."""

    def any(self, mask: str, lanes: int) -> str:
        """Print the test whether any lane of a mask is set; the mask has 8 bits per lane."""

    def all(self, mask: str, lanes: int) -> str:
        """Print the test whether all lanes of a mask are set; the mask has 8 bits per lane."""

    def splat(self, value: str, dtype: DType, lanes: int) -> str:
        """Print the broadcast of a scalar."""

    def elements(self, values: Sequence[str], dtype: DType) -> str:
        """Print a vector of one scalar per lane."""

    def lane(self, value: str, number: int, lanes: int) -> str:
        """Print one lane of a vector as an lvalue."""

    def choose(self, mask: str, a: str, b: str) -> str:
        """Print a lane-wise select: `a` in lanes where the mask is set, `b` elsewhere."""

    def convert(self, value: str, source: DType, to: DType, lanes: int) -> str:
        """Print a lane-wise conversion with the semantics of a C cast; masks stay masks."""

    def decode(self, code: str, dtype: DType, lanes: int) -> str:
        """Print a conversion of the bits of a narrow float, an unsigned integer, to float32; `lanes` 0 for a scalar."""

    def encode(self, value: str, dtype: DType, lanes: int) -> str:
        """Print a conversion of float32 to the bits of a narrow float, an unsigned integer."""

    def reinterpret(self, value: str, to: DType, lanes: int) -> str:
        """Print a bitcast of a scalar (`lanes` 0) or vector to a type of the same width."""

    def shuffle(self, value: str, lane: str, width: int) -> str:
        """Print a shuffle: the scalar `value` of thread `lane` modulo `width`, a power of two, in an aligned group of `width`
        threads. All threads of the block execute it. Called only for targets with `shuffles`."""

    def load(self, pointer: str, space: str, dtype: DType, lanes: int, aligned: int) -> str:
        """Print a vector load from address space `space` at a multiple of `aligned` bytes."""

    def store(self, value: str, pointer: str, space: str, dtype: DType, lanes: int, aligned: int) -> str:
        """Print a vector store to address space `space` at a multiple of `aligned` bytes."""
