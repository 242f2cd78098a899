"""Fails with an error of its own for what it cannot compile."""

from fleet.sound import *

PLUGIN_API_VERSION = 3


@hookimpl
def inlaid_codegen(target):
    from fleet.machine import Codegen
    from inlaid_runtime.errors import Unsupported

    class Careless(Codegen):
        def compile(self, unit, context):
            try:
                return super().compile(unit, context)
            except Unsupported as error:
                raise KeyError("opcode") from error

    return Careless()
