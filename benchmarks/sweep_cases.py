"""ONNX models of one operator each, for every canonical operator that ONNX can say.

Dimensions that may be free have names. A case is measured at several sizes of them: as a static model, where they are numbers, and
as a symbolic one, where they stay names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper, shape_inference

from inlaid_runtime.types import dtype

Array = np.ndarray[Any, Any]
Dim = int | str
Sizes = Mapping[str, int]

OPSET = 22
"""Of ONNX's own operators, where a case needs no newer one."""
SMALL, TYPICAL, LARGE = "small", "typical", "large"
"""Names of sizes. Of small ones a difference of times counts, of others a ratio."""

ROWS = {SMALL: {"n": 1}, TYPICAL: {"n": 128}, LARGE: {"n": 4096}}
IMAGES = {SMALL: {"n": 1, "h": 4, "w": 4}, TYPICAL: {"n": 1, "h": 56, "w": 56}, LARGE: {"n": 8, "h": 112, "w": 112}}
SMALLER_IMAGES = {SMALL: {"n": 1, "h": 4, "w": 4}, TYPICAL: {"n": 1, "h": 28, "w": 28}, LARGE: {"n": 2, "h": 64, "w": 64}}
SEQUENCES = {SMALL: {"n": 1, "t": 2}, TYPICAL: {"n": 1, "t": 64}, LARGE: {"n": 8, "t": 256}}


@dataclass(frozen=True)
class Input:
    """An input of a model: floats in [low, high), integers in [low, high]; or what `fill` makes of its shape."""

    shape: tuple[Dim, ...]
    dtype: str = "float32"
    low: float = -1.0
    high: float = 1.0
    fill: Callable[[tuple[int, ...]], Array] | None = None

    def array(self, sizes: Sizes, generator: np.random.Generator) -> Array:
        """Values of the shape at given sizes."""
        shape = tuple(sizes[dim] if isinstance(dim, str) else dim for dim in self.shape)
        if self.fill is not None:
            return self.fill(shape)
        element_type = dtype(self.dtype)
        if element_type.is_float:
            return generator.uniform(self.low, self.high, shape).astype(element_type.numpy)
        return generator.integers(int(self.low), int(self.high), shape, endpoint=True).astype(element_type.numpy)


@dataclass(frozen=True)
class Case:
    """A node, or a few, of one operator. `constants` are initializers, behind the inputs unless `nodes` names them otherwise;
    `operators` the canonical ones that it is about."""

    name: str
    operators: tuple[str, ...]
    op: str
    inputs: tuple[Input, ...]
    constants: tuple[Array | None, ...] = ()
    attrs: Mapping[str, Any] = field(default_factory=dict)
    sizes: Mapping[str, Sizes] = field(default_factory=lambda: ROWS)
    outputs: int = 1
    opset: int = OPSET
    learning: int = 0

    def model(self, sizes: Sizes) -> onnx.ModelProto:
        """The model. Dimensions that `sizes` lacks stay free."""
        kinds = [helper.np_dtype_to_tensor_dtype(dtype(item.dtype).numpy) for item in self.inputs]
        names = [f"x{number}" for number in range(len(self.inputs))]
        inputs = [
            helper.make_tensor_value_info(name, kind, [sizes.get(dim, dim) if isinstance(dim, str) else dim for dim in item.shape])
            for name, kind, item in zip(names, kinds, self.inputs, strict=True)
        ]
        weights = [numpy_helper.from_array(value, f"c{number}") for number, value in enumerate(self.constants) if value is not None]
        names += [f"c{number}" if value is not None else "" for number, value in enumerate(self.constants)]
        results = [f"y{number}" for number in range(self.outputs)]
        node = helper.make_node(self.op, names, results, domain="ai.onnx.ml" if self.learning else "", **self.attrs)
        graph = helper.make_graph(
            [node], self.name, inputs, [helper.make_empty_tensor_value_info(name) for name in results], weights
        )
        opsets = [helper.make_opsetid("", self.opset)]
        if self.learning:
            opsets.append(helper.make_opsetid("ai.onnx.ml", self.learning))
        version = helper.find_min_ir_version_for(opsets)
        return shape_inference.infer_shapes(helper.make_model(graph, opset_imports=opsets, ir_version=version))

    def feeds(self, sizes: Sizes) -> dict[str, Array]:
        """Seeded inputs by name."""
        generator = np.random.default_rng(0)
        return {f"x{number}": item.array(sizes, generator) for number, item in enumerate(self.inputs)}


def normal(*shape: int, element: str = "float32") -> Array:
    """Seeded weights around zero, scaled so that sums over all but the first axis stay near one."""
    fan_in = max(int(np.prod(shape[1:])), 1)
    return (np.random.default_rng(1).standard_normal(shape) / np.sqrt(fan_in)).astype(dtype(element).numpy)


def integers(*shape: int, element: str = "int8", low: int = -127, high: int = 127) -> Array:
    """Seeded integers."""
    return np.random.default_rng(2).integers(low, high, shape, endpoint=True).astype(element)


def ints(*values: int) -> Array:
    """A constant of int64."""
    return np.array(values, np.int64)


def number(value: float, element: str = "float32") -> Array:
    """A scalar constant."""
    return np.array(value, dtype(element).numpy)


ROW = ("n", 768)
IMAGE = ("n", 32, "h", "w")


def _elementwise() -> Iterator[Case]:
    unary = {
        "Relu": "relu", "Sigmoid": "sigmoid", "Abs": "abs", "Neg": "neg", "Sign": "sign", "Floor": "floor", "Ceil": "ceil",
        "Round": "round", "Exp": "exp", "Sin": "sin", "Cos": "cos", "Tan": "tan", "Asin": "asin", "Acos": "acos", "Atan": "atan",
        "Sinh": "sinh", "Cosh": "cosh", "Tanh": "tanh", "Asinh": "asinh", "Atanh": "atanh", "Erf": "erf", "IsNaN": "isnan",
        "IsInf": "isinf", "Elu": "expm1", "Softplus": "log1p", "Gelu": "gelu", "HardSwish": "clip", "Mish": "tanh",
        "LeakyRelu": "where",
    }  # fmt: skip
    for op, name in unary.items():
        yield Case(op.lower(), (name,), op, (Input(ROW),))
    for op, name in {"Sqrt": "sqrt", "Log": "log"}.items():
        yield Case(op.lower(), (name,), op, (Input(ROW, low=0.1, high=9.0),))
    yield Case("acosh", ("acosh",), "Acosh", (Input(ROW, low=1.0, high=9.0),))
    yield Case("wide tanh", ("tanh",), "Tanh", (Input(ROW, low=-9.0, high=9.0),))
    yield Case("wide erf", ("erf",), "Erf", (Input(ROW, low=-5.0, high=5.0),))
    yield Case("clip", ("clip",), "Clip", (Input(ROW),), (number(-0.5), number(0.5)))
    yield Case("prelu", ("where",), "PRelu", (Input(ROW),), (normal(768),))
    binary = {"Add": "add", "Sub": "sub", "Mul": "mul", "Div": "div", "Max": "maximum", "Min": "minimum", "Equal": "equal",
              "Less": "less", "LessOrEqual": "less_equal"}  # fmt: skip
    for op, name in binary.items():
        yield Case(op.lower(), (name,), op, (Input(ROW), Input(ROW, low=0.5, high=2.0)))
    yield Case("add of a row", ("add",), "Add", (Input(ROW), Input((768,))))
    yield Case("add of a column", ("add",), "Add", (Input(ROW), Input(("n", 1))))
    yield Case("add of a scalar", ("add",), "Add", (Input(ROW),), (number(3),))
    yield Case("add of int64", ("add",), "Add", (Input(ROW, "int64", -99, 99), Input(ROW, "int64", -99, 99)))
    yield Case("mul of int32", ("mul",), "Mul", (Input(ROW, "int32", -99, 99), Input(ROW, "int32", -99, 99)))
    yield Case("div of int32", ("div",), "Div", (Input(ROW, "int32", -99, 99), Input(ROW, "int32", 1, 99)))
    yield Case("mod", ("mod",), "Mod", (Input(ROW, "int32", -99, 99), Input(ROW, "int32", 1, 9)))
    yield Case("fmod", ("fmod",), "Mod", (Input(ROW, low=-99.0, high=99.0), Input(ROW, low=1.0, high=9.0)), attrs={"fmod": 1})
    yield Case("pow", ("pow",), "Pow", (Input(ROW, low=0.1, high=9.0), Input(ROW, low=-3.0, high=3.0)))
    yield Case("pow by a constant", ("pow",), "Pow", (Input(ROW, low=0.1, high=9.0),), (number(1.7),))
    yield Case("square", ("mul",), "Pow", (Input(ROW),), (number(2),))
    for op in ("And", "Or", "Xor"):
        yield Case(op.lower(), (f"logical_{op.lower()}",), op, (Input(ROW, "bool", 0, 1), Input(ROW, "bool", 0, 1)))
        bitwise = f"bitwise_{op.lower()}"
        yield Case(f"bitwise {op.lower()}", (bitwise,), f"Bitwise{op}", (Input(ROW, "int32", 0, 99), Input(ROW, "int32", 0, 99)))
    yield Case("not", ("logical_not",), "Not", (Input(ROW, "bool", 0, 1),))
    yield Case("bitwise not", ("bitwise_not",), "BitwiseNot", (Input(ROW, "int32", 0, 99),))
    for way in ("LEFT", "RIGHT"):
        inputs = (Input(ROW, "uint32", 0, 99), Input(ROW, "uint32", 0, 9))
        yield Case(f"shift {way.lower()}", (f"shift_{way.lower()}",), "BitShift", inputs, attrs={"direction": way})
    yield Case("where", ("where",), "Where", (Input(ROW, "bool", 0, 1), Input(ROW), Input(ROW)))
    casts = (
        "float32 float16, float16 float32, float32 int32, float32 int64, float32 uint8, "
        "int64 float32, int64 int32, int32 int64, uint8 float32, float32 bool, bool float32, float32 float64, float64 float32"
    )
    for source, to in map(str.split, casts.split(",")):
        values = Input(ROW, source, 0, 1 if source == "bool" else 99)
        yield Case(f"cast {source} to {to}", ("cast",), "Cast", (values,), attrs={"to": _onnx_type(to)})


def _onnx_type(name: str) -> int:
    return int(helper.np_dtype_to_tensor_dtype(dtype(name).numpy))


def _reductions() -> Iterator[Case]:
    for op, name in {"ReduceSum": "reduce_sum", "ReduceMax": "reduce_max", "ReduceMin": "reduce_min", "ReduceProd": "reduce_prod",
                     "ReduceMean": "reduce_sum", "ReduceL2": "reduce_sum", "ReduceLogSumExp": "reduce_sum"}.items():  # fmt: skip
        yield Case(f"{op.lower()} of rows", (name,), op, (Input(ROW),), (ints(1),))
    for op, name in {"ReduceSum": "reduce_sum", "ReduceMax": "reduce_max"}.items():
        yield Case(f"{op.lower()} of columns", (name,), op, (Input(ROW),), (ints(0),))
        yield Case(f"{op.lower()} of all", (name,), op, (Input(ROW),), (ints(0, 1),))
        yield Case(f"{op.lower()} of the middle", (name,), op, (Input(("n", 48, 64)),), (ints(1),))
    yield Case("reducemean of images", ("reduce_sum",), "ReduceMean", (Input(IMAGE),), (ints(2, 3),), sizes=IMAGES)
    for name in ("ArgMax", "ArgMin"):
        yield Case(f"{name.lower()} of rows", (name.lower(),), name, (Input(ROW),), attrs={"axis": 1})
        yield Case(f"{name.lower()} of columns", (name.lower(),), name, (Input(ROW),), attrs={"axis": 0})
    yield Case("argmax of channels", ("argmax",), "ArgMax", (Input(("n", 21, "h", "w")),), attrs={"axis": 1}, sizes=IMAGES)
    for axis in (0, 1):
        yield Case(f"cumsum along axis {axis}", ("cumsum",), "CumSum", (Input(ROW),), (np.array(axis),))
    yield Case("cumprod", ("cumprod",), "CumProd", (Input(ROW),), (np.array(1),), opset=26)
    for op in ("Softmax", "LogSoftmax"):
        name = "softmax" if op == "Softmax" else "log_softmax"
        yield Case(f"{op.lower()} of rows", (name,), op, (Input(ROW),), attrs={"axis": 1})
        yield Case(f"{op.lower()} of channels", (name,), op, (Input(IMAGE),), attrs={"axis": 1}, sizes=SMALLER_IMAGES)
    for k in (1, 8, 100):
        yield Case(f"top {k} of rows", ("topk",), "TopK", (Input(ROW),), (ints(k),), {"axis": 1}, outputs=2)
    yield Case("top 5 of columns", ("topk",), "TopK", (Input((256, "n")),), (ints(5),), {"axis": 0}, outputs=2)
    yield Case("sort of rows", ("topk",), "TopK", (Input(ROW),), (ints(768),), {"axis": 1}, outputs=2)
    channels = [np.abs(normal(32)) + 0.5 for _ in range(4)]
    yield Case("batch norm", ("batch_norm",), "BatchNormalization", (Input(IMAGE),), tuple(channels), sizes=IMAGES)
    yield Case("lrn", ("lrn",), "LRN", (Input(IMAGE),), attrs={"size": 5}, sizes=IMAGES)
    yield Case("layer norm", ("layer_norm",), "LayerNormalization", (Input(ROW),), (normal(768), normal(768)))
    yield Case("rms norm", ("rms_norm",), "RMSNormalization", (Input(ROW),), (normal(768),), opset=23)
    yield Case("instance norm", ("reduce_sum",), "InstanceNormalization", (Input(IMAGE),), (channels[0], channels[1]), sizes=IMAGES)
    affine = (channels[0], channels[1])
    yield Case("group norm", ("reduce_sum",), "GroupNormalization", (Input(IMAGE),), affine, {"num_groups": 8}, IMAGES)
    yield Case("lp norm", ("reduce_sum",), "LpNormalization", (Input(ROW),))


def _products() -> Iterator[Case]:
    yield Case("matmul by weights", ("matmul",), "MatMul", (Input(ROW),), (normal(768, 768),))
    yield Case("matmul of a few columns", ("matmul",), "MatMul", (Input(ROW),), (normal(768, 10),))
    yield Case("matmul of inputs", ("matmul",), "MatMul", (Input(("n", 256)), Input((256, 512))))
    attended = {SMALL: {"n": 1, "t": 2}, TYPICAL: {"n": 1, "t": 128}, LARGE: {"n": 4, "t": 384}}
    heads = (Input(("n", 12, "t", 64)), Input(("n", 12, 64, "t")))
    yield Case("matmul of heads", ("matmul",), "MatMul", heads, sizes=attended)
    yield Case("gemm", ("matmul",), "Gemm", (Input(ROW),), (normal(512, 768), normal(512)), {"transB": 1})
    yield Case("matmul of uint8", ("matmul",), "MatMulInteger", (Input(ROW, "uint8", 0, 255),), (integers(768, 512),))
    square = (Input(("n", 12, "t", 64)),) * 3
    yield Case("attention", ("attention",), "Attention", square, sizes=attended, opset=23)
    yield Case("det", ("det",), "Det", (Input(("n", 4, 4)),))
    steps = {SMALL: {"n": 1, "t": 1}, TYPICAL: {"n": 1, "t": 32}, LARGE: {"n": 16, "t": 64}}
    for op, gates in (("LSTM", 4), ("GRU", 3), ("RNN", 1)):
        weights = (normal(1, gates * 256, 128), normal(1, gates * 256, 256), normal(1, gates * 512))
        yield Case(op.lower(), (op.lower(),), op, (Input(("t", "n", 128)),), weights, {"hidden_size": 256}, steps)


def _windows() -> Iterator[Case]:
    def conv(
        name: str, inputs: int, outputs: int, kernel: Sequence[int], sizes: Mapping[str, Sizes] = IMAGES, **attrs: Any
    ) -> Case:
        rank = len(kernel)
        spatial = {1: ("w",), 2: ("h", "w"), 3: (8, "h", "w")}[rank]
        dilations = attrs.get("dilations", [1] * rank)
        attrs.setdefault("pads", [(size - 1) // 2 * by for size, by in zip(kernel, dilations, strict=True)] * 2)
        weights = (normal(outputs, inputs // attrs.get("group", 1), *kernel), normal(outputs))
        return Case(f"conv {name}", ("conv",), "Conv", (Input(("n", inputs, *spatial)),), weights, attrs, sizes)

    yield conv("1x1", 64, 128, (1, 1))
    yield conv("1x1 stride 2", 64, 128, (1, 1), strides=[2, 2])
    yield conv("3x3", 64, 64, (3, 3))
    yield conv("3x3 stride 2", 64, 128, (3, 3), strides=[2, 2])
    yield conv("3x3 dilation 2", 64, 64, (3, 3), dilations=[2, 2])
    yield conv("3x3 of images", 3, 32, (3, 3), strides=[2, 2])
    yield conv("3x3 to one channel", 32, 1, (3, 3))
    yield conv("5x5 of few channels", 3, 8, (5, 5))
    yield conv("depthwise 3x3", 96, 96, (3, 3), group=96)
    yield conv("depthwise 3x3 stride 2", 96, 96, (3, 3), group=96, strides=[2, 2])
    yield conv("grouped 3x3", 64, 64, (3, 3), group=4)
    signals = {SMALL: {"n": 1, "w": 4}, TYPICAL: {"n": 1, "w": 500}, LARGE: {"n": 8, "w": 2000}}
    yield conv("1-D", 64, 64, (5,), signals)
    solids = {SMALL: {"n": 1, "h": 4, "w": 4}, TYPICAL: {"n": 1, "h": 28, "w": 28}, LARGE: {"n": 2, "h": 56, "w": 56}}
    yield conv("3-D", 16, 16, (3, 3, 3), solids)

    def spread(name: str, inputs: int, outputs: int, kernel: Sequence[int], sizes: Mapping[str, Sizes], **attrs: Any) -> Case:
        spatial = {1: ("w",), 2: ("h", "w"), 3: (4, "h", "w")}[len(kernel)]
        weights = (normal(inputs, outputs // attrs.get("group", 1), *kernel), normal(outputs))
        return Case(
            f"conv transpose {name}", ("conv_transpose",), "ConvTranspose", (Input(("n", inputs, *spatial)),), weights, attrs, sizes
        )

    maps = {SMALL: {"n": 1, "h": 2, "w": 2}, TYPICAL: {"n": 1, "h": 16, "w": 16}, LARGE: {"n": 4, "h": 32, "w": 32}}
    wide = {SMALL: {"n": 1, "h": 2, "w": 2}, TYPICAL: {"n": 1, "h": 80, "w": 80}, LARGE: {"n": 4, "h": 128, "w": 128}}
    yield spread("4x4 stride 2", 256, 128, (4, 4), maps, strides=[2, 2], pads=[1, 1, 1, 1])
    yield spread("4x4 stride 2 to images", 64, 3, (4, 4), maps, strides=[2, 2], pads=[1, 1, 1, 1])
    yield spread("2x2 stride 2", 24, 24, (2, 2), wide, strides=[2, 2])
    yield spread("3x3 stride 2", 128, 64, (3, 3), maps, strides=[2, 2], pads=[1, 1, 1, 1], output_padding=[1, 1])
    yield spread("3x3", 64, 64, (3, 3), maps, pads=[1, 1, 1, 1])
    yield spread("depthwise 4x4 stride 2", 64, 64, (4, 4), maps, strides=[2, 2], pads=[1, 1, 1, 1], group=64)
    yield spread("1-D stride 8", 128, 64, (16,), signals, strides=[8], pads=[4, 4])
    yield spread("3-D stride 2", 32, 16, (2, 2, 2), maps, strides=[2, 2, 2])

    small = {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}
    yield Case("max pool", ("max_pool",), "MaxPool", (Input(IMAGE),), attrs=small, sizes=IMAGES)
    yield Case(
        "max pool 2x2", ("max_pool",), "MaxPool", (Input(IMAGE),), attrs={"kernel_shape": [2, 2], "strides": [2, 2]}, sizes=IMAGES
    )
    yield Case("max pool with indices", ("max_pool_indices",), "MaxPool", (Input(IMAGE),), attrs=small, sizes=IMAGES, outputs=2)
    yield Case("average pool", ("avg_pool",), "AveragePool", (Input(IMAGE),), attrs=small, sizes=IMAGES)
    yield Case("global average pool", ("reduce_sum",), "GlobalAveragePool", (Input(IMAGE),), sizes=IMAGES)
    columns = (Input(("n", 9 * 16, 900)),)
    folded = {SMALL: {"n": 1}, TYPICAL: {"n": 2}, LARGE: {"n": 8}}
    yield Case("col2im", ("col2im",), "Col2Im", columns, (ints(32, 32), ints(3, 3)), sizes=folded)
    bent = (Input(("n", 32, "h", "w")), Input((32, 32, 3, 3)), Input(("n", 18, "h", "w")))
    yield Case("deform conv", ("deform_conv",), "DeformConv", bent, attrs={"pads": [1] * 4}, sizes=SMALLER_IMAGES)
    for mode in ("nearest", "linear", "cubic"):
        scales = (None, np.array([1, 1, 2, 2], np.float32))
        yield Case(f"resize {mode}", ("resize",), "Resize", (Input(IMAGE),), scales, {"mode": mode}, SMALLER_IMAGES)
    grid = Input(("n", "h", "w", 2))
    yield Case(
        "grid sample", ("grid_sample",), "GridSample", (Input(IMAGE), grid), attrs={"align_corners": 0}, sizes=SMALLER_IMAGES
    )
    boxes = Input(("r", 4), low=0, high=27, fill=lambda shape: _boxes(shape[0], 27))
    regions = {
        SMALL: {"n": 1, "r": 1, "h": 28, "w": 28},
        TYPICAL: {"n": 1, "r": 16, "h": 28, "w": 28},
        LARGE: {"n": 1, "r": 128, "h": 56, "w": 56},
    }
    which = Input(("r",), "int64", 0, 0)
    pooled = {"output_height": 7, "output_width": 7, "sampling_ratio": 2}
    yield Case("roi align", ("roi_align",), "RoiAlign", (Input(IMAGE), boxes, which), attrs=pooled, sizes=regions, opset=21)
    rois = Input(("r", 5), fill=lambda shape: np.concatenate([np.zeros((shape[0], 1), np.float32), _boxes(shape[0], 27)], 1))
    yield Case(
        "roi max pool",
        ("roi_max_pool",),
        "MaxRoiPool",
        (Input(IMAGE), rois),
        attrs={"pooled_shape": [7, 7]},
        sizes=regions,
        opset=21,
    )


def _boxes(count: int, bound: float) -> Array:
    """Corners of boxes, the lesser ones first."""
    corners = np.random.default_rng(3).uniform(0, bound, (count, 2, 2)).astype(np.float32)
    return np.concatenate([corners.min(1), corners.max(1)], 1)


def _quantized() -> Iterator[Case]:
    scale, zero = number(0.02), number(3, "uint8")
    yield Case("quantize", ("quantize",), "QuantizeLinear", (Input(ROW),), (scale, zero))
    yield Case("dequantize", ("dequantize",), "DequantizeLinear", (Input(ROW, "uint8", 0, 255),), (scale, zero))
    yield Case("dynamic quantize", ("quantize",), "DynamicQuantizeLinear", (Input(ROW),), outputs=3)
    weights = (scale, zero, integers(64, 64, 3, 3), number(0.01), number(0, "int8"), number(0.5), zero)
    image = (Input(("n", 64, "h", "w"), "uint8", 0, 255),)
    yield Case("conv of uint8", ("requantize", "conv"), "QLinearConv", image, weights, {"pads": [1] * 4}, SMALLER_IMAGES)
    weights = (scale, zero, integers(768, 512), number(0.01), number(0, "int8"), number(0.5), zero)
    yield Case("matmul of uint8, requantized", ("requantize", "matmul"), "QLinearMatMul", (Input(ROW, "uint8", 0, 255),), weights)


def _moved() -> Iterator[Case]:
    tokens = {SMALL: {"n": 1, "t": 2}, TYPICAL: {"n": 1, "t": 128}, LARGE: {"n": 8, "t": 512}}
    yield Case("reshape", ("reshape",), "Reshape", (Input(("n", 12, 64)),), (ints(0, -1),))
    yield Case("transpose of rows", ("transpose",), "Transpose", (Input(ROW),), attrs={"perm": [1, 0]})
    yield Case(
        "transpose of heads", ("transpose",), "Transpose", (Input(("n", "t", 12, 64)),), attrs={"perm": [0, 2, 1, 3]}, sizes=tokens
    )
    for name, perm in (("channels last", [0, 2, 3, 1]), ("channels first", [0, 3, 1, 2])):
        shape = IMAGE if perm[1] == 2 else ("n", "h", "w", 32)
        yield Case(f"transpose to {name}", ("transpose",), "Transpose", (Input(shape),), attrs={"perm": perm}, sizes=IMAGES)
    yield Case("broadcast", ("broadcast_to",), "Expand", (Input(("n", 1)),), (ints(1, 768),))
    yield Case(
        "full", ("full",), "ConstantOfShape", (Input((2,), "int64", fill=lambda shape: ints(128, 768)),), sizes={TYPICAL: {}}
    )
    yield Case("concat of rows", ("concat",), "Concat", (Input(ROW), Input(ROW)), attrs={"axis": 0})
    yield Case("concat of columns", ("concat",), "Concat", (Input(ROW), Input(ROW)), attrs={"axis": 1})
    yield Case("concat of channels", ("concat",), "Concat", (Input(IMAGE), Input(IMAGE)), attrs={"axis": 1}, sizes=IMAGES)
    yield Case("split", ("strided_slice",), "Split", (Input(ROW),), attrs={"axis": 1, "num_outputs": 3}, outputs=3)
    yield Case("slice of columns", ("strided_slice",), "Slice", (Input(ROW),), (ints(64), ints(576), ints(1)))
    yield Case("slice by steps", ("strided_slice",), "Slice", (Input(ROW),), (ints(0), ints(768), ints(1), ints(2)))
    yield Case("slice backwards", ("strided_slice",), "Slice", (Input(ROW),), (ints(-1), ints(-(2**31)), ints(1), ints(-1)))
    bounds = tuple(Input((1,), "int64", fill=lambda shape, at=at: ints(at)) for at in (64, 576))
    yield Case("slice by inputs", ("dynamic_slice",), "Slice", (Input(ROW), *bounds), (ints(1),))
    for mode in ("constant", "reflect", "edge", "wrap"):
        yield Case(f"pad {mode}", ("pad",), "Pad", (Input(IMAGE),), (ints(0, 0, 1, 1, 0, 0, 1, 1),), {"mode": mode}, IMAGES)
    yield Case("tile", ("tile",), "Tile", (Input(ROW),), (ints(1, 3),))
    counts = tuple(Input((), "int64", fill=lambda shape, at=at: np.array(at)) for at in (0, 4096, 1))
    yield Case("range", ("iota",), "Range", counts, sizes={TYPICAL: {}})
    yield Case("shape", ("sizes",), "Shape", (Input(ROW),))
    yield Case("depth to space", ("transpose",), "DepthToSpace", (Input(IMAGE),), attrs={"blocksize": 2}, sizes=IMAGES)
    yield Case(
        "trilu", ("where",), "Trilu", (Input(("n", 256, 256)),), sizes={SMALL: {"n": 1}, TYPICAL: {"n": 4}, LARGE: {"n": 64}}
    )
    yield Case(
        "one hot", ("where",), "OneHot", (Input(("n",), "int64", 0, 99),), (number(100, "int64"), np.array([0, 1], np.float32))
    )
    ids = Input(("n", 16), "int64", 0, 999)
    yield Case("take of rows", ("take",), "Gather", (Input((1000, 256)), ids), attrs={"axis": 0})
    yield Case("take of columns", ("take",), "Gather", (Input(ROW), Input((64,), "int64", 0, 767)), attrs={"axis": 1})
    along = (Input(ROW), Input(("n", 64), "int64", 0, 767))
    yield Case("take along rows", ("take_along_axis",), "GatherElements", along, attrs={"axis": 1})
    yield Case("gather nd", ("gather_nd",), "GatherND", (Input((64, 64, 64)), Input(("n", 2), "int64", 0, 63)))
    lengths = Input(("n",), "int64", 1, 64)
    attrs = {"batch_axis": 0, "time_axis": 1}
    yield Case("reverse sequence", ("reverse_sequence",), "ReverseSequence", (Input(("n", 64, 16)), lengths), attrs=attrs)
    updates = (Input((1000, 256)), Input(("n", 1), "int64", 0, 999), Input(("n", 256)))
    yield Case("scatter nd", ("scatter_nd",), "ScatterND", updates)
    elements = (Input(ROW), Input(("n", 64), "int64", 0, 767), Input(("n", 64)))
    yield Case("scatter along rows", ("scatter_along_axis",), "ScatterElements", elements, attrs={"axis": 1})
    summed = {"axis": 1, "reduction": "add"}
    yield Case("scatter and add", ("scatter_along_axis",), "ScatterElements", elements, attrs=summed)
    yield Case("nonzero", ("nonzero",), "NonZero", (Input(ROW, "bool", 0, 1),))
    yield Case("unique", ("unique",), "Unique", (Input(("n",), "int64", 0, 99),), outputs=4)
    boxes = Input((1, "n", 4), fill=lambda shape: _boxes(shape[1], 100.0)[None])
    limits = (ints(50), np.array([0.5], np.float32), np.array([0.1], np.float32))
    nms_sizes = {SMALL: {"n": 4}, TYPICAL: {"n": 300}, LARGE: {"n": 3000}}
    scored = (boxes, Input((1, 4, "n"), low=0.0))
    yield Case("non max suppression", ("non_max_suppression",), "NonMaxSuppression", scored, limits, sizes=nms_sizes)
    for op in ("RandomUniform", "RandomNormal"):
        name = f"random_{op[6:].lower()}"
        yield Case(name.replace("_", " "), (name,), op, (), attrs={"shape": [128, 768]}, sizes={TYPICAL: {}}, opset=21)


CASES: tuple[Case, ...] = (*_elementwise(), *_reductions(), *_products(), *_windows(), *_quantized(), *_moved())
"""All cases."""

UNCOVERED: Mapping[str, str] = {
    "multiply_fixed": "TensorFlow Lite's arithmetic alone",
    "exp2": "no operator of ONNX",
    "bitcast": "ONNX Runtime has no kernel for it",
    "after": "orders effects, computes nothing",
    **dict.fromkeys(("bind_size", "assert_true", "fail"), "instructions of the plan"),
    **dict.fromkeys(
        ("sequence_empty", "sequence_construct", "sequence_insert", "sequence_erase", "sequence_at", "sequence_length",
         "sequence_join", "sequence_split", "optional_none", "optional_some", "optional_has", "optional_get", "host_widen"),
        "containers, which the host handles",
    ),
    **dict.fromkeys(
        ("string_concat", "string_equal", "string_split", "string_normalize", "regex_full_match", "string_cast", "lookup"),
        "strings, which the host handles",
    ),
}  # fmt: skip
"""Canonical operators that no case is about, and why."""
