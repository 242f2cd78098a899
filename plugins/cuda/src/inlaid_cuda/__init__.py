"""Inlaid's target for NVIDIA GPUs: CUDA C++ kernels and the runtime that launches them."""
