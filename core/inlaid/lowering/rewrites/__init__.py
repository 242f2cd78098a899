"""Rewrites of a region's graph that depend on the target's capabilities, before its kernels become loop programs."""
