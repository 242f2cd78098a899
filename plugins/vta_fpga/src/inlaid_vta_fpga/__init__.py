"""The `vta_fpga` target of Inlaid: the Versatile Tensor Accelerator."""
