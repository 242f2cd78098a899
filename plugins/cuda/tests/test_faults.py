"""Failing drivers: at every call in turn, permanently, and with every status."""

import numpy as np
import pytest
from tests.threads.handmade import CUDA

import inlaid
from inlaid import ops
from inlaid.graph import ir
from inlaid_cuda.driver import DeviceFacts, DriverError, Status
from inlaid_cuda.faults import translate
from inlaid_cuda.needs import choose, code_requirements, missing
from inlaid_runtime import load
from inlaid_runtime.errors import DeviceLost, InlaidError, KernelFault, OutOfMemory, TargetError, Unsupported
from inlaid_runtime.types import TensorType

from .late import leftovers

WEIGHTS = np.random.default_rng(0).uniform(-1, 1, (7, 5)).astype(np.float32)
X = np.random.default_rng(1).uniform(-1, 1, (3, 7)).astype(np.float32)
EXPECTED = np.maximum(X @ WEIGHTS, 0)[[2, 0]]


@pytest.fixture
def package(device, tmp_path):
    """Package of a gather, with checked indices, of rows of relu(x @ w)."""
    x, i = ir.var("x", TensorType((3, 7), "float32")), ir.var("i", TensorType((2,), "int64"))
    function = ir.function([x, i], ops.take(ops.relu(ops.matmul(x, ir.constant(WEIGHTS))), i, axis=0))
    path = tmp_path / "model.inlaid"
    inlaid.compile(ir.Module({"main": function}), targets=["cuda:arch=host"], cache=False).save(path)
    return path


def everything(path):
    """Exercise the whole interface of a loaded model."""
    executable, feeds = load(path), {"x": X, "i": np.array([2, 0])}
    for _ in range(3):
        (actual,) = executable.run(feeds).values()
        np.testing.assert_allclose(actual, EXPECTED, rtol=1e-5)
    executable.profile(feeds)
    with pytest.raises(KernelFault):
        executable.run({"x": X, "i": np.array([2, 9])})
    (device_result,) = executable.run({"x": executable.to_device("x", X), "i": feeds["i"]}, keep_on_device=True).values()
    np.testing.assert_allclose(device_result.numpy(), EXPECTED, rtol=1e-5)


def test_a_failure_at_every_call(device, package):
    """The first and the last call of each driver function, except those that free, fail. Nothing leaks, and the error is an
    `InlaidError`."""
    everything(package)
    before, context = leftovers(device), device.context
    counted = context.counted.copy()
    everything(package)
    counted = context.counted - counted
    raising = [name for name in counted if name not in ("free", "free_host", "unload") and not name.startswith("destroy")]
    assert len(raising) > 15
    for name in raising:
        for number in {0, counted[name] - 1}:
            context.fail(number, fails=(name,))
            try:
                everything(package)
            except InlaidError as error:
                assert isinstance(error, OutOfMemory) and "on purpose" in str(error), error  # noqa: PT017
                del error
            assert context.failing < 0, (name, number)
            context.heal()
            assert leftovers(device) == before and not device.live, (name, number)
    everything(package)


@pytest.mark.parametrize("status", [Status.ILLEGAL_ADDRESS, Status.ECC_UNCORRECTABLE, Status.LAUNCH_FAILED])
def test_a_lost_device(device, package, status):
    """Every call after the loss of the device raises `DeviceLost`; other targets keep working."""
    everything(package)
    executable, context = load(package), device.context
    (device_result,) = executable.run({"x": X, "i": np.array([2, 0])}, keep_on_device=True).values()
    queue, event = device.queue(), device.event(device.queue())
    context.fail(0, status, sticky=True)
    with pytest.raises(DeviceLost, match=f"CUDA_ERROR_{status.name}") as caught:
        executable.run({"x": X, "i": np.array([2, 0])})
    assert "restart the process" in str(caught.value)
    calls = (
        device_result.numpy,
        lambda: executable.run({"x": X, "i": np.array([2, 0])}),
        lambda: load(package),
        lambda: device.allocate(1),
        device.queue,
        device.memory,
        lambda: device.event(queue),
        lambda: device.synchronize(event),
        lambda: device.begin_capture(queue),
    )
    for call in calls:
        with pytest.raises(DeviceLost, match=status.name):
            call()
    device.release(queue)
    x = ir.var("x", TensorType((3,), "float32"))
    other = inlaid.compile(ir.Module({"main": ir.function([x], ops.neg(x))}), targets=["x86"], cache=False)
    assert next(iter(other.run({"x": np.ones(3, np.float32)}).values())).tolist() == [-1, -1, -1]


def test_a_kernel_that_fails(device, loaded):
    """A kernel's failure is raised by `synchronize`, and loses the device."""
    source = "KERNEL k(long n) {\n if (threadIdx.x)\n __syncthreads();\n else\n __syncthreads();\n }"
    kernel, queue = loaded(CUDA.single(source, threads=(2, 1, 1))).launching, device.queue()

    def run():
        kernel.launch([], [], None, np.zeros(0, np.int64), queue)
        device.synchronize(device.event(queue))

    with pytest.raises(DeviceLost, match="LAUNCH_FAILED"):
        run()
    with pytest.raises(DeviceLost, match="LAUNCH_FAILED"):
        device.allocate(1)


KINDS = {
    Status.OUT_OF_MEMORY: OutOfMemory,
    Status.NO_BINARY_FOR_GPU: Unsupported,
    Status.INVALID_IMAGE: Unsupported,
    Status.NO_DEVICE: TargetError,
    Status.LAUNCH_OUT_OF_RESOURCES: KernelFault,
    Status.INVALID_VALUE: KernelFault,
    Status.MISALIGNED_ADDRESS: DeviceLost,
    Status.UNKNOWN: DeviceLost,
    12345: KernelFault,
}


@pytest.mark.parametrize("status", [*{*Status, *KINDS}])
def test_every_status_is_an_error_of_inlaid(status):
    error = translate(DriverError("cuCall", status, f"text {int(status)}"), "device 0", "doing something")
    assert isinstance(error, InlaidError)
    assert f"doing something on device 0 failed: cuCall: text {int(status)}" in str(error)
    assert isinstance(error, KINDS.get(status, InlaidError))


def facts(architecture, driver=13000):
    sizes = (1, 1, 1)
    return DeviceFacts(0, "a device", architecture, 1, 1, sizes, sizes, 1, 1, driver)


@pytest.mark.parametrize(
    ("need", "cubins", "ptx"),
    [
        ("sm_80", (80, 86, 89), (87, 90, 100, 103, 120)),
        ("sm_86", (86, 89), (87, 90, 100, 103, 120)),
        ("sm_87", (87,), (89, 90, 100, 103, 120)),
        ("sm_90", (90,), (100, 103, 120)),
        ("sm_90a", (90,), ()),
        ("sm_100", (100, 103), (120,)),
        ("sm_100a", (100,), ()),
        ("host", (0,), ()),
        ("sm_8", (), ()),
        ("x" * 99, (), ()),
    ],
)
def test_architectures(need, cubins, ptx):
    for architecture in (0, 75, 80, 86, 87, 89, 90, 100, 103, 120):
        choice = choose([need, "nvrtc=13.0"], facts(architecture))
        assert (choice.reason is None) == (architecture in (*cubins, *ptx)), architecture
        if choice.reason:
            assert f"the code is for {need[:20]}, a device is" in choice.reason and "option arch" in choice.reason
            assert len(choice.reason) < 200
        else:
            assert choice.ptx == (architecture in ptx)
    assert missing([], facts(80)) is None
    assert "a device is sm_61, expected sm_70 or later; choose another device" in missing(["sm_80"], facts(61))
    assert "no PTX of a known version" in missing(["sm_80"], facts(90))


CUDA_12 = 'pip install "nvidia-cuda-nvrtc-cu12==12.9.*" and compile on the device\'s machine (option arch=native)'


@pytest.mark.parametrize(
    ("version", "architecture", "driver", "reason"),
    [
        ((13, 5), 86, 13000, None),  # cubins of one major version run on all its drivers
        ((12, 9), 86, 13000, None),
        ((13, 0), 86, 12090, f"a cubin of NVRTC 13.0 needs a driver of CUDA 13.0 or later, that of a device has 12.9; {CUDA_12}"),
        ((13, 5), 86, 11080, "that of a device has 11.8; update NVIDIA's driver"),
        ((13, 0), 90, 13000, None),
        ((13, 0), 90, 13050, None),
        ((12, 9), 90, 13000, None),
        ((13, 5), 90, 13010, 'that of a device has 13.1; pip install "nvidia-cuda-nvrtc==13.1.*" and compile'),
        ((13, 5), 90, 13010, "PTX of NVRTC 13.5 needs a driver of CUDA 13.5 or later"),
        ((12, 9), 90, 12040, 'that of a device has 12.4; pip install "nvidia-cuda-nvrtc-cu12==12.4.*" and compile'),
    ],
)
def test_versions_of_compiler_and_driver(version, architecture, driver, reason):
    missing_feature = missing(code_requirements("sm_80", version), facts(architecture, driver))
    assert (missing_feature is None) == (reason is None) and (reason or "") in (missing_feature or "")


def test_a_package_of_another_architecture(device, package, monkeypatch):
    object.__setattr__(device.facts, "architecture", 86)
    with pytest.raises(Unsupported, match="the code is for host, host is sm_86; compile for this device"):
        load(package)
