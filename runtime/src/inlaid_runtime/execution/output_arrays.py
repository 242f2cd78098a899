"""The outputs of a run in arrays of the caller."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from inlaid_runtime.artifact import TensorSpec
from inlaid_runtime.errors import InputError, suggestion
from inlaid_runtime.execution.arrays import in_place
from inlaid_runtime.execution.device_memory import DeviceArray, DeviceMemory

Array = np.ndarray[Any, Any] | DeviceArray


class OutputArrays:
    """Arrays of the caller as the outputs of a model. `memories` has for each output the device memory in which it is computed;
    None for the host."""

    def __init__(self, specs: Sequence[TensorSpec], memories: Sequence[DeviceMemory | None]) -> None:
        self.names = tuple(spec.name for spec in specs)
        self._specs = specs
        self._memories = memories

    def targets(self, out: Mapping[str, Array], values: Sequence[Any]) -> list[Array | None]:
        """Return for each output the array that a run on `values` can write directly, or None."""
        arrays = [out.get(name) for name in self.names]
        return [
            array
            if array is not None and self._fills(position, array) and not any(share_memory(array, v) for v in values)
            else None
            for position, array in enumerate(arrays)
        ]

    def fill(self, out: Mapping[str, Array], results: Sequence[Any]) -> dict[str, Any]:
        """Copy the results that were not written directly. Returns the outputs by name. Raises `InputError` for an array of another
        shape."""
        outputs = dict(zip(self.names, results, strict=True))
        for name, result in outputs.items():
            array = out.get(name)
            if array is None or array is result:
                continue
            if array.shape != result.shape:
                raise InputError(f"out[{name!r}] must have shape {result.shape}, got {array.shape}")
            if isinstance(array, DeviceArray):
                array.assign(result)
            else:
                np.copyto(array, result)
            outputs[name] = array
        return outputs

    def check(self, out: Mapping[str, Any]) -> None:
        """Raise `InputError` for arrays that cannot hold outputs."""
        remedy = f"pass {{name: array}}; the outputs are {', '.join(self.names)}"
        if not isinstance(out, Mapping):
            raise InputError(f"out must be a dictionary of arrays by name, got {type(out).__name__}", remedy=remedy)
        specs = {spec.name: spec for spec in self._specs}
        for name, array in out.items():
            if name not in specs:
                raise InputError(f"the model has no output {name!r}{suggestion(str(name), self.names)}", remedy=remedy)
            dtype = specs[name].dtype
            if isinstance(array, DeviceArray) and dtype is not None and array.dtype == dtype.numpy:
                continue
            if dtype is None or not isinstance(array, np.ndarray) or array.dtype != dtype.numpy or not array.flags.writeable:
                actual = type(array).__name__
                if isinstance(array, np.ndarray):
                    actual = f"a {'writable' if array.flags.writeable else 'read-only'} array of {array.dtype}"
                expected = "None, as its output is a host object" if dtype is None else f"a writable numpy array of {dtype.name}"
                raise InputError(f"out[{name!r}] must be {expected}, got {actual}")
        items = list(out.items())
        for position, (name, array) in enumerate(items):
            for other, earlier in items[:position]:
                if share_memory(array, earlier):
                    raise InputError(f"out[{other!r}] and out[{name!r}] must not share memory")

    def _fills(self, position: int, array: Array) -> bool:
        """Test whether a run can write an output directly to an array."""
        if not isinstance(array, DeviceArray):
            return in_place(array)
        memory = self._memories[position]
        return memory is not None and memory.device is array.memory.device


def share_memory(one: Any, other: Any) -> bool:
    """Test whether two arrays may share memory."""
    if isinstance(one, DeviceArray) and isinstance(other, DeviceArray):
        return one.tensor.buffer is other.tensor.buffer
    return isinstance(one, np.ndarray) and isinstance(other, np.ndarray) and np.may_share_memory(one, other)
