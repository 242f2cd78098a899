"""Claims products of any values, and cannot compile those of what is looked up."""

from fleet.sound import *

PLUGIN_API_VERSION = 3


@hookimpl
def inlaid_codegen(target):
    from fleet.machine import Codegen
    from inlaid import ops
    from inlaid.graph import ir
    from inlaid_runtime.errors import Unsupported

    class Broken(Codegen):
        def compile(self, unit, context):
            for call in ir.post_order(unit.function):
                reads = [arg.callee for arg in getattr(call, "args", ()) if isinstance(arg, ir.Call)]
                if isinstance(call, ir.Call) and call.callee is ops.mul and ops.take in reads:
                    raise Unsupported("a row of a table is not multiplied")
            return super().compile(unit, context)

    return Broken()
