"""Fails with an error of Python for code that is no JSON."""

from fleet.sound import *

PLUGIN_API_VERSION = 3


@hookimpl
def inlaid_runtime(target):
    import json

    from fleet.machine import Kernel, Runtime

    class Wrong(Kernel):
        def parsed(self, code):
            return json.loads(code)

    class Broken(Runtime):
        kernel = Wrong

    return Broken()
