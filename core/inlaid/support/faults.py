"""Faults of Inlaid on their way to the user: exceptions that no model, however damaged, should cause."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from types import FrameType, TracebackType
from typing import Any, ParamSpec, TypeVar

from inlaid_runtime.errors import REPORT, InlaidError, InternalError, ScheduleError

FAULTS = (
    *(ArithmeticError, AssertionError, AttributeError, LookupError, NameError, NotImplementedError, RecursionError),
    ScheduleError,
)
"""Exceptions that mean a fault if Inlaid's own code raises them while it compiles a model. A wrong argument raises others."""

P = ParamSpec("P")
R = TypeVar("R")


def reports_faults(function: Callable[P, R]) -> Callable[P, R]:
    """Decorate an entry point so that a fault becomes an `InternalError` that names operator and node. Exceptions of functions that
    the caller passes in, such as `progress`, stay as they are."""

    @functools.wraps(function)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except FAULTS as error:
            frames = _frames(error.__traceback__)
            if not _is_ours(frames):
                raise
            raise _internal_error(error, frames) from error

    return wrapper


def _frames(trace: TracebackType | None) -> list[tuple[FrameType, int]]:
    """Return the frames of a traceback with their lines, the innermost one first."""
    frames = []
    while trace is not None:
        frames.append((trace.tb_frame, trace.tb_lineno))
        trace = trace.tb_next
    return frames[::-1]


def _module(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", ""))


def _is_ours(frames: Sequence[tuple[FrameType, int]]) -> bool:
    """Test whether Inlaid or a plugin of it raised an exception, by itself or in a library that it called."""
    import sysconfig

    libraries = tuple(map(sysconfig.get_path, ("stdlib", "platstdlib", "purelib", "platlib")))
    for frame, _ in frames:
        if _module(frame).startswith("inlaid"):
            return True
        # The code of `python -c` and of interactive interpreters has a file name in angle brackets, as generated methods have.
        if _module(frame) == "__main__" or not frame.f_code.co_filename.startswith((*libraries, "<")):
            return False
    return False


def _internal_error(error: BaseException, frames: Sequence[tuple[FrameType, int]]) -> InternalError:
    where = next(f"{_module(frame)}, line {line}" for frame, line in frames if _module(frame).startswith("inlaid"))
    operator, node = _culprit([frame for frame, _ in frames])
    plugin, text = (error.plugin, error.message) if isinstance(error, InlaidError) else (None, str(error))
    text = text.partition("\n")[0]  # an error of a schedule prints its program
    return InternalError(
        f"a fault of Inlaid{' or of a plugin' if plugin else ''}, not of the model: "
        f"{type(error).__name__}{f': {text}' if text else ''} (in {where})",
        operator=operator or None,
        node=node or None,
        plugin=plugin,
        remedy=REPORT,
    )


def _culprit(frames: Sequence[FrameType]) -> tuple[str, str]:
    """Return the name and the source node of the operator that the innermost frames handle, by their local variables; empty if
    none handles one."""
    name = ""
    for frame in frames:
        for value in frame.f_locals.values():
            operator, node = _describe_location(value)
            if node:
                return operator, node
            name = name or operator
    return name, ""


def _describe_location(value: Any) -> tuple[str, str]:
    """Return the name and the source node of a call, of the source of a kernel, or of a node of a model; empty for other values.
    Classes are known by their names, since a command that finds a package in the cache imports none of them."""
    if not type(value).__module__.startswith("inlaid."):
        return "", ""
    if type(value).__name__ == "KernelSource":
        value = value.body
    match type(value).__name__:
        case "Node":
            return value.name, str(value.span)
        case "Call":
            return str(getattr(value.callee, "name", "")), str(value.span or "")
    return "", ""
