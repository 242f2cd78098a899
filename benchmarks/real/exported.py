"""Models that real exporters write: PyTorch's two, tf2onnx, paddle2onnx and skl2onnx. `install.py` runs them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

import numpy as np
import onnx

from real.model import Draw, Feeds, Model, NotInstalledError
from real.places import INSTALL, MODELS

Sizes = tuple[tuple[int, ...], ...]

TORCH_SCRIPT = "torch.onnx, TorchScript"
TORCH_DYNAMO = "torch.onnx, Dynamo"


def load(name: str) -> onnx.ModelProto:
    """The file that an exporter wrote. Raises `NotInstalledError`."""
    path = MODELS / f"{name}.onnx"
    if not path.exists():
        raise NotInstalledError(f"{name} was not exported here; {INSTALL}")
    return onnx.load(path)


def _image(draw: Draw, *shape: int) -> Feeds:
    return {"image": draw.floats(shape[0], 3, *shape[1:])}


def _vad(draw: Draw, rate: int, batch: int, count: int) -> Feeds:
    states = {name: draw.floats(1, batch, 24) for name in ("h", "c")}
    return {"samples": draw.floats(batch, count), "rate": np.array(rate), **states}


def _tagger(draw: Draw, batch: int, length: int) -> Feeds:
    return {"tokens": draw.tokens(60, batch, length), "lengths": np.sort(draw.lengths(batch, length))[::-1].copy()}


def _sentiment(draw: Draw, count: int, bags: int) -> Feeds:
    offsets = np.sort(draw.tokens(count, bags))
    offsets[0] = 0
    return {"tokens": draw.tokens(100, count), "offsets": offsets}


def _decoder(draw: Draw, batch: int, new: int, past: int) -> Feeds:
    caches = {name: draw.floats(batch, 2, past, 8) for name in ("keys", "values")}
    return {"tokens": draw.tokens(100, batch, new), **caches}


def _forecaster(draw: Draw, batch: int, time: int) -> Feeds:
    return {"series": draw.floats(batch, time, 6), **{name: draw.floats(2, batch, 24) for name in ("h", "c")}}


def torch_models() -> Iterable[Model]:
    """What `exporters/torch_models.py` writes."""
    images: Sizes = ((1, 64, 64), (2, 48, 80), (1, 96, 64))
    rows: tuple[tuple[str, str, str, Callable[..., Feeds], Sizes], ...] = (
        ("torch_detector", "detection", TORCH_SCRIPT, _image, ((1, 64, 64), (1, 48, 80), (1, 8, 8))),
        ("torch_unet", "segmentation", TORCH_SCRIPT, _image, ((1, 64, 64), (2, 35, 50), (1, 4, 7))),
        (
            "torch_crnn",
            "OCR",
            TORCH_SCRIPT,
            lambda draw, n, w: {"image": draw.floats(n, 1, 32, w)},
            ((1, 64), (3, 101), (1, 4)),
        ),
        ("torch_vad", "speech", TORCH_SCRIPT, _vad, ((16000, 1, 512), (8000, 1, 256), (16000, 2, 700), (8000, 3, 32))),
        (
            "torch_translator",
            "translation",
            TORCH_SCRIPT,
            lambda draw, n, s, t: {"source": draw.tokens(49, n, s) + 1, "target": draw.tokens(49, n, t) + 1},
            ((1, 12, 7), (2, 20, 1), (3, 1, 15)),
        ),
        ("torch_tagger", "text", TORCH_SCRIPT, _tagger, ((1, 12), (4, 9), (2, 1))),
        (
            "torch_spectrogram",
            "speech",
            TORCH_SCRIPT,
            lambda draw, n, t: {"samples": draw.floats(n, t)},
            ((1, 1024), (2, 700), (1, 128)),
        ),
        (
            "torch_captioner",
            "captioning",
            TORCH_SCRIPT,
            lambda draw, regions, limit: {"features": draw.floats(1, regions, 12), "limit": np.array(limit)},
            ((5, 8), (1, 20), (9, 1)),
        ),
        ("torch_sentiment", "text", TORCH_SCRIPT, _sentiment, ((9, 3), (40, 8), (1, 1))),
        (
            "torch_super_resolution",
            "super-resolution",
            TORCH_SCRIPT,
            lambda draw, *shape: {"luma": draw.floats(shape[0], 1, *shape[1:], low=0)},
            ((1, 32, 32), (2, 17, 40), (1, 3, 2)),
        ),
        ("torch_vit", "classification", TORCH_DYNAMO, lambda draw, n: _image(draw, n, 32, 32), ((2,), (1,), (7,))),
        ("torch_unet_dynamo", "segmentation", TORCH_DYNAMO, _image, images),
        (
            "torch_conformer",
            "speech",
            TORCH_DYNAMO,
            lambda draw, n, t: {"features": draw.floats(n, t, 20), "lengths": draw.lengths(n, t)},
            ((2, 31), (1, 50), (3, 4)),
        ),
        ("torch_pose", "pose", TORCH_DYNAMO, _image, images),
        (
            "torch_denoiser",
            "diffusion",
            TORCH_DYNAMO,
            lambda draw, *shape: {"latent": draw.floats(shape[0], 4, *shape[1:]), "step": draw.tokens(1000, shape[0])},
            ((2, 16, 24), (1, 32, 32), (3, 8, 8)),
        ),
        (
            "torch_siamese",
            "tracking",
            TORCH_DYNAMO,
            lambda draw, h, w: {"template": draw.floats(1, 3, 31, 31), "search": draw.floats(1, 3, h, w)},
            ((63, 95), (48, 48), (31, 40)),
        ),
        ("torch_decoder", "language model", TORCH_DYNAMO, _decoder, ((1, 4, 3), (2, 1, 17), (1, 6, 0))),
        (
            "torch_recommender",
            "recommender",
            TORCH_DYNAMO,
            lambda draw, n: {"numbers": draw.floats(n, 5), "categories": draw.tokens(10, n, 3)},
            ((4,), (1,), (33,)),
        ),
        ("torch_forecaster", "time series", TORCH_DYNAMO, _forecaster, ((2, 12), (1, 30), (4, 1))),
    )
    for name, domain, source, feeds, sizes in rows:
        yield Model(name, domain, source, partial(load, name), feeds, sizes)


def tensorflow_models() -> Iterable[Model]:
    """What `exporters/keras_models.py` writes, channels last."""
    rows: tuple[tuple[str, str, Callable[..., Feeds], Sizes], ...] = (
        ("keras_classifier", "classification", _last, ((1, 64, 64), (2, 96, 40), (1, 32, 33))),
        ("keras_segmentation", "segmentation", lambda draw, n: _last(draw, n, 48, 64), ((1,), (3,))),
        ("keras_reviews", "text", lambda draw, n, t: {"tokens": draw.tokens(100, n, t, dtype=np.int32)}, ((1, 20), (4, 7), (2, 1))),
        ("keras_keywords", "keyword spotting", lambda draw, n, t: {"features": draw.floats(n, t, 10)}, ((1, 49), (3, 20), (2, 1))),
        ("keras_transformer", "text", lambda draw, n, t: {"tokens": draw.floats(n, t, 24)}, ((1, 16), (3, 33), (2, 1))),
        ("tf_detector", "detection", _last, ((1, 64, 64), (1, 40, 96), (1, 8, 8))),
        ("tf_spectrum", "speech", lambda draw: {"samples": draw.floats(1, 640)}, ((),)),
    )
    for name, domain, feeds, sizes in rows:
        yield Model(name, domain, "tf2onnx", partial(load, name), feeds, sizes)


def _last(draw: Draw, batch: int, height: int, width: int) -> Feeds:
    return {"image": draw.floats(batch, height, width, 3)}


def paddle_models() -> Iterable[Model]:
    """What `exporters/paddle_models.py` writes."""
    images: Sizes = ((1, 64, 64), (2, 32, 96), (1, 96, 32))
    rows: tuple[tuple[str, str, Callable[..., Feeds], Sizes], ...] = (
        ("paddle_recognizer", "OCR", lambda draw, n, w: _image(draw, n, 32, w), ((1, 100), (3, 64), (2, 8))),
        ("paddle_segmenter", "OCR", _image, images),
        ("paddle_encoder", "text", lambda draw, n, t: {"tokens": draw.tokens(100, n, t)}, ((1, 16), (3, 9), (2, 1))),
        ("paddle_detector", "detection", _image, images),
    )
    for name, domain, feeds, sizes in rows:
        yield Model(name, domain, "paddle2onnx", partial(load, name), feeds, sizes)


CITIES = ("Rome", "Oslo", "Lima")


def _columns(draw: Draw, rows: int) -> Feeds:
    numbers = {"age": draw.floats(rows, 1, low=18, high=90), "income": draw.floats(rows, 1, low=0, high=9)}
    return {**numbers, "city": draw.words(CITIES, rows, 1)}


def sklearn_models() -> Iterable[Model]:
    """What `exporters/sklearn_models.py` writes."""
    rows: tuple[tuple[str, str, Callable[..., Feeds]], ...] = (
        ("sklearn_forest", "tree ensembles", _matrix),
        ("sklearn_boosting", "tree ensembles", _matrix),
        ("sklearn_columns", "tables", _columns),
        ("sklearn_svm", "tables", _matrix),
        ("sklearn_neighbors", "tables", _matrix),
        ("sklearn_clusters", "tables", _matrix),
        ("sklearn_outliers", "tree ensembles", _matrix),
        ("sklearn_process", "tables", _matrix),
        ("lightgbm_ranker", "tree ensembles", _matrix),
        ("xgboost_classifier", "tree ensembles", _matrix),
    )
    for name, domain, feeds in rows:
        source = "skl2onnx" if name.startswith("sklearn") else "onnxmltools"
        yield Model(name, domain, source, partial(load, name), feeds, ((1,), (10,), (257,)))


def _matrix(draw: Draw, rows: int) -> Feeds:
    return {"x": draw.floats(rows, 6)}


def models() -> Iterable[Model]:
    """The entries of this file."""
    yield from torch_models()
    yield from tensorflow_models()
    yield from paddle_models()
    yield from sklearn_models()
