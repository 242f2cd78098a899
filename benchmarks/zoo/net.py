"""Builds ONNX models node by node, with weights that depend on a seed alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

OPSET = 17
"""The oldest that has LayerNormalization: what most exporters write, and every peer reads."""
IR_VERSION = 8

Array = np.ndarray[Any, Any]
Size = int | str
"""A number, or the name of a symbolic dimension."""


class Net:
    """An ONNX graph that grows. Methods that add a node return the name of its result.

    Weights are drawn from the bit stream of PCG64, which numpy keeps the same for good, and not from one of numpy's
    distributions, whose methods may change: so a model has the same bytes everywhere.
    """

    def __init__(self, name: str, seed: int = 0, opset: int = OPSET, learning: int = 0) -> None:
        """`opset` of ONNX's own operators, and `learning` that of ai.onnx.ml, 0 where none is used."""
        self.name = name
        self.opset = opset
        self._learning = learning
        self._bits = np.random.PCG64(seed)
        self._nodes: list[onnx.NodeProto] = []
        self._weights: dict[str, onnx.TensorProto] = {}
        self._inputs: list[onnx.ValueInfoProto] = []
        self._outputs: list[onnx.ValueInfoProto] = []
        self._scope: list[str] = []
        self._constants: dict[tuple[bytes, str, tuple[int, ...]], str] = {}
        self._label_counts: dict[str, int] = {}
        self._renamed: dict[str, str] = {}

    @contextmanager
    def scope(self, name: str) -> Iterator[None]:
        """What is added inside has this name before its own."""
        self._scope.append(name)
        yield
        self._scope.pop()

    def input(self, name: str, shape: Sequence[Size], dtype: str = "float32") -> str:
        """An input of the model."""
        self._inputs.append(helper.make_tensor_value_info(name, _element_type(dtype), list(shape)))
        return name

    def output(self, value: str, name: str, shape: Sequence[Size] | None, dtype: str = "float32") -> None:
        """Make the result of a node an output of the model, under a name. `shape`: None where even the rank is left open."""
        self._renamed[value] = name
        self._outputs.append(helper.make_tensor_value_info(name, _element_type(dtype), shape))

    def node(self, op: str, *inputs: str, name: str = "", **attrs: Any) -> str:
        """A node of one result; an input of "" is left out."""
        return self.nodes(op, *inputs, results=1, name=name, **attrs)[0]

    def nodes(self, op: str, *inputs: str, results: int, name: str = "", **attrs: Any) -> tuple[str, ...]:
        """A node of several results."""
        label = self._unique(name or op.lower())
        labels = tuple(label if number == 0 else f"{label}:{number}" for number in range(results))
        self._nodes.append(helper.make_node(op, inputs, labels, name=label, **attrs))
        return labels

    def uniform(self, shape: tuple[int, ...], bound: float) -> Array:
        """Float32 numbers in [-bound, bound)."""
        count = int(np.prod(shape, dtype=np.int64))
        halves = self._bits.random_raw((count + 1) // 2).view(np.uint32)[:count]
        unit = (halves >> np.uint32(8)).astype(np.float32) * np.float32(2.0**-23) - np.float32(1)
        return (unit * np.float32(bound)).reshape(shape)

    def weight(self, name: str, shape: tuple[int, ...], bound: float, around: float = 0.0) -> str:
        """An initializer of random numbers within `bound` of `around`."""
        return self.initializer(name, self.uniform(shape, bound) + np.float32(around))

    def initializer(self, name: str, array: Array) -> str:
        """An initializer of given numbers."""
        label = self._unique(name)
        self._weights[label] = numpy_helper.from_array(array, label)
        return label

    def constant(self, value: Any, dtype: str = "float32") -> str:
        """A small initializer, shared by all who ask for the same one."""
        array = np.asarray(value, dtype)
        key = (array.tobytes(), dtype, array.shape)
        if key not in self._constants:
            label = f"constant_{len(self._constants)}"
            self._weights[label] = numpy_helper.from_array(array, label)
            self._constants[key] = label
        return self._constants[key]

    def shape(self, *sizes: int) -> str:
        """A constant shape, as Reshape reads it: 0 keeps a size, -1 takes what is left."""
        return self.constant(sizes, "int64")

    def body(self, name: str) -> Net:
        """An empty subgraph, for a branch or a loop body: it reads this graph's values, and its weights lie in this graph."""
        inner = Net(name, opset=self.opset)
        inner._bits, inner._weights, inner._constants, inner._label_counts = (
            self._bits,
            self._weights,
            self._constants,
            self._label_counts,
        )
        inner._scope = [*self._scope, name]
        return inner

    def graph(self) -> onnx.GraphProto:
        """The nodes, inputs and outputs, without weights: what `If`, `Loop` and `Scan` take as an attribute."""
        for node in self._nodes:
            for names in (node.input, node.output):
                names[:] = [self._renamed.get(name, name) for name in names]
        return helper.make_graph(self._nodes, self.name, self._inputs, self._outputs)

    def build(self) -> onnx.ModelProto:
        """The model, checked."""
        graph = self.graph()
        graph.initializer.extend(self._weights.values())
        opsets = [helper.make_opsetid("", self.opset)]
        if self._learning:
            opsets.append(helper.make_opsetid("ai.onnx.ml", self._learning))
        version = max(IR_VERSION, helper.find_min_ir_version_for(opsets))
        model = helper.make_model(graph, producer_name="inlaid-zoo", opset_imports=opsets, ir_version=version)
        onnx.checker.check_model(model)
        return model

    def _unique(self, name: str) -> str:
        label = "/".join((*self._scope, name))
        count = self._label_counts[label] = self._label_counts.get(label, -1) + 1
        return f"{label}_{count}" if count else label


def _element_type(dtype: str) -> int:
    if dtype == "string":
        return onnx.TensorProto.STRING
    return helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
