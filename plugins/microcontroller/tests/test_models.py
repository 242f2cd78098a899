"""The four models of MLPerf Tiny, byte for byte what LiteRT gives, in little more memory than their largest step needs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import inlaid
from inlaid_microcontroller.export import example
from inlaid_microcontroller.unit import decode
from inlaid_runtime.execution.c_source import find_compiler

MODELS = Path(__file__).parents[4] / "shared/models"
pytestmark = [
    pytest.mark.skipif(find_compiler() is None, reason="there is no C compiler: apt-get install gcc"),
    pytest.mark.skipif(not MODELS.is_dir(), reason="the models of MLPerf Tiny are not here: see benchmarks/README.md"),
]
# Outputs for the test input: TFLite Micro and LiteRT agree on them. Bytes: less than what lives at once, since results lie over
# what they are computed from. Multiplications and additions: of the last model 0.55 of them are left.
EXPECTED = {
    "ad01_int8": ("f012132435492e2a282d282b28272222", 768, 264_192),
    "kws_ref_model": ("8080808080808080806e8092", 9792, 2_656_768),
    "pretrainedResnet_quant": ("80809393808058808180", 33312, 12_501_632),
    "vww_96_int8": ("7987", 36880, 4_119_704),
}


@pytest.mark.parametrize("name", EXPECTED)
def test_integers_are_exact(name: str) -> None:
    executable = inlaid.compile(MODELS / f"{name}.tflite", ["microcontroller"])
    (spec,) = executable.inputs
    (actual,) = executable.run({spec.name: example(spec)}).values()
    begin, arena, products = EXPECTED[name]
    assert actual.tobytes().hex().startswith(begin)
    (artifact,) = executable.package.artifacts
    workspace = artifact.workspace[""]
    assert isinstance(workspace, int) and workspace <= arena
    unit = decode(artifact.code)
    counted = sum(unit.kernels[call.kernel].multiplications for call in unit.calls)
    assert 0.9 * products < counted < 1.1 * products  # those that requantize are among them


@pytest.mark.parametrize("name", ["ad01_fp32", "kws_ref_model_float32"])
def test_floats_agree_with_the_reference(name: str) -> None:
    path = MODELS / f"{name}.tflite"
    executable, reference = (inlaid.compile(path, [target]) for target in ("microcontroller", "reference"))
    (spec,) = executable.inputs
    inputs = {spec.name: example(spec)}
    (actual,), (expected,) = (each.run(inputs).values() for each in (executable, reference))
    np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-3 * np.abs(expected).max())
