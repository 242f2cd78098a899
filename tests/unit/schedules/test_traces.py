"""Traces of kernels: replayed from their text they give the same program, and with other legal decisions another correct one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inlaid import ops
from inlaid.graph import ir as graph
from inlaid.lowering.kernels.finish import finish
from inlaid.lowering.kernels.kernel import KernelSource, build
from inlaid.ops.winograd import winograd_conv
from inlaid.plugins import Capabilities
from inlaid.schedules.default import SHARED_RULES, SHARED_TRANSFORMS
from inlaid.tensor import interp
from inlaid.tensor.primitives import SEMANTICS, TensorIntrin
from inlaid.tensor.scheduling.dot_products import dot_product
from inlaid.tensor.scheduling.rule import InputInfo, KernelContext
from inlaid.tensor.scheduling.trace import collect_offers, parse_kernel_trace, replay_kernel, scheduled
from inlaid.tensor.text import show
from inlaid_runtime.errors import ParseError, ScheduleError
from inlaid_runtime.types import ROW_MAJOR, TensorType

DOT = TensorIntrin("dot", dot_product("uint8", "int8", "int32", 4, 4))
CONTEXT = KernelContext(Capabilities(dtypes=("float32",), vector_bits=128, vector_registers=16), 2, (DOT,))
MEANING = {**SEMANTICS, "dot": DOT.semantics}
F32 = "float32"


def kernel(make, *types):
    params = tuple(graph.var(f"x{number}", TensorType(*arguments)) for number, arguments in enumerate(types))
    return build(KernelSource("kernel", params, make(*params)))


def convolved(data, weights, pad=0, **attrs):
    return ops.conv(data, weights, strides=(1, 1), pads=(pad,) * 4, dilations=(1, 1), groups=1, **attrs)


def padded(data, weights):
    return ops.relu(convolved(data, weights, 1))


KERNELS = {
    "matmul": kernel(lambda a, b: ops.relu(ops.matmul(a, b)), ((7, 6), F32), ((6, 20), F32)),
    "matmul of weights": kernel(lambda a, b: ops.relu(ops.matmul(a, b)), ((7, 6), F32), ((6, 20), F32)),
    "matmul of bytes and weights": kernel(lambda a, b: ops.matmul(a, b, out_dtype="int32"), ((5, 8), "uint8"), ((8, 12), "int8")),
    "conv2d of weights": kernel(padded, ((1, 8, 6, 7), F32), ((12, 8, 3, 3), F32)),
    "conv2d of dilated lines and weights": kernel(
        lambda x, w: ops.conv(x, w, dilations=(4,), pads=(4, 4)), ((2, 8, 21), F32), ((12, 8, 3), F32)
    ),
    "conv2d of bytes and weights": kernel(
        lambda x, w: convolved(x, w, out_dtype="int32"), ((1, 8, 5, 5), "uint8"), ((8, 8, 3, 3), "int8")
    ),
    "window": kernel(lambda x: ops.max_pool(x, kernel=(2, 2), strides=(1, 1), pads=(0, 1, 0, 1)), ((2, 4, 5, 9), F32)),
    "winograd of weights": kernel(
        lambda x, u: winograd_conv(x, u, pads=(1, 1, 1, 1), tile=2), ((1, 4, 8, 12), F32), ((4, 4, 4, 4), F32)
    ),
    "rows": kernel(lambda x: ops.softmax(x, axis=1), ((12, 40), F32)),
    "generic": kernel(lambda x, y: ops.relu(ops.add(x, y)), ((9, 3, 50), F32), ((3, 1), F32)),
    "transpose": kernel(lambda x: ops.transpose(x, perm=(1, 0)), ((9, 14), F32)),
}


def offered(name):
    """The kernel as the first rule of all schedules it, by its first offer; weights are constant."""
    source = KERNELS[name]
    facts = tuple(InputInfo(ROW_MAJOR, name.endswith("weights") and number == 1) for number in range(len(source.inputs)))
    offer = next(filter(None, (collect_offers(rule, source, CONTEXT, facts) for rule in SHARED_RULES)))[0]
    traced_kernel = scheduled(source, offer, len(offer.versions), CONTEXT)
    assert traced_kernel.trace.rule == name.split()[0]
    return traced_kernel


def replayed(source, trace):
    return replay_kernel(source, str(trace), SHARED_RULES, SHARED_TRANSFORMS, CONTEXT)


def is_equivalent(source, traced_kernel):
    """Whether a scheduled kernel equals the unscheduled one on small integers, whose sums are exact; nearly, where it divides."""
    generator = np.random.default_rng(5)
    arrays = [generator.integers(0, 5, buffer.shape).astype(buffer.dtype.numpy) for buffer in source.inputs]
    expected = interp.run(source, arrays)[0]
    program, layouts = finish(traced_kernel.program), traced_kernel.trace.layouts
    packed = [
        layout.pack(array).reshape(buffer.shape) for layout, array, buffer in zip(layouts, arrays, program.inputs, strict=False)
    ]
    actual = interp.run(program, packed, intrinsics=MEANING)[0]
    layout = layouts[len(source.inputs)]
    is_element = layout.pack(np.ones(expected.shape)) > 0
    return np.allclose(actual.reshape(is_element.shape)[is_element], layout.pack(expected)[is_element], rtol=1e-6)


@pytest.mark.parametrize("name", KERNELS)
def test_texts_replay_to_the_same_program(name):
    traced_kernel = offered(name)
    again = replayed(traced_kernel.source, traced_kernel.trace)
    assert show(again.program) == show(traced_kernel.program)
    assert str(again.trace) == str(traced_kernel.trace)
    assert is_equivalent(traced_kernel.source, again)


@pytest.mark.parametrize("name", KERNELS)
def test_rules_make_the_same_of_decisions_without_steps(name):
    traced_kernel = offered(name)
    head = str(traced_kernel.trace).partition("\nsteps(")[0]
    assert show(replayed(traced_kernel.source, head).program) == show(traced_kernel.program)


@settings(max_examples=20, deadline=None)
@given(st.data())
def test_other_legal_decisions_compute_the_same(data):
    traced_kernel = offered(data.draw(st.sampled_from([name for name in KERNELS if offered(name).trace.decisions])))
    trace = traced_kernel.trace
    for decision in trace.decisions:
        trace = trace.choose(decision.name, data.draw(st.sampled_from(decision.legal), label=decision.name))
    again = replayed(traced_kernel.source, trace)
    assert is_equivalent(traced_kernel.source, again)
    assert [item.value for item in again.trace.decisions] == [item.value for item in trace.decisions]
    # What the rule made leaves steps of its own, which replay.
    assert show(replayed(traced_kernel.source, again.trace).program) == show(again.program)


@pytest.mark.parametrize(
    ("name", "decision"),
    [
        ("matmul", "tile"),
        ("matmul", "pack"),
        ("conv2d of weights", "tile"),
        ("conv2d of weights", "share"),
        ("window", "pixels"),
        ("rows", "rows"),
    ],
)
def test_another_decision_gives_another_program(name, decision):
    traced_kernel = offered(name)
    decision_record = next(item for item in traced_kernel.trace.decisions if item.name == decision)
    other = next(value for value in reversed(decision_record.legal) if value != decision_record.value)
    assert show(replayed(traced_kernel.source, traced_kernel.trace.choose(decision, other)).program) != show(traced_kernel.program)


def test_values_that_are_not_legal_are_refused():
    traced_kernel = offered("matmul")
    with pytest.raises(ScheduleError, match=r"decision tile: expected one of \(5, 1\), .*, found \(99, 1\)"):
        traced_kernel.trace.choose("tile", (99, 1))
    with pytest.raises(ScheduleError, match="decision pack: expected one of 0, 1, found 2"):
        replayed(
            traced_kernel.source, str(traced_kernel.trace).replace('decide("pack", (0, 1), 0)', 'decide("pack", (0, 1), 0, 2)')
        )
    with pytest.raises(ScheduleError, match="unknown decision stripe; the decisions of kernel kernel are tile, pack"):
        traced_kernel.trace.choose("stripe", 1)


def test_traces_of_another_kernel_or_target_are_refused():
    traced_kernel = offered("matmul")
    with pytest.raises(ScheduleError, match="the trace is for kernel"):
        replayed(KERNELS["rows"], traced_kernel.trace)
    with pytest.raises(ScheduleError, match="the trace is for target"):
        replay_kernel(
            traced_kernel.source, traced_kernel.trace, SHARED_RULES, SHARED_TRANSFORMS, KernelContext(CONTEXT.capabilities, 1)
        )
    with pytest.raises(ScheduleError, match=r"rule matmul does not offer schedule 3\.0"):
        replayed(
            traced_kernel.source,
            str(traced_kernel.trace).partition("\nsteps(")[0].replace('rule("matmul", 0, 0)', 'rule("matmul", 3, 0)'),
        )


@pytest.mark.parametrize(
    ("text", "error"),
    [("", ScheduleError), ('loops("a")', ScheduleError), ("decide(1)", ScheduleError), ("nothing()", ParseError)],
)
def test_other_texts_are_refused(text, error):
    with pytest.raises(error):
        parse_kernel_trace(text, SHARED_TRANSFORMS)
