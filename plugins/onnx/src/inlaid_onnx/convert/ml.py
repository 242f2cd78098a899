"""Feature extraction and linear models: the operators of ai.onnx.ml that are not trees, and TfIdfVectorizer."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from inlaid import ops
from inlaid.graph.conditions import require_broadcast_to, require_equal
from inlaid.graph.ir import Expr, constant
from inlaid.ops.compose import cast_to, expand_dims, expr_type, join, scalar, squeeze
from inlaid.ops.shape import simple
from inlaid_onnx.convert.scores import class_labels, transformed
from inlaid_onnx.node import Converter, Node
from inlaid_runtime import arith
from inlaid_runtime.types import from_numpy

_MAX_COMPARED_KEYS = 1024
"""Maximum number of keys for which comparing each element with all keys is cheaper than a lookup on the host."""


def _array_feature_extractor(node: Node) -> Expr:
    x = node.input(0) if node.rank(0) > 1 else expand_dims(node.input(0), 0)
    columns = ops.reshape(node.input(1), shape=(node.tensor(1).size,))
    return ops.take(x, columns, axis=max(node.rank(0), 2) - 1)


def _binarizer(node: Node) -> Expr:
    dtype = node.dtype(0)
    above = ops.less(scalar(node.attrs.get("threshold", 0.0), dtype), node.input(0))
    return cast_to(above, dtype)


def _scaler(node: Node) -> Expr:
    x = cast_to(node.input(0), "float32")
    offset, scale = (np.array(node.attrs.get(name) or [neutral], np.float32) for name, neutral in (("offset", 0.0), ("scale", 1.0)))
    _per_feature(node, offset, "the offset")
    _per_feature(node, scale, "the scale")
    return ops.mul(ops.sub(x, constant(offset)), constant(scale))


def _per_feature(node: Node, values: np.ndarray[Any, Any], what: str) -> None:
    """Require an attribute to have one value for all features of the input, or one for each."""
    with node.relations():
        require_broadcast_to(values.shape, node.tensor(0).shape, what)


def _imputer(node: Node) -> Expr:
    x, dtype = node.input(0), node.dtype(0)
    floats = dtype.is_float
    values = np.array(node.attrs.get("imputed_value_floats" if floats else "imputed_value_int64s") or [], dtype.numpy)
    if not len(values):
        raise node.error(f"expected imputed values for a tensor of {dtype.name}, got none")
    _per_feature(node, values, "the imputed values")
    replaced = node.attrs.get("replaced_value_float" if floats else "replaced_value_int64", 0)
    missing = ops.isnan(x) if floats and np.isnan(replaced) else ops.equal(x, scalar(replaced, dtype))
    return ops.where(missing, constant(values), x)


def _one_hot_encoder(node: Node) -> Expr:
    """Convert OneHotEncoder: gather rows of an identity matrix by category. An unknown category gathers a row of zeros; with
    zeros=0, it gathers a row that is out of range, which fails the run."""
    text = node.dtype(0).kind == "string"
    categories = tuple(node.attrs.get("cats_strings" if text else "cats_int64s") or ())
    if not categories:
        raise node.error(f"expected categories for a tensor of {node.dtype(0).name}, got none")
    x = node.input(0) if text else cast_to(node.input(0), "int64")
    category = ops.lookup(x, keys=categories, values=tuple(range(len(categories))), default=len(categories), dtype="int64")
    rows = np.eye(len(categories) + (1 if node.attrs.get("zeros", 1) else 0), len(categories), dtype=np.float32)
    return ops.take(constant(rows), category, axis=0)


def _normalizer(node: Node) -> Expr:
    x = cast_to(node.input(0), "float32")
    axis = node.rank(0) - 1
    norm = node.attrs.get("norm", "MAX")
    if norm == "MAX":
        magnitude = ops.reduce_max(x, axes=(axis,), keepdims=True)
    elif norm == "L1":
        magnitude = ops.reduce_sum(ops.abs(x), axes=(axis,), keepdims=True)
    elif norm == "L2":
        magnitude = ops.sqrt(ops.reduce_sum(ops.mul(x, x), axes=(axis,), keepdims=True))
    else:
        raise node.error(f"norm must be MAX, L1 or L2, got {norm!r}")
    zero = scalar(0, "float32")
    return ops.div(x, ops.where(ops.equal(magnitude, zero), scalar(1, "float32"), magnitude))


def _linear(node: Node, rows: int) -> Expr:
    """Build x @ coefficients^T + intercepts, for `rows` rows of coefficients."""
    x = cast_to(node.input(0), "float32")
    weights = np.array(node.attrs.get("coefficients") or [], np.float32)
    if len(weights) % rows:
        raise node.error(f"the number of coefficients must be a multiple of {rows}, got {len(weights)}")
    product = ops.matmul(x, constant(np.ascontiguousarray(weights.reshape(rows, -1).T)))
    intercepts = np.array(node.attrs.get("intercepts") or np.zeros(rows), np.float32)
    return ops.add(product, constant(intercepts))


def _linear_regressor(node: Node) -> Expr:
    return transformed(node, _linear(node, node.attrs.get("targets", 1)))


def _linear_classifier(node: Node) -> tuple[Expr, Expr]:
    labels = node.attrs.get("classlabels_ints") or node.attrs.get("classlabels_strings") or []
    rows = len(node.attrs.get("intercepts") or labels)
    if rows < 2 or rows != len(labels):
        raise node.error(f"expected a row of coefficients for each of at least two classes, got {rows} for {len(labels)} labels")
    scores = _linear(node, rows)
    return class_labels(ops.argmax(scores, axis=1, keepdims=False), labels), transformed(node, scores)


def _svm_regressor(node: Node) -> Expr:
    """Convert SVMRegressor: the weighted sum of the kernels of each row and the support vectors, plus rho."""
    x = cast_to(node.input(0), "float32")
    coefficients = np.array(node.attrs.get("coefficients") or [], np.float32)
    vectors = np.array(node.attrs.get("support_vectors") or [], np.float32)
    rho = np.array(node.attrs.get("rho") or [0.0], np.float32)
    count = node.attrs.get("n_supports", 0)
    if not count:  # a linear model without support vectors
        return ops.add(ops.matmul(x, constant(coefficients[:, None])), constant(rho))
    if len(coefficients) != count or len(vectors) % count:
        raise node.error(
            f"expected {count} coefficients and as many support vectors, got {len(coefficients)} and {len(vectors)} numbers"
        )
    gamma, shift, degree = [*(node.attrs.get("kernel_params") or ()), 0.0, 0.0, 0.0][:3]
    kernel = _kernel(node, x, vectors.reshape(count, -1), (gamma, shift, degree))
    total = ops.add(ops.matmul(kernel, constant(coefficients[:, None])), constant(rho))
    if node.attrs.get("one_class", 0):
        zero = scalar(0, "float32")
        return ops.where(ops.less(zero, total), scalar(1, "float32"), scalar(-1, "float32"))
    return transformed(node, total)


def _kernel(node: Node, x: Expr, vectors: np.ndarray[Any, Any], parameters: tuple[float, float, float]) -> Expr:
    gamma, shift, degree = (scalar(each, "float32") for each in parameters)
    name = node.attrs.get("kernel_type", "LINEAR")
    with node.relations():
        require_equal(expr_type(x).shape[1], vectors.shape[1], "the number of features of the input")
    if name == "RBF":
        difference = ops.sub(expand_dims(x, 1), constant(vectors))  # (rows, vectors, features)
        distance = ops.reduce_sum(ops.mul(difference, difference), axes=(2,), keepdims=False)
        return ops.exp(ops.neg(ops.mul(distance, gamma)))
    product = ops.matmul(x, constant(np.ascontiguousarray(vectors.T)))
    if name == "LINEAR":
        return product
    scaled = ops.add(ops.mul(product, gamma), shift)
    if name == "POLY":
        return ops.pow(scaled, degree)
    if name == "SIGMOID":
        return ops.tanh(scaled)
    raise node.error(f"kernel_type must be LINEAR, POLY, RBF or SIGMOID, got {name!r}")


# --- LabelEncoder -----------------------------------------------------------------------------------------------------


def _label_encoder(node: Node) -> Expr:
    keys, values, default = _classes(node) if node.opset < 2 else _mapping(node)
    if len(keys) != len(values):
        raise node.error(f"expected as many keys as values, got {len(keys)} and {len(values)}")
    text = keys.dtype == object or values.dtype == object
    if text or len(keys) > _MAX_COMPARED_KEYS or not len(keys):
        return ops.lookup(
            node.input(0),
            keys=tuple(keys.tolist()),
            values=tuple(values.tolist()),
            default=default.item(),
            dtype=from_numpy(values.dtype).name,
        )
    x = expand_dims(node.input(0), node.rank(0))
    matches = ops.equal(x, constant(keys.astype(node.dtype(0).numpy)))
    if node.dtype(0).is_float and np.isnan(keys).any():
        matches = ops.logical_or(matches, ops.logical_and(ops.isnan(x), constant(np.isnan(keys))))
    hits = cast_to(matches, "int32")
    # The last of duplicate keys wins.
    chosen = ops.take(constant(values), ops.argmax(hits, axis=node.rank(0), keepdims=False, last=True), axis=0)
    has_match = ops.less(scalar(0, "int32"), ops.reduce_max(hits, axes=(node.rank(0),), keepdims=False))
    return ops.where(has_match, chosen, constant(default))


def _classes(node: Node) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Return keys, values and default of version 1, which maps strings to positions or, for integer data, positions to strings."""
    strings = np.array(node.attrs.get("classes_strings", []), object)
    numbers = np.arange(len(strings), dtype=np.int64)
    if node.dtype(0).kind == "string":
        return strings, numbers, np.array(node.attrs.get("default_int64", -1), np.int64)
    return numbers, strings, np.array(node.attrs.get("default_string", "_Unused"), object)


def _mapping(node: Node) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Return keys, values and default of LabelEncoder since version 2. Each has one attribute per dtype."""
    keys, values = _attribute(node, "keys"), _attribute(node, "values")
    defaults: dict[str, Any] = {"int64": -1, "float32": -0.0, "string": "_Unused"}
    dtype = from_numpy(values.dtype).name
    default = node.attrs.get("default_tensor")
    if default is None:
        name = {"int64": "default_int64", "float32": "default_float", "string": "default_string"}.get(dtype, "")
        default = np.array(node.attrs.get(name, defaults.get(dtype, 0)), values.dtype)
    return keys, values, np.asarray(default).reshape(-1)[0:1].reshape(()).astype(values.dtype)


def _attribute(node: Node, prefix: str) -> np.ndarray[Any, Any]:
    types: dict[str, Any] = {"int64s": np.int64, "floats": np.float32, "strings": object}
    for suffix, dtype in types.items():
        if f"{prefix}_{suffix}" in node.attrs:
            return np.array(node.attrs[f"{prefix}_{suffix}"], dtype)
    if f"{prefix}_tensor" not in node.attrs:
        raise node.error(f"expected an attribute with {prefix}, found none")
    return np.asarray(node.attrs[f"{prefix}_tensor"]).reshape(-1)


# --- TfIdfVectorizer --------------------------------------------------------------------------------------------------


def _tf_idf(node: Node) -> Expr:
    columns = np.array(node.attrs.get("ngram_indexes", []), np.int64)
    if node.rank(0) not in (1, 2):
        raise node.error(f"the input must be a vector or a matrix, got {node.tensor(0)!r}")
    tokens, pool = _tokens(node)
    rows = tokens if node.rank(0) == 2 else expand_dims(tokens, 0)
    grams = _grams(node, pool)
    counts = [_count_grams(rows, gram, steps) for gram, steps in grams]
    size = sum(len(gram) for gram, _ in grams)
    if size != len(columns) or len(np.unique(columns)) != size or (columns < 0).any():
        raise node.error(f"ngram_indexes must have a unique column for each of the {size} n-grams of the pool")
    weights = np.array(node.attrs.get("weights") or np.ones(size), np.float32)
    if len(weights) != size:
        raise node.error(f"expected {size} weights, one per n-gram, got {len(weights)}")
    total = join(counts, 1)
    mode = node.attrs.get("mode")
    if mode == "IDF":
        total = ops.minimum(total, scalar(1, "float32"))
    if mode in ("IDF", "TFIDF"):
        total = ops.mul(total, constant(weights))
    elif mode != "TF":
        raise node.error(f"mode must be TF, IDF or TFIDF, got {mode!r}")
    # Gather each n-gram's count into its column; a column without an n-gram gathers the zeros appended to the counts.
    gram_by_column = np.full(int(columns.max(initial=-1)) + 1, size, np.int64)
    gram_by_column[columns] = np.arange(size)
    zeros = ops.mul(ops.reduce_sum(total, axes=(1,), keepdims=True), scalar(0, "float32"))
    by_column = ops.take(join([total, zeros], 1), constant(gram_by_column), axis=1)
    return by_column if node.rank(0) == 2 else squeeze(by_column, 0)


def _tokens(node: Node) -> tuple[Expr, np.ndarray[Any, Any]]:
    """Return the input and the pool as integers. Strings are replaced by their index in the pool."""
    strings = node.attrs.get("pool_strings")
    if not strings:
        return cast_to(node.input(0), "int64"), np.array(node.attrs.get("pool_int64s", []), np.int64)
    numbers = {word: index for index, word in enumerate(dict.fromkeys(strings))}
    tokens = ops.lookup(node.input(0), keys=tuple(numbers), values=tuple(numbers.values()), default=-1, dtype="int64")
    return tokens, np.array([numbers[word] for word in strings], np.int64)


def _grams(node: Node, pool: np.ndarray[Any, Any]) -> list[tuple[np.ndarray[Any, Any], Sequence[int]]]:
    """Return, for each length of n-grams in the pool, its n-grams (one per row) and the distances in the input at which the
    elements of an n-gram may follow each other. A length that is not requested has no distances."""
    bounds = [*node.attrs.get("ngram_counts", []), len(pool)]
    least, greatest = node.attrs.get("min_gram_length", 1), node.attrs.get("max_gram_length", 1)
    grams: list[tuple[np.ndarray[Any, Any], Sequence[int]]] = []
    for length, (start, end) in enumerate(itertools.pairwise(bounds), 1):
        if not 0 <= start <= end <= len(pool) or (end - start) % length:
            raise node.error(f"ngram_counts must divide a pool of {len(pool)} into n-grams, got {bounds[:-1]}")
        steps = range(1, 2 + node.attrs.get("max_skip_count", 0)) if length > 1 else (1,)
        if end > start:
            grams.append((pool[start:end].reshape(-1, length), steps if least <= length <= greatest else ()))
    return grams


def _count_grams(rows: Expr, grams: np.ndarray[Any, Any], steps: Sequence[int]) -> Expr:
    """Count the occurrences of each n-gram in each row: float32 (rows, n-grams)."""
    height, width = expr_type(rows).shape
    size, length = grams.shape
    total = ops.full(scalar(0, "int32"), shape=(height, size))
    for step in steps:
        starts = simple(arith.maximum(arith.add(width, -(length - 1) * step), 0))
        positions = ops.add(ops.iota(shape=(starts, 1), axis=0), constant(np.arange(length)[None] * step))
        candidates = ops.reshape(ops.take(rows, positions, axis=1), shape=(height, starts, 1, length))
        element_matches = cast_to(ops.equal(candidates, constant(grams)), "int32")
        gram_matches = ops.reduce_min(element_matches, axes=(3,), keepdims=False)
        total = ops.add(total, ops.reduce_sum(gram_matches, axes=(1,), keepdims=False))
    return cast_to(total, "float32")


CONVERTERS: Mapping[str, Converter] = {
    "TfIdfVectorizer": _tf_idf,
    "ai.onnx.ml:ArrayFeatureExtractor": _array_feature_extractor,
    "ai.onnx.ml:Binarizer": _binarizer,
    "ai.onnx.ml:Imputer": _imputer,
    "ai.onnx.ml:LabelEncoder": _label_encoder,
    "ai.onnx.ml:LinearClassifier": _linear_classifier,
    "ai.onnx.ml:LinearRegressor": _linear_regressor,
    "ai.onnx.ml:Normalizer": _normalizer,
    "ai.onnx.ml:OneHotEncoder": _one_hot_encoder,
    "ai.onnx.ml:SVMRegressor": _svm_regressor,
    "ai.onnx.ml:Scaler": _scaler,
}
