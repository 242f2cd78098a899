"""Cannot be closed twice."""

from fleet.sound import *

PLUGIN_API_VERSION = 3


@hookimpl
def inlaid_runtime(target):
    from fleet.machine import Runtime

    class Broken(Runtime):
        def close(self):
            if self.closed:
                raise RuntimeError("the machine is off")
            super().close()

    return Broken()
