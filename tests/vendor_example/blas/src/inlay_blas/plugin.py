"""The plugin: what the library provides, cheap to import."""

from dataclasses import dataclass

from inlay.plugins import Capabilities, DeviceStatus, TargetSpec, hookimpl

PLUGIN_API_VERSION = 1


@dataclass(frozen=True)
class BlasOptions:
    threads: int = 1


def _capabilities(options):
    return Capabilities(("float32",), cores=options.threads, dynamic_dims=False, peak=1e11 * options.threads, bandwidth=2e10)


@hookimpl
def inlay_targets():
    return [TargetSpec("blas", "matrix products by OpenBLAS", _capabilities, options=BlasOptions)]


@hookimpl
def inlay_op_rules(target):
    if target.kind != "blas":
        return ()
    from inlay_blas.rules import rules

    return rules()


@hookimpl
def inlay_codegen(target):
    from inlay_blas.codegen import BlasCodegen

    return BlasCodegen()


@hookimpl
def inlay_runtime(target):
    from inlay_blas.runtime import BlasRuntime

    return BlasRuntime(target.options.threads)


@hookimpl
def inlay_probe(target):
    from inlay.runtime.c_source import MISSING, find_compiler
    from inlay_blas.runtime import library

    return DeviceStatus(True, library()._name) if find_compiler() else DeviceStatus(False, MISSING)
