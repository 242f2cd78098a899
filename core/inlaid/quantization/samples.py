"""The samples that a model is calibrated with."""

from __future__ import annotations

import zipfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from inlaid.errors import InputError
from inlaid.graph.ir import Var
from inlaid.types import TensorType

REMEDY = "give a list of {input name: array}, or an .npz file with an array for each input"


def read_samples(data: Any, params: Sequence[Var]) -> list[dict[str, Any]]:
    """Samples as dictionaries by input name: from an iterable of such, or from the path of an .npz file.

    An array of the file has one more dimension than the input, the first one, along which the samples lie; or, where the input's
    first dimension is 1, that many samples along it; or is one sample as it is. Raises `InputError` for what is none of these, for
    no samples at all, and for floats that are not finite.
    """
    samples = _from_file(Path(data), params) if isinstance(data, (str, Path)) else _from_iterable(data)
    if not samples:
        raise InputError("there are no samples to calibrate with", remedy=REMEDY)
    for number, sample in enumerate(samples):
        for name, value in sample.items():
            array = np.asarray(value)
            if array.dtype.kind == "f" and not np.isfinite(array).all():
                raise InputError(f"input {name} of sample {number} has values that are not finite", remedy="leave the sample out")
    return samples


def _from_iterable(data: Any) -> list[dict[str, Any]]:
    if isinstance(data, Mapping) or not isinstance(data, Iterable):
        raise InputError(f"samples are several, not one object of type {type(data).__name__}", remedy=REMEDY)
    found = []
    for number, sample in enumerate(data):
        if not isinstance(sample, Mapping):
            raise InputError(f"sample {number} is of type {type(sample).__name__}: inputs are given by name", remedy=REMEDY)
        found.append(dict(sample))
    return found


def _from_file(path: Path, params: Sequence[Var]) -> list[dict[str, Any]]:
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}", remedy=REMEDY) from error
    except (ValueError, TypeError, AttributeError, EOFError, zipfile.BadZipFile) as error:
        raise InputError(f"{path} is no .npz file of arrays", remedy=REMEDY) from error
    names = [param.name for param in params]
    if sorted(arrays) != sorted(names):
        raise InputError(f"{path} has arrays for {', '.join(arrays) or 'nothing'}", remedy=f"the inputs are {', '.join(names)}")
    parts = {param.name: _parts(arrays[param.name], param) for param in params}
    counts = {name: len(items) for name, items in parts.items()}
    if len(set(counts.values())) > 1:
        raise InputError(f"{path} has different numbers of samples: {', '.join(f'{n} of {name}' for name, n in counts.items())}")
    return [dict(zip(parts, items, strict=True)) for items in zip(*parts.values(), strict=True)]


def _parts(array: Any, param: Var) -> list[Any]:
    """An array of a file as samples of one input."""
    assert isinstance(param.type, TensorType)
    rank = param.type.rank
    if array.ndim == rank + 1:
        return list(array)
    if array.ndim != rank:
        raise InputError(f"input {param.name} has {rank} dimensions: samples of it {rank + 1}, not {array.ndim}", remedy=REMEDY)
    if rank and param.type.shape[0] == 1 and array.shape[0] != 1:
        return [array[number : number + 1] for number in range(array.shape[0])]
    return [array]
