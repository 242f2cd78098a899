"""Code shared by the operator families: checks of operand types, broadcasting, working precision, operator factories.

Floats narrower than 32 bits are computed in float32, integers narrower than 8 bits in 8 bits. Each operator rounds or wraps its
result once, in the numpy reference as in the tensor expression. Code generators only convert from and to these narrow dtypes; they
never compute in them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from inlaid.graph.conditions import broadcast_shapes
from inlaid.graph.operator import NO_TRAITS, Attrs, FusionKind, Operator, Traits
from inlaid.tensor import ir, te
from inlaid.tensor.build import Builder
from inlaid_runtime import arith
from inlaid_runtime.arith import Dim
from inlaid_runtime.errors import InlaidError
from inlaid_runtime.records import dataclass
from inlaid_runtime.types import DType, TensorType, Type, dtype, from_numpy

if TYPE_CHECKING:
    from inlaid.graph.examples import Examples

Array = np.ndarray[Any, Any]

NUMERIC = ("float", "int", "uint")
ANY = ("float", "int", "uint", "bool")
FLOAT = ("float",)
INTEGER = ("int", "uint")
BOOL = ("bool",)

_KINDS_IN_DOC = {
    NUMERIC: ("numeric", "of one numeric dtype"),
    ANY: ("numeric or bool", "of one numeric or bool dtype"),
    FLOAT: ("float", "of one float dtype"),
    INTEGER: ("integer", "of one integer dtype"),
    BOOL: ("bool", "bool"),
}
"""Words for the dtypes of an operand, and of several operands that have one dtype."""

# Sentences that the documentation of several operators shares.
INDEX_RULE = "A negative index counts from the end. An index out of range that selects elements raises `KernelFault` at run time."
PRODUCT_DTYPE = "dtype `out_dtype`, by default the operands' dtype, at least int32 for integers"
SAME_TYPE = "Result: shape and dtype of x."


@dataclass(frozen=True)
class AxisAttrs(Attrs):
    """`axis`: an axis of the first operand."""

    axis: int


@dataclass(frozen=True)
class AxesAttrs(Attrs):
    """`axes`: axes to reduce, in ascending order. `keepdims`: keep the reduced axes with extent 1."""

    axes: tuple[int, ...]
    keepdims: bool = False


# --- argument types ---------------------------------------------------------------------------------------------------


def tensor_type(type_: Type, kinds: tuple[str, ...] | None = None, what: str = "the input") -> TensorType:
    """Return `type_` if it is a tensor type with a dtype of one of the `kinds`, else raise ValueError."""
    if not isinstance(type_, TensorType):
        raise ValueError(f"{what} must be a tensor, got {type_!r}")
    if kinds is not None and type_.dtype.kind not in kinds:
        raise ValueError(f"{what} must have a dtype of kind {' or '.join(kinds)}, got {type_.dtype}")
    return type_


def common_dtype(*types: TensorType) -> DType:
    """Return the dtype that all operands have. Raises ValueError if their dtypes differ."""
    first = types[0].dtype
    if any(type_.dtype is not first for type_ in types):
        raise ValueError(f"the operands must have one dtype, got {', '.join(str(type_.dtype) for type_ in types)}")
    return first


def check_axis(axis: int, rank: int) -> int:
    """Return `axis` if it is in [0, rank), else raise ValueError."""
    if not 0 <= axis < rank:
        raise ValueError(f"axis {axis} is out of range for rank {rank}")
    return axis


def check_axes(axes: Sequence[int], rank: int) -> tuple[int, ...]:
    """Return `axes` if they are unique and in [0, rank), else raise ValueError."""
    for axis in axes:
        check_axis(axis, rank)
    if len(set(axes)) != len(axes):
        raise ValueError(f"axes must be unique, got {tuple(axes)}")
    return tuple(axes)


def reduced_shape(shape: Sequence[Dim], axes: Sequence[int], keepdims: bool) -> tuple[Dim, ...]:
    """Return the shape after a reduction over axes."""
    return tuple(1 if axis in axes else dim for axis, dim in enumerate(shape) if keepdims or axis not in axes)


# --- broadcasting -----------------------------------------------------------------------------------------------------


def broadcast_read(tensor: te.Tensor, shape: Sequence[Dim], indices: Sequence[arith.Dim]) -> ir.Expr:
    """Read the element of a tensor at `indices` of the `shape` that it is broadcast to.

    If the dimensions of the tensor and of `shape` may differ, generated code checks the index.
    """
    skip = len(shape) - tensor.rank
    tensor_index = tuple(
        _broadcast_index(dim, target_dim, index)
        for dim, target_dim, index in zip(tensor.shape, shape[skip:], indices[skip:], strict=True)
    )
    return tensor[tensor_index]


def _broadcast_index(dim: Dim, target_dim: Dim, index: Dim) -> Dim:
    if dim == target_dim:
        return index
    if isinstance(dim, int) and dim == 1:
        return 0
    # -1 is out of range for every axis, so that the run fails for dimensions that do not broadcast.
    index_or_invalid = arith.select(arith.compare("==", dim, target_dim), index, -1)
    index_of_dim = arith.select(arith.compare("==", dim, 1), 0, index_or_invalid)
    return te.checked(ir.Index(dtype("int64"), index_of_dim), 0, dim - 1)


# --- working precision ------------------------------------------------------------------------------------------------


def working_dtype(element_dtype: DType) -> DType:
    """Return the dtype in which arithmetic on a dtype is done: float32 for narrower floats, 8 bits for narrower integers."""
    if element_dtype.is_float and element_dtype.bits < 32:
        return dtype("float32")
    if element_dtype.is_int and element_dtype.bits < 8:
        return dtype(f"{element_dtype.kind}8")
    return element_dtype


def widen(value: ir.Expr) -> ir.Expr:
    """Cast a value to its working dtype."""
    return te.cast(value, working_dtype(value.dtype))


def widen_array(array: Array) -> Array:
    """Cast an array to its working dtype."""
    return array.astype(working_dtype(from_numpy(array.dtype)).numpy, copy=False)


def as_array(value: Any, element_dtype: DType) -> Array:
    """Convert a result of numpy arithmetic, possibly a scalar, to an array of a dtype."""
    return np.asarray(value).astype(element_dtype.numpy, copy=False)


def quiet(reference: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a reference so that numpy does not warn of overflow, division by zero or invalid values."""

    @functools.wraps(reference)
    def run(*args: Any) -> Any:
        with np.errstate(all="ignore"):
            return reference(*args)

    return run


@contextmanager
def loop_nest(b: Builder, extents: Sequence[Dim], kind: ir.ForKind = ir.ForKind.SERIAL) -> Iterator[tuple[arith.Var, ...]]:
    """Open nested loops over extents in a loop program; yields their indices. `kind` is the kind of the outermost loop."""
    with ExitStack() as stack:
        kinds = (kind, *(ir.ForKind.SERIAL,) * len(extents))
        yield tuple(stack.enter_context(b.loop(extent, f"i{n}", kinds[n])) for n, extent in enumerate(extents))


# --- families ---------------------------------------------------------------------------------------------------------


def make_family(*operators: Operator) -> tuple[Operator, ...]:
    """Return the operators of a module. Raises InlaidError for an operator without documentation."""
    for operator in operators:
        if not operator.doc:
            raise InlaidError(
                "expected documentation of the operator, got none",
                operator=operator.name,
                remedy=f'add doc="..." to the definition of {operator.name}: a line that says what it computes, '
                "then lines on its operands and results",
            )
    return operators


# --- factories --------------------------------------------------------------------------------------------------------


def map_elements(value: Callable[..., ir.Expr], *tensors: te.Tensor, result: DType | None = None, name: str = "map") -> te.Tensor:
    """Map `value` over the elements of broadcast tensors.

    `value` takes the elements in their working dtype; its result is cast to `result` (None: the dtype of the first tensor).
    """
    shape = broadcast_shapes(*(tensor.shape for tensor in tensors))
    to = tensors[0].dtype if result is None else result

    def element(*indices: arith.Var) -> ir.Expr:
        return te.cast(value(*(widen(broadcast_read(tensor, shape, indices)) for tensor in tensors)), to)

    stage: te.Tensor = te.compute(shape, element, name)
    return stage


def _elementwise_doc(text: str, kinds: tuple[str, ...], inputs: tuple[str, ...], result: str | None) -> str:
    """Append a line on the operands and the result to the documentation of an element-wise operator."""
    singular, plural = _KINDS_IN_DOC.get(kinds) or (" or ".join(kinds), f"of one dtype of kind {' or '.join(kinds)}")
    if len(inputs) == 1:
        result_text = f"shape and dtype of {inputs[0]}" if result is None else f"{result}, shape of {inputs[0]}"
        return f"{text}\nOperand: {inputs[0]}, {singular}, any shape. Result: {result_text}."
    result_text = result or ("bool" if kinds == BOOL else "that dtype")
    names = f"{', '.join(inputs[:-1])} and {inputs[-1]}"
    return f"{text}\nOperands: {names}, {plural}, broadcast. Result: {result_text}, the broadcast shape."


def elementwise(
    name: str,
    value: Callable[..., ir.Expr],
    numpy: Callable[..., Any],
    *,
    kinds: tuple[str, ...],
    inputs: tuple[str, ...] = ("x",),
    result: str | None = None,
    commutative: bool = False,
    traits: Traits = NO_TRAITS,
    doc: str = "",
    examples: Examples | None = None,
) -> Operator:
    """Make an element-wise operator without attributes: see `elementwise_with`."""
    return elementwise_with(
        name,
        Attrs,
        lambda attrs, *elements: value(*elements),
        lambda attrs, *arrays: numpy(*arrays),
        kinds=kinds,
        inputs=inputs,
        result=result,
        commutative=commutative,
        traits=traits,
        doc=doc,
        examples=examples,
    )


def elementwise_with(
    name: str,
    attrs: type[Attrs],
    value: Callable[..., ir.Expr],
    numpy: Callable[..., Any],
    *,
    kinds: tuple[str, ...],
    inputs: tuple[str, ...] = ("x",),
    result: str | None = None,
    commutative: bool = False,
    traits: Traits = NO_TRAITS,
    doc: str = "",
    examples: Examples | None = None,
) -> Operator:
    """Make an operator that maps the elements of its broadcast operands, which have one dtype.

    value(attrs, *elements)
        The result as a value expression of the elements in their working dtype.
    numpy(attrs, *arrays)
        The numpy implementation, on broadcasting arrays in their working dtype.
    kinds
        The accepted kinds of dtypes.
    result
        The dtype of the result; None: the operands' dtype.
    doc
        What the operator computes. A line on the operands and the result is appended.
    """

    def result_dtype(operand_dtype: DType) -> DType:
        return operand_dtype if result is None else dtype(result)

    def infer(attrs: Attrs, *types: Type) -> Type:
        tensors = [tensor_type(type_, kinds, label) for type_, label in zip(types, inputs, strict=True)]
        return TensorType(broadcast_shapes(*(tensor.shape for tensor in tensors)), result_dtype(common_dtype(*tensors)))

    @quiet
    def reference(attrs: Attrs, *arrays: Array) -> Array:
        return as_array(numpy(attrs, *map(widen_array, arrays)), result_dtype(from_numpy(arrays[0].dtype)))

    def compute(attrs: Attrs, *tensors: te.Tensor) -> te.Tensor:
        element_dtype = result_dtype(tensors[0].dtype)
        return map_elements(lambda *elements: value(attrs, *elements), *tensors, result=element_dtype, name=name)

    return Operator(
        name,
        infer,
        attrs,
        reference=reference,
        compute=compute,
        fusion=FusionKind.INJECTIVE,
        arity=(len(inputs), len(inputs)),
        inputs=inputs,
        commutative=commutative,
        elementwise=True,
        traits=traits,
        doc=_elementwise_doc(doc, kinds, inputs, result) if doc else "",
        examples=examples,
    )
