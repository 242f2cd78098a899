"""Inlaid as an ONNX backend (`onnx.backend.base`).

    import inlaid.onnx_backend as backend

    backend.prepare(model, device="x86").run([array])

`onnx.backend.test.BackendTest(inlaid.onnx_backend, __name__)` runs ONNX's test suite. A device is a target string, such as
"x86:threads=1" or "reference"; "CPU" is x86 if it is installed, else reference.
"""

# The methods have the signatures of ONNX's interface; each uses only some of the arguments.
# ruff: noqa: ARG003

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx.backend.base import Backend, BackendRep

import inlaid
from inlaid.frontends.dims import dimension_name
from inlaid.plugins.registry import default_registry
from inlaid.support.faults import reports_faults
from inlaid_onnx import load
from inlaid_onnx.node import NeedsStatic
from inlaid_onnx.proto import encode_dtype
from inlaid_runtime.errors import InputError, TargetError
from inlaid_runtime.execution.executable import Executable
from inlaid_runtime.types import from_numpy

__all__ = ["InlaidBackend", "InlaidRep", "is_compatible", "prepare", "run_model", "run_node", "supports_device"]

_BOUND_LIMIT = 4096
"""Maximum number of elements of an input that may be compiled as a constant."""

Value = Any
"""An array, a list of arrays (a sequence), or None (an empty optional)."""


class InlaidRep(BackendRep):
    """A model ready to run.

    If shapes depend on the values of inputs (the shape of a Reshape, the axes of a reduction), the first run compiles the model
    with these inputs as constants. A run with other values compiles the model again.
    """

    def __init__(self, model: onnx.ModelProto, device: str) -> None:
        self._model = model
        self._device = device
        initialized = {item.name for item in model.graph.initializer} | {
            item.values.name for item in model.graph.sparse_initializer
        }
        self._inputs = [item for item in model.graph.input if item.name not in initialized]
        self._bound: set[str] = set()
        self._fixed: set[str] = set()
        self._programs: dict[tuple[Any, ...], Executable] = {}
        if all(_is_closed(item.type) for item in self._inputs):
            try:
                self._programs[((), (), ())] = self._compile(model, {}, {})
            except NeedsStatic as need:
                self._widen(need)

    @property
    def programs(self) -> tuple[Executable, ...]:
        """The executables compiled so far."""
        return tuple(self._programs.values())

    def run(self, inputs: Sequence[Value] | Mapping[str, Value], **kwargs: Any) -> tuple[Value, ...]:
        """Run the model and return its outputs in order. Inputs are in graph order, or by name; ONNX's options are ignored.

        Raises `InputError` for inputs that do not fit, and `ModelImportError` if compiling at the first run meets an unsupported
        node.
        """
        values = self._named(inputs)
        while True:
            try:
                program, rest = self._program(values)
                return tuple(program.run(rest).values())
            except NeedsStatic as need:
                if not self._widen(need) or any(np.size(values[name]) > _BOUND_LIMIT for name in self._bound):
                    raise

    def _named(self, inputs: Sequence[Value] | Mapping[str, Value]) -> dict[str, Value]:
        names = [item.name for item in self._inputs]
        if isinstance(inputs, Mapping):
            if set(inputs) != set(names):
                raise InputError(f"expected the inputs {', '.join(names) or '(none)'}, got {', '.join(inputs) or '(none)'}")
            inputs = [inputs[name] for name in names]
        if len(inputs) != len(names):
            raise InputError(f"the model takes {len(names)} inputs ({', '.join(names) or 'none'}), got {len(inputs)}")
        return {name: _plain(value) for name, value in zip(names, inputs, strict=True)}

    def _program(self, values: Mapping[str, Value]) -> tuple[Executable, dict[str, Value]]:
        """Return the executable for these values of the bound inputs, compiled if necessary, and the values of the other inputs."""
        bound = {name: np.asarray(values[name]) for name in sorted(self._bound)}
        open_types = {item.name: values[item.name] for item in self._inputs if not _is_closed(item.type)}
        dims = {name: size for name, size in self._dim_values(values).items() if name in self._fixed}
        key = (
            tuple((name, array.dtype.str, array.shape, _content(array)) for name, array in bound.items()),
            tuple((name, _type_proto(value).SerializeToString()) for name, value in open_types.items()),
            tuple(sorted(dims.items())),
        )
        if key not in self._programs:
            self._programs[key] = self._compile(_with_types(self._model, open_types), dims, bound)
        return self._programs[key], {name: value for name, value in values.items() if name not in bound}

    @reports_faults
    def _compile(self, model: onnx.ModelProto, dims: Mapping[str, int], bound: Mapping[str, Any]) -> Executable:
        return inlaid.compile(load(model, dims, specialize=bound), [self._device])

    def _widen(self, need: NeedsStatic) -> bool:
        """Add the inputs and dimensions whose values a converter needs to those that are compiled as constants. Returns False if
        all were already."""
        has_new = bool(set(need.sources.inputs) - self._bound or set(need.sources.dims) - self._fixed)
        self._bound.update(need.sources.inputs)
        self._fixed.update(need.sources.dims)
        return has_new

    def _dim_values(self, values: Mapping[str, Value]) -> dict[str, int]:
        """Return the sizes of symbolic dimensions, under the names that `load` uses."""
        sizes: dict[str, int] = {}
        for item in self._inputs:
            shape = np.shape(values[item.name]) if item.type.HasField("tensor_type") else ()
            for axis, (dim, size) in enumerate(zip(item.type.tensor_type.shape.dim, shape, strict=False)):
                if not dim.HasField("dim_value") or dim.dim_value < 0:
                    sizes.setdefault(dimension_name(dim.dim_param) or f"{item.name}_{axis}", size)
        return sizes


def _plain(value: Value) -> Value:
    """Convert a value for `Executable.run`: an array, a list of arrays, or None."""
    if value is None:
        return None
    return [np.asarray(item) for item in value] if isinstance(value, (list, tuple)) else np.asarray(value)


def _content(array: np.ndarray[Any, Any]) -> Any:
    return tuple(array.reshape(-1).tolist()) if array.dtype == object else array.tobytes()


def _is_closed(declared: onnx.TypeProto) -> bool:
    """Test whether a declared type is precise enough to compile. A tensor without a rank is not precise enough. Nor is a sequence,
    since elements are often declared without a rank or with a wrong rank."""
    if declared.HasField("optional_type"):
        return _is_closed(declared.optional_type.elem_type)
    return not declared.HasField("sequence_type") and (
        not declared.HasField("tensor_type") or declared.tensor_type.HasField("shape")
    )


def _type_proto(value: Value) -> onnx.TypeProto:
    """Return the ONNX type of a value. The elements of a sequence have a rank but no sizes, since their sizes may differ."""
    result = onnx.TypeProto()
    if isinstance(value, (list, tuple)):
        element = result.sequence_type.elem_type.tensor_type
        element.SetInParent()
        arrays = [np.asarray(item) for item in value]
        if arrays:
            element.elem_type = encode_dtype(from_numpy(arrays[0].dtype))
            element.shape.SetInParent()
            for _ in range(arrays[0].ndim):
                element.shape.dim.add()
        return result
    array = np.asarray(value)
    result.tensor_type.elem_type = encode_dtype(from_numpy(array.dtype))
    result.tensor_type.shape.SetInParent()
    for size in array.shape:
        result.tensor_type.shape.dim.add().dim_value = size
    return result


def _with_types(model: onnx.ModelProto, values: Mapping[str, Value]) -> onnx.ModelProto:
    """Copy the model, with the types of some inputs replaced by the types of `values`."""
    if not values:
        return model
    typed_model = onnx.ModelProto()
    typed_model.CopyFrom(model)
    for item in typed_model.graph.input:
        if values.get(item.name) is not None:
            value_type = _type_proto(values[item.name])
            target = item.type.optional_type.elem_type if item.type.HasField("optional_type") else item.type
            target.CopyFrom(value_type)
    return typed_model


class InlaidBackend(Backend):
    """ONNX's `Backend` interface."""

    @classmethod
    def is_compatible(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> bool:
        """Return True: only importing a model shows whether it is supported."""
        return True

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> InlaidRep:
        """Prepare a model to run. ONNX's options are ignored. Raises `ModelImportError` and `TargetError`."""
        return InlaidRep(model, _target(device))

    @classmethod
    def run_model(cls, model: onnx.ModelProto, inputs: Any, device: str = "CPU", **kwargs: Any) -> tuple[Value, ...]:
        """Run a model on inputs in graph order, and return its outputs."""
        return cls.prepare(model, device).run(inputs)

    @classmethod
    def run_node(
        cls,
        node: onnx.NodeProto,
        inputs: Any,
        device: str = "CPU",
        outputs_info: Sequence[tuple[np.dtype[Any], tuple[int, ...]]] | None = None,
        **kwargs: Any,
    ) -> tuple[Value, ...]:
        """Run one node on its inputs, in order. The operator set is `opset_version`, by default the newest."""
        names = list(dict.fromkeys(filter(None, node.input)))
        if len(names) != len(inputs):
            raise InputError(f"the node takes {len(names)} inputs ({', '.join(names) or 'none'}), got {len(inputs)}")
        input_infos = [onnx.helper.make_value_info(name, _type_proto(value)) for name, value in zip(names, inputs, strict=True)]
        output_infos = [onnx.ValueInfoProto(name=name) for name in node.output if name]
        graph = onnx.helper.make_graph([node], "node", input_infos, output_infos)
        version = kwargs.get("opset_version") or onnx.defs.onnx_opset_version()
        imports = [onnx.helper.make_opsetid("", version)]
        if node.domain not in ("", "ai.onnx"):
            imports.append(onnx.helper.make_opsetid(node.domain, onnx.defs.get_schema(node.op_type, node.domain).since_version))
        return cls.run_model(onnx.helper.make_model(graph, opset_imports=imports), inputs, device)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Test whether a device names an installed target."""
        try:
            _target(device)
        except TargetError:
            return False
        return True


def _target(device: str) -> str:
    """Return the target string of an ONNX device. Raises `TargetError`."""
    registry = default_registry()
    if device == "CPU":
        return "x86" if "x86" in registry.kinds() else "reference"
    return str(registry.target(device))


is_compatible = InlaidBackend.is_compatible
prepare = InlaidBackend.prepare
run_model = InlaidBackend.run_model
run_node = InlaidBackend.run_node
supports_device = InlaidBackend.supports_device
