"""Kernels that run on grids of threads, in languages like C: each device's language is a `ThreadDialect`."""
