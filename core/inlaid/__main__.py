"""`python -m inlaid`: the `inlaid` command, which another distribution provides as a console script."""

import sys

from inlaid_runtime.plugins.entry_points import installed


def main() -> None:
    """Run the command."""
    for point in installed("console_scripts"):
        if point.name == "inlaid":
            point.load()()
            return
    sys.exit("inlaid: the command is provided by inlaid-cli, not installed here; pip install inlaid-cli")


if __name__ == "__main__":
    main()
