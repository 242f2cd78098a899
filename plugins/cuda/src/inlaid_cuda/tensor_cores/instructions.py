"""Fragment instructions: their functions in CUDA C++, and the calls that kernels print.

Each function has two bodies: inline PTX, and C++ for the host. `threadIdx.x` is the lane. Each lane holds parts of the rows `lane /
4` and `lane / 4 + 8`. Of an operand fragment, it holds four words: the four bytes at `lane % 4 * 4` of each half of both rows. Of
an accumulator fragment, it holds eight words: the two columns at `lane % 4 * 2` of each half of both rows. mma.m16n8k16 has this
layout for 16-bit operands, as have other types in shapes of equal bytes (PTX ISA, "Matrix Fragments for mma"). `ldmatrix` loads it.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from inlaid.codegen.c_statements import Emitter, RegionPointer
from inlaid.tensor import ir
from inlaid.tensor.primitives import TensorIntrin
from inlaid_cuda.capabilities import SHARED, architecture
from inlaid_cuda.options import DEFAULT, HOST, CudaOptions, compute_capability
from inlaid_cuda.tensor_cores import copies, tile_functions, waits, wgmma
from inlaid_cuda.tensor_cores.products import LANES_AXIS, PRODUCTS, Product
from inlaid_cuda.tensor_cores.unit import fragment_product, fragment_rows, fragment_sums, fragment_zero
from inlaid_runtime.errors import Unsupported

_SECTION = re.compile(r"^//: (\w+)\n", re.MULTILINE)
_FROM_75 = ("float16", "int8", "uint8")
"""Operand types whose products sm_75 supports. Other types need sm_80 or later."""


@functools.cache
def target_intrinsics(options: CudaOptions) -> tuple[TensorIntrin, ...]:
    """Return the instructions of an architecture. Float32 products, which round operands to tf32, are included only with `tf32`."""
    capability = _capability(options)
    supported = (item for item in PRODUCTS if capability >= ((7, 5) if item.left in _FROM_75 else (8, 0)))
    products = intrinsics([item for item in supported if options.tf32 or item.left != "float32"])
    warpgroup_intrinsics = wgmma.intrinsics(options.tf32) if has_wgmma(options) else ()
    return (*products, *warpgroup_intrinsics, *copies.COPIES.values()) if has_copies(options) else products


def has_copies(options: CudaOptions) -> bool:
    """Test whether the architecture has asynchronous copies to shared memory."""
    return _capability(options) >= (8, 0)


def has_wgmma(options: CudaOptions) -> bool:
    """Test whether the architecture has wgmma. Only sm_90a has it; later architectures do not."""
    return architecture(options) == "sm_90a"


def _capability(options: CudaOptions) -> tuple[int, int]:
    arch = architecture(options)
    capability = compute_capability(DEFAULT if arch == HOST else arch)
    assert capability is not None, arch
    return capability


def intrinsics(products: Sequence[Product]) -> tuple[TensorIntrin, ...]:
    """Return the instructions that sum products of these types."""
    return tuple(_intrinsics(products))


def _intrinsics(products: Sequence[Product]) -> Iterator[TensorIntrin]:
    lane_axes = (LANES_AXIS,)
    for total in dict.fromkeys(item.total for item in products):
        yield TensorIntrin(f"cuda.zero.{total}", fragment_zero(total), lane_axes)
        yield TensorIntrin(f"cuda.store.{total}", fragment_sums(total, SHARED), lane_axes)
    for factor in dict.fromkeys(operand_type for item in products for operand_type in (item.left, item.right)):
        yield TensorIntrin(f"cuda.rows.{factor}", fragment_rows(factor, SHARED, False), lane_axes)
        if factor in ("float16", "bfloat16"):
            yield TensorIntrin(f"cuda.columns.{factor}", fragment_rows(factor, SHARED, True), lane_axes)
    for item in products:
        yield TensorIntrin(item.name, fragment_product(item.left, item.right, item.total), lane_axes)


def emitters() -> Mapping[str, Emitter]:
    """Return the emitters of the instructions, keyed by intrinsic name."""
    fragments = {item.name: functools.partial(_call, _function(item.name)) for item in intrinsics(PRODUCTS)}
    return tile_functions.Emitters(
        {**fragments, **copies.emitters(), **wgmma.emitters(), **waits.emitters(), **tile_functions.emitters()}
    )


def _function(name: str) -> str:
    """Return the name of an intrinsic's function. Only products and rounding functions depend on the types."""
    _, kind, *types = name.split(".")
    if kind == "rows" and types == ["float32"]:
        return "inlaid_fragment_rows_tf32"
    return f"inlaid_fragment_{'_'.join([kind, *types] if kind == 'product' else [kind])}"


def _call(function: str, pointers: Sequence[RegionPointer], args: Sequence[str]) -> Sequence[str]:
    """Print a call. Its arguments are the addresses of all regions and the row stride in bytes of the region in shared memory."""
    pitches = [str(_pitch(pointer.region.buffer)) for pointer in pointers if pointer.region.buffer.scope == SHARED]
    return [f"{function}({', '.join((*(pointer.pointer for pointer in pointers), *pitches))});"]


def _pitch(buffer: ir.Buffer) -> int:
    row = buffer.shape[-1]
    if not isinstance(row, int):
        raise Unsupported(f"buffer {buffer.name} of fragments: expected a constant size, got shape {buffer.shape}")
    return row * buffer.dtype.bytes


def functions() -> dict[str, str]:
    """Return the function definitions, keyed by name. A function may call functions before it."""
    sections = _SECTION.split(Path(__file__).with_name("functions.h").read_text())
    definitions = dict(zip(sections[1::2], sections[2::2], strict=True))
    return {**definitions, **{_function(item.name): _product(item) for item in PRODUCTS}, **wgmma.functions()}


def _product(item: Product) -> str:
    """Define a product: one PTX instruction per eight columns; on sm_75, several per part of the depth and rows."""
    sm_75_code = ""
    if item.total == "int32":
        parts = [(row, half) for row in (0, 1) for half in (0, 1)]
        sm_75_code = "".join(
            _mma("m8n8k16", item.types, [4 * n + 2 * row, 4 * n + 2 * row + 1], [row + 2 * half], [n + 2 * half])
            for n in (0, 1)
            for row, half in parts
        )
    elif item.left == "float16":
        sm_75_code = "".join(
            _mma("m16n8k8", item.types, list(range(4 * n, 4 * n + 4)), [2 * half, 2 * half + 1], [n + 2 * half])
            for n in (0, 1)
            for half in (0, 1)
        )
    code = "".join(_mma(item.shape, item.types, list(range(4 * n, 4 * n + 4)), [0, 1, 2, 3], [n, n + 2]) for n in (0, 1))
    if sm_75_code:
        code = f"#if __CUDA_ARCH__ >= 800\n{code}#else\n{sm_75_code}#endif\n"
    return f"""\
inline void {_function(item.name)}(const uint32_t *a, const uint32_t *b, uint32_t *t) {{
#ifndef INLAID_HOST
{code}#else
    typedef inlaid_multiplied<{item.host}> operands;
    operands own;
    __builtin_memcpy(own.a, a, sizeof(own.a));
    __builtin_memcpy(own.b, b, sizeof(own.b));
    __builtin_memcpy(own.t, t, sizeof(own.t));
    warp_gather(0xffffffffu, own, operands::run);
    __builtin_memcpy(t, own.t, sizeof(own.t));
#endif
}}
"""


def _mma(shape: str, types: str, sums: Sequence[int], left: Sequence[int], right: Sequence[int]) -> str:
    """Print one mma instruction. sums, left, right: numbers of the asm operands that hold the registers."""
    counts = [len(sums), len(left), len(right)]
    starts = [0, counts[0], counts[0] + counts[1]]
    d, a, b = (
        "{" + ", ".join(f"%{start + number}" for number in range(count)) + "}" for start, count in zip(starts, counts, strict=True)
    )
    outs = ", ".join(f'"+r"(t[{number}])' for number in sums)
    ins = ", ".join([*(f'"r"(a[{number}])' for number in left), *(f'"r"(b[{number}])' for number in right)])
    return f"""\
    asm volatile("mma.sync.aligned.{shape}.row.col.{types} {d}, {a}, {b}, {d};"
        : {outs} : {ins});
"""
