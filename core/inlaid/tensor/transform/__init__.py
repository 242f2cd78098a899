"""Transformations of loop programs after scheduling, and the `Rewriter` that they use."""
