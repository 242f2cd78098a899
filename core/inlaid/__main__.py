"""`python -m inlaid`."""

from inlaid.cli import main

main()
