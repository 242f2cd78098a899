"""Hooks of the compile half. Heavy modules are imported on use."""

from inlaid.plugins import Capabilities, TargetSpec, hookimpl
from inlaid_blas.options import BlasOptions

PLUGIN_API_VERSION = 3


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
