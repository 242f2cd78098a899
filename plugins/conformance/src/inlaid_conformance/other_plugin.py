"""A plugin with a dummy target, to check how the tested plugin answers for a target of another plugin."""

from __future__ import annotations

from collections.abc import Sequence

from inlaid.plugins import Capabilities, NoOptions, TargetSpec, hookimpl

PLUGIN_API_VERSION = 3
KIND = "conformance_other"


def _capabilities(options: NoOptions) -> Capabilities:
    return Capabilities(("float32",))


@hookimpl
def inlaid_targets() -> Sequence[TargetSpec]:
    """Declare a target without any rules."""
    return [TargetSpec(KIND, "a dummy target of the conformance suite", _capabilities)]
