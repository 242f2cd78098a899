"""Inlay: a deep-learning compiler with a minimal core into which every hardware target plugs.

    import inlay

    module = inlay.load("model.onnx")
    executable = inlay.compile(module, targets=["x86"])
    outputs = executable.run({"input": array})

Everything here is loaded on first use, so that `import inlay` costs nothing. A program that only runs packages needs
`inlay.runtime.load` alone.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from inlay import ops as ops
    from inlay import runtime as runtime
    from inlay.api import compile as compile
    from inlay.api import estimate as estimate
    from inlay.api import load as load
    from inlay.api import partition as partition
    from inlay.api import quantize as quantize
    from inlay.arith import SizeVar as SizeVar
    from inlay.errors import InlayError as InlayError
    from inlay.errors import LockWarning as LockWarning
    from inlay.graph.ir import Module as Module
    from inlay.graph.ir import call as call
    from inlay.graph.ir import constant as constant
    from inlay.graph.ir import function as function
    from inlay.graph.ir import global_var as global_var
    from inlay.graph.ir import if_ as if_
    from inlay.graph.ir import let as let
    from inlay.graph.ir import loop as loop
    from inlay.graph.ir import tuple_ as tuple_
    from inlay.graph.ir import tuple_item as tuple_item
    from inlay.graph.ir import var as var
    from inlay.graph.operator import Attrs as Attrs
    from inlay.graph.operator import FusionKind as FusionKind
    from inlay.graph.operator import Operator as Operator
    from inlay.quantization.quantize import QuantizedModule as QuantizedModule
    from inlay.quantization.report import QuantizationReport as QuantizationReport
    from inlay.quantization.settings import Quantization as Quantization
    from inlay.runtime.executable import Executable as Executable
    from inlay.types import FunctionType as FunctionType
    from inlay.types import TensorType as TensorType
    from inlay.types import TupleType as TupleType

__version__ = "0.1.0"

_HOMES = {
    "compile": "inlay.api",
    "estimate": "inlay.api",
    "load": "inlay.api",
    "partition": "inlay.api",
    "quantize": "inlay.api",
    "SizeVar": "inlay.arith",
    "InlayError": "inlay.errors",
    "LockWarning": "inlay.errors",
    **dict.fromkeys(
        ("Module", "call", "constant", "function", "global_var", "if_", "let", "loop", "tuple_", "tuple_item", "var"),
        "inlay.graph.ir",
    ),
    **dict.fromkeys(("Attrs", "FusionKind", "Operator"), "inlay.graph.operator"),
    "QuantizedModule": "inlay.quantization.quantize",
    "QuantizationReport": "inlay.quantization.report",
    "Quantization": "inlay.quantization.settings",
    "Executable": "inlay.runtime.executable",
    **dict.fromkeys(("FunctionType", "TensorType", "TupleType"), "inlay.types"),
}
_PACKAGES = ("onnx_backend", "ops", "runtime")

__all__ = ["__version__", *_HOMES, *_PACKAGES]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    if name in _PACKAGES:
        return importlib.import_module(f"inlay.{name}")
    raise AttributeError(f"module 'inlay' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
