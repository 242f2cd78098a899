"""Schedule rules for targets whose kernels are grids of blocks of threads."""
