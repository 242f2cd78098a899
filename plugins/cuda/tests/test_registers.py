"""Register use of kernels of whole models, compiled without a GPU: the expensive ones do not spill.

`python benchmarks/cuda_code.py` checks all models of the bench set.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from cuda_code import compiled
from zoo import model_path

MODELS = Path(__file__).parents[4] / "shared" / "models"
TINY = [("mobilenet_v2", "sm_80"), ("bert_base", "sm_90a"), ("gpt2_step", "sm_80"), ("lstm", "sm_90a")]
TRAINED = [("kws_ref_model_float32", "sm_90a"), ("pretrainedResnet", "sm_80"), ("vww_96_int8", "sm_90a")]
"""Models and architectures: kernels of float32 differ little between these."""


def check(path, arch):
    row = compiled(path, arch)
    assert row.kernels and not row.spilling, "\n".join(map(str, (row, *row.spilling)))
    assert all(kernel.usage.registers <= 255 for kernel in row.kernels)
    assert any(kernel.counts for kernel in row.kernels)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "arch"), TINY)
def test_small_models(nvrtc, name, arch):
    check(model_path(name, tiny=True), arch)


@pytest.mark.slow
@pytest.mark.skipif(not MODELS.is_dir(), reason="the trained models are not beside the checkout, in ../shared/models")
@pytest.mark.parametrize(("name", "arch"), TRAINED)
def test_trained_models(nvrtc, name, arch):
    check(MODELS / f"{name}.tflite", arch)


@pytest.mark.slow
def test_a_light_model(nvrtc):
    check(model_path("squeezenet"), "sm_80")
