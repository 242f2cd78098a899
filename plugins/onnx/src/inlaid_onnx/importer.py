"""Conversion of an ONNX model to a graph module.

The importer visits the nodes in order, looks up names in the enclosing scopes, calls the converter of each node and checks the
result. The model is untrusted: every defect raises `ModelImportError`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from inlaid.frontends.bind import Binder
from inlaid.frontends.dims import dimension_name, identifier
from inlaid.frontends.finish import Finisher
from inlaid.frontends.limits import MAX_DEPTH, NestedTooDeep, node_limit
from inlaid.frontends.relations import Constraints, Relations
from inlaid.frontends.values import Sources, Values
from inlaid.graph.ir import Expr, Function, Module, Span, Var, constant, function, tuple_, var
from inlaid_onnx import functions, proto
from inlaid_onnx.element_ranks import element_ranks
from inlaid_onnx.expansion import Expansion, standard_domain, written_nodes
from inlaid_onnx.external import ExternalData
from inlaid_onnx.guess import Guesses
from inlaid_onnx.node import Converter, Node
from inlaid_onnx.order import sorted_nodes
from inlaid_onnx.schema import REMEDY, Schemas
from inlaid_onnx.unsupported import missing_operators, refusal
from inlaid_runtime.arith import Constraint, Dim, SizeVar
from inlaid_runtime.errors import InlaidError, ModelImportError
from inlaid_runtime.records import dataclass, field
from inlaid_runtime.types import TensorType, Type

if TYPE_CHECKING:
    import onnx

# The field with the value of an attribute, by AttributeProto.AttributeType of onnx.proto.
_SINGLE = {1: "f", 2: "i", 3: "s", 4: "t", 5: "g", 11: "sparse_tensor", 13: "tp"}
_SEVERAL = {6: "floats", 7: "ints", 8: "strings", 9: "tensors", 10: "graphs", 12: "sparse_tensors", 14: "type_protos"}

DimBound = int | tuple[int, int | None]
"""The user's setting of a symbolic dimension: its size, or (minimum, maximum)."""


@dataclass(frozen=True)
class Frame:
    """The scope of one graph or function body, in which names are looked up.

    names: values by name, None for an omitted input. parent: the enclosing graph. opsets: versions by domain. attributes: the
    values of attribute references in a function body. prefix: precedes node names in spans. inline: the span that all nodes of
    the body get, that of the node whose operator the body defines; None to give each node its own. ranks: the ranks that the graph
    declares for its values.
    """

    names: dict[str, Expr | None]
    parent: Frame | None
    opsets: Mapping[str, int]
    attributes: Mapping[str, onnx.AttributeProto]
    prefix: str = ""
    inline: Span | None = None
    depth: int = 0
    ranks: dict[str, int] = field(default_factory=dict)

    def find(self, name: str) -> Expr | None:
        """Return the value of a name. Raises KeyError."""
        frame: Frame | None = self
        while frame is not None:
            if name in frame.names:
                return frame.names[name]
            frame = frame.parent
        raise KeyError(name)


@dataclass(frozen=True)
class FrameScope:
    """The importer's interface to the converter of one node (see `node.Scope`)."""

    importer: Importer
    frame: Frame
    stated: list[Constraint] = field(default_factory=list)

    def static(self, expr: Expr) -> np.ndarray[Any, Any] | None:
        return self.importer.values.static(expr)

    def dims(self, expr: Expr) -> tuple[Dim, ...] | None:
        return self.importer.values.dims(expr)

    def elements(self, expr: Expr) -> tuple[Dim, ...] | None:
        return self.importer.values.elements(expr)

    def sources(self, expr: Expr) -> Sources | None:
        return self.importer.values.sources(expr)

    @property
    def binder(self) -> Binder:
        return self.importer.binder

    def rank(self, name: str) -> int | None:
        return self.frame.ranks.get(name)

    @property
    def guesses(self) -> Guesses:
        return self.importer.guesses

    @property
    def carried(self) -> dict[tuple[str, ...], tuple[Type, ...]]:
        return self.importer.carried

    def subgraph(self, graph: onnx.GraphProto, inputs: tuple[Type | Expr, ...]) -> Function:
        return self.importer.subgraph(self.frame, graph, inputs)


@dataclass
class Importer:
    """The import of one model. `weights` are the raw data that the message lacks, by index of the graph's initializer.
    `overridden` are the initializers that become parameters."""

    model: onnx.ModelProto
    external: ExternalData
    converters: Mapping[str, Converter]
    bounds: Mapping[str, DimBound]
    bound_inputs: Mapping[str, np.ndarray[Any, Any]]
    weights: Mapping[int, memoryview] = field(default_factory=dict)
    overridden: frozenset[str] = frozenset()
    values: Values = field(default_factory=Values)
    carried: dict[tuple[str, ...], tuple[Type, ...]] = field(default_factory=dict)
    guesses: Guesses = field(default_factory=Guesses)
    relations: Relations = field(default_factory=Relations)
    _functions: dict[tuple[str, str, str], onnx.FunctionProto] = field(default_factory=dict)
    _sizes: dict[str, Dim] = field(default_factory=dict)
    _element_ranks: dict[str, int] | None = None
    _schemas: Schemas = field(default_factory=Schemas)
    _nodes: int = 0
    _limit: int = 0

    def __post_init__(self) -> None:
        self._finisher = Finisher(self.values)
        self.binder = Binder(self.values, self._finisher)

    @property
    def file(self) -> str:
        return self.external.file

    # --- the model ----------------------------------------------------------------------------------------------------

    def module(self) -> Module:
        """Convert the model to a module whose `main` takes the graph's inputs and returns its output, or the tuple of outputs."""
        model = self.model
        if not model.HasField("graph") or not model.opset_import:
            raise self._error("expected a graph and an operator set, found none: it is not an ONNX model, or is damaged")
        opsets = self._opsets(model.opset_import)
        for item in model.functions:
            key = (standard_domain(item.domain), item.name, item.overload)
            if key in self._functions:
                raise self._error(f"duplicate function {item.domain}:{item.name}")
            self._functions[key] = item
        self._check_size()
        params, body, constraints = self.guesses.attempt(lambda: self._graph(model.graph, opsets))
        names = [item.name for item in model.graph.output]
        if len(set(names)) != len(names):
            raise self._error("outputs of the graph must have different names")
        result = body[0] if len(body) == 1 else tuple_(body)
        span = Span(self.file, model.graph.name)
        main = function(params, result, (("outputs", json.dumps(names)),), span=span, constraints=constraints)
        return Module({"main": main})

    def _graph(self, graph: onnx.GraphProto, opsets: Mapping[str, int]) -> tuple[list[Var], list[Expr], Constraints]:
        """Convert the model's graph. Returns the parameters, the results and the constraints."""
        frame = Frame({}, None, opsets, {})
        params = self._graph_inputs(graph, frame)
        self._check_bindings(params)
        with self._attempt_scope():
            return params, *self._body(graph, frame)

    @contextmanager
    def _attempt_scope(self) -> Iterator[None]:
        """Context of one attempt to import a graph. At its end, the attempt's bindings and relations are discarded; if it failed,
        its node count, too."""
        nodes = self._nodes
        with self.binder.nested(), self.relations.scope():
            try:
                yield
            except ModelImportError:
                self._nodes = nodes
                raise

    def _check_size(self) -> None:
        """Raise `ModelImportError` for functions that expand to too many nodes, before expanding any."""
        nodes = self.model.graph.node
        try:
            self._limit = node_limit(written_nodes(nodes) + sum(written_nodes(item.node) for item in self.model.functions))
            expanded_count = Expansion(self._functions).expanded(nodes)
        except NestedTooDeep as error:
            raise self._error(str(error)) from error
        if expanded_count > self._limit:
            raise self._node_limit_error()

    def _node_limit_error(self) -> ModelImportError:
        return self._error(f"it has more than {self._limit} nodes, including those of called functions")

    def _opsets(self, imports: Iterable[onnx.OperatorSetIdProto]) -> dict[str, int]:
        from onnx import defs

        opsets: dict[str, int] = {}
        for item in imports:
            domain = standard_domain(item.domain)
            if opsets.setdefault(domain, item.version) != item.version:
                raise self._error(f"expected one version of operator set {item.domain or 'ai.onnx'!r}, found two")
        newest = defs.onnx_opset_version()
        if not 1 <= opsets.get("", 1) <= newest:
            raise self._error(f"expected an opset from 1 to {newest}, which the installed onnx package has, got {opsets['']}")
        return opsets

    def _graph_inputs(self, graph: onnx.GraphProto, frame: Frame) -> list[Var]:
        """Make parameters for the graph's inputs. An input with an initializer or bound by the caller becomes a constant."""
        initializers = {item.name for item in graph.initializer} | {item.values.name for item in graph.sparse_initializer}
        self._check_overridden(initializers & {item.name for item in graph.input})
        initializers -= self.overridden
        params = []
        names = set()
        for item in graph.input:
            if item.name in self.bound_inputs and item.name not in initializers:
                self._fix_sizes(item)
        for item in graph.input:
            if not item.name or item.name in names:
                raise self._error(f"duplicate input {item.name!r} of the graph" if item.name else "every input must have a name")
            names.add(item.name)
            if item.name in initializers:
                continue
            span = Span(self.file, item.name)
            if item.name in self.bound_inputs:
                frame.names[item.name] = self._binding(item, span)
                continue
            variable = var(item.name, self._input_type(item), span=span)
            self.values.add_input(variable)
            frame.names[item.name] = variable
            params.append(variable)
        return params

    def _fix_sizes(self, item: onnx.ValueInfoProto) -> None:
        """Fix the symbolic dimensions of an input that is bound to a value to the value's sizes. Other inputs with these
        dimensions get the sizes, too."""
        for axis, (dim, size) in enumerate(
            zip(item.type.tensor_type.shape.dim, np.shape(self.bound_inputs[item.name]), strict=False)
        ):
            name = dimension_name(dim.dim_param) or f"{item.name}_{axis}"
            bound = self.bounds.get(name, (0, None))
            if (dim.HasField("dim_value") and dim.dim_value >= 0) or name in self._sizes or isinstance(bound, int):
                continue  # `_binding` compares it
            least, greatest = bound
            if not least <= size <= (size if greatest is None else greatest):
                raise self._error(f"dimension {name!r} must be {least} to {greatest}, but input {item.name!r} is bound to {size}")
            self._sizes[name] = size

    def _check_overridden(self, possible: set[str]) -> None:
        """Raise `ModelImportError` for an initializer that should become a parameter but is not in `possible`, the initializers
        that are also inputs of the graph. Before IR version 4, in which all initializers had to be inputs, none can."""
        for name in sorted(self.overridden):
            if self.model.ir_version < 4:
                raise ModelImportError(
                    f"{self.file}: initializers are constants before IR version 4, but the model has version "
                    f"{self.model.ir_version}, and inputs names {name!r}",
                    remedy="set ir_version to 4 and list only such initializers as inputs of the graph",
                )
            if name not in possible:
                raise ModelImportError(
                    f"{self.file}: the model has no initializer {name!r} that is also an input of the graph",
                    remedy=f"it has {', '.join(sorted(possible)) or 'none'}",
                )

    def _binding(self, item: onnx.ValueInfoProto, span: Span) -> Expr:
        value = np.asarray(self.bound_inputs[item.name])
        declared = self._input_type(item)
        bound = constant(value, span=span)
        assert isinstance(bound.type, TensorType)
        if (
            not isinstance(declared, TensorType)
            or declared.dtype is not bound.type.dtype
            or declared.rank != bound.type.rank
            or any(isinstance(a, int) and a != b for a, b in zip(declared.shape, bound.type.shape, strict=True))
        ):
            raise self._error(f"input {item.name!r} is declared as {declared!r}, but is bound to a value of type {bound.type!r}")
        return bound

    def _check_bindings(self, params: Sequence[Var]) -> None:
        """Raise `ModelImportError` for settings of inputs and dimensions that the model does not have."""
        unknown = set(self.bound_inputs) - {item.name for item in self.model.graph.input}
        if unknown:
            raise self._error(f"unknown input {sorted(unknown)[0]!r} to bind; the model's inputs are {[p.name for p in params]}")
        for name in self.bounds:
            if name not in self._sizes:
                raise ModelImportError(
                    f"{self.file}: the model has no symbolic dimension {name!r}",
                    remedy=f"it has the symbolic dimensions {', '.join(self._sizes)}"
                    if self._sizes
                    else "it has no symbolic dimensions",
                )

    def _input_type(self, item: onnx.ValueInfoProto) -> Type:
        kind = item.type.WhichOneof("value")

        def dim(proto_dim: onnx.TensorShapeProto.Dimension, axis: int) -> Dim:
            if proto_dim.HasField("dim_value") and proto_dim.dim_value >= 0:
                return int(proto_dim.dim_value)
            if kind != "tensor_type":  # items of a sequence may differ in shape, so the dimension has no single value
                return SizeVar(f"?{identifier(item.name)}_{axis}")
            return self._size(dimension_name(proto_dim.dim_param) or f"{item.name}_{axis}")

        try:
            return proto.decode_type(self._with_element_shape(item), dim)
        except ValueError as error:
            raise ModelImportError(f"input {item.name!r}: {error}", node=f"{self.file}:{item.name}") from error

    def _with_element_shape(self, item: onnx.ValueInfoProto) -> onnx.TypeProto:
        """Return the type of an input. If the elements of a sequence have no shape, they get the rank that its uses show."""
        element = item.type.sequence_type.elem_type.tensor_type
        if not element.elem_type or element.HasField("shape"):
            return item.type
        if self._element_ranks is None:
            self._element_ranks = element_ranks(self.model.graph)
        rank = self._element_ranks.get(item.name)
        if rank is None:
            raise ValueError(
                "expected the shape of its elements, such as [None, None], got a sequence that nothing declares one for"
            )
        type_ = type(item.type)()
        type_.CopyFrom(item.type)
        shape = type_.sequence_type.elem_type.tensor_type.shape
        shape.SetInParent()
        for _ in range(rank):
            shape.dim.add()
        return type_

    def _size(self, name: str) -> Dim:
        """Return the dimension called `name`, fixed or bounded if the caller set its size or bounds."""
        if name not in self._sizes:
            bound = self.bounds.get(name)
            if isinstance(bound, int):
                self._sizes[name] = bound
            else:
                variable_names = {item.name for item in self._sizes.values() if isinstance(item, SizeVar)}
                unique_name = identifier(name)
                while unique_name in variable_names:
                    unique_name += "_"
                self._sizes[name] = SizeVar(unique_name, *(bound or (0, None)))
        return self._sizes[name]

    # --- graphs -------------------------------------------------------------------------------------------------------

    def subgraph(self, frame: Frame, graph: onnx.GraphProto, inputs: Sequence[Type | Expr]) -> Function:
        """Convert a subgraph of a node in `frame` to a closure (see `node.Scope`)."""
        inner = self._nested(Frame({}, frame, frame.opsets, frame.attributes, frame.prefix, frame.inline, frame.depth + 1))
        if len(graph.input) != len(inputs):
            raise self._error(f"subgraph {graph.name!r} must have {len(inputs)} inputs, got {len(graph.input)}")
        params = []
        for item, argument in zip(graph.input, inputs, strict=True):
            value = (
                argument if isinstance(argument, Expr) else var(item.name, argument, span=Span(self.file, frame.prefix + item.name))
            )
            self._define(inner, item.name, value)
            if isinstance(value, Var) and value is not argument:
                params.append(value)
                self.values.add_parameter(value)
        with self._attempt_scope():
            results, constraints = self._body(graph, inner)
        return function(params, tuple_(results), span=Span(self.file, frame.prefix + graph.name), constraints=constraints)

    def call_function(
        self,
        body: onnx.FunctionProto,
        node: Node,
        opsets: Mapping[str, int],
        attributes: Mapping[str, onnx.AttributeProto],
        prefix: str,
        inline: Span | None,
        depth: int,
    ) -> tuple[Expr | None, ...]:
        """Expand a function body in place for the inputs of a node. Returns the outputs."""
        frame = self._nested(Frame({}, None, opsets, attributes, prefix, inline, depth))
        if len(node.inputs) > len(body.input) or len(node.outputs) > len(body.output):
            raise node.error(f"expected at most {len(body.input)} inputs and {len(body.output)} outputs, as in the function")
        frame.names.update({name: node.optional(index) for index, name in enumerate(body.input)})
        self._import_nodes(body.node, frame)
        output_names = zip(body.output, node.outputs, strict=False)
        return tuple(self._output(frame, name) if node_output else None for name, node_output in output_names)

    def _nested(self, frame: Frame) -> Frame:
        if frame.depth > MAX_DEPTH:
            raise self._error(str(NestedTooDeep()))
        return frame

    def _body(self, graph: onnx.GraphProto, frame: Frame) -> tuple[list[Expr], Constraints]:
        """Import a graph whose inputs are in `frame` already. Returns the values of its outputs, and its constraints."""
        weights = self.weights if frame.parent is None else {}
        overridden = self.overridden if frame.parent is None else frozenset()
        for number, tensor in enumerate(graph.initializer):
            if tensor.name in overridden:
                continue
            value = proto.decode_array(tensor, self.external, weights.get(number))
            self._define(frame, tensor.name, self._constant(value, tensor.name))
        for sparse in graph.sparse_initializer:
            name = sparse.values.name
            if name in overridden:
                continue
            self._define(frame, name, self._constant(proto.decode_sparse_array(sparse, self.external), name))
        for item in (*graph.value_info, *graph.output):
            if item.type.tensor_type.HasField("shape"):
                frame.ranks[item.name] = len(item.type.tensor_type.shape.dim)
        self._import_nodes(graph.node, frame)
        results = [self._output(frame, item.name) for item in graph.output]
        return results, self.relations.collect(results)

    def _constant(self, value: np.ndarray[Any, Any], name: str) -> Expr:
        return constant(value, span=Span(self.file, name))

    def _define(self, frame: Frame, name: str, value: Expr | None) -> None:
        if not name or not isinstance(name, str):  # an invalid UTF-8 string is parsed as bytes
            raise self._error(f"each input, output and initializer must have a name, got {name!r}")
        if name in frame.names:
            raise self._error(f"duplicate definition of value {name!r}")
        frame.names[name] = value

    def _output(self, frame: Frame, name: str) -> Expr:
        try:
            output = frame.find(name)
        except KeyError:
            output = None
        if output is None:
            raise self._error(f"nothing computes the output {name!r}")
        return output

    def _import_nodes(self, nodes: Sequence[onnx.NodeProto], frame: Frame) -> None:
        try:
            ordered = sorted_nodes(nodes)
        except ValueError as error:
            raise self._error(str(error)) from error
        for item in ordered:
            self._nodes += 1
            if self._nodes > self._limit:  # function bodies of ONNX's own operators are counted here
                raise self._node_limit_error()
            self._import_node(item, frame)

    # --- nodes --------------------------------------------------------------------------------------------------------

    def _import_node(self, item: onnx.NodeProto, frame: Frame) -> None:
        name_or_output = item.name or next(filter(None, item.output), item.op_type)
        span = frame.inline or Span(self.file, frame.prefix + name_or_output)
        domain = standard_domain(item.domain)
        local = self._functions.get((domain, item.op_type, item.overload))
        opset = frame.opsets.get(domain, 0 if local is not None else -1)
        scope = FrameScope(self, frame)
        node = Node(item.op_type, domain, max(opset, 0), (), {}, tuple(item.output), span, scope)
        if opset < 0:
            raise self._not_imported(node)
        try:
            inputs = tuple(frame.find(name) if name else None for name in item.input)
        except KeyError as error:
            raise node.invalid(f"no previous node computes its input {error.args[0]!r}") from error
        attributes = functions.bind_references(item, frame.attributes, node)
        decoded = {name: self._attribute(attribute, node) for name, attribute in attributes.items()}
        node = Node(item.op_type, domain, opset, inputs, decoded, tuple(item.output), span, scope)
        if local is None:
            self._schemas.check(node, attributes)
        results = self._convert(item, node, frame, local, attributes)
        output_indices = [index for index, name in enumerate(node.outputs) if name]
        if any(index >= len(results) or results[index] is None for index in output_indices):
            raise node.error(f"the operator has {len(results)} outputs, got {len(node.outputs)} output names")
        finished = {index: self._finished(result, span) for index in output_indices if (result := results[index]) is not None}
        for index, result in finished.items():
            self._define(frame, node.outputs[index], result)
        self.relations.add(tuple(finished.values()), scope.stated)

    def _convert(
        self,
        item: onnx.NodeProto,
        node: Node,
        frame: Frame,
        local: onnx.FunctionProto | None,
        attributes: Mapping[str, onnx.AttributeProto],
    ) -> tuple[Expr | None, ...]:
        converter = self.converters.get(node.name)
        try:
            if local is not None:
                opsets = {**frame.opsets, **self._opsets(local.opset_import)}
                bound = functions.local_attributes(local, attributes, node)
                prefix = f"{node.span.node}/"
                return self.call_function(local, node, opsets, bound, prefix, frame.inline, frame.depth + 1)
            if converter is not None:
                result = converter(node)
                return result if isinstance(result, tuple) else (result,)
            operator_function = functions.operator_body(item, node, attributes)
            if operator_function is None:
                raise refusal(node, self._missing())
            body, bound = operator_function
            opsets = {**frame.opsets, **self._opsets(body.opset_import)}
            return self.call_function(body, node, opsets, bound, "", node.span, frame.depth + 1)
        except ModelImportError:
            raise
        except InlaidError as error:
            raise node.error(str(error)) from error
        except KeyError as error:
            raise node.error(f"attribute {error} is missing", remedy=REMEDY) from error
        except Exception as error:  # such as an attribute of the wrong kind or an absurd shape in a damaged model
            input_types = ", ".join("none" if item is None else repr(item.type) for item in node.inputs) or "none"
            why = f"invalid inputs ({input_types}) or attributes: {type(error).__name__}: {error}"
            raise node.error(why, remedy=REMEDY) from error

    def _missing(self) -> dict[str, list[str]]:
        return missing_operators(self.model, self.converters, self._functions)

    def _not_imported(self, node: Node) -> ModelImportError:
        """Return the error for a node of a domain that the model does not import."""
        missing = self._missing()
        if node.name in missing:
            return refusal(node, missing)
        domain = node.domain or "ai.onnx"
        return node.invalid(
            f"the model does not import operator set {domain!r}", remedy="add its domain and version to opset_import"
        )

    def _finished(self, result: Expr, span: Span) -> Expr:
        """Finish a converter's result. A result whose size depends only on data known at import is replaced by its value."""
        result = self._finisher.finish(result, span)
        if isinstance(result.type, TensorType) and not result.type.is_static:
            value = self.values.static(result)
            if value is not None:
                return constant(value, span=span)
        return result

    def _attribute(self, attribute: onnx.AttributeProto, node: Node) -> Any:
        """Return the Python value of an attribute."""
        try:
            if attribute.type in _SINGLE:
                return self._attribute_item(getattr(attribute, _SINGLE[attribute.type]))
            if attribute.type in _SEVERAL:
                return [self._attribute_item(item) for item in getattr(attribute, _SEVERAL[attribute.type])]
        except UnicodeDecodeError as error:
            raise node.error(f"attribute {attribute.name!r} must be UTF-8: {error}") from error
        raise node.error(f"attribute {attribute.name!r} has unknown type {attribute.type}")

    def _attribute_item(self, value: Any) -> Any:
        from onnx import SparseTensorProto, TensorProto

        if isinstance(value, bytes):
            return value.decode()
        if isinstance(value, TensorProto):
            return proto.decode_array(value, self.external)
        if isinstance(value, SparseTensorProto):
            return proto.decode_sparse_array(value, self.external)
        return value

    def _error(self, message: str) -> ModelImportError:
        return ModelImportError(f"{self.file}: {message}")
