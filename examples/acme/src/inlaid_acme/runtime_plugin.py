"""Hooks of the run half, for machines with and without the compiler. Every load of a package imports this module."""

from inlaid_runtime.plugins import DeviceStatus, RuntimeSpec, hookimpl

PLUGIN_API_VERSION = 3


@hookimpl
def inlaid_runtimes():
    return [RuntimeSpec("acme"), RuntimeSpec("acme_vector")]


@hookimpl
def inlaid_runtime(target, device):
    if target.kind == "acme":
        from inlaid_acme.runtime import AcmeRuntime

        return AcmeRuntime(device)
    from inlaid_acme.vector_runtime import VectorRuntime

    return VectorRuntime()


@hookimpl
def inlaid_probe(target):
    if target.kind == "acme":
        return DeviceStatus(True, "simulated")
    from inlaid_runtime.execution.c_source import MISSING, REMEDY, find_compiler

    compiler = find_compiler()
    return DeviceStatus(False, f"{MISSING}: {REMEDY}") if compiler is None else DeviceStatus(True, compiler)
