"""Exit codes of `inlaid`, and the errors that map to them."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """Exit status of a command. docs/command-line.md has the same table."""

    SUCCESS = 0
    CHECK_FAILED = 1
    """A check failed: a conformance case, a region of `run --shadow`, or an engine of `bench --against`."""
    USAGE = 2
    """The command line is wrong: an unknown command, option or target, or a bad value."""
    INPUT = 3
    """A file cannot be read or written, or a model, package or array is damaged or does not fit."""
    UNSUPPORTED = 4
    """The input is valid, but the targets, this machine or its memory cannot handle it."""
    INTERNAL = 5
    """Inlaid or a plugin failed: a bug to report."""
    INTERRUPTED = 130

    @property
    def label(self) -> str:
        """The name that `--json` prints, such as "check failed"."""
        return self.name.lower().replace("_", " ")


def exit_code(error: BaseException) -> ExitCode:
    """Return the exit code for an error."""
    import click

    from inlaid_runtime import errors

    match error:
        case errors.CheckFailed():
            return ExitCode.CHECK_FAILED
        case click.BadParameter(param=click.Parameter(type=click.Path(exists=True))) if type(error) is click.BadParameter:
            return ExitCode.INPUT  # a file that is not there
        case click.ClickException() | errors.TargetError():
            return ExitCode.USAGE
        case errors.Unsupported() | errors.CompileError() | errors.OutOfMemory() | errors.DeviceLost() | MemoryError():
            return ExitCode.UNSUPPORTED
        case errors.InternalError() | errors.PluginError() | errors.VerifyError() | errors.ScheduleError():
            return ExitCode.INTERNAL
        case errors.InlaidError() | OSError():
            return ExitCode.INPUT
    return ExitCode.INTERNAL
