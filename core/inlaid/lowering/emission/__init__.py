"""Second stage of lowering a region: scheduled kernels, their calls, and the buffers that calls read and write."""
