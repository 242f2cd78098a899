"""TensorFlow Lite models of several graphs, with memory, and with sizes left open."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from plugins.tflite.tests.build import Graph, Op, Tensor, check_litert, file, litert, single

from inlaid.graph.interp import evaluate
from inlaid_runtime.errors import ModelImportError
from inlaid_tflite import first_states, load

Array = np.ndarray[Any, Any]
F32 = Tensor((3,))
FLAG = Tensor((1,), "bool")
COUNT = Tensor((1,), "int32")


def fixed(values: Any, dtype: str = "float32") -> Tensor:
    data = np.asarray(values, dtype)
    return Tensor(data.shape, dtype, data)


def binary(name: str) -> Graph:
    """A graph of one operator between two tensors."""
    options = ("AddOptions" if name == "ADD" else "MulOptions", {})
    return Graph((F32, F32, F32), (0, 1), (2,), (Op(name, (0, 1), (2,), options),))


X, Y = np.array([1.0, -2.0, 3.0], np.float32), np.array([0.5, 4.0, -1.0], np.float32)


@pytest.mark.parametrize("flag", [True, False])
def test_a_branch(flag: bool) -> None:
    chosen = ("IfOptions", {"thenSubgraphIndex": 1, "elseSubgraphIndex": 2})
    main = Graph((FLAG, F32, F32, F32), (0, 1, 2), (3,), (Op("IF", (0, 1, 2), (3,), chosen),))
    check_litert(file(main, binary("ADD"), binary("MUL")), [np.array([flag]), X, Y])
    constant_graph = Graph((fixed([flag], "bool"), F32, F32, F32), (1, 2), (3,), (Op("IF", (0, 1, 2), (3,), chosen),))
    check_litert(file(constant_graph, binary("ADD"), binary("MUL")), [X, Y])


@pytest.mark.parametrize("turns", [0, 1, 5])
def test_a_loop(turns: int) -> None:
    condition = Graph((COUNT, F32, fixed([turns], "int32"), FLAG), (0, 1), (3,), (Op("LESS", (0, 2), (3,), ("LessOptions", {})),))
    add = ("AddOptions", {})
    body = Graph(
        (COUNT, F32, fixed([1], "int32"), COUNT, F32), (0, 1), (3, 4), (Op("ADD", (0, 2), (3,), add), Op("ADD", (1, 1), (4,), add))
    )
    going = ("WhileOptions", {"condSubgraphIndex": 1, "bodySubgraphIndex": 2})
    main = Graph((COUNT, F32, COUNT, F32), (0, 1), (2, 3), (Op("WHILE", (0, 1), (2, 3), going),))
    check_litert(file(main, condition, body), [np.zeros(1, np.int32), X])


def test_a_loop_that_exchanges_its_values() -> None:
    """LiteRT copies one over the other: this is what the turns say."""
    condition = Graph(
        (COUNT, F32, F32, fixed([3], "int32"), FLAG), (0, 1, 2), (4,), (Op("LESS", (0, 3), (4,), ("LessOptions", {})),)
    )
    add = Op("ADD", (0, 3), (4,), ("AddOptions", {}))
    body = Graph((COUNT, F32, F32, fixed([1], "int32"), COUNT), (0, 1, 2), (4, 2, 1), (add,))
    going = ("WhileOptions", {"condSubgraphIndex": 1, "bodySubgraphIndex": 2})
    main = Graph((COUNT, F32, F32) * 2, (0, 1, 2), (4, 5), (Op("WHILE", (0, 1, 2), (3, 4, 5), going),))
    actual = evaluate(load(file(main, condition, body)), [np.zeros(1, np.int32), X, Y])
    np.testing.assert_array_equal(actual, [Y, X])


def test_a_call() -> None:
    main = Graph((F32, F32, F32), (0, 1), (2,), (Op("CALL", (0, 1), (2,), ("CallOptions", {"subgraph": 1})),))
    module = load(file(main, binary("ADD")))
    np.testing.assert_array_equal(evaluate(module, [X, Y]), X + Y)


def test_graphs_that_call_themselves_are_refused() -> None:
    call = Graph((F32, F32), (0,), (1,), (Op("CALL", (0,), (1,), ("CallOptions", {"subgraph": 0})),))
    with pytest.raises(ModelImportError, match="functions and subgraphs must be nested at most"):
        load(file(call))


def test_graphs_that_multiply_are_refused() -> None:
    """Twenty graphs, each of which calls the next one nine times: 9^20 operators in a few kilobytes."""
    graphs = []
    for number in range(20):
        calls = tuple(Op("CALL", (0,), (1,), ("CallOptions", {"subgraph": number + 1})) for _ in range(9))
        graphs.append(Graph((F32, F32), (0,), (1,), calls))
    graphs.append(Graph((F32, F32), (0,), (1,), (Op("FLOOR", (0,), (1,)),)))
    with pytest.raises(ModelImportError, match="the called graphs must have at most 38100 operators"):
        load(file(*graphs))


# --- variables --------------------------------------------------------------------------------------------------------

HANDLE = Tensor((), "resource")
NAMED = ("VarHandleOptions", {"sharedName": "total"})


def initialized(value: Array) -> Graph:
    ops = (Op("VAR_HANDLE", (), (0,), NAMED), Op("ASSIGN_VARIABLE", (0, 1), ()))
    return Graph((HANDLE, fixed(value)), (), (), ops)


ONCE = Op("CALL_ONCE", (), (), ("CallOnceOptions", {"initSubgraphIndex": 1}))


def test_variables_that_stay_are_constants() -> None:
    ops = (ONCE, Op("VAR_HANDLE", (), (1,), NAMED), Op("READ_VARIABLE", (1,), (2,)), Op("ADD", (0, 2), (3,), ("AddOptions", {})))
    data = file(Graph((F32, HANDLE, F32, F32), (0,), (3,), ops), initialized(Y))
    check_litert(data, [X])
    assert first_states(data) == {}


def test_variables_that_change_go_in_and_out() -> None:
    ops = (
        ONCE,
        Op("VAR_HANDLE", (), (1,), NAMED),
        Op("READ_VARIABLE", (1,), (2,)),
        Op("ADD", (0, 2), (3,), ("AddOptions", {})),
        Op("ASSIGN_VARIABLE", (1, 3), ()),
    )
    data = file(Graph((F32, HANDLE, F32, F32), (0,), (3,), ops), initialized(Y))
    module, states = load(data), first_states(data)
    assert list(states) == ["total"] and [param.name for param in module.main.params] == ["t0", "total"]
    state = states["total"]
    for _ in range(2):
        output, state = evaluate(module, {"t0": X, "total": state})  # type: ignore[misc, assignment]
        np.testing.assert_array_equal(output, state)
    np.testing.assert_array_equal(state, Y + X + X)
    np.testing.assert_array_equal(litert(data, [X])[0], X + Y)


def test_variables_without_a_value_are_refused() -> None:
    ops = (Op("VAR_HANDLE", (), (0,), NAMED), Op("READ_VARIABLE", (0,), (1,)))
    with pytest.raises(ModelImportError, match="variable total is read before it is assigned"):
        load(file(Graph((HANDLE, F32), (), (1,), ops)))


# --- sizes left open --------------------------------------------------------------------------------------------------


def rows(count: int, left: tuple[int, ...] = (0,)) -> bytes:
    """A model of rows: what they are, twice side by side, as one vector."""
    x, both = Tensor((count, 3), open=left, name="image"), Tensor((count, 6), open=left)
    shape, last = Tensor((2,), "int32"), Tensor((1,), "int32")
    tensors = (x, both, shape, fixed([0], "int32"), fixed([1], "int32"), last, fixed([-1], "int32"), Tensor((2,), "int32"))
    tensors = (*tensors, Tensor((count, 6), open=left), Tensor((count, 6), open=left))
    ops = (
        Op("CONCATENATION", (0, 0), (1,), ("ConcatenationOptions", {"axis": 1})),
        Op("SHAPE", (0,), (2,), ("ShapeOptions", {"outType": 2})),
        Op("STRIDED_SLICE", (2, 3, 4, 4), (5,), ("StridedSliceOptions", {})),
        Op("CONCATENATION", (5, 6), (7,), ("ConcatenationOptions", {"axis": 0})),
        Op("RESHAPE", (1, 7), (8,)),
        Op("REVERSE_V2", (8, 3), (9,)),
    )
    return file(Graph(tensors, (0,), (9,), ops))


def test_sizes_left_open_are_those_of_the_file_unless_others_are_given() -> None:
    x = np.arange(15, dtype=np.float32).reshape(5, 3)
    expected = np.concatenate([x, x], 1)[::-1]
    check_litert(rows(1), [x[:1]])
    check_litert(rows(5, ()), [x])
    for dims in ({"image_0": 5}, {"image_0": (1, 8)}):
        np.testing.assert_array_equal(evaluate(load(rows(1), dims), [x]), expected)
    with pytest.raises(ModelImportError, match="the model has no dynamic size 'batch'") as caught:
        load(rows(1), {"batch": 5})
    assert "image_0" in str(caught.value.remedy)


def test_rows_of_a_fully_connected_layer_are_as_many_as_there_are() -> None:
    weights = Tensor((2, 3), "int8", np.array([[1, -2, 3], [4, 5, -6]], np.int8), 0.5)
    layer = Op("FULLY_CONNECTED", (0, 1, -1), (2,), ("FullyConnectedOptions", {}))

    def model(rows: int) -> bytes:
        x, y = (Tensor((rows, width), "int8", scale=0.5, open=(0,), name=name) for width, name in ((3, "x"), (2, "y")))
        return file(Graph((x, weights, y), (0,), (2,), (layer,)))

    x = np.arange(-9, 9, dtype=np.int8).reshape(6, 3)
    (expected,) = check_litert(model(6), [x])
    np.testing.assert_array_equal(evaluate(load(model(1), {"x_0": (1, 8)}), [x]), expected)


@pytest.mark.parametrize("dtype", ["float32", "uint8"])
def test_rows_are_quantized_as_many_as_there_are(dtype: str) -> None:
    """In vectors of 8 and 16, and one by one where these end: halves lie between steps."""

    def model(rows: int) -> bytes:
        x, y = (Tensor((rows, 7), each, scale=scale, open=(0,)) for each, scale in ((dtype, 0.5), ("uint8", 2.0)))
        x = replace(x, name="x", scale=None if dtype == "float32" else x.scale)
        return single("QUANTIZE", [x], y)

    x = (np.arange(35).reshape(5, 7) % 16).astype(dtype)
    (expected,) = check_litert(model(5), [x])
    for dims in ({"x_0": 5}, {"x_0": (1, 8)}):
        np.testing.assert_array_equal(evaluate(load(model(1), dims), [x]), expected)


def test_images_of_unknown_sizes_are_padded_only_with_nothing() -> None:
    def model(padding: int) -> bytes:
        x, y = Tensor((1, 6, 6, 2), open=(1,), name="x"), Tensor((1, 3, 3, 2), open=(1,))
        window = {"strideW": 2, "strideH": 2, "filterWidth": 2, "filterHeight": 2, "padding": padding}
        return single("MAX_POOL_2D", [x], y, ("Pool2DOptions", window))

    with pytest.raises(ModelImportError, match="padding SAME requires static image sizes, got x_1 by 6: set them"):
        load(model(0), {"x_1": (2, 16)})
    x = np.arange(96, dtype=np.float32).reshape(1, 8, 6, 2)
    for dims in ({"x_1": 8}, {"x_1": (2, 16)}):
        actual = evaluate(load(model(1), dims), [x])
        np.testing.assert_array_equal(actual, x[:, 1::2, 1::2])


# --- boxes ------------------------------------------------------------------------------------------------------------


def test_boxes() -> None:
    generator = np.random.default_rng(1)
    corners = generator.uniform(0, 1, (12, 2)).astype(np.float32)
    boxes = np.concatenate([corners, corners + generator.uniform(0.1, 0.6, (12, 2)).astype(np.float32)], 1)
    scores = generator.uniform(0, 1, 12).astype(np.float32)
    inputs = [Tensor((12, 4)), Tensor((12,)), fixed(8, "int32"), fixed(0.3), fixed(0.2)]
    count = Tensor((), "int32")
    check_litert(single("NON_MAX_SUPPRESSION_V4", inputs, [Tensor((8,), "int32"), count]), [boxes, scores])
    results = [Tensor((8,), "int32"), Tensor((8,)), count]
    check_litert(single("NON_MAX_SUPPRESSION_V5", [*inputs, fixed(0.0)], results), [boxes, scores])
    with pytest.raises(ModelImportError, match="set soft_nms_sigma to 0"):
        load(single("NON_MAX_SUPPRESSION_V5", [*inputs, fixed(0.5)], results))
