"""Relations between sizes that converters of ONNX state, of models with symbolic sizes: sizes that break one are refused by its
message, before and during the run, sizes that keep it give what static sizes give. A statement that no case breaks fails."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, helper, numpy_helper
from tests.broken_sizes import Array, Break, check, unreached
from tests.onnx_runtime import answers

import inlaid_onnx
from inlaid.graph.ir import Module
from inlaid_onnx import load

ML = "ai.onnx.ml"


@dataclass(frozen=True, eq=False)
class Case:
    """A node at sizes that keep its relations, and sizes that break them.

    inputs
        Values, or shapes of random float32 values; None is omitted. An integer or a list of them is a constant of the model.
    fixed
        Dimensions (input, axis) that are static in the model.
    peer
        Whether ONNX Runtime runs the node.
    """

    op: str
    opset: int
    inputs: tuple[Any, ...]
    breaks: tuple[Break, ...]
    attrs: dict[str, Any] = field(default_factory=dict)
    outputs: int = 1
    domain: str = ""
    fixed: tuple[tuple[int, int], ...] = ()
    peer: bool = True

    def __str__(self) -> str:
        return f"{self.op}-{self.breaks[0].message.partition(' must')[0]}"

    @property
    def title(self) -> str:
        return f"{self.domain}:{self.op}" if self.domain else self.op

    def values(self) -> dict[int, Array]:
        return {index: _drawn(index, item) for index, item in enumerate(self.inputs) if item is not None}

    def load(self, values: Mapping[int, Array], symbolic: bool) -> Module:
        return load(self.model(values, symbolic))

    def peers(self, values: Mapping[int, Array]) -> Sequence[Array] | None:
        return [*answers(self.model(values, symbolic=False), self.feeds(values)).values()] if self.peer else None

    def model(self, values: Mapping[int, Array], symbolic: bool) -> ModelProto:
        """Build the model; dimension 1 of input 0 is called `x0_1` if it is symbolic."""
        constants = [index for index, item in enumerate(self.inputs) if isinstance(item, (int, list))]
        names = [f"x{index}" if index in values else "" for index in range(len(self.inputs))]
        results = [f"y{number}" for number in range(self.outputs)]

        def dims(index: int) -> list[int | str]:
            fixed = [axis for position, axis in self.fixed if position == index]
            shape = values[index].shape
            return [f"x{index}_{axis}" if symbolic and axis not in fixed else dim for axis, dim in enumerate(shape)]

        graph = helper.make_graph(
            [helper.make_node(self.op, names, results, domain=self.domain, **self.attrs)],
            "g",
            [
                helper.make_tensor_value_info(f"x{index}", helper.np_dtype_to_tensor_dtype(value.dtype), dims(index))
                for index, value in values.items()
                if index not in constants
            ],
            [helper.make_empty_tensor_value_info(name) for name in results],
            [numpy_helper.from_array(values[index], f"x{index}") for index in constants],
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid(self.domain, self.opset)], ir_version=10)

    def feeds(self, values: Mapping[int, Array]) -> dict[str, Array]:
        return {f"x{index}": value for index, value in values.items() if not isinstance(self.inputs[index], (int, list))}


def _drawn(index: int, item: Any) -> Array:
    if isinstance(item, tuple):
        return np.random.default_rng(index).normal(size=item).astype(np.float32)
    return np.asarray(item, np.int64) if isinstance(item, (int, list)) else item


def indices(*shape: int, dtype: Any = np.int64) -> Array:
    return np.zeros(shape, dtype)


STUMP = {
    "nodes_treeids": [0, 0, 0],
    "nodes_nodeids": [0, 1, 2],
    "nodes_featureids": [2, 0, 0],
    "nodes_values": [0.0, 0.0, 0.0],
    "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"],
    "nodes_truenodeids": [1, 0, 0],
    "nodes_falsenodeids": [2, 0, 0],
    "target_treeids": [0, 0],
    "target_nodeids": [1, 2],
    "target_ids": [0, 0],
    "target_weights": [1.0, 2.0],
    "n_targets": 1,
}
VECTORS = {"coefficients": [1.0, -1.0], "support_vectors": [1.0, 0.0, 0.0, 1.0, 1.0, 0.0], "n_supports": 2, "rho": [0.5]}
QUANTIZED = (np.ones((2, 3), np.uint8), np.ones((3, 4), np.uint8), np.ones((2,), np.uint8), np.ones((4,), np.uint8))
SCALES = np.full((4,), 0.5, np.float32)
LINEAR = (
    np.ones((2, 3), np.uint8),
    np.full((2,), 0.5, np.float32),
    indices(2, dtype=np.uint8),
    np.ones((3, 4), np.uint8),
    SCALES,
    indices(4, dtype=np.uint8),
    np.ones((), np.float32),
    np.zeros((), np.uint8),
)
MOMENTUM = {"alpha": 0.9, "beta": 0.9, "mode": "standard", "norm_coefficient": 0.0}
HEADS = {"q_num_heads": 2, "kv_num_heads": 2}
STEPS = ((1, 3, 8), (1, 3, 8), (1, 3, 8))
DELTA = {"q_num_heads": 2, "kv_num_heads": 2, "update_rule": "gated_delta", "scale": 0.5}

CASES = (
    Case(
        "Scaler",
        1,
        ((2, 3),),
        (Break(0, 1, 4, "dimension 0 of the offset must be 1 or x0_1 to broadcast, got 3"),),
        {"offset": [1.0, 2.0, 3.0], "scale": [2.0, 3.0, 4.0]},
        domain=ML,
    ),
    Case(
        "Imputer",
        1,
        ((2, 3),),
        (Break(0, 1, 2, "dimension 0 of the imputed values must be 1 or x0_1 to broadcast, got 3"),),
        {"imputed_value_floats": [1.0, 2.0, 3.0], "replaced_value_float": 0.0},
        domain=ML,
    ),
    Case(
        "SVMRegressor",
        1,
        ((2, 3),),
        (Break(0, 1, 1, "the number of features of the input must be 3, got 1"),),
        {"kernel_type": "RBF", "kernel_params": [0.5, 0.0, 3.0], **VECTORS},
        domain=ML,
    ),
    Case(
        "TreeEnsembleRegressor",
        1,
        ((4, 3),),
        (Break(0, 1, 2, "the number of features (see nodes_featureids) must be >= 3, got 2"),),
        STUMP,
        domain=ML,
    ),
    Case(
        "MaxUnpool",
        11,
        ((1, 1, 2, 2), np.array([[[[0, 2], [8, 10]]]])),
        (Break(1, 3, 1, "dimension 3 of the indices must be x0_3, got 1"),),
        {"kernel_shape": [2, 2], "strides": [2, 2]},
    ),
    Case("Squeeze", 13, ((2, 1, 3), [1]), (Break(0, 1, 2, "dimension 1, which is squeezed, must be 1, got 2"),)),
    Case(
        "Squeeze",
        13,
        ((2, 3),),
        (
            Break(
                0,
                1,
                1,
                "dimension x0_1 of (x0_0, x0_1), which is squeezed if it is 1, must be other than 1",
                static=False,
            ),
        ),
    ),
    Case("Expand", 13, ((1, 4), [3, 4]), (Break(0, 0, 2, "an operand's dimension must be 1 or 3 to broadcast, got 2"),)),
    Case(
        "Split",
        13,
        ((4, 2),),
        (Break(0, 0, 5, "dimension 0, which is split into equal parts, must be a multiple of 2, got 5"),),
        outputs=2,
    ),
    Case(
        "Split",
        13,
        ((5, 2), [2, 3]),
        (
            Break(0, 0, 4, "the sum of the parts (2, 3) of dimension 0 must be x0_0, got 5"),
            Break(0, 0, 6, "the sum of the parts (2, 3) of dimension 0 must be x0_0, got 5"),
        ),
        outputs=2,
    ),
    Case(
        "Momentum",
        1,
        (np.array(0.1, np.float32), np.array(1), (3,), (3,), (3,)),
        (
            Break(3, 0, 4, "dimension 0 of input 3 must be x2_0, got 4"),
            Break(4, 0, 1, "dimension 0 of input 4 must be x2_0, got 1"),
        ),
        MOMENTUM,
        outputs=2,
        domain="ai.onnx.preview.training",
        peer=False,
    ),
    Case(
        "Einsum",
        12,
        ((3, 3),),
        (Break(0, 1, 2, "dimension 1 of input 0, which has a label twice, must be x0_0, got 2"),),
        {"equation": "ii->i"},
    ),
    Case("STFT", 17, ((1, 8, 1), 2, (4,), 4), (Break(2, 0, 3, "dimension 0 of the window must be 4, got 3"),), fixed=((0, 2),)),
    Case(
        "Conv",
        17,
        ((1, 2, 5, 5), (3, 2, 3, 3), (3,)),
        (
            Break(2, 0, 1, "dimension 0 of the bias must be x1_0, got 1"),
            Break(1, 0, 4, "dimension 0 of the bias must be x1_0, got 3"),
        ),
        fixed=((0, 1), (1, 1)),
    ),
    Case(
        "Conv",
        17,
        ((1, 2, 5), (3, 2, 3)),
        (Break(1, 2, 2, "dimension 0 of the window of the weights, as in kernel_shape, must be 3, got 2"),),
        {"kernel_shape": [3]},
        fixed=((0, 1), (1, 1)),
    ),
    Case("Gemm", 17, ((2, 3), (3, 4), (4,)), (Break(2, 0, 3, "dimension 0 of C must be 1 or x1_1 to broadcast, got 3"),)),
    Case(
        "MatMulInteger",
        10,
        QUANTIZED,
        (
            Break(3, 0, 3, "dimension 0 of the zero point of input 1 must be 1 or x1_1 to broadcast, got 3"),
            Break(2, 0, 3, "dimension 0 of the zero point of input 0 must be 1 or x0_0 to broadcast, got 3"),
        ),
        peer=False,
    ),
    Case(
        "QLinearMatMul",
        21,
        LINEAR,
        (
            Break(1, 0, 3, "dimension 0 of the scale of input 0 must be 1 or x0_0 to broadcast, got 3"),
            Break(4, 0, 3, "dimension 0 of the scale of input 3 must be 1 or x3_1 to broadcast, got 3"),
        ),
        peer=False,
    ),
    Case(
        "Attention",
        23,
        STEPS,
        (Break(0, 2, 7, "the hidden size, which is divided by heads, must be a multiple of 2, got 7"),),
        {**HEADS, "scale": 0.5},
        peer=False,
    ),
    Case(
        "Attention",
        23,
        STEPS,
        (Break(2, 1, 2, "dimension 2 of the values must be x1_1, got 2"),),
        {**HEADS, "scale": 0.5},
        outputs=4,
        peer=False,
    ),
    Case(
        "LinearAttention",
        27,
        STEPS,
        (Break(2, 1, 2, "dimension 1 of input 2 must be x0_1, got 2"),),
        {**HEADS, "update_rule": "linear", "scale": 0.5},
        outputs=2,
        peer=False,
    ),
    Case(
        "LinearAttention",
        27,
        STEPS,
        (Break(0, 2, 4, "the size of a query must be (x1_2 // 2), got 2"),),
        {**HEADS, "update_rule": "linear", "scale": 0.5},
        outputs=2,
        peer=False,
    ),
    Case(
        "LinearAttention",
        27,
        (*STEPS, (1, 2, 4, 4), (1, 3, 8), (1, 3, 2)),
        (
            Break(3, 2, 5, "dimension 2 of the past state must be (x1_2 // 2), got 5"),
            Break(4, 2, 4, "dimension 0 of the decay of a head must be 1 or (x1_2 // 2) to broadcast, got 2"),
            Break(5, 2, 3, "dimension 0 of the update rates must be 1 or 2 to broadcast, got 3"),
        ),
        DELTA,
        outputs=2,
        peer=False,
    ),
    Case(
        "CausalConvWithState",
        27,
        ((1, 3, 5), (3, 1, 2), (3,), (1, 3, 1)),
        (
            Break(1, 1, 2, "dimension 1 of the weights must be 1, got 2"),
            Break(3, 2, 2, "dimension 2 of the past state must be (x1_2 + -1), got 2"),
            Break(2, 0, 1, "dimension 0 of the bias must be 3, got 1"),
        ),
        outputs=2,
        fixed=((0, 1),),
        peer=False,
    ),
    Case(
        "CausalConvWithState",
        27,
        ((1, 3, 5), (3, 1, 2)),
        (Break(1, 2, 0, "dimension 2 of the weights must be >= 1, got 0"),),
        outputs=2,
        fixed=((0, 1),),
        peer=False,
    ),
    Case(
        "RotaryEmbedding",
        23,
        ((1, 2, 3, 4), (1, 3, 2), (1, 3, 2)),
        (
            Break(0, 3, 5, "the number of rotated elements must be a multiple of 2, got 5"),
            Break(1, 1, 2, "dimension 1 of the cosines must be x0_2, got 2"),
        ),
        peer=False,
    ),
    Case(
        "RotaryEmbedding",
        23,
        ((1, 2, 3, 4), (7, 2), (7, 2), indices(1, 3)),
        (
            Break(3, 1, 2, "dimension 1 of the position ids must be x0_2, got 2"),
            Break(2, 0, 6, "dimension 0 of the sines must be x1_0, got 6"),
        ),
        peer=False,
    ),
    Case("SwiGLU", 28, ((2, 3), (2, 3)), (Break(1, 1, 1, "dimension 1 of the second operand must be x0_1, got 1"),), peer=False),
    Case(
        "PRelu",
        16,
        ((2, 3), (3,)),
        (
            Break(1, 0, 2, "dimension 0 of the slope must be 1 or x0_1 to broadcast, got 2"),
            Break(0, 1, 1, "dimension 0 of the slope must be 1 or x0_1 to broadcast, got 3"),
        ),
    ),
    Case(
        "BatchNormalization",
        7,
        ((2, 3, 2), *[(3, 2)] * 3, np.ones((3, 2), np.float32)),
        (Break(1, 1, 1, "dimension 1 of the scale must be x0_2, got 1"),),
        {"spatial": 0},
        peer=False,
    ),
    Case(
        "BatchNormalization",
        15,
        ((2, 3, 2), *[(3,)] * 3, np.ones(3, np.float32)),
        (Break(3, 0, 1, "dimension 0 of the mean must be x0_1, got 1"),),
        {"training_mode": 1},
        outputs=3,
        peer=False,
    ),
    Case(
        "InstanceNormalization",
        6,
        ((2, 3, 4), (3,), (3,)),
        (
            Break(1, 0, 1, "dimension 0 of the scale must be x0_1, got 1"),
            Break(2, 0, 2, "dimension 0 of the bias must be x0_1, got 2"),
        ),
    ),
    Case(
        "TensorScatter",
        24,
        ((2, 5, 3), (2, 2, 3), np.array([1, 3])),
        (
            Break(2, 0, 1, "dimension 0 of write_indices must be x1_0, got 1"),
            Break(1, 2, 4, "dimension 2 of the update must be x0_2, got 4"),
            Break(1, 1, 6, "dimension 1 of the update must be <= x0_1, got 6"),
        ),
        peer=False,
    ),
    Case(
        "GatherND",
        13,
        ((4,), indices(5, 1)),
        (Break(1, 1, 2, "the last dimension of the indices must be 1, got 2", static=False),),
    ),
    Case(
        "ScatterND",
        18,
        ((4, 3), np.array([[1], [3]]), (2, 3)),
        (Break(1, 1, 2, "the last dimension of the indices must be 1, got 2", static=False),),
    ),
    Case(
        "OneHot",
        11,
        (np.array([0, 2]), [3], np.array([0.0, 1.0], np.float32)),
        (Break(2, 0, 3, "dimension 0 of the values must be 2, got 3"),),
    ),
    Case(
        "NegativeLogLikelihoodLoss",
        13,
        ((2, 3, 4), indices(2, 4), (3,)),
        (
            Break(1, 1, 3, "dimension 1 of the target must be x0_2, got 3"),
            Break(2, 0, 4, "dimension 0 of the weights of the classes must be x0_1, got 4"),
        ),
    ),
    Case(
        "AffineGrid",
        20,
        ((2, 2, 3), [2, 3, 4, 5]),
        (Break(0, 0, 1, "dimension 0 of theta must be 2, got 1"), Break(0, 2, 4, "dimension 2 of theta must be 3, got 4")),
        peer=False,
    ),
)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_sizes_are_refused_or_results_are_right(case: Case) -> None:
    check(case)


def test_every_statement_refuses_sizes() -> None:
    assert unreached(CASES, inlaid_onnx) == []
