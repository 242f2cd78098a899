"""Sizes of a convolution, from which schedule rules estimate its time before there is a kernel."""

from __future__ import annotations

import math

from inlaid_runtime.arith import IMAGE_SIDE, Dim, size_hint
from inlaid_runtime.records import dataclass


@dataclass(frozen=True)
class ConvSizes:
    """A convolution with static channels and windows. `dtypes` are those of data, weights and accumulator. `batch` and `image` are
    sizes of the result, which may be symbolic; `inputs` and `outputs` are channels per group. `lines` are the height and width of
    the result as a schedule sees it: symbolic images, and those that are not 2-d, are flat, with a height of 1 and a width that
    includes the halo between lines. `static`: no size is symbolic."""

    dtypes: tuple[str, str, str]
    batch: Dim
    image: tuple[Dim, ...]
    groups: int
    inputs: int
    outputs: int
    window: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    lines: tuple[int, int]
    static: bool

    @property
    def images(self) -> int:
        """Batch times groups, with a size hint for a symbolic batch."""
        return size_hint(self.batch) * self.groups

    @property
    def positions(self) -> tuple[int, ...]:
        """The sizes of the result's image, with hints for symbolic ones."""
        return tuple(size_hint(dim, IMAGE_SIDE) for dim in self.image)

    @property
    def pixels(self) -> int:
        """Number of result elements per channel."""
        return math.prod(self.positions)

    @property
    def taps(self) -> int:
        """Elements of the window per channel."""
        return math.prod(self.window)

    @property
    def depth(self) -> int:
        """Length of the reduction of one result element."""
        return self.inputs * self.taps

    @property
    def is_float32(self) -> bool:
        """Whether data, weights and accumulator are float32."""
        return set(self.dtypes) == {"float32"}

    @property
    def sums_floats(self) -> bool:
        """Whether data, weights and accumulator have one float type, whose products are multiply-adds."""
        return set(self.dtypes) in ({"float32"}, {"float64"})

    @property
    def is_strided(self) -> bool:
        """Whether windows move along a line in steps of more than one element."""
        return self.strides[-1] != 1

    def fills(self, lanes: int) -> bool:
        """Test whether the output channels of each group fill vectors, or a single group can be padded."""
        return fills_lanes(self.outputs, lanes, self.groups == 1)


def fills_lanes(outputs: int, lanes: int, single_group: bool) -> bool:
    """Test whether output channels fill vectors, or those of a single group can be padded with less than half of the lanes
    empty."""
    return outputs % lanes == 0 or (single_group and -(-outputs // lanes) * lanes < 2 * outputs)
