"""Errors for unsupported operators. One error lists all unsupported operators of a model, with a remedy for each domain."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from inlaid_onnx.expansion import Key, standard_domain, subgraphs
from inlaid_onnx.node import Converter, Node
from inlaid_runtime.errors import ModelImportError, suggestion

if TYPE_CHECKING:
    import onnx

SHOWN = 3
"""Maximum number of nodes of an operator that an error names."""
_LOCAL_FUNCTION_REMEDY = (
    "define it as a function of the model (onnx.FunctionProto), or export the model with standard operators only"
)
_REMEDIES = {
    "": "export the model for another opset, or replace the operator with standard operators",
    "com.microsoft": "these are contrib operators of ONNX Runtime: use the model from before ONNX Runtime or its transformers "
    "tools optimized it, export it without contrib operators, and quantize it in the format QDQ",
    "ai.onnx.contrib": "these are operators of onnxruntime-extensions: export the model without its pre- and postprocessing",
    "org.pytorch.aten": "these are operators of PyTorch: export the model without the ATen fallback",
}


def missing_operators(
    model: onnx.ModelProto, converters: Mapping[str, Converter], local_functions: Mapping[Key, object]
) -> dict[str, list[str]]:
    """Return the undefined operators of a model (no converter, no function of the model or of ONNX), with their nodes."""
    nodes_by_operator: dict[str, list[str]] = {}
    parts = [(model.graph.node, model.opset_import), *((item.node, item.opset_import) for item in model.functions)]
    for nodes, imports in parts:
        opsets = {standard_domain(item.domain): item.version for item in imports}
        for node in _nodes(nodes):
            domain = standard_domain(node.domain)
            name = f"{domain}:{node.op_type}" if domain else node.op_type
            if name in converters or (domain, node.op_type, node.overload) in local_functions:
                continue
            if not _has_body(node.op_type, opsets.get(domain, 0), domain):
                nodes_by_operator.setdefault(name, []).append(node.name or next(filter(None, node.output), node.op_type))
    return nodes_by_operator


def refusal(node: Node, missing: Mapping[str, list[str]]) -> ModelImportError:
    """Return the error for a node with an undefined operator. `missing` are all undefined operators of the model."""
    from onnx import defs

    operators = {node.name: [node.span.node], **missing}
    domains = dict.fromkeys(name.rpartition(":")[0] for name in operators)
    listed = ", ".join(f"{name} ({_listed(nodes)})" for name, nodes in operators.items())
    standard = [schema.name for schema in defs.get_all_schemas() if schema.domain == node.domain]
    similar = "" if node.op_type in standard else suggestion(node.op_type, standard)
    where = f"domain {node.domain!r}" if node.domain else f"ONNX's operator set {node.opset}"
    remedies = [f"{domain}: {_remedy(domain)}" if len(domains) > 1 and domain else _remedy(domain) for domain in domains]
    return node.invalid(
        f"{where} has no supported operator of this name{similar}, and the model has no such function; missing operators: {listed}",
        remedy="; ".join(dict.fromkeys(remedies)),
    )


def _remedy(domain: str) -> str:
    family = "com.microsoft" if domain.startswith(("com.microsoft", "com.ms.")) else domain
    return _REMEDIES.get(family, _REMEDIES[""] if domain.startswith("ai.onnx.") else _LOCAL_FUNCTION_REMEDY)


def _has_body(op_type: str, opset: int, domain: str) -> bool:
    from onnx import defs

    try:
        schema: Any = defs.get_schema(op_type, opset, domain)
    except defs.SchemaError:
        return False
    return bool(schema.has_function or schema.has_context_dependent_function)


def _nodes(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    """Yield nodes, and the nodes in their subgraphs. The caller has checked the nesting depth."""
    for node in nodes:
        yield node
        for graph in subgraphs(node):
            yield from _nodes(graph.node)


def _listed(nodes: list[str]) -> str:
    more = f" and {len(nodes) - SHOWN} more" if len(nodes) > SHOWN else ""
    return f"node{'s' * (len(nodes) > 1)} {', '.join(nodes[:SHOWN])}{more}"
