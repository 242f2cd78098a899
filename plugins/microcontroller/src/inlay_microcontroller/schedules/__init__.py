"""How kernels are computed on processors without vectors, or with few."""
