"""Reading of calibration samples."""

from __future__ import annotations

import zipfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from inlaid.graph.ir import Var
from inlaid_runtime.errors import InputError
from inlaid_runtime.types import TensorType

REMEDY = "pass a list of {input name: array}, or an .npz file with one array per input"


def read_samples(data: Any, params: Sequence[Var]) -> list[dict[str, Any]]:
    """Read samples, which are dictionaries keyed by input name, from an iterable or from the path of an .npz file.

    An array in the file stacks the samples of one input along a new first dimension or, if the input's first dimension is 1, along
    that dimension. An array with the shape of the input is a single sample. Raises `InputError` for other data, for no samples, and
    for floats that are NaN or infinite.
    """
    samples = _from_file(Path(data), params) if isinstance(data, (str, Path)) else _from_iterable(data)
    if not samples:
        raise InputError("expected at least one calibration sample, got none", remedy=REMEDY)
    for number, sample in enumerate(samples):
        for name, value in sample.items():
            array = np.asarray(value)
            if array.dtype.kind == "f" and not np.isfinite(array).all():
                raise InputError(f"input {name} of sample {number} has values that are not finite", remedy="leave the sample out")
    return samples


def _from_iterable(data: Any) -> list[dict[str, Any]]:
    if isinstance(data, Mapping) or not isinstance(data, Iterable):
        raise InputError(f"expected an iterable of samples, got {type(data).__name__}", remedy=REMEDY)
    samples = []
    for number, sample in enumerate(data):
        if not isinstance(sample, Mapping):
            raise InputError(f"sample {number} must be a dict keyed by input name, got {type(sample).__name__}", remedy=REMEDY)
        samples.append(dict(sample))
    return samples


def _from_file(path: Path, params: Sequence[Var]) -> list[dict[str, Any]]:
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}", remedy=REMEDY) from error
    except (ValueError, TypeError, AttributeError, EOFError, zipfile.BadZipFile) as error:
        raise InputError(f"{path} is not an .npz file of arrays", remedy=REMEDY) from error
    names = [param.name for param in params]
    if sorted(arrays) != sorted(names):
        raise InputError(f"{path} has arrays for {', '.join(arrays) or 'no input'}", remedy=f"the inputs are {', '.join(names)}")
    parts = {param.name: _parts(arrays[param.name], param) for param in params}
    counts = {name: len(items) for name, items in parts.items()}
    if len(set(counts.values())) > 1:
        raise InputError(f"{path} has different numbers of samples: {', '.join(f'{n} of {name}' for name, n in counts.items())}")
    return [dict(zip(parts, items, strict=True)) for items in zip(*parts.values(), strict=True)]


def _parts(array: Any, param: Var) -> list[Any]:
    """Split an array of a file into samples of one input."""
    assert isinstance(param.type, TensorType)
    rank = param.type.rank
    if array.ndim == rank + 1:
        return list(array)
    if array.ndim != rank:
        raise InputError(f"samples of input {param.name} must have {rank + 1} dimensions, got {array.ndim}", remedy=REMEDY)
    if rank and param.type.shape[0] == 1 and array.shape[0] != 1:
        return [array[number : number + 1] for number in range(array.shape[0])]
    return [array]
