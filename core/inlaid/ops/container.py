"""Operators over sequences, optionals and strings. They run only on the host, because no kernel can express them.

Representation on the host: a sequence is a Python list of arrays, an optional is None or the value, a tensor of strings is an
object array of str.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from inlaid.graph.conditions import broadcast_shapes, require_equal
from inlaid.graph.operator import Attrs, Operator
from inlaid.graph.unify import fresh_size, join_types
from inlaid.ops.define import Array, check_axis, make_family, tensor_type
from inlaid_runtime.arith import Dim, SizeVar, free_vars
from inlaid_runtime.records import dataclass
from inlaid_runtime.types import OptionalType, SequenceType, TensorType, TupleType, Type, dtype, from_numpy

NOTHING = TupleType(())
"""Element type of an empty sequence or optional. `NOTHING` fits any other element type."""


@dataclass(frozen=True)
class HostTypeAttrs(Attrs):
    """A type of a host value: `kinds` ("optional", "sequence") from the outside in, then a tensor type of `shape` and `dtype`. A
    dimension of -1 is known only from the value; an empty `dtype` means `NOTHING`."""

    kinds: tuple[str, ...]
    dtype: str = ""
    shape: tuple[Dim, ...] = ()


def host_attrs(type_: Type) -> HostTypeAttrs:
    """Encode a type as attributes. Raises ValueError for a type that cannot be encoded."""
    kinds = []
    while isinstance(type_, (OptionalType, SequenceType)):
        kinds.append("optional" if isinstance(type_, OptionalType) else "sequence")
        type_ = type_.element
    if type_ == NOTHING:
        return HostTypeAttrs(tuple(kinds))
    shape = tuple(-1 if _is_data_dependent(dim, bool(kinds)) else dim for dim in tensor_type(type_).shape)
    return HostTypeAttrs(tuple(kinds), tensor_type(type_).dtype.name, shape)


def _is_data_dependent(dim: Dim, is_nested: bool) -> bool:
    """Test whether a dimension is known only from the value: it is symbolic and inside a sequence or an optional (`is_nested`), or
    existential."""
    return not isinstance(dim, int) and (
        is_nested or any(isinstance(size, SizeVar) and size.existential for size in free_vars(dim))
    )


def host_type(attrs: HostTypeAttrs) -> Type:
    """Decode a type from attributes."""
    type_: Type = NOTHING
    if attrs.dtype:
        type_ = TensorType(tuple(fresh_size("item") if dim == -1 else dim for dim in attrs.shape), attrs.dtype)
    for kind in reversed(attrs.kinds):
        type_ = OptionalType(type_) if kind == "optional" else SequenceType(type_)
    return type_


def _host(
    name: str,
    infer: Callable[..., Type],
    reference: Callable[..., Any],
    attrs: type[Attrs] = Attrs,
    inputs: tuple[str, ...] = ("x",),
    arity: tuple[int, int | None] | None = None,
    *,
    doc: str,
) -> Operator:
    """Make a host-only operator."""
    count = len(inputs)
    return Operator(name, infer, attrs, reference=reference, arity=arity or (count, count), inputs=inputs, host_only=True, doc=doc)


# --- sequences --------------------------------------------------------------------------------------------------------


def _element(type_: Type) -> TensorType:
    """Return the element type of a sequence of tensors. Raises ValueError for other types."""
    if not isinstance(type_, SequenceType) or not isinstance(type_.element, TensorType):
        raise ValueError(f"expected a sequence of tensors, got {type_!r}")
    return type_.element


def _fresh_element_type(type_: Type) -> TensorType:
    """Return the type of a sequence's element. Elements may differ in symbolic dimensions, so these get fresh sizes."""
    element = _element(type_)
    return TensorType(tuple(dim if isinstance(dim, int) else fresh_size("item") for dim in element.shape), element.dtype)


def _position(sequence: Sequence[Any], position: Array, last: int) -> int:
    """Resolve a position that may be negative. Raises IndexError unless it is in [-n, last]."""
    index = int(position.reshape(()))
    if not -len(sequence) <= index <= last:
        raise IndexError(f"position must be >= {-len(sequence)} and <= {last}, got {index}")
    return index if index >= 0 else index + len(sequence)


def _check_position(position: tuple[Type, ...]) -> None:
    for type_ in position:
        require_equal(tensor_type(type_, ("int",), "the position").size, 1, "the number of elements of the position")


def _infer_construct(attrs: Attrs, *items: Type) -> Type:
    element: Type = tensor_type(items[0])
    for item in items[1:]:
        element = join_types(element, tensor_type(item))
    return SequenceType(element)


def _infer_insert(attrs: Attrs, sequence: Type, item: Type, *position: Type) -> Type:
    _check_position(position)
    tensor_type(item, what="the element")
    if isinstance(sequence, SequenceType) and sequence.element == NOTHING:
        return SequenceType(item)
    return SequenceType(join_types(_element(sequence), item))


def _insert(attrs: Attrs, sequence: list[Array], item: Array, *position: Array) -> list[Array]:
    index = _position(sequence, position[0], len(sequence)) if position else len(sequence)
    return [*sequence[:index], item, *sequence[index:]]


def _infer_erase(attrs: Attrs, sequence: Type, *position: Type) -> Type:
    _check_position(position)
    return SequenceType(_element(sequence))


def _erase(attrs: Attrs, sequence: list[Array], *position: Array) -> list[Array]:
    index = _position(sequence, position[0] if position else np.array(-1), len(sequence) - 1)
    return [*sequence[:index], *sequence[index + 1 :]]


def _infer_at(attrs: Attrs, sequence: Type, position: Type) -> Type:
    _check_position((position,))
    return _fresh_element_type(sequence)


def _infer_length(attrs: Attrs, sequence: Type) -> Type:
    if not isinstance(sequence, SequenceType):
        raise ValueError(f"expected a sequence, got {sequence!r}")
    return TensorType((), "int64")


@dataclass(frozen=True)
class JoinAttrs(Attrs):
    """`axis`: the axis of the result. `new_axis`: stack the tensors along a new axis instead of concatenating them."""

    axis: int
    new_axis: bool = False


def _infer_join(attrs: JoinAttrs, sequence: Type) -> Type:
    element = _fresh_element_type(sequence)
    check_axis(attrs.axis, element.rank + attrs.new_axis)
    shape = list(element.shape)
    length = fresh_size("joined")
    if attrs.new_axis:
        shape.insert(attrs.axis, length)
    else:
        shape[attrs.axis] = length
    return TensorType(shape, element.dtype)


def _join(attrs: JoinAttrs, sequence: list[Array]) -> Array:
    if not sequence:
        raise ValueError("expected at least one tensor to join, got an empty sequence")
    return np.stack(sequence, attrs.axis) if attrs.new_axis else np.concatenate(sequence, attrs.axis)


@dataclass(frozen=True)
class SplitAttrs(Attrs):
    """`axis`: the axis to split. `keepdims`: whether parts keep the axis; ignored if there is an operand `sizes`."""

    axis: int
    keepdims: bool = True


def _infer_split(attrs: SplitAttrs, x: Type, *sizes: Type) -> Type:
    x = tensor_type(x)
    check_axis(attrs.axis, x.rank)
    if sizes and tensor_type(sizes[0], ("int",), "the sizes").rank > 1:
        raise ValueError(f"the sizes must be 0-d or 1-d, got {sizes[0]!r}")
    part: tuple[Dim, ...] = (1 if not sizes else fresh_size("part", x.shape[attrs.axis]),) if attrs.keepdims or sizes else ()
    return SequenceType(TensorType((*x.shape[: attrs.axis], *part, *x.shape[attrs.axis + 1 :]), x.dtype))


def _split(attrs: SplitAttrs, x: Array, *sizes: Array) -> list[Array]:
    extent = x.shape[attrs.axis]
    if not sizes:
        parts = np.split(x, extent, attrs.axis) if extent else []
        return parts if attrs.keepdims else [part.squeeze(attrs.axis) for part in parts]
    if sizes[0].ndim == 0:
        step = int(sizes[0])
        if step <= 0:
            raise ValueError(f"the size of a part must be >= 1, got {step}")
        cuts = list(range(step, extent, step))
    else:
        lengths = [int(size) for size in sizes[0]]
        if min(lengths, default=0) < 0 or sum(lengths) != extent:
            raise ValueError(f"the sizes of the parts must add up to the extent {extent}, got {lengths}")
        cuts = [int(cut) for cut in np.cumsum(lengths)[:-1]]
    return np.split(x, cuts, attrs.axis)


# --- optionals and types that widen -----------------------------------------------------------------------------------


def _infer_get(attrs: Attrs, x: Type) -> Type:
    if not isinstance(x, OptionalType) or x.element == NOTHING:
        raise ValueError(f"expected an optional with a known value type, got {x!r}")
    return x.element


def _get(attrs: Attrs, x: Any) -> Any:
    if x is None:
        raise ValueError("expected an optional with a value, got an empty one")
    return x


def _infer_has(attrs: Attrs, x: Type) -> Type:
    if not isinstance(x, OptionalType):
        raise ValueError(f"expected an optional, got {x!r}")
    return TensorType((), "bool")


def _infer_widen(attrs: HostTypeAttrs, x: Type) -> Type:
    target_type = host_type(attrs)
    if type(x) is not type(target_type) or not isinstance(x, (SequenceType, OptionalType)):
        raise ValueError(f"x must have a type that fits {target_type!r}, got {x!r}")
    return target_type


# --- strings ----------------------------------------------------------------------------------------------------------


def _strings(type_: Type, what: str = "the input") -> TensorType:
    return tensor_type(type_, ("string",), what)


def map_strings(function: Callable[..., Any], result: Any, *arrays: Array) -> Array:
    """Apply a function to the elements of broadcast string arrays. `result` is the numpy dtype of the result."""
    arrays = tuple(np.broadcast_arrays(*arrays))
    out = np.empty(arrays[0].size, result)
    for index, items in enumerate(zip(*(array.reshape(-1) for array in arrays), strict=True)):
        out[index] = function(*items)
    return out.reshape(arrays[0].shape)


def _infer_string_pair(result_dtype: str) -> Callable[..., Type]:
    def infer(attrs: Attrs, a: Type, b: Type) -> Type:
        return TensorType(broadcast_shapes(_strings(a).shape, _strings(b).shape), result_dtype)

    return infer


@dataclass(frozen=True)
class StringSplitAttrs(Attrs):
    """`delimiter`: the separator; "" splits at white space. `maxsplit`: the maximum number of splits; negative is unlimited."""

    delimiter: str = ""
    maxsplit: int = -1


def _infer_string_split(attrs: StringSplitAttrs, x: Type) -> Type:
    x = _strings(x)
    return TupleType((TensorType((*x.shape, fresh_size("parts")), "string"), TensorType(x.shape, "int64")))


def _string_split(attrs: StringSplitAttrs, x: Array) -> tuple[Array, Array]:
    parts = [item.split(attrs.delimiter or None, attrs.maxsplit) for item in x.reshape(-1)]
    counts = np.array(list(map(len, parts)), np.int64)
    out = np.full((len(parts), max(map(len, parts), default=0)), "", object)
    for row, words in zip(out, parts, strict=True):
        row[: len(words)] = words
    return out.reshape(*x.shape, -1) if x.size else out.reshape(*x.shape, 0), counts.reshape(x.shape)


@dataclass(frozen=True)
class StringNormalizeAttrs(Attrs):
    """`case`: "LOWER", "UPPER" or "NONE". `case_sensitive`: whether case matters for `stopwords`, the words to remove."""

    case: str = "NONE"
    case_sensitive: bool = False
    stopwords: tuple[str, ...] = ()

    @cached_property
    def dropped(self) -> frozenset[str]:
        """The words to remove; in lower case unless case matters."""
        return frozenset(self.stopwords if self.case_sensitive else map(str.lower, self.stopwords))


def _infer_string_normalize(attrs: StringNormalizeAttrs, x: Type) -> Type:
    x = _strings(x)
    if attrs.case not in ("NONE", "LOWER", "UPPER"):
        raise ValueError(f"case must be NONE, LOWER or UPPER, got {attrs.case!r}")
    if x.rank not in (1, 2):
        raise ValueError(f"the shape must be (n,) or (1, n), got {x.shape}")
    if x.rank == 2:
        require_equal(x.shape[0], 1, "dimension 0 of x")
    return TensorType((*x.shape[:-1], fresh_size("words") if attrs.stopwords else x.shape[-1]), "string")


def _string_normalize(attrs: StringNormalizeAttrs, x: Array) -> Array:
    words = x.reshape(-1).tolist()
    if attrs.stopwords:
        dropped = attrs.dropped
        words = [word for word in words if (word if attrs.case_sensitive else word.lower()) not in dropped] or [""]
    if attrs.case != "NONE":
        words = list(map(str.lower if attrs.case == "LOWER" else str.upper, words))
    return np.array(words, object).reshape((*x.shape[:-1], len(words)))


@dataclass(frozen=True)
class PatternAttrs(Attrs):
    """`pattern`: a regular expression, in the common syntax of RE2 and Python."""

    pattern: str


def _regex_full_match(attrs: PatternAttrs, x: Array) -> Array:
    try:
        compiled = re.compile(attrs.pattern)
    except re.error as error:
        raise ValueError(f"invalid regular expression {attrs.pattern!r}: {error}") from error
    return map_strings(lambda item: compiled.fullmatch(item) is not None, np.bool_, x)


@dataclass(frozen=True)
class StringCastAttrs(Attrs):
    """`dtype`: the dtype of the result: "string" to format numbers, another to parse strings."""

    dtype: str


def _infer_string_cast(attrs: StringCastAttrs, x: Type) -> Type:
    x = tensor_type(x)
    if (x.dtype.kind == "string") == (dtype(attrs.dtype).kind == "string"):
        raise ValueError(f"expected a cast between strings and numbers, got {x.dtype} to {attrs.dtype}")
    return TensorType(x.shape, attrs.dtype)


def _string_cast(attrs: StringCastAttrs, x: Array) -> Array:
    result_dtype = dtype(attrs.dtype)
    if result_dtype.is_float:
        return map_strings(float, np.float64, x).astype(result_dtype.numpy)
    if result_dtype.kind != "string":
        return map_strings(_integer, object, x).astype(result_dtype.numpy)
    if from_numpy(x.dtype).is_float:
        # Narrow floats are exact in float32, which prints with the fewest digits that read back.
        return map_strings(_float_text, object, x if x.dtype in (np.float32, np.float64) else x.astype(np.float32))
    return map_strings(lambda item: str(int(item)), object, x)


def _float_text(value: Any) -> str:
    if np.isnan(value):
        return "NaN"
    if np.isinf(value):
        return "INF" if value > 0 else "-INF"
    return str(value)


def _integer(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        return int(float(text))


@dataclass(frozen=True)
class MappingAttrs(Attrs):
    """`keys`, `values`: `keys[i]` is mapped to `values[i]`. `default`: the value for any other element. `dtype`: the dtype of the
    values."""

    keys: tuple[str | int | float, ...]
    values: tuple[str | int | float, ...]
    default: str | int | float
    dtype: str

    @cached_property
    def table(self) -> Mapping[Any, str | int | float]:
        """The values by key."""
        return dict(zip(self.keys, self.values, strict=True))


def _lookup(attrs: MappingAttrs, x: Array) -> Array:
    table, default = attrs.table, attrs.default
    values = [table.get(item, default) for item in x.reshape(-1).tolist()]
    return np.array(values, dtype(attrs.dtype).numpy).reshape(x.shape)


# --- the operators ----------------------------------------------------------------------------------------------------

sequence_empty = _host(
    "sequence_empty", lambda attrs: SequenceType(NOTHING), lambda attrs: [], inputs=(), doc="Make an empty sequence."
)
sequence_construct = _host(
    "sequence_construct",
    _infer_construct,
    lambda attrs, *items: list(items),
    inputs=("items",),
    arity=(1, None),
    doc="Make a sequence of the operands, tensors of one dtype.",
)
sequence_insert = _host(
    "sequence_insert",
    _infer_insert,
    _insert,
    inputs=("sequence", "item", "position"),
    arity=(2, 3),
    doc="""Insert a tensor into a sequence before a position, or append it.
Operands: sequence, item, position? (one integer; a negative one counts from the end).""",
)
sequence_erase = _host(
    "sequence_erase",
    _infer_erase,
    _erase,
    inputs=("sequence", "position"),
    arity=(1, 2),
    doc="""Remove the tensor at a position of a sequence, or the last one.
Operands: sequence, position? (one integer; a negative one counts from the end).""",
)
sequence_at = _host(
    "sequence_at",
    _infer_at,
    lambda attrs, sequence, position: sequence[_position(sequence, position, len(sequence) - 1)],
    inputs=("sequence", "position"),
    doc="""Return the tensor at a position of a sequence.
Operands: sequence, position (one integer; a negative one counts from the end).""",
)
sequence_length = _host(
    "sequence_length",
    _infer_length,
    lambda attrs, sequence: np.array(len(sequence), np.int64),
    inputs=("sequence",),
    doc="Return the number of tensors in a sequence, 0-d int64.",
)
sequence_join = _host(
    "sequence_join",
    _infer_join,
    _join,
    JoinAttrs,
    inputs=("sequence",),
    doc="Concatenate the tensors of a sequence along an axis, or stack them along a new axis.",
)
sequence_split = _host(
    "sequence_split",
    _infer_split,
    _split,
    SplitAttrs,
    inputs=("x", "sizes"),
    arity=(1, 2),
    doc="""Split a tensor along an axis into a sequence of tensors.
Operands: x, sizes? (integer: one extent for all parts, or a vector with the extent of each; by default 1).""",
)
optional_none = _host(
    "optional_none",
    lambda attrs: host_type(attrs),
    lambda attrs: None,
    HostTypeAttrs,
    inputs=(),
    doc="Make an optional without a value.",
)
optional_some = _host("optional_some", lambda attrs, x: OptionalType(x), lambda attrs, x: x, doc="Make an optional with a value.")
optional_has = _host(
    "optional_has",
    _infer_has,
    lambda attrs, x: np.array(x is not None),
    doc="Test whether an optional has a value. Result: 0-d bool.",
)
optional_get = _host(
    "optional_get", _infer_get, _get, doc="Return the value of an optional. Raises `KernelFault` at run time if it has none."
)
host_widen = _host(
    "host_widen", _infer_widen, lambda attrs, x: x, HostTypeAttrs, doc="Convert a sequence or an optional to a more general type."
)
string_concat = _host(
    "string_concat",
    _infer_string_pair("string"),
    lambda attrs, a, b: map_strings(str.__add__, object, a, b),
    inputs=("a", "b"),
    doc="Concatenate strings element by element.\nOperands: a and b, string, broadcast. Result: string, the broadcast shape.",
)
string_equal = _host(
    "string_equal",
    _infer_string_pair("bool"),
    lambda attrs, a, b: map_strings(str.__eq__, np.bool_, a, b),
    inputs=("a", "b"),
    doc="Compare strings for equality.\nOperands: a and b, string, broadcast. Result: bool, the broadcast shape.",
)
string_split = _host(
    "string_split",
    _infer_string_split,
    _string_split,
    StringSplitAttrs,
    doc="""Split strings at a delimiter.
Operand: x, string. Results: the parts, (*shape of x, maximum number of parts), padded with empty strings; the number of parts of
each element of x, int64, shape of x.""",
)
string_normalize = _host(
    "string_normalize",
    _infer_string_normalize,
    _string_normalize,
    StringNormalizeAttrs,
    doc="""Change the case of strings and remove stop words.
Operand: x (n,) or (1, n), string. Result: string, same rank.""",
)
regex_full_match = _host(
    "regex_full_match",
    lambda attrs, x: TensorType(_strings(x).shape, "bool"),
    _regex_full_match,
    PatternAttrs,
    doc="""Test whether strings match a regular expression completely.
Operand: x, string. Result: bool, shape of x.""",
)
string_cast = _host(
    "string_cast",
    _infer_string_cast,
    _string_cast,
    StringCastAttrs,
    doc="Convert strings to numbers, or numbers to strings.\nResult: dtype `dtype`, shape of x.",
)
lookup = _host(
    "lookup",
    lambda attrs, x: TensorType(tensor_type(x).shape, attrs.dtype),
    _lookup,
    MappingAttrs,
    doc="""Map each element that equals a key to the key's value, any other element to the default.
Result: dtype `dtype`, shape of x.""",
)

OPERATORS = make_family(
    sequence_empty,
    sequence_construct,
    sequence_insert,
    sequence_erase,
    sequence_at,
    sequence_length,
    sequence_join,
    sequence_split,
    optional_none,
    optional_some,
    optional_has,
    optional_get,
    host_widen,
    string_concat,
    string_equal,
    string_split,
    string_normalize,
    regex_full_match,
    string_cast,
    lookup,
)
