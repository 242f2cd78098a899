"""Regions with symbolic sizes in C under the address sanitizer: buffers of exactly the bytes that they are said to have."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from inlaid import ops
from inlaid.codegen.c_region import region_in_c
from inlaid.codegen.c_values import NATIVE
from inlaid.graph import ir as graph
from inlaid.graph.interp import evaluate
from inlaid.graph.ir import Expr, Var, constant
from inlaid.lowering.region import RegionSource, lower_region
from inlaid.plugins import Capabilities
from inlaid.schedules.default import SHARED_RULES
from inlaid.tensor.region import RegionProgram
from inlaid.tensor.scheduling.rule import KernelContext
from inlaid_runtime import arith
from inlaid_runtime.arith import SizeVar
from inlaid_runtime.execution.c_source import find_compiler
from inlaid_runtime.types import TensorType

pytestmark = pytest.mark.skipif(find_compiler() is None, reason="there is no C compiler: apt-get install gcc")

FLAGS = ("-std=gnu99", "-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
B, H, W = SizeVar("b"), SizeVar("h"), SizeVar("w")
MAIN = """
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
typedef struct { char message[256]; void *user; uint64_t *clock; } context_t;
int32_t region(const void *const *, void *const *, const void *const *, int64_t *, void *, context_t *);
static void *room(FILE *file, size_t bytes) {
    void *found = NULL;
    if (posix_memalign(&found, 64, bytes)) abort();
    if (file && fread(found, 1, bytes, file) != bytes) abort();
    return found;
}
int main(int count, char **names) {
    for (int number = 1; number < count; number++) {
        FILE *file = fopen(names[number], "rb");
        int64_t head[4], bytes;
        if (!file || fread(head, 8, 4, file) != 4) abort();
        void **places[3];
        for (int kind = 0; kind < 3; kind++) {
            places[kind] = calloc(head[kind] + 1, sizeof(void *));
            for (int64_t index = 0; index < head[kind]; index++) {
                if (fread(&bytes, 8, 1, file) != 1) abort();
                places[kind][index] = room(kind == 1 ? NULL : file, bytes);
            }
        }
        int64_t *dims = room(file, 8 * head[3]);
        if (fread(&bytes, 8, 1, file) != 1) abort();
        context_t context = {{0}, NULL, NULL};
        int32_t code = region((const void **)places[0], places[1], (const void **)places[2], dims, room(NULL, bytes), &context);
        if (code) { fprintf(stderr, "%s", context.message); return 3; }
        for (int64_t index = 0; index < head[1]; index++) {
            if (fread(&bytes, 8, 1, file) != 1) abort();
            fwrite(places[1][index], 1, bytes, stdout);
        }
        fclose(file);
    }
    return 0;
}
"""
"""Runs the region on each file, which holds the numbers of inputs, outputs, constants and sizes, their bytes and contents, and the
bytes of the workspace."""


Array = np.ndarray[Any, Any]


def normal(*shape: int) -> Array:
    return np.random.default_rng(len(shape)).standard_normal(shape).astype(np.float32)


def windows(x: Var) -> Expr:
    first = ops.relu(ops.conv(x, constant(normal(4, 3, 3, 3)), pads=(1, 1, 1, 1)))
    total = ops.conv(first, constant(normal(2, 4, 2, 3)), strides=(2, 1))
    return ops.max_pool(total, kernel=(2, 2))


def cut_and_joined(x: Var) -> Expr:
    first = ops.strided_slice(x, begin=(0, 0, 1, 0), end=(B, 3, H, W), strides=(1, 1, 1, 1))
    padded = ops.pad(first, constant(np.float32(7)), pads=(0, 0, 2, -1, 0, 0, 0, 3))
    return ops.concat(padded, ops.pad(padded, pads=(0, 0, 0, 0, 0, 0, 0, 0), mode="edge"), axis=2)


def rows(x: Var) -> Expr:
    flat = ops.reshape(x, shape=(arith.unwrap(B * 3 * H), W))
    return ops.softmax(ops.matmul(flat, ops.transpose(flat, perm=(1, 0))), axis=1)


def pooled(x: Var) -> Expr:
    means = ops.reduce_max(ops.avg_pool(x, kernel=(3, 3), pads=(1, 1, 1, 1)), axes=(2,))
    return ops.resize(means, shape=(B, 3, arith.unwrap(W * 2)), mode="linear")


CASES: dict[str, tuple[Callable[[Var], Expr], list[tuple[int, int, int]]]] = {
    "windows": (windows, [(1, 4, 4), (0, 5, 9), (2, 17, 5), (1, 33, 40)]),
    "cut and joined": (cut_and_joined, [(1, 1, 1), (0, 3, 3), (2, 5, 8), (1, 2, 17)]),
    "rows": (rows, [(1, 1, 1), (0, 2, 2), (2, 3, 5), (1, 11, 1), (1, 5, 0)]),
    "pooled": (pooled, [(1, 1, 1), (0, 4, 4), (2, 7, 3), (1, 2, 19)]),
}


def lowered(body: Expr, x: Var) -> RegionProgram:
    """A graph as loop programs, scheduled as those of a plugin without capabilities are."""
    context = KernelContext(Capabilities(tuple(NATIVE)), 1, ())
    source = RegionSource("region", graph.function([x], graph.tuple_([body])))
    return lower_region(source, SHARED_RULES, context)


def request(region: RegionProgram, x: Array, sizes: dict[arith.Expr, int], results: list[int]) -> bytes:
    """The file that the program reads, `results` being the bytes of the outputs."""

    def number(value: int) -> bytes:
        return np.int64(value).tobytes()

    def sized_bytes(array: Array) -> bytes:
        return number(array.nbytes) + array.tobytes()

    dims = [sizes[SizeVar(source.name)] for source in region.signature.dims]
    chunks = [*map(number, (1, len(results), len(region.constants), len(dims))), sized_bytes(x), *map(number, results)]
    chunks += [sized_bytes(array) for array in region.constants.values()]
    chunks += [*map(number, dims), number(arith.evaluate(region.workspace, sizes)), *map(number, results)]
    return b"".join(chunks)


def built(region: RegionProgram, folder: Path) -> Path:
    """The program that runs a region, with sanitizers."""
    compiler, program = find_compiler(), folder / "program"
    assert compiler is not None
    (folder / "region.c").write_bytes(region_in_c(region))
    (folder / "main.c").write_text(MAIN)
    command = [compiler, *FLAGS, str(folder / "region.c"), str(folder / "main.c"), "-lm", "-o", str(program)]
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    if process.returncode and "asan" in process.stderr:
        pytest.skip("the C compiler has no address sanitizer: apt-get install gcc")
    assert process.returncode == 0, process.stderr
    return program


def run(program: Path, requests: list[bytes]) -> subprocess.CompletedProcess[bytes]:
    """Run a region on requests, one after another."""
    files = [program.with_name(f"{number}.bin") for number in range(len(requests))]
    for file, content in zip(files, requests, strict=True):
        file.write_bytes(content)
    command = [str(program), *map(str, files)]
    return subprocess.run(command, capture_output=True, check=False, env={"ASAN_OPTIONS": "detect_leaks=0"})


@pytest.mark.parametrize("name", CASES)
def test_no_access_outside(name: str, tmp_path: Path) -> None:
    build, shapes = CASES[name]
    x = graph.var("x", TensorType((B, 3, H, W), "float32"))
    body = build(x)
    region = lowered(body, x)
    program = built(region, tmp_path)
    results, requests = [], []
    for b, h, w in shapes:
        array = normal(b, 3, h, w)
        results.append(evaluate(graph.Module({"main": graph.function([x], body)}), {"x": array}))
        requests.append(request(region, array, {B: b, H: h, W: w}, [results[-1].nbytes]))
    ran = run(program, requests)
    assert ran.returncode == 0, ran.stderr.decode()
    expected = np.concatenate([array.reshape(-1) for array in results])
    np.testing.assert_allclose(np.frombuffer(ran.stdout, np.float32), expected, rtol=1e-4, atol=1e-4)


def test_the_sanitizer_sees_an_access_outside(tmp_path: Path) -> None:
    x = graph.var("x", TensorType((B, 3, H, W), "float32"))
    region = lowered(rows(x), x)
    sizes: dict[arith.Expr, int] = {B: 2, H: 3, W: 5}
    ran = run(built(region, tmp_path), [request(region, normal(2, 3, 3, 5), sizes, [18 * 18 * 4 - 4])])
    assert ran.returncode != 0
    assert b"AddressSanitizer" in ran.stderr


@pytest.mark.parametrize(("compiler", "flags"), [("gcc", ("-std=c11", "-Wrestrict")), ("g++", ("-x", "c++", "-std=c++17"))])
@pytest.mark.parametrize("name", CASES)
def test_no_warning_as_c_and_as_cplusplus(name: str, compiler: str, flags: tuple[str, ...], tmp_path: Path) -> None:
    if shutil.which(compiler) is None:
        pytest.skip(f"there is no {compiler}: apt-get install {compiler}")
    x = graph.var("x", TensorType((B, 3, H, W), "float32"))
    (tmp_path / "region.c").write_bytes(region_in_c(lowered(CASES[name][0](x), x)))
    command = [compiler, *flags, "-O2", "-Wall", "-Wextra", "-Wconversion", "-Werror", "-S", "-o", "region.s", "region.c"]
    process = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr
