"""Products through tensor cores compute the same in the interpreter, which runs the instructions' own loop nests, and no thread of
them races with another."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.threads.printed import make_region
from tests.unit.schedules.threads.interpreter_checks import (
    check_against_interpreter,
    first_offer,
    inputs_for,
    kernel,
    planted_races,
)

from inlaid import ops
from inlaid.codegen.launch_plan import ThreadKernel
from inlaid.codegen.threads.kernel import print_thread_kernel, thread_source
from inlaid.lowering.kernels.finish import finish
from inlaid.schedules.threads.product import ProductRule
from inlaid.schedules.threads.tile_model import ContractionProblem
from inlaid.tensor import interp, ir
from inlaid.tensor.analysis.memory_scopes import check_scopes
from inlaid.tensor.transform.launches import split_launches
from inlaid_cuda.capabilities import REGISTERS, capabilities
from inlaid_cuda.cubin import resources
from inlaid_cuda.dialect import DIALECT
from inlaid_cuda.nvrtc import INSTALL, nvrtc
from inlaid_cuda.options import CudaOptions
from inlaid_cuda.tensor_cores.copies import copy_asynchronously
from inlaid_cuda.tensor_cores.instructions import has_copies, target_intrinsics
from inlaid_cuda.tensor_cores.product import TensorCoreRule
from inlaid_cuda.tensor_cores.tiles import Fetch, rank_tilings
from inlaid_cuda.tensor_cores.unit import ROW_BYTES
from inlaid_runtime import arith
from inlaid_runtime.errors import TargetError
from inlaid_runtime.types import dtype

from .host import EveryOrder

OPTIONS = CudaOptions(arch="sm_80", tf32=True)
ABLE, INSTRUCTIONS, RULE = capabilities(OPTIONS), target_intrinsics(OPTIONS), TensorCoreRule()
SMALL = (1, 1, 1, 1)
"""One warp with one fragment of sums, so that small products have many tiles."""
M, N, B = (arith.SizeVar(name, 0, 64) for name in "mnb")
TOTALS = {"float16": {}, "bfloat16": {}, "float32": {}, "int8": {"out_dtype": "int32"}, "uint8": {"out_dtype": "int32"}}
TYPES = list(TOTALS)


def find_tile(program, tile_shape):
    """A legal tile of some warps and fragments, of the least depth."""
    _, offer = first_offer(program, ABLE, RULE, INSTRUCTIONS)
    return min(tile for tile in offer.decisions[0].legal if tile[:4] == tile_shape)


def check_kernel(program, tile_shape=SMALL, sizes=(), **decided):
    tile = find_tile(program, tile_shape)
    return check_against_interpreter(program, ABLE, sizes, RULE, intrinsics=INSTRUCTIONS, tile=tile, **decided)


def product(a_shape, b_shape, dtype_name="float16", after=ops.relu, turn=False, extra_operands=()):
    def body(a, b, *more):
        if turn:
            a, b = (ops.transpose(item, perm=(1, 0)) for item in (a, b))
        return after(ops.matmul(a, b, **TOTALS[dtype_name]), *more)

    return kernel(body, (a_shape, dtype_name), (b_shape, dtype_name), *extra_operands)


@pytest.mark.parametrize("turn", [False, True])
@pytest.mark.parametrize("dtype_name", TYPES)
def test_products_of_each_type(dtype_name, turn):
    depth = 80 // dtype(dtype_name).bytes  # two steps and a half
    shapes = ((depth, 24), (20, depth)) if turn else ((24, depth), (depth, 20))
    split = check_kernel(product(*shapes, dtype_name=dtype_name, turn=turn))
    assert not planted_races(split), "each barrier is needed"
    (program,) = (item.program for item in split.kernels.values())
    assert any(isinstance(stmt, ir.Intrinsic) and "product" in stmt.name for stmt in ir.walk_stmts(program.body))


@pytest.mark.parametrize("tile_shape", [(1, 1, 2, 1), (2, 1, 1, 2), (1, 2, 1, 1)])
@pytest.mark.parametrize("stages", [1, 2])
def test_warps_and_fragments_share_tiles(tile_shape, stages):
    split = check_kernel(product((24, 40), (40, 36)), tile_shape, stages=stages)
    assert not planted_races(split)


@settings(max_examples=5, deadline=None)
@given(st.integers(9, 40), st.integers(2, 40), st.integers(9, 40), st.sampled_from(TYPES))
def test_products_of_any_size(m, k, n, dtype_name):
    check_kernel(product((m, k), (k, n), dtype_name))


def test_rows_and_batches_need_not_be_known():
    check_kernel(product((M, 24), (24, 24)), sizes=[{M: 5}, {M: 0}, {M: 33}])
    check_kernel(product((B, M, 24), (B, 24, N)), sizes=[{B: 2, M: 17, N: 9}, {B: 0, M: 5, N: 9}, {B: 1, M: 1, N: 1}])


def residual(y, bias, other):
    return ops.add(ops.relu(ops.add(y, bias)), other)


def test_what_follows_is_fused():
    split = check_kernel(product((24, 24), (24, 24), after=residual, extra_operands=(((24,), "float16"), ((24, 24), "float16"))))
    assert len(split.kernels) == 1


CONVOLUTIONS = {
    "padded": {"strides": (1, 1), "pads": (1, 1, 1, 1)},
    "strided": {"strides": (2, 2), "pads": (0, 1, 0, 1)},
}


@pytest.mark.parametrize("dtype_name", ["float16", "int8"])
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolutions_are_products(name, dtype_name):
    check_kernel(
        kernel(
            lambda x, w: ops.conv(x, w, **CONVOLUTIONS[name], **TOTALS[dtype_name]),
            ((2, 5, 8, 8), dtype_name),
            ((12, 5, 3, 3), dtype_name),
        )
    )


@pytest.mark.parametrize("program", [
    product((4, 32), (32, 64)),
    product((64, 1), (1, 64)),
    kernel(lambda x: ops.reduce_sum(x, axes=(1,), keepdims=False), ((64, 50), "float16")),
    kernel(ops.matmul, ((64, 32), "float64"), ((32, 64), "float64")),
])  # fmt: skip
def test_other_kernels_are_declined(program):
    with pytest.raises(AssertionError, match="takes the kernel"):
        first_offer(program, ABLE, RULE, INSTRUCTIONS)


def test_float32_goes_through_tensor_cores_only_where_asked():
    plain = target_intrinsics(CudaOptions(arch="sm_80"))
    with pytest.raises(AssertionError, match="takes the kernel"):
        first_offer(product((64, 32), (32, 64), "float32"), ABLE, RULE, plain)
    assert not target_intrinsics(CudaOptions(arch="sm_70"))
    assert {item.name for item in target_intrinsics(CudaOptions(arch="sm_75"))} < {item.name for item in plain}


def scheduled(program, options=OPTIONS, **decided):
    """A kernel as it reaches the code generator, by the default tile unless one is decided."""
    _, offer = first_offer(program, capabilities(options), RULE, target_intrinsics(options), **decided)
    finished = finish(offer.schedule(program), able=capabilities(options))
    finished = copy_asynchronously(finished) if has_copies(options) else finished
    check_scopes(finished, capabilities(options).scopes)
    return finished


def intrinsic_names(program):
    return {stmt.name for stmt in ir.walk_stmts(program.body) if isinstance(stmt, ir.Intrinsic)}


@pytest.mark.usefixtures("host_compiler")
@pytest.mark.parametrize("dtype_name", TYPES)
def test_the_same_kernels_on_the_host(dtype_name):
    """Threads in every order, in the functions' bodies for the host."""
    depth = 80 // dtype(dtype_name).bytes
    programs = [product((24, depth), (depth, 20), dtype_name), product((depth, 24), (20, depth), dtype_name, turn=True)]
    if dtype_name == "float16":
        programs.append(
            kernel(lambda x, w: ops.conv(x, w, **CONVOLUTIONS["padded"]), ((1, 8, 6, 6), dtype_name), ((9, 8, 3, 3), dtype_name))
        )
    kernels = [scheduled(program, tile=find_tile(program, SMALL)) for program in programs]
    arrays = [inputs_for(program, {}, 3) for program in programs]
    references = [interp.run(program, inputs)[0] for program, inputs in zip(programs, arrays, strict=True)]
    results = [np.zeros_like(array) for array in references]
    EveryOrder(make_region(kernels), ABLE.scopes).run([array for inputs in arrays for array in inputs], results)
    for actual, expected in zip(results, references, strict=True):
        np.testing.assert_array_equal(actual, expected)


@pytest.mark.usefixtures("host_compiler")
@pytest.mark.parametrize("stages", [1, 3, 4])
def test_copies_stay_pending_over_several_steps(stages):
    """The host makes a copy when its thread waits for it, and poisons the target until then."""
    program = product((24, 104), (104, 24))
    decided = {"tile": find_tile(program, SMALL), "stages": stages}
    split = check_against_interpreter(program, ABLE, (), RULE, intrinsics=INSTRUCTIONS, **decided)
    assert not planted_races(split), "each barrier is needed"
    arrays = inputs_for(program, {}, 3)
    expected, result = interp.run(program, arrays)[0], np.zeros((24, 24), np.float16)
    compiled = EveryOrder(make_region([scheduled(program, **decided)]), ABLE.scopes)
    compiled.run(arrays, [result])
    np.testing.assert_array_equal(result, expected)
    pending_counts = {pending for pending in range(4) if f"inlaid_await_copies<{pending}>();" in compiled.source}
    assert pending_counts == {0, max(stages - 2, 0)}


def test_stages_follow_from_the_model():
    """Long steps hide main memory by themselves; short ones need several tiles under way."""

    def stages(*sizes, arch="sm_80"):
        options = CudaOptions(arch=arch)
        _, offer = first_offer(product(*sizes), capabilities(options), RULE, target_intrinsics(options))
        return offer.decisions[1]

    assert stages((128, 768), (768, 768)).default > 2 >= stages((4096, 4096), (4096, 4096)).default
    assert max(stages((128, 768), (768, 768), arch="sm_75").legal) == 2, "without asynchronous copies"


def test_vectors_are_copied_asynchronously():
    """What is copied is read behind a barrier, before which the kernel waits; what other statements read is stored as it was."""
    program = scheduled(product((M, 768), (768, 128)))
    assert intrinsic_names(program) >= {"cuda.copy.float16.8", "cuda.product.float16.float16"}
    (split_kernel,) = split_launches(program, ABLE.scopes).kernels.values()
    lines = [line.strip() for line in print_thread_kernel(ThreadKernel("k", split_kernel, 0), DIALECT).text.splitlines()]
    assert all(lines[at - 1].startswith("inlaid_await_copies<") for at, line in enumerate(lines) if line == "__syncthreads();")
    assert not any(name.startswith("cuda.copy") for name in intrinsic_names(copy_asynchronously(plainly_shared())))


def plainly_shared():
    """A kernel of threads that load and store shared memory themselves."""
    program = kernel(ops.matmul, ((64, 32), "float32"), ((32, 64), "float32"))
    _, offer = first_offer(program, ABLE, ProductRule())
    return finish(offer.schedule(program), able=ABLE)


INSTRUCTION = 16
OPCODES = {0x23C: "HMMA", 0x237: "IMMA", 0x83B: "LDSM", 0xFAE: "LDGSTS"}
"""The low 12 bits of an instruction, as `nvdisasm` names it."""


def opcodes(cubin):
    """How often each instruction occurs in a cubin, whose code is aligned."""
    words = np.frombuffer(cubin[: len(cubin) // INSTRUCTION * INSTRUCTION], np.uint64)[::2] & 0xFFF
    return {name: int((words == code).sum()) for code, name in OPCODES.items()}


@pytest.mark.parametrize(("dtype_name", "size", "arch"), [
    ("float16", 512, "sm_75"),
    ("float16", 4096, "sm_80"),
    ("bfloat16", 4096, "sm_90a"),
    ("float32", 1024, "sm_80"),
    ("int8", 512, "sm_75"),
    ("uint8", 512, "sm_90a"),
])  # fmt: skip
def test_compiled_kernels_hold_the_instructions_and_spill_nothing(dtype_name, size, arch):
    options = CudaOptions(arch=arch, tf32=True)
    program = scheduled(product((size, 128), (128, size), dtype_name), options)
    (split_kernel,) = split_launches(program, capabilities(options).scopes).kernels.values()
    text = print_thread_kernel(ThreadKernel("k", split_kernel, 0), DIALECT)
    cubin = compiler_for(arch).compile(thread_source([text], DIALECT), "k", arch).cubin
    opcode_counts = opcodes(cubin)
    products = text.text.count("inlaid_fragment_product")
    each = 2 if arch != "sm_75" else 4 if dtype_name == "float16" else 8
    assert opcode_counts["IMMA" if "int" in dtype_name else "HMMA"] >= each * products > 0
    assert opcode_counts["LDSM"] > 0 and (opcode_counts["LDGSTS"] > 0) == (arch != "sm_75")
    assert resources(cubin)["k"].local == 0


def compiler_for(arch):
    """NVRTC. Skips the test where none is installed that compiles for an architecture."""
    try:
        return nvrtc(arch)
    except TargetError as error:
        pytest.skip(f"{error.message}: {INSTALL}")


SHAPES = [(64, 64, 64), (128, 768, 768), (4096, 4096, 4096), (1, 4096, 32000), (31, 1000, 17)]


@pytest.mark.parametrize("bytes_", [1, 2, 4])
@pytest.mark.parametrize("shape", SHAPES)
def test_tilings_fit_the_device(shape, bytes_):
    m, k, n = shape
    problem = ContractionProblem(m, n, k, 1, bytes_, bytes_)
    for tiling in rank_tilings(problem, Fetch(4, 1), ABLE.threads, 48 << 10, 2):
        assert tiling.shared_bytes(bytes_, 1) <= 48 << 10 and tiling.threads * tiling.registers <= REGISTERS
        assert tiling.depth * bytes_ % ROW_BYTES == 0
