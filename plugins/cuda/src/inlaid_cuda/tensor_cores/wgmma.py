"""Warpgroup products (PTX `wgmma.mma_async`, sm_90a): intrinsics, functions in CUDA C++, and the calls that kernels print.

A warpgroup is the 128 threads along `threadIdx.x`. It multiplies 64 rows by N columns over a step of 128 bytes of depth. Both
operands are in shared memory, accumulators in registers. Each function has two bodies: inline PTX, and C++ for the host. The C++
decodes the same matrix descriptors, so that a wrong layout or descriptor gives wrong numbers on the host too.

Layout of operands: `operand[chunk, other axis, element]`, with chunks along the contiguous axis. Without swizzling, a chunk has 16
bytes. So 8 rows of a chunk are a core matrix of 128 contiguous bytes, which wgmma reads without bank conflicts. The stride of
chunks is 16 bytes more than a multiple of the width of all banks. So adjacent threads, which copy adjacent chunks of a row, write
to different banks. With swizzling, a chunk has 128 bytes. Its 16-byte parts are permuted within each 8 rows, which are aligned to
1,024 bytes. Buffers of the IR have the order before the permutation, since only tile loads (`tile_loads`) write swizzled operands,
and they write whole tiles.

Sources: PTX ISA 8.0 and later, "Asynchronous Warpgroup Level Matrix Multiply-Accumulate Instructions": matrix descriptor, strides,
"Register Fragments" of accumulator D, "Async Proxy"; CUTLASS, `cute/atom/mma_traits_sm90_gmma.hpp`, for the canonical layouts
`INTERLEAVE` and `B128` of both majornesses and the roles of the leading and stride byte offsets in them.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from itertools import product as pairs

from inlaid.codegen.c_statements import Emitter, RegionPointer
from inlaid.tensor import ir
from inlaid.tensor.primitives import TensorIntrin
from inlaid.tensor.transform.paths import nest
from inlaid_cuda.capabilities import ACCUMULATORS, SHARED
from inlaid_cuda.tensor_cores.products import LANES_AXIS, PRODUCTS, Product
from inlaid_cuda.tensor_cores.waits import WGMMA
from inlaid_runtime import arith
from inlaid_runtime.arith import Var
from inlaid_runtime.errors import Unsupported
from inlaid_runtime.types import dtype

ROWS = 64
"""Rows of a warpgroup product."""
COLUMNS = (32, 64, 96, 128, 192, 256)
"""Column counts that the cost model chooses from. PTX supports multiples of 8 up to 256; for integers, from 32 on, multiples of
16."""
STEP_BYTES, CHUNK_BYTES, SWIZZLED_BYTES = 128, 16, 128
"""Bytes of depth per step; bytes of a chunk without swizzling; bytes of a chunk with swizzling."""
SWIZZLED = "cuda.wgmma_swizzled."
"""Name prefix of products with swizzled operands."""
INSTRUCTION_BYTES = 32
"""Bytes of depth that one instruction multiplies."""


def has_transposed(operand: str) -> bool:
    """Test whether wgmma supports M-major left and N-major right operands of a type: 16-bit types only."""
    return dtype(operand).bytes == 2


def chunk_size(operand: str, swizzled: bool) -> int:
    """Return the number of elements in a chunk of an operand."""
    return (SWIZZLED_BYTES if swizzled else CHUNK_BYTES) // dtype(operand).bytes


def _operand(
    name: str, operand: str, size: int, transposed: bool, swizzled: bool, i: Var, k: Var
) -> tuple[ir.Buffer, tuple[arith.Expr, ...]]:
    """Return the buffer of an operand, and the index of row or column i at depth k."""
    chunk, depth = chunk_size(operand, swizzled), STEP_BYTES // dtype(operand).bytes
    along, across, count, depth_extent = (i, k, size, depth) if transposed else (k, i, depth, size)
    return ir.Buffer(name, (count // chunk, depth_extent, chunk), dtype(operand), SHARED), (along // chunk, across, along % chunk)


def _product(item: Product, columns: int, transposed: tuple[bool, bool], swizzled: bool) -> ir.LoopProgram:
    """Return the semantics t[i, j] += sum over k of a[i, k] * b[j, k] on operands in chunked layout."""
    i, j, k = Var("i"), Var("j"), Var("k")
    a, at_a = _operand("a", item.left, ROWS, transposed[0], swizzled, i, k)
    b, at_b = _operand("b", item.right, columns, transposed[1], swizzled, j, k)
    accumulators = ir.Buffer("t", (ROWS, columns), dtype(item.total), ACCUMULATORS)
    terms = ir.cast(ir.load(a, at_a), item.total) * ir.cast(ir.load(b, at_b), item.total)
    store = ir.Store(accumulators, (i, j), ir.load(accumulators, (i, j)) + terms)
    loops = [(i, ROWS), (j, columns), (k, STEP_BYTES // dtype(item.left).bytes)]
    return ir.LoopProgram("wgmma", (a, b), (accumulators,), nest([(var, arith.wrap(extent)) for var, extent in loops], store))


def _on_accumulators(total: str, columns: int, scope: str | None) -> ir.LoopProgram:
    """Return the semantics s[i, j] = t[i, j] with s in `scope`; if `scope` is None, the semantics t[i, j] = 0."""
    i, j = Var("i"), Var("j")
    accumulators = ir.Buffer("t", (ROWS, columns), dtype(total), ACCUMULATORS)
    target = accumulators if scope is None else ir.Buffer("s", (ROWS, columns), dtype(total), scope)
    value = ir.const(0, dtype(total)) if scope is None else ir.load(accumulators, (i, j))
    body = nest([(i, arith.wrap(ROWS)), (j, arith.wrap(columns))], ir.Store(target, (i, j), value))
    return ir.LoopProgram("wgmma_accumulators", () if scope is None else (accumulators,), (target,), body)


def product_name(left: str, right: str, columns: int, transposed: tuple[bool, bool], swizzled: bool = False) -> str:
    """Return the name of a product's intrinsic. The last part is the contiguous axis of each operand: k, or m and n."""
    majors = ("m" if transposed[0] else "k") + ("n" if transposed[1] else "k")
    return f"{SWIZZLED if swizzled else WGMMA}{left}.{right}.{columns}.{majors}"


def accumulator_name(kind: str, total: str, columns: int) -> str:
    """Return the name of the intrinsic that zeroes accumulators (`kind` zero) or stores them to shared memory (`kind` store)."""
    return f"cuda.wgmma_{kind}.{total}.{columns}"


def _variants(item: Product, columns: int) -> Iterator[tuple[tuple[bool, bool], bool]]:
    """Yield the variants of a product as pairs: which operands are transposed, and whether both operands are swizzled."""
    lefts, rights = ((False, True) if has_transposed(operand) else (False,) for operand in (item.left, item.right))
    for transposed, swizzled in pairs(pairs(lefts, rights), (False, True)):
        if not (swizzled and transposed[1] and columns % chunk_size(item.right, True)):
            yield transposed, swizzled


@functools.cache
def intrinsics(tf32: bool) -> tuple[TensorIntrin, ...]:
    """Return the warpgroup intrinsics. Products of float32 are included only with `tf32`, which allows rounding of operands."""
    result = []
    products = [item for item in PRODUCTS if tf32 or item.left != "float32"]
    for columns in COLUMNS:
        for total in dict.fromkeys(item.total for item in products):
            for kind, scope in (("zero", None), ("store", SHARED)):
                name, semantics = accumulator_name(kind, total, columns), _on_accumulators(total, columns, scope)
                result.append(TensorIntrin(name, semantics, (LANES_AXIS,)))
        for item in products:
            for transposed, swizzled in _variants(item, columns):
                name = product_name(item.left, item.right, columns, transposed, swizzled)
                result.append(TensorIntrin(name, _product(item, columns, transposed, swizzled), (LANES_AXIS,)))
    return tuple(result)


# -- calls --


def emitters() -> Mapping[str, Emitter]:
    """Return the emitters of the intrinsics, keyed by intrinsic name."""
    emitters_by_name: dict[str, Emitter] = {}
    for columns in COLUMNS:
        for total in dict.fromkeys(item.total for item in PRODUCTS):
            emitters_by_name[accumulator_name("zero", total, columns)] = functools.partial(_call, f"inlaid_wgmma_zero<{columns}>")
            emitters_by_name[accumulator_name("store", total, columns)] = functools.partial(_call, f"inlaid_wgmma_store<{columns}>")
        for item in PRODUCTS:
            for transposed, swizzled in _variants(item, columns):
                name = product_name(item.left, item.right, columns, transposed, swizzled)
                function = f"{_function(item, columns)}<{int(transposed[0])}, {int(transposed[1])}, {int(swizzled)}>"
                emitters_by_name[name] = functools.partial(_call, function)
    return emitters_by_name


def _function(item: Product, columns: int) -> str:
    return f"inlaid_wgmma_{item.left}_{item.right}_{columns}"


def _call(function: str, pointers: Sequence[RegionPointer], args: Sequence[str]) -> Sequence[str]:
    """Print a call. Its arguments are the addresses of regions, and byte strides of operand chunks or of rows of stored
    accumulators."""
    pitches = []
    for buffer in (pointer.region.buffer for pointer in pointers if pointer.region.buffer.scope == SHARED):
        inner = buffer.shape[-1:] if len(pointers) == 2 else buffer.shape[-2:]
        size = arith.product(inner)
        if not isinstance(size, int):
            raise Unsupported(f"buffer {buffer.name} of wgmma: expected a constant size, got shape {buffer.shape}")
        pitches.append(str(size * buffer.dtype.bytes))
    return [f"{function}({', '.join((*(pointer.pointer for pointer in pointers), *pitches))});"]


# -- functions --


def functions() -> dict[str, str]:
    """Return the function definitions, keyed by name. A function may call functions before it."""
    return {_function(item, columns): _definition(item, columns) for item in PRODUCTS for columns in COLUMNS}


_TYPES = {"float16": "f16", "bfloat16": "bf16", "float32": "tf32", "int8": "s8", "uint8": "u8"}
_HOST = {"float32": "float, inlaid_from_tf32, float, inlaid_from_tf32, float"}


def _definition(item: Product, columns: int) -> str:
    """Define a step: `wgmma.fence` for the accumulator registers, the instructions as one group, and the wait for the group. They
    are one asm statement, so that the compiler cannot move accumulators between them."""
    count, words, bytes_ = STEP_BYTES // INSTRUCTION_BYTES, columns // 2, dtype(item.left).bytes
    types = f"{'s32' if item.total == 'int32' else 'f32'}.{_TYPES[item.left]}.{_TYPES[item.right]}"
    accumulators = ", ".join(f"%{word}" for word in range(words))
    transposes = f", %{words + 2 * count}, %{words + 2 * count + 1}" if bytes_ == 2 else ""
    scales = ", 1, 1" if item.total == "float32" else ""
    opcode = f"wgmma.mma_async.sync.aligned.m64n{columns}k{INSTRUCTION_BYTES // bytes_}.{types}"
    instructions = "\n".join(
        f'        "{opcode} {{{accumulators}}}, %{words + 2 * number}, %{words + 2 * number + 1}, p{scales}{transposes};"'
        for number in range(count)
    )
    outs = ", ".join(f'"+r"(t[{word}])' for word in range(words))
    ins = ", ".join(f'"l"(left[{number}]), "l"(right[{number}])' for number in range(count))
    flags = ', "n"(transposed_a), "n"(transposed_b)' if bytes_ == 2 else ""
    return f"""\
template <int transposed_a, int transposed_b, int swizzled>
inline void {_function(item, columns)}(const void *a, const void *b, uint32_t *t, int pitch_a, int pitch_b) {{
    uint64_t left[{count}], right[{count}];
    for (int number = 0; number < {count}; number++) {{
        left[number] = inlaid_wgmma_operand(a, pitch_a, transposed_a, swizzled, number, {bytes_});
        right[number] = inlaid_wgmma_operand(b, pitch_b, transposed_b, swizzled, number, {bytes_});
    }}
#ifndef INLAID_HOST
    asm volatile("{{ .reg .pred p; setp.eq.u32 p, 0, 0; wgmma.fence.sync.aligned;"
{instructions}
        "wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0; }}"
        : {outs}
        : {ins}{flags} : "memory");
#else
    for (int number = 0; number < {count}; number++)
        inlaid_wgmma_emulated<{_HOST.get(item.left, item.host)}, {columns}>(
            a, left[number], transposed_a, b, right[number], transposed_b, t
        );
#endif
}}
"""
