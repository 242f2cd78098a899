"""`python -m inlaid`: the `inlaid` command."""

import sys

from inlaid import import_part
from inlaid.errors import CompilerMissing

if __name__ == "__main__":
    try:
        cli = import_part("inlaid.cli")
    except CompilerMissing as error:
        sys.exit(f"inlaid: {error}")
    cli.main()
