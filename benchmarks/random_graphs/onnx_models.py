"""Random ONNX models on symbolic sizes, with ONNX Runtime's results for several runs.

A model grows by one node at a time. Each node runs alone in ONNX Runtime at the sizes of all runs, so that the arrays of every
value are known while the next node is drawn: attributes and further inputs fit them, and a node that ONNX Runtime refuses is drawn
anew.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import onnx.printer
from onnx import helper, numpy_helper

import inlaid
from inlaid.graph import ir
from inlaid_runtime.execution.executable import Executable

from .extents import RUNS
from .modules import EXTRA_SIZES, LARGE, LEAST, MAX_ELEMENTS, SMALL, STATIC
from .numerics import NOISY_RUNS, Expected, expected

Array = np.ndarray[Any, Any]
Shape = tuple[int, ...]

FLOATS = ("float32", "float64", "float16")
INTS = ("int64", "int32", "int8", "uint8", "int16", "uint16", "uint32", "uint64")
OPSETS = (13, 15, 17, 18, 19, 20, 21, 22, 23, 24, 26)
"""Versions of the operator set that models import."""
MAX_MAGNITUDE = 1e5
"""Magnitude beyond which float results are mostly drawn anew."""
NAN_PROPAGATING = frozenset(
    (
        *("Abs", "Acos", "Acosh", "Add", "Asin", "Asinh", "Atan", "Atanh", "Cast", "CastLike", "Ceil", "Celu", "Clip", "Compress"),
        *("Concat", "ConcatFromSequence", "Cos", "Cosh", "DepthToSpace", "Div", "Elu", "Equal", "Erf", "Exp", "Expand", "Flatten"),
        *(
            "Floor",
            "Gather",
            "GatherElements",
            "GatherND",
            "Gelu",
            "Greater",
            "GreaterOrEqual",
            "HardSigmoid",
            "HardSwish",
            "Identity",
        ),
        *(
            "If",
            "IsInf",
            "IsNaN",
            "LeakyRelu",
            "Less",
            "LessOrEqual",
            "Log",
            "Mish",
            "Mod",
            "Mul",
            "Neg",
            "PRelu",
            "Pad",
            "Reciprocal",
        ),
        *(
            "Relu",
            "Reshape",
            "ReverseSequence",
            "Round",
            "ScatterElements",
            "ScatterND",
            "Selu",
            "SequenceConstruct",
            "SequenceInsert",
        ),
        *("Shape", "Shrink", "Sigmoid", "Sign", "Sin", "Sinh", "Size", "Slice", "Softplus", "Softsign", "SpaceToDepth", "Split"),
        *("SplitToSequence", "Sqrt", "Squeeze", "Sub", "Swish", "Tan", "Tanh", "ThresholdedRelu", "Tile", "Transpose", "Trilu"),
        *("Unsqueeze", "Where"),
    )
)
"""Operators on which NaN is drawn: they move elements, or compute each from one or two."""
UNROUNDED = ("Constant", "ConstantOfShape", "EyeLike", "Expand", "Identity", "Range")
"""Operators whose floats have no rounding errors, if their inputs have none."""
TRIES = 30


class Unfit(Exception):
    """Raised if no node with the drawn inputs and attributes is defined at the sizes of all runs."""


class Skipped(Unfit):
    """Raised if ONNX Runtime is known to be wrong; the message names the reason."""


@dataclass(eq=False)
class Value:
    """A value of a model, with its array (or list, or None) in each run. `constant` values are initializers. `comparable` is false
    for random numbers and what depends on them."""

    name: str
    arrays: tuple[Any, ...]
    constant: bool = False

    @property
    def tensor(self) -> bool:
        """Whether the value is a tensor."""
        return isinstance(self.arrays[0], np.ndarray)

    @property
    def dtype(self) -> str:
        """Name of the element type; "string" for text, "" for values of other types."""
        return "" if not self.tensor else "string" if self.arrays[0].dtype == object else self.arrays[0].dtype.name

    @property
    def rank(self) -> int:
        """Number of axes, -1 for values that are no tensors."""
        return self.arrays[0].ndim if self.tensor else -1

    @property
    def dims(self) -> tuple[Shape, ...]:
        """For each axis, its extents in all runs."""
        return tuple(zip(*(array.shape for array in self.arrays), strict=True))

    def least(self, axis: int) -> int:
        """Return the least extent of an axis."""
        return min(self.dims[axis])

    def all(self, holds: Callable[[Array], Any]) -> bool:
        """Test whether a condition holds for the elements in all runs."""
        return all(bool(np.all(holds(array))) for array in self.arrays)


@dataclass(frozen=True)
class OnnxCase:
    """An ONNX model, inputs of each run by name, and ONNX Runtime's outputs. `values` has all values of the model by name,
    `sizes` the symbolic sizes with their extents in all runs, and `skipped` counts nodes that were drawn anew since ONNX Runtime is
    known to be wrong, by reason."""

    model: onnx.ModelProto
    inputs: tuple[dict[str, Any], ...]
    outputs: tuple[tuple[Any, ...], ...]
    sizes: Mapping[str, Shape]
    values: Mapping[str, Value]
    skipped: Mapping[str, int] = field(default_factory=dict)

    def compiled(self, target: str, run: int | None = None) -> Executable:
        """Compile for a target, with symbolic sizes, or with the sizes of a run."""
        dims = None if run is None else {name: values[run] for name, values in self.sizes.items()}
        return inlaid.compile(self.model, targets=[target], dims=dims)

    def fixable(self) -> bool:
        """Test whether the sizes of every run can be fixed: a fixed size is at least 1."""
        return all(min(values) > 0 for values in self.sizes.values())

    def expected(self, run: int, noisy_runs: int = NOISY_RUNS) -> Expected:
        """Return ONNX Runtime's outputs of a run, and how far rounding determines them."""
        return expected(inlaid.load(self.model), self.inputs[run], run, self.outputs[run], self._weights(), noisy_runs)

    def __str__(self) -> str:
        return f"{onnx.printer.to_text(self.model)}\n{dict(self.sizes)}"

    def other_inputs(self, rng: random.Random) -> dict[str, Any]:
        """Return inputs of drawn sizes, which need not fit together."""
        sizes = {name: rng.choice(EXTRA_SIZES) for name in self.sizes}
        inputs = dict(self.inputs[0])
        for item in self.model.graph.input:
            value = inputs[item.name]
            if isinstance(value, np.ndarray):
                dims = item.type.tensor_type.shape.dim
                shape = tuple(sizes.get(dim.dim_param, extent) for dim, extent in zip(dims, value.shape, strict=True))
                inputs[item.name] = value if shape == value.shape else np.resize(value, shape).astype(value.dtype)
        return inputs

    def spread(self, inputs: Mapping[str, Any], outputs: Sequence[Any], noisy_runs: int = NOISY_RUNS) -> Expected:
        """Return outputs as expected ones, with what rounding may change."""
        return expected(inlaid.load(self.model), inputs, 0, outputs, self._weights(), noisy_runs)

    def _weights(self) -> set[str]:
        """Return the digests of the initializers."""
        return {ir.constant(numpy_helper.to_array(item)).digest() for item in self.model.graph.initializer}

    def part(self, nodes: Sequence[onnx.NodeProto], outputs: Sequence[str]) -> OnnxCase:
        """Return the model of those nodes that some outputs need. What other nodes compute becomes an input."""
        live_names = set(outputs)
        live_nodes = []
        for node in reversed(nodes):
            if live_names & set(node.output):
                live_nodes.append(node)
                live_names |= set(free_names(node))
        node_outputs = {name for node in live_nodes for name in node.output}
        graph = onnx.GraphProto(name=self.model.graph.name, node=live_nodes[::-1])
        graph.output.extend(onnx.ValueInfoProto(name=name) for name in outputs)
        graph.initializer.extend(item for item in self.model.graph.initializer if item.name in live_names)
        inputs_by_name = {item.name: item for item in self.model.graph.input}
        read = [self.values[name] for name in self.values if name in live_names - node_outputs and not self.values[name].constant]
        graph.input.extend(
            inputs_by_name.get(value.name) or type_proto(value, _extents(value) if value.tensor else None) for value in read
        )
        model = onnx.ModelProto()
        model.CopyFrom(self.model)
        model.graph.CopyFrom(graph)
        inputs = [{value.name: value.arrays[run] for value in read} for run in range(RUNS)]
        results = [tuple(self.values[name].arrays[run] for name in outputs) for run in range(RUNS)]
        return OnnxCase(model, tuple(inputs), tuple(results), self.sizes, self.values)

    def operators(self) -> Counter[str]:
        """Count the nodes of each operator, those of subgraphs included."""
        return Counter(f"{node.domain}:{node.op_type}".lstrip(":") for node in collect_nodes(self.model.graph))


def collect_nodes(graph: onnx.GraphProto) -> list[onnx.NodeProto]:
    """Return the nodes of a graph and of its subgraphs."""
    nodes = []
    for node in graph.node:
        nodes.append(node)
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                nodes += collect_nodes(attribute.g)
    return nodes


Maker = Callable[["OnnxGenerator"], None]


@dataclass
class OnnxGenerator:
    """Grows an ONNX model. Makers of nodes (`onnx_operators`) draw inputs by `data`, `operand` and `constant`, and call `node`."""

    seed: str
    opset: int = 0
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    values: list[Value] = field(default_factory=list)
    inputs: dict[str, Value] = field(default_factory=dict)
    weights: dict[str, Value] = field(default_factory=dict)
    symbols: dict[str, Shape] = field(default_factory=dict)
    shapes: dict[str, tuple[int | str, ...]] = field(default_factory=dict)
    skipped: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    folded: list[Value] = field(default_factory=list)
    """Floats that depend on initializers alone: no other node reads them, since their rounding errors are not known."""
    count: int = 0

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.opset = self.opset or self.pick(OPSETS)
        empty = self.chance(0.2)
        for name in ("n", "m", "k")[: self.number(0, 3)]:
            values = [self.pick(LEAST), *(self.pick(self.pick((SMALL, LARGE))) for _ in range(RUNS - 1))]
            if empty and self.chance(0.5):
                values[-1] = 0
            self.symbols[name] = tuple(values)

    # --- draws --------------------------------------------------------------------------------------------------------

    def number(self, low: int, high: int) -> int:
        """Draw an integer, both bounds included."""
        return self.random.randint(low, high)

    def chance(self, share: float) -> bool:
        """Draw True with a probability."""
        return self.random.random() < share

    def pick(self, items: Sequence[Any]) -> Any:
        """Draw one of some items. Raises `Unfit` if there are none."""
        if not items:
            raise Unfit
        return items[self.number(0, len(items) - 1)]

    def rng(self) -> np.random.Generator:
        """Return a generator of numbers for an array."""
        return np.random.default_rng(self.number(0, 1 << 30))

    def dim(self) -> Shape:
        """Draw the extents of an axis in all runs: those of a symbol, or one for all."""
        if self.symbols and self.chance(0.6):
            return self.pick(list(self.symbols.values()))
        return (self.pick(STATIC),) * RUNS

    def array(self, shape: Shape, dtype: str, low: float | None = None, high: float | None = None, special: bool = False) -> Array:
        """Draw an array: small values, or in [low, high], with infinities, NaN and signed zeros if `special`."""
        rng = self.rng()
        if math.prod(shape) > MAX_ELEMENTS:
            raise Unfit
        if dtype == "bool":
            return np.asarray(rng.random(shape) < 0.5)
        if dtype == "string":
            words = np.empty(shape, object)
            words.flat = [WORDS[number] for number in rng.integers(0, len(WORDS), words.size)]
            return words
        if dtype in FLOATS:
            numbers = rng.uniform(-3 if low is None else low, 3 if high is None else high, shape)
            if special:
                odd = rng.random(shape) < 0.2
                numbers = np.where(odd, rng.choice([np.inf, -np.inf, np.nan, 0.0, -0.0, 1.0], shape), numbers)
            return np.asarray(numbers).astype(dtype)
        least = (0 if dtype.startswith("u") else -8) if low is None else int(low)
        return np.asarray(rng.integers(least, 9 if high is None else int(high) + 1, shape)).astype(dtype)

    def fresh(
        self,
        dims: Sequence[Shape],
        dtype: str,
        low: float | None = None,
        high: float | None = None,
        weight: float = 0.25,
        special: bool = False,
    ) -> Value:
        """Make an input of some dimensions, or an initializer with probability `weight` if they are the same in all runs."""
        shapes = [tuple(dim[run] for dim in dims) for run in range(RUNS)]
        if self.chance(weight) and len(set(shapes)) == 1:
            return self.constant(self.array(shapes[0], dtype, low, high, special))
        return self.input([self.array(shape, dtype, low, high, special) for shape in shapes])

    def input(self, arrays: Sequence[Any]) -> Value:
        """Add a graph input. Its axes have the names of symbols with the same extents, or new ones."""
        self.count += 1
        value = Value(f"x{self.count}", tuple(arrays))
        shape: list[int | str] = []
        for extents in value.dims:
            if len(set(extents)) == 1:
                shape.append(extents[0])
                continue
            names = [name for name, each in self.symbols.items() if each == extents]
            if not names or self.chance(0.1):
                names = [f"d{len(self.symbols)}"]
                self.symbols[names[0]] = extents
            shape.append(self.pick(names))
        self.inputs[value.name] = value
        self.shapes[value.name] = tuple(shape)
        self.values.append(value)
        return value

    def constant(self, array: Any) -> Value:
        """Add an initializer."""
        self.count += 1
        numbers = np.asarray(array)
        value = Value(f"w{self.count}", (numbers,) * RUNS, True)
        self.weights[value.name] = value
        return value

    def ints(self, *numbers: int) -> Value:
        """Add an initializer of int64, one axis."""
        return self.constant(np.array(numbers, np.int64))

    def data(
        self,
        dtypes: Sequence[str] = FLOATS,
        ranks: Sequence[int] = (0, 1, 2, 2, 3, 3, 4, 5),
        fits: Callable[[Value], bool] = lambda value: True,
        low: float | None = None,
        high: float | None = None,
    ) -> Value:
        """Draw a value of the model with one of some element types and ranks, or make an input."""
        recent = [value for value in self.values[-8:] if value.dtype in dtypes and value.rank in ranks and fits(value)]
        if low is not None:
            recent = [value for value in recent if value.all(lambda array: (array >= low) & (array <= high))]
        if recent and self.chance(0.75):
            return self.pick(recent)
        for _ in range(8):
            dtype = self.pick([*dtypes, *(name for name in dtypes if name in ("float32", "int64"))])
            special = dtype in FLOATS and low is None and self.chance(0.1)
            value = self.fresh([self.dim() for _ in range(self.pick(ranks))], dtype, low, high, 0.05, special)
            if fits(value):
                return value
            self.forget(value)
        raise Unfit

    def forget(self, value: Value) -> None:
        """Remove an input that no node reads."""
        self.inputs.pop(value.name, None)
        self.values = [each for each in self.values if each is not value]

    def operand(self, dims: Sequence[Shape], dtype: str, low: float | None = None, high: float | None = None) -> Value:
        """Draw a value with some dimensions and element type: one of the model, an initializer or a new input."""
        candidates = [value for value in self.values if value.dtype == dtype and value.dims == tuple(dims)]
        if candidates and low is None and self.chance(0.5):
            return self.pick(candidates)
        return self.fresh(dims, dtype, low, high)

    def beside(self, value: Value, dtype: str | None = None, low: float | None = None, high: float | None = None) -> Value:
        """Draw a value that broadcasts with another: with fewer axes, or with axes of 1."""
        skip = self.pick((0, 0, 0, *range(value.rank + 1)))
        dims = [(1,) * RUNS if self.chance(0.2) else dim for dim in value.dims[skip:]]
        if self.chance(0.1):
            dims = [self.dim(), *dims] if len(dims) == value.rank and value.rank < 5 else dims
        return self.operand(dims, dtype or value.dtype, low, high)

    def axis(self, value: Value, negative: bool = True) -> int:
        """Draw an axis, sometimes counted from the last."""
        if not value.rank:
            raise Unfit
        axis = self.number(0, value.rank - 1)
        return axis - value.rank if negative and self.chance(0.3) else axis

    def axes(self, value: Value, least: int = 0) -> list[int]:
        """Draw some axes."""
        if value.rank < least:
            raise Unfit
        axes = self.random.sample(range(value.rank), self.number(least, value.rank))
        return [axis - value.rank if self.chance(0.2) else axis for axis in axes]

    # --- nodes --------------------------------------------------------------------------------------------------------

    def node(self, operator: str, inputs: Sequence[Value | None], outputs: int = 1, **attrs: Any) -> Value:
        """Add a node, and return its first output. Raises `Unfit` if ONNX Runtime refuses it at the sizes of any run."""
        return self.several(operator, inputs, outputs, **attrs)[0]

    def several(
        self, operator: str, inputs: Sequence[Value | None], outputs: int, drawn: bool = False, **attrs: Any
    ) -> list[Value]:
        """Add a node with several outputs. Results of `drawn` nodes are random numbers."""
        domain, _, name = operator.rpartition(":")
        floats = [array for value in inputs if value is not None for array in value.arrays if value.dtype in FLOATS]
        if not (name in NAN_PROPAGATING or all(np.all(array == array) for array in floats)):
            raise Skipped("operators of several elements on NaN: ONNX Runtime ignores NaN, or not, by order and operator")
        self.count += 1
        names = [f"t{self.count}_{number}" for number in range(outputs)]
        input_names = [value.name if value is not None else "" for value in inputs]
        while input_names and not input_names[-1]:
            input_names.pop()
        node = helper.make_node(name, input_names, names, name=f"{name}_{self.count}", domain=domain, **attrs)
        if domain and not any(attribute.name for attribute in node.attribute if attribute.name == "domain"):
            node.domain = domain
        results = self.evaluated(node)
        self.nodes.append(node)
        if name not in UNROUNDED and all(value is None or value.constant or value in self.folded for value in inputs):
            self.folded += [value for value in results if value.dtype in FLOATS]
        self.values += [value for value in results if value not in self.folded]
        return results

    def evaluated(self, node: onnx.NodeProto) -> list[Value]:
        """Run a node in ONNX Runtime at all sizes. Raises `Unfit` if it fails, and for results that are too large."""
        values_by_name = self.named_values()
        read = [values_by_name[name] for name in dict.fromkeys(free_names(node)) if name in values_by_name]
        session = open_session(
            self.build_model(
                [node],
                [value for value in read if not value.constant],
                [value for value in read if value.constant],
                list(node.output),
            )
        )
        if isinstance(session, str):
            self.refused[f"{node.op_type}: {session}"] += 1
            raise Unfit
        results = []
        for run in range(RUNS):
            try:
                results.append(session.run(None, {value.name: value.arrays[run] for value in read if not value.constant}))
            except Exception as error:  # its errors have no common base
                self.refused[f"{node.op_type}: {str(error)[:160]}"] += 1
                raise Unfit from error
        outputs = [Value(name, tuple(_owned(each[number]) for each in results)) for number, name in enumerate(node.output)]
        if not all(map(self._moderate, outputs)):
            raise Unfit
        return outputs

    def _moderate(self, value: Value) -> bool:
        for array in value.arrays:
            if not isinstance(array, np.ndarray):
                continue
            if array.size > MAX_ELEMENTS:
                return False
            if array.dtype.kind == "f" and array.size:
                finite = np.abs(array[np.isfinite(array)].astype(np.float64))
                if not (finite.size and finite.max() < MAX_MAGNITUDE) and self.chance(0.8):
                    return False
        return True

    def named_values(self) -> dict[str, Value]:
        """Return all values by name."""
        return {**self.weights, **self.inputs, **{value.name: value for value in (*self.values, *self.folded)}}

    def build_model(
        self, nodes: Sequence[onnx.NodeProto], inputs: Sequence[Value], weights: Sequence[Value], outputs: Sequence[str]
    ) -> onnx.ModelProto:
        """Build a model of some nodes."""
        graph = helper.make_graph(
            nodes,
            "random",
            [type_proto(value, self.shapes.get(value.name)) for value in inputs],
            [onnx.ValueInfoProto(name=name) for name in outputs],
            [_initializer(value) for value in weights],
        )
        domains = [("", self.opset), ("ai.onnx.ml", 3)]
        return helper.make_model(
            graph,
            opset_imports=[helper.make_opsetid(*each) for each in domains],
            ir_version=min(10, helper.find_min_ir_version_for([helper.make_opsetid("", self.opset)], ignore_unknown=True) or 10),
        )

    # --- subgraphs ----------------------------------------------------------------------------------------------------

    def body(self, steps: int, makers: Sequence[Maker], inputs: Sequence[Value] = ()) -> tuple[list[onnx.NodeProto], list[Value]]:
        """Grow nodes in a scope of their own that sees the values so far and `inputs`. Returns its nodes and values, which are no
        longer in this graph."""
        count, values = len(self.nodes), list(self.values)
        self.values += inputs
        for _ in range(steps):
            self.grow(self.pick(makers))
        nodes = self.nodes[count:]
        new_values = [value for value in self.values if value not in values and value.name not in self.inputs]
        del self.nodes[count:]
        self.values = [*values, *(value for value in self.values if value.name in self.inputs and value not in values)]
        return nodes, new_values

    def grow(self, maker: Maker) -> bool:
        """Call a maker until its node is defined at all sizes. Returns False if it never is."""
        for _ in range(TRIES):
            state = (
                len(self.nodes),
                list(self.values),
                dict(self.inputs),
                dict(self.weights),
                dict(self.symbols),
                dict(self.shapes),
            )
            try:
                maker(self)
                return True
            except Skipped as error:
                self.skipped[str(error)] += 1
            except Unfit:
                pass
            del self.nodes[state[0] :]
            _, self.values, self.inputs, self.weights, self.symbols, self.shapes = state
        return False

    # --- the model ----------------------------------------------------------------------------------------------------

    def case(self) -> OnnxCase:
        """Make the model of all nodes. Its outputs are the values that no node reads, and some of the others."""
        read = {name for node in self.nodes for name in free_names(node)}
        node_outputs = {name for node in self.nodes for name in node.output}
        values = [value for value in (*self.values, *self.folded) if value.name in node_outputs]
        outputs = [value for value in values if value.name not in read or self.chance(0.15)]
        inputs = [value for value in self.inputs.values() if value.name in read]
        weights = [value for value in self.weights.values() if value.name in read]
        model = self.build_model(self.nodes, inputs, weights, [value.name for value in outputs])
        feeds = [{value.name: value.arrays[run] for value in inputs} for run in range(RUNS)]
        results = [tuple(value.arrays[run] for value in outputs) for run in range(RUNS)]
        input_dims = {dim for value in inputs for dim in self.shapes[value.name]}
        sizes = {name: values for name, values in self.symbols.items() if name in input_dims}
        return OnnxCase(model, tuple(feeds), tuple(results), sizes, self.named_values(), dict(self.skipped))


WORDS = ("one", "Two", "3", "", "ein wort", "Two", "a-b")


def free_names(node: onnx.NodeProto) -> list[str]:
    """Return the names that a node reads, those included that its subgraphs read from around it."""
    names = [name for name in node.input if name]
    for attribute in node.attribute:
        if attribute.type == onnx.AttributeProto.GRAPH:
            graph = attribute.g
            local_names = {item.name for item in (*graph.input, *graph.initializer)} | {
                name for each in graph.node for name in each.output
            }
            names += [name for each in graph.node for name in free_names(each) if name not in local_names]
            names += [item.name for item in graph.output if item.name not in local_names]
    return names


def type_proto(value: Value, shape: Sequence[int | str] | None = None) -> onnx.ValueInfoProto:
    """Describe a value: element type and dimensions, of unknown extents unless `shape` has them."""
    if isinstance(value.arrays[0], list):
        element = next((each for array in value.arrays for each in array), np.zeros((), np.float32))
        inner = helper.make_tensor_type_proto(_code(element), None)
        return helper.make_value_info(value.name, helper.make_sequence_type_proto(inner))
    dims = [None] * value.rank if shape is None else list(shape)
    return helper.make_tensor_value_info(value.name, _code(value.arrays[0]), dims)


def _extents(value: Value) -> list[int | str]:
    """Return the extents of a value, with names where they differ between runs."""
    return [dim[0] if len(set(dim)) == 1 else "_".join(("e", *map(str, dim))) for dim in value.dims]


def _code(array: Array) -> int:
    return onnx.TensorProto.STRING if array.dtype == object else int(helper.np_dtype_to_tensor_dtype(array.dtype))


def _initializer(value: Value) -> onnx.TensorProto:
    return numpy_helper.from_array(value.arrays[0], value.name)


def _owned(result: Any) -> Any:
    """Return a result of ONNX Runtime as an array, a list of arrays or None."""
    if isinstance(result, list):
        return [np.asarray(each) for each in result]
    return None if result is None else np.asarray(result)


def open_session(model: onnx.ModelProto) -> Any:
    """Return ONNX Runtime's session of a model, without optimizations, and with exact 8-bit products; its message if it refuses."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.add_session_config_entry("session.x64quantprecision", "1")
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    try:
        return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # its errors have no common base
        return str(error)[:160]
