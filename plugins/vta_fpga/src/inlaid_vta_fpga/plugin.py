"""The vta_fpga plugin: what it provides, cheap to import."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from inlaid.plugins import Capabilities, Conformance, DeviceStatus, Link, OpRule, Quantisation, Target, TargetSpec, hookimpl
from inlaid_vta_fpga.options import CLOCK_HZ, VtaOptions

if TYPE_CHECKING:
    from inlaid_vta_fpga.codegen import VtaCodegen
    from inlaid_vta_fpga.runtime import VtaRuntime

PLUGIN_API_VERSION = 2
SHIFTS = (-29, 1)
"""Factors 2^-30 to 1: shifts to the right by 0 to 30 places."""


def _capabilities(options: VtaOptions) -> Capabilities:
    from inlaid_vta_fpga.compiler.intrinsics import scopes

    config = options.config
    return Capabilities(
        dtypes=("int8", "int32"),
        scopes=scopes(config),
        dynamic_dims=False,
        quantisation=Quantisation(("once",), multiplier_bits=1, shifts=SHIFTS, per_channel=False),
        peak=2 * config.block**2 * CLOCK_HZ,
        bandwidth=config.bus_bytes * CLOCK_HZ,
        link=Link(latency=50e-6, bandwidth=400e6),
    )


@hookimpl
def inlaid_targets() -> Sequence[TargetSpec]:
    """vta_fpga."""
    return [TargetSpec("vta_fpga", "the Versatile Tensor Accelerator", _capabilities, options=VtaOptions)]


@hookimpl
def inlaid_op_rules(target: Target) -> Sequence[OpRule]:
    """Convolutions, matrix products and sums of int8 tensors."""
    if target.kind != "vta_fpga":
        return ()
    from inlaid_vta_fpga.compiler.patterns import rules

    return rules(target.options)


@hookimpl
def inlaid_codegen(target: Target) -> VtaCodegen:
    """The code generator."""
    from inlaid_vta_fpga.codegen import VtaCodegen

    return VtaCodegen(target.options)


@hookimpl
def inlaid_runtime(target: Target) -> VtaRuntime:
    """The runtime module."""
    from inlaid_vta_fpga.runtime import VtaRuntime

    return VtaRuntime(target.options)


@hookimpl
def inlaid_probe(target: Target) -> DeviceStatus:
    """Whether the simulator or the board that the options name is here."""
    from inlaid_vta_fpga.runtime import probe

    return probe(target.options)


@hookimpl
def inlaid_conformance(target: Target) -> Conformance:
    """Examples of composites; integers are exact, so there are no tolerances."""
    from inlaid_vta_fpga.compiler.examples import conformance

    return conformance()
