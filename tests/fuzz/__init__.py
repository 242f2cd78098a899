"""Mutants of models, packages and launch plans: each is refused with one clear error, or runs. `python -m tests.fuzz --help`."""
