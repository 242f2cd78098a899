"""Execution of CUDA kernels by the host's C++ compiler and processor, one fiber a thread: `emulation.h`."""
