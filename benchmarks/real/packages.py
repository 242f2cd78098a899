"""Models that packages on PyPI carry: trained ones, and what their makers' exporters wrote. `install.py` takes them out."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

import numpy as np

from real.exported import Sizes, load
from real.model import Draw, Feeds, Model


@dataclass(frozen=True)
class Carried:
    """One file of a distribution, in a folder of its wheel."""

    name: str
    domain: str
    distribution: str
    version: str
    folder: str
    file: str
    feeds: Callable[..., Feeds]
    sizes: Sizes

    @property
    def path(self) -> str:
        """Where the wheel has it."""
        return f"{self.folder}/{self.file}"


def _named(name: str, *fixed: int, low: float = -1.0, high: float = 1.0) -> Callable[..., Feeds]:
    """Floats under a name, of the given sizes where `fixed` has 0 and of the fixed ones elsewhere."""

    def feeds(draw: Draw, *sizes: int) -> Feeds:
        rest = iter(sizes)
        return {name: draw.floats(*(each or next(rest) for each in fixed), low=low, high=high)}

    return feeds


def _silero(draw: Draw, rate: int, batch: int, samples: int) -> Feeds:
    return {"input": draw.floats(batch, samples), "state": draw.floats(2, batch, 128), "sr": np.array(rate)}


def _silero_old(draw: Draw, rate: int, batch: int, samples: int) -> Feeds:
    return {"input": draw.floats(batch, samples), "sr": np.array(rate), **{name: draw.floats(2, batch, 64) for name in ("h", "c")}}


def _silero_sequence(draw: Draw, windows: int) -> Feeds:
    return {"input": draw.floats(windows, 576), **{name: draw.floats(1, 1, 128) for name in ("h", "c")}}


def _bytes(draw: Draw, batch: int) -> Feeds:
    return {"bytes": draw.tokens(257, batch, 2048, dtype=np.int32)}


SILERO = ("silero-vad", "6.2.3", "silero_vad/data")
OCR = ("rapidocr-onnxruntime", "1.4.4", "rapidocr_onnxruntime/models")
WAKE = ("openwakeword", "0.4.0", "openwakeword/resources/models")
NUDE = ("nudenet", "3.4.2", "nudenet")
PITCH = ("basic-pitch", "0.4.0", "basic_pitch/saved_models/icassp_2022")
MAGIKA = ("magika", "1.0.3", "magika/models/standard_v3_3")
CAPTCHA = ("captcha-whisperer", "0.1.0", "captcha_whisperer/models")


def carried() -> tuple[Carried, ...]:
    """What is taken from where."""
    line = _named("x", 0, 3, 48, 0)
    picture = _named("images", 0, 3, 0, 0, low=0)
    samples = _named("input", 0, 0, low=-9e3, high=9e3)
    clip = _named("serving_default_input_2:0", 0, 43844, 1)
    first: Sizes = ((16000, 1, 512), (8000, 1, 256), (16000, 2, 1536))
    rates: Sizes = ((16000, 1, 576), (8000, 1, 288), (16000, 3, 576))
    return (
        Carried("nudenet", "detection", *NUDE, "320n.onnx", picture, ((1, 96, 96), (2, 64, 128))),
        Carried("rapidocr_detect", "OCR", *OCR, "ch_PP-OCRv4_det_infer.onnx", _named("x", 0, 3, 0, 0), ((1, 64, 64), (1, 96, 160))),
        Carried("rapidocr_read", "OCR", *OCR, "ch_PP-OCRv4_rec_infer.onnx", line, ((1, 64), (2, 200))),
        Carried("rapidocr_turn", "OCR", *OCR, "ch_ppocr_mobile_v2.0_cls_infer.onnx", line, ((1, 192), (3, 96))),
        Carried("silero_vad", "speech", *SILERO, "silero_vad.onnx", _silero, rates),
        Carried("silero_vad_ifless", "speech", *SILERO, "silero_vad_op18_ifless.onnx", _silero, rates),
        Carried("silero_vad_op15", "speech", *SILERO, "silero_vad_16k_op15.onnx", _silero, (rates[0], rates[2])),
        Carried("silero_vad_sequence", "speech", *SILERO, "silero_vad_16k_sequence.onnx", _silero_sequence, ((1,), (7,))),
        Carried("silero_vad_3", "speech", *WAKE, "silero_vad.onnx", _silero_old, first),
        Carried("wake_mel", "speech", *WAKE, "melspectrogram.onnx", samples, ((1, 1760), (2, 1280))),
        Carried("wake_embedding", "keyword spotting", *WAKE, "embedding_model.onnx", _named("input_1", 0, 76, 32, 1), ((1,), (3,))),
        Carried("wake_jarvis", "keyword spotting", *WAKE, "hey_jarvis_v0.1.onnx", _named("x.1", 1, 16, 96), ((),)),
        Carried("wake_mycroft", "keyword spotting", *WAKE, "hey_mycroft_v0.1.onnx", _named("input_1", 0, 16, 96), ((1,), (4,))),
        Carried("basic_pitch", "music", *PITCH, "nmp.onnx", clip, ((1,), (2,))),
        Carried("magika", "file types", *MAGIKA, "model.onnx", _bytes, ((1,), (3,))),
        Carried("captcha", "OCR", *CAPTCHA, "captcha_crnn.onnx", _named("image", 0, 3, 60, 160), ((1,), (2,))),
    )


def models() -> Iterable[Model]:
    """The entries of this file."""
    for item in carried():
        source = f"{item.distribution} {item.version}"
        yield Model(item.name, item.domain, source, partial(load, item.name), item.feeds, item.sizes)
