"""Converters of TensorFlow Lite operators, one module per family."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from inlaid.frontends.tflite.convert.binary import CONVERTERS as BINARY
from inlaid.frontends.tflite.convert.control import CONVERTERS as CONTROL
from inlaid.frontends.tflite.convert.conversion import CONVERTERS as CONVERSION
from inlaid.frontends.tflite.convert.detect import CONVERTERS as DETECT
from inlaid.frontends.tflite.convert.index import CONVERTERS as INDEX
from inlaid.frontends.tflite.convert.normalise import CONVERTERS as NORMALISE
from inlaid.frontends.tflite.convert.pool import CONVERTERS as POOL
from inlaid.frontends.tflite.convert.product import CONVERTERS as PRODUCT
from inlaid.frontends.tflite.convert.recurrent import CONVERTERS as RECURRENT
from inlaid.frontends.tflite.convert.reduce import CONVERTERS as REDUCE
from inlaid.frontends.tflite.convert.resize import CONVERTERS as RESIZE
from inlaid.frontends.tflite.convert.shape import CONVERTERS as SHAPE
from inlaid.frontends.tflite.convert.slices import CONVERTERS as SLICES
from inlaid.frontends.tflite.convert.spectrum import CONVERTERS as SPECTRUM
from inlaid.frontends.tflite.convert.unary import CONVERTERS as UNARY
from inlaid.frontends.tflite.node import Converter

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
        **SPECTRUM,
        **UNARY,
    }
)
