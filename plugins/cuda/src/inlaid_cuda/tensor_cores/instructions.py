"""The instructions on fragments: their functions in CUDA C++, and how kernels call them.

Each function has two bodies: inline PTX, and C++ for the host. A lane, `threadIdx.x`, holds four words of a fragment of a factor:
of rows `lane / 4` and 8 further, four bytes at `lane % 4 * 4` of the first and of the second half. It holds eight words of a
fragment of sums: two neighbours at `lane % 4 * 2` in these rows, of the first eight columns and of the last. So PTX has it for
mma.m16n8k16 of 16-bit factors and for the shapes of as many bytes (PTX ISA, "Matrix Fragments for mma"), and `ldmatrix` loads it.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence

from inlaid.codegen.c_statements import Emitter, Place
from inlaid.errors import Unsupported
from inlaid.tensor import ir
from inlaid.tensor.primitives import TensorIntrin
from inlaid_cuda.capabilities import SHARED, architecture
from inlaid_cuda.options import DEFAULT, HOST, CudaOptions, compute_capability
from inlaid_cuda.tensor_cores import copies, tile_functions, waits, wgmma
from inlaid_cuda.tensor_cores.products import LANES_AXIS, PRODUCTS, Product
from inlaid_cuda.tensor_cores.unit import fragment_product, fragment_rows, fragment_sums, fragment_zero


def _ldmatrix(way: str) -> str:
    """Four matrices of 8 rows of 16 bytes, each row at the address that a lane gives."""
    return f"""\
    asm volatile("ldmatrix.sync.aligned.m8n8.x4{way}.shared.b16 {{%0, %1, %2, %3}}, [%4];"
        : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"(inlaid_shared_address(row)) : "memory");"""


_FROM_75 = ("float16", "int8", "uint8")
"""Factors that sm_75 multiplies; the others are from sm_80 on."""


@functools.cache
def intrinsics_of(options: CudaOptions) -> tuple[TensorIntrin, ...]:
    """The instructions of an architecture; products of float32, which round both factors to tf32, only where asked for."""
    capability = _capability(options)
    able = (item for item in PRODUCTS if capability >= ((7, 5) if item.left in _FROM_75 else (8, 0)))
    products = intrinsics([item for item in able if options.tf32 or item.left != "float32"])
    groups = wgmma.intrinsics(options.tf32) if has_wgmma(options) else ()
    return (*products, *groups, *copies.COPIES.values()) if has_copies(options) else products


def has_copies(options: CudaOptions) -> bool:
    """Whether the architecture copies to shared memory asynchronously."""
    return _capability(options) >= (8, 0)


def has_wgmma(options: CudaOptions) -> bool:
    """Whether the architecture multiplies matrices in shared memory by warpgroups: sm_90a alone, no later one has wgmma."""
    return architecture(options) == "sm_90a"


def _capability(options: CudaOptions) -> tuple[int, int]:
    arch = architecture(options)
    found = compute_capability(DEFAULT if arch == HOST else arch)
    assert found is not None, arch
    return found


def intrinsics(products: Sequence[Product]) -> tuple[TensorIntrin, ...]:
    """The instructions that sum products of these types."""
    return tuple(_intrinsics(products))


def _intrinsics(products: Sequence[Product]) -> Iterator[TensorIntrin]:
    over = (LANES_AXIS,)
    for total in dict.fromkeys(item.total for item in products):
        yield TensorIntrin(f"cuda.zero.{total}", fragment_zero(total), over)
        yield TensorIntrin(f"cuda.store.{total}", fragment_sums(total, SHARED), over)
    for factor in dict.fromkeys(of for item in products for of in (item.left, item.right)):
        yield TensorIntrin(f"cuda.rows.{factor}", fragment_rows(factor, SHARED, False), over)
        if factor in ("float16", "bfloat16"):
            yield TensorIntrin(f"cuda.columns.{factor}", fragment_rows(factor, SHARED, True), over)
    for item in products:
        yield TensorIntrin(item.name, fragment_product(item.left, item.right, item.total), over)


def emitters() -> Mapping[str, Emitter]:
    """How kernels call the instructions, by name."""
    fragments = {item.name: functools.partial(_call, _function(item.name)) for item in intrinsics(PRODUCTS)}
    return tile_functions.Emitters(
        {**fragments, **copies.emitters(), **wgmma.emitters(), **waits.emitters(), **tile_functions.emitters()}
    )


def _function(name: str) -> str:
    """The function of an intrinsic: only products and what rounds depend on types."""
    _, kind, *types = name.split(".")
    if kind == "rows" and types == ["float32"]:
        return "inlaid_fragment_rows_tf32"
    return f"inlaid_fragment_{'_'.join([kind, *types] if kind == 'product' else [kind])}"


def _call(function: str, places: Sequence[Place], args: Sequence[str]) -> Sequence[str]:
    """A call with the addresses of all regions, and bytes between rows of the one in shared memory."""
    pitches = [str(_pitch(place.region.buffer)) for place in places if place.region.buffer.scope == SHARED]
    return [f"{function}({', '.join((*(place.pointer for place in places), *pitches))});"]


def _pitch(buffer: ir.Buffer) -> int:
    row = buffer.shape[-1]
    if not isinstance(row, int):
        raise Unsupported(f"buffer {buffer.name} of shape {buffer.shape}, which fragments are loaded from, has no constant size")
    return row * buffer.dtype.bytes


def functions() -> dict[str, str]:
    """The definitions of the functions, by names; later ones call earlier ones."""
    products = {_function(item.name): _product(item) for item in PRODUCTS}
    fragments = {"inlaid_multiplied": _MULTIPLIED, **_MOVES, **products}
    others = copies.FUNCTIONS | waits.FUNCTIONS | tile_functions.FUNCTIONS
    return {"inlaid_shared_address": _ADDRESS, **fragments, **others, **wgmma.functions()}


_ADDRESS = """\
inline uint32_t inlaid_shared_address(const void *at) {
#ifndef INLAID_HOST
    uint32_t address;
    asm("{ .reg .u64 a; cvta.to.shared.u64 a, %1; cvt.u32.u64 %0, a; }" : "=r"(address) : "l"(at));
    return address;
#else
    return uint32_t(uint64_t(at));
#endif
}
"""
_MULTIPLIED = """\
#ifdef INLAID_HOST
// The product of two fragments by one lane, which sees the registers of all. `FromA` and `FromB` make numbers of elements.
template <class A, class FromA, class B, class FromB, class Total> struct inlaid_multiplied {
    uint32_t a[4], b[4];
    Total t[8];
    template <class T> static T element(const uint32_t *words, int row, int byte) {
        T value;
        __builtin_memcpy(&value, (const char *)(words + row / 8 + byte / 16 * 2) + byte % 4, sizeof(T));
        return value;
    }
    static void run(inlaid_multiplied *const lanes[32], unsigned) {
        for (int i = 0; i < 16; i++)
            for (int j = 0; j < 16; j++) {
                Total &total = lanes[i % 8 * 4 + j % 8 / 2]->t[j / 8 * 4 + i / 8 * 2 + j % 2];
                for (int k = 0; k < 32 / int(sizeof(A)); k++) {
                    const int byte = k * sizeof(A), lane = byte % 16 / 4;
                    const A a = element<A>(lanes[i % 8 * 4 + lane]->a, i, byte);
                    const B b = element<B>(lanes[j % 8 * 4 + lane]->b, j, byte);
                    total += FromA::template of<Total>(a) * FromB::template of<Total>(b);
                }
            }
    }
};
#endif
"""
_MOVES = {
    "inlaid_fragment_zero": """\
inline void inlaid_fragment_zero(uint32_t *to) {
    for (int word = 0; word < 8; word++) to[word] = 0;
}
""",
    "inlaid_fragment_store": """\
inline void inlaid_fragment_store(const uint32_t *from, void *to, int pitch) {
    const int lane = threadIdx.x;
    for (int pair = 0; pair < 4; pair++) {
        uint32_t *at = (uint32_t *)((char *)to + (lane / 4 + pair % 2 * 8) * pitch + lane % 4 * 8 + pair / 2 * 32);
        *(inlaid_vector<uint32_t, 2> *)at = {from[2 * pair], from[2 * pair + 1]};
    }
}
""",
    "inlaid_fragment_rows": """\
inline void inlaid_fragment_rows(const void *from, uint32_t *to, int pitch) {
    const int lane = threadIdx.x;
#ifndef INLAID_HOST
    const char *row = (const char *)from + lane % 16 * pitch + lane / 16 * 16;
{ldmatrix}
#else
    for (int word = 0; word < 4; word++)
        __builtin_memcpy(to + word, (const char *)from + (lane / 4 + word % 2 * 8) * pitch + lane % 4 * 4 + word / 2 * 16, 4);
#endif
}
""".replace("{ldmatrix}", _ldmatrix("")),
    "inlaid_fragment_columns": """\
inline void inlaid_fragment_columns(const void *from, uint32_t *to, int pitch) {
    const int lane = threadIdx.x;
#ifndef INLAID_HOST
    const char *row = (const char *)from + (lane / 16 * 8 + lane % 8) * pitch + lane / 8 % 2 * 16;
{ldmatrix}
#else
    for (int word = 0; word < 4; word++)
        for (int k = 0; k < 2; k++) {
            const char *row = (const char *)from + (lane % 4 * 2 + k + word / 2 * 8) * pitch;
            __builtin_memcpy((uint16_t *)(to + word) + k, row + (lane / 4 + word % 2 * 8) * 2, 2);
        }
#endif
}
""".replace("{ldmatrix}", _ldmatrix(".trans")),
    "inlaid_fragment_rows_tf32": """\
inline void inlaid_fragment_rows_tf32(const void *from, uint32_t *to, int pitch) {
    inlaid_fragment_rows(from, to, pitch);
    for (int word = 0; word < 4; word++) {
#ifndef INLAID_HOST
        asm("cvt.rna.tf32.f32 %0, %0;" : "+r"(to[word]));
#else
        if ((to[word] & 0x7f800000) != 0x7f800000) to[word] = (to[word] + 0x1000) & ~uint32_t(0x1fff);
#endif
    }
}
""",
}


def _product(item: Product) -> str:
    """Two instructions of PTX, for the first eight columns and for the last; on sm_75 those for parts of the depth and of rows."""
    old = ""
    if item.total == "int32":
        parts = [(row, half) for row in (0, 1) for half in (0, 1)]
        old = "".join(
            _mma("m8n8k16", item.types, [4 * n + 2 * row, 4 * n + 2 * row + 1], [row + 2 * half], [n + 2 * half])
            for n in (0, 1)
            for row, half in parts
        )
    elif item.left == "float16":
        old = "".join(
            _mma("m16n8k8", item.types, list(range(4 * n, 4 * n + 4)), [2 * half, 2 * half + 1], [n + 2 * half])
            for n in (0, 1)
            for half in (0, 1)
        )
    new = "".join(_mma(item.shape, item.types, list(range(4 * n, 4 * n + 4)), [0, 1, 2, 3], [n, n + 2]) for n in (0, 1))
    if old:
        new = f"#if __CUDA_ARCH__ >= 800\n{new}#else\n{old}#endif\n"
    return f"""\
inline void {_function(item.name)}(const uint32_t *a, const uint32_t *b, uint32_t *t) {{
#ifndef INLAID_HOST
{new}#else
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
    """One instruction on registers by number."""
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
