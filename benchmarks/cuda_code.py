"""Compile the bench set for CUDA architectures without a GPU, and list what its kernels take of a multiprocessor.

    python benchmarks/cuda_code.py [MODEL ...] [--arch sm_80 sm_90a] [--tiny] [--kernels]

Models are those of benchmarks/zoo, all in float32 where none is named. A model passes when no kernel that is among the 95 % of its
predicted time uses local memory: there registers are spilled, and arrays lie whose indices are not constant. The prediction is a
roofline: operations over the peak of the architecture's typical device, or bytes over its bandwidth, whichever is more.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from inlaid.api import compile_file
from inlaid_cuda.capabilities import capabilities
from inlaid_cuda.cubin import Resources, resources
from inlaid_cuda.images import Images
from inlaid_cuda.options import FORMAT, CudaOptions
from inlaid_runtime.artifact import Artifact
from inlaid_runtime.execution.launch_code import decode_launches, walk_steps
from zoo import FLOAT, model_path

SHARE = 0.95
HEAD = """\
| model | arch | kernels | most registers | most shared bytes | with local memory | of these in 95 % of the time |
|---|---|---|---|---|---|---|"""


@dataclass(frozen=True)
class Kernel:
    """A kernel: the source nodes that it computes, its predicted `seconds`, and whether it is among 95 % of those of its model."""

    name: str
    nodes: tuple[str, ...]
    usage: Resources
    seconds: float
    counts: bool

    def __str__(self) -> str:
        usage, mark = self.usage, "*" if self.counts else " "
        numbers = f"{self.seconds * 1e6:9.1f} us {usage.registers:4} registers {usage.local:6} local {usage.shared:6} shared"
        return f"  {mark}{numbers}  {self.name} ({', '.join(self.nodes)[:80]})"


@dataclass(frozen=True)
class Row:
    """One model for one architecture."""

    name: str
    arch: str
    kernels: tuple[Kernel, ...]

    @property
    def spilling(self) -> tuple[Kernel, ...]:
        """Kernels among the 95 % that use local memory."""
        return tuple(kernel for kernel in self.kernels if kernel.counts and kernel.usage.local)

    def __str__(self) -> str:
        usages = [kernel.usage for kernel in self.kernels]
        registers, shared = max(item.registers for item in usages), max(item.shared for item in usages)
        local = sum(1 for item in usages if item.local)
        return f"| {self.name} | {self.arch} | {len(usages)} | {registers} | {shared} | {local} | {len(self.spilling)} |"


def compiled(path: Path, arch: str) -> Row:
    """The kernels of a model file for an architecture."""
    package = compile_file(path, [f"cuda:arch={arch}"]).package
    regions = [artifact for artifact in package.artifacts if artifact.format == FORMAT]
    return Row(path.stem, arch, tuple(_ranked([item for artifact in regions for item in _kernels(artifact, arch)])))


def _kernels(artifact: Artifact, arch: str) -> Iterator[Kernel]:
    """The kernels of a region, once for each call that launches them."""
    able = capabilities(CudaOptions(arch))
    plan, program = decode_launches(artifact)
    usages = resources(Images.decode(program).cubin)
    pairs = dict.fromkeys((step.launch.call, step.launch.kernel) for step in walk_steps(plan.steps) if step.launch is not None)
    for call, kernel in pairs:
        info = artifact.kernels[call]
        operations, moved = (dim if isinstance(dim, int) else 0 for dim in (info.operations, info.bytes))
        seconds = max(operations / able.peak, moved / able.bandwidth)
        function = plan.kernels[kernel]
        usage = usages[function.name]
        yield Kernel(function.name, info.nodes, replace(usage, shared=usage.shared + function.shared), seconds, False)


def _ranked(kernels: Sequence[Kernel]) -> Iterator[Kernel]:
    """Kernels by time, the longest first, marked where they are among the 95 %."""
    rest = sum(kernel.seconds for kernel in kernels) * (1 - SHARE)
    ordered = sorted(kernels, key=lambda kernel: kernel.seconds, reverse=True)
    left = sum(kernel.seconds for kernel in ordered)
    for kernel in ordered:
        yield replace(kernel, counts=left > rest)
        left -= kernel.seconds


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", metavar="MODEL", help="names of the zoo, or files")
    parser.add_argument("--arch", nargs="+", default=["sm_80", "sm_90a"])
    parser.add_argument("--tiny", action="store_true", help="the small variants, of the models that have one")
    parser.add_argument("--kernels", action="store_true", help="list every kernel; else those that a model fails by")
    arguments = parser.parse_args()
    names = arguments.models or [name for name, entry in FLOAT.items() if not arguments.tiny or entry.tiny]
    print(HEAD)
    failed = False
    for name in names:
        for arch in arguments.arch:
            row = compiled(Path(name) if Path(name).exists() else model_path(name, tiny=arguments.tiny), arch)
            print(row, flush=True)
            for kernel in row.kernels if arguments.kernels else row.spilling:
                print(kernel)
            failed |= bool(row.spilling)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
