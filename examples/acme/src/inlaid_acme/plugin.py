"""Hooks of the compile half. The compiler imports this module whenever it lists targets, so hooks import other modules."""

from inlaid.plugins import Capabilities, Conformance, Level, Link, Requantization, TargetSpec, Tiles, hookimpl
from inlaid_runtime.types import MemoryScope

PLUGIN_API_VERSION = 3


def accelerator(options):
    """Return the capabilities of the accelerator."""
    from inlaid_acme.hardware import ACCUMULATOR_BITS, ALIGNMENT, LANES, SCRATCH

    return Capabilities(
        ("int8",),
        scopes=(MemoryScope("scratch", "device", SCRATCH, ALIGNMENT),),
        dynamic_dims=False,
        requantization=Requantization(("half_even", "up", "once_away"), accumulator_bits=ACCUMULATOR_BITS),
        peak=1e12,
        bandwidth=1e10,
        link=Link(latency=1e-5, bandwidth=1e10),
        device_memory=True,
        tiles=Tiles(rows=8, inputs=LANES, outputs=LANES, scratch=SCRATCH),
    )


def vector_unit(options):
    """Return the capabilities of the vector unit, which runs loop programs in host memory."""
    return Capabilities(("float32", "int64"), peak=1e10, bandwidth=1e10)


@hookimpl
def inlaid_targets():
    return [
        TargetSpec("acme", "the Acme int8 accelerator, simulated", accelerator),
        TargetSpec("acme_vector", "the vector unit of Acme, simulated", vector_unit, Level.LOOP),
    ]


@hookimpl
def inlaid_op_rules(target):
    if target.kind == "acme":
        from inlaid_acme.rules import rules

        return rules()
    if target.kind == "acme_vector":
        from inlaid_acme.vector import rules

        return rules()
    return ()


@hookimpl
def inlaid_codegen(target):
    if target.kind == "acme":
        from inlaid_acme.codegen import AcmeCodegen

        return AcmeCodegen()
    from inlaid_acme.vector import VectorCodegen

    return VectorCodegen()


@hookimpl
def inlaid_conformance(target):
    if target.kind == "acme":
        from inlaid_acme.examples import flatten

        return Conformance(examples=(flatten(),))
    return Conformance()
