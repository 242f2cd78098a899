"""Operators as cooperative loop programs for grids of blocks of threads."""
