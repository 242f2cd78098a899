"""OpenCL devices: loop programs to OpenCL C, on grids of threads."""
