"""Transformations of loop programs after scheduling, and the rewriting that they build on."""
