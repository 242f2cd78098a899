"""The models that Inlaid is measured and tested on, all with seeded weights: generated ones, and those of the onnx package.

    python benchmarks/make_models.py bert_base gpt2_step

Generated files are kept under the user's cache folder, in a folder named by a hash of this package's sources.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType

import onnx

from zoo.detector import TINY_DETECTOR, detector
from zoo.images import TINY_DCGAN, TINY_SUPER, TINY_UNET, dcgan, super_resolution, unet
from zoo.language import (
    TINY_BERT,
    TINY_GPT2,
    TINY_LSTM,
    TINY_SEQ2SEQ,
    bert,
    gpt2,
    lstm,
    seq2seq,
)
from zoo.light import IMAGE, light
from zoo.ocr import TINY_CRNN, TINY_FINDER, crnn, text_finder
from zoo.quantized import quantized
from zoo.sizes import Range, Symbolic, feeds
from zoo.speech import TINY_SPEECH, speech
from zoo.vision import TINY_MOBILENET, TINY_VIT, mobilenet, vit


@dataclass(frozen=True)
class Entry:
    """A generated model: in full; where there is one, with two layers and small widths for tests; and with symbolic sizes."""

    full: Callable[[], onnx.ModelProto]
    tiny: Callable[[], onnx.ModelProto] | None = None
    symbolic: Symbolic | None = None


BATCH, SIDE, LENGTH = (1, 6), (160, 288), (16, 192)
"""Ranges of batches, of heights and widths of images, and of sequences."""
IMAGES: Mapping[str, Range] = MappingProxyType({"batch": BATCH, "height": SIDE, "width": SIDE})


LIGHT_MODELS: Mapping[str, Entry] = MappingProxyType(
    {
        name: Entry(partial(light, name), symbolic=Symbolic(partial(light, name, IMAGE), IMAGES, {"height": unit, "width": unit}))
        for name, unit in (
            ("resnet50", 1),
            ("squeezenet", 1),
            ("shufflenet", 1),
            ("densenet121", 1),
            ("inception_v1", 1),
            ("inception_v2", 32),  # it joins pooled images, rounded down, with convolved ones, rounded up
        )
    }
    | {
        name: Entry(partial(light, name), symbolic=Symbolic(partial(light, name, ("batch", 3, 224, 224)), {"batch": BATCH}))
        for name in ("bvlc_alexnet", "zfnet512", "vgg19")
    }
)
"""The networks that the onnx package carries, by the names of their files without `light_`."""

GENERATED: Mapping[str, Entry] = MappingProxyType(
    {
        "mobilenet_v2": Entry(
            mobilenet,
            partial(mobilenet, TINY_MOBILENET),
            Symbolic(partial(mobilenet, batch="batch", height="height", width="width"), IMAGES),
        ),
        "vit_b16": Entry(vit, partial(vit, TINY_VIT), Symbolic(partial(vit, batch="batch"), {"batch": BATCH})),
        "bert_base": Entry(
            bert,
            partial(bert, TINY_BERT, sequence=12),
            Symbolic(partial(bert, batch="batch", sequence="sequence"), {"batch": BATCH, "sequence": LENGTH}),
        ),
        "gpt2_prefill": Entry(
            gpt2,
            partial(gpt2, TINY_GPT2, sequence=12),
            Symbolic(partial(gpt2, batch="batch", sequence="sequence"), {"batch": BATCH, "sequence": LENGTH}),
        ),
        "gpt2_step": Entry(
            partial(gpt2, sequence=1, past=128),
            partial(gpt2, TINY_GPT2, sequence=1, past=12),
            Symbolic(partial(gpt2, batch="batch", sequence=1, past="past"), {"batch": BATCH, "past": (16, 512)}),
        ),
        "lstm": Entry(
            lstm,
            partial(lstm, TINY_LSTM, sequence=7),
            Symbolic(partial(lstm, batch="batch", sequence="sequence"), {"batch": BATCH, "sequence": LENGTH}),
        ),
        "seq2seq": Entry(
            seq2seq,
            partial(seq2seq, TINY_SEQ2SEQ, source=12, target=5),
            Symbolic(
                partial(seq2seq, batch="batch", source="source", target="target"),
                {"batch": BATCH, "source": LENGTH, "target": LENGTH},
            ),
        ),
        "dcgan": Entry(dcgan, partial(dcgan, TINY_DCGAN), Symbolic(partial(dcgan, batch="batch"), {"batch": BATCH})),
        "unet": Entry(
            unet,
            partial(unet, TINY_UNET),
            Symbolic(partial(unet, batch="batch", height="height", width="width"), IMAGES, {"height": 16, "width": 16}),
        ),
        "super_resolution": Entry(
            super_resolution,
            partial(super_resolution, TINY_SUPER),
            Symbolic(partial(super_resolution, batch="batch", height="height", width="width"), IMAGES),
        ),
        "text_finder": Entry(
            text_finder,
            partial(text_finder, TINY_FINDER),
            Symbolic(partial(text_finder, batch="batch", height="height", width="width"), IMAGES, {"height": 32, "width": 32}),
        ),
        "crnn": Entry(
            crnn,
            partial(crnn, TINY_CRNN),
            Symbolic(partial(crnn, batch="batch", width="width"), {"batch": BATCH, "width": (60, 400)}),
        ),
        "speech_step": Entry(
            speech,
            partial(speech, TINY_SPEECH, frames=4),
            Symbolic(partial(speech, batch="batch", frames="frames"), {"batch": BATCH, "frames": (4, 64)}),
        ),
        "detector": Entry(
            detector,
            partial(detector, TINY_DETECTOR),
            Symbolic(partial(detector, height="height", width="width"), {"height": SIDE, "width": SIDE}),
        ),
    }
)
"""Those that are built from nothing, by name."""

FLOAT: Mapping[str, Entry] = MappingProxyType({**LIGHT_MODELS, **GENERATED})
"""Every model in float32, by name."""


def _quantized(
    build: Callable[[], onnx.ModelProto], sizes: Mapping[str, Range] = MappingProxyType({}), signed: bool = False
) -> onnx.ModelProto:
    model = build()
    return quantized(model, lambda seed: feeds(model, seed, {name: low for name, (low, _) in sizes.items()}), signed)


def _in_int8(entry: Entry, signed: bool = False) -> Entry:
    convert = partial(_quantized, signed=signed)
    symbolic = entry.symbolic and replace(entry.symbolic, build=partial(convert, entry.symbolic.build, entry.symbolic.sizes))
    return Entry(partial(convert, entry.full), partial(convert, entry.tiny) if entry.tiny else None, symbolic)


UNQUANTIZED = ("lstm",)
"""Models that ONNX Runtime's quantizer leaves in float."""
UNSIGNED: Mapping[str, Entry] = MappingProxyType(
    {f"{name}_int8": _in_int8(entry) for name, entry in FLOAT.items() if name not in UNQUANTIZED}
)
"""The same in eight bits, with activations in uint8. Building them takes ONNX Runtime."""

SIGNED: Mapping[str, Entry] = MappingProxyType(
    {f"{name}_int8_signed": _in_int8(entry, signed=True) for name, entry in FLOAT.items() if name not in UNQUANTIZED}
)
"""The same with activations in int8, which ONNX Runtime's quantizer and `inlaid.quantize` write by default."""

INT8: Mapping[str, Entry] = MappingProxyType({**UNSIGNED, **SIGNED})
"""Every model in eight bits, by name."""

MODELS: Mapping[str, Entry] = MappingProxyType({**FLOAT, **INT8})
"""Every model, by name."""


def model_path(name: str, tiny: bool = False, folder: Path | None = None, symbolic: bool = False) -> Path:
    """The ONNX file of a model, built unless it is there already. `folder`: where, in place of the cache. `symbolic`: the variant
    with symbolic sizes.

    Raises KeyError for a name that is not in `MODELS`, or a variant that there is not.
    """
    entry = MODELS[name]
    build = entry.symbolic and entry.symbolic.build if symbolic else entry.tiny if tiny else entry.full
    variant = "_symbolic" if symbolic else "_tiny" if tiny else ""
    if build is None:
        raise KeyError(f"{name} has no{variant.replace('_', ' ')} variant")
    return written(folder or cache_folder(), f"{name}{variant}", build)


def written(folder: Path, name: str, build: Callable[[], onnx.ModelProto]) -> Path:
    """The file of a model in a folder, built unless it is there already."""
    path = folder / f"{name}.onnx"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, build().SerializeToString(deterministic=True))
    return path


def cache_folder() -> Path:
    """Where generated models are kept; another folder for every change of what generates them."""
    digest = hashlib.sha256()
    for source in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(source.read_bytes())
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "inlaid" / "zoo" / digest.hexdigest()[:12]


def write_atomically(path: Path, data: bytes) -> None:
    """Write a file that is there either whole or not at all."""
    with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
        file.write(data)
    os.replace(file.name, path)
