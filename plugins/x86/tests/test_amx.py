"""Products on AMX's tiles: the instructions in the code, what it takes to load it, and its results, which are computed by the
processor where it has AMX, and elsewhere by a handler of the signal that its instructions raise."""

from __future__ import annotations

import ctypes
import errno
import os
import re
import shutil
import subprocess
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import inlaid
from inlaid import ops
from inlaid.graph import ir as graph
from inlaid.lowering.kernels.finish import finish
from inlaid.lowering.kernels.kernel import KernelSource, build
from inlaid.tensor import ir
from inlaid.tensor.analysis.footprint import full_region
from inlaid.tensor.build import Builder
from inlaid.tensor.scheduling.rule import InputInfo, KernelContext
from inlaid_runtime.arith import SizeVar
from inlaid_runtime.errors import ScheduleError, Unsupported
from inlaid_runtime.types import ROW_MAJOR, TensorType, dtype
from inlaid_x86 import amx, capabilities
from inlaid_x86.tiles.matmul import TileMatmulRule
from inlaid_x86_runtime import cpu, runtime
from inlaid_x86_runtime.cpu import LEVELS, TILE, processor_features
from inlaid_x86_runtime.options import X86Options

from .native import compile_region, make_region

SAPPHIRE_RAPIDS = X86Options(threads=1, cpu="sapphirerapids")
FEATURES = LEVELS["sapphirerapids"]
PAIRS = [("bfloat16", "bfloat16", "float32"), *((a, b, "int32") for a in ("uint8", "int8") for b in ("uint8", "int8"))]
INSTRUCTIONS = {
    "ldtilecfg": rb"\xc4[\xc2\xe2]\x78\x49[\x00-\xbf]",
    "tilerelease": rb"\xc4\xe2\x78\x49\xc0",
    "tilezero": rb"\xc4\xe2\x7b\x49[\xc0\xc8\xd0\xd8\xe0\xe8\xf0\xf8]",
    "tileloadd": rb"\xc4[\x82\xa2\xc2\xe2]\x7b\x4b",
    "tilestored": rb"\xc4[\x82\xa2\xc2\xe2]\x7a\x4b",
    "tdpbf16ps": rb"\xc4\xe2[\x42\x4a\x52\x5a\x62\x6a\x72\x7a]\x5c[\xc0-\xff]",
    "tdpbuud": rb"\xc4\xe2[\x40\x48\x50\x58\x60\x68\x70\x78]\x5e[\xc0-\xff]",
    "tdpbusd": rb"\xc4\xe2[\x41\x49\x51\x59\x61\x69\x71\x79]\x5e[\xc0-\xff]",
    "tdpbsud": rb"\xc4\xe2[\x42\x4a\x52\x5a\x62\x6a\x72\x7a]\x5e[\xc0-\xff]",
    "tdpbssd": rb"\xc4\xe2[\x43\x4b\x53\x5b\x63\x6b\x73\x7b]\x5e[\xc0-\xff]",
}
"""Encodings by Intel's manual, volume 2: the VEX prefix, the opcode, and where there are no operands in memory ModRM."""


def kernel(m, k, n, pair, options=SAPPHIRE_RAPIDS):
    """The code of a scheduled product with a bias."""
    a, b, total = pair
    x, w, bias = (
        graph.var(*item) for item in (("x", TensorType((m, k), a)), ("w", TensorType((k, n), b)), ("b", TensorType((n,), total)))
    )
    program = build(KernelSource("kernel", (x, w, bias), ops.add(ops.matmul(x, w, out_dtype=total), bias)))
    context = KernelContext(
        capabilities.capabilities(options), options.threads, [each.intrinsic for each in amx.instructions(FEATURES)]
    )
    offer = TileMatmulRule().offer(program, context, (InputInfo(ROW_MAJOR), InputInfo(ROW_MAJOR, True), InputInfo(ROW_MAJOR)))
    assert offer is not None
    return compile_region(make_region([finish(offer.schedule(program))]), options).code


def counted(code):
    counts = {name: len(re.findall(pattern, code, re.DOTALL)) for name, pattern in INSTRUCTIONS.items()}
    return {name: count for name, count in counts.items() if count}


@pytest.mark.parametrize("pair", PAIRS)
def test_a_kernel_sums_two_by_two_tiles_and_configures_them_once(pair):
    a, b, total = pair
    product = "tdpbf16ps" if total == "float32" else f"tdpb{a[0].replace('i', 's')}{b[0].replace('i', 's')}d"
    common = {"ldtilecfg": 1, "tilerelease": 1, "tilezero": 4, "tileloadd": 4, "tilestored": 4}
    assert counted(kernel(64, 256, 64, pair)) == {**common, product: 4}


def test_every_thread_configures_tiles_of_its_own():
    assert counted(kernel(64, 256, 64, PAIRS[0], X86Options(threads=2, cpu="sapphirerapids")))["ldtilecfg"] == 1


def test_other_processors_have_no_tiles():
    for name, features in LEVELS.items():
        options = X86Options(cpu=name)
        assert bool(capabilities.capabilities(options).scopes) == any(amx.instructions(features)) == (name == "sapphirerapids")


def tiles_at_once(shapes):
    """A program that uses tiles of some shapes."""
    y = ir.Buffer("y", (4,), dtype("float32"))
    b = Builder()
    with b.loop(4, "i", ir.ForKind.PARALLEL) as i:
        for shape in shapes:
            b.emit(
                ir.Intrinsic(
                    "amx.zero.float32",
                    (full_region(b.alloc(shape, "float32", "t", capabilities.TILES.name)),),
                    (ir.AccessMode.WRITE,),
                )
            )
        b.store(y, i, ir.const(0, "float32"))
    return ir.LoopProgram("kernel", (), (y,), b.finish())


def test_eight_tiles_are_configured():
    assert counted(compile_region(make_region([tiles_at_once([(16, 16)] * 8)]), SAPPHIRE_RAPIDS).code)["tilezero"] == 8


@pytest.mark.parametrize("shapes", [[(16, 16)] * 9, [(17, 16)], [(16, 17)]])
def test_more_than_there_is_of_tiles_is_refused(shapes):
    with pytest.raises(ScheduleError, match=r"scope 'amx.tile', in loop i: expected at most (8 registers|16 rows of 64 bytes)"):
        compile_region(make_region([tiles_at_once(shapes)]), SAPPHIRE_RAPIDS)


# --- loading ----------------------------------------------------------------------------------------------------------


def model(a, b, total):
    x = graph.var("x", TensorType(a.shape, a.dtype.name))
    return graph.function([x], ops.matmul(x, graph.constant(b, b.dtype.name), out_dtype=total))


def run(feed, b, total, threads=1):
    executable = inlaid.compile(model(feed, b, total), targets=[f"x86:cpu=sapphirerapids,threads={threads}"])
    (result,) = executable.run({"x": feed}).values()
    return result


FEED = np.ones((8, 64), np.uint8), np.ones((64, 16), np.int8)


@pytest.fixture
def fresh():
    """The kernel is asked anew, before the test and after it."""
    cpu.tile_refusal.cache_clear()
    yield
    cpu.tile_refusal.cache_clear()


def test_a_processor_without_tiles_is_named(monkeypatch):
    monkeypatch.setattr(cpu, "processor_features", lambda: frozenset(FEATURES) - {"amx-tile", "amx-int8", "amx-bf16"})
    with pytest.raises(Unsupported, match=r"this machine lacks amx-int8, amx-tile; compile with .*cpu=x86-64-v4"):
        run(*FEED, "int32")


@pytest.mark.usefixtures("fresh")
def test_a_kernel_that_refuses_permission_is_named(monkeypatch):
    monkeypatch.setattr(cpu, "processor_features", lambda: frozenset(FEATURES))
    monkeypatch.setattr(cpu, "request_permission", lambda: errno.EPERM)
    reason = f"the operating system refuses this process AMX tiles: {os.strerror(errno.EPERM)}"
    with pytest.raises(Unsupported, match=reason):
        run(*FEED, "int32")
    assert cpu.host_features() == frozenset(FEATURES) - {"amx-tile", "amx-int8", "amx-bf16"}


@pytest.mark.usefixtures("fresh")
def test_permission_is_asked_once_and_only_where_there_are_tiles(monkeypatch):
    requests = []
    monkeypatch.setattr(cpu, "request_permission", lambda: requests.append(1) or 0)
    monkeypatch.setattr(cpu, "processor_features", lambda: frozenset(LEVELS["x86-64-v4"]))
    assert cpu.host_features() == frozenset(LEVELS["x86-64-v4"]) and cpu.refusal(FEATURES) is None and not requests
    monkeypatch.setattr(cpu, "processor_features", lambda: frozenset(FEATURES))
    assert cpu.host_features() == frozenset(FEATURES) and cpu.refusal(FEATURES) is None and len(requests) == 1


def test_the_kernel_answers():
    """Permission, or why not: here mostly that the processor or the kernel knows nothing of tiles."""
    number = cpu.request_permission()
    assert number in (0, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM, errno.ENOSPC)
    assert number == 0 or TILE not in processor_features() or number == errno.EPERM


# --- results ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def emulator(tmp_path_factory):
    """The handler that stands in for AMX."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler: apt-get install gcc")
    library = tmp_path_factory.mktemp("amx") / "emulator.so"
    source = Path(__file__).parent / "amx_emulator.c"
    subprocess.run([compiler, "-O1", "-shared", "-fPIC", "-ftls-model=initial-exec", "-o", library, source], check=True)
    return ctypes.CDLL(str(library))


@pytest.fixture(params=["processor", "emulator"])
def tiles(request, monkeypatch):
    """Something that computes with tiles."""
    lacking = set(FEATURES) - processor_features()
    if request.param == "processor":
        if lacking:
            pytest.skip(f"this processor has no {', '.join(sorted(lacking))}")
        yield
        return
    if TILE in processor_features():
        pytest.skip("this processor has tiles of its own")
    if any(not name.startswith("amx") for name in lacking):
        pytest.skip(f"this processor has no {', '.join(sorted(lacking))}, and only tiles are emulated")
    emulator = request.getfixturevalue("emulator")
    monkeypatch.setattr(runtime, "host_features", lambda: frozenset(FEATURES))
    before = emulator.emulated()
    emulator.install()
    yield
    emulator.uninstall()
    assert emulator.emulated() > before, "no instruction on tiles was run"


SHAPES = [
    ((64, 64), (64, 64)),
    ((33, 100), (100, 37)),
    ((4, 7), (7, 5)),
    ((17, 131), (131, 16)),
    ((3, 7, 66), (66, 50)),
    ((2, 3, 5, 32), (2, 3, 32, 9)),
]


@pytest.mark.usefixtures("tiles")
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(("a", "b", "total"), PAIRS[1:])
def test_integer_products_are_exact(a, b, total, threads):
    generator = np.random.default_rng(1)
    low, high = np.iinfo(a), np.iinfo(b)
    for left, right in SHAPES:
        x = generator.choice([low.min, low.max, 1], left).astype(a)
        w = generator.choice([high.min, high.max, 1], right).astype(b)
        assert np.array_equal(run(x, w, total, threads), x.astype(np.int64) @ w.astype(np.int64))


@pytest.mark.usefixtures("tiles")
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("depth", [128, 100])
def test_products_of_any_number_of_rows_are_exact(threads, depth):
    """Tiles have as many rows as the product, where these are few; a depth of 100 has the left factor padded."""
    generator = np.random.default_rng(7)
    x = graph.var("x", TensorType((SizeVar("batch"), SizeVar("rows"), depth), "uint8"))
    w = integers((depth, 37), "int8", generator)
    unit = graph.function([x], ops.matmul(x, graph.constant(w, "int8"), out_dtype="int32"))
    executable = inlaid.compile(unit, targets=[f"x86:cpu=sapphirerapids,threads={threads}"])
    for batch, rows in ((1, 1), (1, 15), (2, 8), (3, 11), (1, 100), (0, 5)):
        feed = integers((batch, rows, depth), "uint8", generator)
        (actual,) = executable.run({"x": feed}).values()
        assert np.array_equal(actual, feed.astype(np.int64) @ w.astype(np.int64))


@pytest.mark.usefixtures("tiles")
@pytest.mark.parametrize("threads", [1, 2])
def test_bfloat16_products_are_close_to_exact(threads):
    generator = np.random.default_rng(2)
    for left, right in SHAPES:
        x, w = (generator.standard_normal(shape).astype(ml_dtypes.bfloat16) for shape in (left, right))
        expected = x.astype(np.float64) @ w.astype(np.float64)
        assert np.abs(run(x, w, "float32", threads) - expected).max() <= 1e-4 * np.abs(expected).max() + 1e-5


@pytest.mark.usefixtures("tiles")
def test_padding_holds_no_infinities_back():
    """Elements beyond the ends of rows are zeros on both sides: infinities and NaN reach their own row and column alone."""
    x, w = np.zeros((9, 33), ml_dtypes.bfloat16), np.ones((33, 17), ml_dtypes.bfloat16)
    x[2, 32], x[7, 0] = np.inf, np.nan
    expected = np.zeros((9, 17), np.float32)
    expected[2], expected[7] = np.inf, np.nan
    assert np.array_equal(run(x, w, "float32"), expected, equal_nan=True)


def integers(shape, dtype_name, generator):
    return generator.integers(np.iinfo(dtype_name).min, np.iinfo(dtype_name).max + 1, shape).astype(dtype_name)


@pytest.mark.usefixtures("tiles")
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(("stride", "pad", "size"), [(1, 1, 3), (2, 1, 3), (1, 0, 1), (2, 0, 1)])
@pytest.mark.parametrize("symbolic", ["nothing", "batch", "all"])
def test_integer_convolutions_are_exact(stride, pad, size, threads, symbolic):
    """Two of them, with requantization between and behind; padding holds the zero point, here 3."""
    generator = np.random.default_rng(4)
    data = integers((2, 36, 13, 9), "uint8", generator)
    shape = {
        "nothing": data.shape,
        "batch": (SizeVar("batch"), *data.shape[1:]),
        "all": (SizeVar("batch"), 36, SizeVar("height", 1), SizeVar("width", 1)),
    }[symbolic]
    weights = [integers(shape, "int8", generator) for shape in ((48, 36, size, size), (16, 48, size, size))]
    scales = [generator.uniform(1e-4, 2e-4, len(item)).astype(np.float32) for item in weights]
    x = graph.var("x", TensorType(shape, "uint8"))
    y, expected = x, data
    for item, scale in zip(weights, scales, strict=True):
        padded = ops.pad(y, graph.constant(3, "uint8"), pads=(0, 0, pad, pad, 0, 0, pad, pad)) if pad else y
        y = ops.conv(padded, graph.constant(item, "int8"), strides=(stride,) * 2, pads=(), dilations=(1, 1), out_dtype="int32")
        y = ops.requantize(y, graph.constant(scale, "float32"), graph.constant(5, "uint8"), dtype="uint8", axis=1)
        wide = np.pad(expected, ((0, 0), (0, 0), (pad, pad), (pad, pad)), constant_values=3).astype(np.int64)
        windows = np.lib.stride_tricks.sliding_window_view(wide, (size, size), (2, 3))[:, :, ::stride, ::stride]
        exact = np.einsum("nchwyx,ocyx->nohw", windows, item.astype(np.int64))
        real = np.rint(exact.astype(np.float32) * scale[:, None, None]) + np.float32(5)
        expected = np.clip(real, 0, 255).astype(np.uint8)
    executable = inlaid.compile(graph.function([x], y), targets=[f"x86:cpu=sapphirerapids,threads={threads}"])
    (actual,) = executable.run({"x": data}).values()
    assert np.array_equal(actual, expected)


@pytest.mark.usefixtures("tiles")
@pytest.mark.parametrize("stride", [1, 2])
def test_bfloat16_convolutions_are_close_to_exact(stride):
    """With a residual sum behind."""
    generator = np.random.default_rng(6)
    data, weights = (generator.standard_normal(shape).astype(ml_dtypes.bfloat16) for shape in ((1, 32, 9, 17), (32, 32, 3, 3)))
    windows = np.lib.stride_tricks.sliding_window_view(
        np.pad(data.astype(np.float64), ((0, 0), (0, 0), (1, 1), (1, 1))), (3, 3), (2, 3)
    )
    expected = np.einsum("nchwyx,ocyx->nohw", windows[:, :, ::stride, ::stride], weights.astype(np.float64))
    other = generator.standard_normal(expected.shape).astype(np.float32)
    x, r = graph.var("x", TensorType(data.shape, "bfloat16")), graph.var("r", TensorType(other.shape, "float32"))
    w = graph.constant(weights, "bfloat16")
    y = ops.conv(x, w, strides=(stride,) * 2, pads=(1,) * 4, dilations=(1, 1), out_dtype="float32")
    executable = inlaid.compile(graph.function([x, r], ops.relu(ops.add(y, r))), targets=["x86:cpu=sapphirerapids,threads=1"])
    (actual,) = executable.run({"x": data, "r": other}).values()
    expected = np.maximum(expected + other, 0)
    assert np.abs(actual - expected).max() <= 1e-4 * np.abs(expected).max() + 1e-5
