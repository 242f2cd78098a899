"""Origin of an exception: the plugin under test, or Inlaid itself."""

from __future__ import annotations

import sys
import traceback

from inlaid_runtime.errors import InlaidError, InternalError, PluginError
from inlaid_runtime.plugins.blame import describe

INLAID = ("inlaid", "inlaid_conformance", "inlaid_runtime")
LIBRARIES = frozenset((*INLAID, "numpy", "ml_dtypes", "hypothesis", "pluggy")) | sys.stdlib_module_names
"""Packages that Inlaid calls, besides those of plugins."""


def foreign_cause(error: BaseException) -> BaseException:
    """Return the cause of a `PluginError` or an `InternalError`, for which it blames a plugin or Inlaid. Return any other error
    itself, since Inlaid's other errors explain their causes."""
    while isinstance(error, (PluginError, InternalError)) and error.__cause__ is not None:
        error = error.__cause__
    return error


def is_internal(error: BaseException) -> bool:
    """Test whether an exception comes from Inlaid's own code: it is not one of Inlaid's errors, which explain themselves, and
    neither code of a plugin nor the call of it raised the exception."""
    cause = foreign_cause(error)
    frames = list(traceback.walk_tb(cause.__traceback__))
    if isinstance(error, PluginError) and len(frames) == 1:
        return False  # the frame that calls the plugin: a function with other parameters, a missing attribute
    modules = (str(frame.f_globals.get("__name__", "")) for frame, _ in frames)
    return not isinstance(cause, InlaidError) and all(name.partition(".")[0] in LIBRARIES for name in modules)


def fault_text(error: BaseException) -> str:
    """Describe an exception, and say so if the plugin is not at fault."""
    if not is_internal(error):
        return f"{type(error).__name__}: {error}"
    return (
        f"a fault of the suite, not of the plugin: {describe(foreign_cause(error))}; please report it with the traceback (--debug)"
    )
