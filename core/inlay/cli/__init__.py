"""The command line."""

from __future__ import annotations

import sys


def main() -> None:
    """Entry point of `inlay`. Exit code 2 and one line on standard error for anything that is the user's to put right."""
    import click

    from inlay.cli.app import app
    from inlay.errors import InlayError

    debug = "--debug" in sys.argv
    try:
        app(standalone_mode=False)
    except click.Abort:
        sys.exit(130)
    except click.ClickException as error:
        print(f"inlay: {error.format_message()}", file=sys.stderr)
        sys.exit(2)
    except InlayError as error:
        if debug:
            raise
        print(f"inlay: {' '.join(str(error).split())}", file=sys.stderr)
        sys.exit(2)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(1)
