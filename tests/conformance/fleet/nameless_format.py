"""Does not say what its code is."""

from fleet.sound import *

PLUGIN_API_VERSION = 3


@hookimpl
def inlaid_codegen(target):
    from fleet.machine import Codegen

    class Nameless(Codegen):
        format = ""

    return Nameless()


@hookimpl
def inlaid_runtime(target):
    from fleet.machine import Runtime

    runtime = Runtime()
    runtime.format = ""
    return runtime
