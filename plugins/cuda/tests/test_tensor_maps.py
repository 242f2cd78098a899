"""Tiles that tensor maps load: the same results in the interpreter and on the host, which swizzles boxes, counts bytes and makes a
load only when a thread waits for it, in every order of threads. No GPU has run them."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import numpy as np
import onnx
import onnx.parser
import pytest
from tests.race_free import check_race_free
from tests.threads.printed import make_region
from tests.unit.schedules.threads.interpreter_checks import (
    check_against_interpreter,
    first_offer,
    inputs_for,
    kernel,
    planted_races,
)

from inlaid import ops
from inlaid.api import compile_file
from inlaid.passes.manager import run_passes
from inlaid.plugins import DeviceTensor
from inlaid.tensor import interp
from inlaid.tensor.transform.launches import split_launches
from inlaid_cuda.codegen import CudaCodegen
from inlaid_cuda.cubin import resources
from inlaid_cuda.dialect import DIALECT
from inlaid_cuda.driver import DriverError, TensorMap
from inlaid_cuda.images import Images
from inlaid_cuda.options import CudaOptions
from inlaid_cuda.tensor_cores.tile_loads import load_tiles
from inlaid_runtime import arith
from inlaid_runtime.errors import CompileError, Unsupported
from inlaid_runtime.execution.launch_code import decode_launches, encode_launches

from .test_tensor_cores import intrinsic_names
from .test_wgmma import ABLE, INSTRUCTIONS, RULE, decision, find_tile, on_the_host, product, scheduled

SMALL = (1, 1, 1, 64)
CASES = [
    ("float16", "kn", (72, 200, 72), SMALL, 3),
    ("float16", "mn", (72, 136, 72), (1, 2, 1, 64), 1),
    ("bfloat16", "mk", (72, 200, 136), (2, 1, 1, 32), 4),
    ("float16", "kk", (64, 328, 300), (1, 1, 2, 192), 2),
    ("float32", "kk", (72, 160, 72), (1, 1, 2, 32), 3),
    ("int8", "kk", (72, 400, 72), (1, 1, 1, 32), 2),
]  # fmt: skip
"""Type, contiguous axes, rows, depth and columns, tile, and stages; tiles exceed the sizes, and some have several boxes."""


def sized_product(dtype_name, contiguous, size):
    return product(*size, dtype_name, contiguous=contiguous)


@pytest.mark.parametrize(("dtype_name", "contiguous", "size", "tile_shape", "stages"), CASES)
def test_tiles_as_the_interpreter_has_them(dtype_name, contiguous, size, tile_shape, stages):
    program = sized_product(dtype_name, contiguous, size)
    decided = {"tensor_maps": 1, "tile": find_tile(program, tile_shape, 1), "stages": stages}
    check_against_interpreter(program, ABLE, (), RULE, intrinsics=INSTRUCTIONS, **decided)
    split = split_launches(scheduled(program, **decided), ABLE.scopes)
    (split_kernel,) = split.kernels.values()
    check_race_free(split_kernel.program, split_kernel.offsets)
    assert not planted_races(split), "each barrier is needed"


@pytest.mark.usefixtures("host_compiler")
@pytest.mark.parametrize(("dtype_name", "contiguous", "size", "tile_shape", "stages"), CASES)
def test_the_same_kernels_on_the_host(dtype_name, contiguous, size, tile_shape, stages):
    program = sized_product(dtype_name, contiguous, size)
    source = on_the_host(program, 1, tile=find_tile(program, tile_shape, 1), stages=stages)
    assert "inlaid_load_tile" in source and "inlaid_copy<" not in source


@pytest.mark.usefixtures("host_compiler")
def test_further_dimensions_are_coordinates():
    """Batches before the rows, and between rows and depth."""
    program = kernel(ops.matmul, ((2, 70, 72), "float16"), ((2, 72, 72), "float16"))
    on_the_host(program, 1, tile=find_tile(program, SMALL, 1))

    def heads(a, b):
        return ops.matmul(ops.transpose(a, perm=(1, 0, 2)), ops.transpose(b, perm=(1, 2, 0)))

    program = kernel(heads, ((70, 3, 72), "float16"), ((66, 3, 72), "float16"))
    source = on_the_host(program, 1, tile=find_tile(program, SMALL, 1))
    assert "inlaid_load_tile<3, " in source


M = arith.SizeVar("m", 0, 128)


@pytest.mark.parametrize("program", [
    product(64, 68, 64, "float16"),
    product(64, 64, 68, "float16", contiguous="kn"),
    kernel(ops.matmul, ((M, 64), "float16"), ((64, 64), "float16")),
    kernel(lambda x, w: ops.conv(x, w, strides=(1, 1), pads=(1, 1, 1, 1)), ((2, 8, 8, 8), "float16"), ((64, 8, 3, 3), "float16")),
    product(70, 320, 40, "int8", contiguous="kn"),
])  # fmt: skip
def test_other_operands_are_fetched_by_threads(program):
    """Rows that are no multiple of 16 bytes, unknown sizes, windows, and 8-bit operands that wgmma does not transpose."""
    _, offer = first_offer(program, ABLE, RULE, INSTRUCTIONS)
    assert decision(offer, "tensor_maps").legal == (0,)
    assert not any("tile" in name for name in intrinsic_names(scheduled(program)))


def mistaken(monkeypatch, helper, right, wrong):
    text = DIALECT.helpers[helper]
    assert right in text
    monkeypatch.setitem(DIALECT.helpers, helper, text.replace(right, wrong))
    program = product(72, 328, 72, "float16", contiguous="kn")
    on_the_host(program, 1, tile=find_tile(program, SMALL, 1), stages=3)


@pytest.mark.usefixtures("host_compiler")
@pytest.mark.parametrize(("helper", "right", "wrong"), [
    ("inlaid_wgmma_operand", "stride = 1024, swizzle = 1", "stride = 1024, swizzle = 0"),
    ("inlaid_wgmma_operand", "stride = 1024", "stride = 512"),
    ("inlaid_wgmma_operand", "? 128 : 16", "? 64 : 16"),
    ("inlaid_await_tile", "emulation::await_transfers(barrier, parity, __LINE__);", ""),
])  # fmt: skip
def test_mistakes_give_wrong_numbers_on_the_host(monkeypatch, helper, right, wrong):
    with pytest.raises((AssertionError, DriverError), match=r"not equal|more arrivals than it expects"):
        mistaken(monkeypatch, helper, right, wrong)


@pytest.mark.usefixtures("host_compiler")
@pytest.mark.parametrize(("helper", "right", "wrong"), [
    ("inlaid_load_tile", "emulation::arrive(barrier, boxes * bytes);", "emulation::arrive(barrier, boxes * bytes + 16);"),
    ("inlaid_tile_barriers", "start_barrier(barriers + stage, 2)", "start_barrier(barriers + stage, 3)"),
    ("inlaid_await_tile", "barrier, parity,", "barrier, !parity,"),
])  # fmt: skip
def test_a_phase_that_never_completes_is_an_error(monkeypatch, helper, right, wrong):
    with pytest.raises(DriverError, match="waits at the transfer barrier"):
        mistaken(monkeypatch, helper, right, wrong)


def test_operands_must_be_filled_as_boxes():
    program = product(64, 128, 64, "float16")
    _, offer = first_offer(program, ABLE, RULE, INSTRUCTIONS, tile=find_tile(program, SMALL, 1))
    with pytest.raises(CompileError, match="operands of swizzled products: expected "):
        load_tiles(offer.schedule(program))


# -- at run time --


@pytest.fixture
def host_product():
    """An artifact for the host of a product whose tiles tensor maps load, with the program."""
    program = product(72, 200, 72, "float16", contiguous="kn")
    codegen = CudaCodegen(CudaOptions(arch="host"))
    codegen.scopes = ABLE.scopes
    unit = make_region([scheduled(program, tensor_maps=1, tile=find_tile(program, SMALL, 1))])
    return program, codegen.compile(unit, SimpleNamespace(report=lambda *progress: None, run_passes=run_passes))


def test_launches_encode_tensor_maps_once_for_an_address(device, queue, loaded, host_product):
    program, artifact = host_product
    arrays = inputs_for(program, {}, 1)
    region, encoded = loaded(artifact).launching, []
    device.tensor_map = partial(lambda plain, *arguments: encoded.append(arguments) or plain(*arguments), device.tensor_map)
    tensors = [DeviceTensor(device.allocate(array.nbytes), 0, array.shape, array.dtype) for array in arrays]
    result = np.zeros((72, 72), np.float16)
    for array, tensor in zip(arrays, tensors, strict=True):
        device.upload(array, tensor, queue)
    out = DeviceTensor(device.allocate(result.nbytes), 0, result.shape, result.dtype)
    for _ in range(2):
        region.launch(tensors, [out], None, np.zeros(0, np.int64), queue)
    device.download(out, result, queue)
    device.synchronize(device.event(queue))
    np.testing.assert_array_equal(result, interp.run(program, arrays)[0])
    assert [address for _, address in encoded] == [tensor.buffer.address for tensor in tensors]
    assert encoded[0][0] == TensorMap(2, (200, 72), (400,), (64, 64))
    for tensor in (*tensors, out):
        device.free(tensor.buffer)


@pytest.mark.parametrize(
    "text", ["", "2 200,72 400", "3 200,72 400 64,64", "2 200,72 401 64,64", "2 200,72 400 64,512", "2 0,8 400 64,8"]
)
def test_a_damaged_tensor_map(loaded, host_product, text):
    _, artifact = host_product
    plan, program = decode_launches(artifact)
    kernels = tuple(
        replace(kernel, descriptors=tuple(replace(item, text=text) for item in kernel.descriptors)) for kernel in plan.kernels
    )
    code = encode_launches(replace(plan, kernels=kernels), program)
    with pytest.raises(Unsupported, match="is damaged"):
        loaded(type(artifact)(**{**vars(artifact), "code": code}))


def test_a_model_for_sm_90a(nvrtc, tmp_path):
    """Through the whole pipeline: its package names the tensors, and its cubin loads tiles and spills nothing."""
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> g (float16[2048, 1024] a, float16[1024, 2000] b) => (float16[2048, 2000] y)'
        " { z = MatMul(a, b) y = Relu(z) }"
    )
    onnx.save(model, tmp_path / "model.onnx")
    (artifact,) = compile_file(tmp_path / "model.onnx", ["cuda:arch=sm_90a"]).package.artifacts
    plan, program = decode_launches(artifact)
    boxes = [[TensorMap.parse(item.text).shape for item in kernel.descriptors] for kernel in plan.kernels]
    assert boxes == [[(1024, 2048), (2000, 1024)]]
    (usage,) = resources(Images.decode(program).cubin).values()
    assert not usage.local
