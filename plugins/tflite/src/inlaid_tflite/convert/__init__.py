"""Converters of TensorFlow Lite operators, one module per family."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from inlaid_tflite.convert.binary import CONVERTERS as BINARY
from inlaid_tflite.convert.control import CONVERTERS as CONTROL
from inlaid_tflite.convert.conversion import CONVERTERS as CONVERSION
from inlaid_tflite.convert.detect import CONVERTERS as DETECT
from inlaid_tflite.convert.index import CONVERTERS as INDEX
from inlaid_tflite.convert.normalize import CONVERTERS as NORMALIZE
from inlaid_tflite.convert.pool import CONVERTERS as POOL
from inlaid_tflite.convert.product import CONVERTERS as PRODUCT
from inlaid_tflite.convert.recurrent import CONVERTERS as RECURRENT
from inlaid_tflite.convert.reduce import CONVERTERS as REDUCE
from inlaid_tflite.convert.resize import CONVERTERS as RESIZE
from inlaid_tflite.convert.shape import CONVERTERS as SHAPE
from inlaid_tflite.convert.slices import CONVERTERS as SLICES
from inlaid_tflite.convert.spectrum import CONVERTERS as SPECTRUM
from inlaid_tflite.convert.unary import CONVERTERS as UNARY
from inlaid_tflite.node import Converter

CONVERTERS: Mapping[str, Converter] = MappingProxyType(
    {
        **NORMALIZE,
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
