"""`python -m inlaid`: the `inlaid` command."""

from inlaid.cli import main

if __name__ == "__main__":
    main()
