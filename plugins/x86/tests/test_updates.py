"""Updates in place: donated inputs, states of loops, and arrays for outputs."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import inlaid
from inlaid import ops
from inlaid.driver.compile import build_package
from inlaid.graph import ir as graph
from inlaid_runtime.arith import SizeVar
from inlaid_runtime.errors import DonationWarning, InputError, KernelFault
from inlaid_runtime.execution.arrays import aligned_empty
from inlaid_runtime.types import TensorType

pytestmark = pytest.mark.usefixtures("host")

F32, I64 = "float32", "int64"
TRUE = graph.constant(np.array(True))
TARGET = ["x86:threads=1"]


def variable(name, shape=(), dtype=F32):
    return graph.var(name, TensorType(shape, dtype))


def aligned(array):
    copy = aligned_empty(array.shape, array.dtype)
    copy[...] = array
    return copy


def cache_model(rows=64, width=8):
    """A cache with a row replaced, and the sum of its rows."""
    cache, at, row = variable("cache", (rows, width)), variable("at", (1, 1), I64), variable("row", (1, width))
    updated = ops.scatter_nd(cache, at, row)
    total = ops.reduce_sum(updated, axes=(0,), keepdims=False)
    named = (("outputs", '["updated", "total"]'),)
    return graph.function([cache, at, row], graph.tuple_([updated, total]), named)


def feed(rows=64, width=8, at=3):
    return {
        "cache": aligned(np.arange(rows * width, dtype=np.float32).reshape(rows, width)),
        "at": np.array([[at]]),
        "row": np.full((1, width), 7, np.float32),
    }


# --- donated inputs ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [64, SizeVar("rows", 1)])
def test_a_donated_input_becomes_the_output(rows):
    executable = inlaid.compile(cache_model(rows), targets=TARGET, donate=["cache"])
    assert executable.donated == ("cache",)
    feeds = feed()
    expected = feeds["cache"].copy()
    for at in (3, -1, 3):
        feeds["at"] = np.array([[at]])
        expected[at] = 7
        outputs = executable.run(feeds)
        assert outputs["updated"] is feeds["cache"]
        np.testing.assert_array_equal(outputs["updated"], expected)
        np.testing.assert_allclose(outputs["total"], expected.sum(0), rtol=1e-6)


def test_without_donation_the_input_is_kept():
    executable = inlaid.compile(cache_model(), targets=TARGET)
    feeds = feed()
    before = feeds["cache"].copy()
    outputs = executable.run(feeds)
    assert executable.donated == () and not np.may_share_memory(outputs["updated"], feeds["cache"])
    np.testing.assert_array_equal(feeds["cache"], before)
    before[3] = 7
    np.testing.assert_array_equal(outputs["updated"], before)


def test_arrays_that_must_not_be_written_are_copied():
    """Read-only ones, and those that share memory with another input."""
    executable = inlaid.compile(cache_model(), targets=TARGET, donate=["cache"])
    feeds = feed()
    feeds["cache"].flags.writeable = False
    before = feeds["cache"].copy()
    actual = executable.run(feeds)["updated"]
    np.testing.assert_array_equal(feeds["cache"], before)
    assert (actual[3] == 7).all()
    feeds = feed()
    feeds["row"] = feeds["cache"][5:6]
    before = feeds["cache"].copy()
    actual = executable.run(feeds)["updated"]
    np.testing.assert_array_equal(feeds["cache"], before)
    np.testing.assert_array_equal(actual[3], before[5])


def test_a_profile_updates_as_a_run_does():
    executable = inlaid.compile(cache_model(), targets=TARGET, donate=["cache"])
    feeds = feed()
    executable.profile(feeds)
    assert (feeds["cache"][3] == 7).all()


def test_a_fault_is_raised_before_the_index_is_used():
    executable = inlaid.compile(cache_model(), targets=TARGET, donate=["cache"])
    feeds = feed(at=64)
    before = feeds["cache"].copy()
    with pytest.raises(KernelFault):
        executable.run(feeds)
    np.testing.assert_array_equal(feeds["cache"], before)


def test_a_package_keeps_what_is_donated(tmp_path):
    inlaid.compile(cache_model(), targets=TARGET, donate=["cache"]).save(tmp_path / "cache.inlaid")
    executable = inlaid.runtime.load(tmp_path / "cache.inlaid")
    feeds = feed()
    assert executable.donated == ("cache",) and executable.run(feeds)["updated"] is feeds["cache"]


def test_names_that_no_input_has_are_refused():
    with pytest.raises(InputError, match=r"donate must name inputs, got 'cash' .*'cache'.*the inputs are cache, at, row"):
        inlaid.compile(cache_model(), targets=TARGET, donate=["cash"])
    with pytest.raises(InputError, match=r"give \['cache'\]"):
        inlaid.compile(cache_model(), targets=TARGET, donate="cache")


def test_a_donation_that_no_output_uses_is_told():
    with pytest.warns(DonationWarning, match="'row'"):
        executable = inlaid.compile(cache_model(), targets=TARGET, donate=["row"])
    feeds = feed()
    before = feeds["row"].copy()
    executable.run(feeds)
    assert executable.donated == ()
    np.testing.assert_array_equal(feeds["row"], before)


def test_an_input_that_is_read_later_is_copied():
    """The sum of the old cache may be taken before or after the update, but not over it."""
    cache, at, row = variable("cache", (64, 8)), variable("at", (1, 1), I64), variable("row", (1, 8))
    updated = ops.scatter_nd(cache, at, row)
    function = graph.function([cache, at, row], graph.tuple_([updated, ops.sub(updated, cache)]))
    with pytest.warns(DonationWarning):
        executable = inlaid.compile(function, targets=TARGET, donate=["cache"])
    feeds = feed()
    expected = np.zeros((64, 8), np.float32)
    expected[3] = 7 - feeds["cache"][3]
    np.testing.assert_array_equal(list(executable.run(feeds).values())[1], expected)


def test_updates_of_what_a_region_computes_are_in_place():
    """No copy of 64 rows is left of three updates in a row."""
    x, at, row = variable("x", (64, 8)), variable("at", (1, 1), I64), variable("row", (1, 8))
    y = ops.scatter_nd(ops.exp(x), at, row)
    y = ops.scatter_along_axis(y, graph.constant(np.zeros((1, 8), np.int64)), row, axis=0, reduction="add")
    y = ops.scatter_nd(y, at, row, reduction="mul")
    function = graph.function([x, at, row], ops.neg(y))
    feeds = {"x": aligned(np.zeros((64, 8), np.float32)), "at": np.array([[2]]), "row": np.full((1, 8), 3, np.float32)}
    (actual,) = inlaid.compile(function, targets=TARGET).run(feeds).values()
    expected = np.ones((64, 8), np.float32)
    expected[2], expected[0] = 9, 4
    np.testing.assert_array_equal(actual, -expected)


class _Net:
    """A random function of scatters, element-wise operators and views over tensors of one size."""

    def __init__(self, draw):
        self.draw = draw
        self.params = [variable(f"x{number}", (6, 4)) for number in range(2)]
        self.at = variable("at", (2, 1), I64)
        self.rows = variable("rows", (2, 4))
        self.values = list(self.params)

    def step(self):
        pick = self.draw(st.sampled_from(self.values))
        match self.draw(
            st.sampled_from(["scatter", "scatter", "scatter", "exp", "add", "reshape", "join", "slice", "whole", "branch"])
        ):
            case "scatter":
                reduction = self.draw(st.sampled_from(["none", "add", "max"]))
                rows = (
                    self.rows
                    if self.draw(st.booleans())
                    else ops.strided_slice(self.draw(st.sampled_from(self.values)), begin=(1, 0), end=(3, 4), strides=(1, 1))
                )
                expr = ops.scatter_nd(pick, self.at, rows, reduction=reduction)
            case "exp":
                expr = ops.tanh(pick)
            case "add":
                expr = ops.add(pick, self.draw(st.sampled_from(self.values)))
            case "reshape":
                expr = ops.reshape(
                    ops.scatter_along_axis(
                        ops.reshape(pick, shape=(24,)), graph.constant(np.array([3, 7])), graph.constant(np.float32([1, 2])), axis=0
                    ),
                    shape=(6, 4),
                )
            case "join":
                other = self.draw(st.sampled_from(self.values))
                both = ops.concat(pick, other, axis=0)
                expr = ops.strided_slice(both, begin=(3, 0), end=(9, 4), strides=(1, 1))
            case "slice":
                expr = ops.transpose(ops.transpose(pick, perm=(1, 0)), perm=(1, 0))
            case "whole":
                expr = ops.scatter_nd(pick, self.at, ops.take(pick, graph.constant(np.array([0, 5])), axis=0))
            case "branch":
                total = ops.reduce_sum(pick, axes=(0, 1), keepdims=False)
                condition = ops.less(total, graph.constant(np.float32(1)))
                expr = graph.if_(condition, ops.scatter_nd(pick, self.at, self.rows), ops.neg(pick))
        self.values.append(expr)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_random_updates(data):
    net = _Net(data.draw)
    for _ in range(data.draw(st.integers(1, 7))):
        net.step()
    results = [data.draw(st.sampled_from(net.values)) for _ in range(data.draw(st.integers(1, 3)))]
    params = [*net.params, net.at, net.rows]
    function = graph.function(params, graph.tuple_(results))
    rng = np.random.default_rng(data.draw(st.integers(0, 9)))
    fresh = {param.name: rng.integers(-3, 4, (6, 4)).astype(np.float32) / 4 for param in net.params}
    fresh |= {"at": rng.integers(-6, 6, (2, 1)), "rows": rng.integers(-3, 4, (2, 4)).astype(np.float32)}
    expected = list(inlaid.compile(function, targets=["reference"]).run(fresh).values())
    for donate in ((), ("x0",), ("x0", "x1")):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DonationWarning)
            executable = inlaid.compile(function, targets=TARGET, donate=donate)
        feeds = {name: aligned(array) for name, array in fresh.items()}
        actual = list(executable.run(feeds).values())
        for one, other in zip(actual, expected, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
        for name, array in feeds.items():
            if name not in executable.donated:
                np.testing.assert_array_equal(array, fresh[name])


@pytest.mark.parametrize("shape", [(1, 6, 4), (4, 6), (6, 2, 2), (6, 4)])
@pytest.mark.parametrize("donate", [(), ("x",)])
def test_a_view_of_an_input_is_no_output_of_its_type(shape, donate):
    x, at, rows = variable("x", shape), variable("at", (2, 1), I64), variable("rows", (2, 4))
    function = graph.function([x, at, rows], ops.scatter_nd(ops.reshape(x, shape=(6, 4)), at, rows))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DonationWarning)
        executable = inlaid.compile(function, targets=TARGET, donate=donate)
    value = np.arange(24, dtype=np.float32)
    feeds = {"x": aligned(value.reshape(shape)), "at": np.array([[4], [1]]), "rows": np.full((2, 4), 7, np.float32)}
    expected = value.reshape(6, 4).copy()
    expected[[4, 1]] = 7
    np.testing.assert_array_equal(executable.run(feeds)["output0"], expected)


# --- loops ------------------------------------------------------------------------------------------------------------


def table_loop(rows, rounds=None):
    """Counts of numbers, and the running counts: each round reads the table and updates it."""
    table, numbers = variable("table", (rows,)), variable("numbers", (SizeVar("n"), 1), I64)
    step, state, number = variable("step", (), I64), variable("state", (rows,)), variable("number", (1,), I64)
    one = graph.constant(np.ones(1, np.float32))
    count = ops.add(ops.take(state, number, axis=0), one)
    updated = ops.scatter_nd(state, ops.reshape(number, shape=(1, 1)), count)
    body = graph.function([step, state, number], graph.tuple_([TRUE, updated, count]))
    looped = graph.loop(body, state=[table], scanned=[numbers])
    return graph.function([table, numbers], graph.tuple_([graph.tuple_item(looped, index) for index in range(2)]))


@pytest.mark.parametrize("count", [0, 1, 2, 7])
@pytest.mark.parametrize("donate", [(), ("table",)])
def test_a_state_is_updated_where_it_is(count, donate):
    executable = inlaid.compile(table_loop(5), targets=TARGET, donate=donate)
    (artifact,) = executable.package.artifacts
    assert artifact.aliases == ((0, 0),)
    table, numbers = aligned(np.arange(5, dtype=np.float32)), np.random.default_rng(count).integers(0, 5, (count, 1))
    expected, running = table.copy(), []
    for number in numbers[:, 0]:
        expected[number] += 1
        running.append([expected[number]])
    before = table.copy()
    counts, history = executable.run({"table": table, "numbers": numbers}).values()
    np.testing.assert_array_equal(counts, expected)
    np.testing.assert_array_equal(history, np.array(running, np.float32).reshape(count, 1))
    if donate:
        assert counts is table
    else:
        np.testing.assert_array_equal(table, before)


def test_states_that_change_places_are_not_updated_in_place():
    a, b, step = variable("a", (4,)), variable("b", (4,)), variable("step", (), I64)
    x, y = variable("x", (4,)), variable("y", (4,))
    at, one = graph.constant(np.array([[1]])), graph.constant(np.ones(1, np.float32))
    body = graph.function([step, x, y], graph.tuple_([TRUE, ops.scatter_nd(y, at, one, reduction="add"), x]))
    looped = graph.loop(body, state=[a, b], trip_count=graph.constant(np.int64(3)))
    function = graph.function([a, b], graph.tuple_([graph.tuple_item(looped, index) for index in range(2)]))
    executable = inlaid.compile(function, targets=TARGET)
    assert executable.package.artifacts[0].aliases == ()
    feeds = {"a": np.zeros(4, np.float32), "b": np.full(4, 5, np.float32)}
    for actual, expected in zip(
        executable.run(feeds).values(), inlaid.compile(function, targets=["reference"]).run(feeds).values(), strict=True
    ):
        np.testing.assert_array_equal(actual, expected)


# --- several versions -------------------------------------------------------------------------------------------------


def test_versions_of_a_region_have_the_same_aliases():
    package = build_package(graph.Module({"main": cache_model()}), ["x86:cpu=portable,threads=1"])
    (artifact,) = package.artifacts
    assert artifact.aliases and {version.aliases for version in artifact.variants} <= {artifact.aliases}


# --- arrays for outputs -----------------------------------------------------------------------------------------------


def test_outputs_are_written_to_arrays_of_the_caller():
    executable = inlaid.compile(cache_model(), targets=TARGET)
    feeds = feed()
    expected = executable.run(feeds)
    out = {"updated": aligned_empty((64, 8), np.dtype(F32)), "total": np.empty(9, np.float32)[1:]}
    outputs = executable.run(feeds, out=out)
    for name, array in out.items():
        assert outputs[name] is array
        np.testing.assert_array_equal(array, expected[name])
    assert not np.may_share_memory(executable.run(feeds, out={"total": out["total"]})["updated"], out["updated"])


def test_an_output_may_lie_over_an_input():
    for donate in ((), ("cache",)):
        executable = inlaid.compile(cache_model(), targets=TARGET, donate=donate)
        feeds = feed()
        expected = feeds["cache"].copy()
        expected[3] = 7
        outputs = executable.run(feeds, out={"updated": feeds["cache"]})
        assert outputs["updated"] is feeds["cache"]
        np.testing.assert_array_equal(outputs["updated"], expected)
        np.testing.assert_allclose(outputs["total"], expected.sum(0), rtol=1e-6)


def test_arrays_that_outputs_do_not_fit_are_refused():
    executable = inlaid.compile(cache_model(), targets=TARGET)
    good = np.zeros((64, 8), np.float32)
    fixed = good.copy()
    fixed.flags.writeable = False
    for out, message in (
        ({"update": good}, r"no output 'update' \(is 'updated' meant\?\).*the outputs are updated, total"),
        (
            {"updated": good.astype(np.float64)},
            r"out\['updated'\] must be a writable numpy array of float32, got a writable array of float64",
        ),
        ({"updated": fixed}, "got a read-only array of float32"),
        ({"updated": [1]}, "got list"),
        ({"updated": good[1:]}, r"out\['updated'\] must have shape \(64, 8\), got \(63, 8\)"),
        ({"updated": good, "total": good[0]}, r"out\['updated'\] and out\['total'\] must not share memory"),
    ):
        with pytest.raises(InputError, match=message):
            executable.run(feed(), out=out)


def test_an_output_of_unknown_size():
    size = SizeVar("n", 0, 9)
    x = variable("x", (size,))
    executable = inlaid.compile(graph.function([x], ops.nonzero(x)), targets=TARGET)
    feeds = {"x": np.array([0, 1, 0, 2], np.float32)}
    (name,) = executable.run(feeds)
    out = np.empty((1, 2), np.int64)
    assert executable.run(feeds, out={name: out})[name] is out
    np.testing.assert_array_equal(out, [[1, 3]])
    with pytest.raises(InputError, match=r"must have shape \(1, 2\), got \(1, 3\)"):
        executable.run(feeds, out={name: np.empty((1, 3), np.int64)})
