"""Hook implementations of the plugin. Heavy modules are imported on use."""

from dataclasses import dataclass

from inlaid.plugins import Capabilities, DeviceStatus, TargetSpec, hookimpl

PLUGIN_API_VERSION = 2


@dataclass(frozen=True)
class BlasOptions:
    threads: int = 1


def _capabilities(options):
    return Capabilities(("float32",), cores=options.threads, dynamic_dims=False, peak=1e11 * options.threads, bandwidth=2e10)


@hookimpl
def inlaid_targets():
    return [TargetSpec("blas", "matrix products by OpenBLAS", _capabilities, options=BlasOptions)]


@hookimpl
def inlaid_op_rules(target):
    if target.kind != "blas":
        return ()
    from inlaid_blas.rules import rules

    return rules()


@hookimpl
def inlaid_codegen(target):
    from inlaid_blas.codegen import BlasCodegen

    return BlasCodegen()


@hookimpl
def inlaid_runtime(target):
    from inlaid_blas.runtime import BlasRuntime

    return BlasRuntime(target.options.threads)


@hookimpl
def inlaid_probe(target):
    from inlaid.runtime.c_source import MISSING, find_compiler
    from inlaid_blas.runtime import library

    return DeviceStatus(True, library()._name) if find_compiler() else DeviceStatus(False, MISSING)
