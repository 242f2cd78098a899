"""The command-line interface, `inlaid`."""

from __future__ import annotations

import gc
import sys
import traceback
from collections.abc import Sequence
from typing import NoReturn

from inlaid.support.collector import collect_rarely
from inlaid_cli.text import printable

DEBUG = "--debug"
JSON = "--json"


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run an `inlaid` command and exit. `arguments` defaults to the process's arguments.

    An error is printed as one line to standard error, and its `ExitCode` is the exit status; `--json` also prints an object to
    standard output. `--debug`, anywhere on the command line, adds the traceback.
    """
    collect_rarely()
    words = list(sys.argv[1:] if arguments is None else arguments)
    code = _run([item for item in words if item != DEBUG], debug=DEBUG in words)
    if arguments is None:
        gc.freeze()  # The process ends and frees all memory; a last collection takes 0.3 s after compiling ResNet-50.
    sys.exit(code)


def _run(arguments: list[str], debug: bool) -> int:
    import click

    from inlaid_cli.app import app
    from inlaid_cli.exit_codes import ExitCode

    try:
        code = app.main([DEBUG, *arguments] if debug and arguments else arguments, prog_name="inlaid", standalone_mode=False)
        return code if isinstance(code, int) else ExitCode.SUCCESS
    except click.Abort:
        return ExitCode.INTERRUPTED
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        return ExitCode.USAGE
    except BrokenPipeError:
        sys.stderr.close()
        return ExitCode.INPUT
    except Exception as error:
        return _report(error, debug, as_json=JSON in arguments)


def _report(error: Exception, debug: bool, as_json: bool) -> int:
    """Print an error and return its exit code. The error is one line on standard error; `debug` prints the traceback before it, and
    `as_json` prints JSON to standard output."""
    from inlaid_cli.exit_codes import exit_code
    from inlaid_cli.json_output import error_json, print_json

    code, message = exit_code(error), " ".join(_error_text(error, debug).split())
    if debug:
        print(printable(traceback.format_exc()), end="", file=sys.stderr)
    print(printable(f"inlaid: {message}"), file=sys.stderr)
    if as_json:
        print_json(error_json(error, message, code, code.label))
    return code


def _error_text(error: Exception, debug: bool) -> str:
    """Format an error, with its remedy for the command line. The number of an operating-system error is left out."""
    import click

    from inlaid_runtime.errors import InlaidError, PluginError

    if isinstance(error, click.ClickException):
        return error.format_message()
    if isinstance(error, PluginError):
        # A foreign exception raised inside a plugin: the plugin's author needs the traceback.
        foreign = error.__cause__ is not None and not isinstance(error.__cause__, InlaidError)
        return error.on_command_line() + (f"; {DEBUG} shows where" if foreign and not debug else "")
    if isinstance(error, InlaidError):
        return error.on_command_line()
    if isinstance(error, OSError):
        return f"{error.filename}: {error.strerror}" if error.strerror and error.filename else str(error)
    if isinstance(error, MemoryError):
        return f"not enough memory: {error or 'the model is too large for this machine'}"
    return f"internal error: {type(error).__name__}: {error}; {DEBUG} shows where; please report it"
