"""Hooks of the run half. Heavy modules are imported on use."""

from inlaid_blas.options import BlasOptions
from inlaid_runtime.plugins import DeviceStatus, RuntimeSpec, hookimpl

PLUGIN_API_VERSION = 3


@hookimpl
def inlaid_runtimes():
    return [RuntimeSpec("blas", BlasOptions)]


@hookimpl
def inlaid_runtime(target):
    from inlaid_blas.runtime import BlasRuntime

    return BlasRuntime(target.options.threads)


@hookimpl
def inlaid_probe(target):
    from inlaid_blas.runtime import library
    from inlaid_runtime.execution.c_source import MISSING, find_compiler

    return DeviceStatus(True, library()._name) if find_compiler() else DeviceStatus(False, MISSING)
