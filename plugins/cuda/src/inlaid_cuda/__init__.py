"""NVIDIA GPUs: loop programs to CUDA C, on grids of threads."""
