"""Register use of kernels of whole models, compiled without a GPU: the expensive ones do not spill.

`python benchmarks/cuda_code.py` checks all models of the bench set.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from cuda_code import compiled
from zoo import path_of

MODELS = Path(__file__).parents[4] / "shared" / "models"
TINY = ("mobilenet_v2", "bert_base", "gpt2_step", "lstm")
TRAINED = ("kws_ref_model_float32", "pretrainedResnet", "vww_96_int8")
ARCHITECTURES = ["sm_80", "sm_90a"]


def check(path, arch):
    row = compiled(path, arch)
    assert row.kernels and not row.spilling, "\n".join(map(str, (row, *row.spilling)))
    assert all(kernel.found.registers <= 255 for kernel in row.kernels)
    assert any(kernel.counts for kernel in row.kernels)


@pytest.mark.slow
@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("name", TINY)
def test_small_models(nvrtc, name, arch):
    check(path_of(name, tiny=True), arch)


@pytest.mark.slow
@pytest.mark.skipif(not MODELS.is_dir(), reason="the trained models are not beside the checkout, in ../shared/models")
@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("name", TRAINED)
def test_trained_models(nvrtc, name, arch):
    check(MODELS / f"{name}.tflite", arch)


@pytest.mark.slow
def test_a_light_model(nvrtc):
    check(path_of("squeezenet"), "sm_80")
