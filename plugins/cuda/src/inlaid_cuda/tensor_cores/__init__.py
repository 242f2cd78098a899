"""Tensor cores: warp-collective instructions on small matrices, and schedules that use them."""
