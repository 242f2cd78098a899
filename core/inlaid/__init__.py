"""Inlaid: a deep-learning compiler with a minimal core; hardware targets are plugins.

    import inlaid

    module = inlaid.load("model.onnx")
    executable = inlaid.compile(module, targets=["x86"])
    outputs = executable.run({"input": array})

All names are loaded lazily, so that `import inlaid` is fast. Some are provided by other distributions: see `inlaid.attributes`. A
program that only runs packages needs only the distribution `inlaid-runtime`, with `inlaid_runtime.load`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from inlaid import ops as ops
    from inlaid import runtime as runtime
    from inlaid.api import build as build
    from inlaid.api import capabilities as capabilities
    from inlaid.api import compile as compile
    from inlaid.api import estimate as estimate
    from inlaid.api import interpret as interpret
    from inlaid.api import intrinsics as intrinsics
    from inlaid.api import load as load
    from inlaid.api import partition as partition
    from inlaid.graph import conditions as conditions
    from inlaid.graph.ir import Module as Module
    from inlaid.graph.ir import call as call
    from inlaid.graph.ir import constant as constant
    from inlaid.graph.ir import function as function
    from inlaid.graph.ir import global_var as global_var
    from inlaid.graph.ir import if_ as if_
    from inlaid.graph.ir import let as let
    from inlaid.graph.ir import loop as loop
    from inlaid.graph.ir import tuple_ as tuple_
    from inlaid.graph.ir import tuple_item as tuple_item
    from inlaid.graph.ir import var as var
    from inlaid.graph.operator import Attrs as Attrs
    from inlaid.graph.operator import Choice as Choice
    from inlaid.graph.operator import ErrorPropagation as ErrorPropagation
    from inlaid.graph.operator import FusionKind as FusionKind
    from inlaid.graph.operator import Moves as Moves
    from inlaid.graph.operator import Operator as Operator
    from inlaid.graph.operator import Traits as Traits
    from inlaid.tensor import te as te
    from inlaid.tensor.primitives import AnnotationKey as AnnotationKey
    from inlaid.tensor.primitives import TensorIntrin as TensorIntrin
    from inlaid.tensor.schedule import Schedule as Schedule
    from inlaid_onnx import backend as onnx_backend  # noqa: F401
    from inlaid_quantization.api import quantize as quantize
    from inlaid_quantization.quantize import QuantizedModule as QuantizedModule
    from inlaid_quantization.report import QuantizationReport as QuantizationReport
    from inlaid_quantization.settings import Quantization as Quantization
    from inlaid_runtime.arith import SizeVar as SizeVar
    from inlaid_runtime.errors import InlaidError as InlaidError
    from inlaid_runtime.errors import LockWarning as LockWarning
    from inlaid_runtime.execution.executable import Executable as Executable
    from inlaid_runtime.types import FunctionType as FunctionType
    from inlaid_runtime.types import TensorType as TensorType
    from inlaid_runtime.types import TupleType as TupleType

__version__ = "0.1.0"

_HOMES = {
    **dict.fromkeys(("build", "capabilities", "compile", "estimate", "interpret", "intrinsics", "load", "partition"), "inlaid.api"),
    "SizeVar": "inlaid_runtime.arith",
    "InlaidError": "inlaid_runtime.errors",
    "LockWarning": "inlaid_runtime.errors",
    **dict.fromkeys(
        ("Module", "call", "constant", "function", "global_var", "if_", "let", "loop", "tuple_", "tuple_item", "var"),
        "inlaid.graph.ir",
    ),
    **dict.fromkeys(("Attrs", "Choice", "ErrorPropagation", "FusionKind", "Moves", "Operator", "Traits"), "inlaid.graph.operator"),
    "Executable": "inlaid_runtime.execution.executable",
    "AnnotationKey": "inlaid.tensor.primitives",
    "TensorIntrin": "inlaid.tensor.primitives",
    "Schedule": "inlaid.tensor.schedule",
    **dict.fromkeys(("FunctionType", "TensorType", "TupleType"), "inlaid_runtime.types"),
}
_PACKAGES = ("ops", "runtime")
_MODULES = {"conditions": "inlaid.graph.conditions", "te": "inlaid.tensor.te"}

__all__ = ["__version__", *_HOMES, *_PACKAGES, *_MODULES]


if not TYPE_CHECKING:  # type checkers see the names above, and report unknown ones

    def __getattr__(name: str) -> Any:
        if name in _MODULES:
            return importlib.import_module(_MODULES[name])
        if name in _HOMES:
            return getattr(importlib.import_module(_HOMES[name]), name)
        if name in _PACKAGES:
            return importlib.import_module(f"inlaid.{name}")
        if not name.startswith("_"):
            # `from inlaid import attributes` would look the name up here.
            from inlaid.attributes import DISTRIBUTIONS, attribute

            if name in DISTRIBUTIONS:
                return attribute(name)
        raise AttributeError(f"module 'inlaid' has no attribute {name!r}")


def __dir__() -> list[str]:
    from inlaid.attributes import available

    return sorted([*__all__, *available()])
