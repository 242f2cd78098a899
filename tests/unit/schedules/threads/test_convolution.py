"""Convolutions on grids of threads: sums of products over windows, whose columns are the pixels of images."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inlaid import ops
from inlaid.schedules.threads.product import ProductRule
from inlaid.tensor import ir
from inlaid_runtime import arith

from .interpreter_checks import CLASSES, EMBEDDED, GPU, check_against_interpreter, first_offer, kernel, planted_races

F32 = "float32"
RULE = ProductRule()
CHECKED = settings(max_examples=10, deadline=None)
N, D, H, W = (arith.SizeVar(name, 0, 64) for name in ("n", "d", "h", "w"))


def conv(strides, pads, dilations=None, groups=1, **more):
    def body(x, w):
        steps = dilations or (1,) * len(strides)
        return ops.relu(ops.conv(x, w, strides=strides, pads=pads, dilations=steps, groups=groups, **more))

    return body


def with_residual(x, w, b, y):
    sums = ops.conv(x, w, strides=(1, 1), pads=(1, 1, 1, 1), dilations=(1, 1), groups=1)
    return ops.relu(ops.add(ops.add(sums, b), y))


KERNELS = {
    "padded": kernel(conv((1, 1), (1, 1, 1, 1)), ((2, 4, 6, 7), F32), ((8, 4, 3, 3), F32)),
    "strided, dilated": kernel(conv((2, 1), (1, 0, 1, 2), (1, 2)), ((2, 3, 7, 8), F32), ((5, 3, 3, 2), F32)),
    "groups": kernel(conv((1, 1), (1, 1, 1, 1), groups=2), ((2, 8, 5, 5), F32), ((6, 4, 3, 3), F32)),
    "single pixels": kernel(conv((1, 1), (0,) * 4), ((2, 8, 5, 6), F32), ((6, 8, 1, 1), F32)),
    "single pixels apart": kernel(conv((2, 2), (0,) * 4), ((2, 8, 5, 6), F32), ((6, 8, 1, 1), F32)),
    "integers": kernel(conv((1, 1), (0,) * 4, out_dtype="int32"), ((2, 8, 5, 5), "uint8"), ((6, 8, 3, 3), "int8")),
    "halves": kernel(conv((1, 1), (1, 1, 1, 1)), ((1, 4, 6, 7), "float16"), ((8, 4, 3, 3), "float16")),
    "lines": kernel(conv((2,), (1, 1)), ((2, 4, 31), F32), ((6, 4, 3), F32)),
    "volumes": kernel(conv((1, 1, 1), (1,) * 6), ((1, 3, 4, 3, 5), F32), ((4, 3, 2, 3, 2), F32)),
    "few channels": kernel(conv((2, 2), (3, 3, 3, 3)), ((1, 3, 12, 12), F32), ((8, 3, 7, 7), F32)),
    "one channel out": kernel(conv((1, 1), (1, 1, 1, 1)), ((1, 8, 7, 7), F32), ((1, 8, 3, 3), F32)),
    "what follows": kernel(with_residual, ((2, 4, 6, 7), F32), ((8, 4, 3, 3), F32), ((8, 1, 1), F32), ((2, 8, 6, 7), F32)),
}


@pytest.mark.parametrize("able", CLASSES.values(), ids=CLASSES)
@pytest.mark.parametrize("program", KERNELS.values(), ids=KERNELS)
def test_computes_the_same(program, able):
    split = check_against_interpreter(program, able, rule=RULE)
    assert not planted_races(split), "each barrier is needed"


@pytest.mark.parametrize("able", CLASSES.values(), ids=CLASSES)
@pytest.mark.parametrize("name", ["padded", "groups", "volumes", "single pixels"])
def test_parts_of_the_depth_are_added_up(name, able):
    split = check_against_interpreter(KERNELS[name], able, rule=RULE, parts=2)
    assert len(split.kernels) == 2


@CHECKED
@given(
    st.tuples(st.integers(1, 2), st.integers(2, 5), st.integers(4, 8), st.integers(4, 8)),
    st.tuples(st.integers(2, 9), st.integers(1, 3), st.integers(1, 3)),
    st.tuples(st.integers(1, 2), st.integers(1, 2)),
    st.integers(0, 1),
    st.sampled_from([GPU, EMBEDDED]),
)
def test_planes_of_any_size(data, window, strides, pad, able):
    outputs, height, width = window
    program = kernel(conv(strides, (pad,) * 4), (data, F32), ((outputs, data[1], height, width), F32))
    count = outputs * data[0] * ((data[2] + 2 * pad - height) // strides[0] + 1) * ((data[3] + 2 * pad - width) // strides[1] + 1)
    if count >= 32:
        check_against_interpreter(program, able, rule=RULE)


@pytest.mark.parametrize("able", CLASSES.values(), ids=CLASSES)
@pytest.mark.parametrize(("strides", "pads"), [((1, 1), (0,) * 4), ((1, 1), (1, 1, 1, 1)), ((2, 2), (1, 0, 1, 2))])
def test_batch_height_and_width_need_not_be_known(strides, pads, able):
    program = kernel(conv(strides, pads), ((N, 4, H, W), F32), ((8, 4, 3, 3), F32))
    sizes = [{N: 2, H: 5, W: 7}, {N: 1, H: 3, W: 3}, {N: 0, H: 4, W: 4}, {N: 1, H: 12, W: 9}]
    check_against_interpreter(program, able, sizes, RULE)


@pytest.mark.parametrize("able", CLASSES.values(), ids=CLASSES)
def test_volumes_and_lines_need_not_be_known(able):
    program = kernel(conv((1, 1, 1), (1,) * 6), ((N, 2, D, H, 5), F32), ((4, 2, 2, 3, 2), F32))
    check_against_interpreter(program, able, [{N: 1, D: 2, H: 3}, {N: 2, D: 3, H: 2}], RULE)
    lines = kernel(conv((2,), (1, 1)), ((N, 2, W), F32), ((4, 2, 3), F32))
    check_against_interpreter(lines, able, [{N: 2, W: 9}, {N: 1, W: 1}], RULE)


@pytest.mark.parametrize("able", CLASSES.values(), ids=CLASSES)
def test_phases_of_a_transposed_convolution_are_interleaved_by_a_second_kernel(able):
    def body(x, w):
        phases = ops.reshape(conv((1, 1), (1, 1, 1, 1))(x, w), shape=(1, 2, 2, 4, 6, 6))
        return ops.reshape(ops.transpose(phases, perm=(0, 3, 4, 1, 5, 2)), shape=(1, 4, 12, 12))

    split = check_against_interpreter(kernel(body, ((1, 8, 5, 5), F32), ((16, 8, 2, 2), F32)), able, rule=RULE)
    assert len(split.kernels) == 2


@pytest.mark.parametrize("able", CLASSES.values(), ids=CLASSES)
def test_single_pixels_of_any_image(able):
    program = kernel(conv((1, 1), (0,) * 4), ((N, 8, H, W), F32), ((6, 8, 1, 1), F32))
    check_against_interpreter(program, able, [{N: 2, H: 3, W: 5}, {N: 1, H: 1, W: 1}], RULE)


def test_windows_of_one_channel_share_no_pixels():
    """A channel convolved by itself is a window, not a product."""
    program = kernel(conv((1, 1), (1, 1, 1, 1), groups=8), ((1, 8, 6, 6), F32), ((8, 1, 3, 3), F32))
    with pytest.raises(AssertionError, match="takes the kernel"):
        first_offer(program, GPU, RULE)


def test_weights_are_read_in_vectors():
    """Input channels and places of the window are one dimension of the weights."""
    split = check_against_interpreter(KERNELS["padded"], GPU, rule=RULE)
    (item,) = split.kernels.values()
    assert (8, 36) in [buffer.shape for buffer in item.program.inputs]
    assert any(stmt.kind is ir.ForKind.VECTORIZED for stmt in ir.walk_stmts(item.program.body) if isinstance(stmt, ir.For))
