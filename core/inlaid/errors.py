"""Every exception that Inlaid raises on purpose.

All of them derive from `InlaidError`. An error says what went wrong and, where it is known, which operator, which node of the
source model and which plugin are concerned, and what to do about it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from shlex import quote


@dataclass(frozen=True)
class Remedy:
    """What the user can do, spelt for each interface: `python` with arguments of the API, `command` with options of `inlaid`."""

    python: str
    command: str

    @staticmethod
    def of(*parts: str | Remedy) -> Remedy:
        """Concatenate texts that both interfaces share and those that differ."""
        given = [Remedy(part, part) if isinstance(part, str) else part for part in parts]
        return Remedy("".join(part.python for part in given), "".join(part.command for part in given))


def setting(name: str, value: str) -> Remedy:
    """Spell an argument of the API that takes text: `placement="cost"`, or `--placement cost`."""
    return Remedy(f'{name}="{value}"', f"--{name.replace('_', '-')} {value}")


def dims_setting(sizes: Mapping[str, int | tuple[int, int] | None]) -> Remedy:
    """Spell sizes or bounds of symbolic dimensions, None for a size that the user chooses: `dims={"batch": 1}`, or
    `--dim batch=1`."""

    def option(size: int | tuple[int, int] | None) -> str:
        return "SIZE" if size is None else f"{size[0]}:{size[1]}" if isinstance(size, tuple) else str(size)

    arguments = ", ".join(f'"{name}": {"..." if size is None else size}' for name, size in sizes.items())
    options = " ".join(f"--dim {quote(f'{name}={option(size)}')}" for name, size in sizes.items())
    return Remedy(f"dims={{{arguments}}}", options)


EXPLAIN = Remedy("inlaid.estimate(model, targets).to_text()", "inlaid partition --explain")
"""How to see where every operator runs, and why."""


class InlaidError(Exception):
    """Base of Inlaid's exception family.

    `operator` names the operator at fault, `node` the node of the source model (file and node name) or those of a region, `region`
    the region, `plugin` the plugin at fault, and `remedy` says what the user can do: a `Remedy` where its words depend on the
    interface. `str` spells it for Python, `on_command_line` for the command.
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
        """The error as text, with its remedy spelt as options and commands."""
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


def suggestion(name: str, known: Collection[str]) -> str:
    """Which of the known names is close to one that is not known, as words to append to a message; "" where none is."""
    import difflib

    close = difflib.get_close_matches(name, known, 1)
    return f" (is {close[0]!r} meant?)" if close else ""


class TypeInferenceError(InlaidError):
    """An expression has no type: the inputs do not fit the operator."""


class ParseError(InlaidError):
    """Text is not a module, a loop program, a target or a type."""


class ExpressionError(InlaidError, ValueError):
    """A tensor expression is malformed: shapes, dtypes or axes do not fit."""


class VerifyError(InlaidError):
    """An IR invariant does not hold; a bug in a pass or in hand-built IR."""


class ModelImportError(InlaidError):
    """A model file is damaged, hostile, or uses something Inlaid cannot import."""


class ScheduleError(InlaidError):
    """A schedule primitive cannot be applied."""


class CompileError(InlaidError):
    """A compiler stage failed."""


class TargetError(InlaidError):
    """A target string is malformed or names a target that is not installed."""


class CompilerMissing(InlaidError, ImportError):
    """The runtime is installed without the compiler."""


class PluginError(InlaidError):
    """A plugin breaks the contract."""


class PackageError(InlaidError):
    """A package file is damaged, hostile, or made for another version."""


class InputError(InlaidError):
    """What a user gives is not what is asked for: an array of a wrong name, shape or dtype, a size, a path, a kind of object."""


class Unsupported(InlaidError):
    """A target cannot do what is asked; the partitioner may fall back to another."""


class OutOfMemory(InlaidError):
    """A device has no room for a buffer."""


class DeviceLost(InlaidError):
    """A device stopped answering."""


class KernelFault(InlaidError):
    """A kernel reported an error while it ran, such as an index out of range."""


class CheckFailed(InlaidError):
    """A comparison that the user asked for found a difference, or could not be made completely."""


class InlaidWarning(UserWarning):
    """Base of the warnings that are for whoever compiles a model."""


class PlacementWarning(InlaidWarning):
    """Placement by cost stopped before it knew the best."""


class LockWarning(InlaidWarning):
    """A lock holds operators where they would not go any more."""


class ScheduleWarning(InlaidWarning):
    """Kernels without a schedule of their own are predicted to take most of a region's time."""


class DonationWarning(InlaidWarning):
    """No output takes over the buffer of a donated input."""


class DefaultTargetWarning(InlaidWarning):
    """No target is given, and the usual one is not installed: the slow reference target is taken."""


class FallbackWarning(InlaidWarning):
    """A region could not be compiled by its target's plugin, and went to other targets."""
