"""Passes over graphs, and the pass manager."""
