"""Plans run as their instructions say, over arrays that kernels can use."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from inlaid_runtime import aligned_empty
from inlaid_runtime.arith import Constraint, SizeVar
from inlaid_runtime.artifact.plan import Bind, Call, Invoke, Move, Plan
from inlaid_runtime.errors import InputError, KernelFault, PackageError, PluginError, Unsupported
from inlaid_runtime.execution import arrays

from .plans import f32, make_plan, unary

N = SizeVar("n")
K = SizeVar("?k", 0, N)


def test_a_chain_of_regions(chain):
    model = chain()
    x = f32(2, 3)
    result = model.run({"x": x})["y"]
    np.testing.assert_array_equal(result, (x + 1) * 2 * np.array([1, 2, 3]))
    assert result.flags.writeable
    again = model.run({"x": x})["y"]
    assert not np.shares_memory(result, again)
    assert repr(model) == "<Executable (x: float32[2, 3]) -> (y: float32[2, 3]) on lab>"


def test_memory_of_large_results_is_used_again_once_nobody_holds_them(chain):
    model = chain(N)
    x = f32(1 << 15, 3)
    expected = (x + 1) * 2 * np.array([1, 2, 3])

    def run(rows=1 << 15):
        return model.run({"x": x[:rows]})["y"]

    first = run()
    where = first.ctypes.data
    part = first[5:, ::2]
    del first
    # A view keeps its memory.
    second = run()
    assert second.ctypes.data != where and second.flags.writeable
    np.testing.assert_array_equal(part, expected[5:, ::2])
    other = second.ctypes.data
    del second
    third = run((1 << 15) - 9)
    assert third.ctypes.data == other
    np.testing.assert_array_equal(third, expected[:-9])
    del part, third
    # Nobody holds either now: one is kept, and a much smaller result does not take it.
    reused_address = run().ctypes.data
    assert reused_address in (where, other)
    assert run(1 << 14).ctypes.data != reused_address


def test_symbolic_sizes(chain):
    model = chain(N)
    for n in (1, 5, 0, 5, 40):
        x = f32(n, 3)
        np.testing.assert_array_equal(model.run({"x": x})["y"], (x + 1) * 2 * np.array([1, 2, 3]))


def test_inputs_that_a_kernel_cannot_use_as_they_lie_are_copied(chain):
    model = chain()
    x = f32(2, 3)
    expected = model.run({"x": x})["y"]
    strided = np.zeros((4, 6), np.float32)[::2, ::2]
    strided[...] = x
    unaligned = np.zeros(40, np.uint8)[1:25].view(np.float32).reshape(2, 3)
    unaligned[...] = x
    for array in (strided, unaligned, np.asfortranarray(x), x.astype(">f4")):
        np.testing.assert_array_equal(model.run({"x": array})["y"], expected)


def test_aligned_inputs_are_read_in_place(lab, value):
    addresses = []

    def look(x, y):
        addresses.append(x.__array_interface__["data"][0])
        y[...] = x

    lab.region("look", look, [((8,), "float32")], [((8,), "float32")])
    plan = Plan("main", (value("input", (8,)), value("output", (8,))), (("x", 0),), (("y", 1),), (Invoke("look", (0,), (1,)),))
    x = aligned_empty((8,), "float32")
    x[...] = 1
    lab.executable(plan).run({"x": x})
    assert addresses == [x.__array_interface__["data"][0]]


def test_dlpack_in_and_out(chain):
    class Foreign:
        def __init__(self, array):
            self.array = array

        def __dlpack__(self, **options):
            return self.array.__dlpack__(**options)

        def __dlpack_device__(self):
            return self.array.__dlpack_device__()

    class OnAnotherDevice(Foreign):
        def __dlpack__(self, **options):
            raise BufferError("the tensor is on cuda:0")

    model = chain()
    result = model.run({"x": Foreign(f32(2, 3))})["y"]
    np.testing.assert_array_equal(np.from_dlpack(result), model.run({"x": f32(2, 3)})["y"])
    with pytest.raises(InputError, match="cannot be read as host memory: the tensor is on cuda:0"):
        model.run({"x": OnAnotherDevice(f32(2, 3))})


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({}, "input 'x' is missing; the inputs are x: float32"),
        ({"X": 1, "x": f32(2, 3)}, "the model has no input 'X'"),
        ({"xx": f32(2, 3)}, r"the model has no input 'xx' \(is 'x' meant\?\); input 'x' is missing"),
        ({"x": f32(2, 3).astype(np.float64)}, r"must have dtype float32, got float64.*astype"),
        ({"x": [1, [2]]}, "is not an array"),
        ({"x": np.zeros((2, 3), np.complex64)}, "complex64"),
        ({"x": f32(2, 4)}, r"shape \(2, 4\), the model expects \(2, 3\)"),
        ({"x": f32(6)}, r"shape \(6,\), the model expects \(2, 3\)"),
        ({"x": None}, "object"),
    ],
)
def test_inputs_that_do_not_fit(chain, inputs, message):
    with pytest.raises(InputError, match=message):
        chain().run(inputs)


def test_a_size_that_two_inputs_disagree_on(lab, value):
    size = SizeVar("batch", 1, 8)
    plan = Plan(
        "main",
        (value("input", (size, 2)), value("input", (size,)), value("input", (size * 2,)), value("output", (size, 2))),
        (("a", 0), ("b", 1), ("c", 2)),
        (("y", 3),),
        (Move(0, 3),),
    )
    model = lab.executable(plan)
    np.testing.assert_array_equal(model.run({"a": f32(3, 2), "b": f32(3), "c": f32(6)})["y"], f32(3, 2))
    with pytest.raises(InputError, match=r"'b' has shape \(4,\), the model expects \(batch,\), but batch is 3"):
        model.run({"a": f32(3, 2), "b": f32(4), "c": f32(6)})
    with pytest.raises(InputError, match=r"'c' has shape \(5,\)"):
        model.run({"a": f32(3, 2), "b": f32(3), "c": f32(5)})
    with pytest.raises(InputError, match="batch must be 1 to 8"):
        model.run({"a": f32(9, 2), "b": f32(9), "c": f32(18)})


def test_a_size_that_the_region_works_out(lab, value):
    def positive(x, y, dims):
        positives = x[x > 0]
        y.reshape(-1)[: len(positives)] = positives
        assert dims.tolist() == [len(x), 0]
        dims[1] = len(positives)

    def double(x, y):
        y[...] = 2 * x

    lab.region("positive", positive, [((N,), "float32")], [((K,), "float32")], dims=[("n", 0, 0), ("?k", None, 0, N)])
    lab.region("double", double, [((K,), "float32")], [((K,), "float32")], dims=[("?k", 0, 0)])
    plan = Plan(
        "main",
        (value("input", (N,)), value("arena", (K,)), value("output", (K,)), value("arena", (K,), offset=N * 64)),
        (("x", 0),),
        (("y", 2),),
        (Invoke("positive", (0,), (1,)), Invoke("double", (1,), (3,)), Invoke("double", (3,), (2,))),
        N * 128,
    )
    model = lab.executable(plan)
    for x in ([1, -1, 2, -3], [-1, -1], [], [5, 6, 7]):
        x = np.array(x, np.float32)
        np.testing.assert_array_equal(model.run({"x": x})["y"], 4 * x[x > 0])


def test_sizes_that_the_plan_gives(lab, value):
    """No input of the second region shows ?k, or n, so the plan says what they are."""

    def count(x, y, z, dims):
        dims[1] = (x > 0).sum()
        y.reshape(-1)[: dims[1]] = 1
        z[...] = 5

    def fill(z, y, dims):
        y[...] = z + dims[0] * 10 + dims[1]

    sources = [("n", 0, 0), ("?k", None, 0, N)]
    lab.region("count", count, [((N,), "float32")], [((K,), "float32"), ((), "float32")], dims=sources)
    lab.region("fill", fill, [((), "float32")], [((K, N), "float32")], dims=[("n",), ("?k",)])
    inner = Plan("inner", (value("input", ()), value("output", (K, N))), (("z", 0),), (("y", 1),), (Invoke("fill", (0,), (1,)),))
    plan = Plan(
        "main",
        (value("input", (N,)), value("arena", (K,)), value("arena", (), offset=N * 64), *[value("output", (K, N))] * 2),
        (("x", 0),),
        (("a", 3), ("b", 4)),
        (Invoke("count", (0,), (1, 2)), Invoke("fill", (2,), (3,)), Call("inner", (2,), (4,))),
        N * 64 + 64,
    )
    model = lab.executable(plan, inner)
    for x in ([1, 1, -1, 1], [-1, 2], [1, 1, 1, 1]):
        result = model.run({"x": np.array(x, np.float32)})
        positive = sum(item > 0 for item in x)
        for array in result.values():
            np.testing.assert_array_equal(array, np.full((positive, len(x)), 5 + 10 * len(x) + positive))


B = SizeVar("?b")


@pytest.mark.parametrize("storage", ["output", "dynamic"])
def test_elements_of_a_vector_are_sizes(lab, value, storage):
    """A region fills what two bound sizes ask for; its result is the plan's, or goes through another region."""

    def fill(rows, columns, y):
        y[...] = 3

    def double(x, y):
        y[...] = 2 * x

    rows, columns = SizeVar("?r"), SizeVar("?c")
    shape = (rows, columns)
    witnesses = [((dim, 0), "bool") for dim in shape]
    lab.region("fill", fill, witnesses, [(shape, "float32")], dims=[("?r", 0, 0), ("?c", 1, 0)])
    lab.region("double", double, [(shape, "float32")], [(shape, "float32")], dims=[("?r", 0, 0), ("?c", 0, 1)])
    values = (value("input", (2,), "int64"), *(value("dynamic", (dim, 0), "bool") for dim in shape))
    plan = Plan(
        "main",
        (*values, value(storage, shape), value("output", shape)),
        (("s", 0),),
        (("y", 4 if storage == "dynamic" else 3),),
        (Bind(0, 1, "rows", ""), Bind(0, 2, "columns", "here", 1), Invoke("fill", (1, 2), (3,)))
        + ((Invoke("double", (3,), (4,)),) if storage == "dynamic" else ()),
    )
    model = lab.executable(plan)
    for sizes in ((2, 3), (0, 5), (2, 3), (300, 200)):
        actual = model.run({"s": np.array(sizes)})["y"]
        np.testing.assert_array_equal(actual, np.full(sizes, 6 if storage == "dynamic" else 3, np.float32))
    with pytest.raises(KernelFault, match=r"columns must be 0 to .*, got -1.*here"):
        model.run({"s": np.array([2, -1])})


@pytest.mark.parametrize(
    ("shape", "dtype", "element"), [((2,), "int64", 2), ((N,), "int64", 0), ((2,), "int32", 0), ((), "int64", -1)]
)
def test_what_is_no_size_cannot_be_bound(lab, value, shape, dtype, element):
    values = (value("input", shape, dtype), value("output", (B, 0), "bool"))
    plan = Plan("main", values, (("s", 0),), (("y", 1),), (Bind(0, 1, "a size", "", element),))
    with pytest.raises(PackageError, match=f"value 0 is not an int64 tensor with element {element}"):
        lab.executable(plan)


def test_a_size_beyond_its_bound_is_a_fault(lab, value):
    def lie(x, y, dims):
        dims[1] = 100

    lab.region("lie", lie, [((N,), "float32")], [((K,), "float32")], dims=[("n", 0, 0), ("?k", None, 0, N)])
    plan = Plan("main", (value("input", (N,)), value("output", (K,))), (("x", 0),), (("y", 1),), (Invoke("lie", (0,), (1,)),))
    with pytest.raises(KernelFault, match=r"size \?k must be 0 to 4, got 100.*at node of lie"):
        lab.executable(plan).run({"x": f32(4)})


def test_kernels_that_allocate(lab, value):
    """Views and inputs that they return are copied, so that results are the caller's own."""
    free = SizeVar("?m")
    lab.region("same", lambda x: x, [((N,), "float32")], [((N,), "float32")], dims=[("n", 0, 0)], kind="free")
    lab.region("grow", lambda x: np.repeat(x, 3), [((N,), "float32")], [((free,), "float32")], dims=[("n", 0, 0)], kind="free")
    lab.region("listed", lambda x: [x, x[:1]], [((free,), "float32")], [((), None)], dims=[("?m", 0, 0)], kind="free")
    lab.region("first", lambda s: s[0], [((), None)], [((free,), "float32")], kind="free")
    plan = Plan(
        "main",
        (
            value("input", (N,)),
            value("output", (N,)),
            value("dynamic", (free,)),
            value("host", (), None),
            value("output", (free,)),
        ),
        (("x", 0),),
        (("same", 1), ("grown", 2), ("list", 3), ("first", 4)),
        (
            Invoke("same", (0,), (1,)),
            Invoke("grow", (0,), (2,)),
            Invoke("listed", (2,), (3,)),
            Invoke("first", (3,), (4,)),
        ),
    )
    x = f32(4)
    result = lab.executable(plan).run({"x": x})
    np.testing.assert_array_equal(result["same"], x)
    np.testing.assert_array_equal(result["first"], np.repeat(x, 3))
    assert not np.shares_memory(result["same"], x)
    assert not np.shares_memory(result["list"][0], result["grown"])
    assert not np.shares_memory(result["first"], result["list"][0])


def test_a_kernel_that_allocates_the_wrong_thing(lab, value):
    lab.region("wrong", lambda x: x.astype(np.int32), [((2,), "float32")], [((2,), "float32")], kind="free")
    plan = Plan("main", (value("input", (2,)), value("output", (2,))), (("x", 0),), (("y", 1),), (Invoke("wrong", (0,), (1,)),))
    with pytest.raises(KernelFault, match="must return a tensor of float32, got int32"):
        lab.executable(plan).run({"x": f32(2)})
    lab.functions["wrong"] = ("free", lambda x: x[:1])
    with pytest.raises(KernelFault, match=r"shape \(2,\), got shape \(1,\)"):
        lab.executable(plan).run({"x": f32(2)})
    lab.functions["wrong"] = ("free", lambda x: (x, x))
    with pytest.raises(KernelFault, match="must return 1 results, got 2"):
        lab.executable(plan).run({"x": f32(2)})


def test_constants_inputs_and_twice_the_same_as_outputs(lab, value):
    plan = Plan(
        "main",
        (value("input", (2,)), value("constant", (2,), name="w"), *(value("output", (2,)) for _ in range(3))),
        (("x", 0),),
        (("a", 2), ("b", 3), ("c", 4)),
        (Move(0, 2), Move(1, 3), Move(3, 4)),
    )
    w = f32(2)
    result = lab.executable(plan, weights={"w": w}).run({"x": f32(2)})
    result["a"][...] = result["b"][...] = -1
    np.testing.assert_array_equal(w, f32(2))
    np.testing.assert_array_equal(result["c"], w)


def test_host_values_pass_through(lab, value):
    lab.region("join", lambda s: [*s, s[0]], [((), None)], [((), None)], kind="free")
    plan = Plan(
        "main",
        (value("input", (), None), value("host", (), None), value("host", (), None), value("constant", (), None, name="t")),
        (("s", 0),),
        (("y", 1), ("t", 2)),
        (Invoke("join", (0,), (1,)), Move(3, 2)),
    )
    text = np.array(["a", "b"], object)
    result = lab.executable(plan, weights={"t": text}).run({"s": [f32(2)]})
    assert len(result["y"]) == 2
    assert result["t"].tolist() == ["a", "b"]


def test_scratch_memory_and_constants(lab, value):
    def sum_(x, y, workspace):
        assert workspace.nbytes >= 4 * len(x)
        assert workspace.__array_interface__["data"][0] % 64 == 0
        y[...] = x.sum()

    lab.region(
        "sum",
        sum_,
        [((N,), "float32")],
        [((), "float32")],
        dims=[("n", 0, 0)],
        workspace={"": N * 4},
        constants={"k": np.arange(7, dtype=np.float32)[1:]},
    )
    plan = Plan("main", (value("input", (N,)), value("output", ())), (("x", 0),), (("y", 1),), (Invoke("sum", (0,), (1,)),))
    model = lab.executable(plan)
    assert model.run({"x": f32(100)})["y"] == f32(100).sum()
    assert model.workspace_bytes({"x": f32(100)}) == 400
    (constants,) = lab.loads
    assert constants["k"].__array_interface__["data"][0] % 64 == 0
    assert model.weight_bytes == 24


def test_constraints_and_requirements(lab, value):
    unary(lab, "plain", lambda x: x)
    lab.artifacts.clear()
    lab.region("few", lambda x, y: None, [((N,), "float32")], [((N,), "float32")], dims=[("n", 0, 0)],
               constraints=(Constraint(8 - N, "the length", "< 8", N, "sum", "node3"),), requires=("fma",))  # fmt: skip
    plan = Plan("main", (value("input", (N,)), value("output", (N,))), (("x", 0),), (("y", 1),), (Invoke("few", (0,), (1,)),))
    model = lab.executable(plan)
    model.run({"x": f32(7)})
    with pytest.raises(
        InputError, match=r"the length must be < 8, got 8 where n is 8 \(operator sum, at node3\); give inputs with n = 0"
    ):
        model.run({"x": f32(8)})
    lab.artifacts.clear()
    lab.region("few", lambda x, y: None, [((N,), "float32")], [((N,), "float32")], dims=[("n", 0, 0)], requires=("amx",))
    with pytest.raises(Unsupported, match="cannot run on lab here: this machine lacks amx"):
        lab.executable(plan)


def test_a_kernel_that_raises(lab, value):
    def fail(x, y):
        raise ZeroDivisionError("by zero")

    lab.region("fail", fail, [((2,), "float32")], [((2,), "float32")])
    model = lab.executable(make_plan("main", value, "fail"))
    with pytest.raises(PluginError, match=r"region fail on lab failed: ZeroDivisionError: by zero \(at node of fail, plugin lab\)"):
        model.run({"x": f32(2)})


def test_shapes_that_a_region_was_not_made_for(lab, value):
    unary(lab, "two", lambda x: x)
    plan = Plan("main", (value("input", (N,)), value("output", (N,))), (("x", 0),), (("y", 1),), (Invoke("two", (0,), (1,)),))
    with pytest.raises(KernelFault, match="expects in0 of shape"):
        lab.executable(plan).run({"x": f32(3)})


@pytest.mark.parametrize("offset", [32, 64, 128])
def test_a_value_outside_of_the_arena(lab, value, offset):
    unary(lab, "id", lambda x: x)
    values = (value("input", (2,)), value("arena", (2,), offset=offset), value("output", (2,)))
    plan = Plan("main", values, (("x", 0),), (("y", 2),), (Invoke("id", (0,), (1,)), Invoke("id", (1,), (2,))), 64)
    with pytest.raises(PackageError, match="does not fit an arena of 64"):
        lab.executable(plan).run({"x": f32(2)})


@pytest.mark.parametrize(("offset", "size"), [(0, 128), (64, 192)])
def test_a_result_that_overlaps_an_operand(lab, value, offset, size):
    """A kernel may read an operand again after it has written a result."""
    unary(lab, "id", lambda x: x, (20,))
    values = (value("input", (20,)), value("arena", (20,)), value("arena", (20,), offset=offset), value("output", (20,)))
    steps = (Invoke("id", (0,), (1,)), Invoke("id", (1,), (2,)), Invoke("id", (2,), (3,)))
    with pytest.raises(PackageError, match="plan main, instruction 1: values 2 and 1 must not share memory"):
        lab.executable(Plan("main", values, (("x", 0),), (("y", 3),), steps, size)).run({"x": f32(20)})
    apart = (*values[:2], value("arena", (20,), offset=128), values[3])
    np.testing.assert_array_equal(
        lab.executable(Plan("main", apart, (("x", 0),), (("y", 3),), steps, 256)).run({"x": f32(20)})["y"], f32(20)
    )


def test_a_late_result_that_exceeds_its_declared_shape(lab, value):
    """The places of values are checked for the shapes that the plan declares: a region must not compute larger ones."""
    lab.region("all", lambda x, y: None, [((N,), "float32")], [((K,), "float32")], dims=[("n", 0, 0), ("?k", None, 0, N)])
    lab.region("id", lambda x, y: None, [((K,), "float32")], [((K,), "float32")], dims=[("?k", 0, 0)])
    at_most_two = SizeVar("?k", 0, 2)
    values = (value("input", (N,)), value("arena", (at_most_two,)), value("output", (at_most_two,)))
    plan = Plan("main", values, (("x", 0),), (("y", 2),), (Invoke("all", (0,), (1,)), Invoke("id", (1,), (2,))), 1024)
    with pytest.raises(PackageError, match=r"a value of shape \(40,\) exceeds its declared shape \(\?k,\)"):
        lab.executable(plan).run({"x": f32(40)})


def test_a_late_size_that_two_operands_disagree_on(lab, value):
    """The plan calls both sizes ?k; the region is compiled for two operands of one size."""
    for name, count in (("two", 2), ("three", 3)):

        def fill(x, y, dims, count=count):
            y.reshape(-1)[:count] = 1
            dims[1] = count

        lab.region(name, fill, [((N,), "float32")], [((K,), "float32")], dims=[("n", 0, 0), ("?k", None, 0, N)])
    lab.region("both", lambda a, b, y: None, [((K,), "float32")] * 2, [((K,), "float32")], dims=[("?k", 0, 0)])
    values = (value("input", (N,)), *[value("dynamic", (K,))] * 2, value("output", (K,)))
    steps = (Invoke("two", (0,), (1,)), Invoke("three", (0,), (2,)), Invoke("both", (1, 2), (3,)))
    with pytest.raises(KernelFault, match=r"region both expects in1 of shape \(\?k,\), but the plan has \(3,\)"):
        lab.executable(Plan("main", values, (("x", 0),), (("y", 3),), steps)).run({"x": f32(9)})


@pytest.mark.parametrize(
    ("declared", "size", "refused"), [((2, None), 1, True), ((2, None), 2, False), ((0, 4), 4, False), ((0, 4), 5, True)]
)
def test_sizes_for_which_a_region_is_not_compiled(lab, value, declared, size, refused):
    """The code relies on the bounds in its signature; the plan's may be wider."""
    narrow = SizeVar("n", *declared)
    lab.region("id", lambda x, y: np.copyto(y, x), [((narrow,), "float32")], [((narrow,), "float32")], dims=[("n", 0, 0)])
    plan = Plan("main", (value("input", (N,)), value("output", (N,))), (("x", 0),), (("y", 1),), (Invoke("id", (0,), (1,)),))
    model = lab.executable(plan)
    if refused:
        with pytest.raises(KernelFault, match=f"region id is compiled for n from .*, but the plan has {size}"):
            model.run({"x": f32(size)})
    else:
        np.testing.assert_array_equal(model.run({"x": f32(size)})["y"], f32(size))


def test_threads_do_not_disturb_one_another(chain):
    model = chain(N)
    errors = []

    def work(n):
        x = f32(n, 3)
        for _ in range(50):
            if not np.array_equal(model.run({"x": x})["y"], (x + 1) * 2 * np.array([1, 2, 3])):
                errors.append(n)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(1, 9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors


def test_runs_that_overlap_keep_memory_for_large_results_each(lab, value, monkeypatch):
    barrier = threading.Barrier(2)

    def fill(x, y):
        barrier.wait(10)
        y[...] = x

    lab.region("fill", fill, [((N,), "float32")], [((N,), "float32")], dims=[("n", 0, 0)])
    plan = Plan("main", (value("input", (N,)), value("output", (N,))), (("x", 0),), (("y", 1),), (Invoke("fill", (0,), (1,)),))
    model = lab.executable(plan)
    allocations = []
    monkeypatch.setattr(arrays, "aligned_empty", lambda *item: allocations.append(item) or aligned_empty(*item))
    x = aligned_empty((1 << 16,), "float32")
    for _ in range(3):
        threads = [threading.Thread(target=lambda: model.run({"x": x})) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(allocations) == 2


def test_the_device_is_chosen_at_load(lab, value):
    unary(lab, "id", lambda x: x)
    lab.executable(make_plan("main", value, "id"))
    lab.executable(make_plan("main", value, "id"), devices={"lab": 2})
    assert lab.devices == [0, 2]
    from inlaid_runtime.errors import TargetError

    with pytest.raises(TargetError, match="devices names cuda"):
        lab.executable(make_plan("main", value, "id"), devices={"cuda": 1})
