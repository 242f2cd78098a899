"""Makers of ONNX nodes: control flow, sequences, optionals, text, `ai.onnx.ml`, and random numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper

from .extents import RUNS
from .onnx_elements import ELEMENTS
from .onnx_layers import LAYERS
from .onnx_models import Maker, OnnxGenerator, Skipped, Unfit, Value, type_proto

F32 = ("float32",)

_INNER = (
    *("Relu", "Sigmoid", "Add", "Mul", "Sub", "Neg", "Abs", "Tanh", "Softmax", "MatMul", "Transpose", "ReduceSum", "ReduceMean"),
    *("Concat", "Slice", "Unsqueeze", "Cast", "Where", "Clip", "Exp", "Pad", "Less", "Gather", "Identity", "TopK", "CumSum"),
)
"""Operators in bodies of control flow."""


def _inner() -> Sequence[Maker]:
    return [(ELEMENTS | LAYERS)[name] for name in _INNER]


def _graph(
    g: OnnxGenerator, nodes: Sequence[onnx.NodeProto], inputs: Sequence[onnx.ValueInfoProto], outputs: Sequence[Value]
) -> onnx.GraphProto:
    """Make a subgraph. An output that the body does not compute passes through an Identity."""
    node_outputs = {name for node in nodes for name in node.output}
    more, names = [], []
    for value in outputs:
        name = value.name
        if name not in node_outputs or name in names:
            g.count += 1
            more.append(helper.make_node("Identity", [name], [f"i{g.count}"], name=f"Identity_{g.count}"))
            name = f"i{g.count}"
        names.append(name)
    infos = [type_proto(Value(name, value.arrays), [None] * value.rank) for name, value in zip(names, outputs, strict=True)]
    return helper.make_graph([*nodes, *more], f"body{g.count}", inputs, infos)


def _if(g: OnnxGenerator) -> None:
    """Two branches whose result has one element type and rank, but not always one shape."""
    condition = _flag(g)
    nodes, values = g.body(g.number(1, 3), _inner())
    tensors = [value for value in values if value.tensor and value.dtype != "string"]
    result = g.pick(tensors)
    else_nodes, drawn = g.body(g.number(1, 3), _inner())
    candidates = [
        value for value in (*drawn, *g.values) if value.tensor and (value.dtype, value.rank) == (result.dtype, result.rank)
    ]
    equal = [value for value in candidates if value.dims == result.dims]
    other = g.pick(equal if equal and g.chance(0.7) else candidates)
    branches = [_graph(g, nodes, [], [result]), _graph(g, else_nodes, [], [other])]
    if g.chance(0.5):
        branches.reverse()
    g.node("If", [condition], then_branch=branches[0], else_branch=branches[1])


def _flag(g: OnnxGenerator) -> Value:
    if g.chance(0.5):
        return g.input([np.array(bool(g.number(0, 1))) for _ in range(RUNS)])
    x = g.data(F32, (1, 2, 3), lambda value: value.all(np.isfinite))
    axes: list[Value | None] = []
    total = g.node("ReduceSum", [x, *axes], keepdims=0)
    return g.node("Greater", [total, g.constant(np.float32(g.number(-1, 1)))])


def _loop(g: OnnxGenerator) -> None:
    """A loop with a state, a stacked output, a trip count and sometimes a condition on the state."""
    state = g.data(F32, (1, 2, 3), lambda value: value.all(np.isfinite))
    trips = g.pick((0, 1, 2, 3))
    g.count += 1
    number, going, inner = (
        Value(f"b{g.count}_{k}", (array,) * RUNS) for k, array in enumerate((np.array(0), np.array(True), np.array(0)))
    )
    inner = Value(inner.name, state.arrays)
    nodes, values = g.body(g.number(1, 3), _inner(), [number, inner])
    fitting = [value for value in values if value.dtype == "float32" and value.dims == state.dims]
    new = g.pick(fitting) if fitting else inner
    stacked = [
        value
        for value in values
        if value.tensor and value.dtype != "string" and all(value.name != each.name for each in (number, inner))
    ]
    if not stacked:
        raise Unfit
    output = g.pick(stacked)
    if any(0 in dim for dim in output.dims):
        raise Skipped("Loop: ONNX Runtime stacks outputs without elements once")
    limit = g.constant(np.array(trips))
    if g.chance(0.4):
        total = _deferred(g, "ReduceMax", [new.name], keepdims=0)
        keep = _deferred(g, "Less", [total.output[0], g.constant(np.float32(2)).name])
        nodes = [*nodes, total, keep]
        condition = Value(keep.output[0], (np.array(True),) * RUNS)
    else:
        condition = going
    infos = [type_proto(number, []), type_proto(going, []), type_proto(inner, [None] * inner.rank)]
    body = _graph(g, nodes, infos, [condition, new, output])
    count = limit if g.chance(0.7) else g.input([np.array(g.pick((0, 1, 2, 3))) for _ in range(RUNS)])
    before = None if g.chance(0.6) else g.constant(np.array(True))
    if before is None and condition is not going:
        raise Skipped("Loop: without the operand `cond`, that of the body is ignored, in ONNX Runtime it is not")
    loop_output = g.several("Loop", [count, before, state], 2, body=body)[1]
    if any(array.shape[1:] != one.shape for array, one in zip(loop_output.arrays, output.arrays, strict=True)):
        raise Skipped("Loop: without iterations, ONNX Runtime stacks outputs of extents 0")


def _deferred(g: OnnxGenerator, operator: str, inputs: Sequence[str], **attrs: Any) -> onnx.NodeProto:
    """Make a node that runs only as a part of a subgraph."""
    g.count += 1
    return helper.make_node(operator, list(inputs), [f"t{g.count}_0"], name=f"{operator}_{g.count}", **attrs)


def _scan(g: OnnxGenerator) -> None:
    """A scan over the first axis of a value, forwards or backwards."""
    xs = g.data(F32, (1, 2, 3), lambda value: value.least(0) > 0)
    state = g.operand(xs.dims[1:], "float32")
    g.count += 1
    inner = Value(f"b{g.count}_0", state.arrays)
    row = Value(f"b{g.count}_1", tuple(array[0] for array in xs.arrays))
    row = Value(row.name, tuple(map(np.asarray, row.arrays)))
    nodes, values = g.body(g.number(1, 3), _inner(), [inner, row])
    fitting = [value for value in values if value.dtype == "float32" and value.dims == state.dims]
    outputs = [g.pick(fitting) if fitting else row, g.pick([value for value in values if value.tensor and value.dtype != "string"])]
    body = _graph(g, nodes, [type_proto(inner, [None] * inner.rank), type_proto(row, [None] * row.rank)], outputs)
    attrs = {"scan_input_directions": [g.number(0, 1)]} if g.chance(0.4) else {}
    g.several("Scan", [state, xs], 2, body=body, num_scan_inputs=1, **attrs)


# --- sequences and optionals ------------------------------------------------------------------------------------------


def _items(g: OnnxGenerator) -> list[Value]:
    x = g.data(("float32", "int64"), (1, 2, 3))
    return [x, *(g.operand(x.dims, x.dtype) for _ in range(g.number(0, 2)))]


def _draw_index(g: OnnxGenerator, length: int) -> Value:
    return g.constant(np.array(g.number(-length, length - 1), np.int64))


def _sequence(g: OnnxGenerator) -> None:
    """Build a sequence, change it, and read it."""
    items = _items(g)
    sequence = g.node("SequenceConstruct", items)
    length = len(items)
    for _ in range(g.number(0, 2)):
        if g.chance(0.6):
            inputs: list[Value | None] = [sequence, g.operand(items[0].dims, items[0].dtype)]
            sequence = g.node("SequenceInsert", [*inputs, *([_draw_index(g, length)] if g.chance(0.6) else [])])
            length += 1
        elif length > 1:
            sequence = g.node("SequenceErase", [sequence, *([_draw_index(g, length)] if g.chance(0.6) else [])])
            length -= 1
    match g.number(0, 2):
        case 0:
            g.node("SequenceAt", [sequence, _draw_index(g, length)])
        case 1:
            g.node("SequenceLength", [sequence])
        case _:
            new = g.number(0, 1)
            g.node("ConcatFromSequence", [sequence], axis=g.number(0, items[0].rank - 1), new_axis=new)


def _sequence_empty(g: OnnxGenerator) -> None:
    x = g.data(("float32", "int64"), (1, 2))
    empty = g.node("SequenceEmpty", [], dtype=1 if x.dtype == "float32" else 7)
    g.node("SequenceAt", [g.node("SequenceInsert", [empty, x]), g.constant(np.array(0))])


def _split_to_sequence(g: OnnxGenerator) -> None:
    x = g.data(("float32", "int64"), (1, 2, 3), lambda value: value.least(0) > 0)
    split = g.constant(np.array(g.number(1, 3))) if g.chance(0.7) else None
    sequence = g.node("SplitToSequence", [x, split], axis=0, **({"keepdims": g.number(0, 1)} if split is None else {}))
    g.node("SequenceAt", [sequence, g.constant(np.array(g.pick((0, -1))))])


def _optional(g: OnnxGenerator) -> None:
    x = g.data(("float32", "int64"), (1, 2))
    optional = g.node("Optional", [x]) if g.chance(0.7) else x
    g.node("OptionalHasElement", [optional])
    g.node("OptionalGetElement", [optional])
    if optional is not x:
        g.values = [value for value in g.values if value is not optional]  # only these operators read it


# --- text and tables --------------------------------------------------------------------------------------------------


def _words(g: OnnxGenerator, ranks: Sequence[int] = (0, 1, 2)) -> Value:
    return g.data(("string",), ranks)


def _string_concat(g: OnnxGenerator) -> None:
    x = _words(g)
    g.node("StringConcat", [x, g.beside(x)])


def _string_split(g: OnnxGenerator) -> None:
    attrs: dict[str, Any] = {"delimiter": g.pick(("", "e", "-"))} if g.chance(0.8) else {}
    if g.chance(0.3):
        attrs["maxsplit"] = 1
    x = _words(g)
    if attrs.get("delimiter") and not x.all(lambda array: array != ""):
        raise Skipped("StringSplit: an empty string has one part, in ONNX Runtime none")
    g.several("StringSplit", [x], 2, **attrs)


def _string_normalizer(g: OnnxGenerator) -> None:
    x = g.data(("string",), (1,), lambda value: value.least(0) > 0)
    attrs: dict[str, Any] = {"case_change_action": g.pick(("LOWER", "UPPER", "NONE")), "is_case_sensitive": 1}
    if g.chance(0.5):
        attrs["stopwords"] = ["one", "3"]
    g.node("StringNormalizer", [x], **attrs)


def _regex(g: OnnxGenerator) -> None:
    g.node("RegexFullMatch", [_words(g)], pattern=g.pick((r"[a-z]+", r"\d", r".*o.*", r"(one|Two)")))


def _tf_idf(g: OnnxGenerator) -> None:
    x = g.data(("int64", "int32"), (1, 2), lambda value: all(all(dim) for dim in value.dims))
    attrs: dict[str, Any] = {
        "mode": g.pick(("TF", "IDF", "TFIDF")),
        "min_gram_length": 1,
        "max_gram_length": 2,
        "max_skip_count": g.number(0, 1),
    }
    attrs |= {"ngram_counts": [0, 3], "ngram_indexes": [0, 1, 2, 3, 4], "pool_int64s": [0, 1, 2, 1, 2, 0, 1]}
    g.node("TfIdfVectorizer", [x], **attrs)


def _label_encoder(g: OnnxGenerator) -> None:
    if g.chance(0.5):
        g.node("ai.onnx.ml:LabelEncoder", [_words(g, (1, 2))], keys_strings=["one", "3"], values_int64s=[5, 6], default_int64=-1)
        return
    x = g.data(("int64",), (1, 2))
    g.node("ai.onnx.ml:LabelEncoder", [x], keys_int64s=[0, 1, 3], values_floats=[0.5, 1.5, 2.5], default_float=-1.0)


def _feature_extractor(g: OnnxGenerator) -> None:
    x = g.data(("float32", "int64", "float64"), (2,), lambda value: value.least(1) > 0 and value.least(0) > 0)
    g.node("ai.onnx.ml:ArrayFeatureExtractor", [x, g.constant(g.array((g.number(1, 4),), "int64", 0, x.least(1) - 1))])


def _binarizer(g: OnnxGenerator) -> None:
    g.node("ai.onnx.ml:Binarizer", [g.data(F32, (1, 2, 3))], threshold=g.pick((0.0, 0.5)))


def _features(g: OnnxGenerator, dtypes: Sequence[str] = F32) -> tuple[Value, int]:
    """Draw a table: rows, and a number of columns that is the same in all runs."""
    x = g.data(dtypes, (2,), lambda value: len(set(value.dims[1])) == 1 and value.least(1) > 0 and value.least(0) > 0)
    return x, x.dims[1][0]


def _imputer(g: OnnxGenerator) -> None:
    x, count = _features(g)
    values = [0.5] if g.chance(0.5) else [float(number) for number in range(count)]
    g.node("ai.onnx.ml:Imputer", [x], imputed_value_floats=values, replaced_value_float=g.pick((float("nan"), 1.0)))


def _linear_classifier(g: OnnxGenerator) -> None:
    x, count = _features(g)
    classes = g.number(3, 4)
    attrs: dict[str, Any] = {
        "coefficients": g.array((classes * count,), "float32").tolist(),
        "intercepts": g.array((classes,), "float32").tolist(),
    }
    attrs |= {"classlabels_ints": list(range(classes)), "post_transform": g.pick(("NONE", "SOFTMAX", "LOGISTIC"))}
    g.several("ai.onnx.ml:LinearClassifier", [x], 2, **attrs)


def _linear_regressor(g: OnnxGenerator) -> None:
    x, count = _features(g)
    targets = g.number(1, 3)
    coefficients = g.array((targets * count,), "float32").tolist()
    g.node(
        "ai.onnx.ml:LinearRegressor",
        [x],
        coefficients=coefficients,
        intercepts=g.array((targets,), "float32").tolist(),
        targets=targets,
    )


def _normalizer(g: OnnxGenerator) -> None:
    x, _ = _features(g)
    g.node("ai.onnx.ml:Normalizer", [x], norm=g.pick(("MAX", "L1", "L2")))


def _one_hot_encoder(g: OnnxGenerator) -> None:
    x = g.data(("int64", "float32"), (1, 2), low=0, high=4)
    g.node("ai.onnx.ml:OneHotEncoder", [x], cats_int64s=[0, 1, 2, 3, 4], zeros=1)


def _scaler(g: OnnxGenerator) -> None:
    x, count = _features(g)
    offset, scale = (g.array((count,), "float32").tolist() for _ in range(2))
    g.node("ai.onnx.ml:Scaler", [x], offset=offset, scale=scale)


def _svm(g: OnnxGenerator) -> None:
    x, count = _features(g)
    vectors = g.number(1, 3)
    kernel = g.pick(("LINEAR", "RBF", "POLY"))
    g.node(
        "ai.onnx.ml:SVMRegressor",
        [x],
        coefficients=g.array((vectors,), "float32").tolist(),
        support_vectors=g.array((vectors * count,), "float32").tolist(),
        n_supports=vectors,
        rho=[0.5],
        kernel_type=kernel,
        kernel_params=[0.1, 0.5, 2.0],
    )


def _tree(kind: str) -> Maker:
    """A tree of depth two, whose leaves have one weight each."""

    def make(g: OnnxGenerator) -> None:
        x, count = _features(g)
        attrs: dict[str, Any] = {
            "nodes_treeids": [0] * 5,
            "nodes_nodeids": list(range(5)),
            "nodes_featureids": [g.number(0, count - 1), g.number(0, count - 1), 0, 0, 0],
            "nodes_values": [*g.array((2,), "float32").tolist(), 0.0, 0.0, 0.0],
            "nodes_modes": [g.pick(("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GT")), "BRANCH_LEQ", "LEAF", "LEAF", "LEAF"],
            "nodes_truenodeids": [1, 3, 0, 0, 0],
            "nodes_falsenodeids": [2, 4, 0, 0, 0],
            "nodes_missing_value_tracks_true": [0] * 5,
            "post_transform": "NONE",
        }
        attrs["nodes_modes"][1] = attrs["nodes_modes"][0]
        weights = g.array((3,), "float32").tolist()
        prefix = "target" if kind == "Regressor" else "class"
        ids = [0, 0, 0] if kind == "Regressor" else [0, 1, 2]
        attrs |= {f"{prefix}_treeids": [0] * 3, f"{prefix}_nodeids": [2, 3, 4], f"{prefix}_ids": ids, f"{prefix}_weights": weights}
        if kind == "Regressor":
            g.node("ai.onnx.ml:TreeEnsembleRegressor", [x], n_targets=1, **attrs)
        else:
            g.several("ai.onnx.ml:TreeEnsembleClassifier", [x], 2, classlabels_int64s=[0, 1, 2], **attrs)

    return make


# --- random numbers ---------------------------------------------------------------------------------------------------


def _random(name: str) -> Maker:
    def make(g: OnnxGenerator) -> None:
        attrs: dict[str, Any] = {"seed": float(g.number(1, 99))}
        if "Uniform" in name:
            attrs |= {"low": -1.0, "high": 2.0}
        elif "Normal" in name:
            attrs |= {"mean": 0.5, "scale": 2.0}
        match name:
            case "Bernoulli":
                inputs = [g.data(F32, (1, 2), low=0, high=1)]
            case "Multinomial":
                inputs = [g.operand([g.dim(), (g.number(2, 5),) * RUNS], "float32", -1, 1)]
                attrs["sample_size"] = g.number(1, 5)
            case "RandomNormalLike" | "RandomUniformLike":
                inputs = [g.data(("float32", "float64"), (1, 2, 3))]
            case _:
                inputs = []
                attrs["shape"] = [g.number(1, 4) for _ in range(g.number(1, 3))]
        drawn = g.several(name, inputs, 1, **attrs)[0]
        # Only what is no random number is compared: the shape, and that all values are finite. `random_numbers` checks the values.
        wide = drawn if drawn.dtype in ("float32", "float64") else g.node("Cast", [drawn], to=onnx.TensorProto.FLOAT)
        g.node("Not", [g.node("IsInf", [wide])])
        g.node("Shape", [drawn])
        g.values = [value for value in g.values if value not in (drawn, wide)]
        g.folded = [value for value in g.folded if value not in (drawn, wide)]

    return make


HOST: Mapping[str, Maker] = {
    "If": _if,
    "Loop": _loop,
    "Scan": _scan,
    "SequenceConstruct": _sequence,
    "SequenceInsert": _sequence,
    "SequenceErase": _sequence,
    "SequenceAt": _sequence,
    "SequenceLength": _sequence,
    "ConcatFromSequence": _sequence,
    "SequenceEmpty": _sequence_empty,
    "SplitToSequence": _split_to_sequence,
    "Optional": _optional,
    "StringConcat": _string_concat,
    "StringSplit": _string_split,
    "StringNormalizer": _string_normalizer,
    "RegexFullMatch": _regex,
    "TfIdfVectorizer": _tf_idf,
    "ai.onnx.ml:LabelEncoder": _label_encoder,
    "ai.onnx.ml:ArrayFeatureExtractor": _feature_extractor,
    "ai.onnx.ml:Binarizer": _binarizer,
    "ai.onnx.ml:Imputer": _imputer,
    "ai.onnx.ml:LinearClassifier": _linear_classifier,
    "ai.onnx.ml:LinearRegressor": _linear_regressor,
    "ai.onnx.ml:Normalizer": _normalizer,
    "ai.onnx.ml:OneHotEncoder": _one_hot_encoder,
    "ai.onnx.ml:Scaler": _scaler,
    "ai.onnx.ml:SVMRegressor": _svm,
    "ai.onnx.ml:TreeEnsembleRegressor": _tree("Regressor"),
    "ai.onnx.ml:TreeEnsembleClassifier": _tree("Classifier"),
    **{
        name: _random(name)
        for name in ("Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike")
    },
}
"""Makers by the operator that they are for."""

MAKERS: Mapping[str, Maker] = {**ELEMENTS, **LAYERS, **HOST}
"""Makers by the operator that they are for. A name may have a comma and a form of the operator behind it."""

_SINCE = {
    **dict.fromkeys(("HardSwish", "Trilu"), 14),
    **dict.fromkeys(("CastLike", "Bernoulli"), 15),
    **dict.fromkeys(("ScatterND", "GridSample", "RoiAlign"), 16),
    **dict.fromkeys(("LayerNormalization", "DFT", "STFT", "HannWindow", "HammingWindow", "BlackmanWindow", "MelWeightMatrix"), 17),
    **dict.fromkeys(
        ("Mish", "BitwiseNot", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "CenterCropPad", "LpPool", "Col2Im", "Optional"), 18
    ),
    "DeformConv": 19,
    **dict.fromkeys(("Gelu", "AffineGrid", "DFT, axis as input", "StringConcat", "StringSplit", "RegexFullMatch"), 20),
    "GroupNormalization": 21,
    **dict.fromkeys(("RMSNormalization", "Attention", "RotaryEmbedding"), 23),
    **dict.fromkeys(("Swish", "TensorScatter"), 24),
    "CumProd": 26,
}
_UNTIL = {
    "DFT": 20,
    **dict.fromkeys(("HardSwish", "Mish", "GlobalLpPool", "RoiAlign", "MaxRoiPool", "Bernoulli", "Multinomial"), 22),
    **dict.fromkeys(("RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"), 22),
}
"""The first opset that ONNX Runtime lacks an operator for."""


def names_at(opset: int) -> list[str]:
    """Return the names of the makers whose operators ONNX Runtime has at an opset."""
    return [name for name in MAKERS if _SINCE.get(name, 1) <= opset < _UNTIL.get(name, 1000)]
