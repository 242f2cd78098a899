"""Einsum, decomposed into matrix products, broadcast products and sums."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from inlaid.graph.conditions import require_equal
from inlaid.graph.ir import Expr
from inlaid.ops.compose import cast_to, expand_dims, expr_type, scalar, widened
from inlaid.ops.elementwise import equal, mul, where
from inlaid.ops.linear import matmul
from inlaid.ops.reduce import reduce_sum
from inlaid.ops.shape import iota, reshape, strided_slice, transpose
from inlaid_onnx.node import Converter, Node
from inlaid_runtime import arith
from inlaid_runtime.arith import Dim
from inlaid_runtime.records import dataclass

_TERM = re.compile(r"([A-Za-z]*)(?:(\.\.\.)([A-Za-z]*))?")


@dataclass(frozen=True)
class _Operand:
    """A tensor with one label per axis: a letter, or "...n" for the n-th axis from the right of an ellipsis."""

    value: Expr
    labels: tuple[str, ...]

    def dim(self, label: str) -> Dim:
        return expr_type(self.value).shape[self.labels.index(label)]


def _ellipsis(rank: int) -> tuple[str, ...]:
    return tuple(f"...{index}" for index in range(rank, 0, -1))


def _split(node: Node, term: str) -> tuple[str, bool, str]:
    """Split a term into (letters before the ellipsis, whether it has an ellipsis, letters after it)."""
    match = _TERM.fullmatch(term)
    if match is None:
        raise node.error(f"expected a term of letters and an ellipsis, got {term!r}")
    return match[1], match[2] is not None, match[3] or ""


def _operand(node: Node, index: int, term: str) -> _Operand:
    before, dots, after = _split(node, term)
    rest = node.rank(index) - len(before) - len(after)
    if rest < 0 or (rest > 0 and not dots):
        raise node.error(f"the term for input {index} must label {node.rank(index)} axes, got {term!r}")
    return _diagonal(node, index, _Operand(node.input(index), (*before, *_ellipsis(rest), *after)))


def _result_labels(node: Node, output: str | None, operands: Sequence[_Operand]) -> tuple[str, ...]:
    """Return the labels of the result. Without an output term: axes of ellipses, then the letters that occur once, sorted."""
    input_labels = [label for operand in operands for label in operand.labels]
    ellipsis_labels = _ellipsis(max((sum(label.startswith(".") for label in operand.labels) for operand in operands), default=0))
    if output is None:
        letters = re.sub(r"[^A-Za-z]", "", node.attrs["equation"])
        return (*ellipsis_labels, *sorted(label for label in letters if letters.count(label) == 1))
    before, has_dots, after = _split(node, output)
    labels = (*before, *(ellipsis_labels if has_dots else ()), *after)
    if len(set(labels)) != len(labels) or not set(labels) <= set(input_labels):
        raise node.error(f"the output term must have unique labels of inputs, got {output!r}")
    return labels


def _diagonal(node: Node, index: int, operand: _Operand) -> _Operand:
    """Merge the axes of input `index` that have the same label. Of static extents, read the diagonal; of symbolic extents, zero
    the elements off the diagonal and sum over one axis."""
    value, labels = operand.value, list(operand.labels)
    for second in range(len(labels) - 1, 0, -1):
        first = labels.index(labels[second])
        if first == second:
            continue
        shape, dtype = expr_type(value).shape, expr_type(value).dtype
        with node.relations():
            require_equal(shape[second], shape[first], f"dimension {second} of input {index}, which has a label twice,")
        if isinstance(shape[first], int) and shape[first] == shape[second]:
            value, labels = _on_diagonal(value, first, second), [label for axis, label in enumerate(labels) if axis != second]
            continue
        coordinates = [
            iota(shape=tuple(dim if axis == label_axis else 1 for axis, dim in enumerate(shape)), axis=label_axis, dtype="int64")
            for label_axis in (first, second)
        ]
        value = reduce_sum(where(equal(*coordinates), value, scalar(0, dtype)), axes=(second,))
        del labels[second]
    return _Operand(value, tuple(labels))


def _on_diagonal(value: Expr, first: int, second: int) -> Expr:
    """Read the diagonal of two axes of equal, static extent. It replaces axis `first`; axis `second` is removed."""
    if second != first + 1:
        order = [axis for axis in range(expr_type(value).rank) if axis != second]
        order.insert(order.index(first) + 1, second)
        value = transpose(value, perm=tuple(order))
    shape = expr_type(value).shape
    extent = shape[first]
    assert isinstance(extent, int)
    joined = reshape(value, shape=(*shape[:first], extent * extent, *shape[first + 2 :]))
    ends = expr_type(joined).shape
    strides = tuple(extent + 1 if axis == first else 1 for axis in range(len(ends)))
    return strided_slice(joined, begin=(0,) * len(ends), end=ends, strides=strides)


def _summed(operand: _Operand, keep: Iterable[str]) -> _Operand:
    """Sum the operand over the axes that are not in `keep`."""
    free_labels = set(keep)
    axes = tuple(axis for axis, label in enumerate(operand.labels) if label not in free_labels)
    labels = tuple(label for label in operand.labels if label in free_labels)
    return _Operand(reduce_sum(operand.value, axes=axes), labels) if axes else operand


def _arranged(operand: _Operand, labels: Sequence[str]) -> Expr:
    """Transpose the tensor to the order of `labels`. A label that the tensor lacks becomes an axis of extent 1."""
    operand_labels = [label for label in labels if label in operand.labels]
    perm = tuple(operand.labels.index(label) for label in operand_labels)
    value = operand.value if perm == tuple(range(len(perm))) else transpose(operand.value, perm=perm)
    missing = [axis for axis, label in enumerate(labels) if label not in operand.labels]
    return expand_dims(value, *missing) if missing else value


def _product(a: _Operand, b: _Operand, keep: Iterable[str]) -> _Operand:
    """Multiply two operands and sum over the axes that are not in `keep`."""
    free_labels = set(keep)
    a, b = _summed(a, free_labels | set(b.labels)), _summed(b, free_labels | set(a.labels))
    shared = [label for label in a.labels if label in b.labels]
    contracted = [label for label in shared if label not in free_labels]
    batch = [label for label in shared if label in free_labels]
    left = [label for label in a.labels if label not in shared]
    right = [label for label in b.labels if label not in shared]
    if not contracted or any(a.dim(label) != b.dim(label) for label in contracted):
        labels = (*batch, *left, *right, *contracted)
        # In the working dtype: products of narrow dtypes could overflow before the sum.
        product = _Operand(mul(*(widened(_arranged(item, labels)) for item in (a, b))), labels)
        total = _summed(product, free_labels)
        return _Operand(cast_to(total.value, expr_type(a.value).dtype), total.labels)
    matrices = matmul(_matrix(a, batch, left, contracted), _matrix(b, batch, contracted, right))
    extents = expr_type(matrices).shape[: len(batch)]
    shape = (*extents, *(a.dim(label) for label in left), *(b.dim(label) for label in right))
    return _Operand(reshape(matrices, shape=shape), (*batch, *left, *right))


def _matrix(operand: _Operand, batch: Sequence[str], rows: Sequence[str], columns: Sequence[str]) -> Expr:
    """Reshape the operand to matrices: batch axes, then all rows as one axis, then all columns as one axis."""
    value = _arranged(operand, (*batch, *rows, *columns))
    extents = (arith.product(tuple(operand.dim(label) for label in group)) for group in (rows, columns))
    return reshape(value, shape=(*expr_type(value).shape[: len(batch)], *extents))


def _einsum(node: Node) -> Expr:
    equation = node.attrs.get("equation")
    if equation is None:
        raise node.error("the attribute equation is missing")
    inputs, arrow, output = equation.replace(" ", "").partition("->")
    terms = inputs.split(",")
    if len(terms) != len(node.inputs):
        raise node.error(f"the equation must have {len(node.inputs)} input terms, got {equation!r}")
    operands = [_operand(node, index, term) for index, term in enumerate(terms)]
    output_labels = _result_labels(node, output if arrow else None, operands)
    total = operands[0]
    for index, operand in enumerate(operands[1:], 1):
        later_labels = {label for other in operands[index + 1 :] for label in other.labels}
        total = _product(total, operand, later_labels | set(output_labels))
    return _arranged(_summed(total, output_labels), output_labels)


CONVERTERS: Mapping[str, Converter] = {"Einsum": _einsum}
