"""Warpgroup products compute the same in the interpreter and on the host, whose functions decode matrix descriptors, in every order
of threads; no thread races with another; and they compile for sm_90a to the instructions. No GPU has run them."""

from __future__ import annotations

import numpy as np
import pytest
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
from inlaid.passes.manager import UnitPass
from inlaid.schedules.threads.tile_model import ContractionProblem
from inlaid.tensor import interp
from inlaid.tensor.analysis.memory_scopes import check_scopes
from inlaid.tensor.transform.launches import split_launches
from inlaid_cuda.capabilities import REGISTERS, SWIZZLE_BYTES, THREAD_REGISTERS, capabilities
from inlaid_cuda.cubin import resources
from inlaid_cuda.dialect import DIALECT
from inlaid_cuda.options import CudaOptions
from inlaid_cuda.tensor_cores.copies import copy_asynchronously
from inlaid_cuda.tensor_cores.instructions import target_intrinsics
from inlaid_cuda.tensor_cores.tile_loads import load_tiles
from inlaid_cuda.tensor_cores.tiles import Fetch, WarpgroupTiling, rank_warpgroup_tilings
from inlaid_cuda.tensor_cores.warpgroups import WarpgroupRule
from inlaid_runtime import arith
from inlaid_runtime.types import dtype

from .host import EveryOrder
from .test_tensor_cores import TOTALS, compiler_for, intrinsic_names

OPTIONS = CudaOptions(arch="sm_90a", tf32=True)
ABLE, INSTRUCTIONS = capabilities(OPTIONS), target_intrinsics(OPTIONS)


class Always(WarpgroupRule):
    """The rule for products of any size."""

    def prefers(self, *arguments):
        return True


RULE = Always()
SMALL = (1, 1, 1, 32)
"""One warpgroup with the fewest columns, so that small products have many tiles."""
M, N, B = (arith.SizeVar(name, 0, 128) for name in "mnb")


def find_tile(program, tile_shape=SMALL, tensor_maps=0):
    _, offer = first_offer(program, ABLE, RULE, INSTRUCTIONS, tensor_maps=tensor_maps)
    return next(tile for tile in decision(offer, "tile").legal if tile[:4] == tile_shape)


def decision(offer, name):
    return next(item for item in offer.decisions if item.name == name)


def product(m, k, n, left, right="", contiguous="kk", after=ops.relu):
    """A product of operands that are contiguous along the depth, k, or along rows, m, and columns, n."""

    def body(a, b):
        a = ops.transpose(a, perm=(1, 0)) if contiguous[0] == "m" else a
        b = ops.transpose(b, perm=(1, 0)) if contiguous[1] == "k" else b
        return after(ops.matmul(a, b, **TOTALS[left]))

    shapes = ((k, m) if contiguous[0] == "m" else (m, k), (n, k) if contiguous[1] == "k" else (k, n))
    return kernel(body, (shapes[0], left), (shapes[1], right or left))


LAYOUTS = [(dtype_name, contiguous) for dtype_name in ("float16", "bfloat16") for contiguous in ("kk", "kn", "mk", "mn")]
LAYOUTS += [(dtype_name, "kk") for dtype_name in ("float32", "int8", "uint8")]


def uneven_depth(dtype_name):
    """A depth of two steps and a half, half a chunk beyond whole ones."""
    return 320 // dtype(dtype_name).bytes - 4


def scheduled(program, rule=RULE, **decided):
    """A kernel as it reaches the code generator."""
    _, offer = first_offer(program, ABLE, rule, INSTRUCTIONS, **decided)
    finished = copy_asynchronously(finish(offer.schedule(program), (UnitPass("load_tiles", load_tiles),), able=ABLE))
    check_scopes(finished, ABLE.scopes)
    return finished


def on_the_host(program, tensor_maps=0, **decided):
    """Check a kernel on the host, in every order of threads. Returns its text."""
    arrays = inputs_for(program, {}, 3)
    expected = interp.run(program, arrays)[0]
    result = np.zeros_like(expected)
    compiled = EveryOrder(make_region([scheduled(program, tensor_maps=tensor_maps, **decided)]), ABLE.scopes)
    compiled.run(arrays, [result])
    np.testing.assert_array_equal(result, expected)
    return compiled.source


@pytest.mark.parametrize(("dtype_name", "contiguous"), LAYOUTS)
def test_products_of_each_type_and_layout(dtype_name, contiguous):
    program = product(20, uneven_depth(dtype_name), 24, dtype_name, contiguous=contiguous)
    split = check_against_interpreter(program, ABLE, (), RULE, intrinsics=INSTRUCTIONS, tensor_maps=0, tile=find_tile(program))
    assert not planted_races(split), "each barrier is needed"
    (split_kernel,) = (item.program for item in split.kernels.values())
    assert any(name.startswith("cuda.wgmma.") and name.endswith(contiguous) for name in intrinsic_names(split_kernel))


@pytest.mark.usefixtures("host_compiler")
@pytest.mark.parametrize(("dtype_name", "contiguous"), [*LAYOUTS, ("float32", "kn"), ("int8", "kn")])
def test_the_same_kernels_on_the_host(dtype_name, contiguous):
    program = product(70, uneven_depth(dtype_name), 40, dtype_name, contiguous=contiguous)
    tile_shape = SMALL if contiguous[1] == "k" or dtype(dtype_name).bytes == 2 else (2, 1, 1, 32)
    on_the_host(program, tile=find_tile(program, tile_shape))


@pytest.mark.usefixtures("host_compiler")
@pytest.mark.parametrize(("tile_shape", "stages"), [((2, 1, 1, 32), 1), ((1, 1, 2, 32), 2), ((1, 2, 1, 32), 3), ((1, 1, 1, 96), 4)])
def test_warpgroups_and_runs_share_tiles(tile_shape, stages):
    program = product(100, 392, 72, "float16", contiguous="kn")
    tile = find_tile(program, tile_shape)
    split = check_against_interpreter(program, ABLE, (), RULE, intrinsics=INSTRUCTIONS, tensor_maps=0, tile=tile, stages=stages)
    assert not planted_races(split), "each barrier is needed"
    source = on_the_host(program, tile=tile, stages=stages)
    assert all(f"inlaid_await_copies<{pending}>();" in source for pending in {0, max(stages - 2, 0)})


@pytest.mark.parametrize(("a", "b"), [("int8", "uint8"), ("uint8", "int8")])
@pytest.mark.usefixtures("host_compiler")
def test_integer_types_may_differ(a, b):
    program = product(20, 160, 24, a, b)
    on_the_host(program, tile=find_tile(program))


@pytest.mark.usefixtures("host_compiler")
def test_convolutions_are_products():
    shapes = ((2, 8, 6, 6), "float16"), ((9, 8, 3, 3), "float16")
    program = kernel(lambda x, w: ops.conv(x, w, strides=(1, 1), pads=(1, 1, 1, 1)), *shapes)
    on_the_host(program, tile=find_tile(program))


def test_sizes_need_not_be_known():
    rows = kernel(lambda a, b: ops.relu(ops.matmul(a, b)), ((M, 64), "float16"), ((64, 24), "float16"))
    batches = kernel(ops.matmul, ((B, M, 72), "float16"), ((B, 72, N), "float16"))
    for program, sizes in ((rows, [{M: 5}, {M: 0}, {M: 70}]), (batches, [{B: 2, M: 9, N: 40}, {B: 1, M: 1, N: 1}])):
        check_against_interpreter(program, ABLE, sizes, RULE, intrinsics=INSTRUCTIONS, tensor_maps=0, tile=find_tile(program))


def printed(program):
    """The only kernel of a program, and its text."""
    (split_kernel,) = split_launches(program, ABLE.scopes).kernels.values()
    return print_thread_kernel(ThreadKernel("k", split_kernel, 0), DIALECT)


def test_writes_are_visible_to_the_async_proxy_before_each_barrier():
    text = printed(scheduled(product(4096, 4096, 4096, "float16", contiguous="kn"), WarpgroupRule(), tensor_maps=0)).text
    lines = [line.strip() for line in text.splitlines()]
    barriers = [at for at, line in enumerate(lines) if line == "__syncthreads();"]
    assert barriers and all(lines[at - 1] == "inlaid_fence_async_proxy();" for at in barriers)
    assert all(lines[at - 2].startswith("inlaid_await_copies<") for at in barriers)


def residual(y):
    return ops.add(ops.relu(y), ops.tanh(y))


INSTRUCTION = 16
OPCODES = {0x9F0: "HGMMA", 0x9F1: "IGMMA", 0xFAE: "LDGSTS", 0x5B4: "UTMALDG"}
"""The low 12 bits of an instruction, found by compiling kernels with more and fewer of them."""
STEP_INSTRUCTIONS = 4


@pytest.mark.parametrize(("dtype_name", "contiguous", "size", "copies"), [
    ("float16", "kn", 4096, "LDGSTS"),
    ("float16", "kn", 4096, "UTMALDG"),
    ("bfloat16", "mk", 2048, "UTMALDG"),
    ("float32", "kk", 4096, "UTMALDG"),
    ("int8", "kk", 4096, "LDGSTS"),
    ("uint8", "kk", 2048, "UTMALDG"),
])  # fmt: skip
def test_compiled_kernels_hold_the_instructions_and_spill_nothing(dtype_name, contiguous, size, copies):
    after = ops.relu if "int" in dtype_name else residual
    source = product(size, 1024, size, dtype_name, contiguous=contiguous, after=after)
    program = scheduled(source, WarpgroupRule(), tensor_maps=int(copies == "UTMALDG"))
    text = printed(program)
    cubin = compiler_for("sm_90a").compile(thread_source([text], DIALECT), "k", "sm_90a").cubin
    words = np.frombuffer(cubin[: len(cubin) // INSTRUCTION * INSTRUCTION], np.uint64)[::2] & 0xFFF
    opcode_counts = {name: int((words == code).sum()) for code, name in OPCODES.items()}
    calls = text.text.count(f"inlaid_wgmma_{dtype_name}")
    assert opcode_counts["IGMMA" if "int" in dtype_name else "HGMMA"] >= STEP_INSTRUCTIONS * calls > 0
    assert opcode_counts[copies] > 0 and {"LDGSTS", "UTMALDG"} & {name for name, count in opcode_counts.items() if count} == {
        copies
    }
    assert resources(cubin)["k"].local == 0


@pytest.mark.usefixtures("host_compiler")
@pytest.mark.parametrize(("helper", "right", "wrong"), [
    ("inlaid_wgmma_operand", "leading >> 4 << 16 | stride >> 4 << 32", "stride >> 4 << 16 | leading >> 4 << 32"),
    ("inlaid_wgmma_operand", "2 * pitch;", "pitch;"),
    ("inlaid_wgmma_operand", "128 : 16", "128 : 8"),
    ("inlaid_await_copies", "emulation::await_copies(pending);", ""),
    ("inlaid_wgmma_store", "__syncthreads();", ""),
])  # fmt: skip
def test_mistakes_give_wrong_numbers_on_the_host(monkeypatch, helper, right, wrong):
    text = DIALECT.helpers[helper]
    assert right in text
    monkeypatch.setitem(DIALECT.helpers, helper, text.replace(right, wrong))
    program = product(20, 128, 24, "float16", contiguous="kn")
    with pytest.raises(AssertionError):
        on_the_host(program, tile=find_tile(program))


SHAPES = [(64, 64, 64), (128, 768, 768), (4096, 4096, 4096), (31, 1000, 17)]


@pytest.mark.parametrize("dtype_name", TOTALS)
@pytest.mark.parametrize("shape", SHAPES)
def test_tilings_fit_the_device(shape, dtype_name):
    m, k, n = shape
    bytes_ = dtype(dtype_name).bytes
    for tiling in rank_warpgroup_tilings(ContractionProblem(m, n, k, 1, bytes_, bytes_), Fetch(4, 4), ABLE.threads, 227 << 10, 2):
        assert tiling.registers <= THREAD_REGISTERS and tiling.threads * tiling.registers <= REGISTERS
        assert tiling.shared_bytes(bytes_, 1) <= 227 << 10


@pytest.mark.parametrize("tensor_maps", [0, 1])
@pytest.mark.parametrize("contiguous", ["kk", "kn", "mn"])
def test_shared_memory_is_bounded_by_the_model(contiguous, tensor_maps):
    program = product(4096, 4096, 4096, "float16", contiguous=contiguous)
    _, offer = first_offer(program, ABLE, RULE, INSTRUCTIONS, tensor_maps=tensor_maps)
    _, tile, stages = offer.decisions
    limit = WarpgroupTiling(*tile.default).shared_bytes(2, stages.default) + 2 * SWIZZLE_BYTES
    assert 0 < printed(scheduled(program, tensor_maps=tensor_maps)).shared <= limit


@pytest.mark.parametrize(("program", "arch"), [
    (product(4096, 4096, 4096, "float16"), "sm_90"),
    (product(4096, 4096, 4096, "float16"), "sm_100a"),
    (product(64, 64, 64, "float16"), "sm_90a"),
    (product(8, 4096, 4096, "float16"), "sm_90a"),
    (kernel(ops.matmul, ((4096, 4096), "float64"), ((4096, 4096), "float64")), "sm_90a"),
])  # fmt: skip
def test_other_targets_and_small_products_are_left_to_warps(program, arch):
    options = CudaOptions(arch=arch, tf32=True)
    with pytest.raises(AssertionError, match="takes the kernel"):
        first_offer(program, capabilities(options), WarpgroupRule(), target_intrinsics(options))


def test_float32_goes_through_wgmma_only_where_asked():
    exact = target_intrinsics(CudaOptions(arch="sm_90a"))
    with pytest.raises(AssertionError, match="takes the kernel"):
        first_offer(product(4096, 4096, 4096, "float32"), ABLE, WarpgroupRule(), exact)
