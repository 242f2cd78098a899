"""Operators that are instructions of the execution plan: they bind sizes read from data, and check conditions.

These operators are not offered to targets. They end a region, so that the following region sees a bound size as an ordinary
symbolic dimension of an input. Each returns a *witness* (see `ops.shape`), a tensor without elements on which dependent
computations depend.
"""

from __future__ import annotations

from typing import NoReturn

import numpy as np

from inlaid.graph.conditions import require_static
from inlaid.graph.operator import Attrs, Operator
from inlaid.graph.unify import fresh_size
from inlaid.ops.container import HostTypeAttrs, host_attrs, host_type
from inlaid.ops.define import Array, make_family, tensor_type
from inlaid_runtime.errors import KernelFault
from inlaid_runtime.records import dataclass
from inlaid_runtime.types import TensorType, Type

LARGEST_SIZE = (1 << 47) - 1
"""Maximum size of a dimension: the number of bytes in the address space of a process."""

WITNESS = TensorType((0,), "bool")


@dataclass(frozen=True)
class MessageAttrs(Attrs):
    """`message`: the text of the error, which names the violated condition and the remedy."""

    message: str


@dataclass(frozen=True)
class BindAttrs(Attrs):
    """`element`: the row-major index of the element that holds the size. `message`: the name of the size in errors."""

    message: str
    element: int = 0


def _scalar(type_: Type, dtype: str) -> None:
    if tensor_type(type_) != TensorType((), dtype):
        raise ValueError(f"expected a 0-d {dtype}, got {type_!r}")


# --- bind_size --------------------------------------------------------------------------------------------------------


def _infer_bind_size(attrs: BindAttrs, value: Type, *checks: Type) -> Type:
    value_type = tensor_type(value)
    count = require_static(value_type.size, "the number of elements")
    if value_type.dtype.name != "int64" or not 0 <= attrs.element < count:
        raise ValueError(f"expected an int64 tensor of static shape with an element {attrs.element}, got {value!r}")
    if any(tensor_type(check) != WITNESS for check in checks):
        raise ValueError("the operands after the first must be results of assert_true")
    return TensorType((fresh_size("bound"), 0), "bool")


def bound_size(value: Array, attrs: BindAttrs) -> Array:
    """Return the witness of a data-dependent size: its first extent is the size. Raises `KernelFault` for an invalid size."""
    size = int(value.item(attrs.element))
    if not 0 <= size <= LARGEST_SIZE:
        raise KernelFault(f"{attrs.message} must be 0 to {LARGEST_SIZE}, got {size}")
    return np.empty((size, 0), np.bool_)


bind_size = Operator(
    "bind_size",
    _infer_bind_size,
    BindAttrs,
    reference=lambda attrs, value, *checks: bound_size(value, attrs),
    arity=(1, 2),
    inputs=("value", "check"),
    host_only=True,
    existential=True,
    planned=True,
    doc="""Bind an element of an integer tensor as a new symbolic dimension.
Operands: value, int64, static shape; check..., results of `assert_true` that must be evaluated before. Result: (size, 0), bool,
whose first extent is the new dimension. A size outside of [0, 2^47) raises `KernelFault` at run time.""",
)


# --- assert_true, fail ----------------------------------------------------------------------------------------------------


def _infer_assert(attrs: MessageAttrs, condition: Type) -> Type:
    _scalar(condition, "bool")
    return WITNESS


def required(condition: Array, message: str) -> Array:
    """Return the witness of a true condition. Raises `KernelFault` with the message if it is false."""
    if not condition:
        raise KernelFault(message)
    return np.empty((0,), np.bool_)


assert_true = Operator(
    "assert_true",
    _infer_assert,
    MessageAttrs,
    reference=lambda attrs, condition: required(condition, attrs.message),
    inputs=("condition",),
    host_only=True,
    planned=True,
    doc="""Check a condition at run time. Raises `KernelFault` with a message if it is false.
Operand: condition, 0-d bool. Result: an empty bool tensor (0,), on which the checked computations depend (see `after`).""",
)


@dataclass(frozen=True)
class FailAttrs(HostTypeAttrs):
    """`message`: the text of the error. The other attributes describe the type of the call."""

    message: str = ""


def fail_attrs(message: str, type_: Type) -> FailAttrs:
    """Return the attributes of a `fail` that replaces a value of type `type_`. Existential sizes are replaced by fresh ones."""
    type_attrs = host_attrs(type_)
    return FailAttrs(type_attrs.kinds, type_attrs.dtype, type_attrs.shape, message)


def _fail(attrs: FailAttrs) -> NoReturn:
    raise KernelFault(attrs.message)


fail = Operator(
    "fail",
    host_type,
    FailAttrs,
    reference=_fail,
    arity=(0, 0),
    host_only=True,
    existential=True,
    planned=True,
    doc="Raise `KernelFault` with a message when evaluated. The call has the type that its attributes describe.",
)


OPERATORS = make_family(bind_size, assert_true, fail)
