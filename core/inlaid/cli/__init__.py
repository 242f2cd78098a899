"""The command line."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Sequence
from typing import NoReturn

from inlaid.cli.text import printable

DEBUG = "--debug"


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Entry point of `inlaid`: run a command (that of the process, where none is given) and exit.

    Exit code 2 and one line on standard error for anything that is the user's to put right, 1 for a failure of Inlaid's own, 130
    where the user interrupts. `--debug`, anywhere on the line, shows tracebacks besides.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    sys.exit(_run([item for item in given if item != DEBUG], debug=DEBUG in given))


def _run(arguments: list[str], debug: bool) -> int:
    import click

    from inlaid.cli.app import app
    from inlaid.errors import InlaidError, PluginError

    try:
        code = app.main(arguments, prog_name="inlaid", standalone_mode=False)
        return code if isinstance(code, int) else 0
    except click.Abort:
        return 130
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        return 2
    except BrokenPipeError:
        sys.stderr.close()
        return 1
    except click.ClickException as error:
        return _say(error.format_message(), 2)
    except PluginError as error:
        # What a plugin raises that is no error of Inlaid's: whoever writes the plugin wants to see where.
        foreign = error.__cause__ is not None and not isinstance(error.__cause__, InlaidError)
        return _say(f"{_words(error)}; {DEBUG} shows where" if foreign and not debug else _words(error), 2, debug)
    except (InlaidError, OSError) as error:
        return _say(_words(error), 2, debug)
    except MemoryError as error:
        return _say(f"not enough memory: {error or 'the model is too large for this machine'}", 2, debug)
    except Exception as error:
        return _say(f"a failure of Inlaid's own: {type(error).__name__}: {error}; {DEBUG} shows where, please report it", 1, debug)


def _say(message: str, code: int, debug: bool = False) -> int:
    """One line on standard error, after the traceback of the error being handled where that is asked for."""
    if debug:
        print(printable(traceback.format_exc()), end="", file=sys.stderr)
    print(printable(f"inlaid: {' '.join(message.split())}"), file=sys.stderr)
    return code


def _words(error: Exception) -> str:
    """What an error says, with its remedy spelt for the command line; of an error of the operating system, without its number."""
    from inlaid.errors import InlaidError

    if isinstance(error, InlaidError):
        return error.on_command_line()
    if isinstance(error, OSError) and error.strerror and error.filename:
        return f"{error.filename}: {error.strerror}"
    return str(error)
