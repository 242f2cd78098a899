"""The reference target: what the host computes with numpy where no other target will, and what others are compared with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from inlaid.plugins import (
    Capabilities,
    Conformance,
    DeviceStatus,
    ExpectedFailure,
    NoOptions,
    OpRule,
    Target,
    TargetSpec,
    hookimpl,
)

if TYPE_CHECKING:
    from inlaid.reference.codegen import ReferenceCodegen
    from inlaid.reference.runtime import ReferenceRuntime

PLUGIN_API_VERSION = 2


def _capabilities(options: NoOptions) -> Capabilities:
    from inlaid.types import DTYPES

    # What numpy makes of the processor, operator by operator.
    return Capabilities(dtypes=(*DTYPES, "sequence"), peak=1e9, bandwidth=1e9)


@hookimpl
def inlaid_targets() -> Sequence[TargetSpec]:
    """reference."""
    return [TargetSpec("reference", "numpy on the host: every operator, slowly", _capabilities)]


@hookimpl
def inlaid_op_rules(target: Target) -> Sequence[OpRule]:
    """Every canonical operator, those on strings and sequences included."""
    if target.kind != "reference":
        return ()
    from inlaid.reference.codegen import accepts

    return [OpRule("*", predicate=accepts)]


@hookimpl
def inlaid_codegen(target: Target) -> ReferenceCodegen:
    """The code generator."""
    from inlaid.reference.codegen import ReferenceCodegen

    return ReferenceCodegen()


@hookimpl
def inlaid_runtime(target: Target) -> ReferenceRuntime:
    """The runtime module."""
    from inlaid.reference.runtime import ReferenceRuntime

    return ReferenceRuntime()


@hookimpl
def inlaid_probe(target: Target) -> DeviceStatus:
    """Always here."""
    import numpy as np

    return DeviceStatus(True, f"numpy {np.__version__}")


@hookimpl
def inlaid_conformance(target: Target) -> Conformance:
    """What the target cannot do by its nature."""
    reason = "its code is the graph, so running it needs the operators' definitions"
    return Conformance(expected_failures=(ExpectedFailure("package/runs-without-the-compiler", reason),))
