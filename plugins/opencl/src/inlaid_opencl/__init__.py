"""Inlaid's target for OpenCL devices: OpenCL C kernels and the runtime that launches them."""
