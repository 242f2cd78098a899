"""Converters of ONNX operators, one module per family. The keys of `CONVERTERS` are "OpType" or "domain:OpType"."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from inlaid_onnx.convert import (
    attention,
    cast,
    container,
    control,
    conv,
    einsum,
    elementwise,
    ensemble,
    index,
    linear,
    loop,
    loss,
    ml,
    normalize,
    pool,
    quantized,
    random,
    recurrent,
    reduce,
    resample,
    shape,
    signal,
    sort,
    training,
    tree,
)
from inlaid_onnx.node import Converter

_MODULES = (
    attention,
    cast,
    container,
    control,
    conv,
    einsum,
    elementwise,
    ensemble,
    index,
    linear,
    loop,
    loss,
    ml,
    normalize,
    pool,
    quantized,
    random,
    recurrent,
    reduce,
    resample,
    shape,
    signal,
    sort,
    training,
    tree,
)

CONVERTERS: Mapping[str, Converter] = MappingProxyType(
    {name: convert for module in _MODULES for name, convert in module.CONVERTERS.items()}
)
_NAMES = [name for module in _MODULES for name in module.CONVERTERS]
assert len(_NAMES) == len(CONVERTERS), f"two modules convert {', '.join({name for name in _NAMES if _NAMES.count(name) > 1})}"
