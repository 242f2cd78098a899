"""The reference target: evaluates operators with numpy on the host, as the fallback and as the reference of comparisons."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from inlaid.plugins import (
    Capabilities,
    Conformance,
    ExpectedFailure,
    NoOptions,
    OpRule,
    Target,
    TargetSpec,
    hookimpl,
)

if TYPE_CHECKING:
    from inlaid.reference.codegen import ReferenceCodegen

PLUGIN_API_VERSION = 3


def _capabilities(options: NoOptions) -> Capabilities:
    from inlaid_runtime.types import DTYPES

    # Typical rates of numpy, which evaluates operator by operator.
    return Capabilities(dtypes=(*DTYPES, "sequence"), peak=1e9, bandwidth=1e9)


@hookimpl
def inlaid_targets() -> Sequence[TargetSpec]:
    """Declare the target `reference`."""
    return [TargetSpec("reference", "numpy on the host: every operator, slowly", _capabilities)]


@hookimpl
def inlaid_op_rules(target: Target) -> Sequence[OpRule]:
    """Return rules for all canonical operators, including operators on strings and sequences."""
    if target.kind != "reference":
        return ()
    from inlaid.reference.codegen import accepts

    return [OpRule("*", predicate=accepts)]


@hookimpl
def inlaid_codegen(target: Target) -> ReferenceCodegen:
    """Create the code generator."""
    from inlaid.reference.codegen import ReferenceCodegen

    return ReferenceCodegen()


@hookimpl
def inlaid_conformance(target: Target) -> Conformance:
    """Declare the conformance checks that this target fails by design."""
    reason = "its code is the graph, so running it needs the operators' definitions"
    return Conformance(expected_failures=(ExpectedFailure("package/runs-without-the-compiler", reason),))
