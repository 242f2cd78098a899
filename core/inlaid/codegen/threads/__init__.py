"""Printer of SPMD kernels in C-like languages; a `ThreadDialect` describes each language."""
