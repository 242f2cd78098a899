"""Hooks of the compile half of the vta_fpga plugin. Heavy modules are imported on use."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from inlaid.plugins import Capabilities, Conformance, Link, OpRule, Requantization, Target, TargetSpec, hookimpl
from inlaid_vta_fpga.options import CLOCK_HZ, VtaOptions

if TYPE_CHECKING:
    from inlaid_vta_fpga.codegen import VtaCodegen

PLUGIN_API_VERSION = 3
SHIFTS = (-29, 1)
"""Range of exponents of scale factors with mantissa in [0.5, 1). The factors are 2^-30 to 1: right shifts by 30 to 0."""


def _capabilities(options: VtaOptions) -> Capabilities:
    from inlaid_vta_fpga.compiler.intrinsics import scopes

    config = options.config
    return Capabilities(
        dtypes=("int8", "int32"),
        scopes=scopes(config),
        dynamic_dims=False,
        requantization=Requantization(("once",), multiplier_bits=1, shifts=SHIFTS, per_channel=False),
        peak=2 * config.block**2 * CLOCK_HZ,
        bandwidth=config.bus_bytes * CLOCK_HZ,
        link=Link(latency=50e-6, bandwidth=400e6),
    )


@hookimpl
def inlaid_targets() -> Sequence[TargetSpec]:
    """Declare the target vta_fpga."""
    return [TargetSpec("vta_fpga", "the Versatile Tensor Accelerator", _capabilities, options=VtaOptions)]


@hookimpl
def inlaid_op_rules(target: Target) -> Sequence[OpRule]:
    """Return rules for int8 convolutions, matrix products and sums of two tensors."""
    if target.kind != "vta_fpga":
        return ()
    from inlaid_vta_fpga.compiler.patterns import rules

    return rules(target.options)


@hookimpl
def inlaid_codegen(target: Target) -> VtaCodegen:
    """Create the code generator."""
    from inlaid_vta_fpga.codegen import VtaCodegen

    return VtaCodegen(target.options)


@hookimpl
def inlaid_conformance(target: Target) -> Conformance:
    """Return examples for the conformance suite."""
    from inlaid_vta_fpga.compiler.examples import conformance

    return conformance()
