"""All exceptions that Inlaid raises deliberately.

They derive from `InlaidError`. An error states the problem, the remedy, and, if known, the operator, the node of the source model
and the plugin.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from shlex import quote

__all__ = [
    "EXPLAIN",
    "REPORT",
    "CheckFailed",
    "CompileError",
    "DefaultTargetWarning",
    "DeviceLost",
    "DonationWarning",
    "ExpressionError",
    "FallbackWarning",
    "InlaidError",
    "InlaidWarning",
    "InputError",
    "InternalError",
    "KernelFault",
    "LockWarning",
    "ModelImportError",
    "NotInstalled",
    "OutOfMemory",
    "OutputError",
    "PackageError",
    "ParseError",
    "PlacementWarning",
    "PluginError",
    "Remedy",
    "ScheduleError",
    "ScheduleWarning",
    "TargetError",
    "TrainingWarning",
    "TypeInferenceError",
    "Unsupported",
    "VerifyError",
    "dims_setting",
    "setting",
    "suggestion",
]


@dataclass(frozen=True)
class Remedy:
    """Remedy of an error, worded for each interface: `python` uses arguments of the API, `command` uses options of `inlaid`."""

    python: str
    command: str

    @staticmethod
    def join(*parts: str | Remedy) -> Remedy:
        """Concatenate parts; a string applies to both interfaces."""
        remedies = [Remedy(part, part) if isinstance(part, str) else part for part in parts]
        return Remedy("".join(part.python for part in remedies), "".join(part.command for part in remedies))


def setting(name: str, value: str) -> Remedy:
    """Create the remedy to set a text argument, such as `placement="cost"` or `--placement cost`."""
    return Remedy(f'{name}="{value}"', f"--{name.replace('_', '-')} {value}")


def dims_setting(sizes: Mapping[str, int | tuple[int, int] | None]) -> Remedy:
    """Create the remedy to set sizes or bounds of symbolic dimensions, such as `dims={"batch": 1}` or `--dim batch=1`. A size of
    None becomes a placeholder."""

    def option(size: int | tuple[int, int] | None) -> str:
        return "SIZE" if size is None else f"{size[0]}:{size[1]}" if isinstance(size, tuple) else str(size)

    arguments = ", ".join(f'"{name}": {"..." if size is None else size}' for name, size in sizes.items())
    options = " ".join(f"--dim {quote(f'{name}={option(size)}')}" for name, size in sizes.items())
    return Remedy(f"dims={{{arguments}}}", options)


EXPLAIN = Remedy("inlaid.estimate(model, targets).to_text()", "inlaid partition --explain")
"""The remedy to show the target of each operator, and the reason."""

REPORT = Remedy("please report it with this traceback", "please report it with the traceback that --debug prints")
"""The remedy of a fault of Inlaid."""


class InlaidError(Exception):
    """Base class of Inlaid's exceptions.

    `operator` is the operator at fault, `node` the source node (model file and node name, or several nodes for a region), `region`
    the region, `plugin` the plugin at fault. `remedy` tells the user what to do; it is a `Remedy` if the wording depends on the
    interface. `str` formats the error for Python, `on_command_line` for the command.
    """

    def __init__(
        self,
        message: str,
        *,
        operator: str | None = None,
        node: str | None = None,
        region: str | None = None,
        plugin: str | None = None,
        remedy: str | Remedy | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.operator = operator
        self.node = node
        self.region = region
        self.plugin = plugin
        self.remedy = remedy

    def __str__(self) -> str:
        return self._text(self.remedy.python if isinstance(self.remedy, Remedy) else self.remedy)

    def on_command_line(self) -> str:
        """Format the error, with the remedy as options and commands."""
        return self._text(self.remedy.command if isinstance(self.remedy, Remedy) else self.remedy)

    def _text(self, remedy: str | None) -> str:
        facts = [
            f"{label} {value}"
            for label, value in (
                ("operator", self.operator),
                ("at", self.node),
                ("region", self.region),
                ("plugin", self.plugin),
            )
            if value
        ]
        text = self.message + (f" ({', '.join(facts)})" if facts else "")
        return f"{text}; {remedy}" if remedy else text


def suggestion(name: str, candidates: Collection[str]) -> str:
    """Suggest the known name closest to the unknown `name`, else one that it contains (`conv` in `convolution`), as text to append
    to a message; "" if no name is close."""
    import difflib

    close = difflib.get_close_matches(name, candidates, 1) or [each for each in candidates if len(each) > 3 and each in name]
    return f" (is {close[0]!r} meant?)" if close else ""


class InternalError(InlaidError):
    """An invariant of Inlaid does not hold: a fault of Inlaid, whatever the model. `__cause__` is the exception."""


class NotInstalled(InlaidError, ImportError):
    """A part of Inlaid is not installed. It is an `ImportError`, so that `from inlaid import` shows it."""


class TypeInferenceError(InlaidError):
    """A type cannot be inferred: the operands do not fit the operator."""


class ParseError(InlaidError):
    """Text does not parse as a module, a loop program, a target or a type."""


class ExpressionError(InlaidError, ValueError):
    """A tensor expression is malformed: shapes, dtypes or axes do not fit."""


class VerifyError(InlaidError):
    """An IR invariant is violated: a bug in a pass, or in IR built by hand."""


class ModelImportError(InlaidError):
    """A model file is damaged or hostile, or uses an unsupported feature."""


class ScheduleError(InlaidError):
    """A schedule primitive cannot be applied."""


class CompileError(InlaidError):
    """A compiler stage failed."""


class TargetError(InlaidError):
    """A target string is malformed or names a target that is not installed."""


class PluginError(InlaidError):
    """A plugin violates the contract."""


class PackageError(InlaidError):
    """A package file is damaged or hostile, or was made for another version."""


class OutputError(InlaidError, OSError):
    """A file cannot be written: the disk is full, or the folder is missing or read-only."""


class InputError(InlaidError):
    """A user's argument is invalid: the name, shape or dtype of an array, a size, a path, or the type of an argument."""


class Unsupported(InlaidError):
    """A target does not support an operation; the partitioner may fall back to another target."""


class OutOfMemory(InlaidError):
    """A device has too little memory for a buffer."""


class DeviceLost(InlaidError):
    """A device has stopped responding."""


class KernelFault(InlaidError):
    """A kernel reported an error at run time, such as an index out of range."""


class CheckFailed(InlaidError):
    """A check requested by the user failed, or could not be completed."""


class InlaidWarning(UserWarning):
    """Base class of warnings for users who compile a model."""


class TrainingWarning(InlaidWarning):
    """A model has operators in training mode, whose results are random."""


class PlacementWarning(InlaidWarning):
    """The solver of cost placement stopped at its time limit, before the optimum was proven."""


class LockWarning(InlaidWarning):
    """A lock places operators on targets that placement would not choose now."""


class ScheduleWarning(InlaidWarning):
    """Kernels with a generic schedule are predicted to take most of a region's time."""


class DonationWarning(InlaidWarning):
    """No output reuses the buffer of a donated input."""


class DefaultTargetWarning(InlaidWarning):
    """No target is given and the default target is not installed, so the slow reference target is used."""


class FallbackWarning(InlaidWarning):
    """A target's plugin failed to compile a region, so other targets run the region."""
