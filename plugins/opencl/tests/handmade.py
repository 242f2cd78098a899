"""Regions with kernels written by hand, as the code generator would hand them over."""

from __future__ import annotations

import numpy as np

from inlaid.arith import SizeVar
from inlaid.artifact import Artifact, DimSource, KernelInfo, Signature, TensorSpec
from inlaid.plugins import DeviceTensor
from inlaid.runtime.launch_code import encode_launches
from inlaid.runtime.launches import Launch, LaunchPlan, Place, Read, Size, Step
from inlaid.types import dtype
from inlaid_opencl.options import FORMAT, FORMAT_VERSION

N = SizeVar("n")
K = SizeVar("?k", 0, N)
FOUND = "__global uchar *b0, long o0, __global uchar *b1, long o1"


def artifact(plan, source, inputs, outputs, dims=(), kernels=1, **more):
    """An artifact of float32 tensors of given shapes."""
    specs = [
        tuple(TensorSpec(f"{side}{i}", shape, dtype("float32")) for i, shape in enumerate(shapes))
        for side, shapes in (("x", inputs), ("y", outputs))
    ]
    infos = tuple(KernelInfo(f"kernel{i}", (f"node{i}",)) for i in range(kernels))
    return Artifact(
        "region",
        FORMAT,
        FORMAT_VERSION,
        encode_launches(plan, source.encode()),
        Signature(*specs, tuple(dims)),
        kernels=infos,
        **more,
    )


SCALE = """
__kernel void scale(__global const uchar *b0, long o0, __global const uchar *b1, long o1, __global uchar *b2, long o2,
                    long by, long n) {
    long i = get_global_id(0);
    __global const float *x = (__global const float *)(b0 + o0), *c = (__global const float *)(b1 + o1);
    if (i < n) ((__global float *)(b2 + o2))[i] = x[i] * by + c[0];
}
"""


def scaled():
    """y = 3 * (2 * x + c) + c over n elements, in two launches, the first into the arena."""
    places = (Place("input", 0, 0), Place("constant", 0, 0), Place("arena", 0, 0), Place("output", 0, 0))
    sizes = tuple(map(Size, (0, 1, 2, 3, N, (N + 63) // 64, 64)))
    steps = (
        Step(launch=Launch(0, (0, 1, 2), (2, 4), (5, 1, 1), (6, 1, 1), 0)),
        Step(launch=Launch(0, (2, 1, 3), (3, 4), (5, 1, 1), (6, 1, 1), 1)),
    )
    plan = LaunchPlan(("scale",), (False,), places, sizes, steps, (Size(N),))
    constants = {"c": np.array([0.5], np.float32)}
    return artifact(plan, SCALE, [(N,)], [(N,)], [DimSource("n", 0, 0)], 2, constants=constants, workspace={"": N * 4})


LOOKUP = """
__kernel void lookup(__global const uchar *b0, long o0, __global uchar *b1, long o1, long n, __global int *report) {
    long i = get_global_id(0);
    long at = (long)((__global const float *)(b0 + o0))[i];
    if (at < 0 || at >= n) { *report = 1; return; }
    ((__global float *)(b1 + o1))[i] = at * 10;
}
"""


def lookup():
    """y = 10 * x, which must be 0 to n - 1; reports others."""
    sizes = tuple(map(Size, (0, 1, N)))
    steps = (Step(launch=Launch(0, (0, 1), (2,), (2, 1, 1), (1, 1, 1), 0)),)
    plan = LaunchPlan(("lookup",), (True,), (Place("input", 0, 0), Place("output", 0, 0)), sizes, steps, (Size(N),))
    return artifact(plan, LOOKUP, [(N,)], [(N,)], [DimSource("n", 0, 0)])


COUNT = """
__kernel void count(__global const uchar *b0, long o0, __global uchar *b1, long o1, long n) {
    long k = 0;
    for (long i = 0; i < n; i++) k += ((__global const float *)(b0 + o0))[i] > 0;
    *(__global long *)(b1 + o1) = k;
}
__kernel void fill(__global uchar *b0, long o0, long k) { ((__global float *)(b0 + o0))[get_global_id(0)] = k; }
"""


def counted(later: bool):
    """How many elements of x are positive, in dimension k; with `later`, that many elements of y are k."""
    sizes = tuple(map(Size, (0, 1, N, *([K] if later else []))))
    places = (Place("input", 0, 0), Place("arena", 0, 0), Place("output", 0, 0))
    steps = [Step(launch=Launch(0, (0, 1), (2,), (1, 1, 1), (1, 1, 1), 0)), Step(read=Read(1, 1))]
    if later:
        steps.append(Step(launch=Launch(1, (2,), (3,), (3, 1, 1), (1, 1, 1), 1)))
    plan = LaunchPlan(("count", "fill"), (False, False), places, sizes, tuple(steps), (Size(N), Size(K)))
    dims = [DimSource("n", 0, 0), DimSource("?k", None, 0, N)]
    return artifact(plan, COUNT, [(N,)], [(K,)], dims, 2, workspace={"": 64})


class Run:
    """Tensors of one run of a region on a device."""

    def __init__(self, device, queue, x, size=None, workspace=0):
        self.device, self.queue = device, queue
        self.x = np.asarray(x, np.float32)
        self.inputs = [self.tensor(self.x.shape)]
        self.outputs = [self.tensor((self.x.size if size is None else size,))]
        self.workspace = self.tensor((workspace,), np.uint8) if workspace else None
        device.upload(self.x, self.inputs[0], queue)

    def tensor(self, shape, of=np.float32):
        of = np.dtype(of)
        return DeviceTensor(self.device.allocate(max(int(np.prod(shape)) * of.itemsize, 1)), 0, shape, of)

    def launch(self, kernel, dims):
        kernel.launch(self.inputs, self.outputs, self.workspace, dims, self.queue)

    def result(self):
        found = np.zeros(self.outputs[0].shape, np.float32)
        self.device.download(self.outputs[0], found, self.queue)
        self.device.synchronise(self.device.event(self.queue))
        return found

    def free(self):
        for tensor in (*self.inputs, *self.outputs, *([self.workspace] if self.workspace else [])):
            self.device.free(tensor.buffer)
