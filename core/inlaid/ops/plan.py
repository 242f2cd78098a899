"""Operators that the plan runs itself: sizes read from data, and checks before what relies on them.

No target is asked for them. They end a region, so what follows sees a bound size as an ordinary symbolic dimension: it is the
extent of an input. Each gives a *witness* (see `ops.shape`), a tensor without elements, for what follows to depend on.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NoReturn

import numpy as np

from inlaid.errors import KernelFault
from inlaid.graph.operator import Attrs, Operator
from inlaid.graph.unify import fresh_size
from inlaid.ops.container import HostTypeAttrs, host_attrs, host_type
from inlaid.ops.define import Array, tensor_type
from inlaid.types import TensorType, Type

LARGEST_SIZE = (1 << 47) - 1
"""No dimension is larger: the address space of a process."""

WITNESS = TensorType((0,), "bool")


@dataclass(frozen=True)
class MessageAttrs(Attrs):
    """What an error says: of `assert_true` what does not hold, and what to do."""

    message: str


@dataclass(frozen=True)
class BindAttrs(Attrs):
    """Which element of the operand, by its row-major number, is the size, and the name that an error gives to the size."""

    message: str
    element: int = 0


def _scalar(type_: Type, dtype: str) -> None:
    if tensor_type(type_) != TensorType((), dtype):
        raise ValueError(f"a 0-d {dtype} is expected, not {type_!r}")


# --- bind_size --------------------------------------------------------------------------------------------------------


def _infer_bind_size(attrs: BindAttrs, value: Type, *checks: Type) -> Type:
    found = tensor_type(value)
    count = math.prod(dim if isinstance(dim, int) else 0 for dim in found.shape)
    if found.dtype.name != "int64" or not 0 <= attrs.element < count:
        raise ValueError(f"an int64 tensor of known shape with element {attrs.element} is expected, not {value!r}")
    if any(tensor_type(check) != WITNESS for check in checks):
        raise ValueError("what is checked first must be a witness of assert_true")
    return TensorType((fresh_size("bound"), 0), "bool")


def bound_size(value: Array, attrs: BindAttrs) -> Array:
    """The witness of a size that data decides, which has the size as its first extent. Raises `KernelFault` for a value that is no
    size."""
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
)


# --- assert_true, fail ----------------------------------------------------------------------------------------------------


def _infer_assert(attrs: MessageAttrs, condition: Type) -> Type:
    _scalar(condition, "bool")
    return WITNESS


def required(condition: Array, message: str) -> Array:
    """The witness of a condition that holds. Raises `KernelFault` with the message where it does not."""
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
)


@dataclass(frozen=True)
class FailAttrs(HostTypeAttrs):
    """The type of the value that there never is, and what the error says."""

    message: str = ""


def fail_attrs(message: str, type_: Type) -> FailAttrs:
    """The attributes of a failure in place of a value of a type. Sizes that only a run knows become new ones."""
    wanted = host_attrs(type_)
    return FailAttrs(wanted.kinds, wanted.dtype, wanted.shape, message)


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
)


OPERATORS = (bind_size, assert_true, fail)
