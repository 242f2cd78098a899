"""Leaves out the input channels of a convolution after the first 32."""

from fleet.accelerates import *

PLUGIN_API_VERSION = 3


@hookimpl
def inlaid_runtime(target):
    from fleet.accelerator import Accelerator, Kernel

    class Wrong(Kernel):
        def conv(self, x, w, *factors, groups, **attributes):
            x, w = (x[:, :32], w[:, :32]) if groups == 1 else (x, w)
            return super().conv(x, w, *factors, groups=groups, **attributes)

    class Broken(Accelerator):
        kernel = Wrong

    return Broken()
