"""Element types, tensor types, layouts, and memory scopes."""

from inlaid_runtime.types.dtypes import DTYPES, DType, dtype, from_numpy
from inlaid_runtime.types.layout import ROW_MAJOR, Layout
from inlaid_runtime.types.scope import MemoryScope
from inlaid_runtime.types.types import (
    FunctionType,
    OptionalType,
    SequenceType,
    TensorType,
    TupleType,
    Type,
    substitute_type,
    type_vars,
)

__all__ = [
    "DTYPES",
    "ROW_MAJOR",
    "DType",
    "FunctionType",
    "Layout",
    "MemoryScope",
    "OptionalType",
    "SequenceType",
    "TensorType",
    "TupleType",
    "Type",
    "dtype",
    "from_numpy",
    "substitute_type",
    "type_vars",
]
