"""Takes any code for its own."""

from fleet.sound import *

PLUGIN_API_VERSION = 2


@hookimpl
def inlaid_runtime(target):
    from fleet.machine import Runtime

    class Broken(Runtime):
        def check(self, artifact):
            return None

    return Broken()
