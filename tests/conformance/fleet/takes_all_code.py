"""Takes any code for its own."""

from fleet.sound import *

PLUGIN_API_VERSION = 3


@hookimpl
def inlaid_runtime(target):
    from fleet.machine import Runtime

    class Broken(Runtime):
        def check(self, artifact):
            return None

    return Broken()
