"""Starts a thread for every kernel, which never ends."""

from fleet.accelerates import *

PLUGIN_API_VERSION = 3


@hookimpl
def inlaid_runtime(target):
    import threading

    from fleet.accelerator import Accelerator, Kernel

    class Wrong(Kernel):
        def __init__(self, artifact, constants):
            super().__init__(artifact, constants)
            threading.Thread(target=threading.Event().wait, daemon=True).start()

    class Broken(Accelerator):
        kernel = Wrong

    return Broken()
