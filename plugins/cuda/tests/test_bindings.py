"""The driver over cuda-bindings, with the fake library `fake_driver.c`. Each test runs in a separate process."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from inlaid.plugins import DeviceStatus
from inlaid_cuda.bindings import DRIVER

pytest.importorskip("cuda.bindings", reason="needs cuda-bindings: pip install cuda-bindings")
SOURCE = Path(__file__).with_name("fake_driver.c")
DEVICE = """
import numpy as np
from inlaid_cuda.bindings import SystemDriver
from inlaid_cuda.driver import TensorMap
driver = SystemDriver()
context = driver.open(0)
stream = context.stream()
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    """Folder of the fake driver library."""
    compiler = next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)
    if compiler is None or sys.platform != "linux":
        pytest.skip("there is no C compiler: apt-get install gcc")
    folder = tmp_path_factory.mktemp("driver")
    path = folder / "libcuda.so.1"
    subprocess.run([compiler, "-shared", "-fPIC", "-w", "-Wl,-soname,libcuda.so.1", "-o", path, SOURCE, "-ldl"], check=True)
    return folder


def run(library, script, devices=1, facts=(), **fails):
    """Run a script in a process. `facts` are pairs of a setting of the fake driver and its value. Returns the lines that it
    prints."""
    path = f"{library}:{os.environ.get('LD_LIBRARY_PATH', '')}"
    settings = os.environ | {"LD_LIBRARY_PATH": path, "FAKE_DEVICES": str(devices), "PYTHONUNBUFFERED": "1"}
    for name, status in fails.items():
        settings |= {"FAKE_FAILS": name, "FAKE_STATUS": str(status)}
    settings |= {f"FAKE_{name}": str(value) for name, value in facts}
    settings["PYTHONPATH"] = os.pathsep.join(sys.path)
    process = subprocess.run([sys.executable, "-c", script], env=settings, capture_output=True, text=True, timeout=60, check=False)
    assert process.returncode == 0, process.stderr
    return process.stdout.splitlines()


def test_every_call(library):
    script = f"""{DEVICE}
print(*driver.devices(), driver.devices()[0].shared, context.memory())
module = context.load(b"cubin")
function = context.function(module, "add", 100000)
print(context.function_facts(function))
memory, other = context.allocate(64), context.allocate(64)
array = np.arange(16, dtype=np.float32)
context.upload(memory, array.ctypes.data, 64, stream)
launch = context.prepare(function, (1, 2, 3), (4, 5, 6), [memory, 8, -7])
context.launch([launch, launch], stream)
graph = context.graph([launch] * 3)
del launch
context.launch_graph(graph, stream)
context.copy(other, memory, 64, stream)
context.clear(other, 8, stream)
context.download(array.ctypes.data, other, 64, stream)
context.synchronize(stream)
print(array[:4].tolist())
start, end = context.event(timed=True), context.event()
context.record(start, stream)
context.await_event(stream, end)
context.synchronize_event(start)
encoded = context.tensor_map(TensorMap(2, (40, 30, 20), (80, 2400), (8, 16, 1)), memory)
print(encoded == bytes([7]) * 128, context.prepare(function, (1, 1, 1), (1, 1, 1), [memory, encoded, -1]).owner.pointers[1] % 64)
print(context.elapsed(start, end), context.pointer_device(memory))
context.synchronize(2)
for destroy, handle in ((context.destroy_event, start), (context.destroy_event, end), (context.destroy_graph, graph)):
    destroy(handle)
context.unload(module)
context.free(memory)
context.trim()
context.free_host(context.allocate_host(100))
context.destroy_stream(stream)
from cuda.bindings import driver as cuda
import ctypes
print(ctypes.string_at(int(cuda.cuCtxGetCurrent()[1])))  # what was current before, and is so for others
"""
    assert run(library, script) == [
        "stream 1",  # of memory, and that of the script: neither waits for the default stream
        "pool 1 1 0",  # pinned, on a device, number 0
        f"pool keeps 4 {1 << 27}",
        "stream 1",
        f"device 0: Fake 0 (sm_86, 1024 MiB) 97 (5, {1 << 30})",
        "function allows 8 100000",
        "FunctionFacts(threads=256, shared=64, parameters=3)",
        *["run 1 2 3 / 4 5 6 / 100000"] * 2,
        "graph gone",
        *["run 1 2 3 / 4 5 6 / 100000"] * 3,
        "[0.0, 0.0, -33.0, 3.0]",
        "event 0",
        "event 2",
        "wait",
        "map 1 3, 40 30, 80 2400 / 0 3 / 8 1",  # CU_TENSOR_MAP_DATA_TYPE_UINT16, CU_TENSOR_MAP_SWIZZLE_128B
        "True 0",
        "0.25 1",
        "unload",
        "trim 0",
        "b'another'",
    ]


@pytest.mark.parametrize(
    ("script", "name", "status"),
    [
        ("context.allocate(5)", "cuMemAllocFromPoolAsync", 2),
        ("context.synchronize(stream)", "cuStreamSynchronize", 700),
        ("context.load(b'x')", "cuModuleLoadData", 200),
        ("context.function(context.load(b'cubin'), 'other')", "cuModuleGetFunction", 500),
        ("context.launch([context.prepare(context.function(context.load(b'cubin'), 'add'), *[(1, 1, 1)] * 2, [])], stream)",
         "cuLaunchKernel", 701),
        ("context.graph([])", "cuGraphInstantiate", 2),
    ],
)  # fmt: skip
def test_errors_name_the_call(library, script, name, status):
    caught = f"{DEVICE}\nfrom inlaid_cuda.driver import DriverError\ntry: {script}\nexcept DriverError as error: print(repr(error))"
    text = "CUDA_ERROR_OUT_OF_MEMORY" if status == 2 else "CUDA_ERROR_OTHER"
    lines = run(library, f"{caught}; print(error.status)", **{name: status})
    assert lines[-2:] == [f"DriverError('{name}: {text} (on purpose)')", str(status)]


PROBE = """
from inlaid.plugins import Target
from inlaid_cuda.options import CudaOptions
from inlaid_cuda.runtime_plugin import inlaid_probe
print(inlaid_probe(Target("cuda", CudaOptions())))
"""


@pytest.mark.parametrize(
    ("devices", "fails", "reason"),
    [
        (0, {}, "expected a CUDA device, the driver found none"),
        (1, {"cuInit": 100}, "expected a CUDA device, the driver found none"),
        (1, {"cuInit": 803}, "the CUDA driver cannot be initialized: cuInit: CUDA_ERROR_OTHER (on purpose)"),
    ],
)
def test_a_driver_that_cannot_be_used_says_so_in_one_line(library, devices, fails, reason):
    assert run(library, PROBE, devices, **fails) == [str(DeviceStatus(False, f"{reason}; {DRIVER}"))]


def test_two_devices(library):
    listed = "device 0: Fake 0 (sm_86, 1024 MiB); device 1: Fake 1 (sm_86, 1024 MiB)"
    assert run(library, PROBE, 2) == [str(DeviceStatus(True, listed))]


def test_a_tensor_map_that_the_driver_refuses(library):
    attempt = "try: context.tensor_map(TensorMap(2, (8, 8), (16,), (8, 8)), 8)\nexcept DriverError as error: print(error)"
    (*_, last) = run(library, f"{DEVICE}\nfrom inlaid_cuda.driver import DriverError\n{attempt}")
    assert last == "cuTensorMapEncodeTiled: CUDA_ERROR_OTHER (on purpose)"


ALLOCATES = f"{DEVICE}\nmemory = context.allocate(100)\ncontext.trim()\ncontext.free(memory)"


@pytest.mark.parametrize(
    ("facts", "fails"),
    [
        ((("POOLS", 0),), {}),
        ((("POOLS", -1),), {}),
        ((("LACKS", "cuMemPoolCreate"),), {}),
        ((("LACKS", "cuMemAllocFromPoolAsync"),), {}),
        ((), {"cuMemPoolCreate": 801}),  # CUDA_ERROR_NOT_SUPPORTED, as of some virtual GPUs
    ],
)
def test_without_memory_pools_memory_is_allocated_directly(library, facts, fails):
    lines = [line for line in run(library, ALLOCATES, facts=facts, **fails) if not line.startswith(("stream", "pool"))]
    assert lines == ["allocate 100", "free"]


LOADS = r"""
from dataclasses import replace
import numpy as np
from tests.threads.handmade import CUDA
from inlaid_runtime.errors import InlaidError
from inlaid_runtime.execution.launch_code import decode_launches, encode_launches
from inlaid_cuda.bindings import SystemDriver
from inlaid_cuda.device import Devices
from inlaid_cuda.images import Images
from inlaid_cuda.needs import code_requirements
from inlaid_cuda.runtime import CudaRuntime
plan, _ = decode_launches(CUDA.single(name="add"))
code = encode_launches(plan, Images(b"cubin\0", b"ptx\0").encode())
artifact = replace(CUDA.single(name="add"), code=code, requires=code_requirements("sm_80", (13, 0)))
runtime = CudaRuntime(Devices(SystemDriver()), 0)
print(runtime.check(artifact))
if runtime.check(artifact) is None:
    try:
        runtime.load(artifact, {})
    except InlaidError as error:
        print(error.message[:60])  # the fake kernel takes other parameters
try:
    runtime.load(replace(artifact, code=encode_launches(plan, b"cubin")), {})
except InlaidError as error:
    print(error)
"""


@pytest.mark.parametrize(
    ("capability", "driver", "reason"),
    [
        (86, 13000, None),
        (90, 13000, None),
        (130, 13010, None),
        (86, 12080, "a cubin of NVRTC 13.0 needs a driver of CUDA 13.0 or later, that of Fake 0 has 12.8; pip install"),
        (90, 12080, "PTX of NVRTC 13.0 needs a driver of CUDA 13.0 or later, that of Fake 0 has 12.8; pip install"),
        (75, 13000, "the code is for sm_80, Fake 0 is sm_75; compile for this device"),
    ],
)
def test_the_image_that_a_device_loads(library, capability, driver, reason):
    lines = run(library, LOADS, facts=(("CAPABILITY", capability), ("DRIVER", driver)))
    lines = [line for line in lines if not line.startswith(("stream", "pool", "unload"))]
    assert ("compile PTX" in lines) == (reason is None and capability >= 90)
    assert lines[0].startswith(reason or "None")
    assert lines[-1].startswith("the code of region is damaged: expected at least 8 bytes of images, got 5")
