"""Models that are not right yet, and why. Tests and `bench_real.py` fail where a listed model is right: take it out then."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

CLASSICS = "operators of ai.onnx.ml that are not supported"
LENGTHS = "LLVM rejects a recurrent cell with lengths: an instruction does not dominate its uses"

KNOWN: Mapping[str, str] = MappingProxyType(
    {
        "diffusion_half": "values in float16 that differ by 0.6 % of the largest from ONNX Runtime's",
        **dict.fromkeys(("sklearn_forest", "sklearn_boosting", "sklearn_columns", "sklearn_svm", "sklearn_outliers"), CLASSICS),
        **dict.fromkeys(("lightgbm_ranker", "xgboost_classifier", "forest"), CLASSICS),
        **dict.fromkeys(("gru_denoiser", "torch_tagger"), LENGTHS),
        "torch_spectrogram": "STFT of a signal of rank 2",
    }
)
