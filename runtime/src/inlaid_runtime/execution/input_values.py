"""The inputs of a run: values by name, converted to what the executor reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from inlaid_runtime.artifact import TensorSpec
from inlaid_runtime.errors import InputError, suggestion
from inlaid_runtime.execution.arrays import fresh_copy, import_value
from inlaid_runtime.execution.device_memory import DeviceArray, DeviceMemory
from inlaid_runtime.execution.shapes import picker


class InputValues:
    """Imports the inputs of a model. `memories` has for each input the device memory that it may be in; None if it must be in host
    memory. `donated` are the numbers of the inputs whose buffers are reused by outputs."""

    def __init__(self, specs: Sequence[TensorSpec], memories: Sequence[DeviceMemory | None], donated: Sequence[int]) -> None:
        self.names = tuple(spec.name for spec in specs)
        self.memories = memories
        self.donated = donated
        self._specs = specs
        # Precomputed for every run, since even the checks take noticeable time in a small model.
        self._take = picker(self.names)
        self._element_types = tuple(map(_plain_element_type, specs))

    def find_position(self, name: str) -> int:
        """Return the number of an input. Raises `InputError` for an unknown name."""
        if name not in self.names:
            raise InputError(f"the model has no input {name!r}{suggestion(name, self.names)}")
        return self.names.index(name)

    def read(self, inputs: Mapping[str, Any]) -> Sequence[Any]:
        """Convert inputs by name to values in the model's order and with the model's dtypes. Raises `InputError`."""
        try:
            values = self._take(inputs)
            complete = len(values) == len(inputs) and (type(inputs) is dict or isinstance(inputs, Mapping))
        except (KeyError, IndexError, TypeError, ValueError):
            complete = False
        if not complete:
            raise self._misnamed(inputs)
        for value, numpy_dtype in zip(values, self._element_types):  # noqa: B905 (one for each name)
            # Equal numpy dtypes are mostly the same object; `import_value` compares the others.
            if type(value) is not np.ndarray or value.dtype is not numpy_dtype:
                return [self._import_value(position, value) for position, value in enumerate(values)]
        return values

    def _import_value(self, position: int, value: Any) -> Any:
        spec, memory = self._specs[position], self.memories[position]
        if memory is not None and not isinstance(value, (DeviceArray, np.ndarray)) and memory.device.adopts(value):
            value = DeviceArray.adopted(memory, value)
        if not isinstance(value, DeviceArray):
            return import_value(spec.name, value, spec.dtype)
        if spec.dtype is None or value.dtype != spec.dtype.numpy:
            raise InputError(f"expected input {describe(spec)}, got dtype {value.dtype}")
        return value if memory is not None and memory.device is value.memory.device else value.numpy()

    def donate(self, values: Sequence[Any]) -> list[Any]:
        """Return the values, with copies of donated inputs that must not be overwritten."""
        values = list(values)
        for position in self.donated:
            value = values[position]
            if isinstance(value, DeviceArray):
                shared = (item for other, item in enumerate(values) if other != position and isinstance(item, DeviceArray))
                if any(item.tensor.buffer == value.tensor.buffer for item in shared):
                    values[position] = value.copy()
                continue
            if self.memories[position] is not None:
                continue  # copied to the device anyway
            other_arrays = (item for other, item in enumerate(values) if other != position and isinstance(item, np.ndarray))
            if not value.flags.writeable or any(np.may_share_memory(value, item) for item in other_arrays):
                values[position] = fresh_copy(value)
        return values

    def _misnamed(self, inputs: Any) -> InputError:
        """Return the error for input names that do not match the model's."""
        listed = ", ".join(map(describe, self._specs)) or "none"
        if not isinstance(inputs, Mapping):
            return InputError(
                f"expected a dictionary of inputs by name, got {type(inputs).__name__}",
                remedy=f"pass {{name: array}}; the inputs are {listed}",
            )
        missing = [name for name in self.names if name not in inputs]
        unknown = [name for name in inputs if name not in self.names]
        problems = [f"the model has no input {name!r}{suggestion(str(name), missing)}" for name in unknown]
        problems += [f"input {name!r} is missing" for name in missing]
        return InputError("; ".join(problems), remedy=f"the inputs are {listed}")


def describe(spec: TensorSpec) -> str:
    """Describe an input or output: name, dtype and shape."""
    kind = "a host object" if spec.dtype is None else f"{spec.dtype.name}[{', '.join(map(repr, spec.shape))}]"
    return f"{spec.name}: {kind}"


def _plain_element_type(spec: TensorSpec) -> np.dtype[Any] | None:
    """Return the dtype of an input whose elements need no conversion; None for strings and host objects."""
    return None if spec.dtype is None or spec.dtype.kind == "string" else spec.dtype.numpy
