"""Converters of TensorFlow Lite's operators, by family."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from inlay.frontends.tflite.convert.binary import CONVERTERS as BINARY
from inlay.frontends.tflite.convert.control import CONVERTERS as CONTROL
from inlay.frontends.tflite.convert.conversion import CONVERTERS as CONVERSION
from inlay.frontends.tflite.convert.detect import CONVERTERS as DETECT
from inlay.frontends.tflite.convert.index import CONVERTERS as INDEX
from inlay.frontends.tflite.convert.normalise import CONVERTERS as NORMALISE
from inlay.frontends.tflite.convert.pool import CONVERTERS as POOL
from inlay.frontends.tflite.convert.product import CONVERTERS as PRODUCT
from inlay.frontends.tflite.convert.recurrent import CONVERTERS as RECURRENT
from inlay.frontends.tflite.convert.reduce import CONVERTERS as REDUCE
from inlay.frontends.tflite.convert.resize import CONVERTERS as RESIZE
from inlay.frontends.tflite.convert.shape import CONVERTERS as SHAPE
from inlay.frontends.tflite.convert.slices import CONVERTERS as SLICES
from inlay.frontends.tflite.convert.unary import CONVERTERS as UNARY
from inlay.frontends.tflite.node import Converter

CONVERTERS: Mapping[str, Converter] = MappingProxyType(
    {
        **NORMALISE,
        **BINARY,
        **CONTROL,
        **CONVERSION,
        **DETECT,
        **INDEX,
        **POOL,
        **PRODUCT,
        **RECURRENT,
        **REDUCE,
        **RESIZE,
        **SHAPE,
        **SLICES,
        **UNARY,
    }
)
