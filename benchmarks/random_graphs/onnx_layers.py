"""Makers of ONNX nodes: products, windows, normalization, recurrent layers, attention, quantization, losses and signals."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from .extents import RUNS
from .onnx_elements import draw_dims
from .onnx_models import FLOATS, Maker, OnnxGenerator, Shape, Skipped, Unfit, Value

F32 = ("float32",)
WIDE = ("float32", "float64")


def _matmul(g: OnnxGenerator) -> None:
    x = g.data(("float32", "float32", "float64", "float16", "int32", "int64"), (1, 2, 2, 3, 4))
    inner = x.dims[-1]
    batch = [(1,) * RUNS if g.chance(0.3) else dim for dim in x.dims[g.number(0, max(x.rank - 2, 0)) : -2]]
    y = g.operand([*batch, inner, g.dim()] if g.chance(0.85) else [inner], x.dtype)
    g.node("MatMul", [x, y])


def _gemm(g: OnnxGenerator) -> None:
    x = g.data(("float32", "float64"), (2,))
    flipped, turned = g.number(0, 1), g.number(0, 1)
    inner, rows, columns = x.dims[0 if flipped else 1], x.dims[1 if flipped else 0], g.dim()
    y = g.operand([columns, inner] if turned else [inner, columns], x.dtype)
    bias = g.pick(([columns], [rows, columns], [(1,) * RUNS, columns], [rows, (1,) * RUNS], [], None))
    attrs: dict[str, Any] = {"transA": flipped, "transB": turned}
    attrs |= {"alpha": g.pick((1.0, 0.5)), "beta": g.pick((1.0, 0.25))} if g.chance(0.5) else {}
    g.node("Gemm", [x, y, None if bias is None else g.operand(bias, x.dtype)], **attrs)


def _einsum(g: OnnxGenerator) -> None:
    equation = g.pick(
        ("ij,jk->ik", "bij,bjk->bik", "ij->ji", "ii->i", "ij->", "bij,bkj->bik", "i,j->ij", "...ij,...jk->...ik", "ijk,ik->j")
    )
    letters: dict[str, Shape] = {}
    operands = []
    dtype = g.pick(WIDE)
    for term in equation.split("->")[0].split(","):
        dims = [letters.setdefault(letter, g.dim()) for letter in term.replace("...", "z")]
        operands.append(g.operand(dims, dtype))
    g.node("Einsum", operands, equation=equation)


def _det(g: OnnxGenerator) -> None:
    size = (g.number(1, 4),) * RUNS
    g.node("Det", [g.operand([*draw_dims(g, g.number(0, 2)), size, size], g.pick(WIDE))])


def _image(g: OnnxGenerator, rank: int | None = None, dtypes: tuple[str, ...] = F32, channels: int | None = None) -> Value:
    """Draw data N C and spatial axes."""

    def fits(value: Value) -> bool:
        static = len(set(value.dims[1])) == 1 and value.dims[1][0] > 0
        return static and (channels is None or value.dims[1][0] == channels)

    recent = [
        value
        for value in g.values[-8:]
        if value.dtype in dtypes and value.rank in ((3, 4) if rank is None else (rank,)) and fits(value)
    ]
    if recent and g.chance(0.6):
        return g.pick(recent)
    axes = (rank or g.pick((3, 4, 4, 5))) - 2
    count = channels or g.pick((1, 2, 3, 4, 8, 16))
    spatial = [
        g.pick(list(g.symbols.values())) if g.symbols and g.chance(0.5) else (g.number(3, 17 if axes < 3 else 7),) * RUNS
        for _ in range(axes)
    ]
    return g.fresh([g.dim() if g.chance(0.5) else (g.number(1, 2),) * RUNS, (count,) * RUNS, *spatial], g.pick(dtypes), weight=0.05)


def _window(g: OnnxGenerator, x: Value, pooling: bool = False, dilated: bool = True) -> dict[str, Any]:
    """Draw a window that fits at least once at every size."""
    rank = x.rank - 2
    kernel = [g.pick((1, 2, 3, 3, 5)) for _ in range(rank)]
    attrs: dict[str, Any] = {"kernel_shape": kernel}
    if g.chance(0.7):
        attrs["strides"] = [g.pick((1, 1, 2, 3)) for _ in range(rank)]
    if dilated and g.chance(0.3):
        attrs["dilations"] = [g.pick((1, 2)) for _ in range(rank)]
    spans = [(size - 1) * by + 1 for size, by in zip(kernel, attrs.get("dilations", [1] * rank), strict=True)]
    way = g.number(0, 9)
    pads = [0] * (2 * rank)
    if way < 5:
        max_pads = [(size - 1 if pooling else span) for size, span in zip(kernel, spans, strict=True)]
        pads = [g.number(0, min(max_pads[number % rank], 3)) for number in range(2 * rank)]
        attrs["pads"] = pads
    elif way == 5:
        attrs["auto_pad"] = g.pick(("SAME_UPPER", "SAME_LOWER", "VALID"))
        if attrs["auto_pad"] != "VALID":
            if "dilations" in attrs:
                raise Unfit  # the padding of dilated windows is not defined
            if any(0 in dim for dim in x.dims):
                raise Unfit
            return attrs
    for axis in range(rank):
        if x.least(2 + axis) + pads[axis] + pads[rank + axis] < spans[axis]:
            raise Unfit
    return attrs


def _conv(g: OnnxGenerator) -> None:
    x = _image(g, dtypes=("float32", "float32", "float32", "float64", "float16"))
    channels = x.dims[1][0]
    groups = g.pick([number for number in (1, 1, 2, 4, channels) if channels % number == 0])
    attrs = _window(g, x)
    outer = groups * g.pick((1, 2, 3, 4, 8))
    weights = g.fresh([(size,) * RUNS for size in (outer, channels // groups, *attrs["kernel_shape"])], x.dtype, -1, 1, weight=0.8)
    bias = g.fresh([(outer,) * RUNS], x.dtype, -1, 1, weight=0.8) if g.chance(0.6) else None
    if g.chance(0.4):
        del attrs["kernel_shape"]
    g.node("Conv", [x, weights, bias], group=groups, **attrs)


def _conv_transpose(g: OnnxGenerator) -> None:
    x = _image(g, rank=g.pick((3, 4)), dtypes=("float32", "float64"))
    channels = x.dims[1][0]
    groups = g.pick([number for number in (1, 1, 2, channels) if channels % number == 0])
    rank = x.rank - 2
    kernel = [g.pick((1, 2, 3, 4)) for _ in range(rank)]
    strides = [g.pick((1, 2, 3)) for _ in range(rank)]
    attrs: dict[str, Any] = {"kernel_shape": kernel, "strides": strides, "group": groups}
    if g.chance(0.4):
        attrs["pads"] = [g.number(0, min(size - 1, 1)) for size in kernel * 2]
    if g.chance(0.3):
        attrs["output_padding"] = [g.number(0, by - 1) for by in strides]
    elif g.chance(0.2):
        attrs["auto_pad"] = g.pick(("SAME_UPPER", "SAME_LOWER"))
        attrs.pop("pads", None)
    if g.chance(0.2):
        attrs["dilations"] = [g.pick((1, 2)) for _ in range(rank)]
    if any(0 in dim for dim in x.dims):
        raise Unfit
    spans = [(size - 1) * step + 1 for size, step in zip(kernel, attrs.get("dilations", [1] * rank), strict=True)]
    if "auto_pad" in attrs and any(span < by for span, by in zip(spans, strides, strict=True)):
        raise Unfit  # ONNX's text pads such a result, its shape inference and ONNX Runtime do not
    weights = g.fresh([(size,) * RUNS for size in (channels, g.pick((1, 2, 3)), *kernel)], x.dtype, -1, 1, weight=0.8)
    bias = g.fresh([(weights.dims[1][0] * groups,) * RUNS], x.dtype, weight=0.8) if g.chance(0.4) else None
    g.node("ConvTranspose", [x, weights, bias], **attrs)


def _pool(name: str) -> Maker:
    def make(g: OnnxGenerator) -> None:
        dtypes = {"MaxPool": ("float32", "float32", "float64", "uint8", "int8"), "AveragePool": F32}.get(name, F32)
        x = _image(g, dtypes=dtypes, rank=g.pick((3, 4, 4, 5)))
        attrs = _window(g, x, True, dilated=name == "MaxPool" or g.opset >= {"AveragePool": 19}.get(name, 18))
        if g.chance(0.4) and attrs.get("auto_pad", "VALID") == "VALID":
            attrs["ceil_mode"] = g.number(0, 1)
        if name == "AveragePool" and g.chance(0.5):
            attrs["count_include_pad"] = g.number(0, 1)
        if name == "LpPool":
            attrs["p"] = g.pick((1, 2, 3))
        outputs = 2 if name == "MaxPool" and x.dtype in WIDE and g.chance(0.3) else 1
        g.several(name, [x], outputs, **attrs)

    return make


def _global_pool(name: str) -> Maker:
    def make(g: OnnxGenerator) -> None:
        x = _image(g)
        if any(0 in dim for dim in x.dims[2:]):
            raise Unfit  # ONNX leaves the value open
        g.node(name, [x], **({"p": g.pick((1, 2, 3))} if name == "GlobalLpPool" else {}))

    return make


def _max_unpool(g: OnnxGenerator) -> None:
    x = _image(g, rank=4)
    if not x.all(lambda array: np.isfinite(array)):
        raise Unfit
    if any(extent < 2 for dim in x.dims[2:] for extent in dim):
        raise Unfit
    size = [2, 2]
    pooled, places = g.several("MaxPool", [x], 2, kernel_shape=size, strides=size)
    g.node("MaxUnpool", [pooled, places], kernel_shape=size, strides=size)


def _batch_normalization(g: OnnxGenerator) -> None:
    x = g.data(("float32", "float32", "float64"), (2, 3, 4), lambda value: min(value.dims[1]) > 0)
    dtype = x.dtype
    scale, bias, mean = (g.operand([x.dims[1]], dtype, -1, 1) for _ in range(3))
    variance = g.operand([x.dims[1]], dtype, 0.25, 2)
    g.node("BatchNormalization", [x, scale, bias, mean, variance], **({"epsilon": g.pick((1e-3, 1e-5))} if g.chance(0.5) else {}))


def _instance_normalization(g: OnnxGenerator) -> None:
    x = _image(g)
    if any(0 in dim for dim in x.dims):
        raise Unfit
    g.node(
        "InstanceNormalization", [x, g.operand([x.dims[1]], x.dtype), g.operand([x.dims[1]], x.dtype)], epsilon=g.pick((1e-3, 1e-5))
    )


def _group_normalization(g: OnnxGenerator) -> None:
    x = _image(g)
    if any(0 in dim for dim in x.dims):
        raise Unfit
    channels = x.dims[1][0]
    groups = g.pick([number for number in (1, 2, 4, channels) if channels % number == 0])
    g.node("GroupNormalization", [x, g.operand([x.dims[1]], x.dtype), g.operand([x.dims[1]], x.dtype)], num_groups=groups)


def _layer_normalization(g: OnnxGenerator) -> None:
    x = g.data(("float32", "float32", "float64"), (1, 2, 3, 4), lambda value: all(all(dim) for dim in value.dims))
    axis = g.number(0, x.rank - 1)
    bias = g.operand(x.dims[axis:], x.dtype) if g.chance(0.6) else None
    outputs = g.pick((1, 1, 1, 3))
    if outputs == 3 and not x.all(np.isfinite):
        raise Skipped("LayerNormalization: the mean of infinities is one, in ONNX Runtime NaN")
    g.several(
        "LayerNormalization", [x, g.operand(x.dims[axis:], x.dtype), bias], outputs, axis=axis - x.rank if g.chance(0.4) else axis
    )


def _rms_normalization(g: OnnxGenerator) -> None:
    x = g.data(F32, (1, 2, 3, 4), lambda value: all(all(dim) for dim in value.dims))
    axis = g.number(0, x.rank - 1)
    g.node("RMSNormalization", [x, g.operand(x.dims[axis:], x.dtype)], axis=axis - x.rank if g.chance(0.4) else axis)


def _mean_variance(g: OnnxGenerator) -> None:
    x = g.data(F32, (4,), lambda value: all(all(dim) for dim in value.dims))
    axes = [axis % 4 for axis in g.axes(x, 1)] if g.chance(0.5) else [0, 2, 3]
    for array in x.arrays:
        wide = array.astype(np.float64)
        if np.isfinite(wide).all() and np.any(wide.var(tuple(axes)) <= 1e-5 * np.square(wide).mean(tuple(axes))):
            raise Skipped("MeanVarianceNormalization: ONNX Runtime subtracts squares, so that a small variance may be negative")
    g.node("MeanVarianceNormalization", [x], **({} if axes == [0, 2, 3] else {"axes": axes}))


def _lrn(g: OnnxGenerator) -> None:
    x = _image(g, rank=4)
    g.node("LRN", [x], size=g.pick((1, 3, 5)), **({"alpha": 0.01, "beta": 0.5, "bias": 2.0} if g.chance(0.5) else {}))


def _dropout(g: OnnxGenerator) -> None:
    x = g.data(FLOATS)
    g.several("Dropout", [x, g.constant(np.float32(0.25)) if g.chance(0.5) else None], g.pick((1, 1, 2)))


def _resize(g: OnnxGenerator) -> None:
    x = _image(g, rank=g.pick((3, 4)))
    mode = g.pick(("nearest", "nearest", "linear", "cubic")) if x.rank == 4 else g.pick(("nearest", "linear"))
    if any(0 in dim for dim in x.dims):
        raise Unfit
    attrs: dict[str, Any] = {"mode": mode}
    attrs["coordinate_transformation_mode"] = g.pick(("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel"))
    if mode == "nearest":
        attrs["nearest_mode"] = g.pick(("round_prefer_floor", "floor", "ceil", "round_prefer_ceil"))
    if mode == "cubic" and g.chance(0.5):
        attrs["cubic_coeff_a"] = -0.5
        attrs["exclude_outside"] = g.number(0, 1)
    if g.chance(0.5):
        factors = [1, 1, *(g.pick((0.5, 1, 2, 1.5, 3)) for _ in range(x.rank - 2))]
        is_integral = all(extent * factor % 1 == 0 for factor, dim in zip(factors, x.dims, strict=True) for extent in dim)
        if attrs["coordinate_transformation_mode"] == "align_corners" and not is_integral:
            raise Skipped("Resize: align_corners reads the scaled extent, in ONNX Runtime the rounded one")
        g.node("Resize", [x, None, g.constant(np.array(factors, np.float32))], **attrs)
        return
    sizes = [g.number(1, 12) for _ in range(x.rank - 2)]
    fixed = all(len(set(dim)) == 1 for dim in x.dims[:2])
    if fixed and g.chance(0.6):
        g.node("Resize", [x, None, None, g.ints(*(dim[0] for dim in x.dims[:2]), *sizes)], **attrs)
        return
    head = g.node("Slice", [g.node("Shape", [x]), g.ints(0), g.ints(2)])
    g.node("Resize", [x, None, None, g.node("Concat", [head, g.ints(*sizes)], axis=0)], **attrs)


def _grid_sample(g: OnnxGenerator) -> None:
    x = _image(g, rank=4)
    if any(0 in dim for dim in x.dims):
        raise Unfit
    grid = g.operand([x.dims[0], g.dim(), g.dim(), (2,) * RUNS], x.dtype, -1.2, 1.2)
    mode = g.pick(("bilinear", "nearest", "bicubic") if g.opset < 20 else ("linear", "nearest", "cubic"))
    padding = g.pick(("zeros", "border", "reflection"))
    g.node("GridSample", [x, grid], mode=mode, padding_mode=padding, align_corners=g.number(0, 1))


def _affine_grid(g: OnnxGenerator) -> None:
    spatial = g.number(2, 3)
    batch = g.number(1, 2)
    theta = g.operand([(batch,) * RUNS, (spatial,) * RUNS, (spatial + 1,) * RUNS], g.pick(WIDE), -1, 1)
    extents, aligned = [g.number(1, 6) for _ in range(spatial)], g.number(0, 1)
    if aligned and 1 in extents:
        raise Skipped("AffineGrid: of one aligned point, the coordinate is -1, in ONNX Runtime 1")
    g.node("AffineGrid", [theta, g.ints(batch, 3, *extents)], align_corners=aligned)


def _rois(g: OnnxGenerator, x: Value, batches: int) -> tuple[Value, Value]:
    count = g.dim()
    places = [np.sort(g.rng().uniform(0, 6, (extent, 2, 2)), 1).reshape(extent, 4) for extent in count]
    regions = g.input([each.astype(x.dtype) for each in places])
    return regions, g.operand([count], "int64", 0, batches - 1)


def _roi_align(g: OnnxGenerator) -> None:
    x = _image(g, rank=4, dtypes=WIDE)
    if any(0 in dim for dim in x.dims):
        raise Unfit
    regions, batches = _rois(g, x, x.least(0))
    attrs = {"output_height": g.number(1, 3), "output_width": g.number(1, 3), "sampling_ratio": g.number(0, 2)}
    attrs |= {
        "mode": g.pick(("avg", "max")),
        "spatial_scale": g.pick((1.0, 0.5)),
        "coordinate_transformation_mode": g.pick(("half_pixel", "output_half_pixel")),
    }
    if attrs["mode"] == "max":
        raise Unfit  # ONNX Runtime takes the greatest of the weighted corners, not of the samples
    g.node("RoiAlign", [x, regions, batches], **attrs)


def _max_roi_pool(g: OnnxGenerator) -> None:
    x = _image(g, rank=4)
    if any(0 in dim for dim in x.dims):
        raise Unfit
    count = g.dim()
    arrays = []
    for extent in count:
        places = np.sort(g.rng().integers(0, 8, (extent, 2, 2)), 1).reshape(extent, 4)
        arrays.append(np.concatenate([g.rng().integers(0, x.least(0), (extent, 1)), places], 1).astype(np.float32))
    g.node("MaxRoiPool", [x, g.input(arrays)], pooled_shape=[g.number(1, 3), g.number(1, 3)], spatial_scale=g.pick((1.0, 0.5)))


def _deform_conv(g: OnnxGenerator) -> None:
    x = _image(g, rank=4, channels=g.pick((2, 4)))
    if any(0 in dim for dim in x.dims):
        raise Unfit
    channels = x.dims[1][0]
    size = g.pick((1, 2, 3))
    pads = g.number(0, 1)
    stride = g.pick((1, 2))
    out = [tuple((extent + 2 * pads - size) // stride + 1 for extent in dim) for dim in x.dims[2:]]
    if any(extent < 1 for dim in out for extent in dim):
        raise Unfit
    weights = g.fresh([(number,) * RUNS for number in (3, channels, size, size)], x.dtype, -1, 1, weight=0.7)
    offset = g.operand([x.dims[0], (2 * size * size,) * RUNS, *out], x.dtype, -1, 1)
    mask = g.operand([x.dims[0], (size * size,) * RUNS, *out], x.dtype, 0, 1) if g.chance(0.4) else None
    bias = g.fresh([(3,) * RUNS], x.dtype, weight=0.7) if g.chance(0.4) or (mask is not None and g.chance(0.5)) else None
    g.node("DeformConv", [x, weights, offset, bias, mask], kernel_shape=[size] * 2, pads=[pads] * 4, strides=[stride] * 2)


def _col2im(g: OnnxGenerator) -> None:
    height, width, size = g.number(2, 6), g.number(2, 6), g.pick((1, 2))
    places = (height - size + 1) * (width - size + 1)
    x = g.operand([g.dim(), (g.number(1, 3) * size * size,) * RUNS, (places,) * RUNS], "float32")
    g.node("Col2Im", [x, g.ints(height, width), g.ints(size, size)])


def _non_max_suppression(g: OnnxGenerator) -> None:
    batch, boxes, classes = (g.number(1, 2),) * RUNS, g.dim(), (g.number(1, 3),) * RUNS
    arrays = [
        np.sort(g.rng().uniform(0, 3, (batch[run], boxes[run], 2, 2)), 2).reshape(batch[run], boxes[run], 4).astype(np.float32)
        for run in range(RUNS)
    ]
    scores = g.operand([batch, classes, boxes], "float32", 0, 1)
    limits = [g.constant(np.int64(g.number(0, 4))), g.constant(np.float32(g.pick((0.0, 0.3, 0.6))))]
    if g.chance(0.6):
        limits.append(g.constant(np.float32(g.pick((0.1, 0.5)))))
    g.node("NonMaxSuppression", [g.input(arrays), scores, *limits], center_point_box=g.number(0, 1))


def _recurrent(name: str) -> Maker:
    gates, states = {"LSTM": (4, 2), "GRU": (3, 1), "RNN": (1, 1)}[name]

    def make(g: OnnxGenerator) -> None:
        x = g.data(F32, (3,), lambda value: len(set(value.dims[2])) == 1 and value.least(2) > 0 and min(map(min, value.dims)) > 0)
        steps, batch, inner = x.dims
        hidden = (g.pick((1, 2, 4)),) * RUNS
        direction = g.pick(("forward", "reverse", "bidirectional"))
        count = (2 if direction == "bidirectional" else 1,) * RUNS
        rows = (gates * hidden[0],) * RUNS
        weights = [g.fresh([count, rows, dim], "float32", -0.5, 0.5, weight=0.7) for dim in (inner, hidden)]
        bias = g.fresh([count, (2 * gates * hidden[0],) * RUNS], "float32", -0.5, 0.5, weight=0.7) if g.chance(0.6) else None
        lengths = None
        if g.chance(0.3):
            arrays = []
            for run in range(RUNS):
                each = g.rng().integers(1, steps[run] + 1, batch[run]).astype(np.int32)
                each[:1] = steps[run]
                arrays.append(each)
            lengths = g.input(arrays)
        initial = [g.operand([count, batch, hidden], "float32", -0.5, 0.5) if g.chance(0.4) else None for _ in range(states)]
        attrs: dict[str, Any] = {"hidden_size": hidden[0], "direction": direction}
        if name == "GRU" and g.chance(0.5):
            attrs["linear_before_reset"] = g.number(0, 1)
        if g.chance(0.2):
            attrs["clip"] = 0.7
            if name == "LSTM":
                raise Skipped("LSTM: clip bounds the input of every activation, in ONNX Runtime not the state of the cell")
        inputs = [x, *weights, bias, lengths, *initial]
        if name == "LSTM" and g.chance(0.2):
            inputs.append(g.fresh([count, (3 * hidden[0],) * RUNS], "float32", -0.5, 0.5, weight=0.7))
        g.several(name, inputs, states + 1, **attrs)

    return make


def _attention(g: OnnxGenerator) -> None:
    batch, heads, queries, keys = (g.number(1, 2),) * RUNS, g.pick((1, 2, 4)), g.dim(), g.dim()
    shared, size, width = g.pick([number for number in (1, 2, heads) if heads % number == 0]), g.pick((2, 4, 8)), g.pick((2, 4, 8))
    if any(0 in dim for dim in (queries, keys)):
        raise Unfit
    attrs: dict[str, Any] = {}
    if g.chance(0.5):
        q = g.operand([batch, (heads,) * RUNS, queries, (size,) * RUNS], "float32")
        k = g.operand([batch, (shared,) * RUNS, keys, (size,) * RUNS], "float32")
        v = g.operand([batch, (shared,) * RUNS, keys, (width,) * RUNS], "float32")
    else:
        q = g.operand([batch, queries, (heads * size,) * RUNS], "float32")
        k = g.operand([batch, keys, (shared * size,) * RUNS], "float32")
        v = g.operand([batch, keys, (shared * width,) * RUNS], "float32")
        attrs |= {"q_num_heads": heads, "kv_num_heads": shared}
    mask = None
    if g.chance(0.4):
        mask = g.operand([queries, keys], "float32", -2, 2)
    elif g.chance(0.4):
        attrs["is_causal"] = 1
    if g.chance(0.3):
        attrs["scale"] = 0.5
    if g.chance(0.2):
        attrs["softcap"] = 2.0
    g.node("Attention", [q, k, v, mask], **attrs)


def _rotary(g: OnnxGenerator) -> None:
    heads, size, length = (g.pick((1, 2)),) * RUNS, g.pick((2, 4, 8)), g.dim()
    batch = g.dim()
    if any(0 in dim for dim in (length, batch)):
        raise Unfit
    x = g.operand([batch, heads, length, (size,) * RUNS], "float32")
    rows = [batch, length, (size // 2,) * RUNS]
    g.node("RotaryEmbedding", [x, g.operand(rows, "float32", -1, 1), g.operand(rows, "float32", -1, 1)], interleaved=g.number(0, 1))


# --- quantization -----------------------------------------------------------------------------------------------------


def _scale(g: OnnxGenerator, dims: list[Shape]) -> Value:
    """Draw scales, powers of two so that quotients are exact."""
    arrays = [np.exp2(g.rng().integers(-6, -2, tuple(dim[run] for dim in dims))).astype(np.float32) for run in range(RUNS)]
    return g.constant(arrays[0]) if all(len(set(dim)) == 1 for dim in dims) else g.input(arrays)


def _granularity(g: OnnxGenerator, x: Value) -> tuple[list[Shape], dict[str, int]]:
    if x.rank and g.chance(0.4):
        axis = g.number(0, x.rank - 1)
        return [x.dims[axis]], {"axis": axis - x.rank if g.chance(0.3) else axis}
    return [], {}


def _quantize(g: OnnxGenerator) -> None:
    x = g.data(F32, (0, 1, 2, 3, 4))
    if not x.all(np.isfinite):
        raise Unfit  # the integer of a NaN is open
    dims, attrs = _granularity(g, x)
    points = g.operand(dims, g.pick(("uint8", "int8")), -3 if g.chance(0) else 0, 7) if g.chance(0.8) else None
    q = g.node("QuantizeLinear", [x, _scale(g, dims), points], **attrs)
    if g.chance(0.5):
        reading = q.dtype
        g.node("DequantizeLinear", [q, _scale(g, dims), g.operand(dims, reading, 0, 7)], **attrs)


def _dequantize(g: OnnxGenerator) -> None:
    x = g.data(("uint8", "int8", "int32"), (0, 1, 2, 3, 4))
    dims, attrs = _granularity(g, x)
    points = g.operand(dims, x.dtype, 0, 7) if x.dtype != "int32" and g.chance(0.7) else None
    g.node("DequantizeLinear", [x, _scale(g, dims), points], **attrs)


def _dynamic_quantize(g: OnnxGenerator) -> None:
    x = g.data(F32, (1, 2, 3), lambda value: all(all(dim) for dim in value.dims))
    if not x.all(np.isfinite):
        raise Unfit
    g.several("DynamicQuantizeLinear", [x], 3)


def _matmul_integer(g: OnnxGenerator) -> None:
    x = g.data(("uint8", "int8"), (2, 3))
    y = g.operand(
        [*x.dims[:-2], x.dims[-1], g.dim()] if g.chance(0.4) else [x.dims[-1], g.dim()],
        "uint8" if x.dtype == "uint8" and g.chance(0.5) else "int8",
    )
    points = [g.operand((), each.dtype, 0, 5) if g.chance(0.5) else None for each in (x, y)]
    g.node("MatMulInteger", [x, y, *points])


def _conv_integer(g: OnnxGenerator) -> None:
    x = _image(g, rank=4, dtypes=("uint8",))
    attrs = _window(g, x)
    weights = g.fresh([(size,) * RUNS for size in (g.pick((1, 3, 8)), x.dims[1][0], *attrs["kernel_shape"])], "uint8", weight=0.8)
    g.node("ConvInteger", [x, weights, g.operand((), "uint8", 0, 5) if g.chance(0.6) else None], **attrs)


def _qlinear_matmul(g: OnnxGenerator) -> None:
    x = g.data(("uint8", "int8"), (2, 3))
    if 0 in x.dims[-1]:
        raise Skipped("ONNX Runtime does not write the result of QLinearMatMul if nothing is summed")
    y = g.operand([x.dims[-1], g.dim()], x.dtype)
    scales = [_scale(g, []) for _ in range(3)]
    points = [g.constant(np.array(g.number(0, 5), x.dtype)) for _ in range(3)]
    g.node("QLinearMatMul", [x, scales[0], points[0], y, scales[1], points[1], scales[2], points[2]])


def _qlinear_conv(g: OnnxGenerator) -> None:
    x = _image(g, rank=4, dtypes=("uint8", "int8"))
    attrs = _window(g, x)
    channels = x.dims[1][0]
    groups = g.pick([number for number in (1, 1, channels) if channels % number == 0])
    outer = groups * g.pick((1, 2, 4))
    weight_dtype = g.pick(("int8", x.dtype)) if x.dtype == "uint8" else "int8"
    low = -9 if weight_dtype == "int8" else 0
    weights = g.constant(g.array((outer, channels // groups, *attrs["kernel_shape"]), weight_dtype, low, 9))
    by_channel = g.chance(0.4)
    scale = _scale(g, [(outer,) * RUNS] if by_channel else [])
    point = g.constant(np.zeros(outer if by_channel else (), weight_dtype))
    inputs = [
        x,
        _scale(g, []),
        g.constant(np.array(g.number(0, 9), x.dtype)),
        weights,
        scale,
        point,
        _scale(g, []),
        g.constant(np.array(g.number(0, 9), x.dtype)),
    ]
    if g.chance(0.5):
        inputs.append(g.constant(g.array((outer,), "int32", -99, 99)))
    g.node("QLinearConv", inputs, group=groups, **attrs)


# --- losses and signals -----------------------------------------------------------------------------------------------


def _loss(name: str) -> Maker:
    def make(g: OnnxGenerator) -> None:
        classes = (g.number(2, 5),) * RUNS
        batch, rest = g.dim(), list(draw_dims(g, g.number(0, 2)))
        if any(0 in dim for dim in (batch, *rest)):
            raise Unfit
        x = g.operand([batch, classes, *rest], "float32")
        labels = g.operand([batch, *rest], g.pick(("int64", "int32")), 0, classes[0] - 1)
        weights = g.operand([classes], "float32", 0.5, 2) if g.chance(0.4) else None
        attrs: dict[str, Any] = {"reduction": g.pick(("none", "mean", "sum"))}
        if g.chance(0.3):
            attrs["ignore_index"] = 1
        outputs = 2 if name == "SoftmaxCrossEntropyLoss" and g.chance(0.4) else 1
        g.several(name, [x, labels, weights], outputs, **attrs)

    return make


def _amplitudes(g: OnnxGenerator, spectrum: Value) -> None:
    """Let later nodes read absolute values alone. Parts that are 0, as of all real signals, are noise in ONNX Runtime, and a later
    argmax would tell noise apart."""
    g.values = [value for value in g.values if value is not spectrum]
    if g.opset < 18:
        g.node("ReduceL2", [spectrum], axes=[-1])
    else:
        g.node("ReduceL2", [spectrum, g.ints(-1)])


def _dft(g: OnnxGenerator) -> None:
    length = (g.pick((4, 8, 5)),) * RUNS
    onesided = g.number(0, 1)
    x = g.operand([g.dim(), length, (1,) * RUNS if onesided or g.chance(0.5) else (2,) * RUNS], "float32")
    _amplitudes(g, g.node("DFT", [x], axis=1, onesided=onesided))


def _dft20(g: OnnxGenerator) -> None:
    length = (g.pick((4, 8, 5)),) * RUNS
    x = g.operand([g.dim(), length, (1,) * RUNS if g.chance(0.5) else (2,) * RUNS], "float32")
    inverse = int(x.dims[2][0] == 2 and g.chance(0.4))
    _amplitudes(g, g.node("DFT", [x, None, g.constant(np.int64(1))], inverse=inverse))


def _stft(g: OnnxGenerator) -> None:
    frame = g.pick((4, 8))
    length = (g.pick((16, 20, 33)),) * RUNS
    x = g.operand([g.dim(), length, (1,) * RUNS], "float32")
    window = g.constant(np.hanning(frame).astype(np.float32)) if g.chance(0.6) else None
    g.node("STFT", [x, g.constant(np.int64(g.pick((2, 3, 4)))), window, g.constant(np.int64(frame))], onesided=g.number(0, 1))


def _window_function(name: str) -> Maker:
    def make(g: OnnxGenerator) -> None:
        size = g.constant(np.array(g.number(1, 12), np.int64))
        g.node(name, [size], **({"periodic": g.number(0, 1)} if g.chance(0.7) else {}))

    return make


def _mel(g: OnnxGenerator) -> None:
    values = (
        np.int64(g.number(2, 8)),
        np.int64(g.pick((16, 32))),
        np.int64(g.pick((8000, 16000))),
        np.float32(g.pick((0, 20))),
        np.float32(4000),
    )
    g.node("MelWeightMatrix", [g.constant(each) for each in values])


def _tensor_scatter(g: OnnxGenerator) -> None:
    batch, length, width, new = g.dim(), (g.number(6, 9),) * RUNS, g.dim(), (g.number(1, 3),) * RUNS
    if any(0 in dim for dim in (batch, width)):
        raise Unfit
    x, update = g.operand([batch, length, width], "float32"), g.operand([batch, new, width], "float32")
    g.node("TensorScatter", [x, update, g.operand([batch], "int64", 0, 3)], axis=1, mode=g.pick(("linear", "circular")))


LAYERS: Mapping[str, Maker] = {
    "MatMul": _matmul,
    "Gemm": _gemm,
    "Einsum": _einsum,
    "Det": _det,
    "Conv": _conv,
    "ConvTranspose": _conv_transpose,
    **{name: _pool(name) for name in ("MaxPool", "AveragePool", "LpPool")},
    **{name: _global_pool(name) for name in ("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool")},
    "MaxUnpool": _max_unpool,
    "BatchNormalization": _batch_normalization,
    "InstanceNormalization": _instance_normalization,
    "GroupNormalization": _group_normalization,
    "LayerNormalization": _layer_normalization,
    "RMSNormalization": _rms_normalization,
    "MeanVarianceNormalization": _mean_variance,
    "LRN": _lrn,
    "Dropout": _dropout,
    "Resize": _resize,
    "GridSample": _grid_sample,
    "AffineGrid": _affine_grid,
    "RoiAlign": _roi_align,
    "MaxRoiPool": _max_roi_pool,
    "DeformConv": _deform_conv,
    "Col2Im": _col2im,
    "NonMaxSuppression": _non_max_suppression,
    **{name: _recurrent(name) for name in ("LSTM", "GRU", "RNN")},
    "Attention": _attention,
    "RotaryEmbedding": _rotary,
    "QuantizeLinear": _quantize,
    "DequantizeLinear": _dequantize,
    "DynamicQuantizeLinear": _dynamic_quantize,
    "MatMulInteger": _matmul_integer,
    "ConvInteger": _conv_integer,
    "QLinearMatMul": _qlinear_matmul,
    "QLinearConv": _qlinear_conv,
    "NegativeLogLikelihoodLoss": _loss("NegativeLogLikelihoodLoss"),
    "SoftmaxCrossEntropyLoss": _loss("SoftmaxCrossEntropyLoss"),
    "DFT": _dft,
    "DFT, axis as input": _dft20,
    "STFT": _stft,
    **{name: _window_function(name) for name in ("HannWindow", "HammingWindow", "BlackmanWindow")},
    "MelWeightMatrix": _mel,
    "TensorScatter": _tensor_scatter,
}
"""Makers by the operator that they are for."""
