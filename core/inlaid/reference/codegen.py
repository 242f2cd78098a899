"""Code generator of the reference target: the code of a region is the graph's text."""

from __future__ import annotations

from inlaid import ops
from inlaid.graph.ir import Call, Module, post_order
from inlaid.graph.operator import Operator
from inlaid.graph.text import print_module
from inlaid.plugins import Accept, Codegen, CompileContext, Region, Reject, Verdict
from inlaid_runtime.artifact import Artifact, Signature, TensorSpec
from inlaid_runtime.errors import Unsupported
from inlaid_runtime.types import TensorType, TupleType, Type

FORMAT = "inlaid-graph"
FORMAT_VERSION = 1


def accepts(call: Call) -> Verdict:
    """Accept Inlaid's operators, which can be parsed back by name. Reject a user's operators, which cannot."""
    assert isinstance(call.callee, Operator)
    if ops.TABLE.get(call.callee.name) is call.callee:
        return Accept()
    return Reject(f"{call.callee.name} is not one of Inlaid's operators, and a package can refer to no other by name")


class ReferenceCodegen(Codegen["Region"]):
    """Prints regions. The text of a graph and its arrays are sufficient to evaluate it."""

    def compile(self, unit: Region, context: CompileContext) -> Artifact:
        """Print the region. Raises `Unsupported` for an operator that is not Inlaid's."""
        for expr in post_order(unit.function):
            if isinstance(expr, Call) and isinstance(expr.callee, Operator):
                verdict = accepts(expr)
                if isinstance(verdict, Reject):
                    raise Unsupported(verdict.reason, operator=expr.callee.name, node=str(expr.span or "") or None)
        text, constants = print_module(Module({unit.symbol: unit.function}))
        params = [
            (param.name if index == 0 else f"{param.name}.{index}", part)
            for param in unit.function.params
            for index, part in enumerate(flat_types(param.type))
        ]
        results = flat_types(unit.function.body.type)
        signature = Signature(
            tuple(tensor_spec(name, type_) for name, type_ in params),
            tuple(tensor_spec(f"output{index}", type_) for index, type_ in enumerate(results)),
        )
        return Artifact(unit.symbol, FORMAT, FORMAT_VERSION, text.encode(), signature, constants)


def flat_types(type_: Type) -> tuple[Type, ...]:
    """Return the types of a value with tuples flattened. Plans number values in this order."""
    if isinstance(type_, TupleType):
        return tuple(part for item in type_.fields for part in flat_types(item))
    return (type_,)


def tensor_spec(name: str, type_: Type) -> TensorSpec:
    """Describe an input or output of a region; strings, sequences and optionals are host objects."""
    if isinstance(type_, TensorType) and type_.dtype.kind != "string":
        return TensorSpec(name, type_.shape, type_.dtype)
    return TensorSpec(name, (), None)
