"""Models that are not right yet, and why. Tests and `bench_real.py` fail where a listed model is right: take it out then."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

ROWS = "rows of a matrix product that are a product of divided or clipped sizes: the schedule finds no loop of that extent"
CLASSICS = "operators of ai.onnx.ml that are not supported"
LENGTHS = "LLVM rejects a recurrent cell with lengths: an instruction does not dominate its uses"
BRANCHES = "a branch of an If that is impossible at the sizes given, or whose condition is an input"
SLOW = "expressions of symbolic height and width grow with every layer: compiling does not end"

KNOWN: Mapping[str, str] = MappingProxyType(
    {
        **dict.fromkeys(("diffusion_half", "stft_tagger", "llama_half", "torch_conformer", "rapidocr_read"), ROWS),
        **dict.fromkeys(("sklearn_forest", "sklearn_boosting", "sklearn_columns", "sklearn_svm", "sklearn_outliers"), CLASSICS),
        **dict.fromkeys(("lightgbm_ranker", "xgboost_classifier", "forest"), CLASSICS),
        **dict.fromkeys(("gru_denoiser", "torch_tagger"), LENGTHS),
        **dict.fromkeys(("torch_crnn", "torch_vad", "silero_vad", "silero_vad_op15"), BRANCHES),
        **dict.fromkeys(("keras_classifier", "rapidocr_turn"), SLOW),
        "translator": "a size that a loop carries has no upper bound",
        "preprocessing": "TfIdfVectorizer over a number of words that is known at run time only",
        "torch_detector": "the bound of a size that NonZero decides in a loop names a dimension that its region is not given",
        "torch_spectrogram": "STFT of a signal of rank 2",
    }
)
