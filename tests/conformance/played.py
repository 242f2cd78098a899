"""A target of a test that the reference plays."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from typing import Any

from tests.plugin_registry import REFERENCE, both_halves

from inlaid.plugins import Capabilities, Conformance, OpRule, TargetSpec, hookimpl
from inlaid.plugins.registry import PluginRegistry
from inlaid.reference.codegen import ReferenceCodegen
from inlaid.reference.runtime import ReferenceRuntime
from inlaid_conformance.target_under_test import TargetUnderTest

DTYPES = ("float32", "int8", "int32", "int64", "bool")


def under_test(
    *rules: OpRule,
    declaration: Conformance | None = None,
    codegen: type[ReferenceCodegen] = ReferenceCodegen,
    dtypes: tuple[str, ...] = DTYPES,
) -> TargetUnderTest:
    """A target with some rules; `declaration` is what its plugin tells the suite."""
    module: Any = types.ModuleType("fake_played")
    module.PLUGIN_API_VERSION = 3
    hooks: dict[str, Callable[..., Any]] = {
        "inlaid_targets": lambda: [TargetSpec("acme", "of a test", lambda options: Capabilities(dtypes))],
        "inlaid_op_rules": lambda target: list(rules) if target.kind == "acme" else [],
        "inlaid_codegen": lambda target: codegen(),
        "inlaid_runtime": lambda target: ReferenceRuntime(),
        "inlaid_conformance": lambda target: declaration,
    }
    for name, hook in hooks.items():
        setattr(module, name, hookimpl(hook))
    sys.modules[module.__name__] = module
    try:
        points = [*both_halves("acme", module.__name__), *REFERENCE]
        registry = PluginRegistry.discover(points)
        assert not registry.runtimes.problems()
        return TargetUnderTest("acme", registry)
    finally:
        del sys.modules[module.__name__]
