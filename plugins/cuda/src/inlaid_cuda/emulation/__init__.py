"""Emulate CUDA kernels on the host: compiled by its C++ compiler, with a fiber per thread (`emulation.h`)."""
