"""The buffers of a sample's region: its inputs and results in the storage forms that the code generator asks for."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from inlaid.driver.build import ALONE
from inlaid.driver.shadow import flat
from inlaid.graph import ir
from inlaid.graph.interp import evaluate
from inlaid.partitioning.borders import decode, encode, stored_function
from inlaid.plugins import Border
from inlaid_conformance.case import Failed
from inlaid_conformance.samples import Array, Sample
from inlaid_conformance.target_under_test import TargetUnderTest
from inlaid_conformance.tolerance import compare
from inlaid_runtime.types import TensorType, TupleType, Type, from_numpy


@dataclass(frozen=True)
class StoredTensor:
    """Shape and element type of a buffer at a region's border."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def bytes(self) -> int:
        """Size of the buffer."""
        return math.prod(self.shape) * self.dtype.itemsize


class StoredForm:
    """Inputs and results of a sample as its kernel reads and writes them. A sample of symbolic sizes has no borders. `inputs` are
    the stored arrays, `outputs` describe the buffers of the results."""

    def __init__(self, tested: TargetUnderTest, sample: Sample) -> None:
        self._sample = sample
        region = tested.region(ALONE, sample.composed)
        self._borders = region.borders
        function = region.function if region.borders is None else stored_function(region.function, region.borders)
        self.inputs: list[Array] = [np.array(value, order="C") for value in sample.inputs]
        if region.borders is not None:
            self.inputs = _encoded(sample.inputs, region.borders.inputs)
        parts = [part for part in _fields(function.body.type) if isinstance(part, TensorType)]
        if all(isinstance(dim, int) for part in parts for dim in part.shape):
            shapes = [_static(part) for part in parts]
        else:  # of symbolic sizes
            type_ = sample.function.body.type
            shapes = [np.shape(value) for _, value in flat(type_, evaluate(sample.function, sample.inputs))]
        self.outputs = [StoredTensor(shape, part.dtype.numpy) for shape, part in zip(shapes, parts, strict=True)]

    @property
    def bytes(self) -> int:
        """Size of all inputs and results."""
        return sum(value.nbytes for value in self.inputs) + sum(tensor.bytes for tensor in self.outputs)

    def check(self, results: Sequence[Array]) -> None:
        """Compare stored results with the reference, and their padding with the zero point. Raises `Failed`."""
        type_, values = self._sample.function.body.type, results
        if self._borders is not None:
            values = _decoded(results, type_, self._borders.outputs)
        compare(type_, evaluate(self._sample.function, self._sample.inputs), values, self._sample.allowed)
        if self._borders is not None:
            for stored, part, border in zip(results, _fields(type_), self._borders.outputs, strict=True):
                _check_padding(stored, part, border)


def _check_padding(stored: Array, type_: Type, border: Border) -> None:
    if not isinstance(type_, TensorType) or not border.layout.pads(type_.shape):
        return
    padding = ~border.layout.pack(np.ones(_static(type_), np.bool_))
    wrong_count = np.count_nonzero(stored[padding] != border.zero_point)
    if wrong_count:
        raise Failed(
            f"the padding of a result must be {border.zero_point}, but {wrong_count} of {np.count_nonzero(padding)} elements differ"
        )


def _encoded(values: Sequence[Array], borders: Sequence[Border]) -> list[Array]:
    params = [ir.var(f"x{number}", TensorType(value.shape, from_numpy(value.dtype))) for number, value in enumerate(values)]
    encoded = [encode(param, border) for param, border in zip(params, borders, strict=True)]
    # Devices take row-major arrays, and a transposition of the reference is a view.
    return [np.array(value, order="C") for value in evaluate(ir.function(params, ir.tuple_(encoded)), values)]


def _decoded(stored: Sequence[Array], type_: Type, borders: Sequence[Border]) -> list[Array]:
    params = [ir.var(f"x{number}", TensorType(value.shape, from_numpy(value.dtype))) for number, value in enumerate(stored)]
    decoded = [decode(param, part, border) for param, part, border in zip(params, _fields(type_), borders, strict=True)]
    return list(evaluate(ir.function(params, ir.tuple_(decoded)), stored))


def _fields(type_: Type) -> tuple[Type, ...]:
    return type_.fields if isinstance(type_, TupleType) else (type_,)


def _static(type_: TensorType) -> tuple[int, ...]:
    return tuple(int(dim) for dim in type_.shape if isinstance(dim, int))
