"""The vector unit: operators that Inlaid lowers to loop programs, printed as C."""

from inlaid.codegen.c_region import region_in_c
from inlaid.plugins import Artifact, Codegen, OpRule
from inlaid_acme.vector_runtime import FORMAT, FORMAT_VERSION

OPERATORS = ("relu", "softmax")


def rules():
    return [OpRule(name) for name in OPERATORS]


class VectorCodegen(Codegen):
    def compile(self, unit, context):
        return Artifact(unit.name, FORMAT, FORMAT_VERSION, region_in_c(unit), unit.signature, unit.constants, {"": unit.workspace})
