"""`cpu=portable`: which version of a region runs on which processor, and that each computes the same."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from inlaid import ops
from inlaid.driver.compile import build_package
from inlaid.graph import ir
from inlaid.graph.interp import evaluate
from inlaid_runtime import Executable, load
from inlaid_runtime.arith import SizeVar
from inlaid_runtime.errors import InputError, Unsupported
from inlaid_runtime.execution.package import Package, write_package
from inlaid_runtime.types import TensorType
from inlaid_x86_runtime.cpu import LEVELS, host_features
from inlaid_x86_runtime.options import PORTABLE

HOST = host_features()
TARGET = ["x86:cpu=portable,threads=1"]


def products() -> ir.Module:
    """A float convolution, and an 8-bit product."""
    generator = np.random.default_rng(0)
    x, y = ir.var("x", TensorType((1, 3, 12, 20), "float32")), ir.var("y", TensorType((7, 40), "uint8"))
    kernels = ir.constant(generator.integers(-3, 4, (48, 3, 3, 3)).astype(np.float32))
    weights = ir.constant(generator.integers(-128, 128, (40, 48)).astype(np.int8))
    conv = ops.relu(ops.conv(x, kernels, strides=(1, 1), pads=(1, 1, 1, 1), dilations=(1, 1)))
    return ir.Module({"main": ir.function([x, y], ir.tuple_([conv, ops.matmul(y, weights, out_dtype="int32")]))})


FEEDS = {
    "x": np.random.default_rng(1).integers(-3, 4, (1, 3, 12, 20)).astype(np.float32),
    "y": np.random.default_rng(2).integers(0, 256, (7, 40)).astype(np.uint8),
}


@pytest.fixture(scope="module")
def package() -> Package:
    return build_package(products(), TARGET)


@pytest.fixture(scope="module")
def path(package: Package, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("portable") / "model.inlaid"
    write_package(package, path)
    return path


def test_a_region_has_a_version_for_each_instruction_set(package: Package) -> None:
    (artifact,) = package.artifacts
    features = [set(version.requires) for version in (artifact, *reversed(artifact.variants))]
    assert features == [set(LEVELS[cpu]) for cpu in PORTABLE]


def test_versions_that_are_equal_are_left_out() -> None:
    """VNNI changes nothing in a float model."""
    x = ir.var("x", TensorType((4, 40), "float32"))
    module = ir.Module({"main": ir.function([x], ops.softmax(x, axis=1))})
    (artifact,) = build_package(module, TARGET).artifacts
    features = [set(version.requires) for version in (artifact, *reversed(artifact.variants))]
    assert features == [set(LEVELS[cpu]) for cpu in PORTABLE[:3]]


@pytest.mark.parametrize("cpu", PORTABLE)
def test_the_best_version_that_the_processor_has_runs(path: Path, cpu: str, monkeypatch: pytest.MonkeyPatch) -> None:
    lacking = sorted(set(LEVELS[cpu]) - HOST)
    if lacking:
        pytest.skip(f"this processor has no {', '.join(lacking)}")
    monkeypatch.setattr("inlaid_x86_runtime.cpu.processor_features", lambda: frozenset(LEVELS[cpu]))
    executable = load(path)
    (region,) = executable._executor.plans["main"].regions.values()
    assert set(region.artifact.requires) == set(LEVELS[cpu])
    # Whole numbers: every order of additions is exact.
    for actual, expected in zip(executable.run(FEEDS).values(), evaluate(products(), FEEDS), strict=True):
        np.testing.assert_array_equal(actual, expected)


@pytest.mark.parametrize(
    ("features", "expected"),
    [
        ((*LEVELS["x86-64-v4"], "avx512bf16"), "x86-64-v4"),
        ({*LEVELS["x86-64-v3"], "avxvnni"}, "x86-64-v3"),
        (set(LEVELS["x86-64-v3"]) - {"movbe"}, "x86-64-v2"),
        (LEVELS["sapphirerapids"], "cascadelake"),
    ],
)
def test_processors_between_levels(
    package: Package, features: tuple[str, ...], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the runtime's word alone: nothing of it is executed."""
    from inlaid_runtime.execution.loading import fitting
    from inlaid_x86_runtime.options import X86Options
    from inlaid_x86_runtime.runtime import X86Runtime

    monkeypatch.setattr("inlaid_x86_runtime.cpu.processor_features", lambda: frozenset(features))
    monkeypatch.setattr("inlaid_x86_runtime.cpu.request_permission", lambda: 0)
    version, reason = fitting(package.artifacts[0], X86Runtime(X86Options(cpu="portable")))
    assert reason is None and set(version.requires) == set(LEVELS[expected])


def test_a_processor_below_all_levels_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("inlaid_x86_runtime.cpu.processor_features", lambda: frozenset({"sse3"}))
    with pytest.raises(Unsupported, match=r"this machine lacks cx16, popcnt, .*; compile on this machine, with cpu=native"):
        load(path)


def test_export_asks_for_one_processor(path: Path, tmp_path: Path) -> None:
    from inlaid.driver.export import export_library

    with pytest.raises(Unsupported, match=r"code for several processors.*cpu=x86-64-v3"):
        export_library(load(path), tmp_path / "lib.so")


def test_each_version_checks_the_sizes() -> None:
    n, m = SizeVar("n"), SizeVar("m")
    x, y = (ir.var(name, TensorType((1, size), "float32")) for name, size in (("x", n), ("y", m)))
    package = build_package(ir.Module({"main": ir.function([x, y], ops.concat(x, y, axis=0))}), TARGET)
    (artifact,) = package.artifacts
    assert artifact.variants and all(version.constraints == artifact.constraints for version in artifact.variants)
    for version in (item for item in (artifact, *artifact.variants) if set(item.requires) <= HOST):
        alone = dataclasses.replace(package, artifacts=(dataclasses.replace(version, variants=()),))
        with pytest.raises(InputError, match="got 4 where m is 2, n is 4"):
            Executable(alone).run({"x": np.ones((1, 4), np.float32), "y": np.ones((1, 2), np.float32)})
