"""Commands that run in this process."""

from plugins.cli.tests.conftest import cli_folder, run

__all__ = ["cli_folder", "run"]
