"""Listed rows of part 4: convolutions."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from variants.axes import SYMBOLIC_LIMIT
from variants.forms import conv
from variants.models import BIAS, data_shape, float_product
from variants.row import Row, beside, listed

FORMS = {
    "conv 3x3 64@28, dilation 1": conv(64, 64, 3, 28),
    "conv 3x3 64@28, dilation 2": conv(64, 64, 3, 28, dilations=[2, 2]),
    "conv 3x3 64@28, dilation 6": conv(64, 64, 3, 28, dilations=[6, 6]),
    "conv 3x3 64@28, dilation 12": conv(64, 64, 3, 28, dilations=[12, 12]),
    "conv depthwise 31x31": conv(96, 96, 31, 28, group=96),
    "conv depthwise 7x7": conv(96, 96, 7, 28, group=96),
    "conv of 2 channels a group": conv(64, 64, 3, 28, group=32),
    "conv of 4 channels a group": conv(128, 128, 3, 28, group=32),
    "conv 3x3 stride 2, SAME_UPPER": conv(32, 64, 3, 112, strides=[2, 2], auto_pad="SAME_UPPER"),
    "conv 3x3 stride 2, padded by 1": conv(32, 64, 3, 112, strides=[2, 2]),
    "conv 1x1 of a 1x1 image": conv(960, 240, 1, 1),
    "conv 3x3 of a 1x1 image": conv(256, 256, 3, 1),
}
SIBLINGS = {
    "conv 3x3 64@28, dilation 2": "conv 3x3 64@28, dilation 1",
    "conv 3x3 64@28, dilation 6": "conv 3x3 64@28, dilation 1",
    "conv 3x3 64@28, dilation 12": "conv 3x3 64@28, dilation 1",
    "conv 3x3 stride 2, SAME_UPPER": "conv 3x3 stride 2, padded by 1",
}


def rows() -> Iterator[Row]:
    """Yield the rows, static and symbolic."""
    for name, form in FORMS.items():
        sibling = beside(SIBLINGS[name], "attribute by none") if name in SIBLINGS else None
        yield listed(4, name, partial(float_product, form, data_shape(form), epilogue=BIAS), sibling)
        symbolic = partial(float_product, form, data_shape(form, symbolic=True), epilogue=BIAS)
        sizes = {"batch": 1, **form.sizes}
        yield listed(4, f"{name}, symbolic", symbolic, beside(name, "symbolic by static", SYMBOLIC_LIMIT), sizes=sizes)
