"""Tensor cores: instructions that a warp runs together on small matrices, and schedules that use them."""
