"""Emulation of CUDA kernels on the host. Its C++ compiler compiles them; each thread is a fiber (`emulation.h`)."""
