"""Sizes that models compute at run time, on every path: compiled for x86 where it is installed, on the reference target, and by the
interpreter, beside ONNX Runtime."""

from __future__ import annotations

import importlib.util
import itertools
from functools import cache
from typing import Any

import numpy as np
import onnx.parser
import onnxruntime
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from inlaid import ops
from inlaid.driver import compile_module
from inlaid.graph.interp import evaluate
from inlaid.graph.keys import structural_key
from inlaid.graph.parse import parse
from inlaid.graph.text import print_module
from inlaid.graph.verify import verify
from inlaid_onnx import load
from inlaid_runtime import load as load_package
from inlaid_runtime.errors import InlaidError, InputError, KernelFault, ModelImportError

TARGETS = ("x86", "reference") if importlib.util.find_spec("inlaid_x86") else ("reference",)
QUICK = settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])

Array = np.ndarray[Any, Any]


def int64(*values: int) -> Array:
    return np.array(values, np.int64)


def normal(*shape: int) -> Array:
    return np.random.default_rng(0).normal(size=shape).astype(np.float32)


@cache
def prepared(graph: str, opset: int = 17) -> tuple[Any, list[Any], Any]:
    """The module, what runs it, and ONNX Runtime's session."""
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : {opset}]>\n{graph}')
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    # Its optimizer assumes that no size is 0.
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    module = load(model)
    verify(module)
    return module, [compile_module(module, [target]) for target in TARGETS], session


def outcomes(graph: str, opset: int, inputs: dict[str, Array]) -> tuple[list[Any], Any]:
    """What each way of running a model gives, and what ONNX Runtime gives; None for an error."""
    module, executables, session = prepared(graph, opset)
    try:
        expected = session.run(None, inputs)
    except Exception:
        expected = None
    results: list[Any] = []
    for executable in executables:
        try:
            results.append(list(executable.run(inputs).values()))
        except InlaidError:
            results.append(None)
    try:
        value = evaluate(module, inputs)
        results.append(list(value) if isinstance(value, tuple) else [value])
    except InlaidError:
        results.append(None)
    return results, expected


def agree(graph: str, opset: int = 17, **inputs: Array) -> bool:
    """Assert that all ways of running a model agree with ONNX Runtime, in values or in failing. True for values."""
    runs, reference = outcomes(graph, opset, inputs)
    for results in runs:
        assert (results is None) == (reference is None), (results, reference)
        for result, expected in zip(results or (), reference or (), strict=True):
            assert result.shape == expected.shape and result.dtype == expected.dtype
            np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5)
    return reference is not None


MASK = """g (int64[b] lengths, float[b, d] x) => (float[b, t, d] y) {
  zero = Constant<value = int64 {0}>()
  one = Constant<value = int64 {1}>()
  first = Constant<value = int64[1] {1}>()
  longest = ReduceMax<keepdims = 0>(lengths)
  places = Range(zero, longest, one)
  column = Unsqueeze(lengths, first)
  inside = Less(places, column)
  mask = Cast<to = 1>(inside)
  m3 = Unsqueeze(mask, two)
  two = Constant<value = int64[1] {2}>()
  x3 = Unsqueeze(x, first)
  y = Mul(x3, m3)
}"""


@QUICK
@given(st.lists(st.integers(0, 9), min_size=1, max_size=4), st.integers(1, 3))
def test_a_mask_of_lengths(lengths, width):
    assert agree(MASK, lengths=np.array(lengths, np.int64), x=normal(len(lengths), width))


def test_the_same_value_is_the_same_size_and_downstream_is_native():
    module, executables, _ = prepared(MASK)
    assert len(bound(module)) == 1
    if "x86" in TARGETS:
        assert {region.target.split(":")[0] for region in executables[0].regions} == {"x86"}


def bound(module: Any) -> list[Any]:
    from inlaid.graph.ir import Call, post_order

    return [expr for expr in post_order(module.main) if isinstance(expr, Call) and expr.callee is ops.bind_size]


@QUICK
@given(st.lists(st.sampled_from([0.0, 1.0, -2.0]), min_size=0, max_size=6))
def test_expand_to_the_number_of_nonzeros(values):
    graph = """g (float[n] x, float c) => (float[r, k] y, float[r, k] z) {
      found = NonZero(x)  shape = Shape(found)  y = Expand(c, shape)  s = Relu(y)  z = Add(s, y)
    }"""
    assert agree(graph, x=np.array(values, np.float32), c=np.array(2, np.float32))


RESHAPE = "g (float[n, m] x, int64[3] s) => (float[a, b, c] y) { h = Relu(x)  t = Reshape(h, s)  y = Neg(t) }"


@QUICK
@given(st.integers(1, 4), st.integers(1, 6), st.lists(st.sampled_from([-2, -1, 0, 1, 2, 3, 4, 6]), min_size=3, max_size=3))
def test_reshape_copies_and_solves(rows, columns, shape):
    agree(RESHAPE, x=normal(rows, columns), s=np.array(shape, np.int64))


def test_reshape_that_cannot_hold_the_elements_is_an_error():
    for shape in ([2, 2, 2], [-1, -1, 24], [5, -1, 1], [-2, 12, 1]):
        assert not agree(RESHAPE, x=normal(4, 6), s=np.array(shape, np.int64))


def test_known_entries_of_a_computed_shape_stay_known():
    module, _, _ = prepared(
        """g (float[n, 12] x, int64 k) => (float[a, 3, b] y) {
          one = Constant<value = int64[1] {1}>()  three = Constant<value = int64[1] {3}>()  rest = Constant<value = int64[1] {-1}>()
          k1 = Reshape(k, one)  s = Concat<axis = 0>(k1, three, rest)  y = Reshape(x, s)
        }"""
    )
    assert module.main.body.type.shape[1] == 3


@QUICK
@given(st.integers(-5, 5), st.integers(-5, 5), st.integers(-3, 3))
def test_ranges_of_integers(start, limit, delta):
    graph = "g (int64 a, int64 b, int64 c) => (int64[k] y, int64[k] z) { y = Range(a, b, c)  z = Neg(y) }"
    agree(graph, a=np.array(start), b=np.array(limit), c=np.array(delta))


@QUICK
@given(st.integers(-5, 5), st.integers(-5, 5), st.sampled_from([-2.0, -0.5, 0.25, 1.0, 3.0]))
def test_ranges_of_floats(start, limit, delta):
    graph = "g (float a, float b, float c) => (float[k] y) { y = Range(a, b, c) }"
    assert agree(graph, **{n: np.array(v, np.float32) for n, v in zip("abc", (start, limit, delta), strict=True)})


@QUICK
@given(st.lists(st.integers(-1, 3), min_size=2, max_size=2))
def test_tile(repeats):
    graph = "g (float[n, m] x, int64[2] r) => (float[a, b] y) { y = Tile(x, r) }"
    assert agree(graph, x=normal(2, 3), r=np.array(repeats, np.int64)) == (min(repeats) >= 0)


@QUICK
@given(st.lists(st.integers(-1, 3), min_size=2, max_size=2))
def test_constant_of_shape(shape):
    graph = "g (int64[2] s) => (float[a, b] y) { h = ConstantOfShape<value = float[1] {2.0}>(s)  y = Neg(h) }"
    assert agree(graph, s=np.array(shape, np.int64)) == (min(shape) >= 0)


@QUICK
@given(st.lists(st.integers(-1, 3), min_size=4, max_size=4))
def test_pad(pads):
    graph = (
        'g (float[n, m] x, int64[4] p) => (float[a, b] y, float[c, d] z) { y = Pad(x, p)  h = Abs(p)  z = Pad<mode="edge">(x, h) }'
    )
    assert agree(graph, x=normal(3, 4), p=np.array(pads, np.int64))


@QUICK
@given(st.lists(st.integers(-1, 6), min_size=2, max_size=2))
def test_split(parts):
    graph = "g (float[n, m] x, int64[2] s) => (float[n, a] y, float[n, b] z) { y, h = Split<axis = 1>(x, s)  z = Neg(h) }"
    assert agree(graph, x=normal(2, 5), s=np.array(parts, np.int64)) == (sum(parts) == 5 and min(parts) >= 0)


@pytest.mark.parametrize("k", [-1, 0, 1, 5, 6])
def test_topk(k):
    graph = "g (float[n, m] x, int64[1] k) => (float[n, a] y, int64[n, a] z) { y, z = TopK(x, k) }"
    assert agree(graph, x=normal(2, 5), k=int64(k)) == (0 <= k <= 5)


@pytest.mark.parametrize("axis", [-3, -2, -1, 0, 1, 2])
def test_the_axis_of_a_running_sum(axis):
    graph = "g (float[n, m] x, int64 a) => (float[n, m] y) { y = CumSum(x, a) }"
    assert agree(graph, x=normal(2, 5), a=np.array(axis)) == (-2 <= axis < 2)


@QUICK
@given(
    st.permutations([0, -1]),
    st.lists(st.integers(-6, 6), min_size=2, max_size=2),
    st.lists(st.integers(-6, 6), min_size=2, max_size=2),
    st.lists(st.sampled_from([-2, -1, 1, 3]), min_size=2, max_size=2),
)
def test_axes_and_steps_of_a_slice(axes, starts, ends, steps):
    graph = """g (float[n, m] x, int64[2] s, int64[2] e, int64[2] a, int64[2] t) => (float[c, d] y) {
      h = Slice(x, s, e, a, t)  y = Neg(h)
    }"""
    positions = {name: np.array(value, np.int64) for name, value in zip("seat", (starts, ends, axes, steps), strict=True)}
    assert agree(graph, x=normal(4, 5), **positions)


def test_a_slice_along_an_axis_that_is_not_there_or_by_no_steps_is_an_error():
    graph = "g (float[n, m] x, int64[1] s, int64[1] e, int64[1] a, int64[1] t) => (float[c, d] y) { y = Slice(x, s, e, a, t) }"
    assert not agree(graph, x=normal(4, 5), s=int64(0), e=int64(3), a=int64(2), t=int64(1))
    assert not agree(graph, x=normal(4, 5), s=int64(0), e=int64(3), a=int64(1), t=int64(0))


@pytest.mark.parametrize("depth", [1, 3, 5])
def test_depth_of_one_hot(depth):
    graph = "g (int64[n] x, int64 d, float[2] v) => (float[n, m] y) { y = OneHot(x, d, v) }"
    assert agree(graph, x=int64(0, 2, -1), d=np.array(depth), v=np.array([0, 1], np.float32))


@pytest.mark.parametrize("size", [(4, 5), (8, 3), (2, 10)])
def test_sizes_of_a_resize(size):
    graph = """g (float[1, 2, n, m] x, int64[2] s) => (float[1, 2, a, b] y) {
      head = Constant<value = int64[2] {1, 2}>()  sizes = Concat<axis = 0>(head, s)  y = Resize<mode = "linear">(x, , , sizes)
    }"""
    assert agree(graph, x=normal(1, 2, 4, 5), s=int64(*size))


def test_scales_of_a_resize():
    """As exporters write a resize to the size of another tensor: the quotients of the sizes, behind ones for batch and channels."""
    graph = """g (float[1, 2, n, m] x, int64[2] s) => (float[1, 2, a, b] y) {
      head = Constant<value = float[2] {1.0, 1.0}>()
      two = Constant<value = int64[1] {2}>()  four = Constant<value = int64[1] {4}>()
      shape = Shape(x)  own = Slice(shape, two, four)  from = Cast<to = 1>(own)  to = Cast<to = 1>(s)
      rest = Div(to, from)  scales = Concat<axis = 0>(head, rest)  y = Resize<mode = "linear">(x, , scales)
    }"""
    assert prepared(graph)[0].main.body.type.shape[:2] == (1, 2)
    for size in ((4, 5), (8, 3), (2, 10), (1, 1)):
        assert agree(graph, x=normal(1, 2, 4, 5), s=int64(*size))
    heights = np.arange(1, 100, dtype=np.float32)
    short = next(int(height) for height in heights if np.float32(7) / height * height < 7)  # ONNX gives 6 rows there
    with pytest.raises(KernelFault, match="Resize: the computed scale of axis 2 must give an integer size in"):
        prepared(graph)[1][0].run({"x": normal(1, 2, short, 5), "s": int64(7, 5)})


@pytest.mark.parametrize("count", [-1, 0, 1, 10])
def test_the_number_of_boxes(count):
    graph = "g (float[1, n, 4] b, float[1, 1, n] s, int64[1] k) => (int64[q, 3] y) { y = NonMaxSuppression(b, s, k) }"
    boxes = np.sort(np.random.default_rng(1).random((1, 6, 2, 2)), axis=2).reshape(1, 6, 4).astype(np.float32)
    runs, reference = outcomes(graph, 17, {"b": boxes, "s": np.abs(normal(1, 1, 6)), "k": int64(count)})
    assert reference is not None and all(np.array_equal(results[0], reference[0]) for results in runs)


LOOP = """g (int64 k, bool c, int64 trips) => (float[q] y, float[r, 2] z) {
  one = Constant<value = int64 {1}>()
  always = Constant<value = bool {1}>()
  start = Constant<value = float[1, 2] {1.0, 2.0}>()
  h = If<
    then_branch = then () => (float[a] t) {
      zero = Constant<value = int64 {0}>()  r1 = Range(zero, k, one)  t = Cast<to = 1>(r1)
    },
    else_branch = otherwise () => (float[b] e) {
      two = Constant<value = int64 {2}>()  r2 = Range(two, k, one)  e = Cast<to = 1>(r2)
    }>(c)
  y = Relu(h)
  z = Loop<body = body (int64 i, bool on, float[m, 2] s) => (bool going, float[m2, 2] s2) {
    going = Identity(on)
    o1 = Constant<value = int64[1] {1}>()
    w = Constant<value = int64[1] {2}>()
    i1 = Reshape(i, o1)
    rows = Add(i1, o1)
    shape = Concat<axis = 0>(rows, w)
    more = ConstantOfShape<value = float[1] {3.0}>(shape)
    s2 = Concat<axis = 0>(s, more)
  }>(trips, always, start)
}"""


@QUICK
@given(st.integers(-1, 4), st.booleans(), st.integers(0, 3))
def test_in_branches_and_loop_bodies(k, condition, trips):
    assert agree(LOOP, k=np.array(k), c=np.array(condition), trips=np.array(trips))


def test_a_package_and_the_text_say_it_all(tmp_path):
    module, executables, _ = prepared(MASK)
    text, weights = print_module(module)
    assert structural_key(parse(text, ops.TABLE, weights)) == structural_key(module)
    executables[0].save(tmp_path / "mask.inlaid")
    feeds = {"lengths": int64(3, 1), "x": normal(2, 2)}
    (again,), (reference,) = load_package(tmp_path / "mask.inlaid").run(feeds).values(), executables[0].run(feeds).values()
    assert np.array_equal(again, reference)


def test_an_error_names_the_operator_the_node_and_the_value():
    _, executables, _ = prepared("g (float[n] x, int64[1] r) => (float[a] y) { h = Neg(x)  y = Tile(h, r) }")
    for executable in executables:
        with pytest.raises(KernelFault, match=r"Tile: repeats\[0\] must be 0 to .*, got -3 .*y"):
            executable.run({"x": normal(2), "r": int64(-3)})


def test_a_value_that_folds_is_a_static_size():
    module, _, _ = prepared(
        """g (float[n, 3] x) => (float[n, 6] y) {
          i = Constant<value = int64 {1}>()  s = Shape(x)  d = Gather(s, i)  one = Constant<value = int64[1] {1}>()
          t = Constant<value = int64 {2}>()  z = Div(d, i)  u = Sub(z, i)  v = Reshape(u, one)
          r = Concat<axis = 0>(one, v)  y = Tile(x, r)
        }"""
    )
    assert module.main.body.type.shape[1] == 6 and not bound(module)


def test_a_shape_of_unknown_length_is_refused():
    with pytest.raises(ModelImportError, match=r"input 1 must be known.*make 's' an initializer"):
        load(
            onnx.parser.parse_model(
                '<ir_version: 8, opset_import: ["" : 17]> g (float[6] x, int64[n] s) => (float[a] y) { y = Reshape(x, s) }'
            )
        )


# --- ranks that depend on sizes ---------------------------------------------------------------------------------------

IDIOM = """g (float[b, n] x) => (float y) {
  i = Constant<value_ints = [1]>()
  s = Shape(x)
  d = Gather(s, i)
  c = Equal(d, i)
  z = If<
    then_branch = then () => (float[q] t) { t = Squeeze(x, i) },
    else_branch = otherwise () => (float[q, r] e) { e = Identity(x) }>(c)
  y = Relu(z)
}"""


def test_a_choice_of_ranks_by_a_size():
    assert agree(IDIOM, x=normal(2, 3)) and agree(IDIOM, x=normal(1, 4))
    runs, reference = outcomes(IDIOM, 17, {"x": normal(2, 1)})
    assert reference is not None and runs == [None] * len(runs)  # never of another rank
    for executable in prepared(IDIOM)[1]:
        with pytest.raises(
            KernelFault, match=r"\(n == 1\) holds, which gives Tensor\[\(b,\).* compile the model with n fixed .*:z"
        ):
            executable.run({"x": normal(2, 1)})
    assert agree(IDIOM.replace("[b, n]", "[b, 1]"), x=normal(2, 1))


def test_a_branch_that_is_impossible_here_fails_when_it_is_taken():
    graph = """g (float[b, 3] x, bool c) => (float y) {
      o = Constant<value_ints = [1]>()  w = Constant<value = float[4, 2] {1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0}>()
      z = If<
        then_branch = then () => (float[q, r] t) { t = MatMul(x, w) },
        else_branch = otherwise () => (float[q, r] e) { e = Neg(x) }>(c)
      y = Relu(z)
    }"""
    module = load(onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> {graph}'))
    verify(module)
    for target in TARGETS:
        executable = compile_module(module, [target])
        (result,) = executable.run({"x": normal(2, 3), "c": np.array(False)}).values()
        assert np.array_equal(result, np.maximum(-normal(2, 3), 0))
        with pytest.raises(KernelFault, match=r"If: the branch is invalid for these sizes: cannot import MatMul"):
            executable.run({"x": normal(2, 3), "c": np.array(True)})


def test_a_branch_with_an_operator_that_is_unknown_is_refused():
    graph = """g (float[2] x, bool c) => (float y) {
      y = If<then_branch = then () => (float t) { t = Frobnicate(x) }, else_branch = otherwise () => (float e) { e = Neg(x) }>(c)
    }"""
    with pytest.raises(ModelImportError, match="Frobnicate"):
        load(onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> {graph}'))


def test_a_choice_of_ranks_by_data_is_refused():
    graph = IDIOM.replace("x) => (float y)", "x, bool c) => (float y)").replace("  c = Equal(d, i)\n", "")
    with pytest.raises(ModelImportError, match="make 'c' an initializer"):
        load(onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> {graph}'))


def test_what_follows_a_choice_of_ranks_tells_which_it_is():
    """A height that is 1 in every run, squeezed away: the Transpose takes three dimensions."""
    graph = IDIOM.replace("y = Relu(z)", "y = Transpose<perm = [0]>(z)")
    assert agree(graph, x=normal(3, 1))
    runs, reference = outcomes(graph, 17, {"x": normal(3, 2)})
    assert reference is None and runs == [None] * len(runs)


RATES = """g (float[n] x, int64 rate) => (float[n] y) {
  fast = Constant<value_int = 16>()
  slow = Constant<value_int = 8>()
  c = Equal(rate, fast)
  y = If<
    then_branch = then () => (float[k] t) { t = Neg(x) },
    else_branch = otherwise () => (float[k] e) {
      d = Equal(rate, slow)
      e = If<
        then_branch = half () => (float[k] h) { h = Abs(x) },
        else_branch = raised () => (float r) { r = Constant<value_float = 0.0>() }>(d)
    }>(c)
}"""


def test_a_branch_that_stands_for_an_exception_fails_when_it_is_taken():
    """As TorchScript exports `raise`: a 0-d constant, where the model declares another rank."""
    assert agree(RATES, x=normal(3), rate=np.array(16)) and agree(RATES, x=normal(3), rate=np.array(8))
    for executable in prepared(RATES)[1]:
        with pytest.raises(KernelFault, match=r"the condition does not hold, which gives .* but the rest of the model expects"):
            executable.run({"x": normal(3), "rate": np.array(4)})


def test_squeeze_without_axes_never_changes_the_rank():
    graph = "g (float[1, b, n] x) => (float y) { h = Squeeze(x)  y = Relu(h) }"
    assert agree(graph, x=normal(1, 2, 3)) and agree(graph, x=normal(1, 0, 3))
    for shape, name in (((1, 2, 1), "n"), ((1, 1, 4), "b")):
        runs, reference = outcomes(graph, 17, {"x": normal(*shape)})
        assert reference is not None and runs == [None] * len(runs)
        message = f"dimension {name} of .*, which is squeezed if it is 1, must be other than 1 .* its axes"
        with pytest.raises(InputError, match=message):
            prepared(graph)[1][0].run({"x": normal(*shape)})


def test_strings_bind_dimensions():
    graph = """g (string[n] s, float[k] x) => (int64[1] y, float[n, k] z) {
      y = Shape(s)  k = Shape(x)  c = Concat<axis = 0>(y, k)  z = Expand(x, c)
    }"""
    for count in (0, 1, 3):
        assert agree(graph, s=np.array(["a"] * count, object), x=normal(2))


def test_ngrams_of_an_unknown_number_of_words():
    graph = """g (string[n] words) => (float[c] y) {
      kept = StringNormalizer<case_change_action = "NONE", is_case_sensitive = 1, stopwords = ["the"]>(words)
      y = TfIdfVectorizer<mode = "TF", min_gram_length = 1, max_gram_length = 2, max_skip_count = 1, ngram_counts = [0, 2],
        ngram_indexes = [0, 1, 2], pool_strings = ["good", "bad", "good", "film"]>(kept)
    }"""
    for words in (["good", "the", "film"], ["the"], ["good", "bad", "film", "bad"], ["good"]):
        assert agree(graph, 14, words=np.array(words, object))


WORDS = """g (int64 steps, float[1, 2] first) => (float[n, 2] y) {
  going = Constant<value = bool {1}>()
  y = Loop<body = body (int64 i, bool on, float[m, 2] s) => (bool more, float[k, 2] t) {
    more = Identity(on)
    zero = Constant<value = int64 {0}>()  one = Constant<value = int64 {1}>()  two = Constant<value = int64[2] {1, 2}>()
    last = Constant<value = int64[1] {1}>()
    shape = Shape(s)
    rows = Gather(shape, zero)
    places = Range(zero, rows, one)
    column = Unsqueeze(places, last)
    offsets = Cast<to = 1>(column)
    moved = Add(s, offsets)
    next = ConstantOfShape(two)
    t = Concat<axis = 0>(moved, next)
  }>(steps, going, first)
}"""


@pytest.mark.parametrize("steps", [0, 1, 4])
def test_a_range_over_what_a_loop_carries(steps):
    assert agree(WORDS, steps=np.array(steps), first=normal(1, 2))


@QUICK
@given(st.integers(1, 5), st.integers(1, 4))
def test_a_bound_of_a_size_that_a_region_is_not_given(rows, columns):
    """The sizes that bound what NonZero finds in a loop's body are the model's own, which the body does not show."""
    graph = """g (float[h, w] x, int64 trips) => (int64[k] y) {
      on = Constant<value = bool {1}>()  zero = Constant<value = float {0.0}>()  z = Constant<value = int64[1] {0}>()
      flat = Constant<value = int64[1] {-1}>()
      start = ConstantOfShape<value = int64[1] {0}>(z)
      y = Loop<body = body (int64 i, bool going, int64[m] s) => (bool more, int64[l] t) {
        more = Identity(going)
        v = Reshape(x, flat)
        above = Greater(v, zero)
        found = NonZero(above)
        t = Reshape(found, flat)
      }>(trips, on, start)
    }"""
    assert agree(graph, x=normal(rows, columns), trips=np.array(2))


@pytest.mark.parametrize("shape", ["k, free", "free, k", "k, four", "four, k", "k, columns", "k, two, free"])
def test_a_computed_size_of_0_copies_a_dimension(shape):
    rank = ", ".join("abc"[: shape.count(",") + 1])
    graph = f"""g (float[n, m] x, float[p] z) => (float[{rank}] y) {{
      k = Shape(z)  columns = Shape<start = 1>(x)
      free = Constant<value_ints = [-1]>()  four = Constant<value_ints = [4]>()  two = Constant<value_ints = [2]>()
      s = Concat<axis = 0>({shape})  t = Reshape(x, s)  y = Neg(t)
    }}"""
    copies = 0
    for rows, columns in itertools.product((0, 1, 2, 4), (0, 2, 4)):
        for other in (0, 1, 2):
            runs, reference = outcomes(graph, 17, {"x": normal(rows, columns), "z": normal(other)})
            if reference is None:
                continue  # ONNX Runtime refuses to solve for a dimension of an empty tensor
            copies += other == 0
            for results in runs:
                np.testing.assert_array_equal(results[0], reference[0], strict=True)
    assert copies


def test_a_size_of_the_input_itself_is_not_compared_with_0():
    graph = """g (float[b, s, 8] x) => (float[r, 2, 4] y) {
      whole = Shape<end = 2>(x)  rows = ReduceProd<keepdims = 1>(whole)
      heads = Constant<value_ints = [2, 4]>()  shape = Concat<axis = 0>(rows, heads)  y = Reshape(x, shape)
    }"""
    module, executables, _ = prepared(graph)
    assert [repr(dim) for dim in module.main.body.type.shape] == ["(b * s)", "2", "4"]
    assert executables[0].run({"x": normal(2, 0, 8)})["y"].shape == (0, 2, 4)


END = 2**63 - 1
ENDS = [
    *[(END - 3, END, 2), (-END - 1, -END + 3, 3), (-END - 1, END, 2**62), (END, -END - 1, -(2**62)), (-END - 1, END, END)],
    *[(5, 0, -END - 1), (0, 5, END), (END, -END - 1, -END - 1), (-5, -END - 1, -END - 1), (7, 1, -3), (7, 0, -3), (3, 3, 1)],
]


@pytest.mark.parametrize(("start", "limit", "step"), ENDS)
def test_ranges_to_the_ends_of_int64(start, limit, step):
    values = {"start": np.array(start), "limit": np.array(limit), "step": np.array(step)}
    names = ", ".join(values)
    assert agree(f"g (int64 start, int64 limit, int64 step) => (int64[k] y) {{ r = Range({names})  y = Abs(r) }}", **values)
    nodes = f"step = Constant<value = int64 {{{step}}}>()  r = Range({names})  y = Abs(r)"
    del values["step"]
    assert agree(f"g (int64 start, int64 limit) => (int64[k] y) {{ {nodes} }}", **values)


@pytest.mark.parametrize("step", [-END - 1, -END, END, END - 1, -(2**62)])
@pytest.mark.parametrize("other", [0, 1, END, -END - 1])
def test_ranges_between_a_size_and_the_ends_of_int64(other, step):
    graph = f"""g (float[n] x) => (int64[k] y, int64[m] z) {{
      shape = Shape(x)  first = Constant<value_ints = [0]>()  size = Squeeze(shape, first)
      other = Constant<value = int64 {{{other}}}>()  step = Constant<value = int64 {{{step}}}>()
      r = Range(size, other, step)  y = Add(r, shape)  s = Range(other, size, step)  z = Add(s, shape)
    }}"""
    assert agree(graph, x=normal(5))


SLICES = [
    *[(0, END, 1), (-END - 1, END, 1), (END, -END - 1, -1), (END, -END - 1, -END - 1), (0, END, END), (-1, -END - 1, -END - 1)],
    *[(4, -END - 1, -END), (-END - 1, 4, 2), (END, 0, -3), (2, -END - 1, -2), (2, 9, END - 1), (-1, 0, -END - 1)],
]


@pytest.mark.parametrize(("start", "end", "step"), SLICES)
def test_slices_to_the_ends_of_int64(start, end, step):
    nodes = [
        f"{name} = Constant<value_ints = [{value}]>()"
        for name, value in (("start", start), ("end", end), ("step", step), ("axis", 0))
    ]
    sliced = "h = Relu(x)  t = Slice(h, start, end, axis, step)  y = Neg(t)"
    x = normal(5, 2)
    limits = {"start": int64(start), "end": int64(end), "step": int64(step)}
    assert agree(f"g (float[n, 2] x) => (float[k, 2] y) {{ {' '.join(nodes)} {sliced} }}", x=x)
    assert agree(
        f"g (float[n, 2] x, int64[1] start, int64[1] end, int64[1] step) => (float[k, 2] y) {{ {nodes[3]} {sliced} }}",
        x=x,
        **limits,
    )
    del limits["step"]
    assert agree(
        f"g (float[n, 2] x, int64[1] start, int64[1] end) => (float[k, 2] y) {{ {' '.join(nodes[2:])} {sliced} }}", x=x, **limits
    )


# --- loops of computed length -----------------------------------------------------------------------------------------

FORECAST = """g (int64 n, float[b, 3] x) => (float[b, 3] last, float[n2, b] all, int64[k] places) {
  last, all, signs = Loop<body = step (int64 i, bool on, float[b, 3] s) => (bool more, float[b, 3] t, float[b] o, bool positive) {
    more = Identity(on)
    two = Constant<value_float = 2.0>()
    column = Constant<value_int = 1>()
    row = Constant<value_ints = [0]>()
    total = ReduceSum<keepdims = 0>(s)
    zero = Constant<value_float = 0.0>()
    positive = Greater(total, zero)
    t = If(positive) <
      then_branch = down () => (float[b, 3] a) { a = Sub(s, two) },
      else_branch = up () => (float[b, 3] c) { c = Neg(s) }>
    o = Gather<axis = 1>(t, column)
  }>(n, , x)
  numbers = Cast<to = 7>(signs)
  rows = NonZero(numbers)
  first = Constant<value_int = 0>()
  places = Gather<axis = 0>(rows, first)
}"""

FRAMES = """g (float[t, 2] x) => (float[2] last, float[t, 2] all) {
  shape = Shape(x)
  first = Constant<value_int = 0>()
  n = Gather(shape, first)
  start = Constant<value_floats = [0.0, 0.0]>()
  last, all = Loop<body = step (int64 i, bool going, float[2] s) => (bool more, float[2] r, float[2] o) {
    more = Identity(going)
    row = Gather(x, i)
    r = Add(s, row)
    o = Relu(r)
  }>(n, , start)
}"""

REPEATED = """g (int64 n, float[2] x) => (float[m, 2] all, float[r, 2] inner_all) {
  last, all, counts = Loop<body = outer (int64 i, bool going, float[2] s) => (bool more, float[2] t, float[2] o, int64 c) {
    more = Identity(going)
    u, rows = Loop<body = inner (int64 j, bool on, float[2] p) => (bool again, float[2] q, float[2] w) {
      again = Identity(on)
      q = Add(p, x)
      w = Neg(q)
    }>(i, , s)
    t = Identity(u)
    axis = Constant<value_ints = [0]>()
    o = ReduceSum<keepdims = 0>(rows, axis)
    shape = Shape(rows)
    first = Constant<value_int = 0>()
    c = Gather(shape, first)
  }>(n, , x)
  again, inner_all = Loop<body = step (int64 j, bool on, float[2] p) => (bool more, float[2] q, float[2] w) {
    more = Identity(on)
    q = Add(p, x)
    w = Neg(q)
  }>(n, , x)
}"""


def host_loops(executable: Any) -> int:
    from inlaid_runtime.artifact.plan import Loop

    return sum(isinstance(item, Loop) for plan in executable._executor.plans.values() for item in plan.plan.instructions)


@QUICK
@given(st.integers(-2, 7), st.integers(0, 3))
def test_stacked_outputs_of_a_trip_count_that_is_an_input(trips, batch):
    inputs = {"n": np.array(trips), "x": normal(batch, 3)}
    if trips > 0:
        assert agree(FORECAST, **inputs)
        return
    runs, _ = outcomes(FORECAST, 17, inputs)
    for last, stacked, places in runs:  # ONNX Runtime gives rows that are never computed the shape (0,)
        np.testing.assert_array_equal(last, inputs["x"], strict=True)
        assert stacked.shape == (0, batch) and places.shape == (0,)


@QUICK
@given(st.integers(0, 70))
def test_stacked_outputs_of_a_trip_count_that_is_an_extent(length):
    assert agree(FRAMES, x=normal(length, 2))


@QUICK
@given(st.integers(-1, 5))
def test_loops_in_loops_whose_trip_counts_vary(trips):
    assert agree(REPEATED, n=np.array(trips), x=normal(2))


@pytest.mark.skipif("x86" not in TARGETS, reason='needs a target that runs loops: pip install "inlaid[x86]"')
@pytest.mark.parametrize(("graph", "loops"), [(FORECAST, 0), (FRAMES, 0), (REPEATED, 1)])
def test_a_loop_of_computed_length_is_native(graph, loops):
    _, executables, _ = prepared(graph)
    assert host_loops(executables[0]) == loops


def test_the_trip_count_shares_its_size_with_a_range():
    graph = FORECAST.replace("places)", "places, int64[n2] counted)", 1)
    counted = "unit = Constant<value_int = 1>()\n  counted = Range(first, n, unit)"
    module, _, _ = prepared(graph.replace("  places = ", f"  {counted}\n  places = "))
    assert len(bound(module)) == 1
    assert module.main.body.type.fields[1].shape[0] == module.main.body.type.fields[3].shape[0]


# --- recurrent layers of sequences that end ---------------------------------------------------------------------------


@QUICK
@given(st.lists(st.integers(0, 9), min_size=1, max_size=3), st.booleans())
def test_an_lstm_ends_with_its_longest_sequence(lengths, fixed):
    """The layer is large enough to be shortened; its weights are computed from few numbers."""
    batch, steps = (str(len(lengths)), "9") if fixed else ("b", "t")
    inputs = f"float[{steps}, {batch}, 160] x, int32[{batch}] lengths"
    outputs = f"float[{steps}, 2, {batch}, 160] y, float[a, b2, c] h"
    graph = f"""g ({inputs}) => ({outputs}) {{
      wide = Constant<value_ints = [2, 640, 160]>()
      count = Constant<value = int64 {{204800}}>()  zero = Constant<value = int64 {{0}}>()  one = Constant<value = int64 {{1}}>()
      numbers = Range(zero, count, one)  scaled = Cast<to = 1>(numbers)  angles = Sin(scaled)
      tenth = Constant<value = float {{0.1}}>()  small = Mul(angles, tenth)
      w = Reshape(small, wide)
      y, h, c = LSTM<hidden_size = 160, direction = "bidirectional">(x, w, w, , lengths)
    }}"""
    assert agree(graph, x=normal(9, len(lengths), 160), lengths=np.array(lengths, np.int32))
    if "x86" in TARGETS:
        assert host_loops(prepared(graph)[1][0]) == 0


NORMALIZED_STATES = """g (float[d, d] state, float[4, n, n] x, float[d] s, float[d] b, float[d] m, float[d] v)
    => (float[p, q] last, float[4, p, q] y) {
  zero = Constant<value = int64 {0}>()
  last, states = Scan (state, x) <body: graph = step (float[?,?] total, float[?,?] row)
      => (float[?,?] sums, float[?,?] kept) {
    sums = CumSum (row, zero)
    kept = Identity (total)
  }, num_scan_inputs: int = 1>
  y = BatchNormalization (states, s, b, m, v)
}"""


@pytest.mark.parametrize("size", [1, 3])
def test_a_normalization_whose_channels_are_the_size_of_a_state(size):
    """The scale is shaped by a size that is known after the loop."""
    vectors = {name: np.abs(normal(size)) + 1 for name in "sbmv"}
    assert agree(NORMALIZED_STATES, state=normal(size, size), x=normal(4, size, size), **vectors)
