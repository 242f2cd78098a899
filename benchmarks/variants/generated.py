"""The generated rows of products: type × form × shape × batch × weights × what follows × end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from types import MappingProxyType

import onnx

from variants.axes import (
    BATCHES,
    SHAPES,
    SYMBOLIC,
    Axes,
    Point,
    batch_of,
    chosen_sibling,
    generated,
    name_of,
    siblings,
    stays,
)
from variants.epilogues import ACTIVATIONS, CHEAP
from variants.forms import FORMS
from variants.models import BIAS, FLOAT_BIAS, NONE, OTHER_SCALE, SKIP, data_shape, float_product, quantized_product
from variants.quantization import Quantized
from variants.row import Row, Sibling

FLOATS = ("float32", "float16", "float64", "int64")
QUANTIZED: Mapping[str, Quantized] = MappingProxyType(
    {
        "u8*s8": Quantized("uint8", 117, "int8", 0),
        "s8*s8": Quantized("int8", -3, "int8", 0),
        "u8*(s8-5)": Quantized("uint8", 117, "int8", 5),
        "s8*(s8-5)": Quantized("int8", -3, "int8", 5),
        "u8*(u8-117)": Quantized("uint8", 117, "uint8", 117),
        "s8*(u8-117)": Quantized("int8", -3, "uint8", 117),
        "u8*(u8-128)": Quantized("uint8", 117, "uint8", 128),
    }
)
"""Types of data and weights by name, with the weights' zero point where it is not 0."""
CONSTANT, INPUT = "w constant", "w an input"
FLOAT_END, QUANTIZED_END = "float out", "8-bit out"

AXES: Axes = MappingProxyType(
    {
        "type": (*FLOATS, *QUANTIZED),
        "form": tuple(FORMS),
        "shape": SHAPES,
        "batch": BATCHES,
        "operand": (CONSTANT, INPUT),
        "epilogue": (NONE, BIAS, OTHER_SCALE, FLOAT_BIAS, SKIP, *ACTIVATIONS),
        "end": (FLOAT_END, QUANTIZED_END),
    }
)
ONE_OF: Mapping[str, int] = MappingProxyType(
    {"float32": 24, "float16": 24, "float64": 16, "int64": 8} | dict.fromkeys(QUANTIZED, 130)
)
"""Rows by type of which the hash of the name keeps one."""
TYPES_WITHOUT = MappingProxyType(
    {
        "float64": ("leaky relu", "hard swish", "gelu", "mish"),
        "int64": tuple(name for name in ACTIVATIONS if name != "clip"),
    }
)
"""Activations that ONNX Runtime lacks, by element type."""
SIGNED_LIMIT, EPILOGUE_LIMIT = 1.1, 1.2


def impossible(point: Point) -> str:
    """Return why a point is no row, or ""."""
    kind, form, epilogue = point["type"], FORMS[point["form"]], point["epilogue"]
    if kind in FLOATS:
        if point["end"] == QUANTIZED_END:
            return "a float product has no quantized end"
        if epilogue in (OTHER_SCALE, FLOAT_BIAS):
            return "a float product has one kind of bias"
        if kind in ("float64", "int64") and "Conv" in form.op:
            return "ONNX Runtime convolves no float64 or int64"
        if kind == "int64" and form.op == "Gemm":
            return "ONNX Runtime has no Gemm of int64"
        if epilogue in TYPES_WITHOUT.get(kind, ()):
            return f"ONNX Runtime has no such activation of {kind}"
    if epilogue == SKIP and not form.keeps_sizes:
        return "sizes of the result are not those of the data"
    return ""


def _possible(point: Point) -> bool:
    return not impossible(point)


def product_points() -> Iterator[Row]:
    """Yield every possible row, before thinning."""
    return generated(AXES, _possible, row_of)


def thinned() -> Iterator[Row]:
    """Yield the rows that stay."""
    return (row for row in product_points() if stays(row.name, ONE_OF[row.name.partition(", ")[0]]))


def row_of(point: Point) -> Row:
    """Describe the row of a point."""
    kind, form = point["type"], FORMS[point["form"]]
    part = 1 if kind in QUANTIZED else 2 if kind != "float32" else 4 if "Conv" in form.op else 3
    return Row(
        name_of(point),
        part,
        partial(model_of, point),
        sizes={"batch": batch_of(point) * form.rows, **form.sizes} if point["shape"] == SYMBOLIC else {},
        sibling=_sibling(point),
        levels=1 if point["end"] == QUANTIZED_END else 0,
    )


def _sibling(point: Point) -> Sibling | None:
    kind, epilogue = point["type"], point["epilogue"]
    every = siblings(point, _possible)
    if kind.startswith("s8"):
        every.append(Sibling(name_of({**point, "type": f"u8{kind.removeprefix('s8')}"}), "signed by unsigned", SIGNED_LIMIT))
    if epilogue != NONE:
        alone = epilogue if epilogue in ACTIVATIONS and epilogue not in CHEAP else ""
        limit = None if epilogue == SKIP else EPILOGUE_LIMIT
        every.append(
            Sibling(name_of({**point, "epilogue": NONE}), f"{'activation' if alone else epilogue} by nothing", limit, alone)
        )
    if not every and point["operand"] == INPUT:
        every.append(Sibling(name_of({**point, "operand": CONSTANT}), "w an input by w constant"))
    if not every and kind in QUANTIZED and kind != "u8*s8":
        every.append(Sibling(name_of({**point, "type": "u8*s8"}), "zero point of weights by none"))
    return chosen_sibling(name_of(point), every)


def model_of(point: Point) -> onnx.ModelProto:
    """Build the model of a point."""
    kind, form, epilogue = point["type"], FORMS[point["form"]], point["epilogue"]
    data = data_shape(form, batch_of(point), point["shape"] == SYMBOLIC)
    weights = () if point["operand"] == CONSTANT else (*(data[:1] if form.batched else ()), *form.weights)
    if kind not in QUANTIZED:
        return float_product(form, data, kind, epilogue, weights)
    bias, then = (epilogue, NONE) if epilogue in (BIAS, OTHER_SCALE, FLOAT_BIAS) else (NONE, epilogue)
    return quantized_product(form, data, QUANTIZED[kind], bias, then, point["end"] == QUANTIZED_END, weights)
