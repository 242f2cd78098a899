"""CUDA C++ as a `ThreadDialect`. The code includes no headers.

The same source compiles as host C++ if INLAID_HOST and CUDA's built-ins (`threadIdx`, `__global__`, `__syncthreads`) are defined.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from pathlib import Path

from inlaid.codegen.c import C_TYPES, c_type
from inlaid.codegen.c_statements import Emitter
from inlaid.tensor import ir
from inlaid_cuda.capabilities import ACCUMULATORS, FRAGMENT, WARP, WARPGROUP
from inlaid_cuda.tensor_cores import waits
from inlaid_cuda.tensor_cores.instructions import emitters, functions
from inlaid_cuda.tensor_cores.tile_loads import LOAD, build_tensor_map
from inlaid_runtime.types import DType

_LANES = (2, 4, 8, 16)
_ROUNDING = {"round": "rint"}
_WORDS = """
    alignas alignof and and_eq asm auto bitand bitor bool break case catch char char8_t char16_t char32_t class co_await co_return
    co_yield compl concept const const_cast consteval constexpr constinit continue decltype default delete do double dynamic_cast
    else enum explicit export extern false float for friend goto if inline int long mutable namespace new noexcept not not_eq
    nullptr operator or or_eq private protected public register reinterpret_cast requires restrict return short signed sizeof static
    static_assert static_cast struct switch template this thread_local throw true try typedef typeid typename union unsigned using
    virtual void volatile wchar_t while xor xor_eq
    threadIdx blockIdx blockDim gridDim warpSize NULL NAN INFINITY main
    fabs fabsf floor floorf ceil ceilf rint rintf trunc truncf sqrt sqrtf fma fmaf fmod fmodf memcpy memset malloc free printf
    abs min max div exp log pow sin cos tan tanh erf y0 y1 yn j0 j1 jn gamma index time signal clock round
"""
"""Names that variables must not have: keywords, and functions of CUDA or the C library that the variable would hide."""
_PRELUDE = Path(__file__).with_name("prelude.h").read_text()

_SHUFFLE = """\
// Return the value of another thread. All threads of the warp must call it; the last warp of a block may have fewer threads.
template <class T> inline T inlaid_shuffle(T value, int lane, int width) {
    const unsigned threads = blockDim.x * blockDim.y * blockDim.z;
    const unsigned first = (threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z)) / 32 * 32;
    const unsigned mask = threads - first < 32 ? (1u << (threads - first)) - 1 : 0xffffffffu;
    if constexpr (sizeof(T) < 4) return T(__shfl_sync(mask, int(value), lane, width));
    else return __shfl_sync(mask, value, lane, width);
}
"""


class CudaDialect:
    """Prints CUDA C++; implements `inlaid.codegen.threads.dialect.ThreadDialect`."""

    name = "CUDA C++"
    prelude = _PRELUDE
    words = frozenset(_WORDS.split())
    lanes: tuple[int, ...] = _LANES
    emitters: Mapping[str, Emitter] = emitters()
    dealt: Mapping[str, int] = {FRAGMENT: WARP, ACCUMULATORS: WARPGROUP}
    helpers: Mapping[str, str] = {
        f"{name}x{lanes}": f"typedef inlaid_vector<{kind}, {lanes}> {name}x{lanes};"
        for name, kind in C_TYPES.items()
        for lanes in _LANES
    } | {"inlaid_shuffle": _SHUFFLE, **functions()}
    converted = frozenset(("float16", "bfloat16"))
    device = ""
    shared = ""
    static_shared = 48 << 10
    barrier = "__syncthreads()"

    def with_waits(self, program: ir.LoopProgram) -> ir.LoopProgram:
        return waits.with_waits(program)

    def descriptor(self, stmt: ir.Intrinsic) -> str:
        return build_tensor_map(stmt).text() if stmt.name.startswith(f"{LOAD}.") else ""

    def descriptor_parameter(self, name: str) -> str:
        return f"const __grid_constant__ inlaid_tensor_map {name}"

    def head(self, name: str, threads: tuple[int, int, int] | None) -> str:
        # Without a minimum of one block per multiprocessor, the assembler spills registers for a higher occupancy.
        bounds = "" if threads is None else f" __launch_bounds__({prod(threads)}, 1)"
        return f'extern "C" __global__ void{bounds} {name}'

    def position(self, thread: str) -> str:
        return thread

    def shared_array(self, kind: str, name: str, count: int) -> str:
        if not count:
            return f"INLAID_LAUNCHED({kind}, {name});"
        # Tiles of tensor maps are swizzled within 1,024 bytes.
        return f"alignas({1024 if count >= 1024 else 16}) __shared__ {kind} {name}[{count}];"

    def vector(self, dtype: DType, lanes: int) -> str:
        return f"{dtype.name}x{lanes}"

    def call(self, function: str, args: Sequence[str], dtype: DType, lanes: int) -> str:
        return f"inlaid_{_ROUNDING.get(function, function)}({', '.join(args)})"

    def any(self, mask: str, lanes: int) -> str:
        return f"inlaid_any({mask})"

    def all(self, mask: str, lanes: int) -> str:
        return f"inlaid_all({mask})"

    def splat(self, value: str, dtype: DType, lanes: int) -> str:
        return f"inlaid_splat<{c_type(dtype)}, {lanes}>({value})"

    def elements(self, values: Sequence[str], dtype: DType) -> str:
        cast = f"({c_type(dtype)})" if dtype.is_int else ""  # ?: promotes 16-bit integers to int, which braces do not narrow
        return f"{self.vector(dtype, len(values))}{{{', '.join(f'{cast}({value})' if cast else value for value in values)}}}"

    def lane(self, value: str, number: int, lanes: int) -> str:
        halves = []
        while lanes > 1:
            lanes //= 2
            halves.append(".lo" if number % (2 * lanes) < lanes else ".hi")
        return value + "".join(halves)

    def choose(self, mask: str, a: str, b: str) -> str:
        return f"inlaid_choose({mask}, {a}, {b})"

    def convert(self, value: str, source: DType, to: DType, lanes: int) -> str:
        return f"inlaid_lanes<inlaid_cast, {c_type(to)}>({value})"

    def decode(self, code: str, dtype: DType, lanes: int) -> str:
        return f"inlaid_lanes<inlaid_from_{dtype}, float>({code})" if lanes else f"inlaid_from_{dtype}::of<float>({code})"

    def encode(self, value: str, dtype: DType, lanes: int) -> str:
        return f"inlaid_lanes<inlaid_to_{dtype}, uint16_t>({value})" if lanes else f"inlaid_to_{dtype}::of<uint16_t>({value})"

    def reinterpret(self, value: str, to: DType, lanes: int) -> str:
        return f"inlaid_lanes<inlaid_bits, {c_type(to)}>({value})" if lanes else f"inlaid_bits::of<{c_type(to)}>({value})"

    def shuffle(self, value: str, lane: str, width: int) -> str:
        return f"inlaid_shuffle({value}, {lane}, {width})"

    def load(self, pointer: str, space: str, dtype: DType, lanes: int, aligned: int) -> str:
        return f"inlaid_load<{c_type(dtype)}, {lanes}, {aligned}>({pointer})"

    def store(self, value: str, pointer: str, space: str, dtype: DType, lanes: int, aligned: int) -> str:
        return f"inlaid_store<{aligned}>({pointer}, {value})"


DIALECT = CudaDialect()
