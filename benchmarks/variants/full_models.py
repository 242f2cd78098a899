"""Listed rows of part 2 that are whole models: float16, and 8-bit by ONNX Runtime's `quantize_dynamic`."""

from __future__ import annotations

import logging
import math
import tempfile
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType

import onnx

from variants.axes import HALF_LIMIT
from variants.row import Row, beside, listed
from zoo.half import half
from zoo.language import Bert, bert
from zoo.layers import gelu_erf
from zoo.light import light
from zoo.net import Net
from zoo.vision import Vit, mobilenet, vit

IN_HALF = ("resnet50", "squeezenet", "shufflenet")
TOLERANCE = 5e-2
"""Greatest difference of whole models whose values are rounded to float16 or 8 bits."""
TOKENS = MappingProxyType({"input_ids": (0.0, 999.0), "token_type_ids": (0.0, 1.0), "attention_mask": (1.0, 1.0)})
SMALL_VIT = Vit(width=384, heads=6, inner=1536)
"""ViT-S/16 (Touvron et al., 2021)."""
DISTILLED_BERT = Bert(layers=6, vocabulary=1000)
"""DistilBERT (Sanh et al., 2019), with few words."""


def rows() -> Iterator[Row]:
    """Yield the rows."""
    for name in IN_HALF:
        yield listed(2, f"full model {name} in float32", partial(light, name))
        sibling = beside(f"full model {name} in float32", "float16 by float32", HALF_LIMIT)
        yield listed(2, f"full model {name} in float16", lambda name=name: half(light(name)), sibling, tolerance=TOLERANCE)
    models: Mapping[str, Callable[[], onnx.ModelProto]] = {
        "DistilBERT": partial(bert, DISTILLED_BERT),
        "ViT-S": partial(vit, SMALL_VIT),
        "MobileNetV2": mobilenet,
        "encoder of speech": _speech_encoder,
    }
    for name, build in models.items():
        ranges = TOKENS if name == "DistilBERT" else {}
        yield listed(2, f"full model {name} in float32", build, ranges=ranges)
        sibling = beside(f"full model {name} in float32", "quantize_dynamic by float32")
        quantized = partial(_quantized, build)
        yield listed(2, f"full model {name} by quantize_dynamic", quantized, sibling, ranges=ranges, tolerance=TOLERANCE)


def _quantized(build: Callable[[], onnx.ModelProto]) -> onnx.ModelProto:
    """Quantize the products of a model as ONNX Runtime does by default. Raises ImportError where it is not installed."""
    from onnxruntime.quantization import QuantType, quantize_dynamic

    before = logging.root.manager.disable
    logging.disable(logging.WARNING)  # it recommends a preparation that changes nothing here
    try:
        with tempfile.TemporaryDirectory() as folder:
            source, result = (Path(folder) / f"{name}.onnx" for name in ("source", "result"))
            onnx.save(build(), source)
            quantize_dynamic(source, result, weight_type=QuantType.QInt8)
            return onnx.load(result)
    finally:
        logging.disable(before)


def _speech_encoder() -> onnx.ModelProto:
    """Convolutions over time as wav2vec 2.0's (Baevski et al., 2020) has them behind its first: [1, 256, 400] → [1, 256, 24]."""
    net, width = Net("speech_encoder"), 256
    x = net.input("features", (1, width, 400))
    for layer, kernel in enumerate((3, 3, 3, 2)):
        with net.scope(f"layer{layer}"):
            weights = net.weight("weight", (width, width, kernel), math.sqrt(6 / (width * kernel)))
            x = gelu_erf(net, net.node("Conv", x, weights, net.weight("bias", (width,), 0.1), strides=[2]))
    net.output(x, "y", (1, width, 24))
    return net.build()
