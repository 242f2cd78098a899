"""Algorithms of operators as loop programs for grids of blocks of threads."""
