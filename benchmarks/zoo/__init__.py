"""The models that Inlaid is measured and tested on, all with seeded weights: generated ones, and those of the onnx package.

    python benchmarks/make_models.py bert_base gpt2_step

Generated files are kept under the user's cache folder, in a folder named by a hash of this package's sources.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import onnx
from onnx import helper

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
from zoo.light import light
from zoo.quantised import quantised
from zoo.vision import TINY_MOBILENET, TINY_VIT, mobilenet, vit

TOKENS = 100
"""Every vocabulary here holds tokens below this."""


@dataclass(frozen=True)
class Entry:
    """A generated model: in full, and, where there is one, with two layers and small widths for tests."""

    full: Callable[[], onnx.ModelProto]
    tiny: Callable[[], onnx.ModelProto] | None = None


LIGHT_MODELS: Mapping[str, Entry] = MappingProxyType(
    {
        name: Entry(partial(light, name))
        for name in (
            "resnet50",
            "squeezenet",
            "shufflenet",
            "densenet121",
            "inception_v1",
            "inception_v2",
            "bvlc_alexnet",
            "zfnet512",
            "vgg19",
        )
    }
)
"""The networks that the onnx package carries, by the names of their files without `light_`."""

GENERATED: Mapping[str, Entry] = MappingProxyType(
    {
        "mobilenet_v2": Entry(mobilenet, partial(mobilenet, TINY_MOBILENET)),
        "vit_b16": Entry(vit, partial(vit, TINY_VIT)),
        "bert_base": Entry(bert, partial(bert, TINY_BERT, sequence=12)),
        "gpt2_prefill": Entry(gpt2, partial(gpt2, TINY_GPT2, sequence=12)),
        "gpt2_step": Entry(partial(gpt2, sequence=1, past=128), partial(gpt2, TINY_GPT2, sequence=1, past=12)),
        "lstm": Entry(lstm, partial(lstm, TINY_LSTM, sequence=7)),
        "seq2seq": Entry(seq2seq, partial(seq2seq, TINY_SEQ2SEQ, source=12, target=5)),
    }
)
"""Those that are built from nothing, by name."""

FLOAT: Mapping[str, Entry] = MappingProxyType({**LIGHT_MODELS, **GENERATED})
"""Every model in float32, by name."""


def _quantised(build: Callable[[], onnx.ModelProto]) -> onnx.ModelProto:
    model = build()
    return quantised(model, lambda seed: feeds(model, seed))


UNQUANTISED = ("lstm",)
"""Models that ONNX Runtime's quantiser leaves in float."""
INT8: Mapping[str, Entry] = MappingProxyType(
    {
        f"{name}_int8": Entry(partial(_quantised, entry.full), partial(_quantised, entry.tiny) if entry.tiny else None)
        for name, entry in FLOAT.items()
        if name not in UNQUANTISED
    }
)
"""The same in eight bits. Building them takes ONNX Runtime."""

MODELS: Mapping[str, Entry] = MappingProxyType({**FLOAT, **INT8})
"""Every model, by name."""


def path_of(name: str, tiny: bool = False, folder: Path | None = None) -> Path:
    """The ONNX file of a model, built unless it is there already. `folder`: where, in place of the cache.

    Raises KeyError for a name that is not in `MODELS`, or a tiny variant that there is not.
    """
    entry = MODELS[name]
    build = entry.tiny if tiny else entry.full
    if build is None:
        raise KeyError(f"{name} has no tiny variant")
    path = (folder or cache_folder()) / f"{name}{'_tiny' if tiny else ''}.onnx"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, build().SerializeToString(deterministic=True))
    return path


def cache_folder() -> Path:
    """Where generated models are kept; another folder for every change of what generates them."""
    digest = hashlib.sha256()
    for source in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(source.read_bytes())
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "inlaid" / "zoo" / digest.hexdigest()[:12]


def write_whole(path: Path, data: bytes) -> None:
    """Write a file that is there either whole or not at all."""
    with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
        file.write(data)
    os.replace(file.name, path)


def feeds(model: onnx.ModelProto, seed: int = 0, sizes: Mapping[str, int] | None = None) -> dict[str, np.ndarray[Any, Any]]:
    """Seeded inputs by name: floats in [-1, 1), tokens below `TOKENS`, other integers 0 or 1. `sizes` gives symbolic dims."""
    generator = np.random.default_rng(seed)
    known = {item.name for item in model.graph.initializer}
    arrays: dict[str, np.ndarray[Any, Any]] = {}
    for item in model.graph.input:
        if item.name in known:
            continue
        kind = item.type.tensor_type
        shape = tuple((sizes or {})[dim.dim_param] if dim.dim_param else dim.dim_value for dim in kind.shape.dim)
        dtype = helper.tensor_dtype_to_np_dtype(kind.elem_type)
        if np.issubdtype(dtype, np.integer):
            tokens = item.name.endswith("ids") and "type" not in item.name
            arrays[item.name] = generator.integers(0, TOKENS if tokens else 2, shape, dtype)
        else:
            arrays[item.name] = generator.uniform(-1, 1, shape).astype(dtype)
    return arrays
