"""Regions with handwritten kernels in OpenCL C and CUDA C++, in the form that code generators produce."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from inlaid_runtime.arith import SizeVar
from inlaid_runtime.artifact import Artifact, DimSource, KernelInfo, Signature, TensorSpec
from inlaid_runtime.execution.launch_code import encode_launches
from inlaid_runtime.execution.launches import (
    BufferAddress,
    KernelFunction,
    Launch,
    LaunchPlan,
    LaunchPlanStep,
    Parameter,
    Size,
    SizeRead,
)
from inlaid_runtime.plugins import DeviceTensor
from inlaid_runtime.types import dtype

N = SizeVar("n")
K = SizeVar("?k", 0, N)
SCALE = """
KERNEL scale(GLOBAL const uchar *b0, long o0, GLOBAL const uchar *b1, long o1, GLOBAL uchar *b2, long o2, long by, long n) {
    long i = POSITION;
    GLOBAL const float *x = (GLOBAL const float *)(b0 + o0), *c = (GLOBAL const float *)(b1 + o1);
    if (i < n) ((GLOBAL float *)(b2 + o2))[i] = x[i] * by + c[0];
}
"""
LOOKUP = """
KERNEL lookup(GLOBAL const uchar *b0, long o0, GLOBAL uchar *b1, long o1, long n, GLOBAL int *report) {
    long i = POSITION;
    long at = (long)((GLOBAL const float *)(b0 + o0))[i];
    if (at < 0 || at >= n) { *report = 1; return; }
    ((GLOBAL float *)(b1 + o1))[i] = at * 10;
}
"""
COUNT = """
KERNEL count(GLOBAL const uchar *b0, long o0, GLOBAL uchar *b1, long o1, long n) {
    long k = 0;
    for (long i = 0; i < n; i++) k += ((GLOBAL const float *)(b0 + o0))[i] > 0;
    *(GLOBAL long *)(b1 + o1) = k;
}
KERNEL fill(GLOBAL uchar *b0, long o0, long k) { ((GLOBAL float *)(b0 + o0))[POSITION] = k; }
"""


@dataclass(frozen=True)
class Language:
    """A kernel language: artifact format, function qualifiers, and a prelude that defines GLOBAL, POSITION and uchar."""

    format: str
    version: int
    kernel: str
    prelude: str

    def artifact(self, plan, source, inputs, outputs, dims=(), kernels=1, **more):
        """Build an artifact of float32 tensors of given shapes."""
        specs = [
            tuple(TensorSpec(f"{side}{i}", shape, dtype("float32")) for i, shape in enumerate(shapes))
            for side, shapes in (("x", inputs), ("y", outputs))
        ]
        infos = tuple(KernelInfo(f"kernel{i}", (f"node{i}",)) for i in range(kernels))
        text = f"{self.prelude}\n{source.replace('KERNEL', self.kernel)}"
        signature = Signature(*specs, tuple(dims))
        return Artifact("region", self.format, self.version, encode_launches(plan, text.encode()), signature, kernels=infos, **more)

    def scaled(self):
        """y = 3 * (2 * x + c) + c over n elements, in two launches, the first into the arena."""
        storages = ("input", "constant", "arena", "output")
        places = tuple(BufferAddress(storage, 0, 0) for storage in storages)
        sizes = tuple(map(Size, (0, 1, 2, 3, N, (N + 63) // 64, 64)))
        steps = (
            LaunchPlanStep(launch=Launch(0, (0, 1, 2), (2, 4), (5, 1, 1), (6, 1, 1), 0)),
            LaunchPlanStep(launch=Launch(0, (2, 1, 3), (3, 4), (5, 1, 1), (6, 1, 1), 1)),
        )
        buffers = (Parameter(4 * N), Parameter(4), Parameter(4 * N, reads=False, writes=True))
        scale = KernelFunction("scale", buffers, ("by", "n"), ((N + 63) // 64, 1, 1), (64, 1, 1))
        plan = LaunchPlan((scale,), places, sizes, steps, (Size(N),))
        more = {"constants": {"c": np.array([0.5], np.float32)}, "workspace": {"": N * 4}}
        return self.artifact(plan, SCALE, [(N,)], [(N,)], [DimSource("n", 0, 0)], 2, **more)

    def lookup(self):
        """y = 10 * x; reports x outside [0, n)."""
        sizes = tuple(map(Size, (0, 1, N)))
        steps = (LaunchPlanStep(launch=Launch(0, (0, 1), (2,), (2, 1, 1), (1, 1, 1), 0)),)
        buffers = (Parameter(4 * N), Parameter(4 * N, reads=False, writes=True))
        lookup = KernelFunction("lookup", buffers, ("n",), (N, 1, 1), (1, 1, 1), reports=True)
        plan = LaunchPlan((lookup,), (BufferAddress("input", 0, 0), BufferAddress("output", 0, 0)), sizes, steps, (Size(N),))
        return self.artifact(plan, LOOKUP, [(N,)], [(N,)], [DimSource("n", 0, 0)])

    def counted(self, later: bool):
        """Dimension k is the number of positive elements of x; with `later`, k elements of y are k."""
        sizes = tuple(map(Size, (0, 1, N, *([K] if later else []))))
        places = (BufferAddress("input", 0, 0), BufferAddress("arena", 0, 0), BufferAddress("output", 0, 0))
        steps = [LaunchPlanStep(launch=Launch(0, (0, 1), (2,), (1, 1, 1), (1, 1, 1), 0)), LaunchPlanStep(read=SizeRead(1, 1))]
        if later:
            steps.append(LaunchPlanStep(launch=Launch(1, (2,), (3,), (3, 1, 1), (1, 1, 1), 1)))
        count = KernelFunction("count", (Parameter(4 * N), Parameter(8, False, True, "?k")), ("n",), (1, 1, 1), (1, 1, 1))
        fill = KernelFunction("fill", (Parameter(4 * K, False, True),), ("?k",), (K, 1, 1), (1, 1, 1), program=1)
        plan = LaunchPlan((count, fill), places, sizes, tuple(steps), (Size(N), Size(K)))
        dims = [DimSource("n", 0, 0), DimSource("?k", None, 0, N)]
        return self.artifact(plan, COUNT, [(N,)], [(K,)], dims, 2, workspace={"": 64})

    def single(self, source="KERNEL k(long n) {}", grid=(1, 1, 1), threads=(1, 1, 1), name="k", **facts):
        """A region without buffers: one launch."""
        sizes = tuple(map(Size, (*grid, *threads)))
        launch = Launch(0, (), (0,), (0, 1, 2), (3, 4, 5), 0)
        kernel = KernelFunction(name, (), ("n",), grid, threads, **facts)
        return self.artifact(LaunchPlan((kernel,), (), sizes, (LaunchPlanStep(launch=launch),)), source, [], [])

    def outside(self):
        """A region whose only buffer begins after the end of its arena of 64 bytes."""
        launch = Launch(0, (0,), (), (1, 1, 1), (1, 1, 1), 0)
        kernel = KernelFunction("k", (Parameter(1, False, True),), (), (1, 1, 1), (1, 1, 1))
        plan = LaunchPlan((kernel,), (BufferAddress("arena", 0, 0),), (Size(128), Size(1)), (LaunchPlanStep(launch=launch),))
        return self.artifact(plan, "KERNEL k(GLOBAL uchar *b, long o) { b[o] = 0; }", [], [], workspace={"": 64})


OPENCL = Language("opencl-c", 3, "__kernel void", "#define GLOBAL __global\n#define POSITION get_global_id(0)")
CUDA = Language(
    "cuda-cubin",
    3,
    'extern "C" __global__ void',
    "typedef unsigned char uchar;\n#define GLOBAL\n#define POSITION (blockIdx.x * (long)blockDim.x + threadIdx.x)",
)


def device_bytes(device, size):
    """Allocate a tensor of bytes."""
    return DeviceTensor(device.allocate(size), 0, (size,), np.dtype(np.uint8))


def read(device, queue, source):
    """Read a tensor after all commands on the queue."""
    array = np.zeros(source.shape, source.dtype)
    device.download(source, array, queue)
    device.synchronize(device.event(queue))
    return array


def check_uploads(device, queue, source):
    """An array may change right after `upload`, on an idle and on a busy queue."""
    target, copies = device_bytes(device, source.size), [device_bytes(device, source.size) for _ in range(5)]
    for turn, copied in enumerate(copies):
        source[:] = turn
        device.upload(source, target, queue)
        source[:] = 99
        device.copy(target, copied, queue)
    for turn, copied in enumerate(copies):
        assert (read(device, queue, copied) == turn).all()
        device.free(copied.buffer)
    device.free(target.buffer)


def scaled(x):
    """Expected output of `Language.scaled`."""
    return 3 * (2 * np.asarray(x, np.float32) + 0.5) + 0.5


class Run:
    """Tensors of one run of a region on a device."""

    def __init__(self, device, queue, x, size=None, workspace=0):
        self.device, self.queue = device, queue
        self.x = np.asarray(x, np.float32)
        self.inputs = [self.tensor(self.x.shape)]
        self.outputs = [self.tensor((self.x.size if size is None else size,))]
        self.workspace = self.tensor((workspace,), np.uint8) if workspace else None
        device.upload(self.x, self.inputs[0], queue)

    def tensor(self, shape, dtype=np.float32):
        dtype = np.dtype(dtype)
        return DeviceTensor(self.device.allocate(max(int(np.prod(shape)) * dtype.itemsize, 1)), 0, shape, dtype)

    def launch(self, kernel, dims):
        kernel.launch(self.inputs, self.outputs, self.workspace, np.array(dims), self.queue)

    def result(self):
        array = np.zeros(self.outputs[0].shape, np.float32)
        self.device.download(self.outputs[0], array, self.queue)
        self.device.synchronize(self.device.event(self.queue))
        return array

    def free(self):
        for tensor in (*self.inputs, *self.outputs, *([self.workspace] if self.workspace else [])):
            self.device.free(tensor.buffer)
