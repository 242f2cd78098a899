"""The types of graph expressions."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral

from inlaid_runtime.arith import Dim, Expr, SizeVar, free_vars, product, simplify, substitute, unwrap
from inlaid_runtime.errors import TypeInferenceError
from inlaid_runtime.records import dataclass
from inlaid_runtime.types.dtypes import DType, dtype


class Type:
    """Base of all types. Types are immutable and compare by structure."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, init=False, repr=False)
class TensorType(Type):
    """A dense array. `shape` holds dimensions (integers >= 0, names, or expressions over `SizeVar`s), `dtype` the element type."""

    shape: tuple[Dim, ...]
    dtype: DType

    def __init__(self, shape: Sequence[Dim | str], dtype_: str | DType) -> None:
        object.__setattr__(self, "shape", tuple(dim if type(dim) is int and dim >= 0 else _dim(dim) for dim in shape))
        object.__setattr__(self, "dtype", dtype(dtype_))

    @property
    def rank(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    @property
    def size(self) -> Dim:
        """The number of elements."""
        return product(self.shape)

    @property
    def is_static(self) -> bool:
        """Whether all dimensions are integers."""
        return all(isinstance(dim, int) for dim in self.shape)

    def __repr__(self) -> str:
        return f"Tensor[({', '.join(map(repr, self.shape))}{',' if len(self.shape) == 1 else ''}), {self.dtype}]"


def _dim(value: object) -> Dim:
    if isinstance(value, int) and value >= 0:
        return +value  # an integer, or a size that is traced (`inlaid.graph.traced`)
    if isinstance(value, str):
        return SizeVar(value)
    if not isinstance(value, Expr):
        if isinstance(value, int) or not isinstance(value, Integral) or value < 0:
            raise TypeInferenceError(
                f"an extent must be an integer >= 0, a name or an expression of sizes, got {value!r}",
                remedy='name an extent that is not known, such as "batch"',
            )
        return int(value)
    # Each operator computes its extents from those of its inputs. The canonical form keeps them short along a chain of operators,
    # and makes most equal extents structurally equal.
    return unwrap(simplify(value) if value.operands else value)


@dataclass(frozen=True, slots=True, repr=False)
class TupleType(Type):
    """A tuple of a fixed number of values, each of any type."""

    fields: tuple[Type, ...]

    def __repr__(self) -> str:
        return f"({', '.join(map(repr, self.fields))}{',' if len(self.fields) == 1 else ''})"


@dataclass(frozen=True, slots=True, repr=False)
class FunctionType(Type):
    """A function from parameters to a result. Dimensions that occur in `params` are instantiated at each call."""

    params: tuple[Type, ...]
    result: Type

    def __repr__(self) -> str:
        return f"fn({', '.join(map(repr, self.params))}) -> {self.result!r}"


@dataclass(frozen=True, slots=True, repr=False)
class SequenceType(Type):
    """A list whose length is known at run time. Its elements have one type, but their existential dimensions may differ."""

    element: Type

    def __repr__(self) -> str:
        return f"Sequence[{self.element!r}]"


@dataclass(frozen=True, slots=True, repr=False)
class OptionalType(Type):
    """A value that may be absent."""

    element: Type

    def __repr__(self) -> str:
        return f"Optional[{self.element!r}]"


def type_vars(type_: Type) -> frozenset[Expr]:
    """Return the symbolic dimensions that occur in a type."""
    match type_:
        case TensorType(shape=shape):
            return frozenset().union(*(free_vars(dim) for dim in shape if type(dim) is not int))
        case TupleType(fields=fields):
            return frozenset().union(*map(type_vars, fields))
        case FunctionType(params=params, result=result):
            return type_vars(result).union(*map(type_vars, params))
        case SequenceType(element=element) | OptionalType(element=element):
            return type_vars(element)
    raise AssertionError(f"unknown type {type_!r}")


def substitute_type(type_: Type, mapping: dict[Expr, Expr]) -> Type:
    """Replace symbolic dimensions in a type."""
    if not mapping:
        return type_
    match type_:
        case TensorType(shape=shape, dtype=element):
            if all(type(dim) is int for dim in shape):
                return type_
            return TensorType(tuple(dim if isinstance(dim, int) else substitute(dim, mapping) for dim in shape), element)
        case TupleType(fields=fields):
            return TupleType(tuple(substitute_type(field, mapping) for field in fields))
        case FunctionType(params=params, result=result):
            return FunctionType(tuple(substitute_type(p, mapping) for p in params), substitute_type(result, mapping))
        case SequenceType(element=inner):
            return SequenceType(substitute_type(inner, mapping))
        case OptionalType(element=inner):
            return OptionalType(substitute_type(inner, mapping))
    raise AssertionError(f"unknown type {type_!r}")
